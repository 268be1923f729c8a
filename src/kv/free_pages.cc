// A list of freed pages, the last one first, was here before: it needed no search, and scattered
// the pages in use over all that had ever been. What is used must be known besides what is free, as
// both ends are asked for: the lowest free page is handed out, the highest used one moves down.
#include "kv/free_pages.h"

#include <bit>

#include "base/check.h"

namespace weft::kv {
namespace {

constexpr uint64_t kOne = 1;

/// The bits below `bit`, and those above it.
uint64_t below(int32_t bit) { return (kOne << bit) - 1; }
uint64_t above(int32_t bit) { return bit == 63 ? 0 : ~uint64_t{0} << (bit + 1); }

}  // namespace

PageSet::PageSet(int32_t n) : n_(n) {
  WEFT_CHECK(n > 0);
  for (int32_t words = n; words > 1 || levels_.empty();) {
    words = (words + 63) / 64;
    levels_.emplace_back(words, 0);
  }
}

// Upwards as long as a word was empty: its parent did not know of it.
void PageSet::add(int32_t page) {
  WEFT_CHECK(page >= 0 && page < n_ && !contains(page));
  ++count_;
  for (std::vector<uint64_t>& level : levels_) {
    uint64_t& word = level[page / 64];
    const bool was_empty = word == 0;
    word |= kOne << (page % 64);
    if (!was_empty) return;
    page /= 64;
  }
}

void PageSet::remove(int32_t page) {
  WEFT_CHECK(page >= 0 && page < n_ && contains(page));
  --count_;
  for (std::vector<uint64_t>& level : levels_) {
    uint64_t& word = level[page / 64];
    word &= ~(kOne << (page % 64));
    if (word != 0) return;
    page /= 64;
  }
}

int32_t PageSet::first() const {
  if (count_ == 0) return -1;
  return contains(0) ? 0 : first_after(0);
}

// Up to the first word with a bit on the side that is asked for, then down again to its nearest.
int32_t PageSet::last_before(int32_t page) const {
  WEFT_CHECK(page >= 0 && page <= n_);
  if (page == 0) return -1;
  // The bit itself counts on the level of pages when it is page - 1's: so from there.
  if (contains(page - 1)) return page - 1;
  int32_t at = page - 1;
  for (int32_t level = 0; level < std::ssize(levels_); ++level) {
    uint64_t found = levels_[level][at / 64] & below(at % 64);
    if (found == 0) {
      at /= 64;
      continue;
    }
    at = at / 64 * 64 + 63 - std::countl_zero(found);
    while (level-- > 0) {
      found = levels_[level][at];
      at = at * 64 + 63 - std::countl_zero(found);
    }
    return at;
  }
  return -1;
}

int32_t PageSet::first_after(int32_t page) const {
  WEFT_CHECK(page >= -1 && page < n_);
  if (page == -1) return first();
  int32_t at = page;
  for (int32_t level = 0; level < std::ssize(levels_); ++level) {
    uint64_t found = levels_[level][at / 64] & above(at % 64);
    if (found == 0) {
      at /= 64;
      continue;
    }
    at = at / 64 * 64 + std::countr_zero(found);
    while (level-- > 0) {
      found = levels_[level][at];
      at = at * 64 + std::countr_zero(found);
    }
    return at;
  }
  return -1;
}

FreePages::FreePages(int32_t n_pages) : free_(n_pages), used_(n_pages) {
  for (int32_t page = 0; page < n_pages; ++page) free_.add(page);
}

int32_t FreePages::take() {
  const int32_t page = free_.first();
  WEFT_CHECK(page >= 0);
  free_.remove(page);
  used_.add(page);
  return page;
}

void FreePages::give(int32_t page) {
  used_.remove(page);
  free_.add(page);
}

std::vector<int32_t> FreePages::list() const {
  std::vector<int32_t> pages;
  for (int32_t page = free_.first(); page >= 0; page = free_.first_after(page)) {
    pages.push_back(page);
  }
  return pages;
}

}  // namespace weft::kv
