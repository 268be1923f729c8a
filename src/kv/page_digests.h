// Digests of the pages of a group of layers: of each page and KV head a few bytes that bound or
// sum up its K (kernels/page_digest.h), and perhaps labels of its tokens (kernels/token_labels.h),
// made when they are first asked for. A digest is of a page at one point of its life, its
// generation, so that a page that is used again never meets an old one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/page_digest.h"
#include "kernels/token_labels.h"
#include "kv/page_pool.h"
#include "tensor/lazy_buffer.h"

namespace weft::kv {

/// What of its K a page is told apart by.
struct DigestFormat {
  kernels::DigestKind kind{};
  kernels::DigestType type{};
  std::optional<kernels::LabelKind> labels;  // of each token; then the type is kInt8
  /// Of each layer of the cache [n_kv_heads][kernels::n_label_channels], as kernels::PagedLabels
  /// has them. Of kSides labels it may be empty: K's order.
  std::vector<uint8_t> channels;
  std::vector<bool> layers;  // of the cache that have digests; empty: all
  bool operator==(const DigestFormat&) const = default;
};
kernels::DigestLayout digest_layout(const DigestFormat& format, const kernels::KvLayout& layout);
/// format.labels must be there.
kernels::LabelLayout label_layout(const DigestFormat& format, const kernels::KvLayout& layout);
/// Of a page of one layer, all KV heads; labels not counted.
int64_t page_digest_bytes(const DigestFormat& format, const kernels::KvLayout& layout);
/// 0 without labels.
int64_t page_label_bytes(const DigestFormat& format, const kernels::KvLayout& layout);

/// One layer's.
struct LayerDigests {
  kernels::PagedDigests digests;
  std::optional<kernels::PagedLabels> labels;
};

/// For each layer [n_pages] digests, and labels. Memory is taken as they are made. One thread.
class PageDigests {
 public:
  /// kResourceExhausted when there is no address space.
  static Result<PageDigests> create(const DigestFormat& format, const kernels::KvLayout& layout,
                                    int32_t n_layers, int32_t n_pages);

  /// 0 <= layer < n_layers; channels: the layer's, of labels, or null. Valid as long as this object
  /// and they.
  LayerDigests layer(int32_t layer, const uint8_t* channels);
  /// Those of the pages that have no digest at this layer. Valid until the next call.
  std::span<const int32_t> missing(int32_t layer, std::span<const int32_t> pages,
                                   const PagePool& pool);
  /// The pages' digests of the layer were made.
  void set_made(int32_t layer, std::span<const int32_t> pages, const PagePool& pool) noexcept;
  /// The page is to be written: it has no digest, at any layer.
  void forget(int32_t page) noexcept;
  /// As PageContents::give_back says, in whole memory pages.
  void give_back(int32_t begin, int32_t end) noexcept;
  /// What the system has taken memory for. It asks the system: for tests.
  int64_t resident_bytes();

 private:
  PageDigests(const DigestFormat& format, const kernels::KvLayout& layout, int32_t n_layers,
              int32_t n_pages, LazyBuffer<std::byte> digests, LazyBuffer<std::byte> labels,
              LazyBuffer<uint64_t> made);

  kernels::DigestLayout layout_;
  std::optional<kernels::LabelLayout> label_layout_;
  int32_t n_layers_;
  int32_t n_pages_;
  LazyBuffer<std::byte> digests_;
  LazyBuffer<std::byte> labels_;  // of one byte where there are none
  // [n_layers][n_pages]: a layer's in a row, as a step looks at thousands of one layer's and
  // forgets one page's of all. The generation that a digest is of, and 1; 0: none.
  LazyBuffer<uint64_t> made_;
  std::vector<int32_t> missing_;
};

}  // namespace weft::kv
