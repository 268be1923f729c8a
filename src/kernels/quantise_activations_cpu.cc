// Loops of constant length that the compiler vectorises. Every step is exact or correctly rounded,
// so every instruction set gives the same integers.
#include <stdint.h>

#include "kernels/cpu_half_internal.h"
#include "kernels/quantise_activations_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

constexpr float kTooSmall = 1e-30f;
// Adding 1.5 * 2^23 leaves a float's fraction no bits: the sum is rounded to nearest even, and its
// low bits are the integer.
constexpr float kRounder = 12582912.0f;
constexpr int32_t kRounderBits = 0x4b400000;

void quantise_block(const float* x, int8_t* q, float* scale, int32_t* sum) {
  // Magnitudes compare as their bits do; infinity and NaN are the largest.
  int32_t largest_bits = 0;
  for (int i = 0; i < 32; ++i) {
    const auto bits = static_cast<int32_t>(bits_from_float(x[i]) & 0x7fffffffu);
    largest_bits = bits > largest_bits ? bits : largest_bits;
  }
  const float largest = float_from_bits(static_cast<uint32_t>(largest_bits));
  const bool finite = largest_bits < 0x7f800000;
  if (!finite || largest < kTooSmall) {
    for (int i = 0; i < 32; ++i) q[i] = 0;
    *scale = finite ? 0.0f : float_from_bits(0x7fc00000u);
    *sum = 0;
    return;
  }
  const float inverse = 127.0f / largest;
  int32_t rounded[32];
  for (int i = 0; i < 32; ++i) {
    const float shifted = x[i] * inverse + kRounder;
    rounded[i] = static_cast<int32_t>(bits_from_float(shifted)) - kRounderBits;
  }
  int32_t total = 0;
  for (int i = 0; i < 32; ++i) {
    total += rounded[i];
    q[i] = static_cast<int8_t>(rounded[i]);
  }
  *scale = largest / 127.0f;
  *sum = total;
}

void quantise_row(const float* x, int64_t n, int8_t* q, float* scale, int32_t* sum) {
  for (int64_t b = 0; b < n / 32; ++b) {
    quantise_block(x + 32 * b, q + 32 * b, scale + b, sum + b);
  }
}

}  // namespace

const QuantiseActivationsFns& quantise_activations_fns() {
  static constexpr QuantiseActivationsFns kFns = {.row = quantise_row};
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA
