// Loops round the panel kernels, as GotoBLAS has them (Goto and van de Geijn 2008), with weights
// that are unpacked on the way. A pass packs up to kRowsPerPass rows of activations, which all
// panels of all outputs then share; a task is up to kGroup neighbouring panels. Panels are unpacked
// by parts of in_features that stay in the first-level cache, while the tiles of activations stream
// by.
//
//   for each pass of 1,024 rows            pack x                      (all workers)
//     for each group of 4 panels           a task                      (one worker)
//       for each part of in_features       unpack 4 panels: in L1 and L2
//         for each tile of rows            4 times a tile by a panel
//
// A tile of activations is read once for four panels: without that f32 products at 2,048 x 8,192
// did 87 to 101 GFLOP/s instead of 111. What a row's result may not depend on is how many rows
// there are: a tile of fewer rows sums in the same order, and parts are cut by in_features alone.
#include <algorithm>

#include "base/check.h"
#include "kernels/matmul_panels_internal.h"
#include "kernels/matmul_prefill.h"
#include "kernels/quantise_activations_internal.h"

namespace weft::kernels {
namespace {

// Bounds the scratch: at 8192 in_features 10 MB in integers, 32 MB in f32. A panel is unpacked once
// per so many rows.
constexpr int64_t kRowsPerPass = 1024;
// Panels that a tile of activations meets while it is in the first-level cache.
constexpr int64_t kGroup = 4;
// So few tiles meet one panel after the other: all of them stay in the first-level cache.
constexpr int64_t kFewTiles = 4;

int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

/// Blocks in each part of in_features but the last: equal parts, none over kernels.part_blocks, of
/// whole blocks of every type that can have so many elements.
int64_t blocks_of_a_part(const PanelKernels& kernels, int64_t n_blocks) {
  constexpr int64_t kLargestBlock = 8;  // of a weight type: 256 elements
  const int64_t unit = n_blocks % kLargestBlock == 0 ? kLargestBlock : 1;
  const int64_t n_parts = divide_up(n_blocks, kernels.part_blocks);
  return divide_up(divide_up(n_blocks, n_parts), unit) * unit;
}

/// A worker's scratch.
struct Worker {
  std::byte* panels;        // [kGroup][part_blocks][panel_block_bytes]
  float* sums;              // [2][n_tiles][kGroup][tile_rows][panel_columns]
  const uint8_t** columns;  // [panel_columns]
};

/// Some neighbouring panels of an output: the work of a task.
struct PanelGroup {
  const MatmulOutput* output;
  int64_t first_column;
  int64_t n_panels;
};

/// Some rows, packed: [part][n_tiles][blocks of the part][x_block_bytes], so that a part's tiles,
/// which are read one after another, lie one after another.
class Pass {
 public:
  Pass(const Context& context, const PanelKernels& kernels, const PrefillArgs& args, RowRange rows,
       std::byte* packed)
      : kernels_(kernels),
        rows_(rows),
        n_blocks_(divide_up(args.x.columns, kPanelBlock)),
        part_(blocks_of_a_part(kernels, n_blocks_)),
        n_tiles_(divide_up(rows.size(), kernels.tile_rows)),
        even_rows_(divide_up(rows.size(), n_tiles_)),
        packed_(packed) {
    // A tile is one task: its rows lie side by side in the same cache lines.
    context.pool.run(n_tiles_, [&](int64_t tile, int) {
      for (int64_t r = 0; r < tile_rows(tile); ++r) pack(args, tile * even_rows_ + r);
    });
  }

  /// With few tiles a panel at a time: all activations of a part stay in the first-level cache
  /// anyway.
  void multiply(const PanelGroup& group, const Worker& worker) const {
    if (n_tiles_ <= kFewTiles && group.n_panels > 1) {
      for (int64_t p = 0; p < group.n_panels; ++p) {
        multiply({group.output, group.first_column + p * kernels_.panel_columns, 1}, worker);
      }
      return;
    }
    for (int64_t begin = 0; begin < n_blocks_; begin += part_) {
      for (int64_t p = 0; p < group.n_panels; ++p) unpack(group, p, begin, worker);
      for (int64_t tile = 0; tile < n_tiles_; ++tile) {
        for (int64_t p = 0; p < group.n_panels; ++p) multiply_tile(group, p, begin, tile, worker);
      }
    }
  }

 private:
  void pack(const PrefillArgs& args, int64_t row) const {
    const int64_t tile = row / even_rows_;
    const float* x = args.x.row(rows_.begin + row).data();
    float scan = 0;
    if (kernels_.scan_row != nullptr) {
      scan = args.second_bytes == SecondBytes::kAll ? kAllOutliers
                                                    : kernels_.scan_row(x, args.x.columns);
    }
    for (int64_t begin = 0; begin < n_blocks_; begin += part_) {
      const int64_t first = begin * kPanelBlock;
      const int64_t n = std::min(part_ * kPanelBlock, args.x.columns - first);
      kernels_.pack_row(x + first, n, scan, row % even_rows_, tile_rows(tile),
                        packed_tile(tile, begin));
    }
  }

