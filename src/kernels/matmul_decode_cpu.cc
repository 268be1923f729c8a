// Dot products of a few rows of activations with rows of weights as they lie in the file. The loops
// are here; what a type's bytes mean, per instruction set, is in decode_*_internal.h. An output's
// arithmetic is one chain in the order of the row, whatever the tile it is computed in.
#include <stdint.h>
#include <string.h>

#include "kernels/cpu_half_internal.h"
#include "kernels/matmul_decode_internal.h"
#include "tensor/blocks.h"

#if defined(__AVX512VNNI__)
#include "kernels/decode_avx512_internal.h"
#elif defined(__AVX2__)
#include "kernels/decode_avx2_internal.h"
#else
#include "kernels/decode_baseline_internal.h"
#endif

namespace weft::kernels::WEFT_ISA {
namespace {

/// Of bytes 4i to 4i + 3.
inline int32_t sum_of_four(const int8_t* q, const int8_t* rest, int32_t units, int64_t i) {
  int32_t sum = 0;
  for (int64_t j = 4 * i; j < 4 * i + 4; ++j) sum += units * q[j] + rest[j];
  return sum;
}

void arrange(const QuantisedRows& row, int64_t n, ActivationGroup* groups) {
  const int64_t n_blocks = n / 32;
  for (int64_t first = 0; first < n_blocks; first += 4) {
    ActivationGroup& group = groups[first / 4];
    const int64_t count = n_blocks - first < 4 ? n_blocks - first : 4;
    if (count < 4) memset(&group, 0, sizeof group);
    group.wide = 0;
    for (int64_t b = 0; b < count; ++b) group.wide |= row.wide[first + b];
    const int32_t units = group.wide != 0 ? kRestUnits : 1;  // of the group's scales in a q
    for (int64_t b = 0; b < count; ++b) {
      const int64_t block = first + b;
      memcpy(group.low + 16 * b, row.q + 32 * block, 16);
      memcpy(group.high + 16 * b, row.q + 32 * block + 16, 16);
      memcpy(group.rest_low + 16 * b, row.rest + 32 * block, 16);
      memcpy(group.rest_high + 16 * b, row.rest + 32 * block + 16, 16);
      const float scale = row.scale[block] / static_cast<float>(units);
      for (int64_t i = 0; i < 4; ++i) group.scale[4 * b + i] = scale;
      for (int64_t i = 0; i < 4; ++i) group.sums[4 * b + i] = group.half_sums[4 * b + i] = 0.0f;
      group.sums[4 * b + 1] = row.scale[block] / kRestUnits * static_cast<float>(row.sum[block]);
    }
    for (int64_t b = 0; b < 4; ++b) {
      int32_t lows = 0, highs = 0;
      for (int64_t i = 4 * b; i < 4 * b + 4; ++i) {
        const int32_t low = sum_of_four(group.low, group.rest_low, units, i);
        const int32_t high = sum_of_four(group.high, group.rest_high, units, i);
        group.negative_sums[i] = -(low + high);
        lows += low;
        highs += high;
      }
      group.half_sums[4 * b] = group.scale[4 * b] * static_cast<float>(lows);
      group.half_sums[4 * b + 1] = group.scale[4 * b] * static_cast<float>(highs);
    }
  }
}

template <int kValue>
struct Index {
  constexpr operator int() const { return kValue; }  // NOLINT(google-explicit-constructor)
};

/// Calls body(Index<0>), …, body(Index<kCount - 1>), written out: GCC keeps an array of sums in
/// registers only when every index is a constant before its loop passes run.
template <int kCount, int kFirst = 0, class Body>
[[gnu::always_inline]] inline void repeat(const Body& body) {
  if constexpr (kFirst < kCount) {
    body(Index<kFirst>{});
    repeat<kCount, kFirst + 1>(body);
  }
}

/// A tile's rows lie one after another, so the line that is as far into the next tile is the one
/// that this stream comes to next: fetching it gains a quarter to a third over a fixed 2 KB, which
/// for short rows is mostly another row of this tile (Ice Lake: Q4_0 9.2 to 11.4 GB/s a core,
/// Q8_0 10.9 to 12.5). Bounded, so that tiles of long rows don't push the activations out of the L1
/// cache.
inline int64_t prefetch_distance(int64_t tile_bytes) {
  constexpr int64_t kMost = 16 << 10;
  return tile_bytes < kMost ? tile_bytes : kMost;
}

template <int64_t kBytes>
[[gnu::always_inline]] inline void prefetch(const uint8_t* p) {
  repeat<(kBytes + 63) / 64>([&](auto line) __attribute__((always_inline)) {
    __builtin_prefetch(p + 64 * line);
  });
}

/// kOut rows of weights against kIn rows of activations.
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
    const auto rest = static_cast<int>(in.n % kGroupElements / 32);
    if (rest > 0) {
      repeat<kOut>([&](auto i) __attribute__((always_inline)) {
        const uint8_t* unit = weights + i * row_size + n_units * Type::kUnitBytes;
        const auto group = Type::load_some(unit, rest);
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
    const int64_t rest = in.n - whole;
    repeat<kOut>([&](auto i) __attribute__((always_inline)) {
      alignas(64) uint8_t last[16 * Type::kBytes] = {};
      memcpy(last, weights + i * row_size + whole * Type::kBytes,
             static_cast<size_t>(rest * Type::kBytes));
      const auto w = Type::load(last);
      repeat<kIn>([&](auto r) __attribute__((always_inline)) {
        alignas(64) float x[16] = {};
        memcpy(x, in.x + r * in.x_stride + whole, static_cast<size_t>(rest) * sizeof(float));
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
struct QuantisedTiles {
  template <int kOut, int kIn, class... Args>
  static void run(const Args&... args) {
    quantised_tile<Type, kOut, kIn>(args...);
  }
};

template <class Type>
struct FloatTiles {
  template <int kOut, int kIn, class... Args>
  static void run(const Args&... args) {
    float_tile<Type, kOut, kIn>(args...);
  }
};

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

/// Four rows of activations at a time; the weights of a task stay in the second-level cache.
template <class Tiles>
void decode(const DecodeInput& in, const uint8_t* weights, int64_t row_size, int64_t n_out,
            float* y, int64_t y_stride) {
  DecodeInput part = in;
  for (int64_t r = 0; r < in.n_rows; r += 4) {
    part.x = in.x + r * in.x_stride;
    part.groups = in.groups + r * in.n_groups;
    float* const to = y + r * y_stride;
    switch (in.n_rows - r) {
      case 1:
        all_rows<Tiles, 1>(part, weights, row_size, n_out, to, y_stride);
        break;
      case 2:
        all_rows<Tiles, 2>(part, weights, row_size, n_out, to, y_stride);
        break;
      case 3:
        all_rows<Tiles, 3>(part, weights, row_size, n_out, to, y_stride);
        break;
      default:
        all_rows<Tiles, 4>(part, weights, row_size, n_out, to, y_stride);
    }
  }
}

}  // namespace

const MatmulDecodeFns& matmul_decode_fns() {
  static constexpr MatmulDecodeFns kFns = {
      .arrange = arrange,
      .f32 = decode<FloatTiles<F32>>,
      .f16 = decode<FloatTiles<F16>>,
      .bf16 = decode<FloatTiles<BF16>>,
      .q8_0 = decode<QuantisedTiles<Q8_0>>,
      .q4_0 = decode<QuantisedTiles<Q4_0>>,
      .q4_1 = decode<QuantisedTiles<Q4_1>>,
      .q5_0 = decode<QuantisedTiles<Q5_0>>,
      .q5_1 = decode<QuantisedTiles<Q5_1>>,
      .q2_k = decode<QuantisedTiles<Q2_K>>,
      .q3_k = decode<QuantisedTiles<Q3_K>>,
      .q4_k = decode<QuantisedTiles<Q4_K>>,
      .q5_k = decode<QuantisedTiles<Q5_K>>,
      .q6_k = decode<QuantisedTiles<Q6_K>>,
      .iq4_nl = decode<QuantisedTiles<IQ4_NL>>,
      .iq4_xs = decode<QuantisedTiles<IQ4_XS>>,
      .mxfp4 = decode<QuantisedTiles<MXFP4>>,
  };
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA
