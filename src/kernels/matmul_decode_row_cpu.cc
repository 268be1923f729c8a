// Products of a few rows of activations: see decode_row_avx512_internal.h. A file of its own: in
// one with other kernels GCC no longer inlines theirs.
#include "kernels/matmul_decode_internal.h"

#if defined(__AVX512VNNI__)

#include <type_traits>

#include "kernels/decode_row_avx512_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

/// sums[i] = minus the sum of bytes 4i to 4i + 3.
inline void negative_fours(const int8_t* bytes, int32_t* sums) {
  sums_of_four(bytes, sums);
  _mm512_storeu_si512(sums, _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_loadu_si512(sums)));
}

inline int32_t minus_four(const int32_t* v) { return -(v[0] + v[1] + v[2] + v[3]); }

/// Sixteen bytes of each of `count` blocks, `stride` apart; zeros beyond.
inline void gather_halves(const int8_t* q, int64_t count, int8_t* to) {
  for (int64_t b = 0; b < count; ++b) memcpy(to + 16 * b, q + 32 * b, 16);
}

/// An offset of the weights (Q4_0: 8) comes off in each lane of four bytes by itself, so sums of
/// four bytes are needed, where row.sum has one for a block.
void arrange_row(const QuantisedRows& row, int64_t n, RowGroup* groups) {
  const int64_t n_blocks = n / 32;
  for (int64_t first = 0; first < n_blocks; first += 4) {
    RowGroup& group = groups[first / 4];
    const int64_t count = n_blocks - first < 4 ? n_blocks - first : 4;
    if (count < 4) memset(&group, 0, sizeof group);
    gather_halves(row.q + 32 * first, count, group.low);
    gather_halves(row.q + 32 * first + 16, count, group.high);
    negative_fours(group.low, group.negative_low);
    negative_fours(group.high, group.negative_high);
    group.outliers = 0;
    for (int64_t b = 0; b < count; ++b) {
      group.outliers |= (row.outlier[first + b] != 0 ? 1u : 0u) << b;
    }
    if (group.outliers != 0) {
      gather_halves(row.residual + 32 * first, count, group.residual_low);
      gather_halves(row.residual + 32 * first + 16, count, group.residual_high);
      negative_fours(group.residual_low, group.negative_residual_low);
      negative_fours(group.residual_high, group.negative_residual_high);
    }
    for (int64_t b = 0; b < count; ++b) {
      const float unit = row.scale[first + b] / kResidualUnits;
      group.scale[b] = row.scale[first + b];
      group.unit[b] = unit;
      int32_t halves[2] = {kResidualUnits * minus_four(group.negative_low + 4 * b),
                           kResidualUnits * minus_four(group.negative_high + 4 * b)};
      if (row.outlier[first + b] != 0) {
        halves[0] += minus_four(group.negative_residual_low + 4 * b);
        halves[1] += minus_four(group.negative_residual_high + 4 * b);
      }
      group.sums[0][b] = unit * halves[0];
      group.sums[1][b] = unit * halves[1];
      group.sums[2][b] = unit * row.sum[first + b];
    }
  }
}

/// Rows of weights, the first of which is output `first`, for all rows of activations: up to three
/// together. Four, as one or as two and two, take longer than over a panel, Q4_1's excepted.
template <class Type>
void multiply_tile(const DecodeInput& in, const WeightRows& weights, int64_t first, float* y,
                   int64_t y_stride) {
  const auto tile = [&](auto kRows, int64_t r) {
    row_tile<Type, kRows>(in.row_groups + r * in.n_groups, in.n_groups, in.n, weights,
                          y + r * y_stride + first, y_stride);
  };
  int64_t r = 0;
  for (; r + 3 <= in.n_rows; r += 3) tile(std::integral_constant<int, 3>(), r);
  if (r + 2 <= in.n_rows) {
    tile(std::integral_constant<int, 2>(), r);
  } else if (r < in.n_rows) {
    tile(std::integral_constant<int, 1>(), r);
  }
}

/// Sixteen rows of weights at a time, each from another sixteenth of them: so what is read side by
/// side are sixteen stretches of memory, each in order, which the CPU's own prefetcher follows. Of
/// sixteen neighbours several lie in the same 4 KB, where it follows one. Two threads on a 1B
/// model's rows, neighbours and so (Sapphire Rapids, `decode_bench`, ForAll and kAhead in the
/// second): Q4_0 16.1 and 24.5 GB/s, Q8_0 20.0 and 25.6, Q4_K 12.9 and 17.5, Q6_K 13.8 and 17.0.
/// Asking for the next sixteen neighbours, a line of each of four parts in turn, while these are
/// multiplied gave 19.9, 23.5, 16.5 and 17.1.
template <class Type>
void decode_row(const DecodeInput& in, const uint8_t* weights, int64_t row_size, int64_t n_out,
                float* y, int64_t y_stride) {
  const int64_t step = n_out / kRowLanes;
  const auto tile = [&](int64_t first, int64_t rows_apart, int64_t n) {
    multiply_tile<Type>(in, {weights + first * row_size, row_size, rows_apart, n, n_out - first},
                        first, y, y_stride);
  };
  for (int64_t i = 0; i < step; ++i) tile(i, step, kRowLanes);
  if (const int64_t done = step * kRowLanes; done < n_out) tile(done, 1, n_out - done);
}

}  // namespace

const MatmulDecodeRowFns& matmul_decode_row_fns() {
  static constexpr MatmulDecodeRowFns kFns = {
      .arrange = arrange_row,
      .q8_0 = decode_row<Q8_0>,
      .q4_0 = decode_row<Q4_0>,
      .q4_1 = decode_row<Q4_1>,
      .q5_0 = decode_row<Q5_0>,
      .q5_1 = decode_row<Q5_1>,
      .q2_k = decode_row<Q2_K>,
      .q3_k = decode_row<Q3_K>,
      .q4_k = decode_row<Q4_K>,
      .q5_k = decode_row<Q5_K>,
      .q6_k = decode_row<Q6_K>,
      .iq4_nl = decode_row<IQ4_NL>,
      .iq4_xs = decode_row<IQ4_XS>,
      .mxfp4 = decode_row<MXFP4>,
  };
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA

#else

namespace weft::kernels::WEFT_ISA {

const MatmulDecodeRowFns& matmul_decode_row_fns() {
  static constexpr MatmulDecodeRowFns kFns = {};
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA

#endif
