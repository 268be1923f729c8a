#include "kv/page_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace weft::kv {

PagePool::PagePool(int32_t n_pages, PageContents& contents)
    : contents_(contents), ref_counts_(n_pages, 0), generations_(n_pages, 0), free_(n_pages) {}

PageHandle PagePool::allocate() {
  const int32_t page = free_.take();
  memory_end_ = std::max(memory_end_, page + 1);
  ref_counts_[page] = 1;
  return handle(page);
}

void PagePool::retain(int32_t page) {
  WEFT_CHECK(ref_count(page) > 0);
  if (++ref_counts_[page] == 2 && uses_ != nullptr) uses_->two_holders_again(page);
}

void PagePool::release(int32_t page) {
  WEFT_CHECK(ref_count(page) > 0);
  if (--ref_counts_[page] > 0) {
    if (ref_counts_[page] == 1 && uses_ != nullptr) uses_->one_holder_left(page);
    return;
  }
  ++generations_[page];
  free_.give(page);
  contents_.page_freed(page);
}

PageHandle PagePool::move_down(int32_t page) noexcept {
  WEFT_CHECK(ref_count(page) > 0);
  const PageHandle to = allocate();
  WEFT_CHECK(to.page < page);
  contents_.copy_page(page, to.page);
  ref_counts_[to.page] = std::exchange(ref_counts_[page], 0);
  ++generations_[page];
  free_.give(page);
  contents_.page_freed(page);
  return to;
}

// From above, so that what has memory stays one range, and one number says what it is.
int32_t PagePool::give_back(int32_t most) noexcept {
  WEFT_CHECK(most >= 0);
  const int32_t end = memory_end_;
  const int32_t begin = std::max(free_.used_end(), end - most);
  if (begin == end) return 0;
  contents_.give_back(begin, end);
  memory_end_ = begin;
  return end - begin;
}

}  // namespace weft::kv
