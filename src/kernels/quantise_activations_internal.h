// The function that quantise_activations_cpu.cc compiles once per instruction set.
#pragma once

#include <cstdint>

#include "kernels/isa.h"
#include "kernels/quantise_activations.h"

namespace weft::kernels {

struct QuantiseActivationsFns {
  /// One row of n floats.
  void (*row)(const float* x, int64_t n, int8_t* q, float* scale, int32_t* sum);
};

WEFT_ISA_TABLE(QuantiseActivationsFns, quantise_activations_fns)

}  // namespace weft::kernels
