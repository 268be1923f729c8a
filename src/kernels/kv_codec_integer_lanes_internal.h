// What decode's products of integers are made of (kv_codec_integers_internal.h): rows of K and V,
// and instructions that stay in the order in which they are written. Only for kv_codec_*_cpu.cc,
// and sets with VNNI.
#pragma once

#include "kernels/kv_codec_blocks_internal.h"

#if defined(__AVX512VNNI__)

namespace weft::kernels::WEFT_ISA {
namespace {

constexpr int kMaxBlocks = kMaxHeadDim / kBlock;

/// May alias: after memcpy GCC 12 takes a word through a general register, which is one more
/// shuffle for each product.
typedef int32_t Word __attribute__((may_alias, aligned(1)));

inline __m512i broadcast_word(const void* word) {
  return _mm512_set1_epi32(*static_cast<const Word*>(word));
}

/// Four vectors, `stride` bytes from one to the next.
struct FourRows {
  const uint8_t* first;
  int64_t stride, stride3;

  FourRows(const uint8_t* rows, int64_t bytes) : first(rows), stride(bytes), stride3(3 * bytes) {
    asm("" : "+r"(stride3));
  }
  const uint8_t* row(int i) const { return first + (i == 3 ? stride3 : i * stride); }
};

/// 16 vectors, `stride` bytes from one to the next; lanes[i] is vector 4 i. Four pointers and two
/// indices reach all of them within x86's addressing; given one pointer, GCC 12 kept 16 of them, in
/// vector registers, and getting them out took as long as the products.
struct KeyRows {
  const uint8_t* lanes[4];
  int64_t stride, stride3;

  KeyRows(const uint8_t* first, int64_t bytes) : stride(bytes), stride3(3 * bytes) {
    asm("" : "+r"(stride3));
    for (int i = 0; i < 4; ++i) lanes[i] = first + 4 * i * bytes;
  }
  void advance(int64_t bytes) {
    for (const uint8_t*& lane : lanes) {
      lane += bytes;
      asm("" : "+r"(lane));
    }
  }
  const uint8_t* row(int lane, int i) const {
    return lanes[lane] + (i == 3 ? stride3 : i * stride);
  }
};

/// The scales before 16 blocks, in f16, by loads that broadcast into one lane each: written one by
/// one to memory and read back together they cannot be forwarded, and put together in general
/// registers they were a tenth of all instructions.
inline __m256i load_scales(const KeyRows& blocks) {
  const auto load_word = [&](int lane, int i) { return broadcast_word(blocks.row(lane, i)); };
  __m512i lanes[4];
#pragma GCC unroll 4
  for (int lane = 0; lane < 4; ++lane) {
    __m512i four = load_word(lane, 0);
    four = _mm512_mask_mov_epi32(four, 0x2222, load_word(lane, 1));
    four = _mm512_mask_mov_epi32(four, 0x4444, load_word(lane, 2));
    lanes[lane] = _mm512_mask_mov_epi32(four, 0x8888, load_word(lane, 3));
  }
  __m512i all = _mm512_mask_mov_epi32(lanes[0], 0x00f0, lanes[1]);
  all = _mm512_mask_mov_epi32(all, 0x0f00, lanes[2]);
  all = _mm512_mask_mov_epi32(all, 0xf000, lanes[3]);
  // As vpmovdw, in one shuffle where that takes two.
  const __m512i even = _mm512_castsi256_si512(
      _mm256_setr_epi16(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30));
  return _mm512_castsi512_si256(_mm512_permutexvar_epi16(even, all));
}

// What follows stays in the order in which it is written, asm volatile. GCC 12 puts the products of
// one sum one after the other, where each waits for the last, and they fill the CPU's scheduler so
// that it does not get to the shuffles of what comes next.
#define WEFT_IN_ORDER(name, instruction)                                \
  [[gnu::always_inline]] inline __m512i name(__m512i a, __m512i b) {    \
    __m512i x;                                                          \
    asm volatile(instruction " %2, %1, %0" : "=v"(x) : "v"(a), "v"(b)); \
    return x;                                                           \
  }
WEFT_IN_ORDER(unpack_low_words, "vpunpckldq")
WEFT_IN_ORDER(unpack_high_words, "vpunpckhdq")
WEFT_IN_ORDER(unpack_low_pairs, "vpunpcklqdq")
WEFT_IN_ORDER(unpack_high_pairs, "vpunpckhqdq")
WEFT_IN_ORDER(exclusive_or, "vpxord")
#undef WEFT_IN_ORDER

template <int kPlaces>
[[gnu::always_inline]] inline __m512i shuffle_quarters(__m512i a, __m512i b) {
  __m512i x;
  asm volatile("vshufi32x4 %3, %2, %1, %0" : "=v"(x) : "v"(a), "v"(b), "i"(kPlaces));
  return x;
}

/// Of each 128 bits: the words (the pairs of words) of a and b in turns, the first ones into a, the
/// last ones into b. Two rounds of both make columns of four rows.
[[gnu::always_inline]] inline void interleave_words(__m512i& a, __m512i& b) {
  const __m512i first = unpack_low_words(a, b);
  b = unpack_high_words(a, b);
  a = first;
}
[[gnu::always_inline]] inline void interleave_pairs(__m512i& a, __m512i& b) {
  const __m512i first = unpack_low_pairs(a, b);
  b = unpack_high_pairs(a, b);
  a = first;
}

template <int kBytes>
struct [[gnu::may_alias]] Bytes {
  uint8_t bytes[kBytes];
};

/// 32 bytes, and 32 more after them.
[[gnu::always_inline]] inline __m512i load_half(const uint8_t* from) {
  __m512i x;
  asm volatile("vmovdqu64 %1, %t0" : "=v"(x) : "m"(*reinterpret_cast<const Bytes<32>*>(from)));
  return x;
}
[[gnu::always_inline]] inline __m512i insert_half(__m512i half, const uint8_t* from) {
  __m512i x;
  asm volatile("vinserti64x4 $1, %2, %1, %0"
               : "=v"(x)
               : "v"(half), "m"(*reinterpret_cast<const Bytes<32>*>(from)));
  return x;
}

/// 16 bytes of each of four places: a register.
template <int kQuarter>
[[gnu::always_inline]] inline __m512i insert_quarter(__m512i quarters, const uint8_t* from) {
  __m512i x;
  asm volatile("vinserti32x4 %3, %2, %1, %0"
               : "=v"(x)
               : "v"(quarters), "m"(*reinterpret_cast<const Bytes<16>*>(from)), "i"(kQuarter));
  return x;
}
[[gnu::always_inline]] inline __m512i load_quarters(const uint8_t* a, const uint8_t* b,
                                                    const uint8_t* c, const uint8_t* d) {
  __m512i x;
  asm volatile("vmovdqu64 %1, %x0" : "=v"(x) : "m"(*reinterpret_cast<const Bytes<16>*>(a)));
  return insert_quarter<3>(insert_quarter<2>(insert_quarter<1>(x, b), c), d);
}

[[gnu::always_inline]] inline __m512i broadcast_in_order(const void* word) {
  __m512i x;
  asm volatile("vpbroadcastd %1, %0" : "=v"(x) : "m"(*static_cast<const Word*>(word)));
  return x;
}

/// sums + unsigned bytes times signed ones, four a lane. Not the intrinsic: GCC 12 copies the sums
/// to another register and back at each product, and never takes the broadcast into it. By value:
/// of what asm changes in an array GCC keeps the whole in memory.
[[gnu::always_inline]] inline __m512i add_dots(__m512i sums, __m512i bytes, __m512i signed_bytes) {
  asm volatile("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(bytes), "v"(signed_bytes));
  return sums;
}
[[gnu::always_inline]] inline __m512i add_dots_of_word(__m512i sums, __m512i bytes,
                                                       const void* word) {
  asm volatile("vpdpbusd %2%{1to16%}, %1, %0"
               : "+v"(sums)
               : "v"(bytes), "m"(*static_cast<const Word*>(word)));
  return sums;
}

/// Of each 128 bits: 4 words of 4 bytes, rows become columns.
inline __m512i transpose_bytes(__m512i x) {
  return _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6,
                                                                     10, 14, 3, 7, 11, 15)));
}

