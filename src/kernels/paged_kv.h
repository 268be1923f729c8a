// Where K and V lie in the page memory. The kernels see this plain struct, never a cache class.
// Plain data and internal linkage only: kernels compiled per instruction set include this file.
#pragma once

#include <stdint.h>

namespace weft::kernels {

inline constexpr int32_t kMaxHeadDim = 256;

/// One layer of the page memory, f16. K is rotated.
///   k, v: [n_pages][n_kv_heads][page_tokens][head_dim]
struct PagedKv {
  uint16_t* k = nullptr;
  uint16_t* v = nullptr;
  int32_t page_tokens = 0;  // a power of two, 16 to 256
  int32_t n_kv_heads = 0;
  int32_t head_dim = 0;  // a multiple of 8, at most kMaxHeadDim
};

static inline bool is_valid(const PagedKv& kv) {
  return kv.k != nullptr && kv.v != nullptr && kv.page_tokens >= 16 && kv.page_tokens <= 256 &&
         (kv.page_tokens & (kv.page_tokens - 1)) == 0 && kv.n_kv_heads > 0 && kv.head_dim > 0 &&
         kv.head_dim % 8 == 0 && kv.head_dim <= kMaxHeadDim;
}

/// Elements from kv.k (or kv.v) to the head_dim halves of the token at `position`.
static inline int64_t kv_offset(const PagedKv& kv, const int32_t* block_table, int64_t position,
                                int32_t kv_head) {
  const int64_t page = block_table[position / kv.page_tokens];
  const int64_t slot = position % kv.page_tokens;
  return ((page * kv.n_kv_heads + kv_head) * kv.page_tokens + slot) * kv.head_dim;
}

}  // namespace weft::kernels
