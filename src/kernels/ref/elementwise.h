// Scalar twins of elementwise.h, in double: what the tests compare the kernels with. Never used to
// compute anything else.
#pragma once

#include <cstdint>

namespace weft::kernels::ref {

/// y [n_rows, n] = x / sqrt(mean(x^2) + eps) * weight, row by row.
void rms_norm(const float* x, const float* weight, float eps, int64_t n_rows, int64_t n, double* y);
/// out [n] = silu(gate) * up.
void silu_multiply(const float* gate, const float* up, int64_t n, double* out);
/// out [n] = gelu(gate) * up, GELU by tanh.
void gelu_multiply(const float* gate, const float* up, int64_t n, double* out);
/// out [n] = cap * tanh(x / cap).
void softcap(const float* x, float cap, int64_t n, double* out);
/// out [n] = logits - log(sum of exp(logits)), the largest taken off first.
void log_softmax(const float* logits, int64_t n, double* out);

}  // namespace weft::kernels::ref
