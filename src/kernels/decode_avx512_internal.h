// The blocks' bytes with AVX-512 and VNNI: matmul_decode_cpu.cc, for floats, and
// decode_row_avx512_internal.h include this by way of decode_loops_internal.h.
//
// A type says how a group of 128 weights, four blocks of 32, becomes two registers of unsigned
// bytes: `low`, elements 0-15 of each block in 16-byte lanes, and `high`, elements 16-31. A dot
// with the activations laid out alike (RowGroup) leaves four int32 partial sums for each block in
// the block's own lane. An offset (Q4_0: 8) comes off by starting the integer sum at -offset * (sum
// of activations).
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu_half_internal.h"
#include "kernels/decode_x86_internal.h"
#include "kernels/matmul_decode_internal.h"
#include "tensor/blocks.h"

namespace weft::kernels::WEFT_ISA {
namespace {

constexpr int kRowTile = 4;

/// sums[i]: of bytes 4i to 4i + 3 of 64.
inline void sums_of_four(const int8_t* bytes, int32_t* sums) {
  const __m512i ones = _mm512_set1_epi8(1);
  const __m512i dots = _mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, _mm512_loadu_si512(bytes));
  _mm512_storeu_si512(sums, dots);
}

/// The registers of decode_x86_internal.h.
struct Lanes {
  using Bytes = __m512i;
  using Floats = __m512;
  static Bytes of_8_bytes(uint64_t bytes) { return _mm512_set1_epi64(bytes); }
  static Bytes of_16_bytes(__m128i bytes) { return _mm512_broadcast_i32x4(bytes); }
  static Floats of_float(float value) { return _mm512_set1_ps(value); }
};

/// What a type's products consist of.
struct Terms {
  int offset_shift;  // log2 of what comes off each weight, or -1 for nothing
  bool has_min;
  bool halves;  // a scale for 16 elements
};

struct GroupWeights {
  __m512i low, high;
  __m512 scale;  // of each block, in its lane's four places
  __m512 min;    // types with one: in the lane's second place
};

inline __m512i load64(const void* p) { return _mm512_loadu_si512(p); }

/// Four 16-byte loads in lanes.
inline __m512i lanes(const uint8_t* a, const uint8_t* b, const uint8_t* c, const uint8_t* d) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(load_lanes(a, b)), load_lanes(c, d), 1);
}

inline uint16_t load_u16(const void* p) {
  uint16_t value;
  memcpy(&value, p, sizeof value);
  return value;
}

/// Each of four halves, widened, in the four places of its lane.
inline __m512 spread_halves(uint16_t a, uint16_t b, uint16_t c, uint16_t d) {
  __m256i halves = _mm256_set1_epi16(a);
  halves = _mm256_mask_set1_epi16(halves, 0x00f0, b);
  halves = _mm256_mask_set1_epi16(halves, 0x0f00, c);
  halves = _mm256_mask_set1_epi16(halves, 0xf000, d);
  return _mm512_cvtph_ps(halves);
}

/// The same for pairs of halves (d, m): d, m, d, m in each lane.
inline __m512 spread_pairs(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  __m256i pairs = _mm256_set1_epi32(a);
  pairs = _mm256_mask_set1_epi32(pairs, 0x0c, b);
  pairs = _mm256_mask_set1_epi32(pairs, 0x30, c);
  pairs = _mm256_mask_set1_epi32(pairs, 0xc0, d);
  return _mm512_cvtph_ps(pairs);
}

inline __m512i add_dots(__m512i sum, __m512i w, const int8_t* x) {
  return _mm512_dpbusd_epi32(sum, w, _mm512_load_si512(x));
}

/// A type whose groups are four blocks of 32; unpack(a, b, c, d) makes GroupWeights of them.
template <class Block, int kOffsetShift, bool kHasMin,
          GroupWeights (*unpack)(const Block&, const Block&, const Block&, const Block&)>
struct Blocks32 {
  static constexpr int64_t kGroups = 1;
  static constexpr int64_t kUnitBytes = 4 * sizeof(Block);
  static constexpr Terms kTerms{kOffsetShift, kHasMin, false};
  static NoHeader header(const uint8_t*) { return {}; }
  static GroupWeights load(const uint8_t* unit, NoHeader, int) {
    const auto* blocks = reinterpret_cast<const Block*>(unit);
    return unpack(blocks[0], blocks[1], blocks[2], blocks[3]);
  }
};

template <class Block>
inline GroupWeights unpack_q8(const Block& a, const Block& b, const Block& c, const Block& d) {
  auto pair = [](const Block& first, const Block& second) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first.qs));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(second.qs));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
  };
  const __m512i ab = pair(a, b), cd = pair(c, d);
  const __m512i flip = _mm512_set1_epi8(-128);  // to unsigned: q + 128
  GroupWeights w;
  w.low = _mm512_xor_si512(_mm512_shuffle_i32x4(ab, cd, 0x88), flip);
  w.high = _mm512_xor_si512(_mm512_shuffle_i32x4(ab, cd, 0xdd), flip);
  w.scale = spread_halves(a.d, b.d, c.d, d.d);
  return w;
}

inline void unpack_nibbles(__m512i bytes, GroupWeights& w) {
  const __m512i mask = _mm512_set1_epi8(15);
  w.low = _mm512_and_si512(bytes, mask);
  w.high = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask);
}

/// qh's first 16 bits belong to low, the others to high.
inline void add_fifth_bits(const uint8_t* a, const uint8_t* b, const uint8_t* c, const uint8_t* d,
                           GroupWeights& w) {
  auto gather = [&](int i) {
    const uint64_t ab = load_u16(a + i) | uint64_t{load_u16(b + i)} << 16;
    const uint64_t cd = load_u16(c + i) | uint64_t{load_u16(d + i)} << 16;
    return ab | cd << 32;
  };
  const __m512i sixteen = _mm512_set1_epi8(16);
  w.low = _mm512_mask_add_epi8(w.low, gather(0), w.low, sixteen);
  w.high = _mm512_mask_add_epi8(w.high, gather(2), w.high, sixteen);
}

template <class Block>
inline GroupWeights unpack_no_min(const Block& a, const Block& b, const Block& c, const Block& d) {
  GroupWeights w;
  unpack_nibbles(lanes(a.qs, b.qs, c.qs, d.qs), w);
  if constexpr (sizeof(Block) == sizeof(BlockQ5_0)) add_fifth_bits(a.qh, b.qh, c.qh, d.qh, w);
  w.scale = spread_halves(a.d, b.d, c.d, d.d);
  return w;
}

template <class Block>
inline GroupWeights unpack_min(const Block& a, const Block& b, const Block& c, const Block& d) {
  GroupWeights w;
  unpack_nibbles(lanes(a.qs, b.qs, c.qs, d.qs), w);
  if constexpr (sizeof(Block) == sizeof(BlockQ5_1)) add_fifth_bits(a.qh, b.qh, c.qh, d.qh, w);
  w.min = spread_pairs(load_u32(&a), load_u32(&b), load_u32(&c), load_u32(&d));
  w.scale = _mm512_moveldup_ps(w.min);
  return w;
}

/// The values that the nibbles stand for, with 128 added.
inline void unpack_codes(__m512i bytes, const int8_t* values, GroupWeights& w) {
  const __m128i unsigned_values = _mm_xor_si128(load16(values), _mm_set1_epi8(-128));
  const __m512i table = _mm512_broadcast_i32x4(unsigned_values);
  unpack_nibbles(bytes, w);
  w.low = _mm512_shuffle_epi8(table, w.low);
  w.high = _mm512_shuffle_epi8(table, w.high);
}

inline GroupWeights unpack_iq4_nl(const BlockIQ4_NL& a, const BlockIQ4_NL& b, const BlockIQ4_NL& c,
                                  const BlockIQ4_NL& d) {
  GroupWeights w;
  unpack_codes(lanes(a.qs, b.qs, c.qs, d.qs), kIq4Values, w);
  w.scale = spread_halves(a.d, b.d, c.d, d.d);
  return w;
}

