// GGUF's Q8_0: a scale in f16 and 32 int8, value = scale * byte. 0.53 of f16's bytes. The scale is
// the one of 16 near largest / 127 that gives the least squared error.
//
// With VNNI decode's two products are of integers (kv_codec_integers_internal.h): at 512 keys it
// takes 0.57 of f16's time, at 16,384 0.59 (Sapphire Rapids, a 1B model's shape, one thread). With
// K's alone, key by key with sums across lanes, and V widened and scaled in f32, it took 0.93.
#include "kernels/kv_codec_integers_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

/// Codes that the largest magnitude of a block is tried at. Rounded, all are 120 to 127.
constexpr int kSteps = 16;
constexpr float kFirstStep = 127.4f, kStep = 0.5f;

/// The sum over 32 lanes by halves, in the same order whatever a register holds.
inline float sum_of_block(F32 (&x)[kBlock / kLanes]) {
  for (int n = kBlock / kLanes / 2; n > 0; n /= 2) {
    for (int i = 0; i < n; ++i) x[i] = add(x[i], x[i + n]);
  }
  return reduce_add(x[0]);
}

/// x / scale, rounded, at most 127.
inline F32 rounded(F32 x, F32 inverse) {
  return min(max(round_to_even(mul(x, inverse)), set1(-127.0f)), set1(127.0f));
}

/// Of scales near largest / 127 the one with the least squared error, as f16 holds it. Twenty per
/// cent less of it than with largest / 127 itself: which of 16 grids the 32 values happen to be
/// near counts for more than that most of them are a little wider.
inline float best_scale(const float* src, float largest) {
  float scales[kSteps], inverses[kSteps], steps[kSteps];
  uint16_t halves[kSteps];
  for (int c = 0; c < kSteps; ++c) steps[c] = kFirstStep - kStep * c;
  for (int c = 0; c < kSteps; c += kLanes) {
    narrow(halves + c, div(set1(largest), load(steps + c)));
    const F32 scale = widen(halves + c);
    store(scales + c, scale);
    store(inverses + c, div(set1(1.0f), scale));
  }
  float least = INFINITY, best = 0;
  for (int c = 0; c < kSteps; ++c) {
    F32 errors[kBlock / kLanes];
    for (int i = 0; i < kBlock / kLanes; ++i) {
      const F32 x = load(src + i * kLanes);
      const F32 error = sub(x, mul(rounded(x, set1(inverses[c])), set1(scales[c])));
      errors[i] = mul(error, error);
    }
    const float sum = sum_of_block(errors);
    if (sum < least) {
      least = sum;
      best = scales[c];
    }
  }
  return best;
}

/// src in a block's bytes. Where the scale is not a normal f16, largest / 127 has to do.
inline float quantise_kv(const float* src, int8_t* dst) {
  F32 largest = set1(0.0f);
  for (int i = 0; i < kBlock; i += kLanes) {
    const F32 x = load(src + i);
    largest = max(max(x, sub(set1(0.0f), x)), largest);
  }
  const float scale = reduce_max(largest) / 127;
  // A NaN is passed over above, and no sum is the least with one.
  if (!(scale >= 0x1p-14f && scale < 65504)) return quantise_block(src, dst);
  const float best = best_scale(src, reduce_max(largest));
  if (best == 0) return quantise_block(src, dst);
  const F32 inverse = set1(1.0f / best);
  float q[kBlock];
  for (int i = 0; i < kBlock; i += kLanes) store(q + i, rounded(load(src + i), inverse));
  for (int i = 0; i < kBlock; ++i) dst[i] = q[i];
  return best;
}

struct Q8_0Codec {
  static constexpr int kBytes = 34;
  static F32 load(const uint8_t* block, int d) {
    const uint8_t* bytes = block + 2 + d;
#if defined(__AVX512F__)
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes))));
#elif defined(__AVX2__)
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes))));
#else
    int8_t q[kLanes];
    memcpy(q, bytes, sizeof(q));
    float x[kLanes];
    for (int i = 0; i < kLanes; ++i) x[i] = q[i];
    return WEFT_ISA::load(x);
#endif
  }
  static void store(const float* src, uint8_t* block) {
    int8_t q[kBlock];
    store_scale(quantise_kv(src, q), block);
    memcpy(block + 2, q, sizeof(q));
  }
#if defined(__AVX512VNNI__)
  // Bytes plus 128, by xor.
  static constexpr int kOffset = 128;
  static constexpr bool kSignedWeights = false;  // store() makes no scale negative
  template <int kStep>
  [[gnu::always_inline]] static void key_step(const KeyRows& blocks, __m512i (&x)[8]) {
    const __m512i sign = _mm512_set1_epi8(-128);
    const auto load = [&](int i, int lane, int row) {
      x[i] = insert_half(load_half(blocks.row(lane, row) + 2), blocks.row(lane + 1, row) + 2);
    };
    // Of x[c] the quarters are words c, c + 4 of keys 0 to 3 and c, c + 4 of keys 4 to 7; of
    // x[c + 4] those of the other eight.
    const auto join = [&](int c) {
      const __m512i first = shuffle_quarters<0x88>(x[c], x[c + 4]);
      x[c + 4] = exclusive_or(shuffle_quarters<0xdd>(x[c], x[c + 4]), sign);
      x[c] = exclusive_or(first, sign);
    };
    if constexpr (kStep == 0) {
      load(0, 0, 0);
      load(2, 0, 1);
      load(1, 0, 2);
      load(3, 0, 3);
    } else if constexpr (kStep == 1) {
      interleave_words(x[0], x[2]);
      load(4, 2, 0);
      load(6, 2, 1);
    } else if constexpr (kStep == 2) {
      interleave_words(x[1], x[3]);
      load(5, 2, 2);
      load(7, 2, 3);
    } else if constexpr (kStep == 3) {
      interleave_pairs(x[0], x[1]);
      interleave_words(x[4], x[6]);
    } else if constexpr (kStep == 4) {
      interleave_words(x[5], x[7]);
      interleave_pairs(x[2], x[3]);
    } else if constexpr (kStep == 5) {
      interleave_pairs(x[4], x[5]);
      join(0);
    } else if constexpr (kStep == 6) {
      interleave_pairs(x[6], x[7]);
      join(1);
    } else {
      join(2);
      join(3);
    }
  }
  static void value_columns(const FourRows& blocks, __m512i (&columns)[2]) {
    const __m512i low = insert_half(load_half(blocks.row(0) + 2), blocks.row(1) + 2);
    const __m512i high = insert_half(load_half(blocks.row(2) + 2), blocks.row(3) + 2);
    // Word 8 k + c is key k's number c; it comes to lane c, place k.
    const __m512i from =
        _mm512_setr_epi32(0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
    for (int i = 0; i < 2; ++i) {
      const __m512i at = _mm512_add_epi32(from, _mm512_set1_epi32(4 * i));
      columns[i] = transpose_bytes(_mm512_permutex2var_epi32(low, at, high));
    }
  }
#endif
};

}  // namespace

const KvCodecFns& kv_codec_q8_0_fns() { return block_kv_fns<Q8_0Codec>(); }

}  // namespace weft::kernels::WEFT_ISA
