// Attention of a few rows: K and V are read from the pages once, for all heads that share them, and
// widened in registers (kv_codec_plain_internal.h). One task is one row, one KV head and one split
// of kSplitKeys slots.
//
// Reading K and V is what takes the time, so nothing is packed or transposed as in
// attention_cpu.cc: the lanes are dimensions, a score is a sum across them, and four such sums are
// made together (reduce_add4). When lanes were added through memory, decode at 4,096 keys read 7
// GB/s; with that and what was changed beside it 16 (Ice Lake, one core).
//
// Each product asks for the K or V of the next block of keys while it goes through this one's
// (NextKeys; of integers k_ahead, v_ahead): the CPU's own prefetcher stops at every 4 KB, and a
// head's part of a page is not much more. All at once before a block they hid nothing. A task's
// last block asks for what the task after it begins with; what another core took is asked for in
// vain.
//
// Within a split softmax runs online over blocks of kBlockKeys keys (Milakov and Gimelshein 2018):
//   m' = max(m, max s),  l' = l 2^(m - m') + sum 2^(s - m'),  o' = o 2^(m - m') + sum 2^(s - m') v,
// scores in base 2: log2(e) is multiplied into q once, with the scale. A page's weight is a factor
// of its 2^(s - m'). Splits s of a row are joined by the same rule:
//   out = sum of 2^(m_s - m) o_s / sum of 2^(m_s - m) l_s.
#include <math.h>

#include "kernels/attention_internal.h"
#include "kernels/kv_codec_runs_internal.h"
#include "kernels/simd_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

constexpr float kLog2E = 0x1.715476p+0f;
constexpr float kLn2 = 0x1.62e430p-1f;

/// head_dim rounded up to whole registers: 80 is 80 with 16 lanes, 24 is 32.
int32_t padded(int32_t head_dim) { return (head_dim + kLanes - 1) / kLanes * kLanes; }

/// One task's memory. out, max and sum are the partial result.
struct Work {
  int32_t head_dim, stride;  // stride: head_dim padded to registers
  int32_t entry_shift;       // log2 of the tokens of an entry of the table
  float softcap;             // in base 2, as the scores; 0: none
  float* q;                  // [group][stride], scaled, 0 after head_dim
  float* scores;             // [group][kBlockKeys]
  float* out;                // [group][stride]
  float* max;                // [group]
  float* sum;                // [group]
};

/// Heads whose softmax goes step by step together: each step of one waits for the one before, and
/// the CPU looks ahead over less than one head's.
constexpr int32_t kSoftmaxHeads = 4;

/// out of the heads from `first` on is rescaled from their old maxima to `tops`, and their sums.
void rescale(const Work& w, int32_t first, int32_t n_heads, const float* tops) {
  for (int32_t i = 0; i < n_heads; ++i) {
    const int32_t h = first + i;
    const F32 correction = exp2(set1(w.max[h] - tops[i]));
    float corrections[kLanes];
    store(corrections, correction);
    w.max[h] = tops[i];
    w.sum[h] *= corrections[0];
    float* out = w.out + h * w.stride;
    for (int32_t d = 0; d < w.stride; d += kLanes) store(out + d, mul(load(out + d), correction));
  }
}

/// Of the keys from j on, as many as a register has, of which n are there. With AVX-512 a run is
/// half of a register.
inline F32 weights_at(const Work& w, const float* weights, int32_t j, [[maybe_unused]] int32_t n) {
  const float* const first = weights + (j >> w.entry_shift);
#if defined(__AVX512F__)
  const int32_t second = j + (1 << w.entry_shift);
  if (second < j + kLanes && second < n) return set_halves(first[0], first[1]);
#endif
  return set1(first[0]);
}

