#include "gguf/quantise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace weft::gguf {
namespace {

/// value / step to the nearest integer, kept within [low, high]; 0 for a step of 0.
int nearest(float value, float step, int low, int high) {
  if (step == 0.0f) return 0;
  return std::clamp(static_cast<int>(std::lround(value / step)), low, high);
}

float largest_magnitude(const float* x, int n) {
  float largest = 0.0f;
  for (int i = 0; i < n; ++i) largest = std::max(largest, std::abs(x[i]));
  return largest;
}

/// The element of largest magnitude, with its sign.
float extreme(const float* x, int n) {
  return *std::max_element(x, x + n, [](float a, float b) { return std::abs(a) < std::abs(b); });
}

void quantise_block(const float* x, BlockQ8_0& block) {
  block.d = f16_from_f32(largest_magnitude(x, 32) / 127.0f);
  const float d = f32_from_f16(block.d);
  for (int i = 0; i < 32; ++i) block.qs[i] = static_cast<int8_t>(nearest(x[i], d, -127, 127));
}

/// Q4_0 and Q5_0: the extreme element takes the range's long end, -2^(bits-1).
template <class Block>
void quantise_symmetric(const float* x, Block& block, int half, uint8_t (&q)[32]) {
  block.d = f16_from_f32(extreme(x, 32) / static_cast<float>(-half));
  const float d = f32_from_f16(block.d);
  for (int i = 0; i < 32; ++i) {
    q[i] = static_cast<uint8_t>(nearest(x[i], d, -half, half - 1) + half);
  }
}

/// Q4_1 and Q5_1.
template <class Block>
void quantise_offset(const float* x, Block& block, int max_q, uint8_t (&q)[32]) {
  const auto [low, high] = std::minmax_element(x, x + 32);
  block.m = f16_from_f32(*low);
  const float m = f32_from_f16(block.m);
  block.d = f16_from_f32((*high - m) / static_cast<float>(max_q));
  const float d = f32_from_f16(block.d);
  for (int i = 0; i < 32; ++i) q[i] = static_cast<uint8_t>(nearest(x[i] - m, d, 0, max_q));
}

void pack_nibbles(const uint8_t (&q)[32], uint8_t* qs) {
  for (int j = 0; j < 16; ++j) qs[j] = static_cast<uint8_t>((q[j] & 15) | (q[j + 16] & 15) << 4);
}

void pack_fifth_bits(const uint8_t (&q)[32], uint8_t (&qh)[4]) {
  std::memset(qh, 0, sizeof(qh));
  for (int i = 0; i < 32; ++i) qh[i / 8] |= static_cast<uint8_t>((q[i] >> 4) << (i % 8));
}

void quantise_block(const float* x, BlockQ4_0& block) {
  uint8_t q[32];
  quantise_symmetric(x, block, 8, q);
  pack_nibbles(q, block.qs);
}

void quantise_block(const float* x, BlockQ5_0& block) {
  uint8_t q[32];
  quantise_symmetric(x, block, 16, q);
  pack_nibbles(q, block.qs);
  pack_fifth_bits(q, block.qh);
}

void quantise_block(const float* x, BlockQ4_1& block) {
  uint8_t q[32];
  quantise_offset(x, block, 15, q);
  pack_nibbles(q, block.qs);
}

void quantise_block(const float* x, BlockQ5_1& block) {
  uint8_t q[32];
  quantise_offset(x, block, 31, q);
  pack_nibbles(q, block.qs);
  pack_fifth_bits(q, block.qh);
}

/// The smallest n with n * step >= value, up to `limit`.
int steps_up(float value, float step, int limit) {
  return step == 0.0f ? 0 : std::min(limit, static_cast<int>(std::ceil(value / step)));
}

/// Q4_K and Q5_K: per 32 elements a 6-bit scale and a 6-bit offset below zero, both rounded up so
/// that the sub-block's range is covered. Fills d, dmin and scales; q holds the 256 small integers.
template <class Block>
void quantise_super_block(const float* x, Block& block, int max_q, uint8_t (&q)[256]) {
  float low[8], range[8];
  float lowest = 0.0f;
  for (int s = 0; s < 8; ++s) {
    low[s] = std::max(0.0f, -*std::min_element(x + 32 * s, x + 32 * s + 32));
    lowest = std::max(lowest, low[s]);
  }
  block.dmin = f16_from_f32(lowest / 63.0f);
  const float dmin = f32_from_f16(block.dmin);
  int mins[8], scales[8];
  float widest = 0.0f;
  for (int s = 0; s < 8; ++s) {
    mins[s] = steps_up(low[s], dmin, 63);
    const float high = std::max(0.0f, *std::max_element(x + 32 * s, x + 32 * s + 32));
    range[s] = high + dmin * static_cast<float>(mins[s]);
    widest = std::max(widest, range[s]);
  }
  block.d = f16_from_f32(widest / static_cast<float>(max_q) / 63.0f);
  const float d = f32_from_f16(block.d);
  for (int s = 0; s < 8; ++s) {
    scales[s] = steps_up(range[s] / static_cast<float>(max_q), d, 63);
    const float step = d * static_cast<float>(scales[s]);
    const float offset = dmin * static_cast<float>(mins[s]);
    for (int i = 32 * s; i < 32 * s + 32; ++i) {
      q[i] = static_cast<uint8_t>(nearest(x[i] + offset, step, 0, max_q));
    }
  }
  for (int s = 0; s < 4; ++s) {
    block.scales[s] = static_cast<uint8_t>(scales[s] | (scales[s + 4] >> 4) << 6);
    block.scales[s + 4] = static_cast<uint8_t>(mins[s] | (mins[s + 4] >> 4) << 6);
    block.scales[s + 8] = static_cast<uint8_t>((scales[s + 4] & 15) | (mins[s + 4] & 15) << 4);
  }
  // Byte i of each 32 holds element i of an even sub-block (low nibble) and of the next (high).
  for (int s = 0; s < 8; s += 2) {
    for (int i = 0; i < 32; ++i) {
      block.qs[16 * s + i] =
          static_cast<uint8_t>((q[32 * s + i] & 15) | (q[32 * s + 32 + i] & 15) << 4);
    }
  }
}

void quantise_block(const float* x, BlockQ4_K& block) {
  uint8_t q[256];
  quantise_super_block(x, block, 15, q);
}

void quantise_block(const float* x, BlockQ5_K& block) {
  uint8_t q[256];
  quantise_super_block(x, block, 31, q);
  std::memset(block.qh, 0, sizeof(block.qh));
  for (int i = 0; i < 256; ++i) block.qh[i % 32] |= static_cast<uint8_t>((q[i] >> 4) << (i / 32));
}

void quantise_block(const float* x, BlockQ6_K& block) {
  float widest = 0.0f;
  float steps[16];
  for (int s = 0; s < 16; ++s) {
    steps[s] = largest_magnitude(x + 16 * s, 16) / 31.0f;
    widest = std::max(widest, steps[s]);
  }
  block.d = f16_from_f32(widest / 127.0f);
  const float d = f32_from_f16(block.d);
  uint8_t q[256];
  for (int s = 0; s < 16; ++s) {
    block.scales[s] = static_cast<int8_t>(steps_up(steps[s], d, 127));
    const float step = d * static_cast<float>(block.scales[s]);
    for (int i = 16 * s; i < 16 * s + 16; ++i) {
      q[i] = static_cast<uint8_t>(nearest(x[i], step, -32, 31) + 32);
    }
  }
  // Each half of 128: four runs of 32; the low nibbles pair runs 0 with 2 and 1 with 3.
  for (int half = 0; half < 2; ++half) {
    const uint8_t* h = q + 128 * half;
    for (int i = 0; i < 32; ++i) {
      block.ql[64 * half + i] = static_cast<uint8_t>((h[i] & 15) | (h[i + 64] & 15) << 4);
      block.ql[64 * half + 32 + i] = static_cast<uint8_t>((h[i + 32] & 15) | (h[i + 96] & 15) << 4);
      block.qh[32 * half + i] = static_cast<uint8_t>((h[i] >> 4) | (h[i + 32] >> 4) << 2 |
                                                     (h[i + 64] >> 4) << 4 | (h[i + 96] >> 4) << 6);
    }
  }
}

template <class Block>
void quantise_blocks(std::span<const float> values, size_t block_elements, std::byte* out) {
  WEFT_CHECK(values.size() % block_elements == 0);
  for (size_t i = 0; i < values.size(); i += block_elements, out += sizeof(Block)) {
    Block block;
    quantise_block(values.data() + i, block);
    std::memcpy(out, &block, sizeof(Block));
  }
}

template <class Convert>
void convert_halves(std::span<const float> values, std::byte* out, Convert convert) {
  for (const float value : values) {
    const uint16_t half = convert(value);
    std::memcpy(out, &half, sizeof(half));
    out += sizeof(half);
  }
}

}  // namespace

void quantise(DType dtype, std::span<const float> values, std::byte* out) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out, values.data(), values.size_bytes());
      return;
    case DType::kF16:
      return convert_halves(values, out, f16_from_f32);
    case DType::kBF16:
      return convert_halves(values, out, bf16_from_f32);
    case DType::kQ8_0:
      return quantise_blocks<BlockQ8_0>(values, 32, out);
    case DType::kQ4_0:
      return quantise_blocks<BlockQ4_0>(values, 32, out);
    case DType::kQ4_1:
      return quantise_blocks<BlockQ4_1>(values, 32, out);
    case DType::kQ5_0:
      return quantise_blocks<BlockQ5_0>(values, 32, out);
    case DType::kQ5_1:
      return quantise_blocks<BlockQ5_1>(values, 32, out);
    case DType::kQ4_K:
      return quantise_blocks<BlockQ4_K>(values, 256, out);
    case DType::kQ5_K:
      return quantise_blocks<BlockQ5_K>(values, 256, out);
    case DType::kQ6_K:
      return quantise_blocks<BlockQ6_K>(values, 256, out);
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
    case DType::kMXFP4:
      break;
  }
  WEFT_CHECK(false);
}

}  // namespace weft::gguf
