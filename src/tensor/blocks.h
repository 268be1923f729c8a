// GGML's quantised blocks as they lie in a file: little-endian, packed, no padding, at any address
// (alignment 1). `d` and `m` are IEEE half floats. Value of element i, with q the stored small
// integer:
//   Q8_0: d*q   Q4_0: d*(q-8)   Q5_0: d*(q-16)   Q4_1, Q5_1: d*q+m
//   Q4_K, Q5_K: d*scale*q - dmin*min per 32 elements   Q6_K: d*scale*(q-32) per 16 elements
//   Q2_K: d*scale*q - dmin*min per 16 elements   Q3_K: d*scale*(q-4) per 16 elements
//   IQ4_NL: d*kIq4Values[q]   IQ4_XS: d*scale*kIq4Values[q] per 32 elements
//   MXFP4: 2^(e-128)*kMxfp4Values[q] (OCP Microscaling Formats 1.0; GGML stores twice the values)
// In the 4-bit types of 32, byte j holds element j (low nibble) and j+16 (high nibble).
//
// The layouts are those of ggml's src/ggml-common.h, byte for byte; the sizes asserted below are
// what a GGUF's tensor table counts with. The structs are packed so that a pointer into a mapped
// file may be read as one: in a row of 17-byte blocks every other one is at an odd address. Plain
// data only: kernels compiled per instruction set include this file.
#pragma once

#include <cstdint>

namespace weft {

#pragma pack(push, 1)
struct BlockQ8_0 {
  uint16_t d;
  int8_t qs[32];
};
struct BlockQ4_0 {
  uint16_t d;
  uint8_t qs[16];
};
struct BlockQ4_1 {
  uint16_t d, m;
  uint8_t qs[16];
};
struct BlockQ5_0 {
  uint16_t d;
  uint8_t qh[4];  // bit j of the little-endian word: fifth bit of element j
  uint8_t qs[16];
};
struct BlockQ5_1 {
  uint16_t d, m;
  uint8_t qh[4];
  uint8_t qs[16];
};
struct BlockQ4_K {
  uint16_t d, dmin;
  uint8_t scales[12];  // eight 6-bit scales and eight 6-bit mins
  uint8_t qs[128];
};
struct BlockQ5_K {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};
struct BlockQ6_K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};
struct BlockQ2_K {
  uint8_t scales[16];  // of 16 elements each: scale in the low nibble, min in the high one
  uint8_t qs[64];
  uint16_t d, dmin;
};
struct BlockQ3_K {
  uint8_t hmask[32];  // bit s of byte j: third bit of element 32*s + j
  uint8_t qs[64];
  uint8_t scales[12];  // sixteen 6-bit scales with 32 added
  uint16_t d;
};
struct BlockIQ4_NL {
  uint16_t d;
  uint8_t qs[16];
};
struct BlockIQ4_XS {
  uint16_t d;
  uint16_t scales_h;    // two bits of each of eight 6-bit scales with 32 added
  uint8_t scales_l[4];  // and their low nibbles
  uint8_t qs[128];
};
struct BlockMXFP4 {
  uint8_t e;
  uint8_t qs[16];
};
#pragma pack(pop)

static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockQ4_K) == 144 && sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210);
static_assert(sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110);
static_assert(sizeof(BlockIQ4_NL) == 18 && sizeof(BlockIQ4_XS) == 136 && sizeof(BlockMXFP4) == 17);

/// The values of the sixteen codes of IQ4_NL and IQ4_XS: closer together near 0, where most weights
/// are. Ascending, not symmetric (-127 … 113), so code 0 is not the value 0.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
/// Twice the values of the four-bit float E2M1 (0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives), so
/// that they are integers; the block's scale is halved in turn.
inline constexpr int8_t kMxfp4Values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace weft
