// Scores by the codecs' own product (KvCodecFns::score), block of keys after block as in
// attention_decode_cpu.cc, but kept instead of summed up with V.
#include <math.h>

#include "kernels/page_mass_internal.h"
#include "kernels/simd_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

/// head_dim rounded up to whole registers.
int32_t padded(int32_t head_dim) { return (head_dim + kLanes - 1) / kLanes * kLanes; }

/// q, scores of a block of keys, and those of all the task's slots.
int64_t scratch_floats(int32_t group, int32_t head_dim) {
  return int64_t{group} * (padded(head_dim) + kBlockKeys + kMassSlots);
}

/// Calls fn(h, slot, n, scores) for each head of the group and block of keys: scores [n] of the
/// slots from `slot` on.
template <class Fn>
void for_scores(const MassRows& rows, int32_t kv_head, int64_t begin, float* scratch,
                const Fn& fn) {
  const int32_t head_dim = rows.kv.layout.head_dim;
  const GroupRows group = {.group = rows.group, .stride = padded(head_dim)};
  float* const q = scratch;
  float* const scores = q + int64_t{rows.group} * group.stride;
  for (int32_t h = 0; h < rows.group; ++h) {
    const int32_t head = kv_head * rows.group + h;
    const float* from = rows.q + int64_t{head} * head_dim;
    for (int32_t d = 0; d < group.stride; ++d) {
      q[h * group.stride + d] = d < head_dim ? from[d] * rows.scales[head] : 0.0f;
    }
  }
  if (rows.codec->prepare_queries != nullptr) rows.codec->prepare_queries(group, head_dim, q);
  const int64_t task_end = begin + kMassSlots;
  const int64_t end = task_end < rows.n_slots ? task_end : rows.n_slots;
  const auto block_at = [&](int64_t slot) -> KeySlots {
    const int64_t block_end = slot + kBlockKeys < end ? slot + kBlockKeys : end;
    return {rows.pages, rows.kv.layout.page_tokens, kv_head, slot, block_end};
  };
  for (KeySlots now = block_at(begin), next; now.begin < now.end; now = next) {
    next = block_at(now.end);
    rows.codec->score({now, &rows.kv, next}, group, q, scores);
    for (int32_t h = 0; h < rows.group; ++h) {
      fn(h, now.begin, now.end - now.begin, scores + h * kBlockKeys);
    }
  }
}

void tokens(const MassRows& rows, int32_t kv_head, int64_t begin, float* scratch) {
  for_scores(rows, kv_head, begin, scratch,
             [&](int32_t h, int64_t slot, int64_t n, const float* scores) {
               float* const to = rows.scores + (kv_head * rows.group + h) * rows.stride + slot;
               memcpy(to, scores, n * sizeof(float));
             });
}

/// log of the sum of exp(x [n]), a page's or a part's. NaN if one is: max() may pass it over, the
/// sum does not.
float log_sum_exp(const float* x, int64_t n) {
  float top = -INFINITY;
  for (int64_t i = 0; i < n; ++i) top = x[i] > top ? x[i] : top;
  F32 sum = set1(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    float part[kLanes];
    for (int j = 0; j < kLanes; ++j) part[j] = i + j < n ? x[i + j] : -INFINITY;
    sum = add(sum, exp(sub(load(part), set1(top))));
  }
  return top + logf(reduce_add(sum));
}

void pages(const MassRows& rows, int32_t kv_head, int64_t begin, float* scratch) {
  const int32_t part_tokens = rows.part_tokens;
  float* const all = scratch + scratch_floats(rows.group, rows.kv.layout.head_dim) -
                     int64_t{rows.group} * kMassSlots;
  for_scores(rows, kv_head, begin, scratch,
             [&](int32_t h, int64_t slot, int64_t n, const float* scores) {
               memcpy(all + h * kMassSlots + (slot - begin), scores, n * sizeof(float));
             });
  for (int64_t slot = begin; slot < begin + kMassSlots && slot < rows.n_slots;
       slot += part_tokens) {
    const int64_t left = rows.n_slots - slot;
    const int64_t n = left < part_tokens ? left : part_tokens;
    for (int32_t h = 0; h < rows.group; ++h) {
      float* const to = rows.scores + (kv_head * rows.group + h) * rows.stride;
      to[slot / part_tokens] = log_sum_exp(all + h * kMassSlots + (slot - begin), n);
    }
  }
}

}  // namespace

const PageMassFns& page_mass_fns() {
  static constexpr PageMassFns kFns = {scratch_floats, pages, tokens};
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA
