// The functions that quantise_activations_cpu.cc compiles once per instruction set.
#pragma once

#include <cstdint>

#include "kernels/isa.h"
#include "kernels/quantise_activations.h"

namespace weft::kernels {

/// The limit that every block is above: all have a second byte.
inline constexpr float kAllOutliers = -1.0f;

struct QuantiseActivationsFns {
  /// What the square of a block's largest magnitude must exceed for the block to be an outlier: 2.5
  /// times the mean over the row of n floats, blocks with an infinity or NaN left out.
  float (*outlier_limit)(const float* x, int64_t n);
  /// A row, or a part of one: n floats, a multiple of 32.
  void (*row)(const float* x, int64_t n, float outlier_limit, const QuantisedRows& out);
};

WEFT_ISA_TABLE(QuantiseActivationsFns, quantise_activations_fns)

}  // namespace weft::kernels
