// The packed small scales of Q3_K and IQ4_XS blocks as bytes, by plain integer arithmetic, for the
// decode kernels with AVX2 and AVX-512: only decode_avx2_internal.h and decode_avx512_internal.h
// include this.
#pragma once

#include <stdint.h>
#include <string.h>

#include "tensor/blocks.h"

namespace weft::kernels::WEFT_ISA {
namespace {

inline uint32_t load_u32(const void* p) {
  uint32_t value;
  memcpy(&value, p, sizeof value);
  return value;
}

/// Sixteen scales of 0 to 63, s in byte s: 0-7 and 8-15. The value is the scale less 32.
struct Q3Scales {
  uint64_t low, high;
};

/// Bytes 0-7 hold the low nibbles of scales 0-7 and, above, of 8-15; bytes 8-11 two high bits each
/// of scales 0-3, 4-7, 8-11 and 12-15, upwards.
inline Q3Scales q3_k_scales(const BlockQ3_K& block) {
  const uint32_t a = load_u32(block.scales), b = load_u32(block.scales + 4),
                 c = load_u32(block.scales + 8);
  const uint64_t first = (a & 0x0f0f0f0fu) | (c & 0x03030303u) << 4;
  const uint64_t second = (b & 0x0f0f0f0fu) | (c >> 2 & 0x03030303u) << 4;
  const uint64_t third = (a >> 4 & 0x0f0f0f0fu) | (c >> 4 & 0x03030303u) << 4;
  const uint64_t fourth = (b >> 4 & 0x0f0f0f0fu) | (c >> 6 & 0x03030303u) << 4;
  return {first | second << 32, third | fourth << 32};
}

/// Eight scales of 0 to 63, s in byte s: from eight nibbles and eight pairs of bits. Each step
/// doubles the gaps: nibbles h g f e d c b a become ____hgfe____dcba, then __hg__fe__dc__ba, then
/// one in each byte.
inline uint64_t iq4_xs_scales(const BlockIQ4_XS& block) {
  uint64_t low = load_u32(block.scales_l);
  low = (low | low << 16) & 0x0000ffff0000ffffu;
  low = (low | low << 8) & 0x00ff00ff00ff00ffu;
  low = (low | low << 4) & 0x0f0f0f0f0f0f0f0fu;
  uint64_t high = block.scales_h;
  high = (high | high << 24) & 0x000000ff000000ffu;
  high = (high | high << 12) & 0x000f000f000f000fu;
  high = (high | high << 6) & 0x0303030303030303u;
  return low | high << 4;
}

}  // namespace
}  // namespace weft::kernels::WEFT_ISA
