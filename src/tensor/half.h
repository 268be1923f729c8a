// IEEE half and bfloat16 as plain uint16_t, and MXFP4's exponents, converted in portable scalar
// code. Kernels use the processor's instructions instead; both round to nearest even, so both give
// the same bits.
#pragma once

#include <bit>
#include <cstdint>

namespace weft {

/// Exact: every half is a float. 0x3c00 gives 1, 0x0001 gives 2^-24.
inline float f32_from_f16(uint16_t h) {
  const uint32_t sign = (h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 0x1fu;
  const uint32_t mantissa = h & 0x3ffu;
  if (exponent == 0x1f) {  // a NaN turns quiet, as the processors have it
    const uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | (mantissa << 13));
  }
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = mantissa * 0x1p-24f;  // subnormal or zero: exact
  return sign != 0 ? -magnitude : magnitude;
}

/// Rounded to nearest even: 65519.99 gives 65504, 65520 gives infinity.
inline uint16_t f16_from_f32(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN: keep the upper payload, quiet
    return sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu);
  }
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // >= 65520: infinity
  if (magnitude < 0x38800000u) {  // below 2^-14: the addition rounds to a multiple of 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u);
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13);
}

inline float f32_from_bf16(uint16_t b) { return std::bit_cast<float>(uint32_t{b} << 16); }

/// Rounded to nearest even. The lower half of the bits plus 0x7fff carries into the upper half when
/// it is over a half unit, and plus the upper half's last bit when it is exactly one and that bit
/// is odd. A NaN is cut instead, and made quiet: the carry could turn it into infinity.
inline uint16_t bf16_from_f32(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (bits >> 16) | 0x40u;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}

/// 2^(e - 128): the scale of an MXFP4 block in GGML's convention, where values are stored doubled.
inline float f32_from_e8m0_half(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? 0x200000u << e : (e - 1u) << 23);
}

}  // namespace weft
