// What score_groups() (page_digest.h) needs from score_groups_cpu.cc: one block of pages, or one KV
// head, one thread each, over plain structs.
#pragma once

#include <stdint.h>

#include "kernels/isa.h"

namespace weft::kernels {

/// Of a task of scoring: some 68 KB of a 1B model's digests, which are a few microseconds and stay
/// in the L2 for the next row of the same sequence. A multiple of the four pages that kernels take
/// at once, and of every set's registers. With 32 a layer's scores took 4 % longer, and joining
/// them 15 %.
inline constexpr int64_t kBlockPages = 64;

/// Heads whose scores are gone through together.
inline constexpr int32_t kBlockHeads = 4;

static inline int64_t block_rows(int32_t n_heads) {
  return (n_heads + kBlockHeads - 1) / kBlockHeads * kBlockHeads;
}
/// Elements of a block's maxima, and of its sums: from any head on a register can be read.
static inline int64_t block_sums(int32_t n_heads) { return (n_heads + 31) / 16 * 16; }

/// Floats of a block's scores [block_rows][kBlockPages] while they are made.
static inline int64_t block_scores(int32_t n_heads) { return block_rows(n_heads) * kBlockPages; }

/// Floats of what is kept of a block: how far each score lies below its head's maximum, f16
/// [block_rows][kBlockPages], then of each head [block_sums] maxima and [block_sums] sums of
/// exp(score - maximum). Where all scores are -inf: -inf and 0.
static inline int64_t block_floats(int32_t n_heads) {
  return block_scores(n_heads) / 2 + 2 * block_sums(n_heads);
}

/// All blocks of a row, one after the other.
struct GroupBlocks {
  const float* blocks;
  int64_t n_pages;
  int32_t n_heads;
  int32_t group;  // heads that share a KV head
};

struct ScoreGroupsFns {
  /// Makes a block of n scores of each head, which are overwritten. Scores past n, and those that
  /// are NaN, are -inf, +inf is the largest float.
  void (*sum_block)(float* scores, int32_t n_heads, int64_t n, float* block);
  /// out [n_pages] = the largest log softmax of a KV head's query heads.
  void (*join)(const GroupBlocks& blocks, int32_t kv_head, float* out);
};

WEFT_ISA_TABLE(ScoreGroupsFns, score_groups_fns)

}  // namespace weft::kernels
