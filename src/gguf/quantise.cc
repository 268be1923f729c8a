// Two kinds of types, two aims.
//
// The plain ones (F16 to Q5_1) must be the bytes that everybody's tools write, so each follows the
// reference rounding exactly, its asymmetries included: round away from 0 in Q8_0, truncation of
// value + 0.5 in the others, the extreme element on the negative end of Q4_0 and Q5_0.
// testdata/quantise.txt has blocks from the `gguf` package to compare with.
//
// The K types leave the choice of scales to the writer, so what counts is the error. Each 32 (or
// 16) elements get the scale, and the min, that least squares finds best on a number of trial
// grids; then scales are rounded to the block's 6 or 8 bits, and the elements are rounded once more
// on the grid that a reader will compute from those. That last step matters: the trial's integers
// belong to a scale that is no longer there. tools/make_quantise_vectors.py has the search again in
// Python, and the tests compare bytes. SmolLM2 quantised so has llama.cpp's perplexity (8 windows
// of 512 tokens: Q4_K_M 24.123 and 24.098, Q5_K_M 25.236 and 25.234, Q6_K 23.247 and 23.236).
//
// All in float and double operations that IEEE 754 rounds, sums in a fixed order: the same bytes on
// every machine.
#include "gguf/quantise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/blocks.h"
#include "tensor/half.h"

namespace weft::gguf {
namespace {

/// 1 / step; 0 where that is not a finite number. A block of zeros has the step 0, one of
/// subnormals a step whose inverse overflows: both become blocks of zeros rather than of NaN.
float inverse(float step) {
  const float result = step == 0.0f ? 0.0f : 1.0f / step;
  return std::isfinite(result) ? result : 0.0f;
}

/// To the nearest integer, ties to even, for |value| below 2^22: adding 1.5 * 2^23 leaves a float's
/// fraction no bits. Two additions vectorise on every x86-64; an instruction that rounds needs
/// SSE4.1.
float round_even(float value) { return (value + 12582912.0f) - 12582912.0f; }

int rounded(float value, float low, float high) {
  return static_cast<int>(round_even(std::clamp(value, low, high)));
}

float largest_magnitude(const float* x, int n) {
  float largest = 0.0f;
  for (int i = 0; i < n; ++i) largest = std::max(largest, std::abs(x[i]));
  return largest;
}

/// The element of largest magnitude, the first of them, with its sign.
float extreme(const float* x, int n) {
  float found = 0.0f;
  for (int i = 0; i < n; ++i) {
    if (std::abs(x[i]) > std::abs(found)) found = x[i];
  }
  return found;
}

void quantise_block(const float* x, BlockQ8_0& block) {
  const float d = largest_magnitude(x, 32) / 127.0f;
  const float id = inverse(d);
  block.d = f16_from_f32(d);
  for (int i = 0; i < 32; ++i) block.qs[i] = std::lround(x[i] * id);
}

/// Q4_0 and Q5_0, whose integers run from -half to half - 1: the extreme element, whatever its
/// sign, takes the long end, -half, so d has the other sign. With the extreme 4 Q4_0 has d = -0.5,
/// and a -4 in the same block is kept at 7 steps, as -3.5: the header's bound of A/8.
template <class Block>
void quantise_symmetric(const float* x, Block& block, int half, uint8_t (&q)[32]) {
  const float d = extreme(x, 32) / -half;
  const float id = inverse(d);
  block.d = f16_from_f32(d);
  for (int i = 0; i < 32; ++i) {
    const float shifted = x[i] * id + (half + 0.5f);
    q[i] = std::min(2 * half - 1, static_cast<int>(shifted));  // never negative: x / d >= -half
  }
}

/// Q4_1 and Q5_1: the block's range from its least element, m, to its largest in max_q even steps.
template <class Block>
void quantise_offset(const float* x, Block& block, int max_q, uint8_t (&q)[32]) {
  const auto [low, high] = std::minmax_element(x, x + 32);
  const float m = *low, d = (*high - m) / max_q;
  const float id = inverse(d);
  block.d = f16_from_f32(d);
  block.m = f16_from_f32(m);
  for (int i = 0; i < 32; ++i) {
    q[i] = std::min(max_q, static_cast<int>((x[i] - m) * id + 0.5f));
  }
}

void pack_nibbles(const uint8_t (&q)[32], uint8_t* qs) {
  for (int j = 0; j < 16; ++j) qs[j] = (q[j] & 15) | (q[j + 16] & 15) << 4;
}

/// Bit i of the little-endian word is the fifth bit of element i, where the low nibbles lie as
/// pack_nibbles has them.
void pack_fifth_bits(const uint8_t (&q)[32], uint8_t (&qh)[4]) {
  std::memset(qh, 0, sizeof(qh));
  for (int i = 0; i < 32; ++i) qh[i / 8] |= (q[i] >> 4) << (i % 8);
}

void quantise_block(const float* x, BlockQ4_0& block) {
  uint8_t q[32];
  quantise_symmetric(x, block, 8, q);
  pack_nibbles(q, block.qs);
}

void quantise_block(const float* x, BlockQ5_0& block) {
  uint8_t q[32];
  quantise_symmetric(x, block, 16, q);
  pack_nibbles(q, block.qs);
  pack_fifth_bits(q, block.qh);
}

void quantise_block(const float* x, BlockQ4_1& block) {
  uint8_t q[32];
  quantise_offset(x, block, 15, q);
  pack_nibbles(q, block.qs);
}

void quantise_block(const float* x, BlockQ5_1& block) {
  uint8_t q[32];
  quantise_offset(x, block, 31, q);
  pack_nibbles(q, block.qs);
  pack_fifth_bits(q, block.qh);
}

constexpr int kLanes = 8;  // sums kept apart, so that loops vectorise; a fixed order everywhere

float sum_lanes(const float (&lanes)[kLanes]) {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
         ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

/// x is about scale * q - min, scale and min not negative: the format stores both unsigned, so a
/// sub-block of positive numbers, whose best line would have a negative min, gets a line through 0.
struct Line {
  float scale = 0.0f;
  float min = 0.0f;
};

/// Weighted sums over a sub-block for integers q: what least squares needs.
struct Moments {
  float q = 0, q2 = 0, qx = 0;  // sums of w*q, w*q^2 and w*q*x
};

/// q = (x - low) / step rounded and kept within [0, max_q].
Moments moments_of(const float (&x)[32], const float (&weight)[32], float low, float per_unit,
                   float max_q) {
  float q_lanes[kLanes] = {}, q2_lanes[kLanes] = {}, qx_lanes[kLanes] = {};
  for (int i = 0; i < 32; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const float place = per_unit * (x[i + j] - low);
      const float q = round_even(place < max_q ? place : max_q);
      const float wq = weight[i + j] * q;
      q_lanes[j] += wq;
      q2_lanes[j] += wq * q;
      qx_lanes[j] += wq * x[i + j];
    }
  }
  return {sum_lanes(q_lanes), sum_lanes(q2_lanes), sum_lanes(qx_lanes)};
}

/// Tries grids of max_q + offset steps over the sub-block's range, offset going up from `first` by
/// tenths `n_grids` times; on each, the line that fits best by weighted least squares. Elements
/// count by their magnitude and the root mean square, since large weights meet large activations
/// more often. (The idea and the ranges of offsets are those of llama.cpp's K quants.)
///
/// For given integers q the error sum of w (scale*q + offset - x)^2 is least where
///   scale  = (W*QX - X*Q) / D,  offset = (Q2*X - Q*QX) / D,  D = W*Q2 - Q^2,
/// with W, X, Q, Q2 and QX the sums of w, w*x, w*q, w*q^2 and w*q*x. It is then less than the sum
/// of w*x^2 by scale*QX + offset*X, which is what is compared: one pass over the elements a grid.
Line fit_line(const float* from, int max_q, float first, int n_grids) {
  float x[32], weight[32];
  std::copy_n(from, 32, x);
  double squares = 0;
  for (const float value : x) squares += double{value} * value;
  const float root = std::sqrt(squares / 32);
  double sum_w = 0, sum_x = 0;
  for (int i = 0; i < 32; ++i) {
    weight[i] = root + std::abs(x[i]);
    sum_w += weight[i];
    sum_x += double{weight[i]} * x[i];
  }
  const float low = std::min(0.0f, *std::min_element(x, x + 32));
  const float high = *std::max_element(x, x + 32);
  if (!(high > low)) return {0.0f, -low};
  const float most = max_q;
  Line best{(high - low) / most, -low};
  double best_gain = -1;  // what a line takes off the sum of w*x^2
  for (int i = 0; i < n_grids; ++i) {
    const float steps = most + first + 0.1f * i;
    const float per_unit = steps / (high - low);
    if (!std::isfinite(per_unit)) break;
    const Moments m = moments_of(x, weight, low, per_unit, most);
    const double q = m.q, q2 = m.q2, qx = m.qx;
    const double determinant = sum_w * q2 - q * q;
    if (!(determinant > 0)) continue;
    double scale = (sum_w * qx - sum_x * q) / determinant;
    double offset = (q2 * sum_x - q * qx) / determinant;
    if (offset > 0) {  // min would be negative: the best line through 0 instead
      offset = 0;
      scale = qx / q2;
    }
    const double gain = scale * qx + offset * sum_x;
    if (gain > best_gain && scale > 0) {
      best_gain = gain;
      best.scale = scale;
      best.min = -offset;
    }
  }
  return best;
}

/// Twelve bytes for eight 6-bit scales and eight 6-bit mins: 0-3 whole in the low bits of bytes 0-3
/// and 4-7, the low nibbles of 4-7 in bytes 8-11, their two high bits on top of bytes 0-7.
void pack_k_scales(const int (&scales)[8], const int (&mins)[8], uint8_t* packed) {
  for (int s = 0; s < 4; ++s) {
    packed[s] = scales[s] | (scales[s + 4] >> 4) << 6;
    packed[s + 4] = mins[s] | (mins[s + 4] >> 4) << 6;
    packed[s + 8] = (scales[s + 4] & 15) | (mins[s + 4] & 15) << 4;
  }
}

/// Q4_K and Q5_K: a line for each 32 elements, its scale and min in 6 bits of the block's largest.
/// Fills all but the fifth bits; q holds the 256 small integers.
template <class Block>
void quantise_super_block(const float* x, Block& block, int max_q, float first, int n_grids,
                          uint8_t (&q)[256]) {
  Line lines[8];
  Line largest;
  for (int s = 0; s < 8; ++s) {
    lines[s] = fit_line(x + 32 * s, max_q, first, n_grids);
    largest.scale = std::max(largest.scale, lines[s].scale);
    largest.min = std::max(largest.min, lines[s].min);
  }
  // From here on with d and dmin as a reader has them, rounded to half floats.
  block.d = f16_from_f32(largest.scale / 63.0f);
  block.dmin = f16_from_f32(largest.min / 63.0f);
  const float d = f32_from_f16(block.d), dmin = f32_from_f16(block.dmin);
  const float per_scale = 63.0f * inverse(largest.scale), per_min = 63.0f * inverse(largest.min);
  const float most = max_q;
  int scales[8], mins[8];
  for (int s = 0; s < 8; ++s) {
    scales[s] = rounded(per_scale * lines[s].scale, 0.0f, 63.0f);
    mins[s] = rounded(per_min * lines[s].min, 0.0f, 63.0f);
    const float per_unit = inverse(d * scales[s]);
    const float offset = dmin * mins[s];
    for (int i = 32 * s; i < 32 * s + 32; ++i) {
      q[i] = rounded((x[i] + offset) * per_unit, 0.0f, most);
    }
  }
  pack_k_scales(scales, mins, block.scales);
  // Byte i of each 32 holds element i of an even sub-block (low nibble) and of the next (high).
  for (int s = 0; s < 8; s += 2) {
    for (int i = 0; i < 32; ++i) {
      block.qs[16 * s + i] = (q[32 * s + i] & 15) | (q[32 * s + 32 + i] & 15) << 4;
    }
  }
}

void quantise_block(const float* x, BlockQ4_K& block) {
  uint8_t q[256];
  quantise_super_block(x, block, 15, -1.0f, 21, q);
}

void quantise_block(const float* x, BlockQ5_K& block) {
  uint8_t q[256];
  quantise_super_block(x, block, 31, -0.5f, 16, q);
  std::memset(block.qh, 0, sizeof(block.qh));
  for (int i = 0; i < 256; ++i) block.qh[i % 32] |= (q[i] >> 4) << (i / 32);
}

/// As fit_line, with no min and so one unknown: scale = QX / Q2, which takes QX^2 / Q2 off the
/// error. The scale for 16 elements and integers from -32 to 31, of either sign: the extreme
/// element takes about -32, and among 19 grids round that one the best by least squares, elements
/// counting by their squares, wins.
float fit_scale(const float* x) {
  const float peak = extreme(x, 16);
  float best = peak / -32.0f;
  double best_gain = -1;
  for (int step = -9; step <= 9; ++step) {
    const float per_unit = -(32.0f + 0.1f * step) / peak;
    if (!std::isfinite(per_unit)) return best;
    float q2_lanes[kLanes] = {}, qx_lanes[kLanes] = {};
    for (int i = 0; i < 16; i += kLanes) {
      for (int j = 0; j < kLanes; ++j) {
        const float place = per_unit * x[i + j];
        const float q = round_even(place < -32.0f ? -32.0f : place < 31.0f ? place : 31.0f);
        const float wq = x[i + j] * x[i + j] * q;
        q2_lanes[j] += wq * q;
        qx_lanes[j] += wq * x[i + j];
      }
    }
    const double q2 = sum_lanes(q2_lanes), qx = sum_lanes(qx_lanes);
    if (!(q2 > 0) || qx * qx / q2 <= best_gain) continue;
    best_gain = qx * qx / q2;
    best = qx / q2;
  }
  return best;
}

void pack_q6_k(const uint8_t (&q)[256], BlockQ6_K& block) {
  // Each half of 128: four runs of 32; the low nibbles pair runs 0 with 2 and 1 with 3.
  for (int half = 0; half < 2; ++half) {
    const uint8_t* h = q + 128 * half;
    for (int i = 0; i < 32; ++i) {
      block.ql[64 * half + i] = (h[i] & 15) | (h[i + 64] & 15) << 4;
      block.ql[64 * half + 32 + i] = (h[i + 32] & 15) | (h[i + 96] & 15) << 4;
      block.qh[32 * half + i] =
          (h[i] >> 4) | (h[i + 32] >> 4) << 2 | (h[i + 64] >> 4) << 4 | (h[i + 96] >> 4) << 6;
    }
  }
}

void quantise_block(const float* x, BlockQ6_K& block) {
  float steps[16];
  for (int s = 0; s < 16; ++s) steps[s] = fit_scale(x + 16 * s);
  // The extreme scale takes -128, the long end of eight bits.
  const float per_scale = -128.0f * inverse(extreme(steps, 16));
  block.d = f16_from_f32(extreme(steps, 16) / -128.0f);
  const float d = f32_from_f16(block.d);
  uint8_t q[256];
  for (int s = 0; s < 16; ++s) {
    block.scales[s] = rounded(per_scale * steps[s], -128.0f, 127.0f);
    const float per_unit = inverse(d * block.scales[s]);
    for (int i = 16 * s; i < 16 * s + 16; ++i) {
      q[i] = rounded(x[i] * per_unit, -32.0f, 31.0f) + 32;
    }
  }
  pack_q6_k(q, block);
}

template <class Block>
void quantise_blocks(std::span<const float> values, size_t block_elements, std::byte* out) {
  WEFT_CHECK(values.size() % block_elements == 0);
  for (size_t i = 0; i < values.size(); i += block_elements, out += sizeof(Block)) {
    Block block;
    quantise_block(values.data() + i, block);
    std::memcpy(out, &block, sizeof(Block));
  }
}

template <class Convert>
void convert_halves(std::span<const float> values, std::byte* out, Convert convert) {
  for (const float value : values) {
    const uint16_t half = convert(value);
    std::memcpy(out, &half, sizeof(half));
    out += sizeof(half);
  }
}

}  // namespace

// The types that are missing are only read: weft's recipes make no file of them.
bool can_quantise(DType dtype) {
  switch (dtype) {
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kIQ4_NL:
    case DType::kIQ4_XS:
    case DType::kMXFP4:
      return false;
    default:
      return true;
  }
}

void quantise(DType dtype, std::span<const float> values, std::byte* out) {
  WEFT_CHECK(can_quantise(dtype));
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out, values.data(), values.size_bytes());
      return;
    case DType::kF16:
      return convert_halves(values, out, f16_from_f32);
    case DType::kBF16:
      return convert_halves(values, out, bf16_from_f32);
    case DType::kQ8_0:
      return quantise_blocks<BlockQ8_0>(values, 32, out);
    case DType::kQ4_0:
      return quantise_blocks<BlockQ4_0>(values, 32, out);
    case DType::kQ4_1:
      return quantise_blocks<BlockQ4_1>(values, 32, out);
    case DType::kQ5_0:
      return quantise_blocks<BlockQ5_0>(values, 32, out);
    case DType::kQ5_1:
      return quantise_blocks<BlockQ5_1>(values, 32, out);
    case DType::kQ4_K:
      return quantise_blocks<BlockQ4_K>(values, 256, out);
    case DType::kQ5_K:
      return quantise_blocks<BlockQ5_K>(values, 256, out);
    case DType::kQ6_K:
      return quantise_blocks<BlockQ6_K>(values, 256, out);
    default:
      break;
  }
}

}  // namespace weft::gguf
