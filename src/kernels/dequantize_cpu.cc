// Plain loops of constant length, which the compiler vectorises for each instruction set. Products
// and sums in the order of the `gguf` package, never fused: the same bits on every set.
//
// For d * q + m fused and unfused differ in the last bit, as FMA rounds once: these files are
// compiled with -ffp-contract=off. Golden values (testdata) and the plain twin, ref/dequantize.cc,
// which is written from the format's description element by element, must both agree with it.
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu_half_internal.h"
#include "kernels/dequantize_internal.h"
#include "tensor/blocks.h"

namespace weft::kernels::WEFT_ISA {
namespace {

void from_f32(const void* src, float* dst, int64_t n) {
  if (n > 0) memcpy(dst, src, n * sizeof(float));
}

void from_f16(const void* src, float* dst, int64_t n) {
  const auto* bytes = static_cast<const uint8_t*>(src);
  int64_t i = 0;
#if defined(__AVX512F__)
  for (; i + 16 <= n; i += 16) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + 2 * i));
    _mm512_storeu_ps(dst + i, _mm512_cvtph_ps(half));
  }
#elif defined(__F16C__)
  for (; i + 8 <= n; i += 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 2 * i));
    _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(half));
  }
#endif
  for (; i < n; ++i) {
    uint16_t half;
    memcpy(&half, bytes + 2 * i, sizeof half);
    dst[i] = half_to_float(half);
  }
}

void from_bf16(const void* src, float* dst, int64_t n) {
  const auto* bytes = static_cast<const uint8_t*>(src);
  auto widen = [&](int64_t i) {
    uint16_t bf16;
    memcpy(&bf16, bytes + 2 * i, sizeof bf16);
    dst[i] = float_from_bits(uint32_t{bf16} << 16);
  };
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    for (int64_t j = 0; j < 32; ++j) widen(i + j);
  }
  for (; i < n; ++i) widen(i);
}

/// Calls expand(block, dst) for each of the n / kElements blocks.
template <class Block, int kElements, void (*expand)(const Block&, float*)>
void from_blocks(const void* src, float* dst, int64_t n) {
  const auto* blocks = static_cast<const Block*>(src);
  for (int64_t i = 0; i < n / kElements; ++i) expand(blocks[i], dst + i * kElements);
}

void expand_q8_0(const BlockQ8_0& block, float* dst) {
  const float d = half_to_float(block.d);
  for (int j = 0; j < 32; ++j) dst[j] = d * block.qs[j];
}

void expand_q4_0(const BlockQ4_0& block, float* dst) {
  const float d = half_to_float(block.d);
  for (int j = 0; j < 16; ++j) dst[j] = d * ((block.qs[j] & 15) - 8);
  for (int j = 0; j < 16; ++j) dst[j + 16] = d * ((block.qs[j] >> 4) - 8);
}

void expand_q4_1(const BlockQ4_1& block, float* dst) {
  const float d = half_to_float(block.d), m = half_to_float(block.m);
  for (int j = 0; j < 16; ++j) dst[j] = d * (block.qs[j] & 15) + m;
  for (int j = 0; j < 16; ++j) dst[j + 16] = d * (block.qs[j] >> 4) + m;
}

/// q [32] = the 5-bit integers of a block: nibbles in qs, fifth bits in qh.
inline void unpack_5_bits(const uint8_t* qs, const uint8_t* qh, int32_t* q) {
  uint32_t high;
  memcpy(&high, qh, sizeof high);
  for (uint32_t j = 0; j < 16; ++j) {
    q[j] = (qs[j] & 15u) | ((high >> j & 1u) << 4);
  }
  for (uint32_t j = 0; j < 16; ++j) {
    q[j + 16] = (qs[j] >> 4) | ((high >> (j + 16) & 1u) << 4);
  }
}

