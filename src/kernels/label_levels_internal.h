// The levels of kSides labels (token_labels_layout.h) and their sums with a query's gains: the bits
// of a dimension are looked up as a byte of sixteen tokens and four dimensions at once, and four
// such bytes with four gains are one dot product of bytes (VNNI), or two instructions without it. A
// byte holds bits of eight dimensions, so that what unpacks them is shared by eight products, and
// by the heads of a group. Only for *_cpu.cc files.
//
// Bits as masks, under which gains of 16 bits were added, took 1.5 times as long for both bits, and
// for the sides, where reading is most of it, 1.1 times (AVX2, Zen 2, one thread, digests and
// labels in huge memory pages).
#pragma once

#include <stdint.h>
#include <string.h>

#include "kernels/code_lanes_internal.h"
#include "kernels/simd_internal.h"
#include "kernels/token_labels_layout.h"

namespace weft::kernels::WEFT_ISA {

/// Dimensions that lie side by side, a token's.
constexpr int32_t kQuad = 4;
constexpr int kQuads = kSideBlockDims / kQuad;

/// A level is a whole number, so many of which are a width w = M - m, from a middle on that is the
/// same for all dimensions of a depth: of a side m and M are 0 and 2; of two bits the four values
/// are 1, 6, 10 and 15 and of three the eight 1, 3, 5 and so on to 15, eighths of w from the middle
/// 8.
template <LabelDepth kDepth>
constexpr int kLevelsOfWidth = kDepth == LabelDepth::kSide ? 2 : 8;
/// The level of the middle.
template <LabelDepth kDepth>
constexpr int kMiddleLevel = kDepth == LabelDepth::kSide ? 1 : 8;

#if defined(__AVX2__)

#if defined(__AVX512F__)

/// a * b / 2^15, to nearest.
inline I16 multiply_parts(I16 a, I16 b) { return _mm512_mulhrs_epi16(a, b); }
inline I16 set1_i16(int16_t x) { return _mm512_set1_epi16(x); }
/// Both halves of x are the same 16 bits.
inline I16 set1_i16x2(int32_t x) { return _mm512_set1_epi32(x); }
inline I16 add_i16(I16 a, I16 b) { return _mm512_add_epi16(a, b); }
inline I16 sub_i16(I16 a, I16 b) { return _mm512_sub_epi16(a, b); }
template <int kBits>
inline I16 shift_up_i16(I16 x) {
  return _mm512_slli_epi16(x, kBits);
}
inline I16 max_magnitude(I16 x, I16 most) { return _mm512_max_epi16(_mm512_abs_epi16(x), most); }
/// Of numbers that are not negative.
inline int16_t reduce_max_i16(I16 x) {
  const __m256i half = _mm256_max_epi16(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
  const __m128i quarter =
      _mm_max_epi16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  const __m128i least = _mm_minpos_epu16(_mm_xor_si128(quarter, _mm_set1_epi16(-1)));
  return static_cast<int16_t>(~_mm_cvtsi128_si32(least));
}
inline int32_t reduce_add_i32(I32 x) { return _mm512_reduce_add_epi32(x); }

/// Four registers are reduced in a third of the instructions of one after the other.
struct FourI32 {
  I32 of[4];
};
/// Two or three, and one of them again.
template <int kRegisters>
FourI32 as_four(const I32 (&x)[kRegisters]) {
  return {{x[0], x[1], x[kRegisters > 2 ? 2 : 0], x[kRegisters > 3 ? 3 : 0]}};
}
/// Each becomes a lane of 128 bits: its halves are joined, then their halves, and so on. All four
/// elements of a lane are all of one register.
template <class Join>
I32 reduce_four(const FourI32& x, const Join& join) {
  const auto halves = [&](I32 a, I32 b) {
    return join(_mm512_shuffle_i64x2(a, b, 0x44), _mm512_shuffle_i64x2(a, b, 0xee));
  };
  const I32 ab = halves(x.of[0], x.of[1]), cd = halves(x.of[2], x.of[3]);
  I32 lanes = join(_mm512_shuffle_i64x2(ab, cd, 0x88), _mm512_shuffle_i64x2(ab, cd, 0xdd));
  lanes = join(lanes, _mm512_shuffle_epi32(lanes, _MM_PERM_BADC));
  return join(lanes, _mm512_shuffle_epi32(lanes, _MM_PERM_CDAB));
}
inline void store_lanes(int32_t* to, I32 lanes) {
  const I32 firsts = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm512_castsi512_si128(_mm512_permutexvar_epi32(firsts, lanes)));
}

/// Numbers that fit in a byte.
inline void store_as_bytes(int8_t* to, I16 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtepi16_epi8(x));
}

