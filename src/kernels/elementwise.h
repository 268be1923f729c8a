// The small ops of a transformer layer, row by row. Sums run in a fixed order, so a row's result
// does not depend on the other rows nor on the thread count.
#pragma once

#include <cstdint>

#include "kernels/context.h"

namespace weft::kernels {

/// y[r, i] = x[r, i] / sqrt(mean(x[r]^2) + eps) * weight[i]; x, y [n_rows, n]; y may be x.
void rms_norm(const Context& context, const float* x, const float* weight, float eps,
              int64_t n_rows, int64_t n, float* y);

/// gate[r, i] = silu(gate[r, i]) * up[r, i]; [n_rows, n] (SwiGLU, Shazeer 2020).
void silu_multiply(const Context& context, float* gate, const float* up, int64_t n_rows, int64_t n);

/// gate[r, i] = gelu(gate[r, i]) * up[r, i]; [n_rows, n]: the tanh approximation of GELU, 0.5 x (1
/// + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel 2016), as Gemma's GeGLU has it.
void gelu_multiply(const Context& context, float* gate, const float* up, int64_t n_rows, int64_t n);

/// x[i] += y[i] for i < n.
void add_in_place(const Context& context, float* x, const float* y, int64_t n);

/// x[i] *= factor for i < n.
void scale_in_place(const Context& context, float* x, float factor, int64_t n);

/// x[r, i] += bias[i]; x [n_rows, n].
void add_bias(const Context& context, float* x, const float* bias, int64_t n_rows, int64_t n);

/// x[r, i] *= factors[r]; x [n_rows, n].
void scale_rows(const Context& context, float* x, const float* factors, int64_t n_rows, int64_t n);

/// y[i] = x[rows[i]]; y [n_rows, n].
void gather_rows(const Context& context, const float* x, const int64_t* rows, int64_t n_rows,
                 int64_t n, float* y);

/// x[rows[i]] += factors[i] * y[i]; y [n_rows, n]; no row of x twice.
void add_scaled_rows(const Context& context, float* x, const int64_t* rows, const float* factors,
                     const float* y, int64_t n_rows, int64_t n);

/// x[i] = cap * tanh(x[i] / cap) for i < n; cap > 0 (Gemma 2's final logits).
void softcap_in_place(const Context& context, float* x, float cap, int64_t n);

/// out[i] = log softmax of logits [n], in double inside.
void log_softmax(const float* logits, int64_t n, float* out);

}  // namespace weft::kernels