void expand_q5_0(const BlockQ5_0& block, float* dst) {
  int32_t q[32];
  unpack_5_bits(block.qs, block.qh, q);
  const float d = half_to_float(block.d);
  for (int j = 0; j < 32; ++j) dst[j] = d * (q[j] - 16);
}

void expand_q5_1(const BlockQ5_1& block, float* dst) {
  int32_t q[32];
  unpack_5_bits(block.qs, block.qh, q);
  const float d = half_to_float(block.d), m = half_to_float(block.m);
  for (int j = 0; j < 32; ++j) dst[j] = d * q[j] + m;
}

/// Scale and min of sub-block s of a Q4_K or Q5_K block. Bytes 0-3 hold the low six bits of scales
/// 0-3, bytes 4-7 those of mins 0-3; scales and mins 4-7 have their low nibbles in bytes 8-11 and
/// their two high bits on top of bytes 0-7.
inline void scale_and_min(const uint8_t* scales, int s, float* scale, float* min) {
  if (s < 4) {
    *scale = scales[s] & 63;
    *min = scales[s + 4] & 63;
  } else {
    *scale = (scales[s + 4] & 15) | (scales[s - 4] >> 6 << 4);
    *min = (scales[s + 4] >> 4) | (scales[s] >> 6 << 4);
  }
}

void expand_q4_k(const BlockQ4_K& block, float* dst) {
  const float d = half_to_float(block.d), dmin = half_to_float(block.dmin);
  for (int s = 0; s < 8; ++s) {
    float scale, min;
    scale_and_min(block.scales, s, &scale, &min);
    scale *= d;
    min *= dmin;
    const uint8_t* qs = block.qs + s / 2 * 32;
    const int shift = s % 2 * 4;
    for (int j = 0; j < 32; ++j) {
      dst[s * 32 + j] = scale * (qs[j] >> shift & 15) - min;
    }
  }
}

void expand_q5_k(const BlockQ5_K& block, float* dst) {
  const float d = half_to_float(block.d), dmin = half_to_float(block.dmin);
  for (int s = 0; s < 8; ++s) {
    float scale, min;
    scale_and_min(block.scales, s, &scale, &min);
    scale *= d;
    min *= dmin;
    const uint8_t* qs = block.qs + s / 2 * 32;
    const int shift = s % 2 * 4;
    for (int j = 0; j < 32; ++j) {
      const int q = (qs[j] >> shift & 15) | ((block.qh[j] >> s & 1) << 4);
      dst[s * 32 + j] = scale * q - min;
    }
  }
}

/// Each half of 128: elements 0-63 in the low nibbles of 64 bytes, 64-127 in the high ones; the two
/// bits above in 32 bytes, four elements 32 apart in each.
void expand_q6_k(const BlockQ6_K& block, float* dst) {
  const float d = half_to_float(block.d);
  for (int s = 0; s < 16; ++s) {
    const float scale = d * block.scales[s];
    const int quarter = s % 8 / 2;  // 32 elements of the half
    const uint8_t* ql = block.ql + s / 8 * 64 + quarter % 2 * 32 + s % 2 * 16;
    const uint8_t* qh = block.qh + s / 8 * 32 + s % 2 * 16;
    const int low_shift = quarter / 2 * 4, high_shift = quarter * 2;
    for (int j = 0; j < 16; ++j) {
      const int q = (ql[j] >> low_shift & 15) | ((qh[j] >> high_shift & 3) << 4);
      dst[s * 16 + j] = scale * (q - 32);
    }
  }
}

/// Two bits each: byte j of each half of 128 holds elements j, j + 32, j + 64 and j + 96.
void expand_q2_k(const BlockQ2_K& block, float* dst) {
  const float d = half_to_float(block.d), dmin = half_to_float(block.dmin);
  for (int s = 0; s < 16; ++s) {
    const float scale = d * (block.scales[s] & 15);
    const float min = dmin * (block.scales[s] >> 4);
    const uint8_t* qs = block.qs + s / 8 * 32 + s % 2 * 16;
    const int shift = s % 8 / 2 * 2;
    for (int j = 0; j < 16; ++j) {
      dst[s * 16 + j] = scale * (qs[j] >> shift & 3) - min;
    }
  }
}

