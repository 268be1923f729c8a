// Loops of the integer path: a pass packs up to kRowsPerPass rows of activations, which all panels
// of all outputs then share; a task is one panel. The panel is unpacked by parts of in_features
// that stay in L1 with a tile of activations, while the tiles stream by from L2 and beyond.
#include <algorithm>
#include <vector>

#include "kernels/matmul_int8_internal.h"
#include "kernels/matmul_prefill.h"
#include "tensor/buffer.h"

namespace weft::kernels {
namespace {

constexpr int64_t kBlock = 32;
// 16 blocks of 32 columns are 16 KB of codes and 4 KB of scales.
constexpr int64_t kPartBlocks = 16;
constexpr int64_t kRowsPerPass = 1024;

const Int8Type& pick_type(const Int8Fns& fns, DType dtype) {
  switch (dtype) {
    case DType::kQ8_0:
      return fns.q8_0;
    case DType::kQ4_0:
      return fns.q4_0;
    case DType::kQ4_1:
      return fns.q4_1;
    case DType::kQ5_0:
      return fns.q5_0;
    case DType::kQ5_1:
      return fns.q5_1;
    case DType::kQ4_K:
      return fns.q4_k;
    case DType::kQ5_K:
      return fns.q5_k;
    case DType::kQ6_K:
      return fns.q6_k;
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      break;
  }
  WEFT_CHECK(false);
  return fns.q8_0;
}

int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

/// Equal parts, none over kPartBlocks, whole blocks of the type.
int64_t part_blocks(int64_t n_blocks, DType dtype) {
  const int64_t unit = dtype_info(dtype).block_elements / kBlock;
  const int64_t n_parts = divide_up(n_blocks, kPartBlocks);
  return divide_up(divide_up(n_blocks, n_parts), unit) * unit;
}

/// A worker's scratch.
struct Worker {
  AlignedBuffer<uint8_t> q;    // [kPartBlocks][32][panel_columns]
  AlignedBuffer<float> scale;  // [kPartBlocks][2][panel_columns]
  AlignedBuffer<float> min;    // [kPartBlocks][panel_columns]
  AlignedBuffer<float> sums;   // [n_tiles][tile_rows][panel_columns]
  std::vector<const uint8_t*> columns;
};

/// A pass: some rows, packed.
class Pass {
 public:
  Pass(const Context& context, const Int8Fns& fns, const PrefillArgs& args, RowRange rows,
       std::byte* packed)
      : fns_(fns),
        rows_(rows),
        n_blocks_(args.in_features / kBlock),
        n_tiles_(divide_up(rows.size(), fns.tile_rows)),
        packed_(packed) {
    context.pool.run(static_cast<int>(n_tiles_), [&](int tile, int) {
      const int64_t row = tile * fns_.tile_rows;
      fns_.pack(args.x + (rows_.begin + row) * args.x_stride, args.x_stride, tile_rows(tile),
                n_blocks_, packed_ + tile * n_blocks_ * fns_.x_block_bytes);
    });
  }

  /// The columns [first_column, first_column + panel_columns) of the output, as far as it has them.
  void multiply_panel(const MatmulOutput& output, int64_t first_column, Worker& worker) const {
    const WeightMatrix& weight = *output.weight;
    const Int8Type& type = pick_type(fns_, weight.dtype);
    point_at_columns(weight, first_column, worker);
    const Int8Panel panel{worker.q.data(), worker.scale.data(), worker.min.data()};
    const int64_t part = part_blocks(n_blocks_, weight.dtype);
    for (int64_t begin = 0; begin < n_blocks_; begin += part) {
      const int64_t n = std::min(part, n_blocks_ - begin);
      type.unpack(worker.columns.data(), begin, n, panel);
      for (int64_t tile = 0; tile < n_tiles_; ++tile) {
        float* sums = worker.sums.data() + tile * fns_.tile_rows * fns_.panel_columns;
        const std::byte* x = packed_ + (tile * n_blocks_ + begin) * fns_.x_block_bytes;
        const float* before = begin == 0 ? nullptr : sums;
        if (begin + n < n_blocks_) {
          type.tile(x, panel, n, before, sums, fns_.panel_columns);
        } else {
          finish_tile({x, panel, n, before, sums, type.tile}, output, tile, first_column);
        }
      }
    }
  }