/// Word i is all lanes of x[i] joined by `join`, which takes __m256i and __m128i: four registers
/// together take half of the shuffles that each alone would.
template <class Join>
[[gnu::always_inline]] inline __m128i join_lanes(const __m512i (&x)[4], const Join& join) {
  __m256i halves[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    halves[i] = join(_mm512_castsi512_si256(x[i]), _mm512_extracti64x4_epi64(x[i], 1));
  }
  const auto pairs = [&](__m256i a, __m256i b) {
    return join(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
  };
  const __m256i ab = pairs(halves[0], halves[1]), cd = pairs(halves[2], halves[3]);
  const __m256i all = join(_mm256_unpacklo_epi64(ab, cd), _mm256_unpackhi_epi64(ab, cd));
  return join(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
}

struct Sum {
  __m256i operator()(__m256i a, __m256i b) const { return _mm256_add_epi32(a, b); }
  __m128i operator()(__m128i a, __m128i b) const { return _mm_add_epi32(a, b); }
};
/// Of floats that are not negative, which as integers are in the same order; NaN is the largest.
struct Largest {
  __m512i operator()(__m512i a, __m512i b) const { return _mm512_max_epi32(a, b); }
  __m256i operator()(__m256i a, __m256i b) const { return _mm256_max_epi32(a, b); }
  __m128i operator()(__m128i a, __m128i b) const { return _mm_max_epi32(a, b); }
};

/// factor / x, and 0 for what is not greater than 0.
inline __m128 over(float factor, __m128 x) {
  return _mm_maskz_div_ps(_mm_cmp_ps_mask(x, _mm_setzero_ps(), _CMP_GT_OQ), _mm_set1_ps(factor), x);
}

}  // namespace
}  // namespace weft::kernels::WEFT_ISA

#endif  // __AVX512VNNI__