  std::byte* packed_tile(int64_t tile, int64_t part_begin) const {
    const int64_t n = std::min(part_, n_blocks_ - part_begin);
    return packed_ + (part_begin * n_tiles_ + tile * n) * kernels_.x_block_bytes;
  }

  int64_t tile_rows(int64_t tile) const {
    return std::min(even_rows_, rows_.size() - tile * even_rows_);
  }

  std::byte* panel_at(int64_t p, const Worker& worker) const {
    return worker.panels + p * kernels_.part_blocks * kernels_.panel_block_bytes;
  }

  /// Past the end of the matrix its last row is taken again; its products are dropped. So the
  /// kernels have no case for a panel that is not full, and nothing beyond the file is read.
  void unpack(const PanelGroup& group, int64_t p, int64_t part_begin, const Worker& worker) const {
    const WeightMatrix& weight = *group.output->weight;
    const int64_t row_size = weight.row_size_bytes();
    for (int64_t c = 0; c < kernels_.panel_columns; ++c) {
      const int64_t row = group.first_column + p * kernels_.panel_columns + c;
      worker.columns[c] = weight.bytes() + std::min(row, weight.out_features - 1) * row_size;
    }
    const int64_t n = std::min(part_, n_blocks_ - part_begin);
    kernels_.pick(weight.dtype)
        .unpack({weight.dtype, weight.in_features, worker.columns, part_begin, n},
                panel_at(p, worker));
  }

  /// This tile's share of the panel and part that come after these: each tile asks for some rows of
  /// what will be unpacked next, so that memory is read while the panel is multiplied. A prefetch
  /// of bytes beyond the matrix or the file is harmless.
  Ahead ahead(const PanelGroup& group, int64_t p, int64_t part_begin, int64_t tile) const {
    const WeightMatrix& weight = *group.output->weight;
    const int64_t row_size = weight.row_size_bytes();
    const auto bytes_at = [&](int64_t block) {
      return std::min(block, n_blocks_) * row_size / n_blocks_;
    };
    int64_t column = group.first_column + p * kernels_.panel_columns;
    int64_t begin = part_begin + part_;
    if (begin >= n_blocks_) {
      begin = 0;
      column += kernels_.panel_columns;
    }
    const int64_t n = std::clamp<int64_t>(weight.out_features - column, 0, kernels_.panel_columns);
    const int64_t first = n * tile / n_tiles_, end = n * (tile + 1) / n_tiles_;
    return {weight.bytes() + (column + first) * row_size + bytes_at(begin), row_size, end - first,
            bytes_at(begin + part_) - bytes_at(begin)};
  }

  /// Adds a part's product to the tile's sums; the last part's goes to y, straight or, where the
  /// tile goes over the output's edge, by way of the scratch: kernels store whole panels of
  /// columns.
  void multiply_tile(const PanelGroup& group, int64_t p, int64_t part_begin, int64_t tile,
                     const Worker& worker) const {
    const MatmulOutput& output = *group.output;
    const TileFn run_tile = kernels_.pick(output.weight->dtype).tile;
    const int64_t tile_floats = kernels_.tile_rows * kernels_.panel_columns;
    const std::byte* x = packed_tile(tile, part_begin);
    const std::byte* panel = panel_at(p, worker);
    const int64_t n = std::min(part_, n_blocks_ - part_begin);
    float* const scratch = worker.sums + (tile * kGroup + p) * 2 * tile_floats;
    const int64_t column = group.first_column + p * kernels_.panel_columns;
    const int64_t columns = std::min(kernels_.panel_columns, output.weight->out_features - column);
    const int64_t rows = tile_rows(tile);
    const MatrixView<float> y = output.y.row_range(rows_.begin + tile * even_rows_, rows);
    const bool last = part_begin + n == n_blocks_;
    const bool straight = last && columns == kernels_.panel_columns;
    run_tile(x, rows, panel, n,
             {.before = part_begin == 0 ? nullptr : scratch,
              .residual = scratch + tile_floats,
              .last = last,
              .out = straight ? y.data + column : scratch,
              .out_stride = straight ? y.stride : kernels_.panel_columns,
              .ahead = ahead(group, p, part_begin, tile)});
    if (!last || straight) return;
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(scratch + r * kernels_.panel_columns, columns, y.row(r).data() + column);
    }
  }

