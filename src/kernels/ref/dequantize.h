// The plain scalar twin of kernels/dequantize.h, one element at a time: what tests compare with.
// Never used to compute an answer.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace weft::kernels::ref {

/// Element i of a row of blocks as an exact pair of small integers and floats: value =
/// scale * quant - min, evaluated in f32 in that order.
struct QuantisedElement {
  int32_t quant = 0;  // offset removed (Q4_0: -8 … 7)
  float scale = 0;
  float min = 0;  // what is subtracted; -m for Q4_1 and Q5_1
};

/// dtype must be quantised.
QuantisedElement element(DType dtype, const void* src, int64_t i);

/// As kernels::dequantize.
void dequantize(DType dtype, const void* src, float* dst, int64_t n);

}  // namespace weft::kernels::ref
