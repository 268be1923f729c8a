// What attention.cc needs from attention_cpu.cc and attention_decode_cpu.cc: the parts that tasks
// are made of, one thread each, over plain structs.
#pragma once

#include <stdint.h>

#include "kernels/isa.h"
#include "kernels/kv_codec_internal.h"
#include "kernels/paged_kv.h"

namespace weft::kernels {

/// Queries (rows times the heads that share a KV head) of one prefill task. More would widen K and
/// V less often (2 to 3 % of the time at 144), fewer would balance better. A multiple of every
/// set's tile.
inline constexpr int32_t kTaskQueries = 144;
/// Keys of one decode task: short enough that a few threads share one KV head at some thousand
/// keys, long enough that merging costs nothing.
inline constexpr int32_t kSplitKeys = 512;

/// The rows of one sequence. slots, first_slots, q, out, log_sum_exp start at its first row. Query
/// i of a KV head is row i / group, head kv_head * group + i % group.
struct AttentionRows {
  PagedKv kv;
  const KvCodecFns* k_codec;
  const KvCodecFns* v_codec;
  const int32_t* block_table;
  const int32_t* slots;
  const int32_t* first_slots;  // null: 0
  const HeadPages* heads;      // [n_kv_heads], in place of block_table and slots; or null
  int32_t n_heads;
  int32_t group;  // heads that share a KV head
  float scale;
  float softcap;  // 0: none
  const float* q;
  float* out;
  float* log_sum_exp;
  float* page_log_sums;  // of one decode row: [n_heads][pages up to its own], or null
};

/// The first slot that the row sees.
static inline int64_t first_visible(const AttentionRows& rows, int64_t row) {
  return rows.first_slots == nullptr ? 0 : rows.first_slots[row];
}

/// Of a decode row: where the KV head finds its keys, and the last of them.
static inline const int32_t* head_table(const AttentionRows& rows, int32_t kv_head) {
  return rows.heads == nullptr ? rows.block_table : rows.heads[kv_head].table;
}
static inline int32_t entry_tokens(const AttentionRows& rows, int32_t kv_head) {
  return rows.heads == nullptr ? rows.kv.layout.page_tokens : rows.heads[kv_head].entry_tokens;
}
static inline int64_t last_visible(const AttentionRows& rows, int64_t row, int32_t kv_head) {
  return rows.heads == nullptr ? rows.slots[row] : rows.heads[kv_head].last_slot;
}
/// Of the entries of head_table; null: 1.
static inline const float* head_weights(const AttentionRows& rows, int32_t kv_head) {
  return rows.heads == nullptr ? nullptr : rows.heads[kv_head].weights;
}

/// Scratch sizes are functions of the shape, not constants, since a set's tiles decide them. All of
/// a task's memory comes from the caller: a kernel never allocates.
struct AttentionFns {
  /// Floats that one worker needs for prefill tasks.
  int64_t (*prefill_scratch)(int32_t head_dim);
  /// The queries [begin, end) of a KV head, at most kTaskQueries.
  void (*prefill)(const AttentionRows& rows, int32_t kv_head, int64_t begin, int64_t end,
                  float* scratch);
  /// Queries of one tile, and the floats that a packed tile takes.
  int32_t tile_queries;
  int64_t (*packed_tile)(int32_t head_dim);
  /// Packs the queries of tile `tile` of a KV head for `received`.
  void (*pack)(const AttentionRows& rows, int64_t n_rows, int32_t kv_head, int64_t tile,
               float* packed);
  /// Floats that one worker needs for tasks of `received`.
  int64_t (*received_scratch)(int32_t head_dim);
  /// received[j] += the probabilities of key j, for the keys [begin, end) of one block (begin its
  /// first), summed over all queries; packed [n_kv_heads][n_tiles]. Writes received[begin … end)
  /// only.
  void (*received)(const AttentionRows& rows, int64_t n_rows, int64_t begin, int64_t end,
                   const float* packed, float* scratch, float* received);
};

/// The keys [split * kSplitKeys, …) that a row sees, for the heads of one KV head.
struct DecodeTask {
  AttentionRows rows;
  int64_t row;
  int32_t kv_head;
  int64_t split;
  bool is_first;  // of its worker: no task before has asked for its keys
};

struct AttentionDecodeFns {
  /// Floats that one worker needs for decode tasks.
  int64_t (*scratch)(int32_t group, int32_t head_dim);
  /// Floats of the partial result of one split of one KV head.
  int64_t (*partial)(int32_t group, int32_t head_dim);
  /// next_task: what the worker takes after this one unless another helps it, whose first keys are
  /// asked for at its end; or null.
  void (*decode)(const DecodeTask& task, const DecodeTask* next_task, float* scratch,
                 float* partial);
  /// Joins the partial results [n_kv_heads][n_splits] of a row, in the order of the splits, for the
  /// heads of one KV head, into rows.out and, where it is there, rows.log_sum_exp.
  void (*merge)(const AttentionRows& rows, int64_t row, int32_t kv_head, int64_t n_splits,
                const float* partials);
};

WEFT_ISA_TABLE(AttentionFns, attention_fns)
WEFT_ISA_TABLE(AttentionDecodeFns, attention_decode_fns)

}  // namespace weft::kernels
