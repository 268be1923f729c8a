// Vectors of 32-bit lanes for the panel kernels (matmul_f32_cpu.cc, matmul_int8_cpu.cc), which
// alone include this (see isa.h for what such a file may do): one set of names for AVX-512, AVX2
// and plain C++. A lane is a column of the product, that is a row of the weight matrix.
//
// simd_internal.h has the functions of floats that attention and the small ops need; here are bytes
// and 32-bit integers as well. Comments are at the first set's functions and hold for all three.
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu_half_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

#if defined(__AVX512F__)

using Vector = __m512i;
constexpr int kLanes = 16;

inline Vector set_bytes(int b) { return _mm512_set1_epi8(b); }
inline Vector bit_and(Vector a, Vector b) { return _mm512_and_si512(a, b); }
inline Vector bit_or(Vector a, Vector b) { return _mm512_or_si512(a, b); }
template <int n>
inline Vector shift_right(Vector a) {
  return _mm512_srli_epi32(a, n);
}
template <int n>
inline Vector shift_left(Vector a) {
  return _mm512_slli_epi32(a, n);
}
inline Vector add_bytes(Vector a, Vector b) { return _mm512_add_epi8(a, b); }
inline void store_codes(uint8_t* p, Vector v) { _mm512_store_si512(p, v); }
/// values[i] for each byte i of `a`, all of which are below 16.
inline Vector look_up(const int8_t* values, Vector a) {
  const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), a);
}
/// `added` in each byte where `a` and `bits` have a bit in common.
inline Vector where_set(Vector a, Vector bits, Vector added) {
  return _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(a, bits), added);
}
/// Each lane's byte number `n`, four times.
inline Vector spread_byte(Vector a, int n) {
  const Vector within = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
  return _mm512_shuffle_epi8(a, _mm512_add_epi8(within, set_bytes(n)));
}

struct Four {
  Vector v[4];
};

/// The 16 bytes of columns 0, 4, 8 and 12, a register's quarter each: unpacking four such
/// registers, of columns 0-3 and their likes, then leaves the columns in order.
inline __m512i four_rows(const uint8_t* const* columns, int64_t offset) {
  auto at = [&](int c) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(columns[c] + offset));
  };
  __m512i v = _mm512_castsi128_si512(at(0));
  v = _mm512_inserti32x4(v, at(4), 1);
  v = _mm512_inserti32x4(v, at(8), 2);
  return _mm512_inserti32x4(v, at(12), 3);
}

/// v[j] lane c = the 32-bit word j of the 16 bytes at columns[c] + offset.
inline Four load_words(const uint8_t* const* columns, int64_t offset) {
  const __m512i a = four_rows(columns, offset), b = four_rows(columns + 1, offset);
  const __m512i c = four_rows(columns + 2, offset), d = four_rows(columns + 3, offset);
  const __m512i ab_low = _mm512_unpacklo_epi32(a, b), ab_high = _mm512_unpackhi_epi32(a, b);
  const __m512i cd_low = _mm512_unpacklo_epi32(c, d), cd_high = _mm512_unpackhi_epi32(c, d);
  return {{_mm512_unpacklo_epi64(ab_low, cd_low), _mm512_unpackhi_epi64(ab_low, cd_low),
           _mm512_unpacklo_epi64(ab_high, cd_high), _mm512_unpackhi_epi64(ab_high, cd_high)}};
}

/// The half floats in the lanes' low 16 bits.
inline void store_halves(float* p, Vector halves) {
  _mm512_storeu_ps(p, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(halves)));
}
/// p[c] = factor[c] * (the signed 32-bit integers).
inline void store_products(float* p, const float* factor, Vector integers) {
  _mm512_storeu_ps(p, _mm512_mul_ps(_mm512_loadu_ps(factor), _mm512_cvtepi32_ps(integers)));
}
template <int n>
inline Vector shift_right_signed(Vector a) {
  return _mm512_srai_epi32(a, n);
}

using Floats = __m512;
inline Floats load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, Floats v) { _mm512_storeu_ps(p, v); }
inline Floats broadcast(float f) { return _mm512_set1_ps(f); }
inline Floats zero() { return _mm512_setzero_ps(); }
inline Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats to_float(Vector v) { return _mm512_cvtepi32_ps(v); }
inline Vector broadcast_int(int32_t i) { return _mm512_set1_epi32(i); }

