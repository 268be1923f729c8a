// Each element by itself, its bits found by index arithmetic: slow, and as near to
// tensor/blocks.h's description as code can be. dequantize_cpu.cc goes through a block in the order
// of its bytes instead.
#include "kernels/ref/dequantize.h"

#include <cstring>

#include "base/check.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace weft::kernels::ref {
namespace {

template <class Block>
Block read_block(const void* src, int64_t i) {
  Block block;
  std::memcpy(&block, static_cast<const char*>(src) + i * sizeof block, sizeof block);
  return block;
}

// Of blocks of 32: element j and element j + 16 share a byte.
int nibble(const uint8_t* qs, int j) { return j < 16 ? qs[j] & 15 : qs[j - 16] >> 4; }
int fifth_bit(const uint8_t* qh, int j) { return qh[j / 8] >> (j % 8) & 1; }

struct ScaleMin {
  int scale, min;
};

// Scale and min of sub-block s of Q4_K and Q5_K, six bits each in twelve bytes (dequantize_cpu.cc
// says where).
ScaleMin k_scale(const uint8_t* scales, int s) {
  if (s < 4) return {scales[s] & 63, scales[s + 4] & 63};
  return {(scales[s + 4] & 15) + 16 * (scales[s - 4] >> 6),
          (scales[s + 4] >> 4) + 16 * (scales[s] >> 6)};
}

QuantisedElement element_of_32(DType dtype, const void* src, int64_t block_index, int j) {
  switch (dtype) {
    case DType::kQ8_0: {
      const auto b = read_block<BlockQ8_0>(src, block_index);
      return {b.qs[j], f32_from_f16(b.d), 0};
    }
    case DType::kQ4_0: {
      const auto b = read_block<BlockQ4_0>(src, block_index);
      return {nibble(b.qs, j) - 8, f32_from_f16(b.d), 0};
    }
    case DType::kQ4_1: {
      const auto b = read_block<BlockQ4_1>(src, block_index);
      return {nibble(b.qs, j), f32_from_f16(b.d), -f32_from_f16(b.m)};
    }
    case DType::kQ5_0: {
      const auto b = read_block<BlockQ5_0>(src, block_index);
      return {nibble(b.qs, j) + 16 * fifth_bit(b.qh, j) - 16, f32_from_f16(b.d), 0};
    }
    case DType::kIQ4_NL: {
      const auto b = read_block<BlockIQ4_NL>(src, block_index);
      return {kIq4Values[nibble(b.qs, j)], f32_from_f16(b.d), 0};
    }
    case DType::kMXFP4: {
      const auto b = read_block<BlockMXFP4>(src, block_index);
      return {kMxfp4Values[nibble(b.qs, j)], f32_from_e8m0_half(b.e), 0};
    }
    default: {
      WEFT_CHECK(dtype == DType::kQ5_1);
      const auto b = read_block<BlockQ5_1>(src, block_index);
      return {nibble(b.qs, j) + 16 * fifth_bit(b.qh, j), f32_from_f16(b.d), -f32_from_f16(b.m)};
    }
  }
}

/// Bits 2 * quarter and up of a half's 32 bytes.
int two_bits(const uint8_t* qs, int j) {
  const int half = j / 128, quarter = j % 128 / 32;
  return qs[half * 32 + j % 32] >> (2 * quarter) & 3;
}

QuantisedElement q2_k_element(const BlockQ2_K& b, int j) {
  const uint8_t s = b.scales[j / 16];
  return {two_bits(b.qs, j), f32_from_f16(b.d) * (s & 15), f32_from_f16(b.dmin) * (s >> 4)};
}

QuantisedElement q3_k_element(const BlockQ3_K& b, int j) {
  const int s = j / 16;
  const int low = s < 8 ? b.scales[s] & 15 : b.scales[s - 8] >> 4;
  const int scale = low + 16 * (b.scales[8 + s % 4] >> (2 * (s / 4)) & 3) - 32;
  const int third_bit = b.hmask[j % 32] >> (j / 32) & 1;
  return {two_bits(b.qs, j) + 4 * third_bit - 4, f32_from_f16(b.d) * scale, 0};
}

QuantisedElement iq4_xs_element(const BlockIQ4_XS& b, int j) {
  const int s = j / 32;
  const int low = s % 2 == 0 ? b.scales_l[s / 2] & 15 : b.scales_l[s / 2] >> 4;
  const int scale = low + 16 * (b.scales_h >> (2 * s) & 3) - 32;
  return {kIq4Values[nibble(b.qs + 16 * s, j % 32)], f32_from_f16(b.d) * scale, 0};
}

QuantisedElement element_of_256(DType dtype, const void* src, int64_t block_index, int j) {
  if (dtype == DType::kQ2_K) return q2_k_element(read_block<BlockQ2_K>(src, block_index), j);
  if (dtype == DType::kQ3_K) return q3_k_element(read_block<BlockQ3_K>(src, block_index), j);
  if (dtype == DType::kIQ4_XS) return iq4_xs_element(read_block<BlockIQ4_XS>(src, block_index), j);
  const int s = j / 32;  // sub-block
  const int pair = s / 2 * 32 + j % 32;
  if (dtype == DType::kQ4_K) {
    const auto b = read_block<BlockQ4_K>(src, block_index);
    const ScaleMin k = k_scale(b.scales, s);
    return {b.qs[pair] >> (s % 2 * 4) & 15, f32_from_f16(b.d) * k.scale,
            f32_from_f16(b.dmin) * k.min};
  }
  if (dtype == DType::kQ5_K) {
    const auto b = read_block<BlockQ5_K>(src, block_index);
    const ScaleMin k = k_scale(b.scales, s);
    return {(b.qs[pair] >> (s % 2 * 4) & 15) + 16 * (b.qh[j % 32] >> s & 1),
            f32_from_f16(b.d) * k.scale, f32_from_f16(b.dmin) * k.min};
  }
  WEFT_CHECK(dtype == DType::kQ6_K);
  const auto b = read_block<BlockQ6_K>(src, block_index);
  const int half = j / 128, quarter = j % 128 / 32;
  const int low = b.ql[half * 64 + quarter % 2 * 32 + j % 32] >> (quarter / 2 * 4) & 15;
  const int high = b.qh[half * 32 + j % 32] >> (quarter * 2) & 3;
  return {low + 16 * high - 32, f32_from_f16(b.d) * b.scales[j / 16], 0};
}

}  // namespace

QuantisedElement element(DType dtype, const void* src, int64_t i) {
  const int block_elements = dtype_info(dtype).block_elements;
  const int64_t block_index = i / block_elements;
  const int j = i % block_elements;
  if (block_elements == 32) return element_of_32(dtype, src, block_index, j);
  return element_of_256(dtype, src, block_index, j);
}

void dequantize(DType dtype, const void* src, float* dst, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (is_quantised(dtype)) {
      const QuantisedElement e = element(dtype, src, i);
      dst[i] = e.scale * e.quant - e.min;
    } else if (dtype == DType::kF16) {
      dst[i] = f32_from_f16(read_block<uint16_t>(src, i));
    } else if (dtype == DType::kBF16) {
      dst[i] = f32_from_bf16(read_block<uint16_t>(src, i));
    } else {
      dst[i] = read_block<float>(src, i);
    }
  }
}

}  // namespace weft::kernels::ref
