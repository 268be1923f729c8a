// Integer products. Columns lie side by side in a vector's 32-bit lanes, each lane holding four
// neighbouring elements of its column; a row's four matching activations are broadcast to all
// lanes. Per block of 32 that is eight dot instructions a vector, then one conversion and one FMA
// with the scales of weights and activations. Where a block is an outlier (two bytes a value, see
// quantise_activations.h) the second bytes' products are sums of their own, added at the end. The
// order of an output's sum is block after block, and decode_row_avx512_internal.h keeps to it: a
// decoded row has the same bits alone and among many, which come here.
//
// AVX-512: VNNI multiplies unsigned by signed bytes, so the weights' codes are stored with 128
// added, and the integer sums begin at -128 * (sum of the activations), which costs nothing: the
// start is a load instead of a zero. 6 rows x 32 columns keep 12 integer and 12 float sums in
// registers, with 3 for operands; 12 independent sums hide the dot's latency of 5 at two a cycle,
// and 8 loads for 12 dots stay below the two load ports' limit (12 x 16 would need 13 for 12).
// On an Ice Lake Xeon at 2.8 GHz the tile alone does 480-540 GOP/s of the 530 that 11 instructions
// for 8 dots allow. GCC 12 keeps this shape's sums in registers (no spill in the assembly).
// AVX2: vpmaddubsw of |w| and x with w's sign: 2 * 128 * 127 does not saturate 16 bits.
#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu_half_internal.h"
#include "kernels/quantise_activations_internal.h"
#include "kernels/unpack_int8_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

constexpr int kBlock = kPanelBlock;
#if defined(__AVX512F__)
constexpr int kTileRows = 6;
#else
constexpr int kTileRows = 4;
#endif
static_assert(kTileRows <= kMostTileRows);

template <int kRows>
struct Rows {
  static constexpr int kValue = kRows;
};

/// One byte of each of a block's activations: x = scale * q, or a share of it.
template <int kRows>
struct Terms {
  int8_t q[kRows][kBlock];
  // Of the integer sums of the block's halves and of all: what takes off kCodeOffset.
  int32_t start[3][kRows];
  float scale[kRows];
};

/// One block of a packed tile.
template <int kRows>
struct alignas(64) ActivationBlock {
  Terms<kRows> terms;
  // Of the x of the block's halves and of all: what a min is multiplied by.
  float sum[3][kRows];
  // The first block of a part's: the blocks in which each row has a second byte
  // (quantise_activations.h), a bit a block.
  uint32_t outliers[kRows];
  Terms<kRows> residual;  // that byte; unspecified for the other rows
};

int32_t sum_half(const int8_t* q) {
  int32_t sum = 0;
  for (int i = 0; i < kBlock / 2; ++i) sum += q[i];
  return sum;
}

/// The starts are what takes off the codes' offset: with w + 128 for w a dot is 128 times the sum
/// of the activations too large.
template <int kRows>
void put_terms(const int8_t* q, float scale, int32_t first_half, int32_t second_half, int64_t r,
               Terms<kRows>& terms) {
  memcpy(terms.q[r], q, kBlock);
  terms.start[0][r] = -kCodeOffset * first_half;
  terms.start[1][r] = -kCodeOffset * second_half;
  terms.start[2][r] = -kCodeOffset * (first_half + second_half);
  terms.scale[r] = scale;
}

/// Row r of a part of a packed tile. All rows of a block lie side by side, so a tile's rows are
/// packed by one worker: two would write to the same cache lines.
template <int kRows>
void pack_blocks(const float* x, int64_t n_blocks, float outlier_limit, int64_t r,
                 ActivationBlock<kRows>* blocks) {
  constexpr int64_t kStep = 16;  // blocks quantised at once, on the stack
  blocks[0].outliers[r] = 0;
  int8_t q[kStep * kBlock], residual[kStep * kBlock];
  uint8_t outlier[kStep];
  float scale[kStep];
  int32_t sum[kStep];
  for (int64_t begin = 0; begin < n_blocks; begin += kStep) {
    const int64_t n = n_blocks - begin < kStep ? n_blocks - begin : kStep;
    quantise_activations_fns().row(x + begin * kBlock, n * kBlock, outlier_limit,
                                   {q, residual, outlier, scale, sum});
    for (int64_t b = 0; b < n; ++b) {
      ActivationBlock<kRows>& block = blocks[begin + b];
      const float unit = scale[b] / kResidualUnits;
      const int8_t* low = q + b * kBlock;
      const int32_t first = sum_half(low), second = sum_half(low + kBlock / 2);
      put_terms(low, scale[b], first, second, r, block.terms);
      int32_t residual_first = 0, residual_second = 0;
      if (outlier[b] != 0) {
        blocks[0].outliers[r] |= 1u << (begin + b);
        low = residual + b * kBlock;
        residual_first = sum_half(low);
        residual_second = sum_half(low + kBlock / 2);
        put_terms(low, unit, residual_first, residual_second, r, block.residual);
      }
      block.sum[0][r] = unit * (kResidualUnits * first + residual_first);
      block.sum[1][r] = unit * (kResidualUnits * second + residual_second);
      block.sum[2][r] = unit * sum[b];
    }
  }
}

/// Calls body with `n_rows` as a constant.
template <int kRows = kTileRows, class Body>
[[gnu::always_inline]] inline void with_rows(int64_t n_rows, const Body& body) {
  if constexpr (kRows > 1) {
    if (n_rows < kRows) return with_rows<kRows - 1>(n_rows, body);
  }
  body(Rows<kRows>{});
}

void pack_row(const float* x, int64_t in_features, float outlier_limit, int64_t r, int64_t n_rows,
              void* packed) {
  with_rows(n_rows, [&](auto rows) {
    constexpr int kRows = decltype(rows)::kValue;
    pack_blocks<kRows>(x, in_features / kBlock, outlier_limit, r,
                       static_cast<ActivationBlock<kRows>*>(packed));
  });
}

/// What packing a part must know of the whole row: above which magnitude a block is an outlier.
float scan_row(const float* x, int64_t in_features) {
  return quantise_activations_fns().outlier_limit(x, in_features);
}

#if defined(__AVX512F__)

/// The weights of a group of four elements, 4 bytes a lane, as the set's dot instruction wants
/// them.
struct Codes {
  Vector q;
};
inline Codes load_codes(const uint8_t* p) { return {_mm512_load_si512(p)}; }
/// sum += the four products in each lane.
inline Vector add_dots(Vector sum, const Codes& w, Vector x) {
  return _mm512_dpbusd_epi32(sum, w.q, x);
}

#elif defined(__AVX2__)

struct Codes {
  Vector q, magnitude;
};
inline Codes load_codes(const uint8_t* p) {
  const Vector q = _mm256_load_si256(reinterpret_cast<const Vector*>(p));
  return {q, _mm256_abs_epi8(q)};
}
inline Vector add_dots(Vector sum, const Codes& w, Vector x) {
  const Vector pairs = _mm256_maddubs_epi16(w.magnitude, _mm256_sign_epi8(x, w.q));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

#else

struct Codes {
  int8_t q[4 * kLanes];
};
inline Codes load_codes(const uint8_t* p) {
  Codes codes;
  memcpy(&codes, p, sizeof codes);
  return codes;
}
inline Vector add_dots(const Vector& sum, const Codes& w, const Vector& x) {
  int8_t bytes[4];
  memcpy(bytes, &x, sizeof bytes);
  Vector v = sum;
  for (int i = 0; i < kLanes; ++i) {
    int32_t dot = 0;
    for (int j = 0; j < 4; ++j) dot += w.q[4 * i + j] * bytes[j];
    v.lane[i] += dot;
  }
  return v;
}

#endif

template <int kRows>
using Totals = Floats[kRows][kVectors];

/// total += the product of one block, or of that half of it which has a scale of its own.
template <int kHalf, int kHalves, int kRows>
[[gnu::always_inline]] inline void add_product(const WeightBlock& weights,
                                               const Terms<kRows>& terms, Totals<kRows>& total) {
  constexpr int kGroups = kBlock / 4 / kHalves;
  Vector dots[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const int32_t start = terms.start[kHalves == 2 ? kHalf : 2][r];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) dots[r][v] = broadcast_int(start);
  }
#pragma GCC unroll 8
  for (int g = kHalf * kGroups; g < (kHalf + 1) * kGroups; ++g) {
    Codes codes[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) codes[v] = load_codes(weights.q[g][v]);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      int32_t four;
      memcpy(&four, terms.q[r] + 4 * g, sizeof four);
      const Vector xs = broadcast_int(four);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) dots[r][v] = add_dots(dots[r][v], codes[v], xs);
    }
  }
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    const Floats scale = load(weights.scale[kHalf][v]);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Floats both = multiply(scale, broadcast(terms.scale[r]));
      total[r][v] = multiply_add(to_float(dots[r][v]), both, total[r][v]);
    }
  }
}

/// The same for row r alone.
template <int kHalf, int kHalves, int kRows>
[[gnu::always_inline]] inline void add_row(const WeightBlock& weights, const Terms<kRows>& terms,
                                           int64_t r, Floats (&total)[kVectors]) {
  constexpr int kGroups = kBlock / 4 / kHalves;
  Vector dots[kVectors];
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    dots[v] = broadcast_int(terms.start[kHalves == 2 ? kHalf : 2][r]);
  }
#pragma GCC unroll 8
  for (int g = kHalf * kGroups; g < (kHalf + 1) * kGroups; ++g) {
    int32_t four;
    memcpy(&four, terms.q[r] + 4 * g, sizeof four);
    const Vector xs = broadcast_int(four);
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      dots[v] = add_dots(dots[v], load_codes(weights.q[g][v]), xs);
    }
  }
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    const Floats both = multiply(load(weights.scale[kHalf][v]), broadcast(terms.scale[r]));
    total[v] = multiply_add(to_float(dots[v]), both, total[v]);
  }
}

/// total = the sums so far, or zeros at the first part of in_features.
template <int kRows>
[[gnu::always_inline]] inline void load_totals(const float* sum, int64_t stride,
                                               Totals<kRows>& total) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      total[r][v] = sum == nullptr ? zero() : load(sum + r * stride + v * kLanes);
    }
  }
}

template <int kRows>
[[gnu::always_inline]] inline void store_totals(const Totals<kRows>& total, float* out,
                                                int64_t stride) {
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) store(out + r * stride + v * kLanes, total[r][v]);
  }
}

/// The products of the second bytes: sums of their own, added to the others at the end. By rows,
/// each of which has few such blocks, and seldom where its neighbours have them.
template <int kRows, int kHalves>
[[gnu::noinline]] void add_residuals(const ActivationBlock<kRows>* blocks,
                                     const WeightBlock* weights, const TileSums& sums) {
  const bool only = sums.before == nullptr && sums.last;
  for (int64_t r = 0; r < kRows; ++r) {
    uint32_t outliers = blocks[0].outliers[r];
    if (outliers == 0 && only) continue;
    float* const residual = sums.residual + r * kPanelColumns;
    Floats total[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      total[v] = sums.before == nullptr ? zero() : load(residual + v * kLanes);
    }
    for (; outliers != 0; outliers &= outliers - 1) {
      const int b = __builtin_ctz(outliers);
      add_row<0, kHalves>(weights[b], blocks[b].residual, r, total);
      if constexpr (kHalves == 2) add_row<1, kHalves>(weights[b], blocks[b].residual, r, total);
    }
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      if (sums.last) {
        float* const out = sums.out + r * sums.out_stride + v * kLanes;
        store(out, add(load(out), total[v]));
      } else {
        store(residual + v * kLanes, total[v]);
      }
    }
  }
}

/// total += the block's mins, or those of its half, times the sums of x.
template <int kHalf, int kHalves, int kRows>
[[gnu::always_inline]] inline void add_min(const WeightBlock& weights,
                                           const ActivationBlock<kRows>& block,
                                           Totals<kRows>& total) {
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    const Floats min = load(weights.min[kHalf][v]);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const float sum = block.sum[kHalves == 2 ? kHalf : 2][r];
      total[r][v] = multiply_add(min, broadcast(sum), total[r][v]);
    }
  }
}

/// kHalves: 2 where the block's halves have scales, and mins, of their own.
template <int kRows, int kHalves, bool kHasMin>
[[gnu::noinline]] void multiply_rows(const ActivationBlock<kRows>* blocks, const void* panel,
                                     int64_t n_blocks, const TileSums& sums) {
  const auto* weights = static_cast<const WeightBlock*>(panel);
  Totals<kRows> total;
  load_totals(sums.before, kPanelColumns, total);
  Ahead ahead = sums.ahead;
  int64_t due = 0;
  for (int64_t b = 0; b < n_blocks; ++b) {
    for (due += ahead.n_rows; due >= n_blocks; due -= n_blocks) {
      for (int64_t i = 0; i < ahead.n_bytes; i += 64) __builtin_prefetch(ahead.first + i, 0, 2);
      ahead.first += ahead.row_size;
    }
    const ActivationBlock<kRows>& block = blocks[b];
    prefetch<offsetof(ActivationBlock<kRows>, residual)>(blocks[n_blocks + b]);  // the next tile's
    add_product<0, kHalves>(weights[b], block.terms, total);
    if constexpr (kHalves == 2) add_product<1, kHalves>(weights[b], block.terms, total);
    if constexpr (kHasMin) add_min<0, kHalves>(weights[b], block, total);
    if constexpr (kHasMin && kHalves == 2) add_min<1, kHalves>(weights[b], block, total);
  }
  store_totals(total, sums.out, sums.out_stride);
  add_residuals<kRows, kHalves>(blocks, weights, sums);
}

