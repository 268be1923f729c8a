// Where K and V lie in the page memory, and of which type they are. The kernels see this plain
// struct, never a cache class. Plain data and internal linkage only: kernels compiled per
// instruction set include this file.
#pragma once

#include <stdint.h>

namespace weft {
enum class DType : uint32_t;  // tensor/dtype.h
}

namespace weft::kernels {

inline constexpr int32_t kMaxHeadDim = 256;

/// What a page of one layer is: K [n_kv_heads][page_tokens] vectors of head_dim elements, then V as
/// many. The types are those that is_kv_type (kv_codec.h) takes.
struct KvLayout {
  DType k_type{};
  DType v_type{};
  int32_t head_dim = 0;  // a multiple of 8, at most kMaxHeadDim
  int32_t n_kv_heads = 0;
  int32_t page_tokens = 0;  // a power of two, 16 to 256
};

/// One layer of the page memory; K is rotated. k, v: [n_pages][n_kv_heads][page_tokens] vectors.
/// make_paged_kv (kv_codec.h) makes one.
struct PagedKv {
  KvLayout layout;
  uint8_t* k = nullptr;
  uint8_t* v = nullptr;
  int32_t k_bytes = 0;  // of a vector of K
  int32_t v_bytes = 0;
};

/// Which of the layer's vectors slot `slot` of a sequence has for a KV head.
static inline int64_t kv_vector(const KvLayout& kv, const int32_t* block_table, int64_t slot,
                                int32_t kv_head) {
  const int shift = __builtin_ctz(kv.page_tokens);  // a division is some 20 cycles, several a page
  const int64_t page = block_table[slot >> shift];
  return ((page * kv.n_kv_heads + kv_head) << shift) + (slot & (kv.page_tokens - 1));
}

static inline uint8_t* k_at(const PagedKv& kv, const int32_t* block_table, int64_t slot,
                            int32_t kv_head) {
  return kv.k + kv_vector(kv.layout, block_table, slot, kv_head) * kv.k_bytes;
}

static inline uint8_t* v_at(const PagedKv& kv, const int32_t* block_table, int64_t slot,
                            int32_t kv_head) {
  return kv.v + kv_vector(kv.layout, block_table, slot, kv_head) * kv.v_bytes;
}

/// The pages that one KV head of a row reads, in the order of their slots, as a block table of
/// their own: gathered, so that what was not chosen costs nothing. The row's slot is the last,
/// counted in these pages (Quest, Tang et al. 2024, section 3.4).
struct HeadPages {
  const int32_t* block_table = nullptr;
  int32_t last_slot = 0;
};

}  // namespace weft::kernels