inline GroupWeights unpack_mxfp4(const BlockMXFP4& a, const BlockMXFP4& b, const BlockMXFP4& c,
                                 const BlockMXFP4& d) {
  GroupWeights w;
  unpack_codes(lanes(a.qs, b.qs, c.qs, d.qs), kMxfp4Values, w);
  w.scale = _mm512_set1_ps(e8m0_half_to_float(a.e));
  w.scale = _mm512_mask_broadcastss_ps(w.scale, 0x00f0, _mm_set_ss(e8m0_half_to_float(b.e)));
  w.scale = _mm512_mask_broadcastss_ps(w.scale, 0x0f00, _mm_set_ss(e8m0_half_to_float(c.e)));
  w.scale = _mm512_mask_broadcastss_ps(w.scale, 0xf000, _mm_set_ss(e8m0_half_to_float(d.e)));
  return w;
}

using Q8_0 = Blocks32<BlockQ8_0, 7, false, unpack_q8<BlockQ8_0>>;
using Q4_0 = Blocks32<BlockQ4_0, 3, false, unpack_no_min<BlockQ4_0>>;
using Q5_0 = Blocks32<BlockQ5_0, 4, false, unpack_no_min<BlockQ5_0>>;
using Q4_1 = Blocks32<BlockQ4_1, -1, true, unpack_min<BlockQ4_1>>;
using Q5_1 = Blocks32<BlockQ5_1, -1, true, unpack_min<BlockQ5_1>>;
using IQ4_NL = Blocks32<BlockIQ4_NL, 7, false, unpack_iq4_nl>;
using MXFP4 = Blocks32<BlockMXFP4, 7, false, unpack_mxfp4>;

/// Byte indices for a shuffle within lanes that makes int32s: byte `first + lane` in all four
/// places, or only in the second.
inline __m512i spread_index(int first) {
  const __m512i lane = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
  return _mm512_add_epi32(lane, _mm512_set1_epi32(0x80808000u + first));
}

inline __m512i second_place_index(int first) {
  return _mm512_mask_mov_epi32(_mm512_set1_epi32(0x80808080u), 0x2222, spread_index(first));
}

inline __m512 to_floats(__m512i v) { return _mm512_cvtepi32_ps(v); }

template <class Block>
struct KBlocks : SuperBlock<Block> {
  static constexpr Terms kTerms{-1, true, false};
  using Header = ScaleMinHeader<Lanes>;
  static Header header(const uint8_t* unit) { return k_header<Lanes>(SuperBlock<Block>::at(unit)); }
  static GroupWeights load(const uint8_t* unit, const Header& h, int g) {
    const Block& block = SuperBlock<Block>::at(unit);
    // 64 bytes hold four sub-blocks: 0 and 2 in the low nibbles, 1 and 3 in the high ones.
    GroupWeights nibbles, w;
    unpack_nibbles(load64(block.qs + 64 * g), nibbles);
    const __m512i first = _mm512_set_epi64(13, 12, 5, 4, 9, 8, 1, 0);
    const __m512i second = _mm512_set_epi64(15, 14, 7, 6, 11, 10, 3, 2);
    w.low = _mm512_permutex2var_epi64(nibbles.low, first, nibbles.high);
    w.high = _mm512_permutex2var_epi64(nibbles.low, second, nibbles.high);
    if constexpr (sizeof(Block) == sizeof(BlockQ5_K)) {
      w.low = add_fifth_bit(w.low, block.qh, g);
      w.high = add_fifth_bit(w.high, block.qh + 16, g);
    }
    w.scale = _mm512_mul_ps(h.d, to_floats(_mm512_shuffle_epi8(h.scales, spread_index(4 * g))));
    w.min = _mm512_mul_ps(h.negative_dmin,
                          to_floats(_mm512_shuffle_epi8(h.mins, second_place_index(4 * g))));
    return w;
  }

 private:
  /// Bit 4g + lane of each of 16 bytes, moved to bit 4.
  static __m512i add_fifth_bit(__m512i q, const uint8_t* qh, int g) {
    const __m512i bytes = _mm512_broadcast_i32x4(load16(qh));
    const __m512i turn = _mm512_sub_epi64(_mm512_set_epi64(61, 61, 62, 62, 63, 63, 64, 64),
                                          _mm512_set1_epi64(4 * g - 4));
    const __m512i bit = _mm512_and_si512(_mm512_rolv_epi64(bytes, turn), _mm512_set1_epi8(16));
    return _mm512_or_si512(q, bit);
  }
};

