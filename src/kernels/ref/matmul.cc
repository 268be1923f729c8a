// Sums in double over weights expanded to float. With them comes the sum of the terms' magnitudes,
// from which tests derive what float arithmetic may be off by: n * epsilon * magnitude, not n *
// epsilon * y, since y may be near 0 where large terms cancel.
#include "kernels/ref/matmul.h"

#include <cmath>
#include <vector>

#include "kernels/ref/dequantize.h"

namespace weft::kernels::ref {

Product dot(const WeightMatrix& weight, int64_t row, std::span<const float> x) {
  std::vector<float> w(weight.in_features);
  dequantize(weight.dtype, weight.row(row), w.data(), weight.in_features);
  Product product;
  for (size_t k = 0; k < w.size(); ++k) {
    const double term = double{x[k]} * w[k];
    product.y += term;
    product.magnitude += std::abs(term);
  }
  return product;
}

void matmul(MatrixView<const float> x, const MatmulOutput& output) {
  for (int64_t r = 0; r < x.rows; ++r) {
    for (int64_t i = 0; i < output.weight->out_features; ++i) {
      output.y.row(r)[i] = dot(*output.weight, i, x.row(r)).y;
    }
  }
}

Product dot_quantised(const WeightMatrix& weight, int64_t row, std::span<const float> x,
                      SecondBytes second_bytes) {
  const size_t n = x.size(), n_blocks = n / kActivationBlock;
  std::vector<int8_t> q(n), residual(n);
  std::vector<uint8_t> outlier(n_blocks);
  std::vector<float> scale(n_blocks), rounded(n);
  std::vector<int32_t> sum(n_blocks);
  quantise_activations(Isa::kBaseline, {x, weight.in_features}, second_bytes,
                       {q.data(), residual.data(), outlier.data(), scale.data(), sum.data()});
  for (size_t k = 0; k < n; ++k) {
    const float units = q[k] + 1.0f * residual[k] / kResidualUnits;
    rounded[k] = units * scale[k / kActivationBlock];
  }
  return dot(weight, row, rounded);
}

}  // namespace weft::kernels::ref
