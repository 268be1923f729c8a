// Scalar twins of rope.h, in double. Never used to compute anything but what a test expects.
#pragma once

#include <cstdint>

#include "kernels/rope.h"

namespace weft::kernels::ref {

/// out [head_dim] = x [head_dim] rotated to `position`, with cos and sin in double.
void rotate(const RopeParams& params, int32_t position, const float* x, int32_t head_dim,
            double* out);

}  // namespace weft::kernels::ref