using Bytes = __m512i;
inline Bytes load_bytes(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline Bytes bits_and(Bytes a, Bytes b) { return _mm512_and_si512(a, b); }
inline Bytes bits_or(Bytes a, Bytes b) { return _mm512_or_si512(a, b); }
inline Bytes set1_byte(uint8_t x) { return _mm512_set1_epi8(static_cast<char>(x)); }
/// Bits of a byte's neighbour come in: to be masked.
template <int kBits>
inline Bytes shift_down(Bytes x) {
  return _mm512_srli_epi16(x, kBits);
}
inline Bytes shift_up_one(Bytes x) { return _mm512_add_epi8(x, x); }
inline Bytes add_bytes(Bytes a, Bytes b) { return _mm512_add_epi8(a, b); }
inline Bytes look_up(const uint8_t (&table)[16], Bytes at) {
  const __m128i row = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(row), at);
}

/// Of each token the sum of its levels times their gains.
class LevelSums {
 public:
  LevelSums() : sums_(_mm512_setzero_si512()) {}
  /// gains: four bytes.
  void add(Bytes levels, int32_t gains) {
    sums_ = _mm512_dpbusd_epi32(sums_, levels, _mm512_set1_epi32(gains));
  }
  /// After kQuads add() at most.
  void end_block() {}
  /// more: of each token.
  void store(int32_t* to, int32_t more) const {
    _mm512_storeu_si512(to, _mm512_add_epi32(sums_, _mm512_set1_epi32(more)));
  }

 private:
  I32 sums_;
};

#else

inline I16 multiply_parts(I16 a, I16 b) { return _mm256_mulhrs_epi16(a, b); }
inline I16 set1_i16(int16_t x) { return _mm256_set1_epi16(x); }
inline I16 set1_i16x2(int32_t x) { return _mm256_set1_epi32(x); }
inline I16 add_i16(I16 a, I16 b) { return _mm256_add_epi16(a, b); }
inline I16 sub_i16(I16 a, I16 b) { return _mm256_sub_epi16(a, b); }
template <int kBits>
inline I16 shift_up_i16(I16 x) {
  return _mm256_slli_epi16(x, kBits);
}
inline I16 max_magnitude(I16 x, I16 most) { return _mm256_max_epi16(_mm256_abs_epi16(x), most); }
inline int16_t reduce_max_i16(I16 x) {
  const __m128i half = _mm_max_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  const __m128i least = _mm_minpos_epu16(_mm_xor_si128(half, _mm_set1_epi16(-1)));
  return static_cast<int16_t>(~_mm_cvtsi128_si32(least));
}
inline int32_t reduce_add_i32(I32 x) {
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}
inline void store_as_bytes(int8_t* to, I16 x) {
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
}

using Bytes = __m256i;
inline Bytes load_bytes(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline Bytes bits_and(Bytes a, Bytes b) { return _mm256_and_si256(a, b); }
inline Bytes bits_or(Bytes a, Bytes b) { return _mm256_or_si256(a, b); }
inline Bytes set1_byte(uint8_t x) { return _mm256_set1_epi8(static_cast<char>(x)); }
template <int kBits>
inline Bytes shift_down(Bytes x) {
  return _mm256_srli_epi16(x, kBits);
}
inline Bytes shift_up_one(Bytes x) { return _mm256_add_epi8(x, x); }
inline Bytes add_bytes(Bytes a, Bytes b) { return _mm256_add_epi8(a, b); }
inline Bytes look_up(const uint8_t (&table)[16], Bytes at) {
  const __m128i row = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(row), at);
}

