#include "kernels/ref/matmul.h"

#include <cmath>
#include <vector>

#include "kernels/ref/dequantize.h"

namespace weft::kernels::ref {

Product dot(const WeightMatrix& weight, int64_t row, const float* x) {
  std::vector<float> w(static_cast<size_t>(weight.in_features));
  const auto* data = static_cast<const uint8_t*>(weight.data);
  dequantize(weight.dtype, data + row * row_bytes(weight.dtype, weight.in_features), w.data(),
             weight.in_features);
  Product product;
  for (size_t k = 0; k < w.size(); ++k) {
    const double term = static_cast<double>(x[k]) * static_cast<double>(w[k]);
    product.y += term;
    product.magnitude += std::abs(term);
  }
  return product;
}

void matmul(const float* x, int64_t x_stride, int64_t n_rows, const MatmulOutput& output) {
  for (int64_t r = 0; r < n_rows; ++r) {
    for (int64_t i = 0; i < output.weight->out_features; ++i) {
      output.y[r * output.y_stride + i] =
          static_cast<float>(dot(*output.weight, i, x + r * x_stride).y);
    }
  }
}

Product dot_quantised(const WeightMatrix& weight, int64_t row, const float* x, WideBlocks wide) {
  const auto n = static_cast<size_t>(weight.in_features), n_blocks = n / kActivationBlock;
  std::vector<int8_t> q(n), rest(n);
  std::vector<uint8_t> is_wide(n_blocks);
  std::vector<float> scale(n_blocks), rounded(n);
  std::vector<int32_t> sum(n_blocks);
  quantise_activations(Isa::kBaseline, x, weight.in_features, 1, weight.in_features, wide,
                       {q.data(), rest.data(), is_wide.data(), scale.data(), sum.data()});
  for (size_t k = 0; k < n; ++k) {
    const float units = static_cast<float>(q[k]) + static_cast<float>(rest[k]) / kRestUnits;
    rounded[k] = units * scale[k / kActivationBlock];
  }
  return dot(weight, row, rounded.data());
}

}  // namespace weft::kernels::ref