/// Scores of n keys of the heads from `first` on become exp(score - running maximum); out is
/// rescaled to it where that is another than before. Scores past n up to a whole register become
/// -inf, that is the weight 0. The first block's old maximum is -inf: 2^(-inf - m') is 0, which is
/// right for sums that are 0.
///
/// weights: of each entry's keys, or null: what a key then counts for beside exp(score).
///
/// kWhole: n is kBlockKeys, and the compiler may know it, which is 2 % of q8_0's decode.
template <bool kWhole>
void softmax(const Work& w, int32_t first, int32_t n_heads, int32_t n, const float* weights) {
  const int32_t n_padded = kWhole ? kBlockKeys : (n + kLanes - 1) / kLanes * kLanes;
  float* const all_scores = w.scores + first * kBlockKeys;
  float tops[kSoftmaxHeads];
  bool is_higher = false;
  for (int32_t i = 0; i < n_heads; ++i) {
    float* scores = all_scores + i * kBlockKeys;
    if (w.softcap > 0) {
      for (int32_t j = 0; j < n_padded; j += kLanes) {
        store(scores + j, mul(tanh(load(scores + j)), set1(w.softcap)));
      }
    }
    for (int32_t j = n; j < n_padded; ++j) scores[j] = -INFINITY;
    F32 highest = set1(w.max[first + i]);
#pragma GCC unroll 4
    for (int32_t j = 0; j < n_padded; j += kLanes) highest = max(load(scores + j), highest);
    tops[i] = reduce_max(highest);
    is_higher |= tops[i] != w.max[first + i];
  }
  if (is_higher) rescale(w, first, n_heads, tops);
  F32 sums[kSoftmaxHeads];
  for (int32_t i = 0; i < n_heads; ++i) {
    float* scores = all_scores + i * kBlockKeys;
    sums[i] = set1(0.0f);
#pragma GCC unroll 4
    for (int32_t j = 0; j < n_padded; j += kLanes) {
      F32 p = exp2(sub(load(scores + j), set1(tops[i])));
      if (weights != nullptr) p = mul(p, weights_at(w, weights, j, n));
      store(scores + j, p);
      sums[i] = add(sums[i], p);
    }
  }
  for (int32_t i = 0; i < n_heads; ++i) w.sum[first + i] += reduce_add(sums[i]);
}

/// Joins what the keys [begin, end) of one block weigh, page by page, to what their pages weighed
/// before it: a split is whole pages, so that nobody else writes these. By libm, as it tells pages
/// apart and no result is made of it.
void add_page_sums(const AttentionRows& rows, const Work& w, int64_t row, int32_t kv_head,
                   int64_t begin, int64_t end) {
  const int64_t page_tokens = rows.kv.layout.page_tokens;
  const int64_t n_pages = rows.slots[row] / page_tokens + 1;
  for (int32_t h = 0; h < rows.group; ++h) {
    float* sums = rows.page_log_sums + (kv_head * rows.group + h) * n_pages;
    const float* weights = w.scores + h * kBlockKeys;
    for (int64_t slot = begin; slot < end;) {
      const int64_t page = slot / page_tokens;
      const int64_t page_end = (page + 1) * page_tokens < end ? (page + 1) * page_tokens : end;
      const bool is_first = slot % page_tokens == 0;
      float sum = is_first ? 0.0f : expf(sums[page] - w.max[h] * kLn2);
      for (; slot < page_end; ++slot) sum += weights[slot - begin];
      sums[page] = w.max[h] * kLn2 + logf(sum);
    }
  }
}

int64_t scratch_floats(int32_t group, int32_t head_dim) {
  return int64_t{group} * (padded(head_dim) + kBlockKeys);
}

int64_t partial_floats(int32_t group, int32_t head_dim) {
  return int64_t{group} * (padded(head_dim) + 2);
}

/// Divides a worker's scratch, and the task's place among the partial results, among the arrays. q
/// is copied with the factor multiplied in, so that scores come out scaled; with a soft cap the
/// factor is scale / cap, and softmax() puts tanh and the cap over it.
Work make_work(const AttentionRows& rows, int64_t row, int32_t kv_head, float* scratch,
               float* partial) {
  const int32_t group = rows.group;
  Work w;
  w.head_dim = rows.kv.layout.head_dim;
  w.stride = padded(w.head_dim);
  w.entry_shift = __builtin_ctz(entry_tokens(rows, kv_head));
  w.q = scratch;
  w.scores = w.q + group * w.stride;
  w.out = partial;
  w.max = w.out + group * w.stride;
  w.sum = w.max + group;
  const float* q = rows.q + (row * rows.n_heads + kv_head * group) * w.head_dim;
  w.softcap = rows.softcap * kLog2E;
  const float factor = rows.softcap > 0 ? rows.scale / rows.softcap : rows.scale * kLog2E;
  for (int32_t h = 0; h < group; ++h) {
    for (int32_t d = 0; d < w.stride; ++d) {
      w.q[h * w.stride + d] = d < w.head_dim ? q[h * w.head_dim + d] * factor : 0.0f;
    }
    w.max[h] = -INFINITY;
    w.sum[h] = 0.0f;
  }
  memset(w.out, 0, group * w.stride * sizeof(float));
  return w;
}

/// K and V of the first block that a worker reads, for which no block has asked: K by itself took
/// 4.8 us, as long as five blocks for which the ones before had asked (f16, a 1B model's shape).
void ask_for(const KeySlots& slots, const PagedKv& kv) {
  const KeyBlock block = {slots, &kv, slots};
  const NextKeys k = NextKeys::of_k(block), v = NextKeys::of_v(block);
  for (int32_t i = 0; i < kBlockKeys; ++i) k.ask(i, 0, kv.k_bytes);
  for (int32_t i = 0; i < kBlockKeys; ++i) v.ask(i, 0, kv.v_bytes);
}

