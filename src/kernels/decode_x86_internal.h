// What the decode types of AVX2 and of AVX-512 share: loads, the packed small scales of K blocks as
// bytes (by plain integer arithmetic: they are 8 or 16 bytes, less than a register of either), and
// the headers that these make. Only decode_avx2_internal.h and decode_avx512_internal.h include
// this. What differs stays apart there: AVX2 has two blocks in a register and no dot product of
// bytes, AVX-512 four and VNNI's, so no line of unpacking or multiplying is the same.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu_half_internal.h"
#include "tensor/blocks.h"

namespace weft::kernels::WEFT_ISA {
namespace {

inline uint32_t load_u32(const void* p) {
  uint32_t value;
  memcpy(&value, p, sizeof value);
  return value;
}

inline __m128i load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline __m256i load32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
/// 16 bytes of each in a lane.
inline __m256i load_lanes(const void* a, const void* b) {
  return _mm256_inserti128_si256(_mm256_castsi128_si256(load16(a)), load16(b), 1);
}

/// Of a type without super-blocks.
struct NoHeader {};

/// The eight scales, and the eight mins, of 0 to 63 of a Q4_K or Q5_K block, s in byte s.
struct KScales {
  uint64_t scales, mins;
};

/// Bytes 0-3 hold six bits of scales 0-3, bytes 4-7 of mins 0-3, bytes 8-11 the low nibbles of
/// scales 4-7 and, above, of mins 4-7; the top two bits of the first eight bytes are the high bits
/// of scales 4-7 and of mins 4-7.
inline KScales k_scales(const uint8_t* packed) {
  const uint32_t a = load_u32(packed), b = load_u32(packed + 4), c = load_u32(packed + 8);
  const uint64_t high_scales = (c & 0x0f0f0f0fu) | (a >> 2 & 0x30303030u);
  const uint64_t high_mins = (c >> 4 & 0x0f0f0f0fu) | (b >> 2 & 0x30303030u);
  return {(a & 0x3f3f3f3fu) | high_scales << 32, (b & 0x3f3f3f3fu) | high_mins << 32};
}

/// Sixteen scales of 0 to 63, s in byte s: 0-7 and 8-15.
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

/// Eight scales of 0 to 63, s in byte s: from eight nibbles and eight pairs of bits.
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

/// A block of 256 elements in two groups of four blocks of 32.
template <class Block>
struct SuperBlock {
  static constexpr int64_t kGroups = 2;
  static constexpr int64_t kUnitBytes = sizeof(Block);
  static const Block& at(const uint8_t* unit) { return *reinterpret_cast<const Block*>(unit); }
};

/// What a super-block says once for both its groups. Lanes is the instruction set's: its registers
/// of bytes and of floats, and 8 or 16 bytes or one float in each lane of them.
template <class Lanes>
struct ScaleHeader {
  typename Lanes::Bytes scales;
  typename Lanes::Floats d;
};

template <class Lanes>
struct ScaleMinHeader {
  typename Lanes::Bytes scales, mins;
  typename Lanes::Floats d, negative_dmin;
};

/// Of Q4_K and Q5_K.
template <class Lanes, class Block>
inline ScaleMinHeader<Lanes> k_header(const Block& block) {
  const KScales s = k_scales(block.scales);
  return {Lanes::of_8_bytes(s.scales), Lanes::of_8_bytes(s.mins),
          Lanes::of_float(half_to_float(block.d)), Lanes::of_float(-half_to_float(block.dmin))};
}

/// Sixteen bytes: the scale in the low nibble, the min in the high one.
template <class Lanes>
inline ScaleMinHeader<Lanes> q2_k_header(const BlockQ2_K& block) {
  const __m128i bytes = load16(block.scales);
  const __m128i mask = _mm_set1_epi8(15);
  return {Lanes::of_16_bytes(_mm_and_si128(bytes, mask)),
          Lanes::of_16_bytes(_mm_and_si128(_mm_srli_epi16(bytes, 4), mask)),
          Lanes::of_float(half_to_float(block.d)), Lanes::of_float(-half_to_float(block.dmin))};
}

/// Stored with 32 added.
template <class Lanes>
inline ScaleHeader<Lanes> q3_k_header(const BlockQ3_K& block) {
  const Q3Scales s = q3_k_scales(block);
  const __m128i scales = _mm_sub_epi8(_mm_set_epi64x(s.high, s.low), _mm_set1_epi8(32));
  return {Lanes::of_16_bytes(scales), Lanes::of_float(half_to_float(block.d))};
}

/// Signed bytes as they are.
template <class Lanes>
inline ScaleHeader<Lanes> q6_k_header(const BlockQ6_K& block) {
  return {Lanes::of_16_bytes(load16(block.scales)), Lanes::of_float(half_to_float(block.d))};
}

}  // namespace
}  // namespace weft::kernels::WEFT_ISA