using Q4_K = KBlocks<BlockQ4_K>;
using Q5_K = KBlocks<BlockQ5_K>;

struct IQ4_XS : SuperBlock<BlockIQ4_XS> {
  static constexpr Terms kTerms{7, false, false};
  using Header = ScaleHeader<Lanes>;  // 32 too large
  static Header header(const uint8_t* unit) {
    const auto& block = at(unit);
    return {_mm512_set1_epi64(iq4_xs_scales(block)), _mm512_set1_ps(half_to_float(block.d))};
  }
  static GroupWeights load(const uint8_t* unit, const Header& h, int g) {
    const auto& block = at(unit);
    GroupWeights w;
    unpack_codes(load64(block.qs + 64 * g), kIq4Values, w);
    const __m512i scales = _mm512_shuffle_epi8(h.scales, spread_index(4 * g));
    w.scale = _mm512_mul_ps(h.d, to_floats(_mm512_sub_epi32(scales, _mm512_set1_epi32(32))));
    return w;
  }
};

/// Of a type with a scale for 16 elements: low and high are summed apart.
struct HalvesGroup {
  __m512i low, high;
  __m512 low_scale, high_scale;
};

/// Signed bytes first + 2 * lane as floats, in all four places.
inline __m512 scale_bytes(__m512i scales, int first) {
  // To the top byte of each int32; the shift brings it down with its sign.
  const __m512i lane = _mm512_set_epi32(6, 6, 6, 6, 4, 4, 4, 4, 2, 2, 2, 2, 0, 0, 0, 0);
  const __m512i index =
      _mm512_or_si512(_mm512_slli_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32(first)), 24),
                      _mm512_set1_epi32(0x00808080));
  return to_floats(_mm512_srai_epi32(_mm512_shuffle_epi8(scales, index), 24));
}

/// Bits 2 * lane and up of each of 16 bytes, as the lowest two.
inline __m512i two_bits(const uint8_t* qs) {
  const __m512i bytes = _mm512_broadcast_i32x4(load16(qs));
  const __m512i shifts = _mm512_set_epi64(6, 6, 4, 4, 2, 2, 0, 0);
  return _mm512_and_si512(_mm512_srlv_epi64(bytes, shifts), _mm512_set1_epi8(3));
}

struct Q2_K : SuperBlock<BlockQ2_K> {
  static constexpr Terms kTerms{-1, true, true};
  using Header = ScaleMinHeader<Lanes>;
  struct Group {
    HalvesGroup halves;
    __m512 min;  // of low and high, in the first two places of a block's lane
  };
  static Header header(const uint8_t* unit) { return q2_k_header<Lanes>(at(unit)); }
  static Group load(const uint8_t* unit, const Header& h, int g) {
    const auto& block = at(unit);
    Group w;
    w.halves.low = two_bits(block.qs + 32 * g);
    w.halves.high = two_bits(block.qs + 32 * g + 16);
    w.halves.low_scale = _mm512_mul_ps(h.d, scale_bytes(h.scales, 8 * g));
    w.halves.high_scale = _mm512_mul_ps(h.d, scale_bytes(h.scales, 8 * g + 1));
    const __m512i byte = _mm512_set_epi32(0, 0, 7, 6, 0, 0, 5, 4, 0, 0, 3, 2, 0, 0, 1, 0);
    const __m512i index = _mm512_add_epi32(byte, _mm512_set1_epi32(0x80808000u + 8 * g));
    const __m512i mins = _mm512_maskz_shuffle_epi8(0x00ff00ff00ff00ffu, h.mins, index);
    w.min = _mm512_mul_ps(h.negative_dmin, to_floats(mins));
    return w;
  }
};

