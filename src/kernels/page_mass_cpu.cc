// Scores by the codecs' own product (KvCodecFns::score), block of keys after block as in
// attention_decode_cpu.cc, but kept instead of summed up with V.
#include <math.h>

#include "kernels/page_mass_internal.h"
#include "kernels/simd_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

/// head_dim rounded up to whole registers.
int32_t padded(int32_t head_dim) { return (head_dim + kLanes - 1) / kLanes * kLanes; }

/// q, and scores of a block of keys.
int64_t score_floats(int32_t group, int32_t head_dim) {
  return int64_t{group} * (padded(head_dim) + kBlockKeys);
}

/// And of all the task's slots, with what a register has more at the end.
int64_t scratch_floats(int32_t group, int32_t head_dim) {
  return score_floats(group, head_dim) + int64_t{group} * kMassSlots + kLanes;
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
    return {rows.table, rows.entry_tokens, kv_head, slot, block_end};
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

/// out[i] = log of the sum of exp(x[t * n_parts + i]) over part i's tokens t. NaN if one of them
/// is: max() may pass it over, the sum does not. Parts are lanes: summed one by one, across the
/// lanes of a register, a run of eight took longer than its products. What lanes after the last
/// part find is no matter.
void log_sums_exp(const float* x, int32_t part_tokens, int64_t n_parts, float* out) {
  for (int64_t first = 0; first < n_parts; first += kLanes) {
    F32 top = set1(-INFINITY), sum = set1(0.0f);
    for (int32_t t = 0; t < part_tokens; ++t) top = max(load(x + t * n_parts + first), top);
    for (int32_t t = 0; t < part_tokens; ++t) {
      sum = add(sum, exp(sub(load(x + t * n_parts + first), top)));
    }
    float tops[kLanes], sums[kLanes];
    store(tops, top);
    store(sums, sum);
    for (int32_t i = 0; i < kLanes && first + i < n_parts; ++i) {
      out[first + i] = tops[i] + logf(sums[i]);
    }
  }
}

void pages(const MassRows& rows, int32_t kv_head, int64_t begin, float* scratch) {
  const int32_t part_tokens = rows.part_tokens, shift = __builtin_ctz(part_tokens);
  const int64_t left = rows.n_slots - begin, n_slots = left < kMassSlots ? left : kMassSlots;
  const int64_t n_parts = (n_slots + part_tokens - 1) / part_tokens;
  float* const by_token = scratch + score_floats(rows.group, rows.kv.layout.head_dim);
  for (int64_t slot = n_slots; slot < n_parts * part_tokens; ++slot) {  // of the last part
    for (int32_t h = 0; h < rows.group; ++h) {
      by_token[h * kMassSlots + (slot & (part_tokens - 1)) * n_parts + (slot >> shift)] = -INFINITY;
    }
  }
  for_scores(rows, kv_head, begin, scratch,
             [&](int32_t h, int64_t slot, int64_t n, const float* scores) {
               float* const to = by_token + h * kMassSlots;
               for (int64_t at = slot - begin; at < slot - begin + n; ++at) {
                 to[(at & (part_tokens - 1)) * n_parts + (at >> shift)] = *scores++;
               }
             });
  for (int32_t h = 0; h < rows.group; ++h) {
    float* const to = rows.scores + (kv_head * rows.group + h) * rows.stride + (begin >> shift);
    log_sums_exp(by_token + h * kMassSlots, part_tokens, n_parts, to);
  }
}

}  // namespace

const PageMassFns& page_mass_fns() {
  static constexpr PageMassFns kFns = {scratch_floats, pages, tokens};
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA
