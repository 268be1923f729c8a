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
Product dot(const WeightMatrix& weight, int64_t row, std::span<const float> x);

/// y[r, i] = x[r] . w[i], rounded to f32 once.
void matmul(MatrixView<const float> x, const MatmulOutput& output);

/// The same for quantised weights with x rounded as quantise_activations() does.
Product dot_quantised(const WeightMatrix& weight, int64_t row, std::span<const float> x,
                      SecondBytes second_bytes);

}  // namespace weft::kernels::ref
