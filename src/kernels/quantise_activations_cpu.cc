// Loops of constant length that the compiler vectorises. Every step is exact or correctly rounded,
// so every instruction set gives the same integers.
#include <stdint.h>
#include <string.h>

#include "kernels/cpu_half_internal.h"
#include "kernels/quantise_activations_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

// Far below it 127 * kResidualUnits / largest would be infinite.
constexpr float kTooSmall = 1e-30f;
constexpr int32_t kInfinityBits = 0x7f800000;
// Adding 1.5 * 2^23 leaves a float's fraction no bits: the sum is rounded to nearest even, and its
// low bits are the integer.
constexpr float kRounder = 12582912.0f;
constexpr int32_t kRounderBits = 0x4b400000;
// Of the mean of the blocks' largest squares: about a tenth of SmolLM2's blocks are above it.
constexpr float kOutlierRatio = 2.5f;

/// Magnitudes compare as their bits do; infinity and NaN are the largest.
int32_t largest_magnitude_bits(const float* x) {
  int32_t largest = 0;
  for (int i = 0; i < 32; ++i) {
    const int32_t bits = bits_from_float(x[i]) & 0x7fffffffu;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

float float_from_magnitude(int32_t bits) { return float_from_bits(bits); }

/// integers[i] = x[i] * factor, rounded.
void round_all(const float* x, float factor, int32_t* integers) {
  for (int i = 0; i < 32; ++i) {
    const float shifted = x[i] * factor + kRounder;
    integers[i] = bits_from_float(shifted) - kRounderBits;
  }
}

/// Returns the sum of kResidualUnits * q.
int32_t quantise_in_one_byte(const float* x, float largest, int8_t* q, int8_t* residual) {
  int32_t integers[32];
  round_all(x, 127.0f / largest, integers);
  int32_t total = 0;
  for (int i = 0; i < 32; ++i) {
    total += integers[i];
    q[i] = integers[i];
  }
  memset(residual, 0, 32);
  return kResidualUnits * total;
}

/// Rounds to 15 bits at once and divides the integer into two bytes: q is the nearest multiple of
/// kResidualUnits (>> rounds down, hence the half), residual what is left, from -64 to 63. Returns
/// the sum of kResidualUnits * q + residual.
int32_t quantise_in_two_bytes(const float* x, float largest, int8_t* q, int8_t* residual) {
  int32_t integers[32];
  round_all(x, 127.0f * kResidualUnits / largest, integers);
  int32_t total = 0;
  for (int i = 0; i < 32; ++i) {
    const int32_t high = (integers[i] + kResidualUnits / 2) >> kResidualShift;
    total += integers[i];
    q[i] = high;
    residual[i] = integers[i] - kResidualUnits * high;
  }
  return total;
}

void quantise_row(const float* x, int64_t n, float outlier_limit, const QuantisedRows& out) {
  for (int64_t b = 0; b < n / 32; ++b) {
    const float* block = x + 32 * b;
    int8_t* q = out.q + 32 * b;
    int8_t* residual = out.residual + 32 * b;
    const int32_t largest_bits = largest_magnitude_bits(block);
    const float largest = float_from_magnitude(largest_bits);
    const bool finite = largest_bits < kInfinityBits;
    out.outlier[b] = 0;
    if (!finite || largest < kTooSmall) {
      memset(q, 0, 32);
      memset(residual, 0, 32);
      out.scale[b] = finite ? 0.0f : float_from_bits(0x7fc00000u);
      out.sum[b] = 0;
      continue;
    }
    out.outlier[b] = largest * largest > outlier_limit;
    out.scale[b] = largest / 127.0f;
    out.sum[b] = out.outlier[b] != 0 ? quantise_in_two_bytes(block, largest, q, residual)
                                     : quantise_in_one_byte(block, largest, q, residual);
  }
}

float find_outlier_limit(const float* x, int64_t n) {
  float sum = 0;
  for (int64_t b = 0; b < n / 32; ++b) {
    const int32_t bits = largest_magnitude_bits(x + 32 * b);
    if (bits >= kInfinityBits) continue;
    const float largest = float_from_magnitude(bits);
    sum += largest * largest;
  }
  return kOutlierRatio * sum / (n / 32);
}

}  // namespace

const QuantiseActivationsFns& quantise_activations_fns() {
  static constexpr QuantiseActivationsFns kFns = {.outlier_limit = find_outlier_limit,
                                                  .row = quantise_row};
  return kFns;
}

}  // namespace weft::kernels::WEFT_ISA
