#include "kernels/paged_kv.h"
#include "kernels/rope_internal.h"
#include "kernels/simd_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

// Dims that do not fill a register are left to the scalar loops.
void rotate_norm(const RopeRow& row, float* x) {
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

void rotate_neox(const RopeRow& row, float* x) {
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

void rotate_head(const RopeRow& row, float* x) {
  if (row.neox) {
    rotate_neox(row, x);
  } else {
    rotate_norm(row, x);
  }
}

void rotate(const RopeRow& row, float* x, int32_t n_heads, int32_t head_dim) {
  for (int32_t h = 0; h < n_heads; ++h) rotate_head(row, x + static_cast<int64_t>(h) * head_dim);
}

void rotate_f16(const RopeRow& row, const uint16_t* k_src, uint16_t* k_dst, int32_t head_dim) {
  float x[kMaxHeadDim];
  widen_array(k_src, head_dim, x);
  rotate_head(row, x);
  narrow_array(x, head_dim, k_dst);
}

// head_dim is a multiple of 8 and may not fill the last register.
void widen_and_shift(const uint16_t* src, const float* shift, int32_t head_dim, float* x) {
  widen_array(src, head_dim, x);
  int32_t i = 0;
  for (; i + kLanes <= head_dim; i += kLanes) store(x + i, add(load(x + i), load(shift + i)));
  for (; i < head_dim; ++i) x[i] += shift[i];
}

void shift_rotate_f16(const RopeRow& row, const uint16_t* k_src, const float* shift,
                      uint16_t* k_dst, int32_t head_dim) {
  float x[kMaxHeadDim];
  widen_and_shift(k_src, shift, head_dim, x);
  rotate_head(row, x);
  narrow_array(x, head_dim, k_dst);
}

void shift_f16(const uint16_t* v_src, const float* shift, uint16_t* v_dst, int32_t head_dim) {
  float x[kMaxHeadDim];
  widen_and_shift(v_src, shift, head_dim, x);
  narrow_array(x, head_dim, v_dst);
}

}  // namespace

const RopeFns& rope_fns() {
  static constexpr RopeFns kFns = {rotate, rotate_f16, shift_rotate_f16, shift_f16};
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA
