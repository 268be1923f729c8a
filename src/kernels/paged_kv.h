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

/// What a page of one layer is: for each KV head page_tokens vectors of K of head_dim elements,
/// then as many of V. The types are those that is_kv_type (kv_codec.h) takes.
struct KvLayout {
  DType k_type{};
  DType v_type{};
  int32_t head_dim = 0;  // a multiple of 8, at most kMaxHeadDim
  int32_t n_kv_heads = 0;
  int32_t page_tokens = 0;  // a power of two, 16 to 256
};

/// One layer of the page memory; K is rotated. pages: [n_pages][n_kv_heads], of each head K
/// [page_tokens] vectors and V [page_tokens] vectors. make_paged_kv (kv_codec.h) makes one.
struct PagedKv {
  KvLayout layout;
  uint8_t* pages = nullptr;
  int32_t k_bytes = 0;  // of a vector of K
  int32_t v_bytes = 0;
};

/// Tokens of a run, the least part of a page that a table may list: entry page * (page_tokens /
/// kRunTokens) + i is the i-th run of that page.
inline constexpr int32_t kRunTokens = 8;

static inline int32_t runs_of_page(const KvLayout& layout) {
  return layout.page_tokens / kRunTokens;
}

/// A token's place.
struct PagedSlot {
  int64_t page;
  int32_t token;  // within the page
};

/// Where slot `slot` of a table lies whose entries have entry_tokens each: page_tokens or
/// kRunTokens.
static inline PagedSlot find_slot(const KvLayout& layout, const int32_t* table,
                                  int32_t entry_tokens, int64_t slot) {
  // By shifts: dividing takes some 20 cycles.
  const int shift = __builtin_ctz(entry_tokens);
  const int of_page = __builtin_ctz(layout.page_tokens) - shift;
  const int32_t entry = table[slot >> shift];
  const int32_t part = entry & ((1 << of_page) - 1);
  return {entry >> of_page, (part << shift) + static_cast<int32_t>(slot & (entry_tokens - 1))};
}

/// Where a KV head's K begins in a page.
static inline uint8_t* head_of_page(const PagedKv& kv, int64_t page, int32_t kv_head) {
  const int64_t head = page * kv.layout.n_kv_heads + kv_head;
  return kv.pages + head * kv.layout.page_tokens * (kv.k_bytes + kv.v_bytes);
}

static inline uint8_t* k_in_page(const PagedKv& kv, PagedSlot slot, int32_t kv_head) {
  return head_of_page(kv, slot.page, kv_head) + int64_t{slot.token} * kv.k_bytes;
}

static inline uint8_t* v_in_page(const PagedKv& kv, PagedSlot slot, int32_t kv_head) {
  const int64_t k_bytes = int64_t{kv.layout.page_tokens} * kv.k_bytes;
  return head_of_page(kv, slot.page, kv_head) + k_bytes + int64_t{slot.token} * kv.v_bytes;
}

/// Of slot `slot` of a sequence.
static inline uint8_t* k_at(const PagedKv& kv, const int32_t* block_table, int64_t slot,
                            int32_t kv_head) {
  return k_in_page(kv, find_slot(kv.layout, block_table, kv.layout.page_tokens, slot), kv_head);
}

static inline uint8_t* v_at(const PagedKv& kv, const int32_t* block_table, int64_t slot,
                            int32_t kv_head) {
  return v_in_page(kv, find_slot(kv.layout, block_table, kv.layout.page_tokens, slot), kv_head);
}

/// The pages, or runs, that one KV head of a row reads, in the order of their slots, as a table of
/// their own: gathered, so that what was not chosen costs nothing. The row's slot is the last,
/// counted in these entries (Quest, Tang et al. 2024, section 3.4). An entry may stand for others
/// that are not read: exp(score) of each of its keys counts so many times.
struct HeadPages {
  const int32_t* table = nullptr;
  int32_t last_slot = 0;
  int32_t entry_tokens = 0;        // page_tokens or kRunTokens
  const float* weights = nullptr;  // of each entry, more than 0; null: 1
};

}  // namespace weft::kernels
