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

/// Reads 16-bit halves as they are, or with a shift added to each; kShifted is known when compiled.
template <bool kShifted>
struct Halves {
  const uint16_t* src;
  const float* shift;
  F32 at(int32_t i) const {
    const F32 x = widen(src + i);
    return kShifted ? add(x, load(shift + i)) : x;
  }
};

/// k_dst = k_src (+ shift), rotated. From register to register where the dims fill registers, as
/// those of almost all models do; else by way of an array. The same operations on each value either
/// way.
template <bool kShifted>
void rotate_halves(const RopeRow& row, const uint16_t* k_src, const float* shift, uint16_t* k_dst,
                   int32_t head_dim) {
  const Halves<kShifted> k{k_src, shift};
  const int32_t half = row.n_dims / 2;
  const bool fills = row.n_dims == head_dim && (row.neox ? half : head_dim) % kLanes == 0;
  if (fills && row.neox) {
    for (int32_t i = 0; i < half; i += kLanes) {
      const F32 a = k.at(i), b = k.at(half + i);
      const F32 c = load(row.cos + i), s = load(row.sin + i);
      narrow(k_dst + i, sub(mul(a, c), mul(b, s)));
      narrow(k_dst + half + i, add(mul(b, c), mul(a, s)));
    }
  } else if (fills) {
    for (int32_t i = 0; i < head_dim; i += kLanes) {
      const F32 v = k.at(i);
      narrow(k_dst + i, fmaddsub(v, load_doubled(row.cos + i / 2),
                                 mul(swap_pairs(v), load_doubled(row.sin + i / 2))));
    }
  } else {
    float x[kMaxHeadDim];
    widen_array(k_src, head_dim, x);
    if constexpr (kShifted) {
      for (int32_t i = 0; i < head_dim; ++i) x[i] += shift[i];
    }
    rotate_head(row, x);
    narrow_array(x, head_dim, k_dst);
  }
}

void rotate_f16(const RopeRow& row, const uint16_t* k_src, uint16_t* k_dst, int32_t head_dim) {
  rotate_halves<false>(row, k_src, nullptr, k_dst, head_dim);
}

void shift_rotate_f16(const RopeRow& row, const uint16_t* k_src, const float* shift,
                      uint16_t* k_dst, int32_t head_dim) {
  rotate_halves<true>(row, k_src, shift, k_dst, head_dim);
}

// head_dim is a multiple of 8 and may not fill the last register.
void shift_f16(const uint16_t* v_src, const float* shift, uint16_t* v_dst, int32_t head_dim) {
  const Halves<true> v{v_src, shift};
  int32_t i = 0;
  for (; i + kLanes <= head_dim; i += kLanes) narrow(v_dst + i, v.at(i));
  if (i == head_dim) return;
  float x[kLanes] = {};
  widen_array(v_src + i, head_dim - i, x);
  for (int32_t k = 0; i + k < head_dim; ++k) x[k] += shift[i + k];
  narrow_array(x, head_dim - i, v_dst + i);
}

}  // namespace

const RopeFns& rope_fns() {
  static constexpr RopeFns kFns = {rotate, rotate_f16, shift_rotate_f16, shift_f16};
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA
