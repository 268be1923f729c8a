// Each op is one loop over registers; exp and tanh are simd_internal.h's polynomials, not libm's,
// so that a layer's activation is not a call for every element. The result for an element depends
// on that element alone, and a row's sum of squares is added up in lanes in an order that its
// length fixes: so the bits are the same however tasks and rows are divided. Between instruction
// sets they may differ in the last place, since FMA rounds once.
#include <math.h>

#include "kernels/elementwise_internal.h"
#include "kernels/simd_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

// Arrays need not be a whole number of registers: what is left over goes through one register's
// worth of memory, so that every element sees the same arithmetic wherever it is.
struct Tail {
  float x[kLanes] = {};
  Tail(const float* src, int64_t n) { memcpy(x, src, n * sizeof(float)); }
  void put(float* dst, int64_t n) const { memcpy(dst, x, n * sizeof(float)); }
};

/// In four chains of a register each, since one would wait for its own last multiply-add. Zeros
/// that fill the last register change no sum.
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

/// x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019).
void rms_norm(const float* x, const float* weight, float eps, int64_t n_rows, int64_t n, float* y) {
  for (int64_t r = 0; r < n_rows; ++r, x += n, y += n) {
    const float mean = sum_of_squares(x, n) / n;
    const float factor = 1.0f / sqrtf(mean + eps);
    const F32 factors = set1(factor);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      store(y + i, mul(mul(load(x + i), factors), load(weight + i)));
    }
    for (; i < n; ++i) y[i] = x[i] * factor * weight[i];
  }
}

/// gate / (1 + e^-gate) * up. Below -88.8 e^-gate is infinite and the quotient -0; NaN stays NaN.
F32 silu_times(F32 gate, F32 up) {
  const F32 minus_gate = sub(set1(0.0f), gate);
  return mul(div(gate, add(set1(1.0f), exp(minus_gate))), up);
}

F32 gelu_times(F32 gate, F32 up) {
  // (1 + tanh(u)) / 2 = 1 / (1 + e^-2u), without the cancellation; base 2, so the factors are those
  // of u times -2 log2(e). From 2^128 on the power is infinite, before its exponent can be.
  const F32 slope = fmadd(mul(gate, gate), set1(-0x1.a5a7d0p-4f), set1(-0x1.26aec2p+1f));
  const F32 power = exp2(min(set1(130.0f), mul(gate, slope)));
  return mul(div(gate, add(set1(1.0f), power)), up);
}

/// x[i] = fn(x[i]), register by register.
template <class Fn>
void for_each(float* x, int64_t n, const Fn& fn) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(x + i, fn(load(x + i)));
  if (i == n) return;
  Tail last(x + i, n - i);
  store(last.x, fn(load(last.x)));
  last.put(x + i, n - i);
}

/// x[i] = fn(x[i], y[i]).
template <class Fn>
void for_each(float* x, const float* y, int64_t n, const Fn& fn) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(x + i, fn(load(x + i), load(y + i)));
  if (i == n) return;
  Tail last(x + i, n - i);
  store(last.x, fn(load(last.x), load(Tail(y + i, n - i).x)));
  last.put(x + i, n - i);
}

void silu_multiply(float* gate, const float* up, int64_t n) { for_each(gate, up, n, silu_times); }

void gelu_multiply(float* gate, const float* up, int64_t n) { for_each(gate, up, n, gelu_times); }

void softcap_in_place(float* x, float cap, int64_t n) {
  const F32 caps = set1(cap);
  for_each(x, n, [caps](F32 v) { return mul(caps, tanh(div(v, caps))); });
}

void scale_in_place(float* x, float factor, int64_t n) {
  for_each(x, n, [factors = set1(factor)](F32 v) { return mul(v, factors); });
}

void add_in_place(float* x, const float* y, int64_t n) { for_each(x, y, n, add); }

void add_scaled(float* x, float factor, const float* y, int64_t n) {
  for_each(x, y, n, [factors = set1(factor)](F32 a, F32 b) { return fmadd(factors, b, a); });
}

}  // namespace

const ElementwiseFns& elementwise_fns() {
  static constexpr ElementwiseFns kFns = {
      .rms_norm = rms_norm,
      .silu_multiply = silu_multiply,
      .gelu_multiply = gelu_multiply,
      .softcap_in_place = softcap_in_place,
      .scale_in_place = scale_in_place,
      .add_in_place = add_in_place,
      .add_scaled = add_scaled,
  };
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA
