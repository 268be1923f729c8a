// From what tokens are worth to a query to what their page, or run, is worth: the log of the sum of
// their exponentials, as a largest and a sum of shares of it. Only for *_cpu.cc files.
//
// A page's score is a sum of exponentials and not its largest token's score: with the largest alone
// SmolLM2 found 85 % of the pass keys at a budget of 208 of 4,096 tokens instead of 90 %, and its
// perplexity was 21.96 instead of 21.53. The sum costs a third of scoring.
#pragma once

#include <stdint.h>
#include <string.h>

#include "kernels/code_lanes_internal.h"
#include "kernels/label_levels_internal.h"
#include "kernels/paged_kv.h"
#include "kernels/simd_internal.h"

namespace weft::kernels::WEFT_ISA {

constexpr int kTokens = 16;  // of a mask
constexpr int kParts = kTokens / kLanes;

#if defined(__AVX512F__)
inline I32 set1_i32(int32_t x) { return _mm512_set1_epi32(x); }
inline I32 sub_i32(I32 a, I32 b) { return _mm512_sub_epi32(a, b); }
inline I32 max_i32(I32 a, I32 b) { return _mm512_max_epi32(a, b); }
inline int32_t reduce_max_i32(I32 x) { return _mm512_reduce_max_epi32(x); }
inline F32 to_f32(I32 x) { return _mm512_cvtepi32_ps(x); }
#elif defined(__AVX2__)
inline I32 set1_i32(int32_t x) { return _mm256_set1_epi32(x); }
inline I32 sub_i32(I32 a, I32 b) { return _mm256_sub_epi32(a, b); }
inline I32 max_i32(I32 a, I32 b) { return _mm256_max_epi32(a, b); }
inline int32_t reduce_max_i32(I32 x) {
  __m128i half = _mm_max_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}
inline F32 to_f32(I32 x) { return _mm256_cvtepi32_ps(x); }
#else
inline I32 set1_i32(int32_t x) { return I32{x, x, x, x}; }
inline I32 sub_i32(I32 a, I32 b) { return a - b; }
inline I32 max_i32(I32 a, I32 b) { return a > b ? a : b; }
inline int32_t reduce_max_i32(I32 x) {
  const int32_t even = x[0] > x[2] ? x[0] : x[2], odd = x[1] > x[3] ? x[1] : x[3];
  return even > odd ? even : odd;
}
inline F32 to_f32(I32 x) { return __builtin_convertvector(x, F32); }
#endif

/// 2^x for x <= 0, 1e-4 off at most, relative. Without fused products and in one order of adding,
/// as all that scores are made of: the same bits on every instruction set.
inline F32 power_of_two(F32 x) {
  const F32 least = max(x, set1(-126.0f));
  const F32 n = round_to_even(least);
  const F32 f = sub(least, n);
  F32 p = add(mul(f, set1(0x1.c2a214p-5f)), set1(0x1.f00c4cp-3f));
  p = add(mul(f, p), set1(0x1.62f5fap-1f));
  return scale_by_power(add(mul(f, p), set1(1.0f)), n, x);
}

/// log(x) for x in [1, 2^127), 1e-4 off at most. For plain loops.
inline float log_of(float x) {
  const uint32_t bits = bits_from_float(x);
  const auto exponent = static_cast<float>(static_cast<int32_t>(bits >> 23) - 127);
  const float t = float_from_bits((bits & 0x7fffff) | 0x3f800000) - 1;
  const float p = (0x1.506832p-4f * t - 0x1.e99754p-3f) * t + 0x1.c14150p-2f;
  return 0x1.62e430p-1f * (exponent + t + t * (1 - t) * p);
}

/// 2^x of what tokens' sums are below their page's largest. unit: what 1 of a sum is worth.
inline F32 token_weights(I32 sums, I32 top, float unit) {
  return power_of_two(mul(to_f32(sub_i32(sums, top)), set1(unit * 0x1.715476p+0f)));
}

inline void weigh_page(const int32_t* sums, int32_t page_tokens, float unit, int32_t& top,
                       float& share) {
  I32 tops = load_i32(sums);
  for (int32_t t = kLanes; t < page_tokens; t += kLanes) tops = max_i32(tops, load_i32(sums + t));
  top = reduce_max_i32(tops);
  F32 parts[kParts];
  for (F32& part : parts) part = set1(0.0f);
  for (int32_t begin = 0; begin < page_tokens; begin += kTokens) {
    for (int part = 0; part < kParts; ++part) {
      const I32 some = load_i32(sums + begin + part * kLanes);
      parts[part] = add(parts[part], token_weights(some, set1_i32(top), unit));
    }
  }
  for (int half = kParts / 2; half > 0; half /= 2) {
    for (int part = 0; part < half; ++part) parts[part] = add(parts[part], parts[part + half]);
  }
  share = reduce_add(parts[0]);
}

#if defined(__AVX512F__)

/// Four pages of kTokens, reduced together: in the order in which one is.
inline void weigh_four(const int32_t* sums, const float* units, int32_t* tops, float* shares) {
  FourI32 tokens, weights;
  for (int i = 0; i < 4; ++i) tokens.of[i] = load_i32(sums + i * kTokens);
  const I32 lanes = reduce_four(tokens, [](I32 a, I32 b) { return max_i32(a, b); });
  const I32 of_pages[4] = {
      _mm512_shuffle_i64x2(lanes, lanes, 0x00), _mm512_shuffle_i64x2(lanes, lanes, 0x55),
      _mm512_shuffle_i64x2(lanes, lanes, 0xaa), _mm512_shuffle_i64x2(lanes, lanes, 0xff)};
  for (int i = 0; i < 4; ++i) {
    weights.of[i] = _mm512_castps_si512(token_weights(tokens.of[i], of_pages[i], units[i]));
  }
  const I32 sums_of_weights = reduce_four(weights, [](I32 a, I32 b) {
    return _mm512_castps_si512(add(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)));
  });
  store_lanes(tops, lanes);
  int32_t bits[4];
  store_lanes(bits, sums_of_weights);
  memcpy(shares, bits, sizeof(bits));
}

