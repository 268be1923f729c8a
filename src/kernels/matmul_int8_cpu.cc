// Integer products. Columns lie side by side in a vector's 32-bit lanes, each lane holding four
// neighbouring elements of its column; a row's four matching activations are broadcast to all
// lanes. Per block of 32 that is eight dot instructions a vector, then one conversion and one FMA
// with the scales of weights and activations.
//
// AVX-512: VNNI multiplies unsigned by signed bytes, so the weights' codes are stored with 128
// added, and the integer sums begin at -128 * (sum of the activations), which costs nothing: the
// start is a load instead of a zero. 6 rows x 32 columns keep 12 integer and 12 float sums in
// registers, with 3 for operands; 12 independent sums hide the dot's latency of 5 at two a cycle,
// and 8 loads for 12 dots stay below the two load ports' limit (12 x 16 would need 13 for 12).
// On an Ice Lake Xeon at 2.8 GHz the tile alone does 480-540 GOP/s of the 530 that 11 instructions
// for 8 dots allow. GCC 12 keeps this shape's sums in registers (no spill in the assembly).
// AVX2: vpmaddubsw of |w| and x with w's sign: 2 * 128 * 127 does not saturate 16 bits.
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu_half_internal.h"
#include "kernels/quantise_activations_internal.h"
#include "kernels/unpack_int8_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

constexpr int kBlock = kPanelBlock;
#if defined(__AVX512F__)
constexpr int kTileRows = 6;
#else
constexpr int kTileRows = 4;
#endif

/// One block of a packed tile.
struct alignas(64) ActivationBlock {
  int8_t q[kTileRows][kBlock];
  // What takes off kCodeOffset: the start of the integer sums of the block's halves and of all.
  int32_t start[3][kTileRows];
  float scale[kTileRows];
  float scaled_sum[kTileRows];  // scale * sum of q: what a min is multiplied by
};

int32_t sum_16(const int8_t* q) {
  int32_t sum = 0;
  for (int i = 0; i < 16; ++i) sum += q[i];
  return sum;
}

void pack_tile(const float* x, int64_t x_stride, int64_t n_rows, int64_t in_features,
               void* packed) {
  const int64_t n_blocks = in_features / kBlock;
  auto* blocks = static_cast<ActivationBlock*>(packed);
  constexpr int64_t kStep = 16;  // blocks quantised at once, on the stack
  int8_t q[kStep * kBlock];
  float scale[kStep];
  int32_t sum[kStep];
  for (int64_t r = 0; r < kTileRows; ++r) {
    for (int64_t begin = 0; begin < n_blocks; begin += kStep) {
      const int64_t n = n_blocks - begin < kStep ? n_blocks - begin : kStep;
      if (r < n_rows) {
        quantise_activations_fns().row(x + r * x_stride + begin * kBlock, n * kBlock, q, scale,
                                       sum);
      } else {
        memset(q, 0, sizeof q);
        memset(scale, 0, sizeof scale);
        memset(sum, 0, sizeof sum);
      }
      for (int64_t b = 0; b < n; ++b) {
        ActivationBlock& block = blocks[begin + b];
        memcpy(block.q[r], q + b * kBlock, kBlock);
        const int32_t first_half = sum_16(block.q[r]);
        block.start[0][r] = -kCodeOffset * first_half;
        block.start[1][r] = -kCodeOffset * (sum[b] - first_half);
        block.start[2][r] = -kCodeOffset * sum[b];
        block.scale[r] = scale[b];
        block.scaled_sum[r] = scale[b] * static_cast<float>(sum[b]);
      }
    }
  }
}

#if defined(__AVX512F__)

struct Codes {
  Vector q;
};
inline Codes load_codes(const uint8_t* p) { return {_mm512_load_si512(p)}; }
inline Vector add_dots(Vector sum, const Codes& w, Vector x) {
  return _mm512_dpbusd_epi32(sum, w.q, x);
}

#elif defined(__AVX2__)

struct Codes {
  Vector q, magnitude;
};
inline Codes load_codes(const uint8_t* p) {
  const Vector q = _mm256_load_si256(reinterpret_cast<const Vector*>(p));
  return {q, _mm256_abs_epi8(q)};
}
inline Vector add_dots(Vector sum, const Codes& w, Vector x) {
  const Vector pairs = _mm256_maddubs_epi16(w.magnitude, _mm256_sign_epi8(x, w.q));
  return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

#else

struct Codes {
  int8_t q[4 * kLanes];
};
inline Codes load_codes(const uint8_t* p) {
  Codes codes;
  memcpy(&codes, p, sizeof codes);
  return codes;
}
inline Vector add_dots(const Vector& sum, const Codes& w, const Vector& x) {
  int8_t bytes[4];
  memcpy(bytes, &x, sizeof bytes);
  Vector v = sum;
  for (int i = 0; i < kLanes; ++i) {
    int32_t dot = 0;
    for (int j = 0; j < 4; ++j) dot += w.q[4 * i + j] * bytes[j];
    v.lane[i] += static_cast<uint32_t>(dot);
  }
  return v;
}

#endif

/// kScales: 2 where the block's halves have scales of their own.
template <int kScales, bool kHasMin>
void multiply_tile(const void* x, const void* panel, int64_t n_blocks, const float* sum, float* out,
                   int64_t out_stride) {
  const auto* blocks = static_cast<const ActivationBlock*>(x);
  Floats total[kTileRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      total[r][v] = sum == nullptr ? zero() : load(sum + r * kPanelColumns + v * kLanes);
    }
  }
  for (int64_t b = 0; b < n_blocks; ++b) {
    const ActivationBlock& block = blocks[b];
    prefetch(blocks[n_blocks + b]);  // the next tile's
    const WeightBlock& weights = static_cast<const WeightBlock*>(panel)[b];
#pragma GCC unroll 2
    for (int half = 0; half < kScales; ++half) {
      Vector dots[kTileRows][kVectors];
#pragma GCC unroll 8
      for (int r = 0; r < kTileRows; ++r) {
        const int32_t start = block.start[kScales == 2 ? half : 2][r];
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) dots[r][v] = broadcast_int(start);
      }
      constexpr int kGroups = kBlock / 4 / kScales;
#pragma GCC unroll 8
      for (int g = half * kGroups; g < (half + 1) * kGroups; ++g) {
        Codes codes[kVectors];
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
          codes[v] = load_codes(weights.q[g][v]);
        }
#pragma GCC unroll 8
        for (int r = 0; r < kTileRows; ++r) {
          int32_t four;
          memcpy(&four, block.q[r] + 4 * g, sizeof four);
          const Vector xs = broadcast_int(four);
#pragma GCC unroll 2
          for (int v = 0; v < kVectors; ++v) dots[r][v] = add_dots(dots[r][v], codes[v], xs);
        }
      }
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        const Floats scale = load(weights.scale[half][v]);
#pragma GCC unroll 8
        for (int r = 0; r < kTileRows; ++r) {
          const Floats both = multiply(scale, broadcast(block.scale[r]));
          total[r][v] = multiply_add(to_float(dots[r][v]), both, total[r][v]);
        }
      }
    }
    if constexpr (kHasMin) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        const Floats min = load(weights.min[v]);
#pragma GCC unroll 8
        for (int r = 0; r < kTileRows; ++r) {
          total[r][v] = multiply_add(min, broadcast(block.scaled_sum[r]), total[r][v]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) store(out + r * out_stride + v * kLanes, total[r][v]);
  }
}

PanelType pick_type(DType dtype) {
  constexpr TileFn kPlain = multiply_tile<1, false>, kWithMin = multiply_tile<1, true>;
  constexpr TileFn kHalves = multiply_tile<2, false>;
  switch (dtype) {
    case DType::kQ8_0:
      return {unpack_panel<BlockQ8_0, 1, q8_0_block>, kPlain};
    case DType::kQ4_0:
      return {unpack_panel<BlockQ4_0, 1, q4_0_block>, kPlain};
    case DType::kQ4_1:
      return {unpack_panel<BlockQ4_1, 1, q4_1_block>, kWithMin};
    case DType::kQ5_0:
      return {unpack_panel<BlockQ5_0, 1, q5_0_block>, kPlain};
    case DType::kQ5_1:
      return {unpack_panel<BlockQ5_1, 1, q5_1_block>, kWithMin};
    case DType::kQ4_K:
      return {unpack_panel<BlockQ4_K, 8, q4_k_block>, kWithMin};
    case DType::kQ5_K:
      return {unpack_panel<BlockQ5_K, 8, q5_k_block>, kWithMin};
    case DType::kQ6_K:
      return {unpack_panel<BlockQ6_K, 8, q6_k_block>, kHalves};
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      break;
  }
  return {};
}

}  // namespace

const PanelKernels& int8_kernels() {
  // 16 blocks of 32 columns are 16 KB of codes and 6 KB of scales and mins.
  static constexpr PanelKernels kKernels = {
      .tile_rows = kTileRows,
      .panel_columns = kPanelColumns,
      .part_blocks = 16,
      .x_block_bytes = sizeof(ActivationBlock),
      .panel_block_bytes = sizeof(WeightBlock),
      .pack = pack_tile,
      .pick = pick_type,
  };
  return kKernels;
}

}  // namespace weft::kernels::WEFT_ISA
