// What matmul_decode.cc and its kernels, compiled once per instruction set, share. Plain data.
#pragma once

#include <cstdint>

#include "kernels/isa.h"
#include "kernels/quantise_activations.h"

namespace weft::kernels {

/// Four blocks of 32 activations, laid out for a 64-byte register whose 16-byte lane b belongs to
/// block b: bytes meet weights, and an int32 lane is the sum of four products. Blocks beyond the
/// row's end are zeros. x = scale * q, or, in a group with an outlier block
/// (quantise_activations.h), whose second bytes are residual_low and residual_high, scale *
/// (kResidualUnits
/// * q + residual).
struct alignas(64) ActivationGroup {
  int8_t low[64];             // q: elements 0-15 of each block
  int8_t high[64];            // elements 16-31
  int32_t negative_sums[16];  // minus the sums of low[4i … 4i+3] and high[4i … 4i+3], in scales
  float scale[16];            // of each block, four times
  float sums[16];             // block b: 0, the sum of x, 0, 0
  float half_sums[16];        // block b: the sums of x in low and in high, 0, 0
  int32_t has_outlier;        // is there an outlier block?
  alignas(64) int8_t residual_low[64];
  int8_t residual_high[64];
};

/// The same for one row against sixteen rows of weights at a time (AVX-512): x = scale * q, and in
/// an outlier block unit * residual on top.
struct alignas(64) RowGroup {
  int8_t low[64];  // as above
  int8_t high[64];
  int32_t negative_low[16];  // minus the sums of low[4i … 4i+3]
  int32_t negative_high[16];
  float scale[4];
  float unit[4];                        // scale / kResidualUnits
  float sums[3][4];                     // of x in a block's halves and in all of it
  uint32_t outliers;                    // bit b: is block b one?
  alignas(64) int8_t residual_low[64];  // from here on unspecified where no block is
  int8_t residual_high[64];
  int32_t negative_residual_low[16];
  int32_t negative_residual_high[16];
};

/// A group is what a 64-byte register of dots is: four blocks, each with a lane of four int32 sums.
/// Half a K-quant's block of 256, so those have two groups a unit.
inline constexpr int64_t kGroupElements = 128;
inline constexpr int64_t kGroupBlocks = 4;

struct DecodeInput {
  const float* x = nullptr;  // [n_rows][n], rows x_stride floats apart: for float weights
  int64_t x_stride = 0;
  const ActivationGroup* groups = nullptr;  // [n_rows][n_groups]: for quantised weights
  int64_t n_groups = 0;
  const RowGroup* row_groups = nullptr;  // [n_rows][n_groups]: for MatmulDecodeRowFns
  int64_t n = 0;                         // in_features
  int64_t n_rows = 0;
};

/// y[r * y_stride + i] = x[r] . (row i of weights, row_size bytes each) for i < n_out. Reads
/// nothing beyond the last row: it may be the last bytes of the file, at the end of a memory page.
using DecodeFn = void (*)(const DecodeInput& in, const uint8_t* weights, int64_t row_size,
                          int64_t n_out, float* y, int64_t y_stride);

/// For n_rows of 1 or 2; those of float types for any. With AVX-512 only those, the others null.
struct MatmulDecodeFns {
  /// One row of n quantised activations into ceil(n / 128) groups.
  void (*arrange)(const QuantisedRows& row, int64_t n, ActivationGroup* groups);
  DecodeFn f32, f16, bf16;
  DecodeFn q8_0, q4_0, q4_1, q5_0, q5_1;
  DecodeFn q2_k, q3_k, q4_k, q5_k, q6_k;
  DecodeFn iq4_nl, iq4_xs, mxfp4;
};

/// For any n_rows, in matmul_decode_rows_cpu.cc; none with AVX-512. Float types have theirs above.
struct MatmulDecodeRowsFns {
  DecodeFn f32, f16, bf16;  // null
  DecodeFn q8_0, q4_0, q4_1, q5_0, q5_1;
  DecodeFn q2_k, q3_k, q4_k, q5_k, q6_k;
  DecodeFn iq4_nl, iq4_xs, mxfp4;
};

/// For few rows, where the set has them (AVX-512; else null): a row's bits are those that
/// matmul_panels' kInt8 gives it.
struct MatmulDecodeRowFns {
  /// One row of n quantised activations into ceil(n / 128) groups.
  void (*arrange)(const QuantisedRows& row, int64_t n, RowGroup* groups);
  DecodeFn f32, f16, bf16;  // null
  DecodeFn q8_0, q4_0, q4_1, q5_0, q5_1;
  DecodeFn q2_k, q3_k, q4_k, q5_k, q6_k;
  DecodeFn iq4_nl, iq4_xs, mxfp4;
};

WEFT_ISA_TABLE(MatmulDecodeRowFns, matmul_decode_row_fns)
WEFT_ISA_TABLE(MatmulDecodeFns, matmul_decode_fns)
WEFT_ISA_TABLE(MatmulDecodeRowsFns, matmul_decode_rows_fns)

}  // namespace weft::kernels