/// A task's keys from `begin` on, as many as are of one block; none after its last. Blocks end at
/// multiples of kBlockKeys slots, whatever slot the window begins at: a row whose window covers the
/// context has the bits of one without a window.
KeySlots block_at(const DecodeTask& task, int64_t begin) {
  const int64_t split_end = (task.split + 1) * kSplitKeys;
  const int64_t n_visible = last_visible(task.rows, task.row, task.kv_head) + 1;
  int64_t end = (begin / kBlockKeys + 1) * kBlockKeys;
  if (end > n_visible) end = n_visible;
  if (begin >= end || begin >= split_end) end = begin;
  return {.table = head_table(task.rows, task.kv_head),
          .entry_tokens = entry_tokens(task.rows, task.kv_head),
          .kv_head = task.kv_head,
          .begin = begin,
          .end = end};
}

KeySlots first_block(const DecodeTask& task) {
  const int64_t begin = task.split * kSplitKeys, visible = first_visible(task.rows, task.row);
  return block_at(task, begin > visible ? begin : visible);
}

void decode(const DecodeTask& task, const DecodeTask* next_task, float* scratch, float* partial) {
  const AttentionRows& rows = task.rows;
  const int32_t kv_head = task.kv_head;
  const Work w = make_work(rows, task.row, kv_head, scratch, partial);
  const GroupRows group = {.group = rows.group, .stride = w.stride};
  if (rows.k_codec->prepare_queries != nullptr) {
    rows.k_codec->prepare_queries(group, w.head_dim, w.q);
  }
  const float* weights = head_weights(rows, kv_head);
  if (task.is_first) ask_for(first_block(task), rows.kv);
  for (KeySlots now = first_block(task), next; now.begin < now.end; now = next) {
    next = block_at(task, now.end);
    const bool is_last = next.begin == next.end;
    const KeyBlock keys = {now, &rows.kv, is_last && next_task ? first_block(*next_task) : next};
    rows.k_codec->score(keys, group, w.q, w.scores);
    const float* of_block = weights == nullptr ? nullptr : weights + (now.begin >> w.entry_shift);
    const int32_t n = now.end - now.begin;
    for (int32_t h = 0; h < rows.group; h += kSoftmaxHeads) {
      const int32_t n_heads = rows.group - h < kSoftmaxHeads ? rows.group - h : kSoftmaxHeads;
      n == kBlockKeys ? softmax<true>(w, h, n_heads, n, of_block)
                      : softmax<false>(w, h, n_heads, n, of_block);
    }
    if (rows.page_log_sums != nullptr) {
      add_page_sums(rows, w, task.row, kv_head, now.begin, now.end);
    }
    rows.v_codec->add_values(keys, group, w.scores, w.out);
  }
}

/// By the vector's exp2: libm's exp2f need not have the same bits on every machine.
float power_of_two(float x) {
  float lanes[kLanes];
  store(lanes, exp2(set1(x)));
  return lanes[0];
}

/// A head whose page list ends before a split left -inf and 0 there: the factor is 0. Every row
/// sees at least its own slot, so one maximum is finite and the sum is not 0.
void merge(const AttentionRows& rows, int64_t row, int32_t kv_head, int64_t n_splits,
           const float* partials) {
  const int32_t group = rows.group;
  const int32_t head_dim = rows.kv.layout.head_dim;
  const int32_t stride = padded(head_dim);
  const int64_t partial = partial_floats(group, head_dim);
  const float* first = partials + kv_head * n_splits * partial;
  for (int32_t h = 0; h < group; ++h) {
    const int64_t max_at = int64_t{group} * stride + h;
    float top = first[max_at];
    for (int64_t s = 1; s < n_splits; ++s) top = fmaxf(top, first[s * partial + max_at]);
    float sums[kMaxHeadDim];
    memset(sums, 0, head_dim * sizeof(float));
    float sum = 0;
    for (int64_t s = 0; s < n_splits; ++s) {
      const float* p = first + s * partial;
      const float factor = power_of_two(p[max_at] - top);
      sum += p[max_at + group] * factor;
      for (int32_t d = 0; d < head_dim; ++d) sums[d] += p[h * stride + d] * factor;
    }
    const int64_t index = row * rows.n_heads + kv_head * group + h;
    const float factor = 1.0f / sum;
    float* out = rows.out + index * head_dim;
    for (int32_t d = 0; d < head_dim; ++d) out[d] = sums[d] * factor;
    if (rows.log_sum_exp != nullptr) rows.log_sum_exp[index] = top * kLn2 + logf(sum);
  }
}

}  // namespace

const AttentionDecodeFns& attention_decode_fns() {
  static constexpr AttentionDecodeFns kFns = {scratch_floats, partial_floats, decode, merge};
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA
