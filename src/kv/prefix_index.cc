// The order of eviction is that in which pages became unused, a list through an array, as vLLM's
// free queue is: a sequence gives its pages back from the last one on, so the ends of texts go
// before their beginnings. By last use, as it was before, a walk over all nodes had to find who was
// next.
#include "kv/prefix_index.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/narrow.h"

namespace weft::kv {

bool PrefixIndex::KeyLess::operator()(const KeyView& a, const KeyView& b) const {
  if (a.parent != b.parent) return a.parent < b.parent;
  return std::lexicographical_compare(a.tokens.begin(), a.tokens.end(), b.tokens.begin(),
                                      b.tokens.end());
}

PrefixIndex::PrefixIndex(int32_t page_tokens, PagePool& pool)
    : page_tokens_(page_tokens), pool_(pool), links_(pool.page_count()) {
  WEFT_CHECK(page_tokens > 0);
  pool_.tell(this);
}

PrefixIndex::~PrefixIndex() {
  pool_.tell(nullptr);
  for (const auto& [page, node] : nodes_) pool_.release(page);
}

void PrefixIndex::one_holder_left(int32_t page) {
  if (contains(page)) link(page);
}

void PrefixIndex::two_holders_again(int32_t page) { unlink(page); }

void PrefixIndex::link(int32_t page) {
  Link& link = links_[page];
  WEFT_CHECK(!link.is_unused);
  link = {.before = last_unused_, .after = kNone, .is_unused = true};
  (last_unused_ == kNone ? first_unused_ : links_[last_unused_].after) = page;
  last_unused_ = page;
  ++n_unused_;
}

/// Nothing happens for one that is in use.
void PrefixIndex::unlink(int32_t page) {
  const Link link = links_[page];
  if (!link.is_unused) return;
  (link.before == kNone ? first_unused_ : links_[link.before].after) = link.after;
  (link.after == kNone ? last_unused_ : links_[link.after].before) = link.before;
  links_[page] = {};
  --n_unused_;
}

int32_t PrefixIndex::root_of(std::string_view salt) const {
  const auto root = roots_.find(salt);
  return root == roots_.end() ? 0 : root->second.id;
}

PrefixIndex::Children::const_iterator PrefixIndex::find(int32_t parent,
                                                        std::span<const int32_t> tokens) const {
  return children_.find(KeyView{parent, tokens});
}

std::vector<int32_t> PrefixIndex::match(std::string_view salt,
                                        std::span<const int32_t> tokens) const {
  std::vector<int32_t> pages;
  int32_t parent = root_of(salt);
  if (parent == 0) return pages;
  for (; std::ssize(tokens) >= page_tokens_; tokens = tokens.subspan(page_tokens_)) {
    const auto child = find(parent, tokens.first(page_tokens_));
    if (child == children_.end()) break;
    parent = child->second;
    pages.push_back(parent);
  }
  return pages;
}

// A salt without pages is not kept: tenants come and go.
void PrefixIndex::insert(std::string_view salt, std::span<const int32_t> tokens,
                         std::span<const int32_t> pages) {
  WEFT_CHECK(std::ssize(tokens) / page_tokens_ >= std::ssize(pages));
  if (pages.empty()) return;
  int32_t parent = root_of(salt);
  if (parent == 0) {
    if (contains(pages.front())) return;
    const auto root = roots_.emplace(salt, Root{.id = next_root_}).first;
    try {
      salts_.emplace(next_root_, root);
      add(next_root_, tokens.first(page_tokens_), pages.front(), 0);
    } catch (...) {
      salts_.erase(next_root_);
      roots_.erase(root);
      throw;
    }
    parent = next_root_--;
  }
  std::vector<int32_t> known;  // unused ones, from the start on
  for (size_t i = 0; i < pages.size(); ++i) {
    const auto ids = tokens.subspan(i * page_tokens_, page_tokens_);
    if (const auto child = find(parent, ids); child != children_.end()) {
      parent = child->second;
      if (links_[parent].is_unused) known.push_back(parent);
      continue;
    }
    if (contains(pages[i])) break;
    add(parent, ids, pages[i], narrow<int32_t>(i));
    parent = pages[i];
  }
  for (auto page = known.rbegin(); page != known.rend(); ++page) {
    unlink(*page);
    link(*page);
  }
}

/// Both the node and its place or none, though memory may run out between them.
void PrefixIndex::add(int32_t parent, std::span<const int32_t> ids, int32_t page, int32_t depth) {
  const auto node = nodes_.emplace(page, Node{{}, pool_.generation(page), depth});
  try {
    node.first->second.place = children_.emplace(Key{parent, {ids.begin(), ids.end()}}, page).first;
  } catch (...) {
    nodes_.erase(node.first);
    throw;
  }
  if (parent < 0) ++salts_.at(parent)->second.n_children;
  pool_.retain(page);
}

/// A root without children goes.
void PrefixIndex::drop_child_of(int32_t parent) {
  if (parent >= 0) return;
  const auto salt = salts_.find(parent);
  if (--salt->second->second.n_children > 0) return;
  roots_.erase(salt->second);
  salts_.erase(salt);
}

void PrefixIndex::remove(int32_t page) {
  std::vector<int32_t> doomed{page};  // grows while it is walked: a page's children after it
  for (size_t i = 0; i < doomed.size(); ++i) {
    for (auto child = children_.lower_bound(KeyView{doomed[i], {}});
         child != children_.end() && child->first.parent == doomed[i]; ++child) {
      doomed.push_back(child->second);
    }
  }
  for (const int32_t gone : doomed) {
    const auto node = nodes_.find(gone);
    WEFT_CHECK(node != nodes_.end());
    const int32_t parent = node->second.place->first.parent;
    children_.erase(node->second.place);
    nodes_.erase(node);
    drop_child_of(parent);
    unlink(gone);
    pool_.release(gone);
  }
}

// Keys are changed by taking their nodes out, which needs no memory. The children's keys are next
// to each other, and come to be next to each other elsewhere.
void PrefixIndex::rename(int32_t page, int32_t to) noexcept {
  auto node = nodes_.extract(page);
  if (node.empty()) return;
  WEFT_CHECK(!contains(to));
  node.key() = to;
  node.mapped().generation = pool_.generation(to);
  node.mapped().place->second = to;
  nodes_.insert(std::move(node));
  for (;;) {
    const auto child = children_.lower_bound(KeyView{page, {}});
    if (child == children_.end() || child->first.parent != page) break;
    auto moved = children_.extract(child);
    moved.key().parent = to;
    const auto place = children_.insert(std::move(moved)).position;
    nodes_.find(place->second)->second.place = place;
  }
  rename_link(page, to);
}

void PrefixIndex::rename_link(int32_t page, int32_t to) {
  const Link link = links_[page];
  if (!link.is_unused) return;
  links_[to] = link;
  links_[page] = {};
  (link.before == kNone ? first_unused_ : links_[link.before].after) = to;
  (link.after == kNone ? last_unused_ : links_[link.after].before) = to;
}

void PrefixIndex::evict(int32_t n_pages) {
  WEFT_CHECK(n_pages <= n_unused_);
  for (const int32_t left = n_unused_ - n_pages; n_unused_ > left;) {
    remove(last_unused_after(first_unused_));
  }
}

// A page may have been unused for longer than one after it only where a sequence replaced it by a
// copy of its own: then too the text's end goes first, so that no more is dropped than is wanted.
int32_t PrefixIndex::last_unused_after(int32_t page) const {
  for (;;) {
    auto child = children_.lower_bound(KeyView{page, {}});
    while (child != children_.end() && child->first.parent == page &&
           !links_[child->second].is_unused) {
      ++child;
    }
    if (child == children_.end() || child->first.parent != page) return page;
    page = child->second;
  }
}

std::vector<int32_t> PrefixIndex::unused() const {
  std::vector<int32_t> pages;
  for (int32_t page = first_unused_; page != kNone; page = links_[page].after)
    pages.push_back(page);
  return pages;
}

std::vector<PrefixIndex::Entry> PrefixIndex::entries() const {
  std::vector<Entry> all;
  for (const auto& [key, page] : children_) {
    const Node& node = nodes_.at(page);
    all.push_back({{page, node.generation}, key.parent, node.depth, key.tokens});
  }
  return all;
}

}  // namespace weft::kv
