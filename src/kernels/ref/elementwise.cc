// The formulas of elementwise.h in double, with libm's functions: an error of the kernels'
// polynomials or of their order of sums is then the whole difference.
#include "kernels/ref/elementwise.h"

#include <cmath>
#include <numbers>

namespace weft::kernels::ref {

void rms_norm(const float* x, const float* weight, float eps, int64_t n_rows, int64_t n,
              double* y) {
  for (int64_t r = 0; r < n_rows; ++r) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += double{x[r * n + i]} * x[r * n + i];
    const double norm = std::sqrt(sum / n + eps);
    for (int64_t i = 0; i < n; ++i) y[r * n + i] = x[r * n + i] / norm * weight[i];
  }
}

void silu_multiply(const float* gate, const float* up, int64_t n, double* out) {
  for (int64_t i = 0; i < n; ++i) {
    const double g = gate[i];
    out[i] = g / (1.0 + std::exp(-g)) * up[i];
  }
}

void gelu_multiply(const float* gate, const float* up, int64_t n, double* out) {
  const double root = std::sqrt(2 / std::numbers::pi);
  for (int64_t i = 0; i < n; ++i) {
    const double g = gate[i];
    const double u = root * (g + 0.044715 * g * g * g);
    out[i] = g / (1.0 + std::exp(-2 * u)) * up[i];  // (1 + tanh(u)) / 2, without cancellation
  }
}

void softcap(const float* x, float cap, int64_t n, double* out) {
  for (int64_t i = 0; i < n; ++i) {
    out[i] = double{cap} * std::tanh(double{x[i]} / cap);
  }
}

void log_softmax(const float* logits, int64_t n, double* out) {
  double largest = logits[0];
  for (int64_t i = 1; i < n; ++i) largest = std::fmax(largest, logits[i]);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(logits[i] - largest);
  for (int64_t i = 0; i < n; ++i) out[i] = logits[i] - largest - std::log(sum);
}

}  // namespace weft::kernels::ref