template <int kHalves, bool kHasMin>
void multiply_tile(const void* x, int64_t n_rows, const void* panel, int64_t n_blocks,
                   const TileSums& sums) {
  with_rows(n_rows, [&](auto rows) {
    constexpr int kRows = decltype(rows)::kValue;
    multiply_rows<kRows, kHalves, kHasMin>(static_cast<const ActivationBlock<kRows>*>(x), panel,
                                           n_blocks, sums);
  });
}

#if defined(__AVX512F__)
constexpr UnpackFn kUnpackQ8_0 =
    unpack_fours<BlockQ8_0, HalfScales<BlockQ8_0>, q8_0_codes, q8_0_block>;
constexpr UnpackFn kUnpackQ4_0 =
    unpack_fours<BlockQ4_0, HalfScales<BlockQ4_0>, q4_0_codes, q4_0_block>;
constexpr UnpackFn kUnpackQ4_1 = unpack_fours<BlockQ4_1, PairScales, q4_1_codes, q4_1_block>;
constexpr UnpackFn kUnpackIQ4_NL =
    unpack_fours<BlockIQ4_NL, HalfScales<BlockIQ4_NL>, iq4_nl_codes, iq4_nl_block>;
#else
constexpr UnpackFn kUnpackQ8_0 = unpack_panel<BlockQ8_0, 1, q8_0_block>;
constexpr UnpackFn kUnpackQ4_0 = unpack_panel<BlockQ4_0, 1, q4_0_block>;
constexpr UnpackFn kUnpackQ4_1 = unpack_panel<BlockQ4_1, 1, q4_1_block>;
constexpr UnpackFn kUnpackIQ4_NL = unpack_panel<BlockIQ4_NL, 1, iq4_nl_block>;
#endif

PanelType pick_type(DType dtype) {
  constexpr TileFn kPlain = multiply_tile<1, false>, kWithMin = multiply_tile<1, true>;
  constexpr TileFn kHalves = multiply_tile<2, false>, kHalvesWithMin = multiply_tile<2, true>;
  switch (dtype) {
    case DType::kQ8_0:
      return {kUnpackQ8_0, kPlain};
    case DType::kQ4_0:
      return {kUnpackQ4_0, kPlain};
    case DType::kQ4_1:
      return {kUnpackQ4_1, kWithMin};
    case DType::kQ5_0:
      return {unpack_panel<BlockQ5_0, 1, q5_0_block>, kPlain};
    case DType::kQ5_1:
      return {unpack_panel<BlockQ5_1, 1, q5_1_block>, kWithMin};
    case DType::kQ4_K:
      return {unpack_panel<BlockQ4_K, 8, q4_k_block>, kWithMin};
    case DType::kQ5_K:
      return {unpack_panel<BlockQ5_K, 8, q5_k_block>, kWithMin};
    case DType::kQ6_K:
      return {unpack_panel<BlockQ6_K, 8, q6_k_block>, kHalves};
    case DType::kQ2_K:
      return {unpack_panel<BlockQ2_K, 8, q2_k_block>, kHalvesWithMin};
    case DType::kQ3_K:
      return {unpack_panel<BlockQ3_K, 8, q3_k_block>, kHalves};
    case DType::kIQ4_NL:
      return {kUnpackIQ4_NL, kPlain};
    case DType::kIQ4_XS:
      return {unpack_panel<BlockIQ4_XS, 8, iq4_xs_block>, kPlain};
    case DType::kMXFP4:
      return {unpack_panel<BlockMXFP4, 1, mxfp4_block>, kPlain};
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      break;
  }
  return {};
}

}  // namespace

const PanelKernels& int8_kernels() {
  // 24 blocks of 32 columns are 24 KB of codes and 3 to 12 KB of scales and mins; 576 elements are
  // one part then (8 rows of 1,536 x 576 Q4_0: a fifth more products a second than with 16). At
  // most 32: ActivationBlock::outliers.
  static constexpr PanelKernels kKernels = {
      .tile_rows = kTileRows,
      .panel_columns = kPanelColumns,
      .part_blocks = 24,
      .x_block_bytes = sizeof(ActivationBlock<kTileRows>),
      .panel_block_bytes = sizeof(WeightBlock),
      .scan_row = scan_row,
      .pack_row = pack_row,
      .pick = pick_type,
  };
  return kKernels;
}

}  // namespace weft::kernels::WEFT_ISA
