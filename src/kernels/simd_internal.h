// One register of floats and the few operations that our kernels need on it, for the instruction
// set that the including *_cpu.cc is compiled for: 16 lanes with AVX-512, 8 with AVX2, 4 otherwise
// (compiler vectors, any CPU). Only for *_cpu.cc files: everything is in the set's own namespace.
//
// A name means the same in all three, what becomes of NaN included, but fmadd rounds twice where
// there is no FMA; comments are at the first set's functions. exp, exp2 and tanh are polynomials of
// our own: libm's are calls for one float each, and their bits differ between libraries.
#pragma once

#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#else
#include "tensor/half.h"  // compiled for any CPU here, so safe to share with the program
#endif

namespace weft::kernels::WEFT_ISA {

#if defined(__AVX2__)
/// The maxima of four registers of eight lanes, none of which is NaN.
inline void reduce_max4_halves(__m256 a, __m256 b, __m256 c, __m256 d, float* tops) {
  const auto join = [](__m256 x, __m256 y) {
    return _mm256_max_ps(_mm256_unpacklo_ps(x, y), _mm256_unpackhi_ps(x, y));
  };
  const __m256 ab = join(a, b), cd = join(c, d);
  const __m256 all =
      _mm256_max_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
  _mm_storeu_ps(tops, _mm_max_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
}
#endif

#if defined(__AVX512F__)

inline constexpr int kLanes = 16;
using F32 = __m512;
using I32 = __m512i;
using Mask = __mmask16;

inline F32 load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, F32 x) { _mm512_storeu_ps(p, x); }
inline I32 load_i32(const int32_t* p) { return _mm512_loadu_si512(p); }
inline F32 set1(float x) { return _mm512_set1_ps(x); }
inline F32 add(F32 a, F32 b) { return _mm512_add_ps(a, b); }
inline F32 sub(F32 a, F32 b) { return _mm512_sub_ps(a, b); }
inline F32 mul(F32 a, F32 b) { return _mm512_mul_ps(a, b); }
inline F32 div(F32 a, F32 b) { return _mm512_div_ps(a, b); }
inline F32 fmadd(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
/// The second operand where either is NaN.
inline F32 max(F32 a, F32 b) { return _mm512_max_ps(a, b); }
inline F32 min(F32 a, F32 b) { return _mm512_min_ps(a, b); }
inline F32 round_to_even(F32 x) { return _mm512_roundscale_ps(x, 0x08); }
inline Mask greater(I32 a, int32_t b) { return _mm512_cmpgt_epi32_mask(a, _mm512_set1_epi32(b)); }
inline I32 add_one_where(Mask m, I32 x) {
  return _mm512_mask_add_epi32(x, m, x, _mm512_set1_epi32(1));
}
/// Bit i is lane i's. The empty asm widens it in a register: GCC 12 otherwise may spill the mask's
/// 16 bits and load 32, of which the upper ones are what lay there (top_pages under TSan).
inline uint32_t mask_bits(Mask m) {
  uint32_t bits = m;
  asm("" : "+r"(bits));
  return bits;
}
/// low <= x < limit.
inline Mask within(I32 low, I32 limit, int32_t x) {
  const I32 xs = _mm512_set1_epi32(x);
  return _mm512_mask_cmpgt_epi32_mask(_mm512_cmple_epi32_mask(low, xs), limit, xs);
}
/// The first half of the lanes is `low`.
inline F32 set_halves(float low, float high) {
  return _mm512_insertf32x8(_mm512_set1_ps(low), _mm256_set1_ps(high), 1);
}
/// Over the lanes, in halves: a fixed order.
inline float reduce_add(F32 x) { return _mm512_reduce_add_ps(x); }
inline float reduce_max(F32 x) { return _mm512_reduce_max_ps(x); }
inline F32 select(Mask m, F32 yes, F32 no) { return _mm512_mask_blend_ps(m, no, yes); }
/// a * b + c where m, else c.
inline F32 fmadd_where(Mask m, F32 a, F32 b, F32 c) { return _mm512_mask3_fmadd_ps(a, b, c, m); }
/// p * 2^n for whole n, 0 where x < -126; NaN stays.
inline F32 scale_by_power(F32 p, F32 n, F32 x) {
  const Mask normal = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
  return _mm512_maskz_scalef_ps(normal, p, n);
}
inline F32 clamp_exponent(F32 x) { return x; }  // vscalefps saturates by itself
/// kLanes half floats, exact; and back, to nearest even.
inline F32 widen(const uint16_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void narrow(uint16_t* p, F32 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
/// Even lanes a * b - c, odd lanes a * b + c.
inline F32 fmaddsub(F32 a, F32 b, F32 c) { return _mm512_fmaddsub_ps(a, b, c); }
/// Each even lane changes places with the odd one after it.
inline F32 swap_pairs(F32 x) { return _mm512_permute_ps(x, 0xB1); }
/// kLanes / 2 floats, each one twice.
inline F32 load_doubled(const float* p) {
  const __m512i twice = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
  return _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
}

/// The four sums of lanes, each in a fixed order.
inline void reduce_add4(F32 a, F32 b, F32 c, F32 d, float* sums) {
  const auto fold = [](__m512 x) {
    return _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  };
  const __m256 pairs =
      _mm256_hadd_ps(_mm256_hadd_ps(fold(a), fold(b)), _mm256_hadd_ps(fold(c), fold(d)));
  _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
}
/// The four maxima of lanes, none of which is NaN.
inline void reduce_max4(F32 a, F32 b, F32 c, F32 d, float* tops) {
  const auto fold = [](__m512 x) {
    return _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  };
  reduce_max4_halves(fold(a), fold(b), fold(c), fold(d), tops);
}

#elif defined(__AVX2__)

inline constexpr int kLanes = 8;
using F32 = __m256;
using I32 = __m256i;
using Mask = __m256;

inline F32 load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, F32 x) { _mm256_storeu_ps(p, x); }
inline I32 load_i32(const int32_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline F32 set1(float x) { return _mm256_set1_ps(x); }
inline F32 add(F32 a, F32 b) { return _mm256_add_ps(a, b); }
inline F32 sub(F32 a, F32 b) { return _mm256_sub_ps(a, b); }
inline F32 mul(F32 a, F32 b) { return _mm256_mul_ps(a, b); }
inline F32 div(F32 a, F32 b) { return _mm256_div_ps(a, b); }
inline F32 fmadd(F32 a, F32 b, F32 c) { return _mm256_fmadd_ps(a, b, c); }
inline F32 max(F32 a, F32 b) { return _mm256_max_ps(a, b); }
inline F32 min(F32 a, F32 b) { return _mm256_min_ps(a, b); }
inline F32 round_to_even(F32 x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Mask greater(I32 a, int32_t b) {
  return _mm256_castsi256_ps(_mm256_cmpgt_epi32(a, _mm256_set1_epi32(b)));
}
inline I32 add_one_where(Mask m, I32 x) { return _mm256_sub_epi32(x, _mm256_castps_si256(m)); }
inline uint32_t mask_bits(Mask m) { return _mm256_movemask_ps(m); }
inline Mask within(I32 low, I32 limit, int32_t x) {
  const I32 xs = _mm256_set1_epi32(x);
  return _mm256_castsi256_ps(
      _mm256_andnot_si256(_mm256_cmpgt_epi32(low, xs), _mm256_cmpgt_epi32(limit, xs)));
}
inline float reduce_add(F32 x) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
inline float reduce_max(F32 x) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}
inline F32 select(Mask m, F32 yes, F32 no) { return _mm256_blendv_ps(no, yes, m); }
inline F32 fmadd_where(Mask m, F32 a, F32 b, F32 c) { return select(m, fmadd(a, b, c), c); }
inline F32 scale_by_power(F32 p, F32 n, F32 x) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  const F32 power = _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
  return _mm256_andnot_ps(_mm256_cmp_ps(x, _mm256_set1_ps(-126.0f), _CMP_LT_OQ), mul(p, power));
}
inline F32 clamp_exponent(F32 x) {  // NaN stays
  return _mm256_min_ps(_mm256_set1_ps(128.0f), _mm256_max_ps(_mm256_set1_ps(-127.0f), x));
}
inline F32 widen(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline void narrow(uint16_t* p, F32 x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline F32 fmaddsub(F32 a, F32 b, F32 c) { return _mm256_fmaddsub_ps(a, b, c); }
inline F32 swap_pairs(F32 x) { return _mm256_permute_ps(x, 0xB1); }
inline F32 load_doubled(const float* p) {
  const __m256i twice = _mm256_set_epi32(3, 3, 2, 2, 1, 1, 0, 0);
  return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), twice);
}

inline void reduce_add4(F32 a, F32 b, F32 c, F32 d, float* sums) {
  const __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  _mm_storeu_ps(sums, _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1)));
}
inline void reduce_max4(F32 a, F32 b, F32 c, F32 d, float* tops) {
  reduce_max4_halves(a, b, c, d, tops);
}

#else

inline constexpr int kLanes = 4;
typedef float F32 __attribute__((vector_size(16)));
typedef int32_t I32 __attribute__((vector_size(16)));
using Mask = I32;

inline F32 load(const float* p) {
  F32 x;
  memcpy(&x, p, sizeof(x));
  return x;
}
inline void store(float* p, F32 x) { memcpy(p, &x, sizeof(x)); }
inline I32 load_i32(const int32_t* p) {
  I32 x;
  memcpy(&x, p, sizeof(x));
  return x;
}
inline F32 set1(float x) { return F32{x, x, x, x}; }
inline F32 add(F32 a, F32 b) { return a + b; }
inline F32 sub(F32 a, F32 b) { return a - b; }
inline F32 mul(F32 a, F32 b) { return a * b; }
inline F32 div(F32 a, F32 b) { return a / b; }
inline F32 fmadd(F32 a, F32 b, F32 c) { return a * b + c; }  // two roundings
inline F32 select(Mask m, F32 yes, F32 no) { return m ? yes : no; }
inline F32 max(F32 a, F32 b) { return select(a > b, a, b); }
inline F32 min(F32 a, F32 b) { return select(a < b, a, b); }
inline float reduce_add(F32 x) { return (x[0] + x[2]) + (x[1] + x[3]); }
inline float reduce_max(F32 x) {
  const float even = x[0] > x[2] ? x[0] : x[2], odd = x[1] > x[3] ? x[1] : x[3];
  return even > odd ? even : odd;
}
inline Mask greater(I32 a, int32_t b) { return a > b; }
inline I32 add_one_where(Mask m, I32 x) { return x - m; }
inline uint32_t mask_bits(Mask m) { return (m[0] & 1) | (m[1] & 2) | (m[2] & 4) | (m[3] & 8); }
inline Mask within(I32 low, I32 limit, int32_t x) { return (low <= x) & (limit > x); }
inline F32 fmadd_where(Mask m, F32 a, F32 b, F32 c) { return select(m, fmadd(a, b, c), c); }
inline F32 round_to_even(F32 x) {  // for |x| <= 2^22: adding 1.5 * 2^23 drops the fraction
  return (x + 0x1.8p23f) - 0x1.8p23f;
}
inline F32 scale_by_power(F32 p, F32 n, F32 x) {
  const I32 exponent = __builtin_convertvector(n, I32) + 127;
  F32 power;
  const I32 bits = exponent << 23;
  memcpy(&power, &bits, sizeof(power));
  return select(x < set1(-126.0f), set1(0.0f), p * power);
}
inline F32 clamp_exponent(F32 x) {  // NaN stays
  x = select(x < set1(-127.0f), set1(-127.0f), x);
  return select(x > set1(128.0f), set1(128.0f), x);
}
inline F32 widen(const uint16_t* p) {
  // A half's bits as a float's are 2^112 too small: a product by a power of two is exact, and takes
  // the subnormals along. Infinity and NaN (made quiet) get their exponent by hand.
  const I32 half = {p[0], p[1], p[2], p[3]};
  const I32 magnitude = (half & 0x7fff) << 13;
  const I32 sign = (half & 0x8000) << 16;
  F32 scaled;
  memcpy(&scaled, &magnitude, sizeof(scaled));
  scaled = scaled * 0x1p112f;
  I32 bits;
  memcpy(&bits, &scaled, sizeof(bits));
  const I32 quiet = (magnitude > 0x0f800000) & 0x400000;
  bits = magnitude >= 0x0f800000 ? magnitude | quiet | 0x70000000 : bits;
  bits |= sign;
  memcpy(&scaled, &bits, sizeof(scaled));
  return scaled;
}
inline void narrow(uint16_t* p, F32 x) {
  for (int i = 0; i < kLanes; ++i) p[i] = f16_from_f32(x[i]);
}
inline F32 fmaddsub(F32 a, F32 b, F32 c) {
  const F32 ab = a * b;
  return F32{ab[0] - c[0], ab[1] + c[1], ab[2] - c[2], ab[3] + c[3]};
}
inline F32 swap_pairs(F32 x) { return F32{x[1], x[0], x[3], x[2]}; }
inline F32 load_doubled(const float* p) { return F32{p[0], p[0], p[1], p[1]}; }

inline void reduce_add4(F32 a, F32 b, F32 c, F32 d, float* sums) {
  sums[0] = (a[0] + a[2]) + (a[1] + a[3]);
  sums[1] = (b[0] + b[2]) + (b[1] + b[3]);
  sums[2] = (c[0] + c[2]) + (c[1] + c[3]);
  sums[3] = (d[0] + d[2]) + (d[1] + d[3]);
}
inline void reduce_max4(F32 a, F32 b, F32 c, F32 d, float* tops) {
  tops[0] = reduce_max(a);
  tops[1] = reduce_max(b);
  tops[2] = reduce_max(c);
  tops[3] = reduce_max(d);
}

#endif

typedef float F32x4 __attribute__((vector_size(16)));

inline F32x4 load4(const float* p) {
  F32x4 x;
  memcpy(&x, p, sizeof(x));
  return x;
}
inline void store4(float* p, F32x4 x) { memcpy(p, &x, sizeof(x)); }

/// Rows become columns.
inline void transpose4(F32x4 (&x)[4]) {
  const F32x4 a = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5);
  const F32x4 b = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7);
  const F32x4 c = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5);
  const F32x4 d = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);
  x[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
  x[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
  x[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
  x[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

/// (2^f - 1) / f for f in [-0.5, 0.5], within 9e-7, relative.
inline F32 exp2_slope(F32 f) {
  F32 p = set1(0x1.5bba14p-10f);
  p = fmadd(p, f, set1(0x1.3cea88p-7f));
  p = fmadd(p, f, set1(0x1.c6b752p-5f));
  p = fmadd(p, f, set1(0x1.ebf9bcp-3f));
  return fmadd(p, f, set1(0x1.62e42ap-1f));
}

/// 2^f for f in [-0.5, 0.5]; exactly 1 for 0. The minimax polynomial of degree 5 with that constant
/// term is within 1.1e-7, relative, and its evaluation adds 0.8e-7.
inline F32 exp2_fraction(F32 f) { return fmadd(exp2_slope(f), f, set1(1.0f)); }

/// 2^x, relative error below 2.5e-7 for x in [-126, 127.5]; 0 below, infinity from 128; NaN stays.
inline F32 exp2(F32 x) {
  const F32 clamped = clamp_exponent(x);
  const F32 n = round_to_even(clamped);
  return scale_by_power(exp2_fraction(sub(clamped, n)), n, x);
}

/// e^x, relative error below 4e-7 for |x| <= 87; 0 below -87.3, infinity from 88.8; NaN stays.
inline F32 exp(F32 x) {
  // x = n ln2 + r, ln2 in two parts of which the first has so few bits that n times it is exact
  // (Cody and Waite 1980), so the same lines serve with and without FMA.
  const F32 log2_e = set1(0x1.715476p+0f);
  const F32 scaled = mul(x, log2_e);
  const F32 clamped = clamp_exponent(scaled);
  const F32 n = round_to_even(clamped);
  F32 r = fmadd(n, set1(-0x1.63p-1f), x);
  r = fmadd(n, set1(0x1.bd0106p-13f), r);
  return scale_by_power(exp2_fraction(mul(r, log2_e)), n, scaled);
}

/// tanh(x), relative error below 1e-6, also where x is tiny; NaN stays.
inline F32 tanh(F32 x) {
  // E / (E + 2) for E = e^2x - 1 = 2^n (2^f - 1) + (2^n - 1): nothing cancels near 0, where n is 0.
  // An error of x, relative, is none larger in tanh(x). Beyond 2^30 it is 1 to all digits.
  const F32 exponent = min(set1(30.0f), max(set1(-30.0f), mul(x, set1(0x1.715476p+1f))));
  const F32 n = round_to_even(exponent);
  const F32 f = sub(exponent, n);
  const F32 power = scale_by_power(set1(1.0f), n, n);
  const F32 e = fmadd(mul(exp2_slope(f), f), power, sub(power, set1(1.0f)));
  return div(e, add(e, set1(2.0f)));
}

}  // namespace weft::kernels::WEFT_ISA
