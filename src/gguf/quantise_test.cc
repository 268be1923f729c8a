#include "gguf/quantise.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "base/narrow.h"
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
  return f32_from_f16(b.d) * (scale * q) - f32_from_f16(b.dmin) * min;
}

float element(const BlockQ8_0& b, int i) { return f32_from_f16(b.d) * b.qs[i]; }
float element(const BlockQ4_0& b, int i) { return f32_from_f16(b.d) * (nibble32(b.qs, i) - 8); }
float element(const BlockQ4_1& b, int i) {
  return f32_from_f16(b.d) * nibble32(b.qs, i) + f32_from_f16(b.m);
}
float element(const BlockQ5_0& b, int i) {
  return f32_from_f16(b.d) * ((nibble32(b.qs, i) | fifth32(b.qh, i)) - 16);
}
float element(const BlockQ5_1& b, int i) {
  return f32_from_f16(b.d) * (nibble32(b.qs, i) | fifth32(b.qh, i)) + f32_from_f16(b.m);
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
  return f32_from_f16(b.d) * (b.scales[i / 16] * ((low | high << 4) - 32));
}

/// Largest error over blocks of normal numbers in units of the block's largest magnitude.
template <class Block>
float largest_error(DType dtype, int block_elements) {
  constexpr int kBlocks = 64;
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.2f, 1.0f);
  std::vector<float> x(kBlocks * block_elements);
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
      const float error = std::abs(element(blocks[b], i) - block[i]);
      largest = std::max(largest, error / magnitude);
    }
  }
  return largest;
}

// The header's bounds, and up to 2^-11 of the value for the scale's rounding to a half float, which
// the integers don't know of: 12 % of half a step at 127 steps, 3 % at 31.
TEST(Quantise, ErrorsStayWithinHalfAStep) {
  EXPECT_LE(largest_error<BlockQ8_0>(DType::kQ8_0, 32), 1.13f / 254);
  EXPECT_LE(largest_error<BlockQ4_0>(DType::kQ4_0, 32), 1.04f / 8);
  EXPECT_LE(largest_error<BlockQ5_0>(DType::kQ5_0, 32), 1.04f / 16);
  EXPECT_LE(largest_error<BlockQ4_1>(DType::kQ4_1, 32), 1.04f / 15);
  EXPECT_LE(largest_error<BlockQ5_1>(DType::kQ5_1, 32), 1.04f / 31);
}

struct Golden {
  std::string name;
  std::vector<float> values;
  std::string bytes;  // hexadecimal
};

std::vector<Golden> read_golden() {
  std::ifstream file(WEFT_SOURCE_DIR "/src/gguf/testdata/quantise.txt");
  std::vector<Golden> all;
  for (std::string name, bits; std::getline(file, name);) {
    Golden golden{name, {}, {}};
    std::getline(file, bits);
    std::getline(file, golden.bytes);
    std::istringstream stream(bits);
    for (std::string word; stream >> word;) {
      golden.values.push_back(
          std::bit_cast<float>(narrow<uint32_t>(std::stoul(word, nullptr, 16))));
    }
    all.push_back(std::move(golden));
  }
  return all;
}

std::string hex_of(std::span<const std::byte> bytes) {
  std::string hex;
  for (const std::byte b : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    hex += kDigits[std::to_integer<int>(b) >> 4];
    hex += kDigits[std::to_integer<int>(b) & 15];
  }
  return hex;
}

/// Block by block, so that a failure shows one.
void expect_golden(std::span<const Golden> all) {
  for (const Golden& golden : all) {
    const DTypeInfo* info = find_dtype(golden.name);
    ASSERT_NE(info, nullptr) << golden.name;
    const size_t block_elements = info->block_elements;
    const size_t block_bytes = info->block_bytes;
    const size_t n_blocks = golden.values.size() / block_elements;
    ASSERT_EQ(golden.bytes.size(), 2 * n_blocks * block_bytes) << golden.name;
    std::vector<std::byte> bytes(n_blocks * block_bytes);
    quantise(info->dtype, golden.values, bytes.data());
    for (size_t i = 0; i < n_blocks; ++i) {
      EXPECT_EQ(hex_of(std::span(bytes).subspan(i * block_bytes, block_bytes)),
                golden.bytes.substr(2 * i * block_bytes, 2 * block_bytes))
          << golden.name << ", block " << i;
    }
  }
}

