// Digests of the pages of a group of layers: of each page and KV head a few bytes that bound or
// sum up its K (kernels/page_digest.h), made when they are first asked for. A digest is of a page
// at one point of its life, its generation, so that a page that is used again never meets an old
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/page_digest.h"
#include "kv/page_pool.h"
#include "tensor/lazy_buffer.h"

namespace weft::kv {

/// For each layer [n_pages] digests. Memory is taken as they are made. One thread.
class PageDigests {
 public:
  /// kResourceExhausted when there is no address space.
  static Result<PageDigests> create(const kernels::DigestLayout& layout, int32_t n_layers,
                                    int32_t n_pages);

  /// 0 <= layer < n_layers; valid as long as this object.
  kernels::PagedDigests layer(int32_t layer);
  /// Those of the pages that have no digest at this layer. Valid until the next call.
  std::span<const int32_t> missing(int32_t layer, std::span<const int32_t> pages,
                                   const PagePool& pool);
  /// The pages' digests of the layer were made.
  void set_made(int32_t layer, std::span<const int32_t> pages, const PagePool& pool) noexcept;
  /// The page is to be written: it has no digest, at any layer.
  void forget(int32_t page) noexcept;

 private:
  PageDigests(const kernels::DigestLayout& layout, int32_t n_layers, int32_t n_pages,
              LazyBuffer<std::byte> memory);

  kernels::DigestLayout layout_;
  int32_t n_layers_;
  int32_t n_pages_;
  LazyBuffer<std::byte> memory_;
  // [n_layers][n_pages]: a layer's in a row, as a step looks at thousands of one layer's and
  // forgets one page's of all. The generation that a digest is of, and 1; 0: none.
  std::vector<uint64_t> made_;
  std::vector<int32_t> missing_;
};

}  // namespace weft::kv
