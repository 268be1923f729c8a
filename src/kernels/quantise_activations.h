// Rounds activations to small integers, so that products with quantised weights are integer dots:
// one scale for 32 values and eight bits for each, or fifteen in the few blocks that would
// otherwise lose most. Both matmul halves use it, so both see the same integers.
//
// Why fifteen: activations have outliers. In SmolLM2 a tenth of a row's blocks holds more than half
// of the squared rounding error that eight bits everywhere would make; a second byte for those
// takes the logits' KL from exact arithmetic from 2.4e-3 to 0.7e-3, for some 10 % of prefill's
// speed.
//
// A value's first byte is `q`, the second byte, of outlier blocks only, is the `residual`. Example:
// a block whose largest magnitude is 12.7 has the scale 0.1; 0.5334 is q = 5 (0.5), an error of
// 0.033. With a second byte it counts in 0.1 / 128: round(0.5334 * 1280) = 683 = 128 * 5 + 43, so
// the residual is 43 and the value is 0.53359.
#pragma once

#include <cstdint>

#include "kernels/isa.h"

namespace weft {
template <class T>
struct MatrixView;  // tensor/matrix_view.h: kernels compiled per instruction set include this file
}

namespace weft::kernels {

inline constexpr int64_t kActivationBlock = 32;
/// What a residual counts in: 1 / kResidualUnits of its `q`.
inline constexpr int kResidualShift = 7;
inline constexpr int32_t kResidualUnits = 1 << kResidualShift;

/// Which blocks get a second byte.
enum class SecondBytes {
  kOutliers,  // those whose largest magnitude, squared, is over 2.5 times the row's mean
  kAll,
};

/// Where quantised rows go; the caller's memory. The sums are for types with an offset or a min.
/// Row r starts at q + r * n, scale + r * n/32 and so on. x is about scale * (q + residual /
/// kResidualUnits).
struct QuantisedRows {
  int8_t* q = nullptr;         // [n_rows][n], -127 … 127
  int8_t* residual = nullptr;  // [n_rows][n], -64 … 63; zeros in blocks without a second byte
  uint8_t* outlier = nullptr;  // [n_rows][n/32]: has the block a second byte?
  float* scale = nullptr;      // [n_rows][n/32], largest magnitude / 127
  int32_t* sum = nullptr;      // [n_rows][n/32], of kResidualUnits * q + residual
};

/// x [n_rows, n]; n is a multiple of 32. Rounds to nearest even; the same integers on every
/// instruction set, whatever the other rows are. Any thread. A block whose largest magnitude is
/// below 1e-30 becomes zeros; one with an infinity or NaN gets the scale NaN, so that it shows in
/// every product.
void quantise_activations(Isa isa, MatrixView<const float> x, SecondBytes second_bytes,
                          const QuantisedRows& out);

}  // namespace weft::kernels
