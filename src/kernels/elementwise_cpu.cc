#include <math.h>

#include "kernels/elementwise_internal.h"
#include "kernels/simd_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

// Arrays need not be a whole number of registers: what is left over goes through one register's
// worth of memory, so that every element sees the same arithmetic wherever it stands.
struct Tail {
  float x[kLanes] = {};
  Tail(const float* src, int64_t n) { memcpy(x, src, static_cast<size_t>(n) * sizeof(float)); }
  void put(float* dst, int64_t n) const { memcpy(dst, x, static_cast<size_t>(n) * sizeof(float)); }
};

float sum_of_squares(const float* x, int64_t n) {
  F32 sums[4] = {set1(0.0f), set1(0.0f), set1(0.0f), set1(0.0f)};
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    for (int k = 0; k < 4; ++k) {
      const F32 v = load(x + i + k * kLanes);
      sums[k] = fmadd(v, v, sums[k]);
    }
  }
  for (; i + kLanes <= n; i += kLanes) {
    const F32 v = load(x + i);
    sums[0] = fmadd(v, v, sums[0]);
  }
  if (i < n) {
    const F32 v = load(Tail(x + i, n - i).x);
    sums[1] = fmadd(v, v, sums[1]);
  }
  return reduce_add(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

void rms_norm(const float* x, const float* weight, float eps, int64_t n_rows, int64_t n, float* y) {
  for (int64_t r = 0; r < n_rows; ++r, x += n, y += n) {
    const float mean = sum_of_squares(x, n) / static_cast<float>(n);
    const float factor = 1.0f / sqrtf(mean + eps);
    const F32 factors = set1(factor);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      store(y + i, mul(mul(load(x + i), factors), load(weight + i)));
    }
    for (; i < n; ++i) y[i] = x[i] * factor * weight[i];
  }
}

F32 silu_times(F32 gate, F32 up) {
  const F32 minus_gate = sub(set1(0.0f), gate);
  return mul(div(gate, add(set1(1.0f), exp(minus_gate))), up);
}

void silu_multiply(float* gate, const float* up, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(gate + i, silu_times(load(gate + i), load(up + i)));
  if (i < n) {
    Tail rest(gate + i, n - i);
    store(rest.x, silu_times(load(rest.x), load(Tail(up + i, n - i).x)));
    rest.put(gate + i, n - i);
  }
}

void add_in_place(float* x, const float* y, int64_t n) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(x + i, add(load(x + i), load(y + i)));
  for (; i < n; ++i) x[i] += y[i];
}

}  // namespace

const ElementwiseFns& elementwise_fns() {
  static constexpr ElementwiseFns kFns = {rms_norm, silu_multiply, add_in_place, narrow_array,
                                          widen_array};
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA
