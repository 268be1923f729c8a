// GGUF's Q4_0 (docs: gguf.md of ggml): a scale in f16 and 32 nibbles, element i in the low half of
// byte i, element i + 16 in the high one; value = scale * (nibble - 8). Quantised as GGML does
// (quantize_row_q4_0_ref): the value of largest magnitude becomes -8. 0.28 of f16's bytes.
#include "kernels/kv_codec_integers_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

struct Q4_0Codec {
  static constexpr int kBytes = 18;
  static F32 load(const uint8_t* block, int d) {
    const uint8_t* nibbles = block + 2 + d % 16;
#if defined(__AVX512F__)
    const __m512i x =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(nibbles)));
    const __m512i low =
        d < 16 ? _mm512_and_si512(x, _mm512_set1_epi32(15)) : _mm512_srli_epi32(x, 4);
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(low, _mm512_set1_epi32(8)));
#elif defined(__AVX2__)
    const __m256i x =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(nibbles)));
    const __m256i low =
        d < 16 ? _mm256_and_si256(x, _mm256_set1_epi32(15)) : _mm256_srli_epi32(x, 4);
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(low, _mm256_set1_epi32(8)));
#else
    float x[kLanes];
    for (int i = 0; i < kLanes; ++i) x[i] = (d < 16 ? nibbles[i] & 15 : nibbles[i] >> 4) - 8;
    return WEFT_ISA::load(x);
#endif
  }
  // A value that is not finite makes the scale so, and with it the block.
  static void store(const float* x, uint8_t* block) {
    float most = 0;
    for (int i = 0; i < kBlock; ++i) {
      if (fabsf(x[i]) > fabsf(most) || x[i] != x[i]) most = x[i];
    }
    const float scale = most / -8;
    const float inverse = scale == 0 ? 0.0f : 1.0f / scale;
    store_scale(scale, block);
    uint8_t nibbles[kBlock];
    for (int i = 0; i < kBlock; ++i) {
      const float q = x[i] * inverse + 8.5f;
      nibbles[i] = q >= 0 && q < 16 ? q : 15;
    }
    for (int i = 0; i < 16; ++i) block[2 + i] = nibbles[i] | (nibbles[16 + i] << 4);
  }
#if defined(__AVX512VNNI__)
  static constexpr int kOffset = 8;
  static constexpr bool kSignedWeights = true;
  static __m512i low_nibbles(__m512i x) { return _mm512_and_si512(x, _mm512_set1_epi8(15)); }
  template <int kStep>
  [[gnu::always_inline]] static void key_step(const KeyRows& blocks, __m512i (&x)[8]) {
    const auto load = [&](int i, int row) {
      x[i] = load_quarters(blocks.row(0, row) + 2, blocks.row(1, row) + 2, blocks.row(2, row) + 2,
                           blocks.row(3, row) + 2);
    };
    const auto split = [&](int c) {
      x[c + 4] = low_nibbles(_mm512_srli_epi16(x[c], 4));
      x[c] = low_nibbles(x[c]);
    };
    if constexpr (kStep == 0) {
      load(0, 0);
    } else if constexpr (kStep == 1) {
      load(2, 1);
    } else if constexpr (kStep == 2) {
      interleave_words(x[0], x[2]);
      load(1, 2);
    } else if constexpr (kStep == 3) {
      load(3, 3);
    } else if constexpr (kStep == 4) {
      interleave_words(x[1], x[3]);
    } else if constexpr (kStep == 5) {
      interleave_pairs(x[0], x[1]);
      split(0);
    } else if constexpr (kStep == 6) {
      interleave_pairs(x[2], x[3]);
      split(1);
    } else {
      split(2);
      split(3);
    }
  }
  static void value_columns(const FourRows& blocks, __m512i (&columns)[2]) {
    // Word 4 k + c is key k's number c; it comes to lane c, place k.
    const __m512i from = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const __m512i quarters =
        load_quarters(blocks.row(0) + 2, blocks.row(1) + 2, blocks.row(2) + 2, blocks.row(3) + 2);
    const __m512i packed = transpose_bytes(_mm512_permutexvar_epi32(from, quarters));
    columns[0] = low_nibbles(packed);
    columns[1] = low_nibbles(_mm512_srli_epi16(packed, 4));
  }
#endif
};

}  // namespace

const KvCodecFns& kv_codec_q4_0_fns() { return block_kv_fns<Q4_0Codec>(); }

}  // namespace weft::kernels::WEFT_ISA
