// Random weights for tests and benchmarks of kernels.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <vector>

#include "tensor/dtype.h"

namespace weft::test {

inline constexpr std::array kAllTypes{DType::kF32,  DType::kF16,    DType::kBF16,   DType::kQ8_0,
                                      DType::kQ4_0, DType::kQ4_1,   DType::kQ5_0,   DType::kQ5_1,
                                      DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,   DType::kQ5_K,
                                      DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4};

/// Byte offsets of a block's half floats; -1 for those that it lacks.
std::array<int, 2> half_offsets(DType dtype);

/// Gives a block `half` as d and, where it has one, as its min; an MXFP4 block 2^-7.
void set_scales(DType dtype, uint8_t* block, uint16_t half);

/// rows * n weights of any type: random integers, scales between 1/256 and 1/128 of either sign,
/// floats between -1 and 1.
std::vector<uint8_t> random_weights(std::mt19937& random, DType dtype, int64_t rows, int64_t n);

}  // namespace weft::test
