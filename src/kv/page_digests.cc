#include "kv/page_digests.h"

#include <utility>

#include "base/check.h"

namespace weft::kv {
namespace {

uint64_t mark(int32_t page, const PagePool& pool) { return uint64_t{pool.generation(page)} + 1; }

}  // namespace

Result<PageDigests> PageDigests::create(const kernels::DigestLayout& layout, int32_t n_layers,
                                        int32_t n_pages) {
  const int64_t layer_bytes = int64_t{n_pages} * layout.n_kv_heads * kernels::digest_bytes(layout);
  WEFT_ASSIGN_OR_RETURN(
      auto memory, LazyBuffer<std::byte>::create(n_layers * layer_bytes, "digests of KV pages"));
  return PageDigests(layout, n_layers, n_pages, std::move(memory));
}

PageDigests::PageDigests(const kernels::DigestLayout& layout, int32_t n_layers, int32_t n_pages,
                         LazyBuffer<std::byte> memory)
    : layout_(layout),
      n_layers_(n_layers),
      n_pages_(n_pages),
      memory_(std::move(memory)),
      made_(int64_t{n_layers} * n_pages) {}

kernels::PagedDigests PageDigests::layer(int32_t layer) {
  WEFT_CHECK(layer >= 0 && layer < n_layers_);
  const int64_t layer_bytes =
      int64_t{n_pages_} * layout_.n_kv_heads * kernels::digest_bytes(layout_);
  return kernels::make_paged_digests(layout_, memory_.data() + layer * layer_bytes);
}

std::span<const int32_t> PageDigests::missing(int32_t layer, std::span<const int32_t> pages,
                                              const PagePool& pool) {
  missing_.clear();
  const uint64_t* const made = made_.data() + int64_t{layer} * n_pages_;
  for (const int32_t page : pages) {
    if (made[page] != mark(page, pool)) missing_.push_back(page);
  }
  return missing_;
}

void PageDigests::set_made(int32_t layer, std::span<const int32_t> pages,
                           const PagePool& pool) noexcept {
  uint64_t* const made = made_.data() + int64_t{layer} * n_pages_;
  for (const int32_t page : pages) made[page] = mark(page, pool);
}

void PageDigests::forget(int32_t page) noexcept {
  for (int32_t layer = 0; layer < n_layers_; ++layer) made_[int64_t{layer} * n_pages_ + page] = 0;
}

}  // namespace weft::kv
