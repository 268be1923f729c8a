// What rope.cc needs from rope_cpu.cc: plain arrays, one thread each.
#pragma once

#include <stdint.h>

#include "kernels/isa.h"
#include "kernels/kv_codec_internal.h"

namespace weft::kernels {

struct RopeFns {
  /// All heads of a row have the same angles. In place: x [n_heads][head_dim].
  void (*rotate)(const RopeRow& row, float* x, int32_t n_heads, int32_t head_dim);
};

WEFT_ISA_TABLE(RopeFns, rope_fns)

}  // namespace weft::kernels
