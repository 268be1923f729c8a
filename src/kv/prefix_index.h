// Finds cached pages by the token ids they were computed from: the longest run of full pages whose
// ids equal a prompt's start. Ids are compared, never only a hash of them. It knows nothing about
// what made a page exact: the caller enters such pages only, and fusion's never.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/narrow.h"
#include "kv/page_pool.h"

namespace weft::kv {

/// A tree with one full page a node: a node's path from the root spells the ids of everything up to
/// the page's end. Each node holds its page once. Least recently used pages that nobody else holds
/// are dropped first. A node's page is in the index at most once. One thread.
class PrefixIndex {
 public:
  struct Entry {
    PageHandle page;
    int32_t parent = -1;          // the page before it, -1 at the start
    int32_t depth = 0;            // the page's slot in a block table
    uint64_t last_used = 0;       // a parent's is never below its children's
    std::vector<int32_t> tokens;  // [page_tokens]
  };

  /// `pool` must outlive the index.
  PrefixIndex(int32_t page_tokens, PagePool& pool);
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  /// The pages for the longest known start of `tokens`, in order; only whole pages. The pages are
  /// not retained for the caller.
  std::vector<int32_t> match(std::span<const int32_t> tokens) const;
  /// Marks what match(tokens) finds as just used.
  void touch(std::span<const int32_t> tokens);
  /// Enters pages[i] for tokens [i * page_tokens, (i + 1) * page_tokens), after those before it. A
  /// start that is known already keeps the page it has; the walk ends at a page that is in the
  /// index in another place. tokens.size() >= pages.size() * page_tokens.
  void insert(std::span<const int32_t> tokens, std::span<const int32_t> pages);

  bool contains(int32_t page) const { return nodes_.contains(page); }
  /// Forgets the page and everything after it, which could not be found without it.
  void remove(int32_t page);

  /// How many pages evict() could free: those that only the index holds.
  int32_t evictable_count() const;
  /// Frees n_pages pages, the least recently used ones first; n_pages <= evictable_count().
  void evict(int32_t n_pages);

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
    uint64_t last_used;
  };

  Children::const_iterator find(int32_t parent, std::span<const int32_t> tokens) const;

  int32_t page_tokens_;
  PagePool& pool_;
  uint64_t clock_ = 0;
  Children children_;
  std::unordered_map<int32_t, Node> nodes_;  // by page
};

}  // namespace weft::kv