  const PanelKernels& kernels_;
  RowRange rows_;
  int64_t n_blocks_;
  int64_t part_;  // blocks in each part but the last
  int64_t n_tiles_;
  // Of each tile but the last: 13 rows in tiles of up to 6 are 5, 5 and 3, not 6, 6 and 1, since a
  // tile of one row has too few independent sums to hide the dots' latency.
  int64_t even_rows_;
  std::byte* packed_;
};

/// Neighbouring panels that a task takes: enough tasks that the workers finish together, where
/// there are so many panels.
int64_t panels_per_group(std::span<const MatmulOutput> outputs, int64_t panel_columns,
                         int n_workers) {
  constexpr int64_t kTasksPerWorker = 4;
  int64_t n_panels = 0;
  for (const MatmulOutput& output : outputs) {
    n_panels += divide_up(output.weight->out_features, panel_columns);
  }
  return std::clamp<int64_t>(n_panels / (kTasksPerWorker * n_workers), 1, kGroup);
}

int64_t group_count(const MatmulOutput& output, int64_t panel_columns, int64_t per_group) {
  return divide_up(divide_up(output.weight->out_features, panel_columns), per_group);
}

/// The group that is `task`'s of all outputs': tasks number the groups of the first output, then
/// those of the second, and so on.
PanelGroup group_of(std::span<const MatmulOutput> outputs, int64_t panel_columns, int64_t per_group,
                    int64_t task) {
  const MatmulOutput* output = outputs.data();
  for (int64_t n = 0; task >= (n = group_count(*output, panel_columns, per_group)); ++output) {
    task -= n;
  }
  const int64_t panels = divide_up(output->weight->out_features, panel_columns);
  const int64_t first = task * per_group;
  return {output, first * panel_columns, std::min(per_group, panels - first)};
}

const PanelKernels& pick_kernels(Isa isa, MatmulPath path) {
  return path == MatmulPath::kInt8 ? pick_int8_kernels(isa) : pick_f32_kernels(isa);
}

/// Of a pass: the most that it has.
int64_t tiles_of(const PanelKernels& kernels, int64_t n_rows) {
  return divide_up(std::min(n_rows, kRowsPerPass), kernels.tile_rows);
}

int64_t packed_bytes(const PanelKernels& kernels, int64_t n_tiles, int64_t in_features) {
  return n_tiles * divide_up(in_features, kPanelBlock) * kernels.x_block_bytes;
}

int64_t panel_bytes(const PanelKernels& kernels) {
  return kGroup * kernels.part_blocks * kernels.panel_block_bytes;
}

int64_t sum_floats(const PanelKernels& kernels, int64_t n_tiles) {
  return 2 * n_tiles * kGroup * kernels.tile_rows * kernels.panel_columns;
}

Worker worker_scratch(Workspace& workspace, int worker, const PanelKernels& kernels,
                      int64_t n_tiles) {
  return {workspace.of_worker<std::byte>(worker, Use::kPanel, panel_bytes(kernels)),
          workspace.of_worker<float>(worker, Use::kSums, sum_floats(kernels, n_tiles)),
          workspace.of_worker<const uint8_t*>(worker, Use::kColumns, kernels.panel_columns)};
}

}  // namespace

void count_matmul_panels(Isa isa, MatmulPath path, int64_t n_rows, int64_t in_features,
                         WorkspaceSize& size) {
  const PanelKernels& kernels = pick_kernels(isa, path);
  const int64_t n_tiles = tiles_of(kernels, n_rows);
  size.of_op(Use::kActivations, packed_bytes(kernels, n_tiles, in_features));
  size.of_worker(Use::kPanel, panel_bytes(kernels));
  size.of_worker(Use::kSums, sum_floats(kernels, n_tiles) * sizeof(float));
  size.of_worker(Use::kColumns, kernels.panel_columns * sizeof(const uint8_t*));
}

void matmul_panels(const Context& context, MatmulPath path, const PrefillArgs& args) {
  const PanelKernels& kernels = pick_kernels(context.isa, path);
  for (const MatmulOutput& output : args.outputs) {
    WEFT_CHECK(kernels.pick(output.weight->dtype).tile != nullptr);
  }
  const int64_t per_group =
      panels_per_group(args.outputs, kernels.panel_columns, context.pool.size());
  int64_t n_groups = 0;
  for (const MatmulOutput& output : args.outputs) {
    n_groups += group_count(output, kernels.panel_columns, per_group);
  }
  const int64_t most_tiles = tiles_of(kernels, args.x.rows);
  auto* const packed = context.workspace->of_op<std::byte>(
      Use::kActivations, packed_bytes(kernels, most_tiles, args.x.columns));
  for (int64_t begin = 0; begin < args.x.rows; begin += kRowsPerPass) {
    const RowRange rows{begin, std::min(args.x.rows, begin + kRowsPerPass)};
    const Pass pass(context, kernels, args, rows, packed);
    context.pool.run(n_groups, [&](int64_t task, int w) {
      pass.multiply(group_of(args.outputs, kernels.panel_columns, per_group, task),
                    worker_scratch(*context.workspace, w, kernels, most_tiles));
    });
  }
}

}  // namespace weft::kernels
