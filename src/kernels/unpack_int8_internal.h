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
  float min[kVectors][kLanes];         // for the types that have one
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
  float* min(int64_t block) const { return blocks[block].min[vector]; }
};

/// Calls unpack(part, byte offset in a column, block of the panel) for each block of the type,
/// which spans kBlocks blocks of 32, for both vectors of columns.
template <class Block, int kBlocks, void (*unpack)(const PanelPart&, int64_t, int64_t)>
void unpack_panel(const PanelSource& source, void* panel) {
  for (int64_t b = 0; b < source.n_blocks; b += kBlocks) {
    const auto offset = (source.first_block + b) / kBlocks * static_cast<int64_t>(sizeof(Block));
    for (int v = 0; v < kVectors; ++v) {
      unpack({source.columns + v * kLanes, static_cast<WeightBlock*>(panel), v}, offset, b);
    }
  }
}

inline Vector low_nibbles(Vector v) { return bit_and(v, set_bytes(15)); }
inline Vector high_nibbles(Vector v) { return bit_and(shift_right<4>(v), set_bytes(15)); }

inline void q8_0_block(const PanelPart& part, int64_t offset, int64_t block) {
  store_halves(part.scale(block, 0), load_words(part.columns, offset).v[0]);
  for (int half = 0; half < 2; ++half) {
    const Four q = load_words(part.columns, offset + 2 + 16 * half);
    for (int j = 0; j < 4; ++j) part.put(block, 4 * half + j, q.v[j]);
  }
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
  const Vector bits[2] = {broadcast_int(0x08040201),
                          broadcast_int(static_cast<int32_t>(0x80402010u))};
  for (int g = 0; g < 8; ++g) {
    const Vector nibbles = g < 4 ? low_nibbles(q.v[g]) : high_nibbles(q.v[g - 4]);
    const Vector fifth = where_set(spread_byte(high, g / 2), bits[g % 2], sixteen);
    part.put(block, g, add_bytes(bit_or(nibbles, fifth), added));
  }
}

inline void q4_0_block(const PanelPart& part, int64_t offset, int64_t block) {
  store_halves(part.scale(block, 0), load_words(part.columns, offset).v[0]);
  put_nibbles(part, offset + 2, block, -8);
}

inline void q4_1_block(const PanelPart& part, int64_t offset, int64_t block) {
  const Vector d_and_m = load_words(part.columns, offset).v[0];
  store_halves(part.scale(block, 0), d_and_m);
  store_halves(part.min(block), shift_right<16>(d_and_m));
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
  store_halves(part.min(block), shift_right<16>(head.v[0]));
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
    store_products(part.min(block + s), minus_dmin, min);
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
  offset += static_cast<int64_t>(offsetof(BlockQ4_K, qs));
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
    const Four high =
        load_words(part.columns, offset + static_cast<int64_t>(offsetof(BlockQ5_K, qh)) + skipped);
    for (int i = 0; i < 4; ++i) {
      const Four q = load_words(
          part.columns, offset + static_cast<int64_t>(offsetof(BlockQ5_K, qs)) + 32 * i + skipped);
      for (int j = 0; j < 4; ++j) {
        const Vector even = where_set(high.v[j], set_bytes(1 << (2 * i)), sixteen);
        const Vector odd = where_set(high.v[j], set_bytes(2 << (2 * i)), sixteen);
        part.put(block + 2 * i, 4 * half + j, bit_or(low_nibbles(q.v[j]), even));
        part.put(block + 2 * i + 1, 4 * half + j, bit_or(high_nibbles(q.v[j]), odd));
      }
    }
  }
}

/// Sixteen signed scales, one for 16 elements.
inline void put_q6_k_scales(const PanelPart& part, int64_t offset, int64_t block) {
  // d is the block's last two bytes: the top of the last word of the 16 bytes that end with it.
  float d[kLanes];
  store_halves(
      d, shift_right<16>(
             load_words(part.columns, offset + static_cast<int64_t>(sizeof(BlockQ6_K)) - 16).v[3]));
  const Four scales =
      load_words(part.columns, offset + static_cast<int64_t>(offsetof(BlockQ6_K, scales)));
  for (int i = 0; i < 4; ++i) {
    const Vector s = scales.v[i];
    store_products(part.scale(block + 2 * i, 0), d, shift_right_signed<24>(shift_left<24>(s)));
    store_products(part.scale(block + 2 * i, 1), d, shift_right_signed<24>(shift_left<16>(s)));
    store_products(part.scale(block + 2 * i + 1, 0), d, shift_right_signed<24>(shift_left<8>(s)));
    store_products(part.scale(block + 2 * i + 1, 1), d, shift_right_signed<24>(s));
  }
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
      const Four high =
          load_words(part.columns, at + 32 * half + static_cast<int64_t>(offsetof(BlockQ6_K, qh)));
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

}  // namespace
}  // namespace weft::kernels::WEFT_ISA
