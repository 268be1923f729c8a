#include "kv/page_pool.h"

#include "base/check.h"

namespace weft::kv {

PagePool::PagePool(int32_t n_pages, PageContents& contents)
    : contents_(contents), ref_counts_(n_pages, 0), generations_(n_pages, 0) {
  WEFT_CHECK(n_pages > 0);
  free_.reserve(n_pages);
  for (int32_t page = n_pages - 1; page >= 0; --page) free_.push_back(page);
}

PageHandle PagePool::allocate() {
  WEFT_CHECK(!free_.empty());
  const int32_t page = free_.back();
  free_.pop_back();
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
  free_.push_back(page);
  contents_.page_freed(page);
}

}  // namespace weft::kv
