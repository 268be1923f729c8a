// bf16 has f32's range and a significand of 8 bits, f16 one of 11 in a range up to 65,504. Widening
// is a shift, no conversion, so decode over it is a little quicker than over f16.
#include "kernels/kv_codec_plain_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

/// The upper half of a float's bits.
struct Bf16Codec {
  using Element = uint16_t;
  static F32 load(const uint16_t* p) {
#if defined(__AVX512F__)
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
#elif defined(__AVX2__)
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
#else
    uint32_t bits[kLanes];
    for (int i = 0; i < kLanes; ++i) bits[i] = uint32_t{p[i]} << 16;
    F32 x;
    memcpy(&x, bits, sizeof(x));
    return x;
#endif
  }
  // Rows are written once and read in every step, so this is no place for intrinsics: the one that
  // rounds to bf16 (avx512bf16) takes subnormals for 0 besides.
  static void store(uint16_t* p, F32 x) {
    uint32_t bits[kLanes];
    memcpy(bits, &x, sizeof(bits));
    for (int i = 0; i < kLanes; ++i) {
      const uint32_t b = bits[i];
      const bool is_nan = (b & 0x7fffffff) > 0x7f800000;
      p[i] = is_nan ? (b >> 16) | 64 : (b + 0x7fff + ((b >> 16) & 1)) >> 16;
    }
  }
};

}  // namespace

const KvCodecFns& kv_codec_bf16_fns() { return PlainKv<Bf16Codec>::kFns; }

}  // namespace weft::kernels::WEFT_ISA
