// Products in f32. A panel's element k of every column lies side by side, an activation is
// broadcast to all of them: one FMA a vector.
//
// AVX-512: 12 rows x 32 columns are 24 sums in registers, 14 loads for 24 FMAs, half of what the
// load ports can do. AVX2: 6 x 16, 12 of 16 registers. A panel is expanded straight into its packed
// form, so nothing is copied twice.
//
// Ice Lake Xeon 2.8 GHz, one core, some 182 GFLOP/s peak. Whole products with 512 rows and BF16
// weights reached 97-120 GFLOP/s on a busy machine. Beside oneDNN 2.6 (32 x 64 tiles on expanded
// panels) it is undecided: best of 3, 115 : 107 (2048 x 2048), 111 : 89 (2048 x 8192) and 120 : 93
// (576 x 576), but other runs gave 97 : 97 and 86 : 106. This one keeps to the instruction set that
// was asked for and pads fewer rows. Without grouping four panels a tile: 87-101 at 2048 x 8192.
#include <stdint.h>
#include <string.h>

#include "kernels/dequantize.h"
#include "kernels/matmul_panels_internal.h"
#include "kernels/panel_lanes_internal.h"

namespace weft::kernels::WEFT_ISA {
namespace {

constexpr int kBlock = kPanelBlock;
#if defined(__AVX512F__)
constexpr int kTileRows = 12;
#elif defined(__AVX2__)
constexpr int kTileRows = 6;
#else
constexpr int kTileRows = 4;
#endif
static_assert(kTileRows <= kMostTileRows);
#if defined(WEFT_ISA_avx512)
constexpr Isa kIsa = Isa::kAvx512;
#elif defined(WEFT_ISA_avx2)
constexpr Isa kIsa = Isa::kAvx2;
#else
constexpr Isa kIsa = Isa::kBaseline;
#endif

struct alignas(64) ActivationBlock {
  float x[kTileRows][kBlock];
};
struct alignas(64) WeightBlock {
  float w[kBlock][kVectors][kLanes];
};

/// A row's 32 elements of a block lie together, and the tile's rows one after another: the kernel
/// goes through a block element by element and broadcasts one of each row.
void pack_row(const float* x, int64_t in_features, float /*scan*/, int64_t r, int64_t n_rows,
              void* packed) {
  auto* blocks = static_cast<ActivationBlock*>(packed);
  for (int64_t begin = 0; begin < in_features; begin += kBlock) {
    const int64_t n = in_features - begin < kBlock ? in_features - begin : kBlock;
    ActivationBlock& block = blocks[begin / kBlock];
    if (n < kBlock) memset(block.x[r], 0, sizeof block.x[r]);
    memcpy(block.x[r], x + begin, n * sizeof(float));
    if (r == 0) {  // rows that are missing are computed, too, and dropped
      memset(block.x[n_rows], 0, (kTileRows - n_rows) * sizeof block.x[0]);
    }
  }
}

/// Expands kLanes rows of weights to floats, 256 elements at a time on the stack, and transposes
/// them four elements at a time into the panel: a row's neighbours in memory become a column's.
void unpack(const PanelSource& source, void* panel) {
  constexpr int64_t kMost = 8 * kBlock;  // elements expanded at once, on the stack
  const DTypeInfo& info = dtype_info(source.dtype);
  auto* blocks = static_cast<WeightBlock*>(panel);
  const int64_t end = source.first_block * kBlock + source.n_blocks * kBlock;
  alignas(64) float rows[kLanes][kMost];
  const uint8_t* row_bytes[kLanes];
  for (int c = 0; c < kLanes; ++c) row_bytes[c] = reinterpret_cast<const uint8_t*>(rows[c]);
  for (int64_t begin = source.first_block * kBlock; begin < end; begin += kMost) {
    const int64_t wanted = end - begin < kMost ? end - begin : kMost;
    const int64_t n = source.in_features - begin < wanted ? source.in_features - begin : wanted;
    for (int v = 0; v < kVectors; ++v) {
      for (int c = 0; c < kLanes; ++c) {
        const uint8_t* column = source.columns[v * kLanes + c];
        dequantize(kIsa, source.dtype, column + begin / info.block_elements * info.block_bytes,
                   rows[c], n);
        for (int64_t i = n; i < wanted; ++i) rows[c][i] = 0.0f;
      }
      for (int64_t k = 0; k < wanted; k += 4) {
        const Four words = load_words(row_bytes, k * sizeof(float));
        WeightBlock& block = blocks[(begin - source.first_block * kBlock + k) / kBlock];
        for (int i = 0; i < 4; ++i) {
          memcpy(block.w[k % kBlock + i][v], &words.v[i], sizeof words.v[i]);
        }
      }
    }
  }
}

/// Missing rows are computed from zeros, and dropped.
void multiply_tile(const void* x, int64_t n_rows, const void* panel, int64_t n_blocks,
                   const TileSums& sums) {
  Floats total[kTileRows][kVectors];
#pragma GCC unroll 12
  for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      total[r][v] =
          sums.before == nullptr ? zero() : load(sums.before + r * kPanelColumns + v * kLanes);
    }
  }
  const auto* activations = static_cast<const ActivationBlock*>(x);
  const auto* weights = static_cast<const WeightBlock*>(panel);
  for (int64_t b = 0; b < n_blocks; ++b) {
    prefetch<sizeof(ActivationBlock)>(activations[n_blocks + b]);  // the next tile's
#pragma GCC unroll 4
    for (int k = 0; k < kBlock; ++k) {
      Floats w[kVectors];
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) w[v] = load(weights[b].w[k][v]);
#pragma GCC unroll 12
      for (int r = 0; r < kTileRows; ++r) {
        const Floats xs = broadcast(activations[b].x[r][k]);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) total[r][v] = multiply_add(w[v], xs, total[r][v]);
      }
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < kTileRows; ++r) {
    if (r == n_rows) break;
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      store(sums.out + r * sums.out_stride + v * kLanes, total[r][v]);
  }
}

PanelType pick_type(DType) { return {unpack, multiply_tile}; }

}  // namespace

const PanelKernels& f32_kernels() {
  // 8 blocks of 32 columns are 32 KB.
  static constexpr PanelKernels kKernels = {
      .tile_rows = kTileRows,
      .panel_columns = kPanelColumns,
      .part_blocks = 8,
      .x_block_bytes = sizeof(ActivationBlock),
      .panel_block_bytes = sizeof(WeightBlock),
      .scan_row = nullptr,
      .pack_row = pack_row,
      .pick = pick_type,
  };
  return kKernels;
}

}  // namespace weft::kernels::WEFT_ISA
