// What elementwise.cc needs from elementwise_cpu.cc: loops over plain arrays, one thread each.
#pragma once

#include <stdint.h>

#include "kernels/isa.h"

namespace weft::kernels {

/// Shapes and aliasing as in elementwise.h: y of rms_norm may be x, the others work in place.
/// Pointers need not be aligned; no function reads or writes past n.
struct ElementwiseFns {
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n_rows, int64_t n,
                   float* y);
  void (*silu_multiply)(float* gate, const float* up, int64_t n);
  void (*gelu_multiply)(float* gate, const float* up, int64_t n);
  void (*softcap_in_place)(float* x, float cap, int64_t n);
  void (*scale_in_place)(float* x, float factor, int64_t n);
  void (*add_in_place)(float* x, const float* y, int64_t n);
  void (*add_scaled)(float* x, float factor, const float* y, int64_t n);
};

WEFT_ISA_TABLE(ElementwiseFns, elementwise_fns)

}  // namespace weft::kernels
