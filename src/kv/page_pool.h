// Which pages of the KV cache are free and how many holders each of the others has. Integers only:
// it never touches K or V, and it never decides who may hold a page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/narrow.h"
#include "kv/free_pages.h"

namespace weft::kv {

/// What is in the pages that the integers count: the tensor half (PageMemory), or a test's model.
class PageContents {
 public:
  virtual ~PageContents() = default;
  /// Makes page `to` equal to page `from`, in every layer.
  virtual void copy_page(int32_t from, int32_t to) = 0;
  /// The page's last holder let go; nothing may read it from here on.
  virtual void page_freed(int32_t page) = 0;
  /// The memory of pages [begin, end) goes back to the system: all pages from `begin` on are free,
  /// and those from `end` on have no memory. What is in a page of it is undefined until written.
  virtual void give_back(int32_t begin, int32_t end) = 0;
};

/// Is told when a page has one holder left, and when it has two again. The holder that matters is
/// the prefix index: what it alone holds may go.
class PageUses {
 public:
  virtual ~PageUses() = default;
  virtual void one_holder_left(int32_t page) = 0;
  virtual void two_holders_again(int32_t page) = 0;
};

/// A page at one point of its life: the generation grows whenever the page is freed, so a handle
/// kept over that is recognised as stale.
struct PageHandle {
  int32_t page = -1;
  uint32_t generation = 0;
  bool operator==(const PageHandle&) const = default;
};

/// A fixed number of pages with reference counts. A page is in the free list or has holders, never
/// both. The lowest free page is handed out first, so that those in use stay together and the
/// memory above them can go back to the system. One thread.
class PagePool {
 public:
  /// n_pages > 0. `contents` is told of every page freed and must outlive the pool.
  PagePool(int32_t n_pages, PageContents& contents);

  /// A free page, held once from now on. There must be one.
  PageHandle allocate();
  /// One holder more of a page that is held.
  void retain(int32_t page);
  /// One holder less; the last one frees the page.
  void release(int32_t page);

  /// The page's contents and all its holders move to the lowest free page, which is lower, and is
  /// returned; the page is free then. Who holds it must be told by the caller. Takes no memory.
  PageHandle move_down(int32_t page) noexcept;
  /// The memory of the highest free pages that have any goes back, of up to `most` >= 0 pages and
  /// only of those above every used one; returns of how many.
  int32_t give_back(int32_t most) noexcept;
  /// Pages from here on have no memory: they were never used, or gave theirs back.
  int32_t memory_end() const { return memory_end_; }

  /// Null: nobody is told. `uses` must outlive the pool, or be taken back.
  void tell(PageUses* uses) { uses_ = uses; }

  PageContents& contents() { return contents_; }
  int32_t page_count() const { return narrow<int32_t>(ref_counts_.size()); }
  int32_t free_count() const { return free_.count(); }
  int32_t ref_count(int32_t page) const { return ref_counts_[page]; }
  uint32_t generation(int32_t page) const { return generations_[page]; }
  PageHandle handle(int32_t page) const { return {page, generation(page)}; }
  const FreePages& pages() const { return free_; }

 private:
  PageContents& contents_;
  PageUses* uses_ = nullptr;
  std::vector<int32_t> ref_counts_;    // [page_count]
  std::vector<uint32_t> generations_;  // [page_count]
  FreePages free_;
  int32_t memory_end_ = 0;
};

}  // namespace weft::kv