#elif defined(__AVX2__)

using Vector = __m256i;
constexpr int kLanes = 8;

inline Vector set_bytes(int b) { return _mm256_set1_epi8(b); }
inline Vector bit_and(Vector a, Vector b) { return _mm256_and_si256(a, b); }
inline Vector bit_or(Vector a, Vector b) { return _mm256_or_si256(a, b); }
template <int n>
inline Vector shift_right(Vector a) {
  return _mm256_srli_epi32(a, n);
}
template <int n>
inline Vector shift_left(Vector a) {
  return _mm256_slli_epi32(a, n);
}
inline Vector add_bytes(Vector a, Vector b) { return _mm256_add_epi8(a, b); }
inline void store_codes(uint8_t* p, Vector v) {
  _mm256_store_si256(reinterpret_cast<Vector*>(p), v);
}
inline Vector look_up(const int8_t* values, Vector a) {
  const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(values));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), a);
}
inline Vector where_set(Vector a, Vector bits, Vector added) {
  const Vector clear = _mm256_cmpeq_epi8(_mm256_and_si256(a, bits), _mm256_setzero_si256());
  return _mm256_andnot_si256(clear, added);
}
inline Vector spread_byte(Vector a, int n) {
  const Vector within = _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404,
                                          0x08080808, 0x0c0c0c0c);
  return _mm256_shuffle_epi8(a, _mm256_add_epi8(within, set_bytes(n)));
}

struct Four {
  Vector v[4];
};

inline Vector two_rows(const uint8_t* const* columns, int64_t offset) {
  auto at = [&](int c) { return reinterpret_cast<const __m128i*>(columns[c] + offset); };
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(at(0))),
                                 _mm_loadu_si128(at(4)), 1);
}

inline Four load_words(const uint8_t* const* columns, int64_t offset) {
  const Vector a = two_rows(columns, offset), b = two_rows(columns + 1, offset);
  const Vector c = two_rows(columns + 2, offset), d = two_rows(columns + 3, offset);
  const Vector ab_low = _mm256_unpacklo_epi32(a, b), ab_high = _mm256_unpackhi_epi32(a, b);
  const Vector cd_low = _mm256_unpacklo_epi32(c, d), cd_high = _mm256_unpackhi_epi32(c, d);
  return {{_mm256_unpacklo_epi64(ab_low, cd_low), _mm256_unpackhi_epi64(ab_low, cd_low),
           _mm256_unpacklo_epi64(ab_high, cd_high), _mm256_unpackhi_epi64(ab_high, cd_high)}};
}

inline void store_halves(float* p, Vector halves) {
  const Vector low = _mm256_and_si256(halves, _mm256_set1_epi32(0xffff));
  const __m128i packed =
      _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
  _mm256_storeu_ps(p, _mm256_cvtph_ps(packed));
}
inline void store_products(float* p, const float* factor, Vector integers) {
  _mm256_storeu_ps(p, _mm256_mul_ps(_mm256_loadu_ps(factor), _mm256_cvtepi32_ps(integers)));
}
template <int n>
inline Vector shift_right_signed(Vector a) {
  return _mm256_srai_epi32(a, n);
}

using Floats = __m256;
inline Floats load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, Floats v) { _mm256_storeu_ps(p, v); }
inline Floats broadcast(float f) { return _mm256_set1_ps(f); }
inline Floats zero() { return _mm256_setzero_ps(); }
inline Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
inline Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
inline Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
inline Floats to_float(Vector v) { return _mm256_cvtepi32_ps(v); }
inline Vector broadcast_int(int32_t i) { return _mm256_set1_epi32(i); }

#else

struct Vector {
  uint32_t lane[4];
};
constexpr int kLanes = 4;

template <class F>
inline Vector each_lane(F f) {
  Vector v;
  for (int i = 0; i < kLanes; ++i) v.lane[i] = f(i);
  return v;
}
template <class F>
inline Vector each_byte(F f) {
  uint8_t bytes[4 * kLanes];
  for (int i = 0; i < 4 * kLanes; ++i) bytes[i] = f(i);
  Vector v;
  memcpy(&v, bytes, sizeof v);
  return v;
}
inline uint8_t byte_of(const Vector& v, int i) { return v.lane[i / 4] >> (8 * (i % 4)); }

