#include "gguf/quantise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tensor/blocks.h"
#include "tensor/half.h"

namespace weft::gguf {
namespace {

/// The 6-bit scale and offset of sub-block s.
std::pair<int, int> scale_and_min(const uint8_t* packed, int s) {
  if (s < 4) return {packed[s] & 63, packed[s + 4] & 63};
  return {(packed[s + 4] & 15) | (packed[s - 4] >> 6) << 4, (packed[s + 4] >> 4) | (packed[s] >> 6)
                                                                                       << 4};
}

int nibble32(const uint8_t* qs, int i) { return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4; }
int fifth32(const uint8_t* qh, int i) { return (qh[i / 8] >> (i % 8) & 1) << 4; }
int nibble256(const uint8_t* qs, int i) {
  const int byte = qs[i / 64 * 32 + i % 32];
  return i / 32 % 2 == 0 ? byte & 15 : byte >> 4;
}

template <class Block>
float super_block_element(const Block& b, int q, int i) {
  const auto [scale, min] = scale_and_min(b.scales, i / 32);
  return f32_from_f16(b.d) * static_cast<float>(scale * q) -
         f32_from_f16(b.dmin) * static_cast<float>(min);
}

float element(const BlockQ8_0& b, int i) { return f32_from_f16(b.d) * b.qs[i]; }
float element(const BlockQ4_0& b, int i) {
  return f32_from_f16(b.d) * static_cast<float>(nibble32(b.qs, i) - 8);
}
float element(const BlockQ4_1& b, int i) {
  return f32_from_f16(b.d) * static_cast<float>(nibble32(b.qs, i)) + f32_from_f16(b.m);
}
float element(const BlockQ5_0& b, int i) {
  return f32_from_f16(b.d) * static_cast<float>((nibble32(b.qs, i) | fifth32(b.qh, i)) - 16);
}
float element(const BlockQ5_1& b, int i) {
  return f32_from_f16(b.d) * static_cast<float>(nibble32(b.qs, i) | fifth32(b.qh, i)) +
         f32_from_f16(b.m);
}
float element(const BlockQ4_K& b, int i) { return super_block_element(b, nibble256(b.qs, i), i); }
float element(const BlockQ5_K& b, int i) {
  const int fifth = (b.qh[i % 32] >> (i / 32) & 1) << 4;
  return super_block_element(b, nibble256(b.qs, i) | fifth, i);
}
float element(const BlockQ6_K& b, int i) {
  const int half = i / 128, run = i % 128 / 32, l = i % 32;
  const int low = b.ql[64 * half + run % 2 * 32 + l] >> (run / 2 * 4) & 15;
  const int high = b.qh[32 * half + l] >> (2 * run) & 3;
  return f32_from_f16(b.d) * static_cast<float>(b.scales[i / 16] * ((low | high << 4) - 32));
}

/// Largest error over blocks of normal numbers in units of the block's largest magnitude.
template <class Block>
float largest_error(DType dtype, int block_elements) {
  constexpr int kBlocks = 64;
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.2f, 1.0f);
  std::vector<float> x(static_cast<size_t>(kBlocks * block_elements));
  for (float& value : x) value = normal(random);
  std::fill_n(x.begin() + block_elements, block_elements, 0.0f);  // a block of zeros
  std::vector<Block> blocks(kBlocks);
  quantise(dtype, x, std::as_writable_bytes(std::span(blocks)).data());
  float largest = 0.0f;
  for (int b = 0; b < kBlocks; ++b) {
    const float* block = x.data() + b * block_elements;
    float magnitude = 1e-30f;
    for (int i = 0; i < block_elements; ++i) magnitude = std::max(magnitude, std::abs(block[i]));
    for (int i = 0; i < block_elements; ++i) {
      const float error = std::abs(element(blocks[static_cast<size_t>(b)], i) - block[i]);
      largest = std::max(largest, error / magnitude);
    }
  }
  return largest;
}

// The header's bounds, with 2 % for the scales' rounding to half floats, and for the K types 7 %
// more: a 6-bit scale is up to 1/63 too wide, its offset up to 1/63 of the widest.
TEST(Quantise, ErrorsStayWithinHalfAStep) {
  EXPECT_LE(largest_error<BlockQ8_0>(DType::kQ8_0, 32), 1.02f / 254);
  EXPECT_LE(largest_error<BlockQ4_0>(DType::kQ4_0, 32), 1.02f / 8);
  EXPECT_LE(largest_error<BlockQ5_0>(DType::kQ5_0, 32), 1.02f / 16);
  EXPECT_LE(largest_error<BlockQ4_1>(DType::kQ4_1, 32), 1.02f / 15);
  EXPECT_LE(largest_error<BlockQ5_1>(DType::kQ5_1, 32), 1.02f / 31);
  EXPECT_LE(largest_error<BlockQ4_K>(DType::kQ4_K, 256), 1.07f / 15);
  EXPECT_LE(largest_error<BlockQ5_K>(DType::kQ5_K, 256), 1.07f / 31);
  EXPECT_LE(largest_error<BlockQ6_K>(DType::kQ6_K, 256), 1.07f / 62);
}

TEST(Quantise, FloatsKeepTheirValue) {
  const std::vector<float> x{1.0f, -0.5f, 3.140625f};
  std::vector<uint16_t> halves(3);
  quantise(DType::kF16, x, std::as_writable_bytes(std::span(halves)).data());
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(f32_from_f16(halves[i]), x[i]);
  quantise(DType::kBF16, x, std::as_writable_bytes(std::span(halves)).data());
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(f32_from_bf16(halves[i]), x[i]);
  std::vector<float> copy(3);
  quantise(DType::kF32, x, std::as_writable_bytes(std::span(copy)).data());
  EXPECT_EQ(copy, x);
}

}  // namespace
}  // namespace weft::gguf
