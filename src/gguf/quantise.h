// Plain float-to-block quantisers, nearest rounding and no search for better scales: for random
// models and tests, where the bits must be valid and the error bounded but the quality is of no
// interest. Block formats: tensor/blocks.h. Pure functions.
#pragma once

#include <cstddef>
#include <span>

#include "tensor/dtype.h"

namespace weft::gguf {

/// Writes row_bytes(dtype, values.size()) bytes to `out`; values is a whole number of blocks of
/// finite numbers. Absolute error per element, with A the largest magnitude in its block, is at
/// most about: Q8_0 A/254, Q4_0 A/8, Q5_0 A/16, Q4_1 A/15, Q5_1 A/31, Q4_K A/15, Q5_K A/31,
/// Q6_K A/62 (half a step; a whole one for Q4_0 and Q5_0, which lack one end of their range).
void quantise(DType dtype, std::span<const float> values, std::byte* out);

}  // namespace weft::gguf
