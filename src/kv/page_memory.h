// The memory of the pages: K and V of every layer, as the kernels see them. It knows nothing
// about who holds a page, and it computes nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "kernels/kv_codec.h"
#include "kernels/paged_kv.h"
#include "kv/page_pool.h"
#include "tensor/lazy_buffer.h"

namespace weft::kv {

/// For each layer [n_pages] pages as in kernels/paged_kv.h: a KV head's K and V side by side, since
/// decode reads both of one head at a time. Fresh pages are zero and take no memory until they are
/// written (a layer's memory comes in pieces of 2 MB from 4 MB on, where the system has huge
/// pages); freed ones keep theirs until it is given back, after which they are like fresh ones but
/// for their ends, which may share a piece with what is in use. In debug builds a freed page is
/// filled with NaN, so that a read of it shows. One thread changes pages.
class PageMemory : public PageContents {
 public:
  struct Shape {
    int32_t n_layers = 0;  // may be 0: pages that are counted, and hold nothing
    int32_t n_pages = 0;
    kernels::KvLayout layout;
  };

  /// kUnsupported for a shape that the kernels do not take; kResourceExhausted when there is no
  /// address space for it.
  static Result<PageMemory> create(const Shape& shape);

  /// 0 <= index < n_layers. Valid as long as this object, also after it was moved.
  kernels::PagedKv layer(int index);

  /// K and V of a page, all layers.
  int64_t page_bytes() const { return shape_.n_layers * layer_page_bytes(); }

  void copy_page(int32_t from, int32_t to) override;
  void page_freed(int32_t page) override;
  /// In whole memory pages, and from 4 MB on in whole pieces of 2 MB: a part of one would come back
  /// to the system only once that is short of memory.
  void give_back(int32_t begin, int32_t end) override;
  /// What the system has taken memory for, in all layers.
  int64_t resident_bytes();

 private:
  PageMemory(const Shape& shape, LazyBuffer<std::byte> memory);
  int64_t layer_page_bytes() const;
  std::byte* page(int32_t layer, int32_t page);
  /// The next border of memory pages in the layer from this byte of it on.
  int64_t piece_end(int32_t layer, int64_t byte);

  Shape shape_;
  LazyBuffer<std::byte> memory_;
};

}  // namespace weft::kv
