// The scales of four blocks of 32 of each of sixteen rows of weights, with AVX-512: taken from the
// blocks' bytes by permutes, a block a register in the end. Included where whole groups of such
// blocks are read: decode_row_avx512_internal.h, unpack_int8_internal.h.
//
// One by one these are 64 loads of two bytes, scattered over 64 blocks. Here a row's four blocks
// are loaded as they lie (Q4_0: 72 bytes, of which the first 64 have all four scales), and one
// permute takes the four halves out into the places that the row has in its register.
#pragma once

#include <immintrin.h>
#include <stdint.h>

#include "tensor/blocks.h"

namespace weft::kernels::WEFT_ISA {
namespace {

/// Lanes: v[i] lane j becomes v[j] lane i.
[[gnu::always_inline]] inline void transpose_lanes(__m512i (&v)[4]) {
  const __m512i even01 = _mm512_shuffle_i32x4(v[0], v[1], 0x88);
  const __m512i odd01 = _mm512_shuffle_i32x4(v[0], v[1], 0xdd);
  const __m512i even23 = _mm512_shuffle_i32x4(v[2], v[3], 0x88);
  const __m512i odd23 = _mm512_shuffle_i32x4(v[2], v[3], 0xdd);
  v[0] = _mm512_shuffle_i32x4(even01, even23, 0x88);
  v[1] = _mm512_shuffle_i32x4(odd01, odd23, 0x88);
  v[2] = _mm512_shuffle_i32x4(even01, even23, 0xdd);
  v[3] = _mm512_shuffle_i32x4(odd01, odd23, 0xdd);
}

/// Place kPlace of each lane of v to place kTo of `to`.
template <int kTo, int kPlace>
inline __m512 put_place(__m512 to, __m512 v) {
  return _mm512_mask_permute_ps(to, 0x1111 << kTo, v, kPlace * 0x55);
}

/// Blocks that begin with a half: those of eight rows are put side by side as they are, in the lane
/// of each block.
template <class Block>
struct HalfScales {
  static constexpr bool kHasMin = false;
  __m512i halves[4];  // of four rows: chains of permutes, short ones
  __m512 scales[1][4], mins[1][4];

  template <int kRow>
  [[gnu::always_inline]] void add(int quad, const uint8_t* unit) {
    constexpr int kWords = sizeof(Block) / 2;
    const __mmask32 mask = 0x01010101u << (4 * (quad % 2) + kRow);
    __m512i& to = halves[quad];
    if constexpr (kRow == 0) to = _mm512_setzero_si512();
    if constexpr (3 * kWords < 32) {
      const __m512i at =
          _mm512_set_epi64(kSame * (3 * kWords), kSame * (3 * kWords), kSame * (2 * kWords),
                           kSame * (2 * kWords), kSame * kWords, kSame * kWords, 0, 0);
      to = _mm512_mask_permutexvar_epi16(to, mask, at, _mm512_loadu_si512(unit));
    } else {
      const __m512i at = _mm512_set_epi64(kSame * kWords, kSame * kWords, 0, 0, kSame * kWords,
                                          kSame * kWords, 0, 0);
      to = _mm512_mask_permutexvar_epi16(to, mask & 0xffffu, at, _mm512_loadu_si512(unit));
      to = _mm512_mask_permutexvar_epi16(to, mask & 0xffff0000u, at,
                                         _mm512_loadu_si512(unit + 4 * kWords));
    }
  }
  [[gnu::always_inline]] void finish() {
    const __m512i low = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    const __m512i high = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    const __m512i rows0 = _mm512_or_si512(halves[0], halves[1]);
    const __m512i rows8 = _mm512_or_si512(halves[2], halves[3]);
    const __m512i first = _mm512_permutex2var_epi64(rows0, low, rows8);
    const __m512i second = _mm512_permutex2var_epi64(rows0, high, rows8);
    scales[0][0] = _mm512_cvtph_ps(_mm512_castsi512_si256(first));
    scales[0][1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(first, 1));
    scales[0][2] = _mm512_cvtph_ps(_mm512_castsi512_si256(second));
    scales[0][3] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(second, 1));
  }

 private:
  static constexpr int64_t kSame = 0x0001000100010001;
};

/// Blocks of 20 bytes that begin with two halves, scale and min.
struct PairScales {
  static constexpr bool kHasMin = true;
  __m512i pairs[4];
  __m512 scales[1][4], mins[1][4];

  template <int kRow>
  [[gnu::always_inline]] void add(int quad, const uint8_t* unit) {
    const __m512i at = _mm512_set_epi32(15, 15, 15, 15, 10, 10, 10, 10, 5, 5, 5, 5, 0, 0, 0, 0);
    if constexpr (kRow == 0) {
      pairs[quad] = _mm512_permutexvar_epi32(at, _mm512_loadu_si512(unit));
    } else {
      pairs[quad] =
          _mm512_mask_permutexvar_epi32(pairs[quad], 0x1111 << kRow, at, _mm512_loadu_si512(unit));
    }
  }
  [[gnu::always_inline]] void finish() {
    transpose_lanes(pairs);
#pragma GCC unroll 4
    for (int b = 0; b < 4; ++b) {
      scales[0][b] = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(pairs[b]));
      mins[0][b] = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(pairs[b], 16)));
    }
  }
};

}  // namespace
}  // namespace weft::kernels::WEFT_ISA
