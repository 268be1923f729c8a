// The blocks' bytes in plain C, for CPUs that have nothing better: decode_loops_internal.h includes
// this (see decode_avx512_internal.h for the scheme). Written to be short: a group is arrays where
// the other sets' is registers, and the compiler is left to make of it what it can.
#pragma once

#include <stdint.h>
#include <string.h>

#include "kernels/cpu_half_internal.h"
#include "kernels/matmul_decode_internal.h"
#include "tensor/blocks.h"

namespace weft::kernels::WEFT_ISA {
namespace {

constexpr int kRowTile = 1;

struct Accumulator {
  float block[4];
};

inline float total(const Accumulator& a) {
  return (a.block[0] + a.block[1]) + (a.block[2] + a.block[3]);
}

/// sums[i]: of bytes 4i to 4i + 3 of 64.
inline void sums_of_four(const int8_t* bytes, int32_t* sums) {
  for (int i = 0; i < 16; ++i) {
    const int8_t* four = bytes + 4 * i;
    sums[i] = four[0] + four[1] + four[2] + four[3];
  }
}

/// y[i] = total(a[i]).
template <int kCount>
inline void store_totals(const Accumulator (&a)[kCount], float* y) {
  for (int i = 0; i < kCount; ++i) y[i] = total(a[i]);
}

/// 128 weights, four blocks: w = scale * q + min. Sub-blocks of 16 (Q6_K) have scales of their own,
/// for low and high.
struct GroupWeights {
  int8_t low[64], high[64];  // offset removed
  float low_scale[4], high_scale[4];
  float min[4];  // to be added
};

struct NoHeader {};

inline int32_t dot_16(const int8_t* w, const int8_t* x) {
  int32_t dot = 0;
  for (int i = 0; i < 16; ++i) dot += w[i] * x[i];
  return dot;
}

/// sums += one group of four blocks, value = scale * q + min. The min's part is min times the sum
/// of x, which ActivationGroup has, so no product is needed for it.
inline void accumulate_group(Accumulator& sums, const GroupWeights& w, const ActivationGroup& x) {
  for (int b = 0; b < 4; ++b) {
    int32_t low = dot_16(w.low + 16 * b, x.low + 16 * b);
    int32_t high = dot_16(w.high + 16 * b, x.high + 16 * b);
    if (x.has_outlier != 0) {
      low = low * kResidualUnits + dot_16(w.low + 16 * b, x.residual_low + 16 * b);
      high = high * kResidualUnits + dot_16(w.high + 16 * b, x.residual_high + 16 * b);
    }
    const float dot = low * w.low_scale[b] + high * w.high_scale[b];
    sums.block[b] += dot * x.scale[4 * b] + w.min[b] * x.sums[4 * b + 1];
  }
}

/// A type whose groups are four blocks of 32; Unpack::block fills a block's 16 low and 16 high
/// elements.
template <class Block, class Unpack>
struct Blocks32 {
  static constexpr int64_t kGroups = 1;
  static constexpr int64_t kUnitBytes = 4 * sizeof(Block);
  static NoHeader header(const uint8_t*) { return {}; }
  static GroupWeights load(const uint8_t* unit, NoHeader, int) { return load_some(unit, 4); }
  static GroupWeights load_some(const uint8_t* unit, int count) {
    GroupWeights w = {};
    const auto* blocks = reinterpret_cast<const Block*>(unit);
    for (int b = 0; b < count; ++b) {
      w.low_scale[b] = w.high_scale[b] = Unpack::scale(blocks[b]);
      Unpack::block(blocks[b], w.low + 16 * b, w.high + 16 * b, &w.min[b]);
    }
    return w;
  }
  static void accumulate(Accumulator& sums, const GroupWeights& w, const ActivationGroup& x) {
    accumulate_group(sums, w, x);
  }
};

inline void unpack_nibbles(const uint8_t* qs, int offset, int8_t* low, int8_t* high) {
  for (int i = 0; i < 16; ++i) low[i] = (qs[i] & 15) - offset;
  for (int i = 0; i < 16; ++i) high[i] = (qs[i] >> 4) - offset;
}

inline void add_fifth_bits(const uint8_t* qh, int8_t* low, int8_t* high) {
  uint32_t bits;
  memcpy(&bits, qh, sizeof bits);
  for (uint32_t i = 0; i < 16; ++i) low[i] = low[i] + 16 * (bits >> i & 1);
  for (uint32_t i = 0; i < 16; ++i) {
    high[i] = high[i] + 16 * (bits >> (i + 16) & 1);
  }
}

inline void unpack_codes(const int8_t* values, const uint8_t* qs, int8_t* low, int8_t* high) {
  for (int i = 0; i < 16; ++i) low[i] = values[qs[i] & 15];
  for (int i = 0; i < 16; ++i) high[i] = values[qs[i] >> 4];
}

struct Unpack {
  template <class Block>
  static float scale(const Block& b) {
    return half_to_float(b.d);
  }
  static float scale(const BlockMXFP4& b) { return e8m0_half_to_float(b.e); }
  static void block(const BlockQ8_0& b, int8_t* low, int8_t* high, float*) {
    memcpy(low, b.qs, 16);
    memcpy(high, b.qs + 16, 16);
  }
  static void block(const BlockQ4_0& b, int8_t* low, int8_t* high, float*) {
    unpack_nibbles(b.qs, 8, low, high);
  }
  static void block(const BlockQ4_1& b, int8_t* low, int8_t* high, float* min) {
    unpack_nibbles(b.qs, 0, low, high);
    *min = half_to_float(b.m);
  }
  static void block(const BlockQ5_0& b, int8_t* low, int8_t* high, float*) {
    unpack_nibbles(b.qs, 16, low, high);
    add_fifth_bits(b.qh, low, high);
  }
  static void block(const BlockQ5_1& b, int8_t* low, int8_t* high, float* min) {
    unpack_nibbles(b.qs, 0, low, high);
    add_fifth_bits(b.qh, low, high);
    *min = half_to_float(b.m);
  }
  static void block(const BlockIQ4_NL& b, int8_t* low, int8_t* high, float*) {
    unpack_codes(kIq4Values, b.qs, low, high);
  }
  static void block(const BlockMXFP4& b, int8_t* low, int8_t* high, float*) {
    unpack_codes(kMxfp4Values, b.qs, low, high);
  }
};

using Q8_0 = Blocks32<BlockQ8_0, Unpack>;
using Q4_0 = Blocks32<BlockQ4_0, Unpack>;
using Q4_1 = Blocks32<BlockQ4_1, Unpack>;
using Q5_0 = Blocks32<BlockQ5_0, Unpack>;
using Q5_1 = Blocks32<BlockQ5_1, Unpack>;
using IQ4_NL = Blocks32<BlockIQ4_NL, Unpack>;
using MXFP4 = Blocks32<BlockMXFP4, Unpack>;

/// Scales and mins of the eight sub-blocks of a Q4_K or Q5_K block (layout: dequantize_cpu.cc).
struct KScales {
  float scale[8], min[8];
};

template <class Block>
inline KScales k_scales(const Block& block) {
  KScales k;
  const float d = half_to_float(block.d), dmin = half_to_float(block.dmin);
  const uint8_t* s = block.scales;
  for (int i = 0; i < 4; ++i) {
    k.scale[i] = d * (s[i] & 63);
    k.min[i] = -dmin * (s[i + 4] & 63);
    k.scale[i + 4] = d * ((s[i + 8] & 15) | (s[i] >> 6 << 4));
    k.min[i + 4] = -dmin * ((s[i + 8] >> 4) | (s[i + 4] >> 6 << 4));
  }
  return k;
}

inline const uint8_t* fifth_bits(const BlockQ4_K&) { return nullptr; }
inline const uint8_t* fifth_bits(const BlockQ5_K& block) { return block.qh; }

template <class Block>
struct KBlocks {
  static constexpr int64_t kGroups = 2;
  static constexpr int64_t kUnitBytes = sizeof(Block);
  static KScales header(const uint8_t* unit) {
    return k_scales(*reinterpret_cast<const Block*>(unit));
  }
  static GroupWeights load(const uint8_t* unit, const KScales& k, int g) {
    const auto& block = *reinterpret_cast<const Block*>(unit);
    const uint8_t* qh = fifth_bits(block);
    GroupWeights w;
    for (int b = 0; b < 4; ++b) {
      const int s = 4 * g + b;
      w.low_scale[b] = w.high_scale[b] = k.scale[s];
      w.min[b] = k.min[s];
      const uint8_t* qs = block.qs + s / 2 * 32;
      for (int i = 0; i < 32; ++i) {
        const int fifth = qh == nullptr ? 0 : (qh[i] >> s & 1) << 4;
        int8_t* lane = i < 16 ? w.low : w.high - 16;
        lane[16 * b + i] = (qs[i] >> (s % 2 * 4) & 15) | fifth;
      }
    }
    return w;
  }
  static void accumulate(Accumulator& sums, const GroupWeights& w, const ActivationGroup& x) {
    accumulate_group(sums, w, x);
  }
};

using Q4_K = KBlocks<BlockQ4_K>;
using Q5_K = KBlocks<BlockQ5_K>;

struct Q6_K {
  static constexpr int64_t kGroups = 2;
  static constexpr int64_t kUnitBytes = sizeof(BlockQ6_K);
  static NoHeader header(const uint8_t*) { return {}; }
  static GroupWeights load(const uint8_t* unit, NoHeader, int g) {
    const auto& block = *reinterpret_cast<const BlockQ6_K*>(unit);
    const float d = half_to_float(block.d);
    GroupWeights w;
    for (int b = 0; b < 4; ++b) {
      w.low_scale[b] = d * block.scales[8 * g + 2 * b];
      w.high_scale[b] = d * block.scales[8 * g + 2 * b + 1];
      w.min[b] = 0;
      for (int i = 0; i < 32; ++i) {
        const int low = block.ql[64 * g + b % 2 * 32 + i] >> (b / 2 * 4) & 15;
        const int high = block.qh[32 * g + i] >> (2 * b) & 3;
        int8_t* lane = i < 16 ? w.low : w.high - 16;
        lane[16 * b + i] = (low | high << 4) - 32;
      }
    }
    return w;
  }
  static void accumulate(Accumulator& sums, const GroupWeights& w, const ActivationGroup& x) {
    accumulate_group(sums, w, x);
  }
};

struct IQ4_XS {
  static constexpr int64_t kGroups = 2;
  static constexpr int64_t kUnitBytes = sizeof(BlockIQ4_XS);
  static NoHeader header(const uint8_t*) { return {}; }
  static GroupWeights load(const uint8_t* unit, NoHeader, int g) {
    const auto& block = *reinterpret_cast<const BlockIQ4_XS*>(unit);
    const float d = half_to_float(block.d);
    GroupWeights w;
    for (int b = 0; b < 4; ++b) {
      const int s = 4 * g + b;
      const int low = block.scales_l[s / 2] >> (s % 2 * 4) & 15;
      const int scale = (low | (block.scales_h >> (2 * s) & 3) << 4) - 32;
      w.low_scale[b] = w.high_scale[b] = d * scale;
      w.min[b] = 0;
      unpack_codes(kIq4Values, block.qs + 16 * s, w.low + 16 * b, w.high + 16 * b);
    }
    return w;
  }
  static void accumulate(Accumulator& sums, const GroupWeights& w, const ActivationGroup& x) {
    accumulate_group(sums, w, x);
  }
};

/// Puts bits 2b and 2b + 1 of a half's 32 bytes in place for block b of the group.
inline void unpack_two_bits(const uint8_t* qs, int b, int8_t* low, int8_t* high) {
  for (int i = 0; i < 16; ++i) low[i] = qs[i] >> (2 * b) & 3;
  for (int i = 0; i < 16; ++i) high[i] = qs[i + 16] >> (2 * b) & 3;
}

struct Q2_K {
  static constexpr int64_t kGroups = 2;
  static constexpr int64_t kUnitBytes = sizeof(BlockQ2_K);
  struct Group {
    GroupWeights weights;
    float low_min[4], high_min[4];  // to be added
  };
  static NoHeader header(const uint8_t*) { return {}; }
  static Group load(const uint8_t* unit, NoHeader, int g) {
    const auto& block = *reinterpret_cast<const BlockQ2_K*>(unit);
    const float d = half_to_float(block.d), dmin = half_to_float(block.dmin);
    Group w;
    for (int b = 0; b < 4; ++b) {
      const uint8_t* s = block.scales + 8 * g + 2 * b;
      w.weights.low_scale[b] = d * (s[0] & 15);
      w.weights.high_scale[b] = d * (s[1] & 15);
      w.weights.min[b] = 0;
      w.low_min[b] = -dmin * (s[0] >> 4);
      w.high_min[b] = -dmin * (s[1] >> 4);
      unpack_two_bits(block.qs + 32 * g, b, w.weights.low + 16 * b, w.weights.high + 16 * b);
    }
    return w;
  }
  static void accumulate(Accumulator& sums, const Group& w, const ActivationGroup& x) {
    accumulate_group(sums, w.weights, x);
    for (int b = 0; b < 4; ++b) {
      sums.block[b] += w.low_min[b] * x.half_sums[4 * b] + w.high_min[b] * x.half_sums[4 * b + 1];
    }
  }
};

struct Q3_K {
  static constexpr int64_t kGroups = 2;
  static constexpr int64_t kUnitBytes = sizeof(BlockQ3_K);
  static NoHeader header(const uint8_t*) { return {}; }
  static GroupWeights load(const uint8_t* unit, NoHeader, int g) {
    const auto& block = *reinterpret_cast<const BlockQ3_K*>(unit);
    const float d = half_to_float(block.d);
    GroupWeights w;
    for (int b = 0; b < 4; ++b) {
      w.low_scale[b] = d * scale(block.scales, 8 * g + 2 * b);
      w.high_scale[b] = d * scale(block.scales, 8 * g + 2 * b + 1);
      w.min[b] = 0;
      int8_t* low = w.low + 16 * b;
      int8_t* high = w.high + 16 * b;
      unpack_two_bits(block.qs + 32 * g, b, low, high);
      for (int i = 0; i < 16; ++i) low[i] = third_bit(block, 4 * g + b, i, low[i]);
      for (int i = 0; i < 16; ++i) high[i] = third_bit(block, 4 * g + b, i + 16, high[i]);
    }
    return w;
  }
  static void accumulate(Accumulator& sums, const GroupWeights& w, const ActivationGroup& x) {
    accumulate_group(sums, w, x);
  }

 private:
  static int scale(const uint8_t* scales, int s) {
    const int low = scales[s % 8] >> (s / 8 * 4) & 15;
    return (low | (scales[8 + s % 4] >> (s / 4 * 2) & 3) << 4) - 32;
  }
  static int8_t third_bit(const BlockQ3_K& block, int s, int i, int q) {
    return (q | (block.hmask[i] >> s & 1) << 2) - 4;
  }
};

struct FloatAccumulator {
  float lane[16];
};

using Floats = FloatAccumulator;

inline void accumulate16(FloatAccumulator& sums, const Floats& w, const float* x) {
  for (int i = 0; i < 16; ++i) sums.lane[i] += w.lane[i] * x[i];
}

/// In halves, as the other sets add up their registers.
inline float total(const FloatAccumulator& a) {
  float lane[16];
  memcpy(lane, a.lane, sizeof lane);
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
  }
  return lane[0];
}

struct F32 {
  static constexpr int64_t kBytes = 4;
  static Floats load(const uint8_t* bytes) {
    Floats w;
    memcpy(w.lane, bytes, sizeof w.lane);
    return w;
  }
};

struct F16 {
  static constexpr int64_t kBytes = 2;
  static Floats load(const uint8_t* bytes) {
    uint16_t half[16];
    memcpy(half, bytes, sizeof half);
    Floats w;
    for (int i = 0; i < 16; ++i) w.lane[i] = half_to_float(half[i]);
    return w;
  }
};

struct BF16 {
  static constexpr int64_t kBytes = 2;
  static Floats load(const uint8_t* bytes) {
    uint16_t half[16];
    memcpy(half, bytes, sizeof half);
    Floats w;
    for (int i = 0; i < 16; ++i) w.lane[i] = float_from_bits(uint32_t{half[i]} << 16);
    return w;
  }
};

}  // namespace
}  // namespace weft::kernels::WEFT_ISA
