// Rotates one head of floats, register by register. Only for *_cpu.cc files.
#pragma once

#include "kernels/kv_codec_internal.h"
#include "kernels/simd_internal.h"

namespace weft::kernels::WEFT_ISA {

// Neighbours are pairs: [a0 b0 a1 b1 …] times cos, less (even lanes) or plus (odd lanes) the
// register with its pairs swapped times sin; cos and sin are loaded with each value twice. Dims
// that do not fill a register are left to the scalar loops.
inline void rotate_norm(const RopeRow& row, float* x) {
  int32_t i = 0;
  for (; i + kLanes <= row.n_dims; i += kLanes) {
    const F32 v = load(x + i);
    const F32 c = load_doubled(row.cos + i / 2);
    const F32 s = load_doubled(row.sin + i / 2);
    store(x + i, fmaddsub(v, c, mul(swap_pairs(v), s)));
  }
  for (; i < row.n_dims; i += 2) {
    const float c = row.cos[i / 2], s = row.sin[i / 2];
    const float a = x[i], b = x[i + 1];
    x[i] = a * c - b * s;
    x[i + 1] = b * c + a * s;
  }
}

// Halves are pairs: element i with element n_dims / 2 + i, so a's and b's lie in registers of their
// own and nothing is swapped.
inline void rotate_neox(const RopeRow& row, float* x) {
  const int32_t half = row.n_dims / 2;
  int32_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const F32 a = load(x + i), b = load(x + half + i);
    const F32 c = load(row.cos + i), s = load(row.sin + i);
    store(x + i, sub(mul(a, c), mul(b, s)));
    store(x + half + i, add(mul(b, c), mul(a, s)));
  }
  for (; i < half; ++i) {
    const float c = row.cos[i], s = row.sin[i];
    const float a = x[i], b = x[half + i];
    x[i] = a * c - b * s;
    x[half + i] = b * c + a * s;
  }
}

inline void rotate_head(const RopeRow& row, float* x) {
  if (row.neox) {
    rotate_neox(row, x);
  } else {
    rotate_norm(row, x);
  }
}

}  // namespace weft::kernels::WEFT_ISA
