// What rope.cc needs from rope_cpu.cc: plain arrays, one thread each.
#pragma once

#include <stdint.h>

#include "kernels/isa.h"

namespace weft::kernels {

/// One row of a RopeTable: cos, sin [n_dims/2].
struct RopeRow {
  const float* cos;
  const float* sin;
  int32_t n_dims;
  bool neox;  // pairs halves, not neighbours
};

struct RopeFns {
  /// In place: x [n_heads][head_dim].
  void (*rotate)(const RopeRow& row, float* x, int32_t n_heads, int32_t head_dim);
  /// k_dst [head_dim] f16 = k_src [head_dim] f16 rotated, through f32.
  void (*rotate_f16)(const RopeRow& row, const uint16_t* k_src, uint16_t* k_dst, int32_t head_dim);
  /// The same after adding shift [head_dim].
  void (*shift_rotate_f16)(const RopeRow& row, const uint16_t* k_src, const float* shift,
                           uint16_t* k_dst, int32_t head_dim);
  /// v_dst [head_dim] f16 = v_src [head_dim] f16 + shift [head_dim], through f32.
  void (*shift_f16)(const uint16_t* v_src, const float* shift, uint16_t* v_dst, int32_t head_dim);
};

WEFT_ISA_TABLE(RopeFns, rope_fns)

}  // namespace weft::kernels
