// The table of expanding functions that dequantize_cpu.cc fills once per instruction set.
#pragma once

#include <cstdint>

#include "kernels/isa.h"

namespace weft::kernels {

/// dst [n] = the n elements at src; src at any address.
using DequantizeFn = void (*)(const void* src, float* dst, int64_t n);

/// By type, found with pick_by_dtype.
struct DequantizeFns {
  DequantizeFn f32, f16, bf16;
  DequantizeFn q8_0, q4_0, q4_1, q5_0, q5_1;
  DequantizeFn q2_k, q3_k, q4_k, q5_k, q6_k;
  DequantizeFn iq4_nl, iq4_xs, mxfp4;
};

WEFT_ISA_TABLE(DequantizeFns, dequantize_fns)

}  // namespace weft::kernels
