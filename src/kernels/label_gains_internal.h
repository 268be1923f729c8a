// What a page's dimensions are worth to a query, for kSides labels (token_labels_layout.h). Only
// for *_cpu.cc files.
//
// Of four pages or heads at once with AVX-512: the chain of a reduction, a division and another
// reduction is longer than the work on 64 dimensions. One after the other, and so the pages'
// weights (label_weights_internal.h), scoring took 1.4 times as long where four heads share a KV
// head, and no longer where each has its own and memory is waited for (Cascade Lake).
#pragma once

#include <stdint.h>
#include <string.h>

#include "kernels/label_levels_internal.h"

namespace weft::kernels::WEFT_ISA {

/// So that a level times it and its neighbour's, of eight quads, fit in 16 bits.
constexpr int16_t kMostGain = 127;

/// What the dimensions of a page are worth to a head, and what its sums of levels are.
struct Gains {
  alignas(4) int8_t of_dims[kMaxHeadDim];  // to a multiple of kSideBlockDims
  int32_t of_all;                          // their sum
  float unit;                              // score = unit * sum of levels + middle,
  float middle;                            // each less the middle's level
};

/// Pages whose gains are made together: so many that four reductions go together, as for the heads
/// of a batch.
template <int kHeads>
#if defined(__AVX512F__)
constexpr int kPagesAtOnce = 4 / kHeads;
#else
constexpr int kPagesAtOnce = 1;
#endif

/// What gains are made of: digests' int8 codes and the queries of kHeads heads, `n` of each.
template <int kHeads>
struct GainParts {
  const int8_t *high[kPagesAtOnce<kHeads>], *low[kPagesAtOnce<kHeads>];
  const int16_t* q[kHeads];
  int32_t n;
  int32_t n_looked_up;  // of these: the others count by their middles alone
};

/// Of a number of dimensions that is no multiple of a block's, copies, with 0 after them.
template <int kHeads>
struct PaddedGainParts {
  alignas(64) int16_t q[kHeads][kMaxHeadDim];
  alignas(64) int8_t high[kPagesAtOnce<kHeads>][kMaxHeadDim],
      low[kPagesAtOnce<kHeads>][kMaxHeadDim];

  void pad(int32_t head_dim, GainParts<kHeads>& parts) {
    parts.n = n_side_blocks(head_dim) * kSideBlockDims;
    const auto copy = [&](auto& to, const auto*& from) {
      memset(to + head_dim, 0, (parts.n - head_dim) * sizeof(to[0]));
      memcpy(to, from, head_dim * sizeof(to[0]));
      from = to;
    };
    for (int h = 0; h < kHeads; ++h) copy(q[h], parts.q[h]);
    for (int page = 0; page < kPagesAtOnce<kHeads>; ++page) {
      copy(high[page], parts.high[page]);
      copy(low[page], parts.low[page]);
    }
  }
};

typedef int32_t I32x4 __attribute__((vector_size(16)));
inline F32x4 to_f32x4(const int32_t* four) {
  I32x4 x;
  memcpy(&x, four, sizeof(x));
  return __builtin_convertvector(x, F32x4);
}

/// The gains of pages and heads, the first page's heads first. factors: four, of each one's query's
/// step, the digest's and the scale. All go step by step together: what of a digest is widened
/// serves each head, and no reduction waits for another one.
template <LabelDepth kDepth, int kHeads>
[[gnu::always_inline]] inline void make_gains(const GainParts<kHeads>& parts, const float* factors,
                                              Gains* gains) {
  constexpr int kPages = kPagesAtOnce<kHeads>, kAll = kPages * kHeads;
  constexpr int32_t kWidth = 2 * kLanes;
  I16 worth[kAll][kMaxHeadDim / kWidth];  // in units of 256
  I16 most[kAll];
  I32 middles[kAll], totals[kAll];  // twice the middles
  for (int i = 0; i < kAll; ++i) {
    most[i] = set1_i16(kMostGain);
    middles[i] = totals[i] = zero_i32();
  }
  const auto codes = [](const int8_t* p) {
    return widen_bytes(reinterpret_cast<const uint8_t*>(p));
  };
  for (int32_t at = 0; at < parts.n / kWidth; ++at) {
#pragma GCC unroll 4
    for (int page = 0; page < kPages; ++page) {
      const I16 high = codes(parts.high[page] + at * kWidth);
      const I16 low = codes(parts.low[page] + at * kWidth);
      const I16 width = shift_up_i16<7>(sub_i16(high, low)), both = add_i16(high, low);
      const bool is_looked_up = at * kWidth < parts.n_looked_up;
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        const int i = page * kHeads + h;
        const I16 of_q = load_i16(parts.q[h] + at * kWidth);
        middles[i] = add_products(of_q, both, middles[i]);
        if (!is_looked_up) continue;
        worth[i][at] = multiply_parts(of_q, width);
        most[i] = max_magnitude(worth[i][at], most[i]);
      }
    }
  }
  int32_t reduced[4] = {};
  reduce_max_i16(most, reduced);
  // Below 1, as 2^15 parts: what is no larger than a byte stays as it is but for that.
  constexpr F32x4 kMost = {32767, 32767, 32767, 32767};
  const F32x4 of_most = kMostGain * 0x1p15f / to_f32x4(reduced);
  const I32x4 shrinks = __builtin_convertvector(of_most < kMost ? of_most : kMost, I32x4);
  const I32x4 pairs = shrinks | shrinks << 16;
#pragma GCC unroll 4
  for (int i = 0; i < kAll; ++i) {
    const I16 shrink = set1_i16x2(pairs[i]);
    for (int32_t at = 0; at < parts.n_looked_up / kWidth; ++at) {
      const I16 bytes = multiply_parts(worth[i][at], shrink);
      store_as_bytes(gains[i].of_dims + at * kWidth, bytes);
      totals[i] = add_products(bytes, set1_i16(1), totals[i]);
    }
  }
  constexpr float kUnits = 0x1p23f / kLevelsOfWidth<kDepth>;  // 256 * 2^15
  const F32x4 factor = load4(factors);
  const F32x4 units = factor * (kUnits / __builtin_convertvector(shrinks, F32x4));
  reduce_add_i32(middles, reduced);
  const F32x4 halves = factor * 0.5f * to_f32x4(reduced);
  reduce_add_i32(totals, reduced);
  for (int i = 0; i < kAll; ++i) {
    gains[i].of_all = reduced[i];
    gains[i].unit = units[i];
    gains[i].middle = halves[i];
  }
}

}  // namespace weft::kernels::WEFT_ISA
