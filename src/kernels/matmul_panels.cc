// Loops round the panel kernels: a pass packs up to kRowsPerPass rows of activations, which all
// panels of all outputs then share; a task is one panel. The panel is unpacked by parts of
// in_features that stay in the first-level cache, while the tiles of activations stream by.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "kernels/matmul_panels_internal.h"
#include "kernels/matmul_prefill.h"
#include "tensor/buffer.h"

namespace weft::kernels {
namespace {

// Bounds the scratch: at 8192 in_features 10 MB in integers, 32 MB in f32. A panel is unpacked once
// per so many rows.
constexpr int64_t kRowsPerPass = 1024;

int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

/// Equal parts of n_blocks, none over kernels.part_blocks, whole blocks of the type.
int64_t blocks_of_a_part(const PanelKernels& kernels, int64_t n_blocks, DType dtype) {
  const int64_t unit = std::max<int64_t>(1, dtype_info(dtype).block_elements / kPanelBlock);
  const int64_t n_parts = divide_up(n_blocks, kernels.part_blocks);
  return divide_up(divide_up(n_blocks, n_parts), unit) * unit;
}

/// A worker's scratch.
struct Worker {
  AlignedBuffer<std::byte> panel;       // [part_blocks][panel_block_bytes]
  AlignedBuffer<float> sums;            // [n_tiles][tile_rows][panel_columns]
  std::vector<const uint8_t*> columns;  // [panel_columns]
};

/// Some rows, packed.
class Pass {
 public:
  Pass(const Context& context, const PanelKernels& kernels, const PrefillArgs& args, RowRange rows,
       std::byte* packed)
      : kernels_(kernels),
        rows_(rows),
        n_blocks_(divide_up(args.in_features, kPanelBlock)),
        n_tiles_(divide_up(rows.size(), kernels.tile_rows)),
        packed_(packed) {
    context.pool.run(static_cast<int>(n_tiles_), [&](int tile, int) {
      const int64_t row = rows_.begin + tile * kernels_.tile_rows;
      kernels_.pack(args.x + row * args.x_stride, args.x_stride, tile_rows(tile), args.in_features,
                    packed_ + tile * n_blocks_ * kernels_.x_block_bytes);
    });
  }

  /// The columns [first_column, first_column + panel_columns) of the output, as far as it has them.
  void multiply_panel(const MatmulOutput& output, int64_t first_column, Worker& worker) const {
    const WeightMatrix& weight = *output.weight;
    const PanelType type = kernels_.pick(weight.dtype);
    point_at_columns(weight, first_column, worker);
    const int64_t part = blocks_of_a_part(kernels_, n_blocks_, weight.dtype);
    for (int64_t begin = 0; begin < n_blocks_; begin += part) {
      const int64_t n = std::min(part, n_blocks_ - begin);
      type.unpack({weight.dtype, weight.in_features, worker.columns.data(), begin, n},
                  worker.panel.data());
      for (int64_t tile = 0; tile < n_tiles_; ++tile) {
        const std::byte* x = packed_ + (tile * n_blocks_ + begin) * kernels_.x_block_bytes;
        float* sums = worker.sums.data() + tile * kernels_.tile_rows * kernels_.panel_columns;
        const float* before = begin == 0 ? nullptr : sums;
        const bool last = begin + n == n_blocks_;
        const bool whole = tile_rows(tile) == kernels_.tile_rows &&
                           first_column + kernels_.panel_columns <= weight.out_features;
        if (last && whole) {
          type.tile(x, worker.panel.data(), n, before, y_at(output, tile, first_column),
                    output.y_stride);
          continue;
        }
        type.tile(x, worker.panel.data(), n, before, sums, kernels_.panel_columns);
        if (last) copy_edge(sums, output, tile, first_column);
      }
    }
  }

 private:
  int64_t tile_rows(int64_t tile) const {
    return std::min(kernels_.tile_rows, rows_.size() - tile * kernels_.tile_rows);
  }

