// Products of many rows of activations, each as matmul_decode_cpu.cc computes a row by itself, with
// rows of weights that are unpacked once for all of them. A file of its own: in one with the other
// kernels GCC no longer inlines theirs, and a row alone takes half as long again.
// AVX-512 has none: there many rows are matmul_panels'.
#include "kernels/matmul_decode_internal.h"

#if !defined(__AVX512VNNI__)

#include <stdint.h>
#include <string.h>

#include "kernels/decode_loops_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

// Rows of activations that share a panel of unpacked weights, the panel's groups and its rows.
// Eight sums are as many as GCC keeps in registers here (12 or 16 spill: 2.6 and 4.9 ms for the
// product that takes 1.8), and one row of activations at a time asks once for eight rows of weights
// whether its group has outliers, which no branch predictor foresees. 4 to 16 groups are equally
// fast.
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
        const int left = in.n % kGroupElements / 32;
        panel[(g - begin) * kOut + i] = Type::load_some(row + whole * Type::kUnitBytes, left);
      }
    }
  }
}

/// tile [kOut] += a panel of n_groups groups times as many groups of a row of activations.
template <class Type, int kOut>
[[gnu::always_inline]] inline void panel_row(const Unpacked<Type>* panel, const ActivationGroup* x,
                                             int64_t n_groups, Accumulator (&tile)[kOut]) {
  for (int64_t g = 0; g < n_groups; ++g) {
    const Unpacked<Type>* weights = panel + g * kOut;
    // Asked here, so that accumulate() need not ask for each row of weights.
    if (x[g].has_outlier != 0) {
      repeat<kOut>([&](auto i) __attribute__((always_inline)) {
        Type::accumulate(tile[i], weights[i], x[g]);
      });
    } else {
      repeat<kOut>([&](auto i) __attribute__((always_inline)) {
        Type::accumulate(tile[i], weights[i], x[g]);
      });
    }
  }
}

/// kOut rows of weights against up to kPanelRows rows of activations: the weights are unpacked
/// once. Sums are in memory only between two panels: a row of 576 has one, and storing them is a
/// tenth of its time.
template <class Type, int kOut>
void quantised_panel(const DecodeInput& in, const uint8_t* weights, int64_t row_size, float* y,
                     int64_t y_stride) {
  Accumulator sums[kPanelRows][kOut];
  Unpacked<Type> panel[kPanelGroups * kOut];
  for (int64_t begin = 0; begin < in.n_groups; begin += kPanelGroups) {
    const int64_t end = begin + kPanelGroups < in.n_groups ? begin + kPanelGroups : in.n_groups;
    unpack_panel<Type, kOut>(in, weights, row_size, begin, end, panel);
    for (int64_t r = 0; r < in.n_rows; ++r) {
      Accumulator tile[kOut] = {};
      if (begin > 0) {
        repeat<kOut>([&](auto i) __attribute__((always_inline)) { tile[i] = sums[r][i]; });
      }
      panel_row<Type, kOut>(panel, in.groups + r * in.n_groups + begin, end - begin, tile);
      if (end < in.n_groups) {
        repeat<kOut>([&](auto i) __attribute__((always_inline)) { sums[r][i] = tile[i]; });
      } else {
        store_totals(tile, y + r * y_stride);
      }
    }
  }
}

template <class Type>
void decode_rows(const DecodeInput& in, const uint8_t* weights, int64_t row_size, int64_t n_out,
                 float* y, int64_t y_stride) {
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

}  // namespace

const MatmulDecodeRowsFns& matmul_decode_rows_fns() {
  static constexpr MatmulDecodeRowsFns kFns = {
      .q8_0 = decode_rows<Q8_0>,
      .q4_0 = decode_rows<Q4_0>,
      .q4_1 = decode_rows<Q4_1>,
      .q5_0 = decode_rows<Q5_0>,
      .q5_1 = decode_rows<Q5_1>,
      .q2_k = decode_rows<Q2_K>,
      .q3_k = decode_rows<Q3_K>,
      .q4_k = decode_rows<Q4_K>,
      .q5_k = decode_rows<Q5_K>,
      .q6_k = decode_rows<Q6_K>,
      .iq4_nl = decode_rows<IQ4_NL>,
      .iq4_xs = decode_rows<IQ4_XS>,
      .mxfp4 = decode_rows<MXFP4>,
  };
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA

#else

namespace weft::kernels::WEFT_ISA {

const MatmulDecodeRowsFns& matmul_decode_rows_fns() {
  static constexpr MatmulDecodeRowsFns kFns = {};
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA

#endif
