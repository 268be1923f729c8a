// By tensor/half.h's portable conversions, which half_test.cc tries on every bit pattern; bytes are
// copied, so that vectors may lie at any address.
#include "kernels/ref/kv_codec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace weft::kernels::ref {

float kv_element(DType type, const uint8_t* bytes, int64_t i) {
  if (type == DType::kF32) {
    float value;
    std::memcpy(&value, bytes + 4 * i, sizeof(value));
    return value;
  }
  if (type == DType::kQ8_0) {
    BlockQ8_0 block;
    std::memcpy(&block, bytes + i / 32 * 34, sizeof(block));
    return f32_from_f16(block.d) * block.qs[i % 32];
  }
  if (type == DType::kQ4_0) {
    BlockQ4_0 block;
    std::memcpy(&block, bytes + i / 32 * 18, sizeof(block));
    const int nibbles = block.qs[i % 16];
    return f32_from_f16(block.d) * ((i % 32 < 16 ? nibbles & 15 : nibbles >> 4) - 8);
  }
  uint16_t bits;
  std::memcpy(&bits, bytes + 2 * i, sizeof(bits));
  WEFT_CHECK(type == DType::kF16 || type == DType::kBF16);
  return type == DType::kF16 ? f32_from_f16(bits) : f32_from_bf16(bits);
}

void set_kv_element(DType type, float value, int64_t i, uint8_t* bytes) {
  if (type == DType::kF32) {
    std::memcpy(bytes + 4 * i, &value, sizeof(value));
    return;
  }
  WEFT_CHECK(type == DType::kF16 || type == DType::kBF16);
  const uint16_t bits = type == DType::kF16 ? f16_from_f32(value) : bf16_from_f32(value);
  std::memcpy(bytes + 2 * i, &bits, sizeof(bits));
}

namespace {

/// x / scale, to the nearest of -127 … 127.
float q8_0_code(float x, float inverse) {
  return std::clamp(std::nearbyint(x * inverse), -127.0f, 127.0f);
}

/// The sum of 32 values by halves: an order that registers of any length can follow.
float sum_by_halves(std::array<float, 32> x) {
  for (size_t n = 16; n > 0; n /= 2) {
    for (size_t i = 0; i < n; ++i) x[i] += x[i + n];
  }
  return x[0];
}

/// Of 16 scales, as f16 has them, at which the largest magnitude is 127.4, 126.9, … 119.9, the
/// first with the least sum of squared errors; 0 where no sum is a number.
float q8_0_scale(const float* x, float largest) {
  float least = std::numeric_limits<float>::infinity(), best = 0;
  for (int c = 0; c < 16; ++c) {
    const float scale = f32_from_f16(f16_from_f32(largest / (127.4f - 0.5f * c)));
    std::array<float, 32> errors;
    for (int i = 0; i < 32; ++i) {
      const float product = q8_0_code(x[i], 1.0f / scale) * scale;
      errors[i] = (x[i] - product) * (x[i] - product);
    }
    const float sum = sum_by_halves(errors);
    if (sum < least) {
      least = sum;
      best = scale;
    }
  }
  return best;
}

/// What is not finite, or has a scale that is not, makes its whole block NaN or infinite.
void set_q8_0(const float* x, uint8_t* bytes) {
  float most = 0;
  for (int i = 0; i < 32; ++i) {
    if (std::abs(x[i]) > most || std::isnan(x[i])) most = std::abs(x[i]);
  }
  const float plain = most / 127;
  const bool is_normal = plain >= 0x1p-14f && plain < 65504;
  const float best = is_normal ? q8_0_scale(x, most) : 0;
  const float scale = best > 0 ? best : plain;
  const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
  BlockQ8_0 block{.d = f16_from_f32(scale), .qs = {}};
  for (int i = 0; i < 32; ++i) {
    const float q = best > 0 ? q8_0_code(x[i], inverse) : std::nearbyint(x[i] * inverse);
    block.qs[i] = std::abs(q) <= 127 ? static_cast<int8_t>(q) : 127;
  }
  std::memcpy(bytes, &block, sizeof(block));
}

void set_q4_0(const float* x, uint8_t* bytes) {
  float most = 0;
  for (int i = 0; i < 32; ++i) {
    if (std::abs(x[i]) > std::abs(most) || std::isnan(x[i])) most = x[i];
  }
  const float scale = most / -8;
  const float inverse = scale == 0 ? 0.0f : 1.0f / scale;
  BlockQ4_0 block{.d = f16_from_f32(scale), .qs = {}};
  for (int i = 0; i < 32; ++i) {
    const float q = x[i] * inverse + 8.5f;
    const int nibble = q >= 0 && q < 16 ? static_cast<int>(q) : 15;
    block.qs[i % 16] |= i < 16 ? nibble : nibble << 4;
  }
  std::memcpy(bytes, &block, sizeof(block));
}

}  // namespace

void set_kv_vector(DType type, const float* values, int64_t n, uint8_t* bytes) {
  if (!is_quantised(type)) {
    for (int64_t i = 0; i < n; ++i) set_kv_element(type, values[i], i, bytes);
    return;
  }
  WEFT_CHECK(n % 32 == 0);
  for (int64_t i = 0; i < n; i += 32) {
    if (type == DType::kQ8_0) {
      set_q8_0(values + i, bytes + row_bytes(type, i));
    } else {
      WEFT_CHECK(type == DType::kQ4_0);
      set_q4_0(values + i, bytes + row_bytes(type, i));
    }
  }
}

}  // namespace weft::kernels::ref