class LevelSums {
 public:
  LevelSums() : sums_(_mm256_setzero_si256()), block_(_mm256_setzero_si256()) {}
  void add(Bytes levels, int32_t gains) {
    const I16 products = _mm256_maddubs_epi16(levels, _mm256_set1_epi32(gains));
    block_ = _mm256_add_epi16(block_, products);
  }
  /// Eight pairs of 15 * 127 are 30,480, and fit in 16 bits.
  void end_block() {
    sums_ = add_products(block_, _mm256_set1_epi16(1), sums_);
    block_ = _mm256_setzero_si256();
  }
  void store(int32_t* to, int32_t more) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        _mm256_add_epi32(sums_, _mm256_set1_epi32(more)));
  }

 private:
  I32 sums_;
  I16 block_;
};

#endif

/// The levels of a block's kQuads quads of kLanes tokens, from the planes' bits of them. kBits: how
/// many of the planes count.
template <int kBits>
class Levels {
 public:
  Levels(Bytes sides, Bytes rest, Bytes lowest) {
    const Bytes low = set1_byte(0x0f);
    if constexpr (kBits == 1) {
      nibbles_[0] = bits_and(sides, low);
      nibbles_[1] = bits_and(shift_down<4>(sides), low);
      return;
    }
    // Codes of two bits, of the even quads and of the odd ones.
    const Bytes even = set1_byte(0x55), odd = set1_byte(0xaa);
    const Bytes of_even = bits_or(bits_and(shift_up_one(sides), odd), bits_and(rest, even));
    const Bytes of_odd = bits_or(bits_and(sides, odd), bits_and(shift_down<1>(rest), even));
    nibbles_[0] = bits_and(of_even, low);
    nibbles_[1] = bits_and(shift_down<4>(of_even), low);
    nibbles_[2] = bits_and(of_odd, low);
    nibbles_[3] = bits_and(shift_down<4>(of_odd), low);
    if constexpr (kBits == 3) {
      nibbles_[4] = bits_and(lowest, low);
      nibbles_[5] = bits_and(shift_down<4>(lowest), low);
    }
  }
  /// A quad that the compiler knows.
  Bytes of(int quad) const {
    if constexpr (kBits == 1) {
      return look_up(kOfBits[quad % 4], nibbles_[quad / 4]);
    } else if constexpr (kBits == 2) {
      return look_up(kOfTwo[quad / 2 % 2], nibbles_[quad % 2 * 2 + quad / 4]);
    } else {
      return add_bytes(look_up(kOfThree[quad / 2 % 2], nibbles_[quad % 2 * 2 + quad / 4]),
                       look_up(kOfBits[quad % 4], nibbles_[4 + quad / 4]));
    }
  }

 private:
  static constexpr uint8_t kOfBits[4][16] = {{0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2, 0, 2},
                                             {0, 0, 2, 2, 0, 0, 2, 2, 0, 0, 2, 2, 0, 0, 2, 2},
                                             {0, 0, 0, 0, 2, 2, 2, 2, 0, 0, 0, 0, 2, 2, 2, 2},
                                             {0, 0, 0, 0, 0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2}};
  /// By the lower two bits of four, and by the upper ones.
  static constexpr uint8_t kOfTwo[2][16] = {
      {1, 6, 10, 15, 1, 6, 10, 15, 1, 6, 10, 15, 1, 6, 10, 15},
      {1, 1, 1, 1, 6, 6, 6, 6, 10, 10, 10, 10, 15, 15, 15, 15}};
  /// To which the lowest bit adds 2.
  static constexpr uint8_t kOfThree[2][16] = {{1, 5, 9, 13, 1, 5, 9, 13, 1, 5, 9, 13, 1, 5, 9, 13},
                                              {1, 1, 1, 1, 5, 5, 5, 5, 9, 9, 9, 9, 13, 13, 13, 13}};

  Bytes nibbles_[kBits * 2];
};

#else

