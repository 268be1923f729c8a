// The blocks' bytes with AVX2: only matmul_decode_cpu.cc includes this. The scheme is that of
// decode_avx512_internal.h, a group of four blocks in two registers of two lanes each; products of
// bytes go through int16 sums (at most 2 * 128 * 127 = 32512), as there is no VNNI.
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

constexpr int kRowTile = 2;

struct Accumulator {
  __m256 lanes;
};

inline float total(const Accumulator& a) {
  const __m128 four =
      _mm_add_ps(_mm256_castps256_ps128(a.lanes), _mm256_extractf128_ps(a.lanes, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/// sums[i]: of bytes 4i to 4i + 3 of 64.
inline void sums_of_four(const int8_t* bytes, int32_t* sums) {
  for (int i = 0; i < 2; ++i) {
    const __m256i q = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + 32 * i));
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
    const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + 8 * i), fours);
  }
}

/// y[i] = total(a[i]).
template <int kCount>
inline void store_totals(const Accumulator (&a)[kCount], float* y) {
  for (int i = 0; i < kCount; ++i) y[i] = total(a[i]);
}

/// The registers of decode_x86_internal.h.
struct Lanes {
  using Bytes = __m256i;
  using Floats = __m256;
  static Bytes of_8_bytes(uint64_t bytes) { return _mm256_set1_epi64x(bytes); }
  static Bytes of_16_bytes(__m128i bytes) { return _mm256_broadcastsi128_si256(bytes); }
  static Floats of_float(float value) { return _mm256_set1_ps(value); }
};

/// Two of a group's four blocks.
struct PairWeights {
  __m256i low, high;
  __m256 scale;  // of each block, in its lane's four places
  __m256 min;    // types with one: in the lane's second place (the others meet zeros)
};

struct GroupWeights {
  PairWeights pair[2];
};

/// Each of two halves, widened, in the four places of its lane.
inline __m256 spread_halves(uint16_t a, uint16_t b) {
  constexpr uint64_t kFourTimes = 0x0001000100010001u;
  return _mm256_cvtph_ps(_mm_set_epi64x(b * kFourTimes, a * kFourTimes));
}

/// The same for pairs of halves (d, m): d, m, d, m in each lane.
inline __m256 spread_pairs(uint32_t a, uint32_t b) {
  constexpr uint64_t kTwice = 0x0000000100000001u;
  return _mm256_cvtph_ps(_mm_set_epi64x(b * kTwice, a * kTwice));
}

/// int32 sums of four products of unsigned and signed bytes.
inline __m256i dot_bytes(__m256i u, __m256i s) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), _mm256_set1_epi16(1));
}

inline __m256i load_q(const int8_t* bytes, int pair) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(bytes + 32 * pair));
}

inline __m256i add_residual(__m256i dot, __m256i residual) {
  return _mm256_add_epi32(_mm256_slli_epi32(dot, kResidualShift), residual);
}

inline void add_scaled(Accumulator& sums, __m256i dot, __m256 weight_scale,
                       const ActivationGroup& x, int pair) {
  const __m256 scale = _mm256_mul_ps(weight_scale, _mm256_load_ps(x.scale + 8 * pair));
  sums.lanes = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, sums.lanes);
}

/// kOffsetShift: log2 of the offset, or -1 for none. Weights have at most five bits.
template <int kOffsetShift, bool kHasMin>
inline void accumulate_group(Accumulator& sums, const GroupWeights& w, const ActivationGroup& x) {
  for (int p = 0; p < 2; ++p) {
    const PairWeights& pair = w.pair[p];
    const auto dots = [&](const int8_t* low, const int8_t* high) {
      const __m256i products = _mm256_add_epi16(_mm256_maddubs_epi16(pair.low, load_q(low, p)),
                                                _mm256_maddubs_epi16(pair.high, load_q(high, p)));
      return _mm256_madd_epi16(products, _mm256_set1_epi16(1));
    };
    __m256i dot = dots(x.low, x.high);
    if (x.has_outlier != 0) dot = add_residual(dot, dots(x.residual_low, x.residual_high));
    if constexpr (kOffsetShift >= 0) {
      const __m256i negative = load32(x.negative_sums + 8 * p);
      dot = _mm256_add_epi32(dot, _mm256_slli_epi32(negative, kOffsetShift));
    }
    if constexpr (kHasMin) {
      sums.lanes = _mm256_fmadd_ps(pair.min, _mm256_load_ps(x.sums + 8 * p), sums.lanes);
    }
    add_scaled(sums, dot, pair.scale, x, p);
  }
}

/// Block b of `count`; beyond the end, some zeros.
template <class Block>
inline const Block& block_or_zeros(const uint8_t* unit, int b, int count) {
  static constexpr Block kZeros = {};
  return b < count ? reinterpret_cast<const Block*>(unit)[b] : kZeros;
}

inline void unpack_nibbles(__m256i bytes, PairWeights& w) {
  const __m256i mask = _mm256_set1_epi8(15);
  w.low = _mm256_and_si256(bytes, mask);
  w.high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
}

/// 16 in byte i of a lane where bit `i + 16 * half` of the lane's word is set.
inline __m256i fifth_bits(uint32_t a, uint32_t b, int half) {
  const __m256i words =
      _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_set1_epi32(a)), _mm_set1_epi32(b), 1);
  const __m256i byte_index =
      _mm256_add_epi8(_mm256_broadcastsi128_si256(_mm_set_epi64x(0x0101010101010101, 0)),
                      _mm256_set1_epi8(2 * half));
  const __m256i bit = _mm256_set1_epi64x(0x8040201008040201u);
  const __m256i bits = _mm256_and_si256(_mm256_shuffle_epi8(words, byte_index), bit);
  return _mm256_and_si256(_mm256_cmpeq_epi8(bits, bit), _mm256_set1_epi8(16));
}

inline PairWeights unpack(const BlockQ8_0& a, const BlockQ8_0& b) {
  PairWeights w = {};
  w.low = load_lanes(a.qs, b.qs);
  w.high = load_lanes(a.qs + 16, b.qs + 16);
  w.scale = spread_halves(a.d, b.d);
  return w;
}

inline PairWeights unpack(const BlockQ4_0& a, const BlockQ4_0& b) {
  PairWeights w = {};
  unpack_nibbles(load_lanes(a.qs, b.qs), w);
  w.scale = spread_halves(a.d, b.d);
  return w;
}

inline PairWeights unpack(const BlockQ4_1& a, const BlockQ4_1& b) {
  PairWeights w;
  unpack_nibbles(load_lanes(a.qs, b.qs), w);
  w.min = spread_pairs(load_u32(&a), load_u32(&b));
  w.scale = _mm256_moveldup_ps(w.min);
  return w;
}

/// The values that the nibbles stand for.
inline void unpack_codes(__m256i bytes, const int8_t* values, PairWeights& w) {
  const __m256i table = _mm256_broadcastsi128_si256(load16(values));
  unpack_nibbles(bytes, w);
  w.low = _mm256_shuffle_epi8(table, w.low);
  w.high = _mm256_shuffle_epi8(table, w.high);
}

inline PairWeights unpack(const BlockIQ4_NL& a, const BlockIQ4_NL& b) {
  PairWeights w = {};
  unpack_codes(load_lanes(a.qs, b.qs), kIq4Values, w);
  w.scale = spread_halves(a.d, b.d);
  return w;
}

inline PairWeights unpack(const BlockMXFP4& a, const BlockMXFP4& b) {
  PairWeights w = {};
  unpack_codes(load_lanes(a.qs, b.qs), kMxfp4Values, w);
  w.scale = _mm256_insertf128_ps(_mm256_set1_ps(e8m0_half_to_float(a.e)),
                                 _mm_set1_ps(e8m0_half_to_float(b.e)), 1);
  return w;
}

template <class Block>
inline void add_fifth_bits(const Block& a, const Block& b, PairWeights& w) {
  const uint32_t bits_a = load_u32(a.qh), bits_b = load_u32(b.qh);
  w.low = _mm256_or_si256(w.low, fifth_bits(bits_a, bits_b, 0));
  w.high = _mm256_or_si256(w.high, fifth_bits(bits_a, bits_b, 1));
}

inline PairWeights unpack(const BlockQ5_0& a, const BlockQ5_0& b) {
  PairWeights w = {};
  unpack_nibbles(load_lanes(a.qs, b.qs), w);
  add_fifth_bits(a, b, w);
  w.scale = spread_halves(a.d, b.d);
  return w;
}

inline PairWeights unpack(const BlockQ5_1& a, const BlockQ5_1& b) {
  PairWeights w;
  unpack_nibbles(load_lanes(a.qs, b.qs), w);
  add_fifth_bits(a, b, w);
  w.min = spread_pairs(load_u32(&a), load_u32(&b));
  w.scale = _mm256_moveldup_ps(w.min);
  return w;
}

/// A type whose groups are four blocks of 32.
template <class Block, int kOffsetShift, bool kHasMin>
struct Blocks32 {
  static constexpr int64_t kGroups = 1;
  static constexpr int64_t kUnitBytes = 4 * sizeof(Block);
  static NoHeader header(const uint8_t*) { return {}; }
  static GroupWeights load(const uint8_t* unit, NoHeader, int) {
    const auto* blocks = reinterpret_cast<const Block*>(unit);
    return {{unpack(blocks[0], blocks[1]), unpack(blocks[2], blocks[3])}};
  }
  static GroupWeights load_some(const uint8_t* unit, int count) {
    return {{unpack(block_or_zeros<Block>(unit, 0, count), block_or_zeros<Block>(unit, 1, count)),
             unpack(block_or_zeros<Block>(unit, 2, count), block_or_zeros<Block>(unit, 3, count))}};
  }
  static void accumulate(Accumulator& sums, const GroupWeights& w, const ActivationGroup& x) {
    accumulate_group<kOffsetShift, kHasMin>(sums, w, x);
  }
};

using Q4_0 = Blocks32<BlockQ4_0, 3, false>;
using Q5_0 = Blocks32<BlockQ5_0, 4, false>;
using Q4_1 = Blocks32<BlockQ4_1, -1, true>;
using Q5_1 = Blocks32<BlockQ5_1, -1, true>;

/// Signed weights: their magnitudes times the activations with their signs.
inline void accumulate_signed(Accumulator& sums, const GroupWeights& w, const ActivationGroup& x) {
  for (int p = 0; p < 2; ++p) {
    const __m256i low = w.pair[p].low, high = w.pair[p].high;
    const auto dots = [&](const int8_t* x_low, const int8_t* x_high) {
      return _mm256_add_epi32(
          dot_bytes(_mm256_abs_epi8(low), _mm256_sign_epi8(load_q(x_low, p), low)),
          dot_bytes(_mm256_abs_epi8(high), _mm256_sign_epi8(load_q(x_high, p), high)));
    };
    __m256i dot = dots(x.low, x.high);
    if (x.has_outlier != 0) dot = add_residual(dot, dots(x.residual_low, x.residual_high));
    add_scaled(sums, dot, w.pair[p].scale, x, p);
  }
}

template <class Block>
struct SignedBlocks32 : Blocks32<Block, -1, false> {
  static void accumulate(Accumulator& sums, const GroupWeights& w, const ActivationGroup& x) {
    accumulate_signed(sums, w, x);
  }
};

using Q8_0 = SignedBlocks32<BlockQ8_0>;
using IQ4_NL = SignedBlocks32<BlockIQ4_NL>;
using MXFP4 = SignedBlocks32<BlockMXFP4>;

/// Bytes first and first + step as floats, each in the four places of a lane.
inline __m256 spread_bytes(__m256i bytes, int first, int step) {
  const __m256i lane = _mm256_set_epi32(step, step, step, step, 0, 0, 0, 0);
  // To the top byte of each int32; the shift brings it down with its sign.
  const __m256i index =
      _mm256_or_si256(_mm256_slli_epi32(_mm256_add_epi32(lane, _mm256_set1_epi32(first)), 24),
                      _mm256_set1_epi32(0x00808080));
  return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_shuffle_epi8(bytes, index), 24));
}

template <class Block>
struct KBlocks : SuperBlock<Block> {
  using Header = ScaleMinHeader<Lanes>;
  static Header header(const uint8_t* unit) { return k_header<Lanes>(SuperBlock<Block>::at(unit)); }
  static GroupWeights load(const uint8_t* unit, const Header& h, int g) {
    const Block& block = SuperBlock<Block>::at(unit);
    GroupWeights w;
    for (int p = 0; p < 2; ++p) {
      const int s = 4 * g + 2 * p;  // sub-blocks s and s + 1: low and high nibbles of 32 bytes
      PairWeights nibbles;
      unpack_nibbles(load32(block.qs + 16 * s), nibbles);
      if constexpr (sizeof(Block) == sizeof(BlockQ5_K)) {
        nibbles.low = _mm256_or_si256(nibbles.low, fifth_bit(block.qh, s));
        nibbles.high = _mm256_or_si256(nibbles.high, fifth_bit(block.qh, s + 1));
      }
      PairWeights& pair = w.pair[p];
      pair.low = _mm256_permute2x128_si256(nibbles.low, nibbles.high, 0x20);
      pair.high = _mm256_permute2x128_si256(nibbles.low, nibbles.high, 0x31);
      pair.scale = _mm256_mul_ps(h.d, spread_bytes(h.scales, s, 1));
      pair.min = _mm256_mul_ps(h.negative_dmin, spread_bytes(h.mins, s, 1));
    }
    return w;
  }
  static void accumulate(Accumulator& sums, const GroupWeights& w, const ActivationGroup& x) {
    accumulate_group<-1, true>(sums, w, x);
  }

 private:
  /// Bit s of each byte, moved to bit 4.
  static __m256i fifth_bit(const uint8_t* qh, int s) {
    const __m256i bit = _mm256_and_si256(_mm256_srli_epi16(load32(qh), s), _mm256_set1_epi8(1));
    return _mm256_slli_epi16(bit, 4);
  }
};

using Q4_K = KBlocks<BlockQ4_K>;
using Q5_K = KBlocks<BlockQ5_K>;

struct IQ4_XS : SuperBlock<BlockIQ4_XS> {
  using Header = ScaleHeader<Lanes>;
  static Header header(const uint8_t* unit) {
    const auto& block = at(unit);
    const uint64_t scales = iq4_xs_scales(block);
    return {_mm256_sub_epi8(_mm256_set1_epi64x(scales), _mm256_set1_epi8(32)),
            _mm256_set1_ps(half_to_float(block.d))};
  }
  static GroupWeights load(const uint8_t* unit, const Header& h, int g) {
    const auto& block = at(unit);
    GroupWeights w = {};
    for (int p = 0; p < 2; ++p) {
      const int s = 4 * g + 2 * p;
      unpack_codes(load32(block.qs + 16 * s), kIq4Values, w.pair[p]);
      w.pair[p].scale = _mm256_mul_ps(h.d, spread_bytes(h.scales, s, 1));
    }
    return w;
  }
  static void accumulate(Accumulator& sums, const GroupWeights& w, const ActivationGroup& x) {
    accumulate_signed(sums, w, x);
  }
};

/// Of a type with a scale for 16 elements: low and high are summed apart.
struct HalvesPair {
  __m256i low, high;
  __m256 low_scale, high_scale;
};

/// q[b]: a group's block b, elements 0-15 in the first lane. scales: sub-block 8g + 2b has the low
/// elements' of block b, as signed bytes.
inline HalvesPair halves_pair(const __m256i (&q)[4], __m256i scales, __m256 d, int g, int p) {
  const int first = 8 * g + 4 * p;
  return {_mm256_permute2x128_si256(q[2 * p], q[2 * p + 1], 0x20),
          _mm256_permute2x128_si256(q[2 * p], q[2 * p + 1], 0x31),
          _mm256_mul_ps(d, spread_bytes(scales, first, 2)),
          _mm256_mul_ps(d, spread_bytes(scales, first + 1, 2))};
}

inline __m256i dots_less(__m256i w, int offset, __m256i x) {
  const __m256i dot = dot_bytes(w, x);
  if (offset == 0) return dot;
  return _mm256_sub_epi32(dot, dot_bytes(_mm256_set1_epi8(offset), x));
}

/// kOffset comes off each weight.
template <int kOffset>
inline void accumulate_halves(Accumulator& sums, const HalvesPair& w, const ActivationGroup& x,
                              int p) {
  __m256i low = dots_less(w.low, kOffset, load_q(x.low, p));
  __m256i high = dots_less(w.high, kOffset, load_q(x.high, p));
  if (x.has_outlier != 0) {
    low = add_residual(low, dots_less(w.low, kOffset, load_q(x.residual_low, p)));
    high = add_residual(high, dots_less(w.high, kOffset, load_q(x.residual_high, p)));
  }
  __m256 dot = _mm256_mul_ps(_mm256_cvtepi32_ps(low), w.low_scale);
  dot = _mm256_fmadd_ps(_mm256_cvtepi32_ps(high), w.high_scale, dot);
  sums.lanes = _mm256_fmadd_ps(dot, _mm256_load_ps(x.scale + 8 * p), sums.lanes);
}

/// Bits 2b and 2b + 1 of each of 32 bytes.
inline __m256i two_bits(__m256i bytes, int b) {
  return _mm256_and_si256(_mm256_srli_epi16(bytes, 2 * b), _mm256_set1_epi8(3));
}

struct Q2_K : SuperBlock<BlockQ2_K> {
  using Header = ScaleMinHeader<Lanes>;
  struct Group {
    HalvesPair pair[2];
    __m256 min[2];  // of low and high, in the first two places of a block's lane
  };
  static Header header(const uint8_t* unit) { return q2_k_header<Lanes>(at(unit)); }
  static Group load(const uint8_t* unit, const Header& h, int g) {
    const auto& block = at(unit);
    const __m256i bytes = load32(block.qs + 32 * g);
    const __m256i q[4] = {two_bits(bytes, 0), two_bits(bytes, 1), two_bits(bytes, 2),
                          two_bits(bytes, 3)};
    Group w;
    for (int p = 0; p < 2; ++p) {
      w.pair[p] = halves_pair(q, h.scales, h.d, g, p);
      constexpr int kZero = 0x80808080u;
      constexpr int kByte = 0x80808000u;
      const __m256i index = _mm256_set_epi32(kZero, kZero, kByte + 3, kByte + 2,  //
                                             kZero, kZero, kByte + 1, kByte);
      const __m256i first = _mm256_set1_epi32(8 * g + 4 * p);
      const __m256i mins = _mm256_shuffle_epi8(h.mins, _mm256_add_epi32(index, first));
      w.min[p] = _mm256_mul_ps(h.negative_dmin, _mm256_cvtepi32_ps(mins));
    }
    return w;
  }
  static void accumulate(Accumulator& sums, const Group& w, const ActivationGroup& x) {
    for (int p = 0; p < 2; ++p) {
      sums.lanes = _mm256_fmadd_ps(w.min[p], _mm256_load_ps(x.half_sums + 8 * p), sums.lanes);
      accumulate_halves<0>(sums, w.pair[p], x, p);
    }
  }
};

struct Q3_K : SuperBlock<BlockQ3_K> {
  using Header = ScaleHeader<Lanes>;
  struct Group {
    HalvesPair pair[2];
  };
  static Header header(const uint8_t* unit) { return q3_k_header<Lanes>(at(unit)); }
  static Group load(const uint8_t* unit, const Header& h, int g) {
    const auto& block = at(unit);
    const __m256i bytes = load32(block.qs + 32 * g);
    const __m256i high = _mm256_srli_epi16(load32(block.hmask), 4 * g);
    const __m256i four = _mm256_set1_epi8(4);
    const __m256i q[4] = {
        _mm256_or_si256(two_bits(bytes, 0), _mm256_and_si256(_mm256_slli_epi16(high, 2), four)),
        _mm256_or_si256(two_bits(bytes, 1), _mm256_and_si256(_mm256_slli_epi16(high, 1), four)),
        _mm256_or_si256(two_bits(bytes, 2), _mm256_and_si256(high, four)),
        _mm256_or_si256(two_bits(bytes, 3), _mm256_and_si256(_mm256_srli_epi16(high, 1), four)),
    };
    return {{halves_pair(q, h.scales, h.d, g, 0), halves_pair(q, h.scales, h.d, g, 1)}};
  }
  static void accumulate(Accumulator& sums, const Group& w, const ActivationGroup& x) {
    for (int p = 0; p < 2; ++p) accumulate_halves<4>(sums, w.pair[p], x, p);
  }
};

struct Q6_K : SuperBlock<BlockQ6_K> {
  using Header = ScaleHeader<Lanes>;
  struct Group {
    HalvesPair pair[2];
  };
  static Header header(const uint8_t* unit) { return q6_k_header<Lanes>(at(unit)); }
  static Group load(const uint8_t* unit, const Header& h, int g) {
    const auto& block = at(unit);
    // Sub-blocks 0 and 1 in the low nibbles of 2 x 32 bytes, 2 and 3 in the high ones.
    PairWeights a, b;
    unpack_nibbles(load32(block.ql + 64 * g), a);
    unpack_nibbles(load32(block.ql + 64 * g + 32), b);
    const __m256i bits = load32(block.qh + 32 * g);
    const __m256i q[4] = {
        add_high_bits(a.low, _mm256_slli_epi16(bits, 4)),
        add_high_bits(b.low, _mm256_slli_epi16(bits, 2)),
        add_high_bits(a.high, bits),
        add_high_bits(b.high, _mm256_srli_epi16(bits, 2)),
    };
    return {{halves_pair(q, h.scales, h.d, g, 0), halves_pair(q, h.scales, h.d, g, 1)}};
  }
  static void accumulate(Accumulator& sums, const Group& w, const ActivationGroup& x) {
    for (int p = 0; p < 2; ++p) accumulate_halves<32>(sums, w.pair[p], x, p);
  }

 private:
  static __m256i add_high_bits(__m256i q, __m256i bits) {
    return _mm256_or_si256(q, _mm256_and_si256(bits, _mm256_set1_epi8(0x30)));
  }
};

struct FloatAccumulator {
  __m256 lanes[2];
};

struct Floats {
  __m256 half[2];
};

inline float total(const FloatAccumulator& a) {
  return total(Accumulator{_mm256_add_ps(a.lanes[0], a.lanes[1])});
}

inline void accumulate16(FloatAccumulator& sums, const Floats& w, const float* x) {
  for (int i = 0; i < 2; ++i) {
    sums.lanes[i] = _mm256_fmadd_ps(w.half[i], _mm256_loadu_ps(x + 8 * i), sums.lanes[i]);
  }
}

struct F32 {
  static constexpr int64_t kBytes = 4;
  static Floats load(const uint8_t* bytes) {
    return {{_mm256_castsi256_ps(load32(bytes)), _mm256_castsi256_ps(load32(bytes + 32))}};
  }
};

struct F16 {
  static constexpr int64_t kBytes = 2;
  static Floats load(const uint8_t* bytes) {
    return {{_mm256_cvtph_ps(load16(bytes)), _mm256_cvtph_ps(load16(bytes + 16))}};
  }
};

struct BF16 {
  static constexpr int64_t kBytes = 2;
  static Floats load(const uint8_t* bytes) { return {{widen(bytes), widen(bytes + 16)}}; }

 private:
  static __m256 widen(const uint8_t* bytes) {
    const __m256i wide = _mm256_cvtepu16_epi32(load16(bytes));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
};

}  // namespace
}  // namespace weft::kernels::WEFT_ISA
