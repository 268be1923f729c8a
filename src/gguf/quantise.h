// Floats to GGML's blocks (tensor/blocks.h): plain types bit for bit as the `gguf` package and
// llama.cpp's reference rounding make them, K types by a search for the scales with the least
// weighted squared error. Pure functions; nothing here knows of files or of which tensor gets which
// type (gguf/recipe.h).
#pragma once

#include <cstddef>
#include <span>

#include "tensor/dtype.h"

namespace weft::gguf {

/// The magnitude that values must not exceed for types other than F32 and BF16, so that scales fit
/// half floats.
inline constexpr float kLargestQuantisable = 65504.0f;

/// Whether weft writes the type: floats, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K.
bool can_quantise(DType dtype);

/// Writes row_bytes(dtype, values.size()) bytes to `out`; values is a whole number of blocks of
/// finite numbers, none above kLargestQuantisable. Absolute error per element, with A the largest
/// magnitude in its block, is at most about: Q8_0 A/254, Q4_0 A/8, Q5_0 A/16, Q4_1 A/15, Q5_1 A/31.
/// The K types have no such bound: they let a few elements be far off so that most are nearer. Over
/// normal numbers their squared error is below that of an even grid over each sub-block's range.
/// Aborts for a type that can_quantise refuses. Any thread.
void quantise(DType dtype, std::span<const float> values, std::byte* out);

}  // namespace weft::gguf
