// Which pages are free: it hands out the lowest one first, so that those in use stay low and the
// memory above them can go back to the system. Integers only, and it never takes memory after it
// was made.
#pragma once

#include <cstdint>
#include <vector>

#include "base/narrow.h"

namespace weft::kv {

/// The numbers 0 to n - 1, each in the set or not, with the least and the greatest that is in it:
/// a tree of bits, 64 children a node. All of it in O(log n), which for a million is four words.
class PageSet {
 public:
  /// Empty. n > 0.
  explicit PageSet(int32_t n);

  bool contains(int32_t page) const { return (levels_[0][page / 64] >> (page % 64) & 1) != 0; }
  /// One that is not in it.
  void add(int32_t page);
  /// One that is in it.
  void remove(int32_t page);
  int32_t count() const { return count_; }
  /// The least and the greatest; -1: it is empty.
  int32_t first() const;
  int32_t last() const { return last_before(n_); }
  /// The greatest below `page`, which is 0 to n; the least above it, which is -1 to n - 1; -1:
  /// there is none.
  int32_t last_before(int32_t page) const;
  int32_t first_after(int32_t page) const;

 private:
  std::vector<std::vector<uint64_t>> levels_;  // [0] a bit a page, [i + 1] a bit a word of [i]
  int32_t n_;
  int32_t count_ = 0;
};

/// A page is free or used. One thread.
class FreePages {
 public:
  /// All are free. n_pages > 0.
  explicit FreePages(int32_t n_pages);

  /// The lowest free page, which is used from now on. There must be one.
  int32_t take();
  /// A used page.
  void give(int32_t page);

  int32_t count() const { return free_.count(); }
  int32_t used_count() const { return used_.count(); }
  /// One more than the highest used page: from here on all are free.
  int32_t used_end() const { return used_.last() + 1; }
  /// The free ones, and the used ones.
  const PageSet& free() const { return free_; }
  const PageSet& used() const { return used_; }
  /// The free ones as they would be handed out.
  std::vector<int32_t> list() const;

 private:
  PageSet free_, used_;
};

}  // namespace weft::kv
