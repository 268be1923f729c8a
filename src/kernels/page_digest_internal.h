// What page_digest.cc needs from page_digest_cpu.cc: one page, or one block of pages, one thread
// each, over plain structs.
#pragma once

#include <stdint.h>

#include "kernels/isa.h"
#include "kernels/kv_codec_internal.h"
#include "kernels/page_digest_layout.h"
#include "kernels/paged_kv.h"

namespace weft::kernels {

/// Elements that packed queries are padded to with zeros: whole registers of every set.
inline constexpr int32_t kQueryElements = 64;

/// A query as the kernels take it.
struct PackedQuery {
  void* elements;  // [n_heads][stride]: int8_t of kInt8, float of kF16 (the scale multiplied in)
  float* factors;  // [n_heads], of kInt8: score = factor * step * sum
};

/// Elements of a head's packed query.
static inline int32_t query_stride(const DigestLayout& layout) {
  return (layout.head_dim + kQueryElements - 1) / kQueryElements * kQueryElements;
}

/// A query and its list of pages.
struct ScoreRows {
  PagedDigests digests;
  PackedQuery query;
  int32_t n_heads;
  const int32_t* pages;
  int64_t n_pages;
  float* scores;  // [n_heads][stride], of the pages that are scored
  int64_t stride;
  bool is_first;       // of the worker's blocks: none before has asked for its digests
  int64_t next_begin;  // of the block that the worker most likely takes next, or any after the last
  int32_t n_parts_ahead;  // four pages each, a power of two: what is asked for meanwhile
};

struct PageDigestFns {
  /// The digest of one page and KV head; k: [page_tokens] vectors; order: its, or null.
  void (*make)(const KvCodecFns& codec, const PagedKv& kv, const uint8_t* k,
               const DigestLayout& layout, const uint8_t* order, uint8_t* digest);
  /// Head `head` of a query; q [head_dim] is the head's, and the order its KV head's.
  void (*pack)(const DigestLayout& layout, const float* q, float scale, const uint8_t* order,
               int32_t head, const PackedQuery& packed);
  /// scores[h * stride + i - begin] of the list's pages i in [begin, end).
  void (*score)(const ScoreRows& rows, int64_t begin, int64_t end);
};

WEFT_ISA_TABLE(PageDigestFns, page_digest_fns)

}  // namespace weft::kernels