inline I16 set1_i16(int16_t x) { return I16{x, x, x, x, x, x, x, x}; }
inline I16 set1_i16x2(int32_t x) { return set1_i16(static_cast<int16_t>(x)); }
inline I16 add_i16(I16 a, I16 b) { return a + b; }
inline I16 sub_i16(I16 a, I16 b) { return a - b; }
template <int kBits>
inline I16 shift_up_i16(I16 x) {
  return x << kBits;
}
inline I16 multiply_parts(I16 a, I16 b) {
  int16_t x[2 * kLanes], y[2 * kLanes], parts[2 * kLanes];
  memcpy(x, &a, sizeof(x));
  memcpy(y, &b, sizeof(y));
  for (int i = 0; i < 2 * kLanes; ++i) {
    parts[i] = static_cast<int16_t>(((x[i] * y[i] >> 14) + 1) >> 1);
  }
  return load_i16(parts);
}
inline I16 max_magnitude(I16 x, I16 most) {
  const I16 magnitude = x < 0 ? -x : x;
  return magnitude > most ? magnitude : most;
}
inline int16_t reduce_max_i16(I16 x) {
  int16_t most = 0;
  for (int i = 0; i < 2 * kLanes; ++i) most = x[i] > most ? x[i] : most;
  return most;
}
inline int32_t reduce_add_i32(I32 x) { return x[0] + x[1] + x[2] + x[3]; }
inline void store_as_bytes(int8_t* to, I16 x) {
  typedef int8_t HalfI8 __attribute__((vector_size(8)));
  const HalfI8 bytes = __builtin_convertvector(x, HalfI8);
  memcpy(to, &bytes, sizeof(bytes));
}

typedef uint8_t Bytes __attribute__((vector_size(16)));
inline Bytes load_bytes(const uint8_t* p) {
  Bytes x;
  memcpy(&x, p, sizeof(x));
  return x;
}

class LevelSums {
 public:
  void add(Bytes levels, int32_t gains) {
    int8_t of[kQuad];
    memcpy(of, &gains, sizeof(of));
    const I16 both = {of[0], of[1], of[2], of[3], of[0], of[1], of[2], of[3]};
    typedef uint8_t Half __attribute__((vector_size(8)));
    Half halves[2];
    memcpy(halves, &levels, sizeof(halves));
    for (int i = 0; i < 2; ++i) block_[i] += __builtin_convertvector(halves[i], I16) * both;
  }
  void end_block() {
    for (int i = 0; i < 2; ++i) {
      I32 pairs;
      memcpy(&pairs, &block_[i], sizeof(pairs));
      sums_[i] += (pairs >> 16) + (pairs << 16 >> 16);
      block_[i] = I16{};
    }
  }
  void store(int32_t* to, int32_t more) const {
    for (int t = 0; t < kLanes; ++t) {
      to[t] = more + sums_[t / 2][t % 2 * 2] + sums_[t / 2][t % 2 * 2 + 1];
    }
  }

 private:
  I32 sums_[2] = {};   // of two dimensions of a token in turn
  I16 block_[2] = {};  // of one
};

/// No CPU that this is compiled for is known to look bytes up.
template <int kBits>
class Levels {
 public:
  Levels(Bytes sides, Bytes rest, Bytes lowest) : sides_(sides), rest_(rest), lowest_(lowest) {}
  Bytes of(int quad) const {
    const Bytes side = sides_ >> quad & 1;
    if constexpr (kBits == 1) return side + side;
    const Bytes rest = rest_ >> quad & 1;
    if constexpr (kBits == 2) return side * 9 + rest * 5 + 1;
    return side * 8 + rest * 4 + (lowest_ >> quad & 1) * 2 + 1;
  }

 private:
  Bytes sides_, rest_, lowest_;
};

#endif

/// Of each register; `sums` has place for four, and those of no register are anything.
template <int kRegisters>
inline void reduce_add_i32(const I32 (&x)[kRegisters], int32_t* sums) {
#if defined(__AVX512F__)
  if constexpr (kRegisters > 1) {
    const auto join = [](I32 a, I32 b) { return _mm512_add_epi32(a, b); };
    return store_lanes(sums, reduce_four(as_four(x), join));
  }
#endif
  for (int i = 0; i < kRegisters; ++i) sums[i] = reduce_add_i32(x[i]);
}
/// Of numbers that are not negative.
template <int kRegisters>
inline void reduce_max_i16(const I16 (&x)[kRegisters], int32_t* most) {
#if defined(__AVX512F__)
  if constexpr (kRegisters > 1) {
    const auto join = [](I32 a, I32 b) { return _mm512_max_epi16(a, b); };
    const I32 pairs = reduce_four(as_four(x), join);
    const I32 both = join(pairs, _mm512_srli_epi32(pairs, 16));
    return store_lanes(most, _mm512_and_si512(both, _mm512_set1_epi32(0xffff)));
  }
#endif
  for (int i = 0; i < kRegisters; ++i) most[i] = reduce_max_i16(x[i]);
}

}  // namespace weft::kernels::WEFT_ISA
