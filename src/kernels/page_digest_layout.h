// Digests of KV pages: what a sparse step looks at in place of a page's keys to decide whether to
// attend to it. For each page and KV head one vector, or two, of the size of a key. Plain data
// only: kernels compiled per instruction set include this file.
#pragma once

#include <stdint.h>

namespace weft::kernels {

/// What a digest holds of the page's keys k, dimension by dimension.
enum class DigestKind : uint8_t {
  kMinMax,      // the largest and the least k: bounds every score (Quest, Tang et al. 2024, 3.3)
  kCuboidMean,  // c + d and c - d, c = (max + min) / 2, d = mean of |k - c| (ArkVale, Chen et al.
                // 2024): most keys' scores, not all, are below its score
  kMean,        // the mean (GSA)
};
enum class DigestType : uint8_t { kInt8, kF16 };

/// What a digest of one page and KV head is: maxima [head_dim], minima [head_dim] (of kCuboidMean
/// c + d, c - d), or means [head_dim], in the type; before those of kInt8 the step in f32, value =
/// step * byte. Digests lie at multiples of 4 bytes.
struct DigestLayout {
  DigestKind kind = DigestKind::kMinMax;
  DigestType type = DigestType::kInt8;
  int32_t head_dim = 0;  // a multiple of 8, at most kMaxHeadDim (paged_kv.h)
  int32_t n_kv_heads = 0;
  bool operator==(const DigestLayout&) const = default;
};

/// One layer's digests: [n_pages][n_kv_heads] of `bytes` each, so that all of a page lie together.
/// make_paged_digests (page_digest.h) makes one.
struct PagedDigests {
  DigestLayout layout;
  uint8_t* digests = nullptr;
  int32_t bytes = 0;
  const uint8_t* order = nullptr;  // [n_kv_heads][head_dim]: element i is of K's dimension
                                   // order[i]; null: of its dimension i
};

/// A KV head's order, or null.
static inline const uint8_t* digest_order(const PagedDigests& digests, int32_t kv_head) {
  return digests.order == nullptr ? nullptr : digests.order + kv_head * digests.layout.head_dim;
}

static inline uint8_t* digest_at(const PagedDigests& digests, int64_t page, int32_t kv_head) {
  return digests.digests + (page * digests.layout.n_kv_heads + kv_head) * digests.bytes;
}

/// Elements of a digest.
static inline int32_t digest_elements(const DigestLayout& layout) {
  return layout.kind == DigestKind::kMean ? layout.head_dim : 2 * layout.head_dim;
}

}  // namespace weft::kernels