#endif

/// Of n pages, one after the other.
inline void weigh_pages(const int32_t* sums, int32_t page_tokens, int64_t n, const float* units,
                        int32_t* tops, float* shares) {
  int64_t i = 0;
#if defined(__AVX512F__)
  for (; page_tokens == kTokens && i + 4 <= n; i += 4) {
    weigh_four(sums + i * kTokens, units + i, tops + i, shares + i);
  }
#endif
  for (; i < n; ++i) weigh_page(sums + i * page_tokens, page_tokens, units[i], tops[i], shares[i]);
}

// A run's lanes are joined with those four on, then two on, then with the next. n, of runs, is a
// multiple of 2.
#if defined(__AVX512F__)

/// A register holds two runs. Those of `a`, then those of `b`, become lanes of 128 bits.
template <class Join>
I32 reduce_runs(I32 a, I32 b, const Join& join) {
  I32 lanes = join(_mm512_shuffle_i64x2(a, b, 0x88), _mm512_shuffle_i64x2(a, b, 0xdd));
  lanes = join(lanes, _mm512_shuffle_epi32(lanes, _MM_PERM_BADC));
  return join(lanes, _mm512_shuffle_epi32(lanes, _MM_PERM_CDAB));
}

inline void weigh_runs(const int32_t* sums, int64_t n, const float* units, int32_t* tops,
                       float* shares) {
  for (int64_t i = 0; i < n; i += 4) {
    const int64_t second = i + 2 < n ? i + 2 : i;
    const I32 a = load_i32(sums + i * kRunTokens), b = load_i32(sums + second * kRunTokens);
    const I32 lanes = reduce_runs(a, b, [](I32 x, I32 y) { return max_i32(x, y); });
    const F32 of_a = token_weights(a, _mm512_shuffle_i64x2(lanes, lanes, 0x50), units[i]);
    const F32 of_b = token_weights(b, _mm512_shuffle_i64x2(lanes, lanes, 0xfa), units[second]);
    const I32 weights =
        reduce_runs(_mm512_castps_si512(of_a), _mm512_castps_si512(of_b), [](I32 x, I32 y) {
          return _mm512_castps_si512(add(_mm512_castsi512_ps(x), _mm512_castsi512_ps(y)));
        });
    int32_t some_tops[4], some_shares[4];
    store_lanes(some_tops, lanes);
    store_lanes(some_shares, weights);
    const size_t n_bytes = (n - i < 4 ? 2 : 4) * sizeof(float);
    memcpy(tops + i, some_tops, n_bytes);
    memcpy(shares + i, some_shares, n_bytes);
  }
}

#else

inline void weigh_runs(const int32_t* sums, int64_t n, const float* units, int32_t* tops,
                       float* shares) {
  for (int64_t i = 0; i < n; ++i, sums += kRunTokens) {
    I32 highest = load_i32(sums);
    for (int t = kLanes; t < kRunTokens; t += kLanes) {
      highest = max_i32(highest, load_i32(sums + t));
    }
    tops[i] = reduce_max_i32(highest);
    F32 weights = token_weights(load_i32(sums), set1_i32(tops[i]), units[i]);
    for (int t = kLanes; t < kRunTokens; t += kLanes) {
      weights = add(weights, token_weights(load_i32(sums + t), set1_i32(tops[i]), units[i]));
    }
    shares[i] = reduce_add(weights);
  }
}

#endif

}  // namespace weft::kernels::WEFT_ISA
