// The plain twin of kernels/kv_codec.h: one element at a time.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace weft::kernels::ref {

/// Element i of a vector of the type at `bytes`.
float kv_element(DType type, const uint8_t* bytes, int64_t i);
/// Makes it `value`, rounded to nearest even; not for types in blocks.
void set_kv_element(DType type, float value, int64_t i, uint8_t* bytes);

/// A vector of n elements, whole blocks where the type has blocks: as GGML quantises, but q8_0's
/// ties go to even.
void set_kv_vector(DType type, const float* values, int64_t n, uint8_t* bytes);

}  // namespace weft::kernels::ref
