#include "kernels/matmul_decode.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/by_dtype_internal.h"
#include "kernels/matmul_decode_internal.h"
#include "kernels/matmul_prefill.h"
#include <cstdlib>
#include "kernels/quantise_activations.h"

namespace weft::kernels {
namespace {

// A task's share of weight bytes: long enough to hide taking it (some 100 ns), short enough that
// the last one doesn't keep the others waiting. 64 KB take a core about 6 us at 10 GB/s.
constexpr int64_t kTaskBytes = 64 << 10;
// Many rows are bound by arithmetic: this many products take a core about 4 us.
constexpr int64_t kTaskProducts = 512 << 10;
// Rows of weights that kernels take at a time, for a row or two of activations and for more. What
// is left over is taken one by one, at half the speed, so a task has a whole number of them.
constexpr int64_t kRowTile = 16;
constexpr int64_t kPanelTile = 8;
// Rows of activations that are quantised by the caller alone.
constexpr int64_t kRowsAlone = 4;

/// Quantises the rows and lays them out in groups, in the workspace.
void prepare_groups(const Context& context, const MatmulDecodeFns& fns, DecodeInput& in) {
  const int64_t n_blocks = in.n / kActivationBlock;
  in.n_groups = (n_blocks + kGroupBlocks - 1) / kGroupBlocks;
  Workspace& workspace = *context.workspace;
  const QuantisedRows rows{workspace.of_op<int8_t>(Use::kActivations, in.n_rows * in.n),
                           workspace.of_op<int8_t>(Use::kActivationRest, in.n_rows * in.n),
                           workspace.of_op<uint8_t>(Use::kActivationWide, in.n_rows * n_blocks),
                           workspace.of_op<float>(Use::kActivationScale, in.n_rows * n_blocks),
                           workspace.of_op<int32_t>(Use::kActivationSum, in.n_rows * n_blocks)};
  auto* const groups =
      workspace.of_op<ActivationGroup>(Use::kActivationGroups, in.n_rows * in.n_groups);
  const WideBlocks wide =
      context.matmul_path == MatmulPath::kInt8 ? WideBlocks::kOutliers : WideBlocks::kAll;
  const auto prepare = [&](int64_t r) {
    const QuantisedRows row{rows.q + r * in.n, rows.rest + r * in.n, rows.wide + r * n_blocks,
                            rows.scale + r * n_blocks, rows.sum + r * n_blocks};
    quantise_activations(context.isa, in.x + r * in.x_stride, in.x_stride, 1, in.n, wide, row);
    fns.arrange(row, in.n, groups + r * in.n_groups);
  };
  // One row takes less time than it takes to wake the workers.
  if (in.n_rows <= kRowsAlone) {
    for (int64_t r = 0; r < in.n_rows; ++r) prepare(r);
  } else {
    context.pool.run(static_cast<int>(in.n_rows), [&](int r, int) { prepare(r); });
  }
  in.groups = groups;
}

int64_t rows_per_task(const WeightMatrix& weight, int64_t n_rows) {
  const int64_t by_bytes =
      kTaskBytes / std::max<int64_t>(1, row_bytes(weight.dtype, weight.in_features));
  if (n_rows <= 2) return std::max<int64_t>(kRowTile, by_bytes / kRowTile * kRowTile);
  const int64_t by_products = kTaskProducts / (weight.in_features * n_rows);
  const int64_t rows = std::min(by_bytes, by_products);
  return std::max<int64_t>(kPanelTile, rows / kPanelTile * kPanelTile);
}

int64_t task_count(const WeightMatrix& weight, int64_t n_rows) {
  const int64_t rows = rows_per_task(weight, n_rows);
  return (weight.out_features + rows - 1) / rows;
}

/// Weights straight from the file for a row or two, where that is quicker than from a panel (Zen 5,
/// one thread: 2 rows of Q4_0 0.33 ms, from a panel 0.54, 3 rows 0.82 and 0.63; but 2 of Q4_K 1.17
/// and 0.64).
DecodeFn pick_kernel(Isa isa, DType dtype, int64_t n_rows) {
  const int64_t few = dtype_info(dtype).block_elements > kActivationBlock ? 1 : 2;
  if (!is_quantised(dtype) || n_rows <= few) {
    return pick_by_dtype(pick_matmul_decode_fns(isa), dtype);
  }
  return pick_by_dtype(pick_matmul_decode_rows_fns(isa), dtype);
}

void run_task(Isa isa, const DecodeInput& in, std::span<const MatmulOutput> outputs, int64_t task) {
  for (const MatmulOutput& output : outputs) {
    const WeightMatrix& weight = *output.weight;
    const int64_t n_tasks = task_count(weight, in.n_rows);
    if (task >= n_tasks) {
      task -= n_tasks;
      continue;
    }
    const int64_t rows = rows_per_task(weight, in.n_rows);
    const int64_t begin = task * rows, end = std::min(weight.out_features, begin + rows);
    const int64_t row_size = row_bytes(weight.dtype, weight.in_features);
    const auto* data = static_cast<const uint8_t*>(weight.data) + begin * row_size;
    pick_kernel(isa, weight.dtype, in.n_rows)(in, data, row_size, end - begin, output.y + begin,
                                              output.y_stride);
    return;
  }
}

}  // namespace

void decode_one(const Context& context, DecodeInput in, WideBlocks wide, std::span<const MatmulOutput> outputs) {
  const MatmulDecodeRowFns& fns = pick_matmul_decode_row_fns(context.isa);
  const int64_t n_blocks = in.n / kActivationBlock;
  in.n_groups = (n_blocks + kGroupBlocks - 1) / kGroupBlocks;
  Workspace& workspace = *context.workspace;
  const QuantisedRows row{workspace.of_op<int8_t>(Use::kActivations, in.n),
                           workspace.of_op<int8_t>(Use::kActivationRest, in.n),
                           workspace.of_op<uint8_t>(Use::kActivationWide, n_blocks),
                           workspace.of_op<float>(Use::kActivationScale, n_blocks),
                           workspace.of_op<int32_t>(Use::kActivationSum, n_blocks)};
  auto* const groups = workspace.of_op<RowGroup>(Use::kActivationGroups, in.n_groups);
  quantise_activations(context.isa, in.x, in.x_stride, 1, in.n, wide, row);
  fns.arrange(row, in.n, groups);
  in.row_groups = groups;
  int64_t n_tasks = 0;
  for (const MatmulOutput& output : outputs) n_tasks += task_count(*output.weight, 1);
  context.pool.run(static_cast<int>(n_tasks), [&](int task, int) {
    for (const MatmulOutput& output : outputs) {
      const WeightMatrix& weight = *output.weight;
      const int64_t count = task_count(weight, 1);
      if (task >= count) {
        task -= static_cast<int>(count);
        continue;
      }
      const int64_t rows = rows_per_task(weight, 1);
      const int64_t begin = task * rows, end = std::min(weight.out_features, begin + rows);
      const int64_t row_size = row_bytes(weight.dtype, weight.in_features);
      const auto* data = static_cast<const uint8_t*>(weight.data) + begin * row_size;
      (is_quantised(weight.dtype) ? pick_by_dtype(fns, weight.dtype) : pick_by_dtype(pick_matmul_decode_fns(context.isa), weight.dtype))(in, data, row_size, end - begin, output.y + begin, output.y_stride);
      return;
    }
  });
}
int g_decode_path = getenv("WEFT_OLD") ? 0 : 1;
void matmul_decode(const Context& context, const float* x, int64_t x_stride, int64_t n_rows,
                   std::span<const MatmulOutput> outputs) {
  WEFT_CHECK(n_rows >= 1);
  if (outputs.empty()) return;
  const MatmulDecodeFns& fns = pick_matmul_decode_fns(context.isa);
  DecodeInput in{
      .x = x, .x_stride = x_stride, .n = outputs.front().weight->in_features, .n_rows = n_rows};
  int64_t n_tasks = 0;
  bool quantised = false;
  for (const MatmulOutput& output : outputs) {
    WEFT_CHECK(output.weight->in_features == in.n);
    n_tasks += task_count(*output.weight, n_rows);
    quantised = quantised || is_quantised(output.weight->dtype);
  }
  if (quantised && g_decode_path == 1) {
    const WideBlocks wide =
      context.matmul_path == MatmulPath::kInt8 ? WideBlocks::kOutliers : WideBlocks::kAll;
    if (n_rows == 1) return decode_one(context, in, wide, outputs);
    return matmul_panels(context, MatmulPath::kInt8, {x, x_stride, n_rows, in.n, outputs, wide});
  }
  if (quantised) prepare_groups(context, fns, in);
  context.pool.run(static_cast<int>(n_tasks),
                   [&](int task, int) { run_task(context.isa, in, outputs, task); });
}

}  // namespace weft::kernels
