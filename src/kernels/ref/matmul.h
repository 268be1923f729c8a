// Plain scalar twins of kernels/matmul.h: what tests compare with. Never used to compute an answer.
#pragma once

#include <cstdint>

#include "kernels/matmul.h"
#include "kernels/quantise_activations.h"

namespace weft::kernels::ref {

/// One output and what bounds its error: y = x . w, and magnitude = sum of |x[k] * w[k]|.
struct Product {
  double y = 0;
  double magnitude = 0;
};

/// Row `row` of the weights expanded to f32, times x [in_features], summed in double.
Product dot(const WeightMatrix& weight, int64_t row, const float* x);

/// y[r * y_stride + i] = x[r] . w[i], rounded to f32 once.
void matmul(const float* x, int64_t x_stride, int64_t n_rows, const MatmulOutput& output);

/// The same for quantised weights with x rounded as quantise_activations() does.
Product dot_quantised(const WeightMatrix& weight, int64_t row, const float* x, WideBlocks wide);

}  // namespace weft::kernels::ref
