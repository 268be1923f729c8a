// Attention of a few rows: K and V are read from the pages once, for all heads that share them, and
// widened in registers. One task is one row, one KV head and one split of kSplitKeys positions.
#include <math.h>

#include "kernels/attention_internal.h"
#include "kernels/simd_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

// Heads taken together: by 4 keys (or 4 registers of V) they are the accumulators; with the
// operands they fit the 32 registers of AVX-512, or 16.
#if defined(__AVX512F__)
constexpr int kHeadBatch = 4;
#else
constexpr int kHeadBatch = 2;
#endif

constexpr float kLog2E = 0x1.715476p+0f;
constexpr float kLn2 = 0x1.62e430p-1f;

int32_t padded(int32_t head_dim) { return (head_dim + kLanes - 1) / kLanes * kLanes; }

/// One task's memory. out, max and sum are the partial result.
struct Work {
  int32_t head_dim, stride;  // stride: head_dim padded to registers
  float softcap;             // in base 2, as the scores; 0: none
  float* q;                  // [group][stride], scaled, 0 after head_dim
  float* scores;             // [group][kBlockKeys]
  float* out;                // [group][stride]
  float* max;                // [group]
  float* sum;                // [group]
};

/// scores[h][0 … n) = q[h] . k for kHeads heads; k [n][head_dim]. Writes a whole number of four
/// scores: a block's last run begins at its first key or at a multiple of 16 positions, so they lie
/// within the block.
template <int kHeads>
void score_keys(const Work& w, const uint16_t* k, int32_t n, const float* q, float* scores) {
  for (int32_t j = 0; j < n; j += 4) {
    const uint16_t* keys[4];
    for (int i = 0; i < 4; ++i) {
      const int32_t key = j + i < n ? j + i : n - 1;
      keys[i] = k + static_cast<int64_t>(key) * w.head_dim;
    }
    F32 acc[kHeads][4];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) acc[h][i] = set1(0.0f);
    }
    for (int32_t d = 0; d < w.head_dim; d += kLanes) {
      F32 wide[4];
      if (d + kLanes <= w.head_dim) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) wide[i] = widen(keys[i] + d);
      } else {
        for (int i = 0; i < 4; ++i) wide[i] = widen_part(keys[i] + d, w.head_dim - d);
      }
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        const F32 b = load(q + h * w.stride + d);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) acc[h][i] = fmadd(wide[i], b, acc[h][i]);
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      reduce_add4(acc[h][0], acc[h][1], acc[h][2], acc[h][3], scores + h * kBlockKeys + j);
    }
  }
}

/// out[h] += scores[h] V for kHeads heads; v [n][head_dim].
template <int kHeads>
void add_values(const Work& w, const uint16_t* v, int32_t n, const float* scores, float* out) {
  int32_t d = 0;
  for (; d + 4 * kLanes <= w.head_dim; d += 4 * kLanes) {
    F32 acc[kHeads][4];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) acc[h][i] = load(out + h * w.stride + d + i * kLanes);
    }
    const uint16_t* values = v + d;
    for (int32_t j = 0; j < n; ++j, values += w.head_dim) {
      F32 wide[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) wide[i] = widen(values + i * kLanes);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        const F32 p = set1(scores[h * kBlockKeys + j]);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) acc[h][i] = fmadd(p, wide[i], acc[h][i]);
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) store(out + h * w.stride + d + i * kLanes, acc[h][i]);
    }
  }
  for (; d < w.head_dim; d += kLanes) {
    F32 acc[kHeads];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) acc[h] = load(out + h * w.stride + d);
    for (int32_t j = 0; j < n; ++j) {
      const uint16_t* values = v + static_cast<int64_t>(j) * w.head_dim + d;
      const F32 wide =
          d + kLanes <= w.head_dim ? widen(values) : widen_part(values, w.head_dim - d);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        acc[h] = fmadd(set1(scores[h * kBlockKeys + j]), wide, acc[h]);
      }
    }
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) store(out + h * w.stride + d, acc[h]);
  }
}

/// Calls fn<heads>(first head) for all heads of the group, kHeadBatch at a time.
template <class Fn>
void for_head_batches(int32_t group, const Fn& fn) {
  int32_t h = 0;
  for (; h + kHeadBatch <= group; h += kHeadBatch) fn.template operator()<kHeadBatch>(h);
  if (h == group) return;
#if defined(__AVX512F__)
  switch (group - h) {
    case 3:
      return fn.template operator()<3>(h);
    case 2:
      return fn.template operator()<2>(h);
  }
#endif
  fn.template operator()<1>(h);
}

