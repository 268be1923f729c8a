// Expands any DType to f32: embedding rows, weight panels, tests.
#pragma once

#include <cstdint>

#include "kernels/isa.h"
#include "tensor/dtype.h"

namespace weft::kernels {

/// dst [n] = the n elements at src; n is a whole number of blocks; src at any address. Bit-equal to
/// the `gguf` package, so that a file's values are what other programs read in it. Any thread.
void dequantize(Isa isa, DType dtype, const void* src, float* dst, int64_t n);

}  // namespace weft::kernels