constexpr size_t kPlainTypes = 7, kSearchedTypes = 3;

TEST(Quantise, PlainTypesEqualTheGgufPackage) {
  const std::vector<Golden> all = read_golden();
  ASSERT_EQ(all.size(), kPlainTypes + kSearchedTypes);
  expect_golden(std::span(all).first(kPlainTypes));
}

// tools/make_quantise_vectors.py has the search once more, in Python and in 64-bit floats. These
// bytes are what files of K types are made of: a change of the search shows here first.
TEST(Quantise, KTypesEqualTheSearchInPython) {
  const std::vector<Golden> all = read_golden();
  ASSERT_EQ(all.size(), kPlainTypes + kSearchedTypes);
  expect_golden(std::span(all).last(kSearchedTypes));
}

template <class Block>
std::vector<float> there_and_back(DType dtype, const std::vector<float>& x) {
  std::vector<Block> blocks(x.size() / 256);
  quantise(dtype, x, std::as_writable_bytes(std::span(blocks)).data());
  std::vector<float> back;
  for (const Block& block : blocks) {
    for (int i = 0; i < 256; ++i) back.push_back(element(block, i));
  }
  return back;
}

double squared_error(const std::vector<float>& x, const std::vector<float>& y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    sum += std::pow(double{x[i]} - y[i], 2);
  }
  return sum;
}

/// An even grid of `steps` steps over each `n` elements' range, zero included, its ends exact.
std::vector<float> even_grid(const std::vector<float>& x, int n, int steps, bool symmetric) {
  std::vector<float> y;
  for (size_t begin = 0; begin < x.size(); begin += n) {
    float low = 0, high = 0;
    for (int i = 0; i < n; ++i) {
      low = std::min(low, x[begin + i]);
      high = std::max(high, x[begin + i]);
    }
    if (symmetric) low = -(high = std::max(high, -low));
    const float step = (high - low) / steps;
    for (int i = 0; i < n; ++i) {
      y.push_back(low + step * std::round((x[begin + i] - low) / step));
    }
  }
  return y;
}

TEST(Quantise, TheSearchBeatsAnEvenGridWithExactEnds) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal(0.0f, 0.05f);
  std::vector<float> x(256 * 64);
  for (float& value : x) value = normal(random);
  EXPECT_LT(squared_error(x, there_and_back<BlockQ4_K>(DType::kQ4_K, x)),
            squared_error(x, even_grid(x, 32, 15, false)));
  EXPECT_LT(squared_error(x, there_and_back<BlockQ5_K>(DType::kQ5_K, x)),
            squared_error(x, even_grid(x, 32, 31, false)));
  EXPECT_LT(squared_error(x, there_and_back<BlockQ6_K>(DType::kQ6_K, x)),
            squared_error(x, even_grid(x, 16, 62, true)));
}

TEST(Quantise, OddBlocksStayFiniteAndClose) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  for (const float value : {0.0f, 1.0f, -1.0f, 1e-30f, tiny, -tiny, 65504.0f, -65504.0f}) {
    for (const bool alternating : {false, true}) {
      std::vector<float> x(256, value);
      for (size_t i = 1; alternating && i < x.size(); i += 2) x[i] = -value;
      const double most = 0.05 * std::abs(double{value}) + 1e-6;
      for (const auto& back :
           {there_and_back<BlockQ4_K>(DType::kQ4_K, x), there_and_back<BlockQ5_K>(DType::kQ5_K, x),
            there_and_back<BlockQ6_K>(DType::kQ6_K, x)}) {
        for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(back[i], x[i], most) << value;
      }
    }
  }
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
