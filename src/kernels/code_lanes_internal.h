// Integers that keys and queries are rounded to where they are only compared: K's in bytes, a
// query's in 16 bits, their sums exact. Only for *_cpu.cc files.
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

/// out = the n numbers as whole ones of at most kLargestQuery, 0 where any is not finite; returns
/// what one of them is worth, NaN where any is not finite.
inline float whole_numbers(const float* x, int32_t n, float* out) {
  const float largest = largest_of(x, n, 0.0f);
  const float exact_step = largest / kLargestQuery;
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
/// The first n, fewer than a register's and a multiple of 8, zeros after them.
inline I16 widen_first_bytes(const uint8_t* p, int32_t n) {
  return _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8((__mmask32{1} << n) - 1, p));
}
inline I16 load_i16(const int16_t* p) { return _mm512_loadu_si512(p); }
inline I32 zero_i32() { return _mm512_setzero_si512(); }
/// Lane i: c + a[2i] b[2i] + a[2i + 1] b[2i + 1].
inline I32 add_products(I16 a, I16 b, I32 c) { return _mm512_dpwssd_epi32(c, a, b); }
/// Of lanes, those below 0.
using Mask16 = __mmask32;
inline Mask16 negative(I16 x) { return _mm512_movepi16_mask(x); }
inline I16 select(Mask16 m, I16 yes, I16 no) { return _mm512_mask_blend_epi16(m, no, yes); }

#elif defined(__AVX2__)

using I16 = __m256i;
inline I16 widen_bytes(const uint8_t* p) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline I16 widen_first_bytes(const uint8_t* p, int32_t) {
  return _mm256_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
}
inline I16 load_i16(const int16_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline I32 zero_i32() { return _mm256_setzero_si256(); }
inline I32 add_products(I16 a, I16 b, I32 c) {
  return _mm256_add_epi32(c, _mm256_madd_epi16(a, b));
}
using Mask16 = __m256i;
inline Mask16 negative(I16 x) { return _mm256_srai_epi16(x, 15); }
/// In its own words, as GCC 12 compares the intrinsic's mask with 0 each time.
inline I16 select(Mask16 m, I16 yes, I16 no) {
  I16 x;
  asm("vpblendvb %3, %2, %1, %0" : "=x"(x) : "x"(no), "xm"(yes), "x"(m));
  return x;
}

#else

typedef int16_t I16 __attribute__((vector_size(16)));
inline I16 widen_bytes(const uint8_t* p) {
  typedef int8_t I8 __attribute__((vector_size(8)));
  I8 bytes;
  memcpy(&bytes, p, sizeof(bytes));
  return __builtin_convertvector(bytes, I16);
}
inline I16 widen_first_bytes(const uint8_t*, int32_t) { return I16{}; }  // 8 are a register
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
using Mask16 = I16;
inline Mask16 negative(I16 x) { return x >> 15; }
inline I16 select(Mask16 m, I16 yes, I16 no) { return (m & yes) | (~m & no); }

#endif

}  // namespace weft::kernels::WEFT_ISA
