// The angle, cos and sin are computed anew for each pair in double, without a table, so a mistake
// in the table's layout shows too.
#include "kernels/ref/rope.h"

#include <cmath>

namespace weft::kernels::ref {

void rotate(const RopeParams& params, int32_t position, const float* x, int32_t head_dim,
            double* out) {
  for (int32_t i = 0; i < head_dim; ++i) out[i] = x[i];
  const int32_t half = params.n_dims / 2;
  for (int32_t i = 0; i < half; ++i) {
    const bool neox = params.pairing == RopePairing::kNeox;
    const int32_t first = neox ? i : 2 * i;
    const int32_t second = neox ? i + half : 2 * i + 1;
    const double angle = position * params.inverse_frequencies[i];
    const double c = std::cos(angle) * params.magnitude;
    const double s = std::sin(angle) * params.magnitude;
    out[first] = x[first] * c - x[second] * s;
    out[second] = x[second] * c + x[first] * s;
  }
}

}  // namespace weft::kernels::ref