 private:
  struct LastPart {
    const std::byte* x;
    const Int8Panel& panel;
    int64_t n_blocks;
    const float* before;
    float* sums;
    TileFn tile;
  };

  int64_t tile_rows(int64_t tile) const {
    return std::min(fns_.tile_rows, rows_.size() - tile * fns_.tile_rows);
  }

  /// Where the panel's weight rows begin. Past the end of the matrix the last row stands in; what
  /// comes of it is dropped.
  void point_at_columns(const WeightMatrix& weight, int64_t first_column, Worker& worker) const {
    const int64_t bytes = row_bytes(weight.dtype, weight.in_features);
    worker.columns.resize(static_cast<size_t>(fns_.panel_columns));
    for (int64_t c = 0; c < fns_.panel_columns; ++c) {
      const int64_t row = std::min(first_column + c, weight.out_features - 1);
      worker.columns[static_cast<size_t>(c)] =
          static_cast<const uint8_t*>(weight.data) + row * bytes;
    }
  }

  /// Whole tiles go straight to y; those at its edges through the scratch.
  void finish_tile(const LastPart& last, const MatmulOutput& output, int64_t tile,
                   int64_t first_column) const {
    float* y = output.y + (rows_.begin + tile * fns_.tile_rows) * output.y_stride + first_column;
    const int64_t n_rows = tile_rows(tile);
    const int64_t columns =
        std::min(fns_.panel_columns, output.weight->out_features - first_column);
    if (n_rows == fns_.tile_rows && columns == fns_.panel_columns) {
      last.tile(last.x, last.panel, last.n_blocks, last.before, y, output.y_stride);
      return;
    }
    last.tile(last.x, last.panel, last.n_blocks, last.before, last.sums, fns_.panel_columns);
    for (int64_t r = 0; r < n_rows; ++r) {
      std::copy_n(last.sums + r * fns_.panel_columns, columns, y + r * output.y_stride);
    }
  }

  const Int8Fns& fns_;
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

void reserve(Worker& worker, const Int8Fns& fns, int64_t n_tiles) {
  const auto columns = static_cast<size_t>(fns.panel_columns);
  if (worker.q.size() > 0) return;
  worker.q = AlignedBuffer<uint8_t>::uninitialised(kPartBlocks * kBlock * columns);
  worker.scale = AlignedBuffer<float>::uninitialised(kPartBlocks * 2 * columns);
  worker.min = AlignedBuffer<float>::uninitialised(kPartBlocks * columns);
  worker.sums =
      AlignedBuffer<float>::uninitialised(static_cast<size_t>(n_tiles * fns.tile_rows) * columns);
}

}  // namespace

void matmul_int8(const Context& context, const PrefillArgs& args) {
  const Int8Fns& fns = pick_int8_fns(context.isa);
  const std::vector<PanelTask> tasks = list_tasks(args.outputs, fns.panel_columns);
  std::vector<Worker> workers(static_cast<size_t>(context.pool.size()));
  const int64_t most_tiles = divide_up(std::min(args.n_rows, kRowsPerPass), fns.tile_rows);
  const int64_t bytes = most_tiles * (args.in_features / kBlock) * fns.x_block_bytes;
  auto packed = AlignedBuffer<std::byte>::uninitialised(static_cast<size_t>(bytes));
  for (int64_t begin = 0; begin < args.n_rows; begin += kRowsPerPass) {
    const RowRange rows{begin, std::min(args.n_rows, begin + kRowsPerPass)};
    const Pass pass(context, fns, args, rows, packed.data());
    context.pool.run(static_cast<int>(tasks.size()), [&](int task, int w) {
      Worker& worker = workers[static_cast<size_t>(w)];
      reserve(worker, fns, most_tiles);
      const PanelTask& panel = tasks[static_cast<size_t>(task)];
      pass.multiply_panel(*panel.output, panel.first_column, worker);
    });
  }
}

}  // namespace weft::kernels
