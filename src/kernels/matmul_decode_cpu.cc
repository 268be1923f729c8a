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

// Rows of activations that share a panel of unpacked weights, the panel's groups and its rows.
// Eight sums are as many as GCC keeps in registers here (12 or 16 spill: 2.6 and 4.9 ms for the
// product that takes 1.8), and one row of activations at a time asks once for eight rows of weights
// whether its group is wide, which no branch predictor foresees. 4 to 16 groups are equally fast.
constexpr int64_t kPanelRows = 32;
constexpr int64_t kPanelGroups = 16;
constexpr int kPanelTile = 8;

/// What a type's groups are unpacked to.
template <class Type>
using Unpacked = decltype(Type::load(nullptr, Type::header(nullptr), 0));

/// panel [end - begin][kOut] = the groups [begin, end) of kOut rows, the last of which may be less
/// than a whole one.
template <class Type, int kOut>
inline void unpack_panel(const DecodeInput& in, const uint8_t* weights, int64_t row_size,
                         int64_t begin, int64_t end, Unpacked<Type>* panel) {
  constexpr int64_t kGroups = Type::kGroups;
  const int64_t whole = in.n / kGroupElements;
  const int64_t ahead = prefetch_distance(kOut * row_size);
  for (int64_t i = 0; i < kOut; ++i) {
    const uint8_t* row = weights + i * row_size;
    int64_t g = begin;
    for (; g < end && g < whole; g += kGroups) {
      const uint8_t* unit = row + g / kGroups * Type::kUnitBytes;
      prefetch<Type::kUnitBytes>(unit + ahead);
      const auto header = Type::header(unit);
      repeat<kGroups>([&](auto part) __attribute__((always_inline)) {
        panel[(g - begin + part) * kOut + i] = Type::load(unit, header, part);
      });
    }
    if constexpr (kGroups == 1) {
      if (g < end) {
        const auto rest = static_cast<int>(in.n % kGroupElements / 32);
        panel[(g - begin) * kOut + i] = Type::load_some(row + whole * Type::kUnitBytes, rest);
      }
    }
  }
}

/// sums [kOut] += a panel of n_groups groups times as many groups of a row of activations.
template <class Type, int kOut>
inline void panel_row(const Unpacked<Type>* panel, const ActivationGroup* x, int64_t n_groups,
                      Accumulator* sums) {
  Accumulator tile[kOut];
  repeat<kOut>([&](auto i) __attribute__((always_inline)) { tile[i] = sums[i]; });
  for (int64_t g = 0; g < n_groups; ++g) {
    const Unpacked<Type>* weights = panel + g * kOut;
    // Asked here, so that accumulate() need not ask for each row of weights.
    if (x[g].wide != 0) {
      repeat<kOut>([&](auto i) __attribute__((always_inline)) {
        Type::accumulate(tile[i], weights[i], x[g]);
      });
    } else {
      repeat<kOut>([&](auto i) __attribute__((always_inline)) {
        Type::accumulate(tile[i], weights[i], x[g]);
      });
    }
  }
  repeat<kOut>([&](auto i) __attribute__((always_inline)) { sums[i] = tile[i]; });
}

/// kOut rows of weights against up to kPanelRows rows of activations: the weights are unpacked
/// once.
template <class Type, int kOut>
void quantised_panel(const DecodeInput& in, const uint8_t* weights, int64_t row_size, float* y,
                     int64_t y_stride) {
  Accumulator sums[kPanelRows][kOut] = {};
  Unpacked<Type> panel[kPanelGroups * kOut];
  for (int64_t begin = 0; begin < in.n_groups; begin += kPanelGroups) {
    const int64_t end = begin + kPanelGroups < in.n_groups ? begin + kPanelGroups : in.n_groups;
    unpack_panel<Type, kOut>(in, weights, row_size, begin, end, panel);
    for (int64_t r = 0; r < in.n_rows; ++r) {
      panel_row<Type, kOut>(panel, in.groups + r * in.n_groups + begin, end - begin, sums[r]);
    }
  }
  for (int64_t r = 0; r < in.n_rows; ++r) {
    for (int64_t i = 0; i < kOut; ++i) y[r * y_stride + i] = total(sums[r][i]);
  }
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

/// The rows [begin, begin + n) of activations.
DecodeInput some_rows(const DecodeInput& in, int64_t begin, int64_t n) {
  DecodeInput part = in;
  part.x += begin * in.x_stride;
  part.groups += begin * in.n_groups;
  part.n_rows = n;
  return part;
}

template <class Type>
void decode_quantised(const DecodeInput& in, const uint8_t* weights, int64_t row_size,
                      int64_t n_out, float* y, int64_t y_stride) {
  // Weights straight from the file, where that is quicker (Zen 5, one thread: 3 rows of Q4_0 0.82
  // ms, from a panel 0.71; 2 rows 0.33 and 0.54, but of Q4_K 1.17 and 0.64).
  if (in.n_rows == 1) {
    return all_rows<QuantisedTiles<Type>, 1>(in, weights, row_size, n_out, y, y_stride);
  }
  if (in.n_rows == 2 && Type::kGroups == 1) {
    return all_rows<QuantisedTiles<Type>, 2>(in, weights, row_size, n_out, y, y_stride);
  }
  for (int64_t r = 0; r < in.n_rows; r += kPanelRows) {
    const int64_t n = in.n_rows - r < kPanelRows ? in.n_rows - r : kPanelRows;
    const DecodeInput part = some_rows(in, r, n);
    float* const to = y + r * y_stride;
    int64_t i = 0;
    for (; i + kPanelTile <= n_out; i += kPanelTile) {
      quantised_panel<Type, kPanelTile>(part, weights + i * row_size, row_size, to + i, y_stride);
    }
    for (; i < n_out; ++i) {
      quantised_panel<Type, 1>(part, weights + i * row_size, row_size, to + i, y_stride);
    }
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

}  // namespace

const MatmulDecodeFns& matmul_decode_fns() {
  static constexpr MatmulDecodeFns kFns = {
      .arrange = arrange,
      .f32 = decode_floats<F32>,
      .f16 = decode_floats<F16>,
      .bf16 = decode_floats<BF16>,
      .q8_0 = decode_quantised<Q8_0>,
      .q4_0 = decode_quantised<Q4_0>,
      .q4_1 = decode_quantised<Q4_1>,
      .q5_0 = decode_quantised<Q5_0>,
      .q5_1 = decode_quantised<Q5_1>,
      .q2_k = decode_quantised<Q2_K>,
      .q3_k = decode_quantised<Q3_K>,
      .q4_k = decode_quantised<Q4_K>,
      .q5_k = decode_quantised<Q5_K>,
      .q6_k = decode_quantised<Q6_K>,
      .iq4_nl = decode_quantised<IQ4_NL>,
      .iq4_xs = decode_quantised<IQ4_XS>,
      .mxfp4 = decode_quantised<MXFP4>,
  };
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA
