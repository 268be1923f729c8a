// GGML's quantised blocks as they lie in a file: little-endian, packed, no padding, at any address
// (alignment 1). `d` and `m` are IEEE half floats. Value of element i, with q the stored small
// integer:
//   Q8_0: d*q   Q4_0: d*(q-8)   Q5_0: d*(q-16)   Q4_1, Q5_1: d*q+m
//   Q4_K, Q5_K: d*scale*q - dmin*min per 32 elements   Q6_K: d*scale*(q-32) per 16 elements
// In the 4-bit types of 32, byte j holds element j (low nibble) and j+16 (high nibble).
// Plain data only: kernels compiled per instruction set include this file.
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
#pragma pack(pop)

static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20);
static_assert(sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockQ4_K) == 144 && sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210);

}  // namespace weft
