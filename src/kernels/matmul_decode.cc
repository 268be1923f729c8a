// Rounds activations once, cuts the weights' rows into tasks and picks the kernel for each output.
//
// Every weight is read once a step, so one row is bound by memory: kernels take the blocks as they
// lie in the file, and a task's length and the distance of its prefetches are what counts. With
// more rows the unpacking counts, and weights are unpacked once for all of them: with AVX-512 into
// prefill's panels, elsewhere into matmul_decode_rows_cpu.cc's. A row must have the same bits in
// either: integer sums are exact in any order, and both kinds scale them and add them up in one
// order. (With AVX-512, too, a row's lanes were once scaled each by themselves, an order that
// panels cannot have: 16 rows gave 3.4 times one row's tokens, and give 4.3 now, SmolLM2 on Zen 5.)
#include "kernels/matmul_decode.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/check.h"
#include "kernels/by_dtype_internal.h"
#include "kernels/matmul_decode_internal.h"
#include "kernels/matmul_prefill.h"
#include "kernels/quantise_activations.h"

namespace weft::kernels {
namespace {

// A task's share of weight bytes: long enough to hide taking it (some 100 ns), short enough that
// the last one doesn't keep the others waiting. 64 KB take a core about 6 us at 10 GB/s.
constexpr int64_t kTaskBytes = 64 << 10;
// Larger ones, up to four times, where a product has at least so many.
constexpr int64_t kLeastTasks = 32;
constexpr int64_t kFewRows = 3;
// Many rows are bound by arithmetic: this many products take a core about 4 us.
constexpr int64_t kTaskProducts = 512 << 10;
// Rows of weights that kernels take at a time, for few rows of activations and for more. What is
// left over takes as long as a whole tile or longer, so a task has a whole number of them.
constexpr int64_t kRowTile = 16;
constexpr int64_t kPanelTile = 8;
// Rows of activations that are quantised by the caller alone.
constexpr int64_t kRowsAlone = 4;

SecondBytes second_bytes(const Context& context) {
  return context.matmul_path == MatmulPath::kInt8 ? SecondBytes::kOutliers : SecondBytes::kAll;
}

/// What prepare_groups asks for.
template <class Group>
void count_groups(int64_t n_rows, int64_t n, WorkspaceSize& size) {
  const int64_t n_blocks = n / kActivationBlock;
  const int64_t n_groups = (n + kGroupElements - 1) / kGroupElements;
  size.of_op(Use::kActivations, n_rows * n);
  size.of_op(Use::kActivationResidual, n_rows * n);
  size.of_op(Use::kActivationOutlier, n_rows * n_blocks);
  size.of_op(Use::kActivationScale, n_rows * n_blocks * sizeof(float));
  size.of_op(Use::kActivationSum, n_rows * n_blocks * sizeof(int32_t));
  size.of_op(Use::kActivationGroups, n_rows * n_groups * sizeof(Group));
}

/// Quantises the rows and lays them out in groups, in the workspace: what `arrange` makes.
template <class Group>
const Group* prepare_groups(const Context& context, const DecodeInput& in,
                            void (*arrange)(const QuantisedRows& row, int64_t n, Group* groups)) {
  const int64_t n_blocks = in.n / kActivationBlock;
  Workspace& workspace = *context.workspace;
  const QuantisedRows rows{workspace.of_op<int8_t>(Use::kActivations, in.n_rows * in.n),
                           workspace.of_op<int8_t>(Use::kActivationResidual, in.n_rows * in.n),
                           workspace.of_op<uint8_t>(Use::kActivationOutlier, in.n_rows * n_blocks),
                           workspace.of_op<float>(Use::kActivationScale, in.n_rows * n_blocks),
                           workspace.of_op<int32_t>(Use::kActivationSum, in.n_rows * n_blocks)};
  auto* const groups = workspace.of_op<Group>(Use::kActivationGroups, in.n_rows * in.n_groups);
  const auto prepare = [&](int64_t r) {
    const QuantisedRows row{rows.q + r * in.n, rows.residual + r * in.n,
                            rows.outlier + r * n_blocks, rows.scale + r * n_blocks,
                            rows.sum + r * n_blocks};
    quantise_activations(context.isa, {in.x + r * in.x_stride, 1, in.n}, second_bytes(context),
                         row);
    arrange(row, in.n, groups + r * in.n_groups);
  };
  // One row takes less time than it takes to wake the workers.
  if (in.n_rows <= kRowsAlone) {
    for (int64_t r = 0; r < in.n_rows; ++r) prepare(r);
  } else {
    context.pool.run(in.n_rows, [&](int64_t r, int) { prepare(r); });
  }
  return groups;
}

/// For one row of activations and Q4_0 rows of 576 (324 bytes): 1,536 rows go by 192, as 64 KB
/// allow 202; 49,152 rows, a head's, by 800.
int64_t rows_per_task(const WeightMatrix& weight, int64_t n_rows) {
  const int64_t by_bytes = kTaskBytes / std::max<int64_t>(1, weight.row_size_bytes());
  if (n_rows <= kFewRows) {
    // What a task's last tile fetches ahead is the next task's, as a rule another core's.
    const int64_t rows = std::clamp(weight.out_features / kLeastTasks, by_bytes, 4 * by_bytes);
    return std::max<int64_t>(kRowTile, rows / kRowTile * kRowTile);
  }
  const int64_t by_products = kTaskProducts / (weight.in_features * n_rows);
  const int64_t rows = std::min(by_bytes, by_products);
  return std::max<int64_t>(kRowTile, rows / kPanelTile * kPanelTile);
}

int64_t task_count(const WeightMatrix& weight, int64_t n_rows) {
  const int64_t rows = rows_per_task(weight, n_rows);
  return (weight.out_features + rows - 1) / rows;
}

bool has_row_kernels(Isa isa) { return pick_matmul_decode_row_fns(isa).arrange != nullptr; }

/// So few rows that weights straight from the file are quicker than from a panel. Cascade Lake, one
/// thread, weights in the cache, 2, 3 and 4 rows: Q4_0 50, 69 and 99 us, from a panel 64 (two of
/// one row), 94 (three) and 83; Q4_K 56, 76 and 107, panel 61, 75 and 86; Q6_K 57, panel 48.
int64_t few_rows(Isa isa, DType dtype) {
  const bool is_large_block = dtype_info(dtype).block_elements > kActivationBlock;
  if (!has_row_kernels(isa)) return is_large_block ? 1 : 2;
  if (!is_large_block) return 3;
  return dtype == DType::kQ4_K || dtype == DType::kQ5_K || dtype == DType::kIQ4_XS ? 2 : 1;
}

/// Which of these it is must not change a row's bits: all that one set may pick for a type do.
DecodeFn pick_kernel(Isa isa, DType dtype, int64_t n_rows) {
  if (!is_quantised(dtype)) return pick_by_dtype(pick_matmul_decode_fns(isa), dtype);
  if (has_row_kernels(isa)) return pick_by_dtype(pick_matmul_decode_row_fns(isa), dtype);
  if (n_rows <= few_rows(isa, dtype)) return pick_by_dtype(pick_matmul_decode_fns(isa), dtype);
  return pick_by_dtype(pick_matmul_decode_rows_fns(isa), dtype);
}

/// Tasks number the rows of the first output, then those of the second, and so on.
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
    const int64_t row_size = weight.row_size_bytes();
    pick_kernel(isa, weight.dtype, in.n_rows)(in, weight.bytes() + begin * row_size, row_size,
                                              end - begin, output.y.data + begin, output.y.stride);
    return;
  }
}

/// The outputs with weights as they lie in the file.
void multiply_outputs(const Context& context, DecodeInput in,
                      std::span<const MatmulOutput> outputs) {
  if (outputs.empty()) return;
  int64_t n_tasks = 0;
  bool quantised = false;
  for (const MatmulOutput& output : outputs) {
    n_tasks += task_count(*output.weight, in.n_rows);
    quantised = quantised || is_quantised(output.weight->dtype);
  }
  in.n_groups = (in.n + kGroupElements - 1) / kGroupElements;
  if (quantised && has_row_kernels(context.isa)) {
    in.row_groups =
        prepare_groups<RowGroup>(context, in, pick_matmul_decode_row_fns(context.isa).arrange);
  } else if (quantised) {
    in.groups =
        prepare_groups<ActivationGroup>(context, in, pick_matmul_decode_fns(context.isa).arrange);
  }
  context.pool.run(n_tasks, [&](int64_t task, int) { run_task(context.isa, in, outputs, task); });
}

}  // namespace

// With row kernels few rows are laid out in groups and more go over panels; a step of many may
// follow one of few, so both count.
void count_matmul_decode(const Context& context, const WeightMatrix& weight, int64_t n_rows,
                         WorkspaceSize& size) {
  if (!is_quantised(weight.dtype)) return;
  if (!has_row_kernels(context.isa)) {
    return count_groups<ActivationGroup>(n_rows, weight.in_features, size);
  }
  const int64_t n_few = few_rows(context.isa, weight.dtype);
  count_groups<RowGroup>(std::min(n_rows, n_few), weight.in_features, size);
  if (n_rows > n_few) {
    count_matmul_panels(context.isa, MatmulPath::kInt8, n_rows, weight.in_features, size);
  }
}

void matmul_decode(const Context& context, MatrixView<const float> x,
                   std::span<const MatmulOutput> outputs) {
  WEFT_CHECK(x.rows >= 1 && outputs.size() <= kMostOutputs);
  for (const MatmulOutput& output : outputs) {
    WEFT_CHECK(output.weight->in_features == x.columns && output.y.rows == x.rows);
  }
  // Many rows share the weights' panels with prefill, where the set has kernels that give a row
  // alone the same bits.
  std::array<MatmulOutput, kMostOutputs> sorted;
  const auto end =
      std::ranges::partition_copy(outputs, sorted.begin(), std::make_reverse_iterator(sorted.end()),
                                  [&](const MatmulOutput& output) {
                                    const DType dtype = output.weight->dtype;
                                    return is_quantised(dtype) && has_row_kernels(context.isa) &&
                                           x.rows > few_rows(context.isa, dtype);
                                  });
  const std::span panels(sorted.begin(), end.out1);
  const std::span others(end.out2.base(), sorted.end());
  if (!panels.empty()) {
    matmul_panels(context, MatmulPath::kInt8, {x, panels, second_bytes(context)});
  }
  multiply_outputs(context, {.x = x.data, .x_stride = x.stride, .n = x.columns, .n_rows = x.rows},
                   others);
}

}  // namespace weft::kernels
