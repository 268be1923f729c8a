// Finds cached pages by the token ids they were computed from: the longest run of full pages whose
// ids equal a prompt's start. Ids are compared, never only a hash of them. It knows nothing about
// what made a page exact: the caller enters such pages only, and fusion's never.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/narrow.h"
#include "kv/page_pool.h"

namespace weft::kv {

/// A tree for each tenant's salt, with one full page a node: a node's path from the root spells the
/// ids of everything up to the page's end. What was entered under one salt is never found under
/// another. Each node holds its page once, and a page is in the index at most once.
///
/// A page that nobody else holds is unused, and may be evicted: those that have been unused longest
/// first, so of a sequence that was freed the last page before the first. One thread.
class PrefixIndex : private PageUses {
 public:
  struct Entry {
    PageHandle page;
    int32_t parent = -1;          // the page before it; at the start a root, which is negative
    int32_t depth = 0;            // the page's slot in a block table
    std::vector<int32_t> tokens;  // [page_tokens]
  };

  /// `pool` must outlive the index.
  PrefixIndex(int32_t page_tokens, PagePool& pool);
  ~PrefixIndex() override;
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  /// The pages for the longest known start of `tokens`, in order; only whole pages. The pages are
  /// not retained for the caller.
  std::vector<int32_t> match(std::string_view salt, std::span<const int32_t> tokens) const;
  /// Enters pages[i] for tokens [i * page_tokens, (i + 1) * page_tokens), after those before it. A
  /// start that is known already keeps the page it has, as one just used; the walk ends at a page
  /// that is in the index in another place. tokens.size() >= pages.size() * page_tokens.
  void insert(std::string_view salt, std::span<const int32_t> tokens,
              std::span<const int32_t> pages);

  bool contains(int32_t page) const { return nodes_.contains(page); }
  /// Forgets the page and everything after it, which could not be found without it.
  void remove(int32_t page);

  /// The page's contents are in page `to`, which is not in the index and has `to`'s holders by now:
  /// what was found as the one is found as the other, and goes as soon. Nothing happens for a page
  /// that is not in the index. In O(log n) for each page that comes after it; takes no memory.
  void rename(int32_t page, int32_t to) noexcept;

  /// How many pages evict() could free: those that only the index holds. In O(1).
  int32_t evictable_count() const { return n_unused_; }
  /// Frees n_pages pages, those that have been unused longest first, but none before an unused one
  /// after it; n_pages <= evictable_count(). In O(1) a page, but for the search in its map.
  void evict(int32_t n_pages);
  /// The unused pages, the next to go first.
  std::vector<int32_t> unused() const;

  int32_t size() const { return narrow<int32_t>(nodes_.size()); }
  /// Every entry, by parent and tokens.
  std::vector<Entry> entries() const;

 private:
  struct Key {
    int32_t parent;
    std::vector<int32_t> tokens;
  };
  struct KeyView {
    int32_t parent;
    std::span<const int32_t> tokens;
  };
  struct KeyLess {
    using is_transparent = void;
    bool operator()(const KeyView& a, const KeyView& b) const;
    bool operator()(const Key& a, const Key& b) const { return (*this)(view(a), view(b)); }
    bool operator()(const Key& a, const KeyView& b) const { return (*this)(view(a), b); }
    bool operator()(const KeyView& a, const Key& b) const { return (*this)(a, view(b)); }
    static KeyView view(const Key& key) { return {key.parent, key.tokens}; }
  };
  using Children = std::map<Key, int32_t, KeyLess>;  // (parent page, its tokens) -> page
  struct Node {
    Children::iterator place;
    uint32_t generation;
    int32_t depth;
  };
  struct Root {
    int32_t id = 0;  // below 0
    int32_t n_children = 0;
  };
  /// Neighbours in the list of unused pages.
  struct Link {
    int32_t before = kNone;
    int32_t after = kNone;
    bool is_unused = false;
  };
  static constexpr int32_t kNone = -1;

  void one_holder_left(int32_t page) override;
  void two_holders_again(int32_t page) override;
  void link(int32_t page);  // as the last to go
  void unlink(int32_t page);
  void rename_link(int32_t page, int32_t to);
  int32_t last_unused_after(int32_t page) const;

  /// 0: there is none.
  int32_t root_of(std::string_view salt) const;
  Children::const_iterator find(int32_t parent, std::span<const int32_t> tokens) const;
  void add(int32_t parent, std::span<const int32_t> ids, int32_t page, int32_t depth);
  void drop_child_of(int32_t parent);

  int32_t page_tokens_;
  PagePool& pool_;
  Children children_;
  std::unordered_map<int32_t, Node> nodes_;         // by page
  std::map<std::string, Root, std::less<>> roots_;  // by salt; each has a child
  std::map<int32_t, std::map<std::string, Root, std::less<>>::iterator> salts_;  // by root
  int32_t next_root_ = -1;
  std::vector<Link> links_;  // [pages]
  int32_t first_unused_ = kNone, last_unused_ = kNone;
  int32_t n_unused_ = 0;
};

}  // namespace weft::kv