/// Scores of n keys of head h become exp(score - running maximum); out is rescaled to it.
void softmax(const Work& w, int32_t h, int32_t n) {
  float* scores = w.scores + h * kBlockKeys;
  const int32_t n_padded = (n + kLanes - 1) / kLanes * kLanes;
  if (w.softcap > 0) {
    for (int32_t j = 0; j < n_padded; j += kLanes) {
      store(scores + j, mul(tanh(load(scores + j)), set1(w.softcap)));
    }
  }
  for (int32_t j = n; j < n_padded; ++j) scores[j] = -INFINITY;
  const float old_max = w.max[h];
  F32 tops = set1(old_max);
  for (int32_t j = 0; j < n_padded; j += kLanes) tops = max(load(scores + j), tops);
  const float top = reduce_max(tops);
  F32 sums = set1(0.0f);
  for (int32_t j = 0; j < n_padded; j += kLanes) {
    const F32 p = exp2(sub(load(scores + j), set1(top)));
    store(scores + j, p);
    sums = add(sums, p);
  }
  const F32 correction = exp2(set1(old_max - top));
  float corrections[kLanes];
  store(corrections, correction);
  w.max[h] = top;
  w.sum[h] = w.sum[h] * corrections[0] + reduce_add(sums);
  float* out = w.out + h * w.stride;
  for (int32_t d = 0; d < w.stride; d += kLanes) store(out + d, mul(load(out + d), correction));
}

/// Calls fn(offset of the run's first key, keys before it, keys) for the runs of consecutive slots
/// that the keys [begin, end) lie in.
template <class Fn>
void for_runs(const AttentionRows& rows, int32_t kv_head, int64_t begin, int64_t end,
              const Fn& fn) {
  for (int64_t position = begin; position < end;) {
    const int64_t page_end = (position / rows.kv.page_tokens + 1) * rows.kv.page_tokens;
    const int64_t run_end = page_end < end ? page_end : end;
    fn(kv_offset(rows.kv, rows.block_table, position, kv_head),
       static_cast<int32_t>(position - begin), static_cast<int32_t>(run_end - position));
    position = run_end;
  }
}

int64_t scratch_floats(int32_t group, int32_t head_dim) {
  return static_cast<int64_t>(group) * (padded(head_dim) + kBlockKeys);
}

int64_t partial_floats(int32_t group, int32_t head_dim) {
  return static_cast<int64_t>(group) * (padded(head_dim) + 2);
}

Work make_work(const AttentionRows& rows, int64_t row, int32_t kv_head, float* scratch,
               float* partial) {
  const int32_t group = rows.group;
  Work w;
  w.head_dim = rows.kv.head_dim;
  w.stride = padded(w.head_dim);
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
  memset(w.out, 0, static_cast<size_t>(group * w.stride) * sizeof(float));
  return w;
}

void decode(const AttentionRows& rows, int64_t row, int32_t kv_head, int64_t split, float* scratch,
            float* partial) {
  const int32_t group = rows.group;
  const Work w = make_work(rows, row, kv_head, scratch, partial);
  const int64_t split_end = (split + 1) * kSplitKeys;
  const int64_t n_visible = rows.positions[row] + int64_t{1};
  const int64_t end = split_end < n_visible ? split_end : n_visible;
  const int64_t split_begin = split * kSplitKeys;
  const int64_t first_key = first_visible(rows, rows.positions[row]);
  int64_t block_end = 0;
  for (int64_t begin = split_begin > first_key ? split_begin : first_key; begin < end;
       begin = block_end) {
    block_end = (begin / kBlockKeys + 1) * kBlockKeys;
    if (block_end > end) block_end = end;
    for_runs(rows, kv_head, begin, block_end, [&](int64_t offset, int32_t first, int32_t n) {
      for_head_batches(group, [&]<int kHeads>(int32_t h) {
        score_keys<kHeads>(w, rows.kv.k + offset, n, w.q + h * w.stride,
                           w.scores + h * kBlockKeys + first);
      });
    });
    for (int32_t h = 0; h < group; ++h) softmax(w, h, static_cast<int32_t>(block_end - begin));
    for_runs(rows, kv_head, begin, block_end, [&](int64_t offset, int32_t first, int32_t n) {
      for_head_batches(group, [&]<int kHeads>(int32_t h) {
        add_values<kHeads>(w, rows.kv.v + offset, n, w.scores + h * kBlockKeys + first,
                           w.out + h * w.stride);
      });
    });
  }
}

float power_of_two(float x) {
  float lanes[kLanes];
  store(lanes, exp2(set1(x)));
  return lanes[0];
}

void merge(const AttentionRows& rows, int64_t row, int64_t n_splits, const float* partials) {
  const int32_t group = rows.group;
  const int32_t head_dim = rows.kv.head_dim;
  const int32_t stride = padded(head_dim);
  const int64_t partial = partial_floats(group, head_dim);
  for (int32_t head = 0; head < rows.n_heads; ++head) {
    const float* first = partials + head / group * n_splits * partial;
    const int32_t h = head % group;
    const int64_t max_at = static_cast<int64_t>(group) * stride + h;
    float top = first[max_at];
    for (int64_t s = 1; s < n_splits; ++s) top = fmaxf(top, first[s * partial + max_at]);
    float sums[kMaxHeadDim] = {};
    float sum = 0;
    for (int64_t s = 0; s < n_splits; ++s) {
      const float* p = first + s * partial;
      const float factor = power_of_two(p[max_at] - top);
      sum += p[max_at + group] * factor;
      for (int32_t d = 0; d < head_dim; ++d) sums[d] += p[h * stride + d] * factor;
    }
    const int64_t index = row * rows.n_heads + head;
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