/// Scale s has its low nibble in byte s % 8 and its two high bits in byte 8 + s % 4.
inline int q3_k_scale(const uint8_t* scales, int s) {
  const int low = scales[s % 8] >> (s / 8 * 4) & 15;
  return (low | (scales[8 + s % 4] >> (s / 4 * 2) & 3) << 4) - 32;
}

/// As Q2_K, with the third bits in hmask.
void expand_q3_k(const BlockQ3_K& block, float* dst) {
  const float d = half_to_float(block.d);
  for (int s = 0; s < 16; ++s) {
    const float scale = d * q3_k_scale(block.scales, s);
    const uint8_t* qs = block.qs + s / 8 * 32 + s % 2 * 16;
    const uint8_t* high = block.hmask + s % 2 * 16;
    const int shift = s % 8 / 2 * 2;
    for (int j = 0; j < 16; ++j) {
      const int q = (qs[j] >> shift & 3) | (high[j] >> (s / 2) & 1) << 2;
      dst[s * 16 + j] = scale * (q - 4);
    }
  }
}

inline void expand_codes(const int8_t* values, float scale, const uint8_t* qs, float* dst) {
  for (int j = 0; j < 16; ++j) dst[j] = scale * values[qs[j] & 15];
  for (int j = 0; j < 16; ++j) dst[j + 16] = scale * values[qs[j] >> 4];
}

void expand_iq4_nl(const BlockIQ4_NL& block, float* dst) {
  expand_codes(kIq4Values, half_to_float(block.d), block.qs, dst);
}

void expand_iq4_xs(const BlockIQ4_XS& block, float* dst) {
  const float d = half_to_float(block.d);
  for (int s = 0; s < 8; ++s) {
    const int low = block.scales_l[s / 2] >> (s % 2 * 4) & 15;
    const int scale = (low | (block.scales_h >> (2 * s) & 3) << 4) - 32;
    expand_codes(kIq4Values, d * scale, block.qs + 16 * s, dst + 32 * s);
  }
}

void expand_mxfp4(const BlockMXFP4& block, float* dst) {
  expand_codes(kMxfp4Values, e8m0_half_to_float(block.e), block.qs, dst);
}

}  // namespace

const DequantizeFns& dequantize_fns() {
  static constexpr DequantizeFns kFns = {
      .f32 = from_f32,
      .f16 = from_f16,
      .bf16 = from_bf16,
      .q8_0 = from_blocks<BlockQ8_0, 32, expand_q8_0>,
      .q4_0 = from_blocks<BlockQ4_0, 32, expand_q4_0>,
      .q4_1 = from_blocks<BlockQ4_1, 32, expand_q4_1>,
      .q5_0 = from_blocks<BlockQ5_0, 32, expand_q5_0>,
      .q5_1 = from_blocks<BlockQ5_1, 32, expand_q5_1>,
      .q2_k = from_blocks<BlockQ2_K, 256, expand_q2_k>,
      .q3_k = from_blocks<BlockQ3_K, 256, expand_q3_k>,
      .q4_k = from_blocks<BlockQ4_K, 256, expand_q4_k>,
      .q5_k = from_blocks<BlockQ5_K, 256, expand_q5_k>,
      .q6_k = from_blocks<BlockQ6_K, 256, expand_q6_k>,
      .iq4_nl = from_blocks<BlockIQ4_NL, 32, expand_iq4_nl>,
      .iq4_xs = from_blocks<BlockIQ4_XS, 256, expand_iq4_xs>,
      .mxfp4 = from_blocks<BlockMXFP4, 32, expand_mxfp4>,
  };
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA
