// Expands any DType to f32: embedding rows, weight panels, tests.
#pragma once

#include <cstdint>

#include "kernels/isa.h"
#include "tensor/dtype.h"

namespace weft::kernels {

/// dst [n] = the n elements at src; n is a whole number of blocks. Bit-equal to the `gguf` package.
void dequantize(Isa isa, DType dtype, const void* src, float* dst, int64_t n);

}  // namespace weft::kernels