inline Vector set_bytes(int b) {
  return each_byte([&](int) { return b; });
}
inline Vector bit_and(const Vector& a, const Vector& b) {
  return each_lane([&](int i) { return a.lane[i] & b.lane[i]; });
}
inline Vector bit_or(const Vector& a, const Vector& b) {
  return each_lane([&](int i) { return a.lane[i] | b.lane[i]; });
}
template <int n>
inline Vector shift_right(const Vector& a) {
  return each_lane([&](int i) { return a.lane[i] >> n; });
}
template <int n>
inline Vector shift_left(const Vector& a) {
  return each_lane([&](int i) { return a.lane[i] << n; });
}
template <int n>
inline Vector shift_right_signed(const Vector& a) {
  return each_lane([&](int i) {
    const int32_t x = a.lane[i];
    return x >> n;
  });
}
inline Vector add_bytes(const Vector& a, const Vector& b) {
  return each_byte([&](int i) { return byte_of(a, i) + byte_of(b, i); });
}
inline Vector look_up(const int8_t* values, const Vector& a) {
  return each_byte([&](int i) { return values[byte_of(a, i)]; });
}
inline void store_codes(uint8_t* p, const Vector& v) { memcpy(p, &v, sizeof v); }
inline Vector where_set(const Vector& a, const Vector& bits, const Vector& added) {
  return each_byte(
      [&](int i) { return (byte_of(a, i) & byte_of(bits, i)) != 0 ? byte_of(added, i) : 0; });
}
inline Vector spread_byte(const Vector& a, int n) {
  return each_lane([&](int i) { return (a.lane[i] >> (8 * n) & 0xffu) * 0x01010101u; });
}

struct Four {
  Vector v[4];
};

inline Four load_words(const uint8_t* const* columns, int64_t offset) {
  Four words;
  for (int c = 0; c < kLanes; ++c) {
    uint32_t column[4];
    memcpy(column, columns[c] + offset, sizeof column);
    for (int j = 0; j < 4; ++j) words.v[j].lane[c] = column[j];
  }
  return words;
}

inline void store_halves(float* p, const Vector& halves) {
  for (int i = 0; i < kLanes; ++i) p[i] = half_to_float(halves.lane[i]);
}
inline void store_products(float* p, const float* factor, const Vector& integers) {
  for (int i = 0; i < kLanes; ++i) {
    const int32_t x = integers.lane[i];
    p[i] = factor[i] * x;
  }
}

using Floats = float __attribute__((vector_size(16)));
inline Floats load(const float* p) {
  Floats v;
  memcpy(&v, p, sizeof v);
  return v;
}
inline void store(float* p, Floats v) { memcpy(p, &v, sizeof v); }
inline Floats broadcast(float f) { return Floats{f, f, f, f}; }
inline Floats zero() { return broadcast(0.0f); }
inline Floats multiply(Floats a, Floats b) { return a * b; }
inline Floats add(Floats a, Floats b) { return a + b; }
inline Floats multiply_add(Floats a, Floats b, Floats c) { return a * b + c; }
inline Floats to_float(const Vector& v) {
  Floats f = zero();
  for (int i = 0; i < kLanes; ++i) {
    const int32_t x = v.lane[i];
    f[i] = x;
  }
  return f;
}
inline Vector broadcast_int(int32_t i) {
  const uint32_t u = i;
  return {{u, u, u, u}};
}

#endif

/// MXFP4's scales: p[c] = 2^(the lanes' lowest byte - 128).
inline void store_exponents(float* p, Vector v) {
  uint32_t words[kLanes];
  memcpy(words, &v, sizeof words);
  for (int c = 0; c < kLanes; ++c) p[c] = e8m0_half_to_float(words[c] & 0xffu);
}

/// Asks for the cache lines of the object's first kBytes; it need not exist.
template <size_t kBytes, class T>
inline void prefetch(const T& object) {
  const char* bytes = reinterpret_cast<const char*>(&object);
#pragma GCC unroll 32
  for (size_t i = 0; i < kBytes; i += 64) __builtin_prefetch(bytes + i);
}

/// A panel has two vectors of columns, so that a broadcast activation serves two products.
constexpr int kVectors = 2;
constexpr int kPanelColumns = kVectors * kLanes;

}  // namespace
}  // namespace weft::kernels::WEFT_ISA
