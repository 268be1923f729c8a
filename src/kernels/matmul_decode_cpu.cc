// Dot products of a few rows of activations with rows of weights as they lie in the file. The loops
// are here; what a type's bytes mean, per instruction set, is in decode_*_internal.h. An output's
// arithmetic is one chain in the order of the row, whatever the tile it is computed in. With
// AVX-512 these are float weights alone: quantised ones are in matmul_decode_row_cpu.cc.
#include <stdint.h>
#include <string.h>

#include "kernels/cpu_half_internal.h"
#include "kernels/decode_loops_internal.h"
#include "tensor/blocks.h"

namespace weft::kernels::WEFT_ISA {
namespace {

/// kOut rows of weights against kIn rows of activations, sixteen elements at a time: kOut x kIn
/// chains of multiply-adds hide each other's latency. What is left of a row is filled up with
/// zeros, which change no sum, in an array: the bytes after the last row are not there.
template <class Type, int kOut, int kIn>
inline void float_tile(const DecodeInput& in, const uint8_t* weights, int64_t row_size, float* y,
                       int64_t y_stride) {
  FloatAccumulator sums[kOut][kIn] = {};
  const int64_t whole = in.n / 16 * 16;
  const int64_t ahead = prefetch_distance(kOut * row_size);
  for (int64_t k = 0; k < whole; k += 16) {
    repeat<kOut>([&](auto i) __attribute__((always_inline)) {
      const uint8_t* element = weights + i * row_size + k * Type::kBytes;
      prefetch<16 * Type::kBytes>(element + ahead);
      const auto w = Type::load(element);
      repeat<kIn>([&](auto r) __attribute__((always_inline)) {
        accumulate16(sums[i][r], w, in.x + r * in.x_stride + k);
      });
    });
  }
  if (whole < in.n) {
    const int64_t left = in.n - whole;
    repeat<kOut>([&](auto i) __attribute__((always_inline)) {
      alignas(64) uint8_t last[16 * Type::kBytes] = {};
      memcpy(last, weights + i * row_size + whole * Type::kBytes, left * Type::kBytes);
      const auto w = Type::load(last);
      repeat<kIn>([&](auto r) __attribute__((always_inline)) {
        alignas(64) float x[16] = {};
        memcpy(x, in.x + r * in.x_stride + whole, left * sizeof(float));
        accumulate16(sums[i][r], w, x);
      });
    });
  }
  repeat<kOut>([&](auto i) __attribute__((always_inline)) {
    repeat<kIn>([&](auto r)
                    __attribute__((always_inline)) { y[r * y_stride + i] = total(sums[i][r]); });
  });
}

template <class Type>
struct FloatTiles {
  template <int kOut, int kIn, class... Args>
  static void run(const Args&... args) {
    float_tile<Type, kOut, kIn>(args...);
  }
};

/// Rows of weights by whole tiles, then one by one: an output's arithmetic is the same in both.
template <class Tiles, int kIn>
void all_rows(const DecodeInput& in, const uint8_t* weights, int64_t row_size, int64_t n_out,
              float* y, int64_t y_stride) {
  int64_t i = 0;
  for (; i + kRowTile <= n_out; i += kRowTile) {
    Tiles::template run<kRowTile, kIn>(in, weights + i * row_size, row_size, y + i, y_stride);
  }
  for (; i < n_out; ++i) {
    Tiles::template run<1, kIn>(in, weights + i * row_size, row_size, y + i, y_stride);
  }
}

/// Up to four rows of activations.
template <class Tiles>
void few_rows(const DecodeInput& in, const uint8_t* weights, int64_t row_size, int64_t n_out,
              float* y, int64_t y_stride) {
  switch (in.n_rows) {
    case 1:
      return all_rows<Tiles, 1>(in, weights, row_size, n_out, y, y_stride);
    case 2:
      return all_rows<Tiles, 2>(in, weights, row_size, n_out, y, y_stride);
    case 3:
      return all_rows<Tiles, 3>(in, weights, row_size, n_out, y, y_stride);
    default:
      return all_rows<Tiles, 4>(in, weights, row_size, n_out, y, y_stride);
  }
}

template <class Type>
void decode_floats(const DecodeInput& in, const uint8_t* weights, int64_t row_size, int64_t n_out,
                   float* y, int64_t y_stride) {
  for (int64_t r = 0; r < in.n_rows; r += 4) {
    const DecodeInput part = some_rows(in, r, in.n_rows - r < 4 ? in.n_rows - r : 4);
    few_rows<FloatTiles<Type>>(part, weights, row_size, n_out, y + r * y_stride, y_stride);
  }
}

#if defined(__AVX512VNNI__)

template <class Type>
constexpr DecodeFn kQuantised = nullptr;
constexpr auto kArrange = nullptr;

#else

/// sums[i]: of bytes 4i to 4i + 3 of `count` blocks; beyond them zeros. From the row and not from
/// the group, whose pieces were stored a moment before.
inline void sums_of_row(const int8_t* bytes, int64_t count, int32_t* sums) {
  int8_t some[128] = {};
  if (count < 4) {
    memcpy(some, bytes, 32 * count);
    bytes = some;
  }
  sums_of_four(bytes, sums);
  sums_of_four(bytes + 64, sums + 16);
}

/// With an outlier block anywhere in the group all four count in units of scale / kResidualUnits,
/// so that the kernel asks once a group; the residuals of the other three are zeros.
void arrange(const QuantisedRows& row, int64_t n, ActivationGroup* groups) {
  const int64_t n_blocks = n / 32;
  for (int64_t first = 0; first < n_blocks; first += 4) {
    ActivationGroup& group = groups[first / 4];
    const int64_t count = n_blocks - first < 4 ? n_blocks - first : 4;
    if (count < 4) memset(&group, 0, sizeof group);
    group.has_outlier = 0;
    for (int64_t b = 0; b < count; ++b) group.has_outlier |= row.outlier[first + b];
    const int32_t units =
        group.has_outlier != 0 ? kResidualUnits : 1;  // of the group's scales in a q
    for (int64_t b = 0; b < count; ++b) {
      const int64_t block = first + b;
      memcpy(group.low + 16 * b, row.q + 32 * block, 16);
      memcpy(group.high + 16 * b, row.q + 32 * block + 16, 16);
      memcpy(group.residual_low + 16 * b, row.residual + 32 * block, 16);
      memcpy(group.residual_high + 16 * b, row.residual + 32 * block + 16, 16);
      const float scale = row.scale[block] / units;
      for (int64_t i = 0; i < 4; ++i) group.scale[4 * b + i] = scale;
      for (int64_t i = 0; i < 4; ++i) group.sums[4 * b + i] = group.half_sums[4 * b + i] = 0.0f;
      group.sums[4 * b + 1] = row.scale[block] / kResidualUnits * row.sum[block];
    }
    int32_t fours[32];  // of a block: four of low, four of high
    sums_of_row(row.q + 32 * first, count, fours);
    if (group.has_outlier != 0) {  // else the residuals are zeros
      int32_t residuals[32];
      sums_of_row(row.residual + 32 * first, count, residuals);
      for (int64_t i = 0; i < 32; ++i) fours[i] = kResidualUnits * fours[i] + residuals[i];
    }
    for (int64_t b = 0; b < 4; ++b) {
      int32_t low = 0, high = 0;
      for (int64_t i = 0; i < 4; ++i) {
        const int32_t of_low = fours[8 * b + i], of_high = fours[8 * b + 4 + i];
        group.negative_sums[4 * b + i] = -(of_low + of_high);
        low += of_low;
        high += of_high;
      }
      group.half_sums[4 * b] = group.scale[4 * b] * low;
      group.half_sums[4 * b + 1] = group.scale[4 * b] * high;
    }
  }
}

/// kOut rows of weights against kIn rows of activations, a group of four blocks at a time. What a
/// type's unit is, a group or a block of 256 with a header for its two groups, decode_*_internal.h
/// says. One to three blocks at a row's end, which fill no group, come by load_some.
template <class Type, int kOut, int kIn>
inline void quantised_tile(const DecodeInput& in, const uint8_t* weights, int64_t row_size,
                           float* y, int64_t y_stride) {
  constexpr int64_t kGroups = Type::kGroups;  // of a unit: one of four blocks, two of 256 elements
  Accumulator sums[kOut][kIn] = {};
  const ActivationGroup* groups[kIn];
  repeat<kIn>([&](auto r)
                  __attribute__((always_inline)) { groups[r] = in.groups + r * in.n_groups; });
  const int64_t n_units = in.n / (kGroupElements * kGroups);
  const int64_t ahead = prefetch_distance(kOut * row_size);
  for (int64_t u = 0; u < n_units; ++u) {
    repeat<kOut>([&](auto i) __attribute__((always_inline)) {
      const uint8_t* unit = weights + i * row_size + u * Type::kUnitBytes;
      prefetch<Type::kUnitBytes>(unit + ahead);
      const auto header = Type::header(unit);
      repeat<kGroups>([&](auto g) __attribute__((always_inline)) {
        const auto group = Type::load(unit, header, g);
        repeat<kIn>([&](auto r) __attribute__((always_inline)) {
          Type::accumulate(sums[i][r], group, groups[r][u * kGroups + g]);
        });
      });
    });
  }
  if constexpr (kGroups == 1) {
    const int left = in.n % kGroupElements / 32;
    if (left > 0) {
      repeat<kOut>([&](auto i) __attribute__((always_inline)) {
        const uint8_t* unit = weights + i * row_size + n_units * Type::kUnitBytes;
        const auto group = Type::load_some(unit, left);
        repeat<kIn>([&](auto r) __attribute__((always_inline)) {
          Type::accumulate(sums[i][r], group, groups[r][n_units]);
        });
      });
    }
  }
  repeat<kOut>([&](auto i) __attribute__((always_inline)) {
    repeat<kIn>([&](auto r)
                    __attribute__((always_inline)) { y[r * y_stride + i] = total(sums[i][r]); });
  });
}

template <class Type>
struct QuantisedTiles {
  template <int kOut, int kIn, class... Args>
  static void run(const Args&... args) {
    quantised_tile<Type, kOut, kIn>(args...);
  }
};

/// One row of activations, or two.
template <class Type>
void decode_quantised(const DecodeInput& in, const uint8_t* weights, int64_t row_size,
                      int64_t n_out, float* y, int64_t y_stride) {
  using Tiles = QuantisedTiles<Type>;
  if (in.n_rows == 1) return all_rows<Tiles, 1>(in, weights, row_size, n_out, y, y_stride);
  all_rows<Tiles, 2>(in, weights, row_size, n_out, y, y_stride);
}

template <class Type>
constexpr DecodeFn kQuantised = decode_quantised<Type>;
constexpr auto kArrange = arrange;

#endif

}  // namespace

const MatmulDecodeFns& matmul_decode_fns() {
  static constexpr MatmulDecodeFns kFns = {
      .arrange = kArrange,
      .f32 = decode_floats<F32>,
      .f16 = decode_floats<F16>,
      .bf16 = decode_floats<BF16>,
      .q8_0 = kQuantised<Q8_0>,
      .q4_0 = kQuantised<Q4_0>,
      .q4_1 = kQuantised<Q4_1>,
      .q5_0 = kQuantised<Q5_0>,
      .q5_1 = kQuantised<Q5_1>,
      .q2_k = kQuantised<Q2_K>,
      .q3_k = kQuantised<Q3_K>,
      .q4_k = kQuantised<Q4_K>,
      .q5_k = kQuantised<Q5_K>,
      .q6_k = kQuantised<Q6_K>,
      .iq4_nl = kQuantised<IQ4_NL>,
      .iq4_xs = kQuantised<IQ4_XS>,
      .mxfp4 = kQuantised<MXFP4>,
  };
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA
