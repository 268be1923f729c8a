#include "kv/prefix_index.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "base/narrow.h"

namespace weft::kv {
namespace {
constexpr int32_t kRoot = -1;
}  // namespace

bool PrefixIndex::KeyLess::operator()(const KeyView& a, const KeyView& b) const {
  if (a.parent != b.parent) return a.parent < b.parent;
  return std::lexicographical_compare(a.tokens.begin(), a.tokens.end(), b.tokens.begin(),
                                      b.tokens.end());
}

PrefixIndex::PrefixIndex(int32_t page_tokens, PagePool& pool)
    : page_tokens_(page_tokens), pool_(pool) {
  WEFT_CHECK(page_tokens > 0);
}

PrefixIndex::~PrefixIndex() {
  for (const auto& [page, node] : nodes_) pool_.release(page);
}

PrefixIndex::Children::const_iterator PrefixIndex::find(int32_t parent,
                                                        std::span<const int32_t> tokens) const {
  return children_.find(KeyView{parent, tokens});
}

std::vector<int32_t> PrefixIndex::match(std::span<const int32_t> tokens) const {
  std::vector<int32_t> pages;
  for (; std::ssize(tokens) >= page_tokens_; tokens = tokens.subspan(page_tokens_)) {
    const auto child = find(pages.empty() ? kRoot : pages.back(), tokens.first(page_tokens_));
    if (child == children_.end()) break;
    pages.push_back(child->second);
  }
  return pages;
}

void PrefixIndex::touch(std::span<const int32_t> tokens) {
  ++clock_;
  for (const int32_t page : match(tokens)) nodes_.at(page).last_used = clock_;
}

void PrefixIndex::insert(std::span<const int32_t> tokens, std::span<const int32_t> pages) {
  WEFT_CHECK(std::ssize(tokens) / page_tokens_ >= std::ssize(pages));
  ++clock_;
  int32_t parent = kRoot;
  for (size_t i = 0; i < pages.size(); ++i) {
    const auto ids = tokens.subspan(i * page_tokens_, page_tokens_);
    if (const auto known = find(parent, ids); known != children_.end()) {
      parent = known->second;
      nodes_.at(parent).last_used = clock_;
      continue;
    }
    const int32_t page = pages[i];
    if (contains(page)) return;
    // Both or none, though memory may run out between them.
    const auto node =
        nodes_.emplace(page, Node{{}, pool_.generation(page), narrow<int32_t>(i), clock_});
    try {
      node.first->second.place =
          children_.emplace(Key{parent, {ids.begin(), ids.end()}}, page).first;
    } catch (...) {
      nodes_.erase(node.first);
      throw;
    }
    pool_.retain(page);
    parent = page;
  }
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
    children_.erase(node->second.place);
    nodes_.erase(node);
    pool_.release(gone);
  }
}

int32_t PrefixIndex::evictable_count() const {
  return narrow<int32_t>(std::count_if(nodes_.begin(), nodes_.end(), [&](const auto& node) {
    return pool_.ref_count(node.first) == 1;
  }));
}

void PrefixIndex::evict(int32_t n_pages) {
  // A parent was used no earlier than its children, and among equals the deeper one goes first: so
  // no page goes before an unused one after it, and each round frees exactly one page.
  std::vector<std::tuple<uint64_t, int32_t, int32_t>> unused;  // last use, -depth, page
  for (const auto& [page, node] : nodes_) {
    if (pool_.ref_count(page) == 1) unused.emplace_back(node.last_used, -node.depth, page);
  }
  WEFT_CHECK(n_pages <= std::ssize(unused));
  const auto end = unused.begin() + n_pages;
  std::partial_sort(unused.begin(), end, unused.end());
  for (auto it = unused.begin(); it != end; ++it) remove(std::get<2>(*it));
}

std::vector<PrefixIndex::Entry> PrefixIndex::entries() const {
  std::vector<Entry> all;
  for (const auto& [key, page] : children_) {
    const Node& node = nodes_.at(page);
    all.push_back({{page, node.generation}, key.parent, node.depth, node.last_used, key.tokens});
  }
  return all;
}

}  // namespace weft::kv
