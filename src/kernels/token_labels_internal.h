// What token_labels.cc needs from token_labels_cpu.cc: one page, or some pages of a list, one
// thread each, over plain structs.
#pragma once

#include <stdint.h>

#include "kernels/isa.h"
#include "kernels/kv_codec_internal.h"
#include "kernels/page_digest_layout.h"
#include "kernels/paged_kv.h"
#include "kernels/token_labels_layout.h"

namespace weft::kernels {

/// Pages that a call of score() takes at most.
inline constexpr int32_t kLabelBlockPages = 32;

/// A query as the kernels take it.
struct PackedLabelQuery {
  int16_t* elements;  // [n_heads][n_label_channels]
  float* factors;     // [n_heads]: score = factor * step * sum
};

/// A query and one KV head's list of pages.
struct LabelRows {
  PagedDigests digests;
  PagedLabels labels;
  LabelDepth depth;
  PackedLabelQuery query;
  int32_t kv_head;
  int32_t group;  // query heads
  const int32_t* pages;
  const int32_t* places;
  int32_t part_tokens;  // that have a score
  float* scores;        // of the first of its heads, [group][stride]
  int64_t stride;
};

struct TokenLabelsFns {
  /// The labels of one page and KV head; k: [page_tokens] vectors.
  void (*make)(const KvCodecFns& codec, const PagedKv& kv, const uint8_t* k, const uint8_t* digest,
               const LabelLayout& layout, const uint8_t* channels, uint8_t* label);
  /// Head `head` of a query; q [head_dim] and the channels are the head's.
  void (*pack)(const LabelLayout& layout, const float* q, float scale, const uint8_t* channels,
               int32_t head, const PackedLabelQuery& packed);
  /// Scores of the list's places [begin, end), kLabelBlockPages at most.
  void (*score)(const LabelRows& rows, int64_t begin, int64_t end);
};

WEFT_ISA_TABLE(TokenLabelsFns, token_labels_fns)

}  // namespace weft::kernels
