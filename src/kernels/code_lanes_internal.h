// Integers that keys and queries are rounded to where they are only compared: K's in bytes, a
// query's in bytes (digests) or in 16 bits (labels), their sums exact. Only for *_cpu.cc files.
#pragma once

#include <float.h>
#include <math.h>

#include "kernels/cpu_half_internal.h"
#include "kernels/simd_internal.h"

namespace weft::kernels::WEFT_ISA {

inline constexpr float kLargestCode = 127.0f;
inline constexpr float kLargestQuery = 32767.0f;

/// To nearest even, for |x| <= 2^22: adding 1.5 * 2^23 drops the fraction. For plain loops.
inline float rounded(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

/// The largest magnitude of n numbers and `largest`, or NaN if there is one: as integers,
/// magnitudes have the order of floats, and NaN is above infinity.
inline float largest_of(const float* x, int32_t n, float largest) {
  int32_t most = bits_from_float(largest);
  for (int32_t d = 0; d < n; ++d) {
    int32_t bits;
    memcpy(&bits, x + d, sizeof(bits));
    bits &= 0x7fffffff;
    most = bits > most ? bits : most;
  }
  return float_from_bits(most);
}

/// At least largest / 127, with 16 significant bits: a product with a byte is then exact in f32,
/// and rounding up or down can be checked by it.
inline float step_of(float largest) {
  const uint32_t bits = bits_from_float(largest / kLargestCode);
  const float step = float_from_bits((bits & ~0xffu) + 0x100);
  return step < FLT_MIN ? FLT_MIN : step;
}

/// out = the n numbers as whole ones of at most `most`, 0 where any is not finite; returns what one
/// of them is worth, NaN where any is not finite.
inline float whole_numbers(const float* x, int32_t n, float most, float* out) {
  const float largest = largest_of(x, n, 0.0f);
  const float exact_step = largest / most;
  const float step = exact_step < FLT_MIN ? FLT_MIN : exact_step;
  const bool is_finite = largest < INFINITY;
  for (int32_t d = 0; d < n; ++d) out[d] = is_finite ? rounded(x[d] / step) : 0.0f;
  return largest == 0 ? 0.0f : is_finite ? step : NAN;
}

// One register of 16-bit integers: twice kLanes.
#if defined(__AVX512F__)

using I16 = __m512i;
inline I16 widen_bytes(const uint8_t* p) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline I16 load_i16(const int16_t* p) { return _mm512_loadu_si512(p); }
inline I32 zero_i32() { return _mm512_setzero_si512(); }
/// Lane i: c + a[2i] b[2i] + a[2i + 1] b[2i + 1].
inline I32 add_products(I16 a, I16 b, I32 c) { return _mm512_dpwssd_epi32(c, a, b); }

// One register of bytes: four times kLanes. Magnitudes and their signs are apart, as the products
// are of an unsigned and a signed one.
using I8 = __m512i;
inline constexpr int kI8Lanes = 64;
inline I8 load_i8(const uint8_t* p) { return _mm512_loadu_si512(p); }
/// The first n, fewer than a register's and a multiple of 8, zeros after them.
inline I8 load_first_i8(const uint8_t* p, int32_t n) {
  return _mm512_maskz_loadu_epi8((uint64_t{1} << n) - 1, p);
}
inline I8 magnitudes(I8 x) { return _mm512_abs_epi8(x); }
inline I8 negated(I8 x) { return _mm512_sub_epi8(_mm512_setzero_si512(), x); }
/// Of lanes, those below 0.
using Mask8 = __mmask64;
inline Mask8 signs(I8 x) { return _mm512_movepi8_mask(x); }
inline I8 select(Mask8 m, I8 yes, I8 no) { return _mm512_mask_blend_epi8(m, no, yes); }
/// Lane i: c + the sum over j < 4 of a[4i + j] b[4i + j], a up to 127. In its own words: GCC 12
/// copies c before the intrinsic and its result after it.
inline I32 add_byte_products(I8 a, I8 b, I32 c) {
  asm("vpdpbusd %2, %1, %0" : "+v"(c) : "v"(a), "vm"(b));
  return c;
}

#elif defined(__AVX2__)

using I16 = __m256i;
inline I16 widen_bytes(const uint8_t* p) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline I16 load_i16(const int16_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline I32 zero_i32() { return _mm256_setzero_si256(); }
inline I32 add_products(I16 a, I16 b, I32 c) {
  return _mm256_add_epi32(c, _mm256_madd_epi16(a, b));
}

using I8 = __m256i;
inline constexpr int kI8Lanes = 32;
inline I8 load_i8(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline I8 load_first_i8(const uint8_t* p, int32_t n) {
  const __m256i places = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
  return _mm256_maskload_epi32(reinterpret_cast<const int32_t*>(p),
                               _mm256_cmpgt_epi32(_mm256_set1_epi32(n / 4), places));
}
inline I8 magnitudes(I8 x) { return _mm256_abs_epi8(x); }
inline I8 negated(I8 x) { return _mm256_sub_epi8(_mm256_setzero_si256(), x); }
using Mask8 = __m256i;
inline Mask8 signs(I8 x) { return x; }
inline I8 select(Mask8 m, I8 yes, I8 no) { return _mm256_blendv_epi8(no, yes, m); }
/// A pair's sum is 2 * 127^2 at most, which 16 bits hold.
inline I32 add_byte_products(I8 a, I8 b, I32 c) {
  const __m256i pairs = _mm256_maddubs_epi16(a, b);
  return _mm256_add_epi32(c, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

#else

typedef int16_t I16 __attribute__((vector_size(16)));
inline I16 widen_bytes(const uint8_t* p) {
  typedef int8_t I8 __attribute__((vector_size(8)));
  I8 bytes;
  memcpy(&bytes, p, sizeof(bytes));
  return __builtin_convertvector(bytes, I16);
}
inline I16 load_i16(const int16_t* p) {
  I16 x;
  memcpy(&x, p, sizeof(x));
  return x;
}
inline I32 zero_i32() { return I32{}; }
inline I32 add_products(I16 a, I16 b, I32 c) {
  typedef int16_t Half __attribute__((vector_size(8)));
  const auto widened = [](I16 x, bool odd) {
    const Half half =
        odd ? __builtin_shufflevector(x, x, 1, 3, 5, 7) : __builtin_shufflevector(x, x, 0, 2, 4, 6);
    return __builtin_convertvector(half, I32);
  };
  return c + widened(a, false) * widened(b, false) + widened(a, true) * widened(b, true);
}

using I8 = I16;  // widened: SSE2 has no product of bytes
inline constexpr int kI8Lanes = 8;
inline I8 load_i8(const uint8_t* p) { return widen_bytes(p); }
inline I8 load_first_i8(const uint8_t*, int32_t) { return I8{}; }  // 8 are a register
using Mask8 = I16;
inline Mask8 signs(I8 x) { return x >> 15; }
inline I8 magnitudes(I8 x) { return (x ^ signs(x)) - signs(x); }
inline I8 negated(I8 x) { return -x; }
inline I8 select(Mask8 m, I8 yes, I8 no) { return (m & yes) | (~m & no); }
inline I32 add_byte_products(I8 a, I8 b, I32 c) { return add_products(a, b, c); }

#endif

}  // namespace weft::kernels::WEFT_ISA
