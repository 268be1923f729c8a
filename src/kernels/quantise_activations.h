// Rounds activations to eight bits, so that products with quantised weights are integer dots: one
// scale for 32 values. Both matmul halves use it, so both see the same integers.
#pragma once

#include <cstdint>

#include "kernels/isa.h"

namespace weft::kernels {

inline constexpr int64_t kActivationBlock = 32;

/// Where quantised rows go; the caller's memory. Row r starts at q + r * n, scale + r * n/32 and
/// sum + r * n/32.
struct QuantisedRows {
  int8_t* q = nullptr;     // [n_rows][n], -127 … 127; x is about q * scale
  float* scale = nullptr;  // [n_rows][n/32], largest magnitude / 127
  int32_t* sum = nullptr;  // [n_rows][n/32], the sum of the block's q, for types with an offset
};

/// x [n_rows, n], rows x_stride floats apart; n is a multiple of 32. Rounds to nearest even; the
/// same integers on every instruction set, whatever the other rows and blocks are. A block whose
/// largest magnitude is below 1e-30 becomes zeros; one with an infinity or NaN gets the scale NaN,
/// so that it shows in every product.
void quantise_activations(Isa isa, const float* x, int64_t x_stride, int64_t n_rows, int64_t n,
                          const QuantisedRows& out);

}  // namespace weft::kernels
