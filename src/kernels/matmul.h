// y = x W^T for weights as they lie in the GGUF: prefill-sized products expand weight panels on the
// fly, decode-sized ones take dot products straight from the quantised blocks.
// Block formats: tensor/blocks.h.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/kernel_class.h"
#include "kernels/workspace_size.h"
#include "tensor/dtype.h"
#include "tensor/matrix_view.h"

namespace weft::kernels {

/// W [out_features, in_features], rows of `row_bytes(dtype, in_features)` bytes one after another;
/// memory-mapped, never written. in_features is a whole number of blocks; data need not be aligned.
struct WeightMatrix {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t out_features = 0;
  int64_t in_features = 0;

  const uint8_t* bytes() const { return static_cast<const uint8_t*>(data); }
  int64_t row_size_bytes() const { return row_bytes(dtype, in_features); }
  /// Where row i begins.
  const uint8_t* row(int64_t i) const { return bytes() + i * row_size_bytes(); }
  /// The rows [begin, begin + n).
  WeightMatrix row_range(int64_t begin, int64_t n) const {
    return {row(begin), dtype, n, in_features};
  }
};

/// One product of a group that shares its input: y [n_rows, out_features].
struct MatmulOutput {
  const WeightMatrix* weight = nullptr;
  MatrixView<float> y;
};

/// For every output: y[r, :] = x[r, :] W^T. x [n_rows, in_features]; all weights have the same
/// in_features; at most kMostOutputs outputs. A row's result does not depend on the other rows, on
/// how many there are, nor on the thread count.
void matmul(const Context& context, MatrixView<const float> x,
            std::span<const MatmulOutput> outputs, KernelClass kernel_class);

/// What matmul() takes of the workspace at most for up to n_rows rows and this weight. Of oneDNN's
/// products (bf16) it asks oneDNN, which takes some ms for each number of in_features.
void count_matmul(const Context& context, const WeightMatrix& weight, int64_t n_rows,
                  KernelClass kernel_class, WorkspaceSize& size);

/// More than a layer has over one input (q, k, v; gate, up): outputs are sorted on the stack.
inline constexpr size_t kMostOutputs = 8;

/// What this CPU does best for weights of this type, by capability and one short measurement (about
/// 40 ms): what `--compute auto` means.
MatmulPath measure_matmul_path(ThreadPool& pool, Isa isa, DType dtype);

}  // namespace weft::kernels