struct Q3_K : SuperBlock<BlockQ3_K> {
  static constexpr Terms kTerms{2, false, true};
  using Header = ScaleHeader<Lanes>;
  static Header header(const uint8_t* unit) { return q3_k_header<Lanes>(at(unit)); }
  static HalvesGroup load(const uint8_t* unit, const Header& h, int g) {
    const auto& block = at(unit);
    return {add_third_bit(two_bits(block.qs + 32 * g), block.hmask, g),
            add_third_bit(two_bits(block.qs + 32 * g + 16), block.hmask + 16, g),
            _mm512_mul_ps(h.d, scale_bytes(h.scales, 8 * g)),
            _mm512_mul_ps(h.d, scale_bytes(h.scales, 8 * g + 1))};
  }

 private:
  /// Bit 4g + lane of each of 16 bytes, moved to bit 2.
  static __m512i add_third_bit(__m512i q, const uint8_t* hmask, int g) {
    const __m512i bytes = _mm512_broadcast_i32x4(load16(hmask));
    const __m512i turn = _mm512_sub_epi64(_mm512_set_epi64(63, 63, 64, 64, 65, 65, 66, 66),
                                          _mm512_set1_epi64(4 * g));
    const __m512i bit = _mm512_and_si512(_mm512_rolv_epi64(bytes, turn), _mm512_set1_epi8(4));
    return _mm512_or_si512(q, bit);
  }
};

struct Q6_K : SuperBlock<BlockQ6_K> {
  static constexpr Terms kTerms{5, false, true};
  using Header = ScaleHeader<Lanes>;
  static Header header(const uint8_t* unit) { return q6_k_header<Lanes>(at(unit)); }
  static HalvesGroup load(const uint8_t* unit, const Header& h, int g) {
    const auto& block = at(unit);
    // 64 bytes hold four sub-blocks: 0 and 1 in the low nibbles, 2 and 3 in the high ones.
    GroupWeights nibbles;
    unpack_nibbles(load64(block.ql + 64 * g), nibbles);
    const __m512i first = _mm512_set_epi64(13, 12, 9, 8, 5, 4, 1, 0);
    const __m512i second = _mm512_set_epi64(15, 14, 11, 10, 7, 6, 3, 2);
    HalvesGroup w;
    w.low = add_high_bits(_mm512_permutex2var_epi64(nibbles.low, first, nibbles.high),
                          block.qh + 32 * g);
    w.high = add_high_bits(_mm512_permutex2var_epi64(nibbles.low, second, nibbles.high),
                           block.qh + 32 * g + 16);
    w.low_scale = _mm512_mul_ps(h.d, scale_bytes(h.scales, 8 * g));
    w.high_scale = _mm512_mul_ps(h.d, scale_bytes(h.scales, 8 * g + 1));
    return w;
  }

 private:
  /// Two bits of each of 16 bytes, bits 2 * lane and up, moved to bits 4 and 5.
  static __m512i add_high_bits(__m512i q, const uint8_t* qh) {
    const __m512i bytes = _mm512_broadcast_i32x4(load16(qh));
    const __m512i turned = _mm512_rolv_epi64(bytes, _mm512_set_epi64(62, 62, 0, 0, 2, 2, 4, 4));
    return _mm512_or_si512(q, _mm512_and_si512(turned, _mm512_set1_epi8(0x30)));
  }
};

struct FloatAccumulator {
  __m512 lanes;
};

inline float total(const FloatAccumulator& a) { return _mm512_reduce_add_ps(a.lanes); }

inline void accumulate16(FloatAccumulator& sums, __m512 w, const float* x) {
  sums.lanes = _mm512_fmadd_ps(w, _mm512_loadu_ps(x), sums.lanes);
}

struct F32 {
  static constexpr int64_t kBytes = 4;
  static __m512 load(const uint8_t* bytes) { return _mm512_loadu_ps(bytes); }
};

struct F16 {
  static constexpr int64_t kBytes = 2;
  static __m512 load(const uint8_t* bytes) { return _mm512_cvtph_ps(load32(bytes)); }
};

struct BF16 {
  static constexpr int64_t kBytes = 2;
  static __m512 load(const uint8_t* bytes) {
    const __m512i wide = _mm512_cvtepu16_epi32(load32(bytes));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
};

}  // namespace
}  // namespace weft::kernels::WEFT_ISA
