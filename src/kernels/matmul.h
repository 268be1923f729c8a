// y = x W^T for weights as they lie in the GGUF: prefill-sized products expand weight panels on the
// fly, decode-sized ones take dot products straight from the quantised blocks.
// Block formats: tensor/blocks.h.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/kernel_class.h"
#include "tensor/dtype.h"

namespace weft::kernels {

/// W [out_features, in_features], rows of `row_bytes(dtype, in_features)` bytes one after another;
/// memory-mapped, never written. in_features is a whole number of blocks; data need not be aligned.
struct WeightMatrix {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t out_features = 0;
  int64_t in_features = 0;
};

/// One product of a group that shares its input: y [n_rows, out_features], rows y_stride floats
/// apart.
struct MatmulOutput {
  const WeightMatrix* weight = nullptr;
  float* y = nullptr;
  int64_t y_stride = 0;
};

/// For every output: y[r, :] = x[r, :] W^T. x [n_rows, in_features], rows x_stride floats apart;
/// all weights have the same in_features; at most kMostOutputs outputs. A row's result does not
/// depend on the other rows, on how many there are, nor on the thread count.
void matmul(const Context& context, const float* x, int64_t x_stride, int64_t n_rows,
            std::span<const MatmulOutput> outputs, KernelClass kernel_class);

inline constexpr size_t kMostOutputs = 8;

/// What this CPU does best for weights of this type, by capability and one short measurement (about
/// 40 ms): what `--compute auto` means.
MatmulPath measure_matmul_path(ThreadPool& pool, Isa isa, DType dtype);

}  // namespace weft::kernels
