// Half floats inside a *_cpu.cc: the processor's conversion where the set has one. Only *_cpu.cc
// files include this; everything lives in the set's namespace (see isa.h).
#pragma once

#include <stdint.h>
#include <string.h>

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace weft::kernels::WEFT_ISA {

// As std::bit_cast, whose header is C++'s.
inline float float_from_bits(uint32_t bits) {
  float f;
  memcpy(&f, &bits, sizeof f);
  return f;
}

inline uint32_t bits_from_float(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

/// Exact. A signalling NaN becomes a quiet one where F16C does the work.
inline float half_to_float(uint16_t h) {
#ifdef __F16C__
  return _cvtsh_ss(h);
#else
  // The half's bits as a float's are 2^112 too small; a product by a power of two is exact and
  // takes the subnormals along.
  const uint32_t magnitude = (h & 0x7fffu) << 13;
  const uint32_t sign = (h & 0x8000u) << 16;
  if (magnitude >= 0x0f800000u) return float_from_bits(sign | 0x70000000u | magnitude);
  return float_from_bits(sign | bits_from_float(float_from_bits(magnitude) * 0x1p112f));
#endif
}

/// 2^(e - 128), as weft::f32_from_e8m0_half.
inline float e8m0_half_to_float(uint32_t e) {
  return float_from_bits(e < 2 ? 0x200000u << e : (e - 1u) << 23);
}

}  // namespace weft::kernels::WEFT_ISA