  float* y_at(const MatmulOutput& output, int64_t tile, int64_t column) const {
    return output.y + (rows_.begin + tile * kernels_.tile_rows) * output.y_stride + column;
  }

  /// Where the panel's weight rows begin. Past the end of the matrix the last row stands in; what
  /// comes of it is dropped.
  void point_at_columns(const WeightMatrix& weight, int64_t first_column, Worker& worker) const {
    const int64_t bytes = row_bytes(weight.dtype, weight.in_features);
    worker.columns.resize(static_cast<size_t>(kernels_.panel_columns));
    for (int64_t c = 0; c < kernels_.panel_columns; ++c) {
      const int64_t row = std::min(first_column + c, weight.out_features - 1);
      worker.columns[static_cast<size_t>(c)] =
          static_cast<const uint8_t*>(weight.data) + row * bytes;
    }
  }

  /// What exists of a tile that hangs over the output's edge.
  void copy_edge(const float* sums, const MatmulOutput& output, int64_t tile,
                 int64_t first_column) const {
    const int64_t columns =
        std::min(kernels_.panel_columns, output.weight->out_features - first_column);
    float* y = y_at(output, tile, first_column);
    for (int64_t r = 0; r < tile_rows(tile); ++r) {
      std::copy_n(sums + r * kernels_.panel_columns, columns, y + r * output.y_stride);
    }
  }

  const PanelKernels& kernels_;
  RowRange rows_;
  int64_t n_blocks_;
  int64_t n_tiles_;
  std::byte* packed_;
};

struct PanelTask {
  const MatmulOutput* output;
  int64_t first_column;
};

std::vector<PanelTask> list_tasks(std::span<const MatmulOutput> outputs, int64_t panel_columns) {
  std::vector<PanelTask> tasks;
  for (const MatmulOutput& output : outputs) {
    for (int64_t c = 0; c < output.weight->out_features; c += panel_columns) {
      tasks.push_back({&output, c});
    }
  }
  return tasks;
}

void reserve(Worker& worker, const PanelKernels& kernels, int64_t n_tiles) {
  if (worker.panel.size() > 0) return;
  worker.panel = AlignedBuffer<std::byte>::uninitialised(
      static_cast<size_t>(kernels.part_blocks * kernels.panel_block_bytes));
  worker.sums = AlignedBuffer<float>::uninitialised(
      static_cast<size_t>(n_tiles * kernels.tile_rows * kernels.panel_columns));
}

}  // namespace

void matmul_panels(const Context& context, MatmulPath path, const PrefillArgs& args) {
  const PanelKernels& kernels =
      path == MatmulPath::kInt8 ? pick_int8_kernels(context.isa) : pick_f32_kernels(context.isa);
  for (const MatmulOutput& output : args.outputs) {
    WEFT_CHECK(kernels.pick(output.weight->dtype).tile != nullptr);
  }
  const std::vector<PanelTask> tasks = list_tasks(args.outputs, kernels.panel_columns);
  std::vector<Worker> workers(static_cast<size_t>(context.pool.size()));
  const int64_t most_tiles = divide_up(std::min(args.n_rows, kRowsPerPass), kernels.tile_rows);
  const int64_t bytes =
      most_tiles * divide_up(args.in_features, kPanelBlock) * kernels.x_block_bytes;
  auto packed = AlignedBuffer<std::byte>::uninitialised(static_cast<size_t>(bytes));
  for (int64_t begin = 0; begin < args.n_rows; begin += kRowsPerPass) {
    const RowRange rows{begin, std::min(args.n_rows, begin + kRowsPerPass)};
    const Pass pass(context, kernels, args, rows, packed.data());
    context.pool.run(static_cast<int>(tasks.size()), [&](int task, int w) {
      Worker& worker = workers[static_cast<size_t>(w)];
      reserve(worker, kernels, most_tiles);
      const PanelTask& panel = tasks[static_cast<size_t>(task)];
      pass.multiply_panel(*panel.output, panel.first_column, worker);
    });
  }
}

}  // namespace weft::kernels
