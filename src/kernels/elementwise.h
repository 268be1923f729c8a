// The small ops of a transformer layer, row by row. Sums run in a fixed order, so a row's result
// does not depend on the other rows nor on the thread count. Matrices are dense (MatrixView), two
// that meet element by element have one shape, and a vector beside one is as long as its rows.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "tensor/matrix_view.h"

namespace weft::kernels {

/// y[r, i] = x[r, i] / sqrt(mean(x[r]^2) + eps) * weight[i]; x, y [n_rows, n]; y may be x.
void rms_norm(const Context& context, MatrixView<const float> x, std::span<const float> weight,
              float eps, MatrixView<float> y);

/// gate[r, i] = silu(gate[r, i]) * up[r, i] (SwiGLU, Shazeer 2020).
void silu_multiply(const Context& context, MatrixView<float> gate, MatrixView<const float> up);

/// gate[r, i] = gelu(gate[r, i]) * up[r, i]: the tanh approximation of GELU, 0.5 x (1 +
/// tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks and Gimpel 2016), as Gemma's GeGLU has it.
void gelu_multiply(const Context& context, MatrixView<float> gate, MatrixView<const float> up);

/// x[r, i] += y[r, i].
void add_in_place(const Context& context, MatrixView<float> x, MatrixView<const float> y);

/// x[r, i] *= factor.
void scale_in_place(const Context& context, MatrixView<float> x, float factor);

/// x[r, i] += bias[i].
void add_bias(const Context& context, MatrixView<float> x, std::span<const float> bias);

/// x[r, i] *= factors[r].
void scale_rows(const Context& context, MatrixView<float> x, std::span<const float> factors);

/// y[i] = x[rows[i]]; y [rows.size(), n].
void gather_rows(const Context& context, MatrixView<const float> x, std::span<const int64_t> rows,
                 MatrixView<float> y);

/// x[rows[i]] += factors[i] * y[i]; y [rows.size(), n]; no row of x twice.
void add_scaled_rows(const Context& context, MatrixView<float> x, std::span<const int64_t> rows,
                     std::span<const float> factors, MatrixView<const float> y);

/// x[r, i] = cap * tanh(x[r, i] / cap); cap > 0 (Gemma 2's final logits).
void softcap_in_place(const Context& context, MatrixView<float> x, float cap);

/// out[i] = log softmax of logits [n], in double inside.
void log_softmax(std::span<const float> logits, std::span<float> out);

}  // namespace weft::kernels
