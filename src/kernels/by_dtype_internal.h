// One function for each DType: tables of kernels have a member for each, under its lower-case name.
// The one place to add a type to when a table grows.
#pragma once

#include "tensor/dtype.h"

namespace weft::kernels {

/// The member of `fns` for `dtype`.
template <class Fns>
auto pick_by_dtype(const Fns& fns, DType dtype) -> decltype(fns.f32) {
  switch (dtype) {
    case DType::kF32:
      return fns.f32;
    case DType::kF16:
      return fns.f16;
    case DType::kBF16:
      return fns.bf16;
    case DType::kQ8_0:
      return fns.q8_0;
    case DType::kQ4_0:
      return fns.q4_0;
    case DType::kQ4_1:
      return fns.q4_1;
    case DType::kQ5_0:
      return fns.q5_0;
    case DType::kQ5_1:
      return fns.q5_1;
    case DType::kQ4_K:
      return fns.q4_k;
    case DType::kQ5_K:
      return fns.q5_k;
    case DType::kQ6_K:
      return fns.q6_k;
    case DType::kQ2_K:
      return fns.q2_k;
    case DType::kQ3_K:
      return fns.q3_k;
    case DType::kIQ4_NL:
      return fns.iq4_nl;
    case DType::kIQ4_XS:
      return fns.iq4_xs;
    case DType::kMXFP4:
      return fns.mxfp4;
  }
  return nullptr;
}

}  // namespace weft::kernels
