// y = x W^T: checks, and which kernels compute it. A product is bound by the weights' bytes where
// rows are few, and by arithmetic where they are many, so there are two kinds of kernels. Which a
// row takes is said by the caller (KernelClass) and not by the number of rows: a prompt's last row,
// left over after a prefix was found in the cache, must have the bits that it has in the middle of
// a prompt.
//
// An op takes several outputs over one input (q, k and v; gate and up), so that x is packed or
// quantised once and workers find the panels of all of them in one parallel region.
#include "kernels/matmul.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <vector>

#include "base/check.h"
#include "kernels/matmul_decode.h"
#include "kernels/matmul_prefill.h"

namespace weft::kernels {
namespace {

void check_arguments(MatrixView<const float> x, std::span<const MatmulOutput> outputs) {
  WEFT_CHECK(x.data != nullptr && outputs.size() <= kMostOutputs);
  for (const MatmulOutput& output : outputs) {
    WEFT_CHECK(output.weight != nullptr && output.y.data != nullptr);
    const WeightMatrix& weight = *output.weight;
    WEFT_CHECK(weight.data != nullptr && weight.out_features > 0 && weight.in_features > 0);
    WEFT_CHECK(weight.in_features % dtype_info(weight.dtype).block_elements == 0);
    WEFT_CHECK(x.columns == weight.in_features);
    WEFT_CHECK(output.y.rows == x.rows && output.y.columns == weight.out_features);
    WEFT_CHECK(x.rows <= 1 || (x.stride >= x.columns && output.y.stride >= output.y.columns));
  }
}

/// Seconds that a product takes on each path, the best of some 6 ms each. In turns, so that another
/// process that takes the cores for a while slows all of them and not one. Activations are zeros:
/// no path's time depends on them.
std::vector<double> measure_seconds(ThreadPool& pool, Isa isa, DType dtype,
                                    std::span<const MatmulPath> paths) {
  // As many rows as a prompt's block has: with 96 expanding the weights, not the product, decided,
  // and a CPU with AMX took f32 for BF16 weights, at half the speed.
  constexpr int64_t kRows = 512, kFeatures = 512;
  constexpr double kEnoughSeconds = 6e-3;
  constexpr int kMinRounds = 4;
  const std::vector<float> x(kRows * kFeatures);
  std::vector<float> y(kRows * kFeatures);
  // Whatever the type, these bytes are finite, normal numbers.
  const std::vector<uint8_t> bytes(kFeatures * row_bytes(dtype, kFeatures), 0x77);
  const WeightMatrix weight{bytes.data(), dtype, kFeatures, kFeatures};
  const MatmulOutput output{&weight, {y, kFeatures}};
  std::vector<double> best(paths.size(), 1e9);
  double spent = 0;
  for (int round = 0; round < kMinRounds || spent < kEnoughSeconds * paths.size(); ++round) {
    for (size_t i = 0; i < paths.size(); ++i) {
      const auto start = std::chrono::steady_clock::now();
      matmul({pool, isa, paths[i]}, {x, kFeatures}, {&output, 1}, KernelClass::kPrefill);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      best[i] = std::min(best[i], seconds.count());
      spent += seconds.count();
    }
  }
  return best;
}

}  // namespace

void matmul(const Context& context, MatrixView<const float> x,
            std::span<const MatmulOutput> outputs, KernelClass kernel_class) {
  if (x.rows == 0 || outputs.empty()) return;
  check_arguments(x, outputs);
  if (kernel_class == KernelClass::kDecode) return matmul_decode(context, x, outputs);
  const PrefillArgs all{x, outputs};
  if (context.matmul_path == MatmulPath::kBf16) return matmul_onednn_bf16(context, all);
  if (context.matmul_path == MatmulPath::kF32) {
    return matmul_panels(context, MatmulPath::kF32, all);
  }
  // A group may mix block types and floats: rare, and then each kind packs x for itself.
  std::array<MatmulOutput, kMostOutputs> sorted;
  const auto end = std::ranges::partition_copy(
      outputs, sorted.begin(), std::make_reverse_iterator(sorted.end()),
      [](const MatmulOutput& output) { return is_quantised(output.weight->dtype); });
  const std::span blocks(sorted.begin(), end.out1);
  const std::span floats(end.out2.base(), sorted.end());
  if (!blocks.empty()) {
    matmul_panels(context, MatmulPath::kInt8, {x, blocks});
  }
  if (!floats.empty()) {
    matmul_panels(context, MatmulPath::kF32, {x, floats});
  }
}

void count_matmul(const Context& context, const WeightMatrix& weight, int64_t n_rows,
                  KernelClass kernel_class, WorkspaceSize& size) {
  if (n_rows == 0) return;
  if (kernel_class == KernelClass::kDecode) {
    return count_matmul_decode(context, weight, n_rows, size);
  }
  if (context.matmul_path == MatmulPath::kBf16) {
    return count_matmul_onednn_bf16(n_rows, weight.in_features, size);
  }
  const bool in_integers = context.matmul_path == MatmulPath::kInt8 && is_quantised(weight.dtype);
  count_matmul_panels(context.isa, in_integers ? MatmulPath::kInt8 : MatmulPath::kF32, n_rows,
                      weight.in_features, size);
}

// Measured rather than looked up, as the ranking does not follow from the names: with VNNI and no
// bf16 (Ice Lake) integers are two to three times f32, where bf16 is emulated it is slower than
// f32, and with AMX it is twice as fast. Once, when the model is opened: the clock is not read
// while a request runs.
MatmulPath measure_matmul_path(ThreadPool& pool, Isa isa, DType dtype) {
  std::vector<MatmulPath> paths{MatmulPath::kF32};
  if (onednn_has_bf16()) paths.push_back(MatmulPath::kBf16);
  if (is_quantised(dtype)) paths.push_back(MatmulPath::kInt8);
  const std::vector<double> seconds = measure_seconds(pool, isa, dtype, paths);
  const auto best = std::min_element(seconds.begin(), seconds.end());
  return paths[best - seconds.begin()];
}

}  // namespace weft::kernels
