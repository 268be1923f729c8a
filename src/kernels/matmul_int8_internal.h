// The tables that matmul_int8_cpu.cc fills once per instruction set: integer products of quantised
// weights and activations, in tiles of `tile_rows` rows and panels of `panel_columns` columns (rows
// of the weight matrix). A block is 32 elements of in_features, whatever the weight type's own.
#pragma once

#include <cstdint>

#include "kernels/isa.h"

namespace weft::kernels {

/// Some blocks of a panel of weights, w = scale * q + min, in layouts of the set's own choice that
/// have these sizes.
struct Int8Panel {
  uint8_t* q = nullptr;    // [n_blocks][32 * panel_columns]
  float* scale = nullptr;  // [n_blocks][2][panel_columns]: of a block's halves, where they differ
  float* min = nullptr;    // [n_blocks][panel_columns], for the types that have one
};

/// Fills `panel` with the blocks [first_block, first_block + n_blocks) of panel_columns rows of the
/// matrix; columns[c] is where row c begins. Both bounds are whole blocks of the weight type.
using UnpackFn = void (*)(const uint8_t* const* columns, int64_t first_block, int64_t n_blocks,
                          const Int8Panel& panel);

/// out [tile_rows][panel_columns], rows out_stride floats apart, = the product over n_blocks of a
/// packed tile and a panel, added to `sum` [tile_rows][panel_columns] unless that is null. `sum`
/// may be `out`.
using TileFn = void (*)(const void* x, const Int8Panel& panel, int64_t n_blocks, const float* sum,
                        float* out, int64_t out_stride);

/// How a weight type is multiplied.
struct Int8Type {
  UnpackFn unpack = nullptr;
  TileFn tile = nullptr;
};

struct Int8Fns {
  int64_t tile_rows = 0;
  int64_t panel_columns = 0;
  int64_t x_block_bytes = 0;  // of one block of a packed tile
  /// packed [n_blocks][x_block_bytes] = n_rows <= tile_rows rows of x [n_blocks * 32], quantised as
  /// quantise_activations() does, rows x_stride floats apart; the missing rows are zeros.
  void (*pack)(const float* x, int64_t x_stride, int64_t n_rows, int64_t n_blocks, void* packed);
  Int8Type q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k;
};

WEFT_ISA_TABLE(Int8Fns, int8_fns)

}  // namespace weft::kernels
