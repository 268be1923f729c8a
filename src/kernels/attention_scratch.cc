// The same sizes as attention.cc asks for, from the same tables of functions, for the longest rows
// that there can be.
#include "kernels/attention_scratch.h"

#include <algorithm>

#include "kernels/attention.h"
#include "kernels/attention_internal.h"

namespace weft::kernels {
namespace {

int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

/// Of a row and a KV head. A window may begin and end within a split.
int64_t most_splits(const AttentionShape& shape) {
  const int64_t all = divide_up(shape.n_slots, kSplitKeys);
  if (shape.window_tokens == 0) return all;
  return std::min(all, divide_up(shape.window_tokens - 1, kSplitKeys) + 1);
}

}  // namespace

void count_attention(Isa isa, const AttentionShape& shape, WorkspaceSize& size) {
  constexpr int64_t kFloat = sizeof(float);
  const int32_t head_dim = shape.layout.head_dim;
  const int64_t n_kv_heads = shape.layout.n_kv_heads;
  const int32_t group = shape.n_heads / shape.layout.n_kv_heads;
  const AttentionFns& fns = pick_attention_fns(isa);
  const AttentionDecodeFns& decode_fns = pick_attention_decode_fns(isa);
  size.of_op(Use::kPartials, kFloat * shape.n_decode_rows * n_kv_heads * most_splits(shape) *
                                 decode_fns.partial(group, head_dim));
  size.of_worker(Use::kScratch, kFloat * fns.prefill_scratch(head_dim));
  size.of_worker(Use::kScratch, kFloat * decode_fns.scratch(group, head_dim));
  if (!shape.receives) return;
  const int64_t n_tiles = divide_up(shape.n_prompt_rows * group, fns.tile_queries);
  size.of_op(Use::kActivations, kFloat * n_kv_heads * n_tiles * fns.packed_tile(head_dim));
  size.of_worker(Use::kScratch, kFloat * fns.received_scratch(head_dim));
}

int64_t attention_plan_bytes(const AttentionShape& shape) {
  const int64_t n_kv_heads = shape.layout.n_kv_heads;
  const int64_t group = shape.n_heads / shape.layout.n_kv_heads;
  const int64_t n_prefill = n_kv_heads * divide_up(shape.n_prompt_rows * group, kTaskQueries);
  const int64_t n_decode = n_kv_heads * shape.n_decode_rows * most_splits(shape);
  return (n_prefill + n_decode) * sizeof(AttentionPlan::Task) +
         shape.n_decode_rows * sizeof(AttentionPlan::DecodeRow);
}

}  // namespace weft::kernels
