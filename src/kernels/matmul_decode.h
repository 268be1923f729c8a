// The decode half of matmul(): a few rows against weights as they lie in the file, bound by memory
// bandwidth; with AVX-512 many rows against panels of unpacked weights, as prefill's int8 path.
// Quantised weights meet activations rounded to integers (quantise_activations.h: on the int8 path
// eight bits, fifteen for outliers; on the others fifteen throughout), float weights f32
// activations. Sums are f32. matmul() is the one caller; weights are never copied.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/matmul.h"
#include "kernels/workspace_size.h"

namespace weft::kernels {

/// As matmul(), for one row or more. One parallel region; a row's result is the same bits for any
/// number of rows and threads. Takes about 8 * n_rows * in_features bytes of the workspace.
void matmul_decode(const Context& context, MatrixView<const float> x,
                   std::span<const MatmulOutput> outputs);
/// What that takes of the workspace at most for up to n_rows rows and this weight.
void count_matmul_decode(const Context& context, const WeightMatrix& weight, int64_t n_rows,
                         WorkspaceSize& size);

}  // namespace weft::kernels
