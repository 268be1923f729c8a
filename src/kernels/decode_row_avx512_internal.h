// A few rows of activations against sixteen rows of weights at a time, which are the lanes of the
// f32 sums, with AVX-512 and VNNI: only matmul_decode_row_cpu.cc includes this.
//
// A group of four blocks of a weight row gives one register of integers, four partial sums in the
// lane of each block (decode_avx512_internal.h). Four rows' registers are added up together to one
// sum a row and block, four such registers are transposed to one register a block: so a conversion
// and a multiply-add serve sixteen rows, and the order of an output's sum, block after block, is
// that of the tiles for many rows (matmul_int8_cpu.cc). Integers are exact in any order.
//
// Before, each row's lanes were scaled by themselves and added up at the row's end, as with AVX2:
// fewer shuffles, but a conversion and a multiply-add for every row of weights, and another order
// of sums than many rows of activations have with sixteen columns in the lanes.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kernels/block_scales_avx512_internal.h"
#include "kernels/decode_loops_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

constexpr int kRowLanes = 16;

/// In each 16-byte lane the sums of a's, b's, c's and d's four integers.
inline __m512i sum_fours(__m512i a, __m512i b, __m512i c, __m512i d) {
  const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

[[gnu::always_inline]] inline void transpose_lanes(__m512 (&v)[4]) {
  __m512i bits[4];
  repeat<4>([&](auto i) __attribute__((always_inline)) { bits[i] = _mm512_castps_si512(v[i]); });
  transpose_lanes(bits);
  repeat<4>([&](auto i) __attribute__((always_inline)) { v[i] = _mm512_castsi512_ps(bits[i]); });
}

/// What the integer sums of a group begin at: minus the weights' offset, 2^kShift, times the sums
/// of the activations. With (w + 8) x summed, -8 times the sum of x brings it back to w x.
struct Starts {
  __m512i both, low, high;
};
template <int kShift>
inline Starts starts(const int32_t* negative_low, const int32_t* negative_high) {
  if constexpr (kShift < 0) {
    const __m512i zero = _mm512_setzero_si512();
    return {zero, zero, zero};
  } else {
    const __m512i low = _mm512_slli_epi32(_mm512_load_si512(negative_low), kShift);
    const __m512i high = _mm512_slli_epi32(_mm512_load_si512(negative_high), kShift);
    return {_mm512_add_epi32(low, high), low, high};
  }
}

inline const GroupWeights& codes_of(const GroupWeights& w) { return w; }
inline const HalvesGroup& codes_of(const HalvesGroup& w) { return w; }
inline const HalvesGroup& codes_of(const Q2_K::Group& w) { return w.halves; }

/// The scales and mins of a group of sixteen rows: first as add() leaves them, then, finished, a
/// block a register.
template <class Type>
struct Scales {
  static constexpr int kHalves = Type::kTerms.halves ? 2 : 1;
  __m512 scales[kHalves][4], mins[kHalves][4];  // before finish(): four rows a register

  /// Row kRow of four: what Type::load() made of it.
  template <int kRow, class Weights>
  [[gnu::always_inline]] void add(int quad, const uint8_t* /*unit*/, const Weights& weights) {
    if constexpr (kRow == 0) {
      repeat<kHalves>([&](auto h) __attribute__((always_inline)) {
        scales[h][quad] = mins[h][quad] = _mm512_setzero_ps();
      });
    }
    put_scales<kRow>(quad, codes_of(weights));
    if constexpr (Type::kTerms.has_min) put_mins<kRow>(quad, weights);
  }
  [[gnu::always_inline]] void finish() {
    repeat<kHalves>([&](auto h) __attribute__((always_inline)) {
      transpose_lanes(scales[h]);
      if constexpr (Type::kTerms.has_min) transpose_lanes(mins[h]);
    });
  }

 private:
  template <int kRow>
  [[gnu::always_inline]] void put_scales(int quad, const GroupWeights& w) {
    scales[0][quad] = put_place<kRow, 0>(scales[0][quad], w.scale);
  }
  template <int kRow>
  [[gnu::always_inline]] void put_scales(int quad, const HalvesGroup& w) {
    scales[0][quad] = put_place<kRow, 0>(scales[0][quad], w.low_scale);
    scales[1][quad] = put_place<kRow, 0>(scales[1][quad], w.high_scale);
  }
  template <int kRow>
  [[gnu::always_inline]] void put_mins(int quad, const GroupWeights& w) {
    mins[0][quad] = put_place<kRow, 1>(mins[0][quad], w.min);
  }
  template <int kRow>
  [[gnu::always_inline]] void put_mins(int quad, const Q2_K::Group& w) {
    mins[0][quad] = put_place<kRow, 0>(mins[0][quad], w.min);
    mins[1][quad] = put_place<kRow, 1>(mins[1][quad], w.min);
  }
};

/// Taken straight from the blocks, for some types whose blocks of 32 begin with their scale.
template <class Base>
struct FourBlocks : Base {
  template <int kRow, class Weights>
  [[gnu::always_inline]] void add(int quad, const uint8_t* unit, const Weights& /*weights*/) {
    Base::template add<kRow>(quad, unit);
  }
};

template <>
struct Scales<Q4_0> : FourBlocks<HalfScales<BlockQ4_0>> {};
template <>
struct Scales<IQ4_NL> : FourBlocks<HalfScales<BlockIQ4_NL>> {};
template <>
struct Scales<Q8_0> : FourBlocks<HalfScales<BlockQ8_0>> {};
template <>
struct Scales<Q4_1> : FourBlocks<PairScales> {};

/// Has a group of activations second bytes? As the group says.
struct AsGroup {
  static bool of(const RowGroup& x) { return x.outliers != 0; }
};
/// As all do that the loop meets: what one row's kernel is compiled for, as it otherwise keeps, and
/// spills, the registers of both cases. Q4_0 in the cache: 17.6 to 20.8 GB/s (Sapphire Rapids).
template <bool kValue>
struct ForAll {
  static constexpr bool of(const RowGroup&) { return kValue; }
};

/// The integer sums of a group of sixteen rows: four rows a register, a block a lane; then,
/// finished, a block a register.
template <int kHalves>
struct Dots {
  __m512i sums[kHalves][4], residuals[kHalves][4];

  [[gnu::always_inline]] void finish(bool has_outlier) {
    repeat<kHalves>([&](auto h) __attribute__((always_inline)) {
      transpose_lanes(sums[h]);
      if (has_outlier) transpose_lanes(residuals[h]);
    });
  }
};

/// The sums of a group of four rows, four for each block.
template <class Type>
struct Quad {
  static constexpr int kHalves = Type::kTerms.halves ? 2 : 1;
  __m512i dots[kHalves][4], residuals[kHalves][4];

  template <int kRow, class HasOutliers, class Weights>
  [[gnu::always_inline]] void add(const Weights& weights, const RowGroup& x) {
    const auto& w = codes_of(weights);
    dot<kRow>(w.low, w.high, x.low, x.high,
              starts<Type::kTerms.offset_shift>(x.negative_low, x.negative_high), dots);
    if (HasOutliers::of(x)) {
      dot<kRow>(
          w.low, w.high, x.residual_low, x.residual_high,
          starts<Type::kTerms.offset_shift>(x.negative_residual_low, x.negative_residual_high),
          residuals);
    }
  }
  template <class HasOutliers>
  [[gnu::always_inline]] void finish(const RowGroup& x, Dots<kHalves>& to, int quad) const {
    repeat<kHalves>([&](auto h) __attribute__((always_inline)) {
      to.sums[h][quad] = sum_fours(dots[h][0], dots[h][1], dots[h][2], dots[h][3]);
      if (HasOutliers::of(x)) {
        to.residuals[h][quad] =
            sum_fours(residuals[h][0], residuals[h][1], residuals[h][2], residuals[h][3]);
      }
    });
  }

 private:
  template <int kRow>
  [[gnu::always_inline]] static void dot(__m512i low, __m512i high, const int8_t* x_low,
                                         const int8_t* x_high, const Starts& start,
                                         __m512i (&to)[kHalves][4]) {
    if constexpr (kHalves == 2) {
      to[0][kRow] = add_dots(start.low, low, x_low);
      to[1][kRow] = add_dots(start.high, high, x_high);
    } else {
      to[0][kRow] = add_dots(add_dots(start.both, low, x_low), high, x_high);
    }
  }
};

/// Each of sixteen rows is a stream, fetched so many bytes ahead: into the L1, as the prefetcher
/// brings it to the L2. With 512 it is where the prefetcher is not yet, and Q4_K of 2,048 columns
/// takes 20 % longer, with 128 Q4_0 takes 12 % longer (two threads of a Sapphire Rapids).
constexpr int64_t kAhead = 256;

struct RowSums {
  __m512 total, residual;
};

/// The group's blocks one after another: the order of an output's sum. The scales are finished.
template <class Type, class HasOutliers, int kHalves>
[[gnu::always_inline]] inline void add_group(Dots<kHalves>& dots, const Scales<Type>& w,
                                             const RowGroup& x, RowSums& sums, int n_blocks) {
  dots.finish(HasOutliers::of(x));
  repeat<4>([&](auto b) __attribute__((always_inline)) {
    if (b >= n_blocks) return;
    const __m512 scale = _mm512_set1_ps(x.scale[b]);
    repeat<kHalves>([&](auto h) __attribute__((always_inline)) {
      sums.total = _mm512_fmadd_ps(to_floats(dots.sums[h][b]), _mm512_mul_ps(w.scales[h][b], scale),
                                   sums.total);
    });
    if constexpr (Type::kTerms.has_min) {
      repeat<kHalves>([&](auto h) __attribute__((always_inline)) {
        const float sum = x.sums[kHalves == 2 ? int{h} : 2][b];
        sums.total = _mm512_fmadd_ps(w.mins[h][b], _mm512_set1_ps(sum), sums.total);
      });
    }
  });
  if (!HasOutliers::of(x)) return;
  repeat<4>([&](auto b) __attribute__((always_inline)) {
    if ((x.outliers >> b & 1) == 0) return;
    const __m512 unit = _mm512_set1_ps(x.unit[b]);
    repeat<kHalves>([&](auto h) __attribute__((always_inline)) {
      sums.residual = _mm512_fmadd_ps(to_floats(dots.residuals[h][b]),
                                      _mm512_mul_ps(w.scales[h][b], unit), sums.residual);
    });
  });
}

/// Groups of sixteen rows of weights times those of kRows rows of activations, as many as a unit
/// has.
template <class Type, int kRows>
struct UnitSums {
  static constexpr int kHalves = Type::kTerms.halves ? 2 : 1;
  static constexpr int kGroups = Type::kGroups;
  Dots<kHalves> dots[kGroups][kRows];
  Scales<Type> scales[kGroups];

  /// Four rows of weights, from these bytes on, times the groups x [kRows][n_groups].
  template <bool kPrefetch, class HasOutliers>
  [[gnu::always_inline]] void add_quad(const uint8_t* const* rows, int64_t at, const RowGroup* x,
                                       int64_t n_groups, int quad) {
    Quad<Type> sums[kGroups][kRows];
    repeat<4>([&](auto i) __attribute__((always_inline)) {
      const uint8_t* unit = rows[4 * quad + i] + at;
      if constexpr (kPrefetch) prefetch<Type::kUnitBytes>(unit + kAhead);
      const auto header = Type::header(unit);
      repeat<kGroups>([&](auto g) __attribute__((always_inline)) {
        const auto group = Type::load(unit, header, g);
        scales[g].template add<i>(quad, unit, group);
        repeat<kRows>([&](auto r) __attribute__((always_inline)) {
          sums[g][r].template add<i, HasOutliers>(group, x[r * n_groups + g]);
        });
      });
    });
    repeat<kGroups>([&](auto g) __attribute__((always_inline)) {
      repeat<kRows>([&](auto r) __attribute__((always_inline)) {
        sums[g][r].template finish<HasOutliers>(x[r * n_groups + g], dots[g][r], quad);
      });
    });
  }
  template <class HasOutliers>
  [[gnu::always_inline]] void finish(const RowGroup* x, int64_t n_groups, RowSums (&sums)[kRows],
                                     int n_blocks = 4) {
    repeat<kGroups>([&](auto g) __attribute__((always_inline)) {
      scales[g].finish();
      repeat<kRows>([&](auto r) __attribute__((always_inline)) {
        add_group<Type, HasOutliers>(dots[g][r], scales[g], x[r * n_groups + g], sums[r], n_blocks);
      });
    });
  }
};

/// Sixteen rows of weights or fewer, `step` rows apart.
struct WeightRows {
  const uint8_t* first;
  int64_t row_size;  // bytes
  int64_t step;
  int64_t n;
  int64_t n_left;  // that are there from the first on

  const uint8_t* row(int64_t i) const { return first + (i < n ? i : n - 1) * step * row_size; }
  /// Whether so many bytes from the last row's beginning are there.
  bool has(int64_t bytes) const { return (n_left - (n - 1) * step) * row_size >= bytes; }
};

/// What is left of a row after its last whole group, n_blocks blocks of 32. A whole unit is read;
/// beyond the last row of all it is not there.
template <class Type, int kRows>
[[gnu::always_inline]] inline void add_rest(const WeightRows& weights,
                                            const uint8_t* (&rows)[kRowLanes], int64_t at,
                                            const RowGroup* x, int64_t n_groups, int n_blocks,
                                            RowSums (&sums)[kRows]) {
  alignas(64) uint8_t copies[kRowLanes][Type::kUnitBytes];
  if (!weights.has(at + Type::kUnitBytes)) {
    for (int i = 0; i < kRowLanes; ++i) {
      memcpy(copies[i], rows[i] + at, weights.row_size - at);
      rows[i] = copies[i] - at;
    }
  }
  UnitSums<Type, kRows> unit;
  for (int quad = 0; quad < 4; ++quad) {
    unit.template add_quad<false, AsGroup>(rows, at, x, n_groups, quad);
  }
  unit.template finish<AsGroup>(x, n_groups, sums, n_blocks);
}

/// y[r * y_stride + i * step] = row r of kRows rows of activations, of n_groups groups each, times
/// row i of the weights. Where there are fewer than sixteen the last one is taken again. What is
/// made of weights serves all rows of activations: of Q4_1 in the cache one row takes 24 us, two
/// take 38 and three 53 (Cascade Lake), and 48 and 72 by themselves.
template <class Type, int kRows>
inline void row_tile(const RowGroup* groups, int64_t n_groups, int64_t n, const WeightRows& weights,
                     float* y, int64_t y_stride) {
  constexpr int64_t kGroups = Type::kGroups;
  const uint8_t* rows[kRowLanes];
  for (int64_t i = 0; i < kRowLanes; ++i) rows[i] = weights.row(i);
  RowSums sums[kRows];
  repeat<kRows>([&](auto r) __attribute__((always_inline)) {
    sums[r] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  });
  const int64_t n_units = n / (kGroupElements * kGroups);
  for (int64_t u = 0; u < n_units; ++u) {
    const RowGroup* const x = groups + u * kGroups;
    const int64_t at = u * Type::kUnitBytes;
    const auto add_unit = [&](auto has_outliers) __attribute__((always_inline)) {
      using HasOutliers = decltype(has_outliers);
      UnitSums<Type, kRows> unit;
      const auto quad_of = [&](auto quad) __attribute__((always_inline)) {
        unit.template add_quad<true, HasOutliers>(rows, at, x, n_groups, quad);
      };
      if constexpr (kGroups == 1) {
        repeat<4>(quad_of);
      } else {
        for (int quad = 0; quad < 4; ++quad) quad_of(quad);
      }
      unit.template finish<HasOutliers>(x, n_groups, sums);
    };
    if constexpr (kRows > 1 || kGroups > 1) {
      add_unit(AsGroup());
    } else if (x->outliers != 0) {
      add_unit(ForAll<true>());
    } else {
      add_unit(ForAll<false>());
    }
  }
  if constexpr (kGroups == 1) {
    const int left = n % kGroupElements / 32;
    if (left > 0) {
      add_rest<Type>(weights, rows, n_units * Type::kUnitBytes, groups + n_units, n_groups, left,
                     sums);
    }
  }
  repeat<kRows>([&](auto r) __attribute__((always_inline)) {
    alignas(64) float of_rows[kRowLanes];
    _mm512_store_ps(of_rows, _mm512_add_ps(sums[r].total, sums[r].residual));
    for (int64_t i = 0; i < weights.n; ++i) y[r * y_stride + i * weights.step] = of_rows[i];
  });
}

}  // namespace
}  // namespace weft::kernels::WEFT_ISA
