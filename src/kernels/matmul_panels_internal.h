// The tables that matmul_f32_cpu.cc and matmul_int8_cpu.cc fill once per instruction set: products
// in tiles of `tile_rows` rows of activations and panels of `panel_columns` rows of the weight
// matrix (the product's columns). in_features goes by blocks of 32 elements, whatever the weight
// type's own; packed layouts are the set's own choice, of the sizes given here.
#pragma once

#include <cstdint>

#include "kernels/isa.h"
#include "tensor/dtype.h"

namespace weft::kernels {

/// Elements of in_features in a block.
inline constexpr int64_t kPanelBlock = 32;
/// The most tile_rows that a set has.
inline constexpr int64_t kMostTileRows = 16;

/// Some blocks of some rows of a weight matrix, whole blocks of its type: of a Q4_K matrix of 2,048
/// elements a row, 64 blocks of 32, the parts have 24, 24 and 16.
struct PanelSource {
  DType dtype = DType::kF32;
  int64_t in_features = 0;
  const uint8_t* const* columns = nullptr;  // [panel_columns]: where each row of weights begins
  int64_t first_block = 0;
  int64_t n_blocks = 0;
};

/// panel [n_blocks][panel_block_bytes] = the source, unpacked; zeros beyond in_features.
using UnpackFn = void (*)(const PanelSource& source, void* panel);

/// Weights to fetch while a tile is multiplied, of those that will be unpacked next.
struct Ahead {
  const uint8_t* first = nullptr;
  int64_t row_size = 0;
  int64_t n_rows = 0;   // row_size bytes apart
  int64_t n_bytes = 0;  // of each
};

/// A tile's sums: in_features goes by parts, and they are kept in memory in between. A tile that
/// began with another part of in_features, or added its parts up separately, would round
/// differently: the order is block after block, from the first to the last.
struct TileSums {
  const float* before = nullptr;  // [n_rows][panel_columns]; null at the first part
  float* residual = nullptr;      // [n_rows][panel_columns]: the kernel's own, from part to part
  bool last = false;              // is this the last part?
  float* out = nullptr;           // [n_rows][panel_columns], rows out_stride floats apart
  int64_t out_stride = 0;         // `before` may be `out`
  Ahead ahead;
};

/// sums.out = sums.before + the product over n_blocks of a tile packed from n_rows <= tile_rows and
/// a panel. A row's result does not depend on n_rows.
using TileFn = void (*)(const void* x, int64_t n_rows, const void* panel, int64_t n_blocks,
                        const TileSums& sums);

/// How a weight type is multiplied.
struct PanelType {
  UnpackFn unpack = nullptr;
  TileFn tile = nullptr;
};

struct PanelKernels {
  int64_t tile_rows = 0;
  int64_t panel_columns = 0;
  int64_t part_blocks = 0;        // of a panel that the first-level cache holds; a multiple of 8
  int64_t x_block_bytes = 0;      // of one block of a packed tile, at most
  int64_t panel_block_bytes = 0;  // of one block of a panel
  /// What packing a part of a row of x [in_features] must know of the whole; null: nothing.
  float (*scan_row)(const float* x, int64_t in_features);
  /// Row r of a tile: packed [blocks][x_block_bytes] row r of n_rows <= tile_rows = x
  /// [in_features]; missing elements are zeros. `scan` is what scan_row said.
  void (*pack_row)(const float* x, int64_t in_features, float scan, int64_t r, int64_t n_rows,
                   void* packed);
  PanelType (*pick)(DType dtype);
};

WEFT_ISA_TABLE(PanelKernels, f32_kernels)
WEFT_ISA_TABLE(PanelKernels, int8_kernels)

}  // namespace weft::kernels
