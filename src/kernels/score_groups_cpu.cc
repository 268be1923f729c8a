// Softmax over a row's pages in two steps: of each block of pages while its scores are in the L1,
// and of the blocks' maxima and sums, as attention's splits are joined.
//
// A head's scores in a row of their own were thousands of bytes apart from the next head's, at
// places that the L1 takes for the same few; and the passes for maxima and sums waited for what
// another core had written and both had dropped from the L2 meanwhile. Of 2,044 pages and 32 heads
// scores and shares took 0.054 of the time of dense attention over them, now 0.049 (two threads of
// a Cascade Lake; K, V and digests from memory).
//
// What is kept of a block until the sums of all are known is half as large as its scores, f16: in
// f32 a layer's went out of the L2 before the next layer's were written there, and every line of
// them was read from further away to be written. Of 0.112 ms for scores and 0.0128 to join them
// 0.103 and 0.0099 were left (Sapphire Rapids, two threads).
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernels/kv_codec_runs_internal.h"
#include "kernels/score_groups_internal.h"
#include "kernels/simd_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

constexpr int kRegisters = kBlockPages / kLanes;  // of a head's scores

/// kBlockHeads heads step by step: each step of one waits for the one before.
void sum_heads(const float* scores, uint16_t* below, float* tops, float* sums) {
  F32 x[kBlockHeads][kRegisters], top[kBlockHeads], sum[kBlockHeads];
#pragma GCC unroll 4
  for (int h = 0; h < kBlockHeads; ++h) {
    top[h] = set1(-INFINITY);
#pragma GCC unroll 8
    for (int i = 0; i < kRegisters; ++i) {
      const F32 score = load(scores + h * kBlockPages + i * kLanes);
      x[h][i] = min(max(score, set1(-INFINITY)), set1(FLT_MAX));  // NaN is -inf
      top[h] = max(x[h][i], top[h]);
    }
  }
  float largest[kBlockHeads];
  reduce_max4(top[0], top[1], top[2], top[3], largest);
  memcpy(tops, largest, sizeof(largest));
#pragma GCC unroll 4
  for (int h = 0; h < kBlockHeads; ++h) {
    top[h] = set1(largest[h] == -INFINITY ? 0.0f : largest[h]);
    sum[h] = set1(0.0f);
#pragma GCC unroll 8
    for (int i = 0; i < kRegisters; ++i) {
      const F32 difference = sub(x[h][i], top[h]);
      narrow(below + h * kBlockPages + i * kLanes, difference);
      sum[h] = add(sum[h], exp2(mul(difference, set1(0x1.715476p+0f))));
    }
  }
  reduce_add4(sum[0], sum[1], sum[2], sum[3], sums);
}

void sum_block(float* scores, int32_t n_heads, int64_t n, float* block) {
  const int64_t n_rows = block_rows(n_heads);
  for (int64_t row = 0; row < n_rows; ++row) {
    float* const of_head = scores + row * kBlockPages;
    for (int64_t i = row < n_heads ? n : 0; i < kBlockPages; ++i) of_head[i] = -INFINITY;
  }
  auto* const below = reinterpret_cast<uint16_t*>(block);
  float* const tops = block + block_scores(n_heads) / 2;
  float* const sums = tops + block_sums(n_heads);
  for (int64_t row = 0; row < n_rows; row += kBlockHeads) {
    const int64_t first = row * kBlockPages;
    sum_heads(scores + first, below + first, tops + row, sums + row);
  }
}

/// Of kHeads heads from `head` on the maximum over all blocks and the log of the sum.
template <int kHeads>
struct Softmax {
  float tops[kHeads], logs[kHeads];

  Softmax(const GroupBlocks& row, int32_t head) {
    const int64_t n_floats = block_floats(row.n_heads);
    const int64_t n_blocks = (row.n_pages + kBlockPages - 1) / kBlockPages;
    const float* const of_first = row.blocks + block_scores(row.n_heads) / 2 + head;
    // Heads are lanes, those after the kHeads no matter. Where all scores of one are -inf, their
    // difference from any other float is, too.
    F32 top = set1(-FLT_MAX);
    for (int64_t i = 0; i < n_blocks; ++i) top = max(load(of_first + i * n_floats), top);
    F32 sum = set1(0.0f);
    for (int64_t i = 0; i < n_blocks; ++i) {
      const float* const of_block = of_first + i * n_floats;
      const F32 factor = exp(sub(load(of_block), top));
      sum = fmadd(factor, load(of_block + block_sums(row.n_heads)), sum);
    }
    float of_tops[kLanes], of_sums[kLanes];
    store(of_tops, top);
    store(of_sums, sum);
    for (int h = 0; h < kHeads; ++h) {
      tops[h] = of_tops[h];
      logs[h] = of_sums[h] > 0 ? logf(of_sums[h]) : 0.0f;
    }
  }
};

/// A block's largest share of kHeads heads, and of those before them, which are in out. tops: the
/// block's maxima.
template <int kHeads>
[[gnu::always_inline]] inline void join_block(const uint16_t* below, const float* tops,
                                              const Softmax<kHeads>& softmax, bool is_first,
                                              float* out) {
  F32 most_share[kHeads];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
    most_share[h] = set1(tops[h] - softmax.tops[h] - softmax.logs[h]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRegisters; ++i) {
    F32 most = is_first ? set1(-INFINITY) : load(out + i * kLanes);
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      const F32 x = widen(below + h * kBlockPages + i * kLanes);
      most = max(add(x, most_share[h]), most);
    }
    store(out + i * kLanes, most);
  }
}

void join(const GroupBlocks& row, int32_t kv_head, float* out) {
  constexpr int kBlocksAhead = 4;  // what the other cores wrote comes meanwhile
  const int64_t n_floats = block_floats(row.n_heads);
  for_head_batches(row.group, [&]<int kHeads>(int32_t h) {
    const int32_t head = kv_head * row.group + h;
    const Softmax<kHeads> softmax(row, head);
    for (int64_t begin = 0; begin < row.n_pages; begin += kBlockPages) {
      const float* const block = row.blocks + begin / kBlockPages * n_floats;
      const auto* const below = reinterpret_cast<const uint16_t*>(block) + head * kBlockPages;
      const float* const tops = block + block_scores(row.n_heads) / 2 + head;
      if (begin + kBlocksAhead * kBlockPages < row.n_pages) {
        prefetch(below + 2 * kBlocksAhead * n_floats, kHeads * kBlockPages * sizeof(uint16_t));
      }
      const int64_t n = row.n_pages - begin;
      if (n >= kBlockPages) {
        join_block(below, tops, softmax, h == 0, out + begin);
        continue;
      }
      float last[kBlockPages] = {};
      memcpy(last, out + begin, n * sizeof(float));
      join_block(below, tops, softmax, h == 0, last);
      memcpy(out + begin, last, n * sizeof(float));
    }
  });
}

}  // namespace

const ScoreGroupsFns& score_groups_fns() {
  static constexpr ScoreGroupsFns kFns = {sum_block, join};
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA
