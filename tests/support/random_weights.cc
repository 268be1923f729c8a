#include "support/random_weights.h"

#include <cstddef>
#include <cstring>

#include "tensor/blocks.h"
#include "tensor/half.h"

namespace weft::test {

std::array<int, 2> half_offsets(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ2_K:
      return {offsetof(BlockQ2_K, d), offsetof(BlockQ2_K, dmin)};
    case DType::kQ3_K:
      return {offsetof(BlockQ3_K, d), -1};
    case DType::kQ6_K:
      return {offsetof(BlockQ6_K, d), -1};
    case DType::kMXFP4:
      return {-1, -1};
    default:
      return {0, -1};
  }
}

void set_scales(DType dtype, uint8_t* block, uint16_t half) {
  for (const int offset : half_offsets(dtype)) {
    if (offset >= 0) std::memcpy(block + offset, &half, sizeof half);
  }
  if (dtype == DType::kMXFP4) block[offsetof(BlockMXFP4, e)] = 128 - 7;
}

std::vector<uint8_t> random_weights(std::mt19937& random, DType dtype, int64_t rows, int64_t n) {
  std::vector<uint8_t> bytes(rows * row_bytes(dtype, n));
  const DTypeInfo& info = dtype_info(dtype);
  const int64_t count = std::ssize(bytes) / info.block_bytes;
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  for (int64_t i = 0; i < count && info.block_elements == 1; ++i) {
    const float value = uniform(random);
    const uint16_t half = dtype == DType::kF16 ? f16_from_f32(value) : bf16_from_f32(value);
    uint8_t* element = bytes.data() + i * info.block_bytes;
    if (dtype == DType::kF32) {
      std::memcpy(element, &value, sizeof value);
    } else {
      std::memcpy(element, &half, sizeof half);
    }
  }
  if (info.block_elements == 1) return bytes;
  for (uint8_t& byte : bytes) byte = random();
  for (int64_t i = 0; i < count; ++i) {
    uint8_t* block = bytes.data() + i * info.block_bytes;
    if (dtype == DType::kMXFP4) {
      block[offsetof(BlockMXFP4, e)] = 118 + random() % 3;
    }
    for (const int offset : half_offsets(dtype)) {
      if (offset < 0) continue;
      const float sign = random() % 2 == 0 ? 1.0f : -1.0f;
      const uint16_t half = f16_from_f32(sign * (3.0f + uniform(random)) / 512.0f);
      std::memcpy(block + offset, &half, sizeof half);
    }
  }
  return bytes;
}

}  // namespace weft::test
