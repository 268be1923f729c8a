// The prefill half of matmul(), one function a MatmulPath. Inside the room only: callers use
// kernels/matmul.h, which checks the arguments and picks. Each path expands panels of weight rows
// on the fly into its workers' scratch, and computes over tiles, in each of which a row's sums run
// in one order, so that a row's result depends neither on the rows beside it nor on the thread
// count. With AVX-512 many decode rows come here, too (matmul_decode.cc).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/matmul.h"
#include "kernels/quantise_activations.h"
#include "kernels/workspace_size.h"

namespace weft::kernels {

/// What matmul() was given, checked.
struct PrefillArgs {
  MatrixView<const float> x;  // [n_rows, in_features]
  std::span<const MatmulOutput> outputs;
  SecondBytes second_bytes = SecondBytes::kOutliers;  // of matmul_panels' kInt8
};

/// The rows [begin, end) of the same product; their outputs are at rows [begin, end) of each y.
struct RowRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

/// Our own kernels: kF32, any weights; or kInt8, weights of block types only (aborts for others).
void matmul_panels(const Context& context, MatmulPath path, const PrefillArgs& args);
/// What that takes of the workspace for up to n_rows rows.
void count_matmul_panels(Isa isa, MatmulPath path, int64_t n_rows, int64_t in_features,
                         WorkspaceSize& size);

/// oneDNN, with weights and activations rounded to bf16 (kBf16).
void matmul_onednn_bf16(const Context& context, const PrefillArgs& args);
/// What that takes of the workspace for up to n_rows rows, as far as it is weft's own memory.
void count_matmul_onednn_bf16(int64_t n_rows, int64_t in_features, WorkspaceSize& size);
/// Whether oneDNN has instructions for bf16 on this CPU (AVX512_BF16 or AMX, granted by the
/// kernel). Elsewhere it emulates them, slower than f32, or has none.
bool onednn_has_bf16();
/// Whether it has products in bf16 at all: from AVX-512 on.
bool onednn_takes_bf16();

}  // namespace weft::kernels
