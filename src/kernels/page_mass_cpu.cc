// Scores by the codecs' own product (KvCodecFns::score), block of keys after block as in
// attention_decode_cpu.cc, but kept instead of summed up with V.
#include <math.h>

#include "kernels/kv_codec_runs_internal.h"
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

/// The task's keys from `begin` on, as many as are of one block; none after its last.
KeySlots block_at(const MassTask& task, int64_t begin) {
  const int64_t task_end = task.begin + kMassSlots;
  int64_t end = task_end < task.rows.n_slots ? task_end : task.rows.n_slots;
  if (begin + kBlockKeys < end) end = begin + kBlockKeys;
  return {task.rows.table, task.rows.entry_tokens, task.kv_head, begin, end};
}

/// K of the first block that a worker reads. Since tasks ask for the next one's as well, 4,000 runs
/// of eight keys take 0.38 to 0.44 ms where they took 0.45 to 0.48 (1B shape, two threads, Zen 4).
void ask_for(const KeySlots& slots, const PagedKv& kv) {
  const NextKeys k = NextKeys::of_k({slots, &kv, slots});
  for (int32_t i = 0; i < kBlockKeys; ++i) k.ask(i, 0, kv.k_bytes);
}

/// Calls fn(h, slot, n, scores) for each head of the group and block of keys: scores [n] of the
/// slots from `slot` on.
template <class Fn>
void for_scores(const MassTask& task, const MassTask* next_task, float* scratch, const Fn& fn) {
  const MassRows& rows = task.rows;
  const int32_t head_dim = rows.kv.layout.head_dim;
  const GroupRows group = {.group = rows.group, .stride = padded(head_dim)};
  float* const q = scratch;
  float* const scores = q + int64_t{rows.group} * group.stride;
  for (int32_t h = 0; h < rows.group; ++h) {
    const int32_t head = task.kv_head * rows.group + h;
    const float* from = rows.q + int64_t{head} * head_dim;
    for (int32_t d = 0; d < group.stride; ++d) {
      q[h * group.stride + d] = d < head_dim ? from[d] * rows.scales[head] : 0.0f;
    }
  }
  if (rows.codec->prepare_queries != nullptr) rows.codec->prepare_queries(group, head_dim, q);
  if (task.is_first) ask_for(block_at(task, task.begin), rows.kv);
  for (KeySlots now = block_at(task, task.begin), next; now.begin < now.end; now = next) {
    next = block_at(task, now.end);
    const bool is_last = next.begin >= next.end;
    const KeySlots ahead = is_last && next_task ? block_at(*next_task, next_task->begin) : next;
    rows.codec->score({now, &rows.kv, ahead}, group, q, scores);
    for (int32_t h = 0; h < rows.group; ++h) {
      fn(h, now.begin, now.end - now.begin, scores + h * kBlockKeys);
    }
  }
}

void tokens(const MassTask& task, const MassTask* next, float* scratch) {
  const MassRows& rows = task.rows;
  for_scores(task, next, scratch, [&](int32_t h, int64_t slot, int64_t n, const float* scores) {
    float* const to = rows.scores + (task.kv_head * rows.group + h) * rows.stride + slot;
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

void pages(const MassTask& task, const MassTask* next, float* scratch) {
  const MassRows& rows = task.rows;
  const int32_t part_tokens = rows.part_tokens, shift = __builtin_ctz(part_tokens);
  const int64_t left = rows.n_slots - task.begin, n_slots = left < kMassSlots ? left : kMassSlots;
  const int64_t n_parts = (n_slots + part_tokens - 1) / part_tokens;
  float* const by_token = scratch + score_floats(rows.group, rows.kv.layout.head_dim);
  for (int64_t slot = n_slots; slot < n_parts * part_tokens; ++slot) {  // of the last part
    for (int32_t h = 0; h < rows.group; ++h) {
      by_token[h * kMassSlots + (slot & (part_tokens - 1)) * n_parts + (slot >> shift)] = -INFINITY;
    }
  }
  for_scores(task, next, scratch, [&](int32_t h, int64_t slot, int64_t n, const float* scores) {
    float* const to = by_token + h * kMassSlots;
    for (int64_t at = slot - task.begin; at < slot - task.begin + n; ++at) {
      to[(at & (part_tokens - 1)) * n_parts + (at >> shift)] = *scores++;
    }
  });
  for (int32_t h = 0; h < rows.group; ++h) {
    float* const to =
        rows.scores + (task.kv_head * rows.group + h) * rows.stride + (task.begin >> shift);
    log_sums_exp(by_token + h * kMassSlots, part_tokens, n_parts, to);
  }
}

}  // namespace

const PageMassFns& page_mass_fns() {
  static constexpr PageMassFns kFns = {scratch_floats, pages, tokens};
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA
