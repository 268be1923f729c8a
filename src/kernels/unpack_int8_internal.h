// Unpacks blocks of quantised weights into the panels of matmul_int8_cpu.cc, which alone includes
// this (see isa.h for what such a file may do). Each function handles kLanes columns at once: the
// columns' bytes are loaded 16 at a time and transposed, so that a vector holds the same four
// elements of every column, and nibbles, high bits and scales are taken apart for all columns
// together. No gathers: they are slow on many CPUs (and slower with the microcode against GDS).
#pragma once

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu_half_internal.h"
#include "kernels/matmul_int8_internal.h"
#include "tensor/blocks.h"

namespace weft::kernels::WEFT_ISA {
namespace {

#if defined(__AVX512F__)

using Vector = __m512i;
constexpr int kLanes = 16;
// What the stored codes have on top of their value.
constexpr int kCodeOffset = 128;

inline Vector set_bytes(int b) { return _mm512_set1_epi8(static_cast<char>(b)); }
inline Vector bit_and(Vector a, Vector b) { return _mm512_and_si512(a, b); }
inline Vector bit_or(Vector a, Vector b) { return _mm512_or_si512(a, b); }
template <int n>
inline Vector shift_right(Vector a) {
  return _mm512_srli_epi32(a, n);
}
template <int n>
inline Vector shift_left(Vector a) {
  return _mm512_slli_epi32(a, n);
}
inline Vector add_bytes(Vector a, Vector b) { return _mm512_add_epi8(a, b); }
inline void store_codes(uint8_t* p, Vector v) { _mm512_store_si512(p, v); }
/// `added` in each byte where `a` and `bits` have a bit in common.
inline Vector where_set(Vector a, Vector bits, Vector added) {
  return _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(a, bits), added);
}
/// Each lane's byte number `n`, four times.
inline Vector spread_byte(Vector a, int n) {
  const Vector within = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
  return _mm512_shuffle_epi8(a, _mm512_add_epi8(within, set_bytes(n)));
}

struct Four {
  Vector v[4];
};

inline __m512i four_rows(const uint8_t* const* columns, int64_t offset) {
  auto at = [&](int c) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(columns[c] + offset));
  };
  __m512i v = _mm512_castsi128_si512(at(0));
  v = _mm512_inserti32x4(v, at(4), 1);
  v = _mm512_inserti32x4(v, at(8), 2);
  return _mm512_inserti32x4(v, at(12), 3);
}

/// v[j] lane c = the 32-bit word j of the 16 bytes at columns[c] + offset.
inline Four load_words(const uint8_t* const* columns, int64_t offset) {
  const __m512i a = four_rows(columns, offset), b = four_rows(columns + 1, offset);
  const __m512i c = four_rows(columns + 2, offset), d = four_rows(columns + 3, offset);
  const __m512i ab_low = _mm512_unpacklo_epi32(a, b), ab_high = _mm512_unpackhi_epi32(a, b);
  const __m512i cd_low = _mm512_unpacklo_epi32(c, d), cd_high = _mm512_unpackhi_epi32(c, d);
  return {{_mm512_unpacklo_epi64(ab_low, cd_low), _mm512_unpackhi_epi64(ab_low, cd_low),
           _mm512_unpacklo_epi64(ab_high, cd_high), _mm512_unpackhi_epi64(ab_high, cd_high)}};
}

/// The half floats in the lanes' low 16 bits.
inline void store_halves(float* p, Vector halves) {
  _mm512_storeu_ps(p, _mm512_cvtph_ps(_mm512_cvtepi32_epi16(halves)));
}
/// p[c] = factor[c] * (the signed 32-bit integers).
inline void store_products(float* p, const float* factor, Vector integers) {
  _mm512_storeu_ps(p, _mm512_mul_ps(_mm512_loadu_ps(factor), _mm512_cvtepi32_ps(integers)));
}
template <int n>
inline Vector shift_right_signed(Vector a) {
  return _mm512_srai_epi32(a, n);
}

#elif defined(__AVX2__)

using Vector = __m256i;
constexpr int kLanes = 8;
constexpr int kCodeOffset = 0;

inline Vector set_bytes(int b) { return _mm256_set1_epi8(static_cast<char>(b)); }
inline Vector bit_and(Vector a, Vector b) { return _mm256_and_si256(a, b); }
inline Vector bit_or(Vector a, Vector b) { return _mm256_or_si256(a, b); }
template <int n>
inline Vector shift_right(Vector a) {
  return _mm256_srli_epi32(a, n);
}
template <int n>
inline Vector shift_left(Vector a) {
  return _mm256_slli_epi32(a, n);
}
inline Vector add_bytes(Vector a, Vector b) { return _mm256_add_epi8(a, b); }
inline void store_codes(uint8_t* p, Vector v) {
  _mm256_store_si256(reinterpret_cast<Vector*>(p), v);
}
inline Vector where_set(Vector a, Vector bits, Vector added) {
  const Vector clear = _mm256_cmpeq_epi8(_mm256_and_si256(a, bits), _mm256_setzero_si256());
  return _mm256_andnot_si256(clear, added);
}
inline Vector spread_byte(Vector a, int n) {
  const Vector within = _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404,
                                          0x08080808, 0x0c0c0c0c);
  return _mm256_shuffle_epi8(a, _mm256_add_epi8(within, set_bytes(n)));
}

struct Four {
  Vector v[4];
};

inline Vector two_rows(const uint8_t* const* columns, int64_t offset) {
  auto at = [&](int c) { return reinterpret_cast<const __m128i*>(columns[c] + offset); };
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128(at(0))),
                                 _mm_loadu_si128(at(4)), 1);
}

inline Four load_words(const uint8_t* const* columns, int64_t offset) {
  const Vector a = two_rows(columns, offset), b = two_rows(columns + 1, offset);
  const Vector c = two_rows(columns + 2, offset), d = two_rows(columns + 3, offset);
  const Vector ab_low = _mm256_unpacklo_epi32(a, b), ab_high = _mm256_unpackhi_epi32(a, b);
  const Vector cd_low = _mm256_unpacklo_epi32(c, d), cd_high = _mm256_unpackhi_epi32(c, d);
  return {{_mm256_unpacklo_epi64(ab_low, cd_low), _mm256_unpackhi_epi64(ab_low, cd_low),
           _mm256_unpacklo_epi64(ab_high, cd_high), _mm256_unpackhi_epi64(ab_high, cd_high)}};
}

inline void store_halves(float* p, Vector halves) {
  const Vector low = _mm256_and_si256(halves, _mm256_set1_epi32(0xffff));
  const __m128i packed =
      _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
  _mm256_storeu_ps(p, _mm256_cvtph_ps(packed));
}
inline void store_products(float* p, const float* factor, Vector integers) {
  _mm256_storeu_ps(p, _mm256_mul_ps(_mm256_loadu_ps(factor), _mm256_cvtepi32_ps(integers)));
}
template <int n>
inline Vector shift_right_signed(Vector a) {
  return _mm256_srai_epi32(a, n);
}

#else

struct Vector {
  uint32_t lane[4];
};
constexpr int kLanes = 4;
constexpr int kCodeOffset = 0;

template <class F>
inline Vector each_lane(F f) {
  Vector v;
  for (int i = 0; i < kLanes; ++i) v.lane[i] = f(i);
  return v;
}
template <class F>
inline Vector each_byte(F f) {
  uint8_t bytes[4 * kLanes];
  for (int i = 0; i < 4 * kLanes; ++i) bytes[i] = static_cast<uint8_t>(f(i));
  Vector v;
  memcpy(&v, bytes, sizeof v);
  return v;
}
inline uint8_t byte_of(const Vector& v, int i) {
  return static_cast<uint8_t>(v.lane[i / 4] >> (8 * (i % 4)));
}

inline Vector set_bytes(int b) {
  return each_byte([&](int) { return b; });
}
inline Vector bit_and(const Vector& a, const Vector& b) {
  return each_lane([&](int i) { return a.lane[i] & b.lane[i]; });
}
inline Vector bit_or(const Vector& a, const Vector& b) {
  return each_lane([&](int i) { return a.lane[i] | b.lane[i]; });
}
template <int n>
inline Vector shift_right(const Vector& a) {
  return each_lane([&](int i) { return a.lane[i] >> n; });
}
template <int n>
inline Vector shift_left(const Vector& a) {
  return each_lane([&](int i) { return a.lane[i] << n; });
}
template <int n>
inline Vector shift_right_signed(const Vector& a) {
  return each_lane(
      [&](int i) { return static_cast<uint32_t>(static_cast<int32_t>(a.lane[i]) >> n); });
}
inline Vector add_bytes(const Vector& a, const Vector& b) {
  return each_byte([&](int i) { return byte_of(a, i) + byte_of(b, i); });
}
inline void store_codes(uint8_t* p, const Vector& v) { memcpy(p, &v, sizeof v); }
inline Vector where_set(const Vector& a, const Vector& bits, const Vector& added) {
  return each_byte(
      [&](int i) { return (byte_of(a, i) & byte_of(bits, i)) != 0 ? byte_of(added, i) : 0; });
}
inline Vector spread_byte(const Vector& a, int n) {
  return each_lane([&](int i) { return (a.lane[i] >> (8 * n) & 0xffu) * 0x01010101u; });
}

struct Four {
  Vector v[4];
};

inline Four load_words(const uint8_t* const* columns, int64_t offset) {
  Four words;
  for (int c = 0; c < kLanes; ++c) {
    uint32_t column[4];
    memcpy(column, columns[c] + offset, sizeof column);
    for (int j = 0; j < 4; ++j) words.v[j].lane[c] = column[j];
  }
  return words;
}

inline void store_halves(float* p, const Vector& halves) {
  for (int i = 0; i < kLanes; ++i) p[i] = half_to_float(static_cast<uint16_t>(halves.lane[i]));
}
inline void store_products(float* p, const float* factor, const Vector& integers) {
  for (int i = 0; i < kLanes; ++i) {
    p[i] = factor[i] * static_cast<float>(static_cast<int32_t>(integers.lane[i]));
  }
}

#endif

constexpr int kPanelColumns = 2 * kLanes;

/// Where one vector of columns goes within a panel.
struct PanelPart {
  const uint8_t* const* columns;
  const Int8Panel& panel;
  int vector;

  /// The four elements 4 * group … 4 * group + 3 of a block; q holds signed bytes.
  void put(int64_t block, int group, Vector q) const {
    store_codes(panel.q + ((block * 8 + group) * 2 + vector) * 4 * kLanes,
                add_bytes(q, set_bytes(kCodeOffset)));
  }
  float* scale(int64_t block, int half) const {
    return panel.scale + (block * 2 + half) * kPanelColumns + vector * kLanes;
  }
  float* min(int64_t block) const { return panel.min + block * kPanelColumns + vector * kLanes; }
};

/// Calls unpack(part, byte offset in a column, block of the panel) for each block of the type,
/// which spans kBlocks blocks of 32, for both vectors of columns.
template <class Block, int kBlocks, void (*unpack)(const PanelPart&, int64_t, int64_t)>
void unpack_panel(const uint8_t* const* columns, int64_t first_block, int64_t n_blocks,
                  const Int8Panel& panel) {
  for (int64_t b = 0; b < n_blocks; b += kBlocks) {
    const auto offset = (first_block + b) / kBlocks * static_cast<int64_t>(sizeof(Block));
    for (int v = 0; v < 2; ++v) unpack({columns + v * kLanes, panel, v}, offset, b);
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
  Vector bits[2];  // bits 0 to 3, 4 to 7 of a byte, in the bytes of each lane
#if defined(__AVX512F__)
  bits[0] = _mm512_set1_epi32(0x08040201);
  bits[1] = _mm512_set1_epi32(static_cast<int>(0x80402010u));
#elif defined(__AVX2__)
  bits[0] = _mm256_set1_epi32(0x08040201);
  bits[1] = _mm256_set1_epi32(static_cast<int>(0x80402010u));
#else
  bits[0] = each_lane([](int) { return 0x08040201u; });
  bits[1] = each_lane([](int) { return 0x80402010u; });
#endif
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

constexpr UnpackFn unpack_q8_0 = unpack_panel<BlockQ8_0, 1, q8_0_block>;
constexpr UnpackFn unpack_q4_0 = unpack_panel<BlockQ4_0, 1, q4_0_block>;
constexpr UnpackFn unpack_q4_1 = unpack_panel<BlockQ4_1, 1, q4_1_block>;
constexpr UnpackFn unpack_q5_0 = unpack_panel<BlockQ5_0, 1, q5_0_block>;
constexpr UnpackFn unpack_q5_1 = unpack_panel<BlockQ5_1, 1, q5_1_block>;
constexpr UnpackFn unpack_q4_k = unpack_panel<BlockQ4_K, 8, q4_k_block>;
constexpr UnpackFn unpack_q5_k = unpack_panel<BlockQ5_K, 8, q5_k_block>;
constexpr UnpackFn unpack_q6_k = unpack_panel<BlockQ6_K, 8, q6_k_block>;

}  // namespace
}  // namespace weft::kernels::WEFT_ISA
