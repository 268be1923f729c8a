// GGUF's Q8_0: a scale in f16 and 32 int8, value = scale * byte; scale = largest magnitude / 127.
// 0.53 of f16's bytes.
//
// With VNNI decode's scores are products of integers: a query is quantised per block of 32 in the
// same way, with a scale in f32, once a task, and vpdpbusd multiplies it with K as it lies there.
// That takes an unsigned operand, so K's bytes have 128 added (by xor) and 128 times the sum of the
// query's is subtracted at the start. Two blocks of a key are a register; four keys' registers are
// added across lanes as integers, so that converting and scaling are once for four keys.
#include "kernels/kv_codec_integers_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

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
    store_scale(quantise_block(src, q), block);
    memcpy(block + 2, q, sizeof(q));
  }
#if defined(__AVX512VNNI__)
  // Bytes plus 128, by xor.
  static constexpr int kOffset = 128;
  static constexpr bool kSignedWeights = false;  // store() makes no scale negative
  static void key_columns(const KeyRows& blocks, __m512i (&columns)[8]) {
    __m512i x[4], y[4];
    for (int i = 0; i < 4; ++i) {
      x[i] = load_halves(blocks.row(0, i) + 2, blocks.row(1, i) + 2);
      y[i] = load_halves(blocks.row(2, i) + 2, blocks.row(3, i) + 2);
    }
    // Of x[c] the quarters are words c, c + 4 of keys 0 to 3 and c, c + 4 of keys 4 to 7.
    transpose_words(x);
    transpose_words(y);
    const __m512i sign = _mm512_set1_epi8(-128);
    for (int c = 0; c < 4; ++c) {
      columns[c] = _mm512_xor_si512(_mm512_shuffle_i32x4(x[c], y[c], 0x88), sign);
      columns[c + 4] = _mm512_xor_si512(_mm512_shuffle_i32x4(x[c], y[c], 0xdd), sign);
    }
  }
  static void value_columns(const uint8_t* a, const uint8_t* b, const uint8_t* c, const uint8_t* d,
                            __m512i (&columns)[2]) {
    const __m512i low = load_halves(a + 2, b + 2), high = load_halves(c + 2, d + 2);
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
