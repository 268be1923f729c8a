// The memory behind the pages: K and V of every layer, as the kernels see them. It knows nothing
// about who holds a page, and it computes nothing.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "kernels/paged_kv.h"
#include "kv/page_pool.h"
#include "tensor/lazy_buffer.h"

namespace weft::kv {

/// For each layer K and then V, each [n_pages][n_kv_heads][page_tokens][head_dim] f16. Fresh pages
/// are zero and take no memory until they are written; freed ones keep theirs. In debug builds a
/// freed page is filled with NaN, so that a read of it shows. One thread changes pages.
class PageMemory : public PageContents {
 public:
  struct Shape {
    int32_t n_layers = 0;
    int32_t n_pages = 0;
    int32_t n_kv_heads = 0;
    int32_t page_tokens = 0;  // a power of two, 16 to 256
    int32_t head_dim = 0;     // a multiple of 8, at most kernels::kMaxHeadDim
  };

  /// kUnsupported for a shape that the kernels do not take; kResourceExhausted when there is no
  /// address space for it.
  static Result<PageMemory> create(const Shape& shape);

  /// 0 <= index < n_layers. Valid as long as this object, also after it was moved.
  kernels::PagedKv layer(int index);

  void copy_page(int32_t from, int32_t to) override;
  void page_freed(int32_t page) override;

 private:
  PageMemory(const Shape& shape, LazyBuffer<uint16_t> memory);
  /// The page's elements in array `index`: K of layer index / 2 when even, V when odd.
  uint16_t* page(int32_t index, int32_t page);

  Shape shape_;
  size_t page_elements_;
  LazyBuffer<uint16_t> memory_;
};

}  // namespace weft::kv
