// Unpacks blocks of quantised weights into the panels of matmul_int8_cpu.cc, which alone includes
// this (see isa.h for what such a file may do). Each function handles kLanes columns at once: the
// columns' bytes are loaded 16 at a time and transposed, so that a vector holds the same four
// elements of every column, and nibbles, high bits and scales are taken apart for all columns
// together. No gathers: they are slow on many CPUs (and slower with the microcode against GDS).
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "kernels/matmul_panels_internal.h"
#include "kernels/panel_lanes_internal.h"
#include "tensor/blocks.h"
#if defined(__AVX512F__)
#include "kernels/block_scales_avx512_internal.h"
#endif

namespace weft::kernels::WEFT_ISA {
namespace {

/// What the stored codes have on top of their value.
#if defined(__AVX512F__)
constexpr int kCodeOffset = 128;
#else
constexpr int kCodeOffset = 0;
#endif

/// One block of a panel: w = scale * (q - kCodeOffset) + min.
struct alignas(64) WeightBlock {
  uint8_t q[8][kVectors][4 * kLanes];  // [group of four elements]
  float scale[2][kVectors][kLanes];    // [half of the block, where they differ]
  float min[2][kVectors][kLanes];      // the same, for the types that have one
};

/// Where one vector of columns goes within a panel.
struct PanelPart {
  const uint8_t* const* columns;
  WeightBlock* blocks;
  int vector;

  /// The four elements 4 * group … 4 * group + 3 of a block; q holds signed bytes.
  void put(int64_t block, int group, Vector q) const {
    store_codes(blocks[block].q[group][vector], add_bytes(q, set_bytes(kCodeOffset)));
  }
  float* scale(int64_t block, int half) const { return blocks[block].scale[half][vector]; }
  float* min(int64_t block, int half) const { return blocks[block].min[half][vector]; }
};

/// Calls unpack(part, byte offset in a column, block of the panel) for each block of the type,
/// which spans kBlocks blocks of 32, for both vectors of columns.
template <class Block, int kBlocks, void (*unpack)(const PanelPart&, int64_t, int64_t)>
void unpack_panel(const PanelSource& source, void* panel) {
  for (int64_t b = 0; b < source.n_blocks; b += kBlocks) {
    const int64_t offset = (source.first_block + b) / kBlocks * sizeof(Block);
    for (int v = 0; v < kVectors; ++v) {
      unpack({source.columns + v * kLanes, static_cast<WeightBlock*>(panel), v}, offset, b);
    }
  }
}

/// The same for blocks of 32, whose scales are taken from four blocks at a time where there are
/// four (block_scales_avx512_internal.h); `codes` unpacks the integers of such a block, `unpack`
/// all of one of the last blocks. A row's scales are then one load and one permute for four blocks.
#if defined(__AVX512F__)
template <class Block, class BlockScales, void (*codes)(const PanelPart&, int64_t, int64_t),
          void (*unpack)(const PanelPart&, int64_t, int64_t)>
void unpack_fours(const PanelSource& source, void* panel) {
  constexpr int64_t kSize = sizeof(Block);
  for (int v = 0; v < kVectors; ++v) {
    const PanelPart part{source.columns + v * kLanes, static_cast<WeightBlock*>(panel), v};
    int64_t b = 0;
    for (; b + 4 <= source.n_blocks; b += 4) {
      const int64_t offset = (source.first_block + b) * kSize;
      BlockScales scales;
#pragma GCC unroll 4
      for (int quad = 0; quad < 4; ++quad) {
        const uint8_t* const* columns = part.columns + 4 * quad;
        scales.template add<0>(quad, columns[0] + offset);
        scales.template add<1>(quad, columns[1] + offset);
        scales.template add<2>(quad, columns[2] + offset);
        scales.template add<3>(quad, columns[3] + offset);
      }
      scales.finish();
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        _mm512_store_ps(part.scale(b + i, 0), scales.scales[0][i]);
        if constexpr (BlockScales::kHasMin) _mm512_store_ps(part.min(b + i, 0), scales.mins[0][i]);
      }
      for (int i = 0; i < 4; ++i) codes(part, offset + i * kSize, b + i);
    }
    for (; b < source.n_blocks; ++b) unpack(part, (source.first_block + b) * kSize, b);
  }
}
#endif

inline Vector low_nibbles(Vector v) { return bit_and(v, set_bytes(15)); }
inline Vector high_nibbles(Vector v) { return bit_and(shift_right<4>(v), set_bytes(15)); }

inline void q8_0_codes(const PanelPart& part, int64_t offset, int64_t block) {
  for (int half = 0; half < 2; ++half) {
    const Four q = load_words(part.columns, offset + 2 + 16 * half);
    for (int j = 0; j < 4; ++j) part.put(block, 4 * half + j, q.v[j]);
  }
}

inline void q8_0_block(const PanelPart& part, int64_t offset, int64_t block) {
  store_halves(part.scale(block, 0), load_words(part.columns, offset).v[0]);
  q8_0_codes(part, offset, block);
}

/// Sixteen bytes of nibbles: elements j and j + 16; `offset_value` is added to each.
inline void put_nibbles(const PanelPart& part, int64_t offset, int64_t block, int offset_value) {
  const Four q = load_words(part.columns, offset);
  const Vector added = set_bytes(offset_value);
  for (int j = 0; j < 4; ++j) {
    part.put(block, j, add_bytes(low_nibbles(q.v[j]), added));
    part.put(block, 4 + j, add_bytes(high_nibbles(q.v[j]), added));
  }
}

/// The same with the fifth bits of 32 elements in the lanes of `high`.
inline void put_five_bits(const PanelPart& part, int64_t offset, int64_t block, Vector high,
                          int offset_value) {
  const Four q = load_words(part.columns, offset);
  const Vector added = set_bytes(offset_value), sixteen = set_bytes(16);
  // Bits 0 to 3 and 4 to 7 of a byte, one in each byte of a lane.
  const Vector bits[2] = {broadcast_int(0x08040201), broadcast_int(0x80402010u)};
  for (int g = 0; g < 8; ++g) {
    const Vector nibbles = g < 4 ? low_nibbles(q.v[g]) : high_nibbles(q.v[g - 4]);
    const Vector fifth = where_set(spread_byte(high, g / 2), bits[g % 2], sixteen);
    part.put(block, g, add_bytes(bit_or(nibbles, fifth), added));
  }
}

inline void q4_0_codes(const PanelPart& part, int64_t offset, int64_t block) {
  put_nibbles(part, offset + 2, block, -8);
}

inline void q4_0_block(const PanelPart& part, int64_t offset, int64_t block) {
  store_halves(part.scale(block, 0), load_words(part.columns, offset).v[0]);
  q4_0_codes(part, offset, block);
}

inline void q4_1_codes(const PanelPart& part, int64_t offset, int64_t block) {
  put_nibbles(part, offset + 4, block, 0);
}

inline void q4_1_block(const PanelPart& part, int64_t offset, int64_t block) {
  const Vector d_and_m = load_words(part.columns, offset).v[0];
  store_halves(part.scale(block, 0), d_and_m);
  store_halves(part.min(block, 0), shift_right<16>(d_and_m));
  put_nibbles(part, offset + 4, block, 0);
}

inline void q5_0_block(const PanelPart& part, int64_t offset, int64_t block) {
  store_halves(part.scale(block, 0), load_words(part.columns, offset).v[0]);
  const Vector high = load_words(part.columns, offset + 2).v[0];
  put_five_bits(part, offset + 6, block, high, -16);
}

inline void q5_1_block(const PanelPart& part, int64_t offset, int64_t block) {
  const Four head = load_words(part.columns, offset);  // d and m, the fifth bits, eight nibbles
  store_halves(part.scale(block, 0), head.v[0]);
  store_halves(part.min(block, 0), shift_right<16>(head.v[0]));
  put_five_bits(part, offset + 8, block, head.v[1], 0);
}

/// Scales and mins of a Q4_K or Q5_K block, whose first 16 bytes are d, dmin and the packed six-bit
/// numbers: bytes 0-3 and 4-7 of those hold scales and mins 0-3, with the two high bits of numbers
/// 4-7 on top; bytes 8-11 hold the low nibbles of scales 4-7 and, above, of mins 4-7.
inline void put_k_scales(const PanelPart& part, int64_t offset, int64_t block) {
  const Four head = load_words(part.columns, offset);
  float d[kLanes], minus_dmin[kLanes];
  store_halves(d, head.v[0]);
  store_halves(minus_dmin, shift_right<16>(head.v[0]));
  for (int c = 0; c < kLanes; ++c) minus_dmin[c] = -minus_dmin[c];
  const Vector six_bits = set_bytes(63), two_bits = set_bytes(0x30);
  const Vector scales[2] = {
      bit_and(head.v[1], six_bits),
      bit_or(low_nibbles(head.v[3]), bit_and(shift_right<2>(head.v[1]), two_bits))};
  const Vector mins[2] = {
      bit_and(head.v[2], six_bits),
      bit_or(high_nibbles(head.v[3]), bit_and(shift_right<2>(head.v[2]), two_bits))};
  auto put = [&](int s, Vector scale, Vector min) {  // in the lanes' lowest bytes, others zero
    store_products(part.scale(block + s, 0), d, scale);
    store_products(part.min(block + s, 0), minus_dmin, min);
  };
  for (int i = 0; i < 2; ++i) {
    const Vector s = scales[i], m = mins[i];
    put(4 * i, shift_right<24>(shift_left<24>(s)), shift_right<24>(shift_left<24>(m)));
    put(4 * i + 1, shift_right<24>(shift_left<16>(s)), shift_right<24>(shift_left<16>(m)));
    put(4 * i + 2, shift_right<24>(shift_left<8>(s)), shift_right<24>(shift_left<8>(m)));
    put(4 * i + 3, shift_right<24>(s), shift_right<24>(m));
  }
}

/// Four times 32 bytes of nibbles: blocks 2 * i (low) and 2 * i + 1 (high).
inline void q4_k_block(const PanelPart& part, int64_t offset, int64_t block) {
  put_k_scales(part, offset, block);
  offset += offsetof(BlockQ4_K, qs);
  for (int i = 0; i < 8; ++i) {
    const Four q = load_words(part.columns, offset + 16 * i);
    for (int j = 0; j < 4; ++j) {
      const int group = i % 2 * 4 + j;
      part.put(block + i / 2 * 2, group, low_nibbles(q.v[j]));
      part.put(block + i / 2 * 2 + 1, group, high_nibbles(q.v[j]));
    }
  }
}

/// As Q4_K, with bit s of byte j of qh the fifth bit of element j of block s.
inline void q5_k_block(const PanelPart& part, int64_t offset, int64_t block) {
  put_k_scales(part, offset, block);
  const Vector sixteen = set_bytes(16);
  for (int half = 0; half < 2; ++half) {
    const int64_t skipped = 16 * half;
    const Four high = load_words(part.columns, offset + offsetof(BlockQ5_K, qh) + skipped);
    for (int i = 0; i < 4; ++i) {
      const Four q = load_words(part.columns, offset + offsetof(BlockQ5_K, qs) + 32 * i + skipped);
      for (int j = 0; j < 4; ++j) {
        const Vector even = where_set(high.v[j], set_bytes(1 << (2 * i)), sixteen);
        const Vector odd = where_set(high.v[j], set_bytes(2 << (2 * i)), sixteen);
        part.put(block + 2 * i, 4 * half + j, bit_or(low_nibbles(q.v[j]), even));
        part.put(block + 2 * i + 1, 4 * half + j, bit_or(high_nibbles(q.v[j]), odd));
      }
    }
  }
}

/// scales[i]: signed bytes, those of the halves of blocks 2 * i and 2 * i + 1.
inline void put_sixteen_scales(const PanelPart& part, int64_t block, const float* d,
                               const Vector (&scales)[4]) {
  for (int i = 0; i < 4; ++i) {
    const Vector s = scales[i];
    store_products(part.scale(block + 2 * i, 0), d, shift_right_signed<24>(shift_left<24>(s)));
    store_products(part.scale(block + 2 * i, 1), d, shift_right_signed<24>(shift_left<16>(s)));
    store_products(part.scale(block + 2 * i + 1, 0), d, shift_right_signed<24>(shift_left<8>(s)));
    store_products(part.scale(block + 2 * i + 1, 1), d, shift_right_signed<24>(s));
  }
}

/// Sixteen signed scales, one for 16 elements.
inline void put_q6_k_scales(const PanelPart& part, int64_t offset, int64_t block) {
  // d is the block's last two bytes: the top of the last word of the 16 bytes that end with it.
  float d[kLanes];
  store_halves(d, shift_right<16>(load_words(part.columns, offset + sizeof(BlockQ6_K) - 16).v[3]));
  const Four scales = load_words(part.columns, offset + offsetof(BlockQ6_K, scales));
  put_sixteen_scales(part, block, d, scales.v);
}

/// Each half of 128: blocks 0 and 1 in the low nibbles of 64 bytes, 2 and 3 in the high ones; their
/// bits 4 and 5 in 32 bytes, block s at bit 2 * s.
inline void q6_k_block(const PanelPart& part, int64_t offset, int64_t block) {
  put_q6_k_scales(part, offset, block);
  const Vector minus_32 = set_bytes(-32), top = set_bytes(0x30);
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 2; ++i) {
      const int64_t at = offset + 16 * i;
      const Four low = load_words(part.columns, at + 64 * half);
      const Four next = load_words(part.columns, at + 64 * half + 32);
      const Four high = load_words(part.columns, at + 32 * half + offsetof(BlockQ6_K, qh));
      for (int j = 0; j < 4; ++j) {
        const Vector q[4] = {
            bit_or(low_nibbles(low.v[j]), bit_and(shift_left<4>(high.v[j]), top)),
            bit_or(low_nibbles(next.v[j]), bit_and(shift_left<2>(high.v[j]), top)),
            bit_or(high_nibbles(low.v[j]), bit_and(high.v[j], top)),
            bit_or(high_nibbles(next.v[j]), bit_and(shift_right<2>(high.v[j]), top))};
        for (int s = 0; s < 4; ++s) {
          part.put(block + 4 * half + s, 4 * i + j, add_bytes(q[s], minus_32));
        }
      }
    }
  }
}

/// Sixteen bytes of nibbles that are indices into `values`: elements j and j + 16.
inline void put_codes(const PanelPart& part, int64_t offset, int64_t block, const int8_t* values) {
  const Four q = load_words(part.columns, offset);
  for (int j = 0; j < 4; ++j) {
    part.put(block, j, look_up(values, low_nibbles(q.v[j])));
    part.put(block, 4 + j, look_up(values, high_nibbles(q.v[j])));
  }
}

inline void iq4_nl_codes(const PanelPart& part, int64_t offset, int64_t block) {
  put_codes(part, offset + 2, block, kIq4Values);
}

inline void iq4_nl_block(const PanelPart& part, int64_t offset, int64_t block) {
  store_halves(part.scale(block, 0), load_words(part.columns, offset).v[0]);
  iq4_nl_codes(part, offset, block);
}

inline void mxfp4_block(const PanelPart& part, int64_t offset, int64_t block) {
  store_exponents(part.scale(block, 0), load_words(part.columns, offset).v[0]);
  put_codes(part, offset + 1, block, kMxfp4Values);
}

/// Scale kSub and up: a nibble of `low`, two bits of the upper half of `high`, 32 added.
template <int kSub = 0>
inline void put_iq4_xs_scales(const PanelPart& part, int64_t block, const float* d, Vector high,
                              Vector low) {
  if constexpr (kSub < 8) {
    const Vector nibble = bit_and(shift_right<4 * kSub>(low), broadcast_int(15));
    const Vector top = bit_and(shift_right<16 + 2 * kSub>(high), broadcast_int(3));
    const Vector scale = add_bytes(bit_or(nibble, shift_left<4>(top)), set_bytes(-32));
    store_products(part.scale(block + kSub, 0), d, shift_right_signed<24>(shift_left<24>(scale)));
    put_iq4_xs_scales<kSub + 1>(part, block, d, high, low);
  }
}

/// The first eight bytes are d, the scales' high bits and their nibbles.
inline void iq4_xs_block(const PanelPart& part, int64_t offset, int64_t block) {
  const Four head = load_words(part.columns, offset);
  float d[kLanes];
  store_halves(d, head.v[0]);
  put_iq4_xs_scales(part, block, d, head.v[0], head.v[1]);
  offset += offsetof(BlockIQ4_XS, qs);
  for (int s = 0; s < 8; ++s) put_codes(part, offset + 16 * s, block + s, kIq4Values);
}

/// Bits 2 * s and up of each byte of 16, for block s of a half.
struct TwoBits {
  Vector q[4];
};
inline TwoBits two_bits(Vector bytes) {
  const Vector three = set_bytes(3);
  return {{bit_and(bytes, three), bit_and(shift_right<2>(bytes), three),
           bit_and(shift_right<4>(bytes), three), bit_and(shift_right<6>(bytes), three)}};
}

/// Sixteen bytes of scales (low nibbles) and mins (high ones), two for each 32 elements; d and dmin
/// are the last word of the block.
inline void put_q2_k_scales(const PanelPart& part, int64_t offset, int64_t block) {
  const Vector last = load_words(part.columns, offset + sizeof(BlockQ2_K) - 16).v[3];
  float d[kLanes], minus_dmin[kLanes];
  store_halves(d, last);
  store_halves(minus_dmin, shift_right<16>(last));
  for (int c = 0; c < kLanes; ++c) minus_dmin[c] = -minus_dmin[c];
  const Four bytes = load_words(part.columns, offset);
  const Vector scales[4] = {low_nibbles(bytes.v[0]), low_nibbles(bytes.v[1]),
                            low_nibbles(bytes.v[2]), low_nibbles(bytes.v[3])};
  put_sixteen_scales(part, block, d, scales);
  for (int i = 0; i < 4; ++i) {
    const Vector m = high_nibbles(bytes.v[i]);
    const int64_t first = block + 2 * i;
    store_products(part.min(first, 0), minus_dmin, shift_right<24>(shift_left<24>(m)));
    store_products(part.min(first, 1), minus_dmin, shift_right<24>(shift_left<16>(m)));
    store_products(part.min(first + 1, 0), minus_dmin, shift_right<24>(shift_left<8>(m)));
    store_products(part.min(first + 1, 1), minus_dmin, shift_right<24>(m));
  }
}

/// Each half of 128: four blocks in 32 bytes.
inline void q2_k_block(const PanelPart& part, int64_t offset, int64_t block) {
  put_q2_k_scales(part, offset, block);
  offset += offsetof(BlockQ2_K, qs);
  for (int i = 0; i < 4; ++i) {  // 16 bytes each
    const Four bytes = load_words(part.columns, offset + 16 * i);
    for (int j = 0; j < 4; ++j) {
      const TwoBits two = two_bits(bytes.v[j]);
      for (int s = 0; s < 4; ++s) part.put(block + i / 2 * 4 + s, i % 2 * 4 + j, two.q[s]);
    }
  }
}

/// The scales' layout: decode_x86_internal.h. d is the block's last two bytes.
inline void put_q3_k_scales(const PanelPart& part, int64_t offset, int64_t block) {
  constexpr int64_t kSize = sizeof(BlockQ3_K);
  float d[kLanes];
  store_halves(d, shift_right<16>(load_words(part.columns, offset + kSize - 16).v[3]));
  const Four bytes = load_words(part.columns, offset + kSize - 18);  // the last three words
  const Vector top = bytes.v[3], three = set_bytes(3), minus_32 = set_bytes(-32);
  const auto scale = [&](Vector low, Vector high) {
    return add_bytes(bit_or(low, shift_left<4>(bit_and(high, three))), minus_32);
  };
  const Vector scales[4] = {scale(low_nibbles(bytes.v[1]), top),
                            scale(low_nibbles(bytes.v[2]), shift_right<2>(top)),
                            scale(high_nibbles(bytes.v[1]), shift_right<4>(top)),
                            scale(high_nibbles(bytes.v[2]), shift_right<6>(top))};
  put_sixteen_scales(part, block, d, scales);
}

/// As Q2_K, with bit s of byte j of hmask the third bit of element j of block s.
inline void q3_k_block(const PanelPart& part, int64_t offset, int64_t block) {
  put_q3_k_scales(part, offset, block);
  const Vector minus_4 = set_bytes(-4), four = set_bytes(4);
  for (int i = 0; i < 4; ++i) {
    const Four bytes = load_words(part.columns, offset + offsetof(BlockQ3_K, qs) + 16 * i);
    const Four high = load_words(part.columns, offset + 16 * (i % 2));
    for (int j = 0; j < 4; ++j) {
      const TwoBits two = two_bits(bytes.v[j]);
      for (int s = 0; s < 4; ++s) {
        const int b = i / 2 * 4 + s;
        const Vector third = where_set(high.v[j], set_bytes(1 << b), four);
        part.put(block + b, i % 2 * 4 + j, add_bytes(bit_or(two.q[s], third), minus_4));
      }
    }
  }
}

}  // namespace
}  // namespace weft::kernels::WEFT_ISA
