// oneDNN's bf16 matmul over fixed tiles, one thread a call inside our own workers: it knows AMX and
// AVX512_BF16. No oneDNN type leaves this file.
//
// Fixed tiles, since oneDNN may choose another kernel for another number of rows, and with it
// another order of sums: a tile of 32 rows is always computed whole, missing rows as zeros, so that
// a row's bits do not depend on the rows beside it. One thread a call, since our pool decides who
// does what; a team of OpenMP's inside each worker would have more threads than the machine has
// cores.
//
// f32 products went through oneDNN too, until a kernel of our own was as fast (matmul_f32_cpu.cc).
#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <new>
#include <oneapi/dnnl/dnnl.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/narrow.h"
#include "base/out_of_memory.h"
#include "kernels/dequantize.h"
#include "kernels/matmul_prefill.h"
#include "tensor/buffer.h"
#include "tensor/half.h"

// Debian's oneDNN runs on libgomp. Declared here because <omp.h> is not where clang looks.
extern "C" {
void omp_set_num_threads(int n);
int omp_get_max_threads();
}

namespace weft::kernels {
namespace {

using dnnl::memory;

// A tile is large enough that the call's overhead (1-2 us) is below 5 % of its work, small enough
// that five rows do not cost those of fifty.
constexpr int64_t kTileRows = 32;
constexpr int64_t kTileColumns = 64;
// Rows that are packed at once: bounds the scratch; each panel is expanded once per so many rows.
constexpr int64_t kRowsPerPass = 1024;

/// oneDNN may use this thread only, as long as this lives. OpenMP keeps the number per thread. So
/// each region sets it anew in each worker, and puts the caller's number back.
class OneOmpThread {
 public:
  OneOmpThread() : previous_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneOmpThread() { omp_set_num_threads(previous_); }
  OneOmpThread(const OneOmpThread&) = delete;
  OneOmpThread& operator=(const OneOmpThread&) = delete;

 private:
  int previous_;
};

/// oneDNN 2.6 writes through a null pointer where memory for the code that it generates is refused:
/// before it is asked for any there must be more than it takes (some hundreds of KB a product).
void check_room_for_code() {
  constexpr size_t kRoomBytes = size_t{16} << 20;
  void* const room =
      ::mmap(nullptr, kRoomBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) throw OutOfMemory(kRoomBytes);
  ::munmap(room, kRoomBytes);
}

/// What a product over in_features consists of. The panel's layout is oneDNN's choice.
struct TileProductParts {
  explicit TileProductParts(const dnnl::engine& engine, int64_t in_features)
      : x({kTileRows, in_features}, memory::data_type::bf16, memory::format_tag::ab),
        rows({in_features, kTileColumns}, memory::data_type::f32, memory::format_tag::ba),
        tile({kTileRows, kTileColumns}, memory::data_type::f32, memory::format_tag::ab) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const memory::desc any({in_features, kTileColumns}, memory::data_type::bf16,
                           memory::format_tag::any);
    product = dnnl::matmul::primitive_desc(dnnl::matmul::desc(x, any, tile), attributes, engine);
    panel = product.weights_desc();
    pack = dnnl::reorder::primitive_desc(engine, rows, engine, panel, attributes);
  }

  int64_t workspace_bytes() const {
    return narrow<int64_t>(
        std::max(pack.scratchpad_desc().get_size(), product.scratchpad_desc().get_size()));
  }
  /// Of a worker's memory.
  int64_t worker_bytes() const {
    return narrow<int64_t>(rows.get_size() + panel.get_size() + tile.get_size()) +
           workspace_bytes();
  }

  memory::desc x, rows, tile, panel;
  dnnl::matmul::primitive_desc product;
  dnnl::reorder::primitive_desc pack;
};

/// A worker's memory, and oneDNN's handles on it: made once, since making them allocates.
struct Worker {
  AlignedBuffer<float> rows;           // [kTileColumns, in_features]
  AlignedBuffer<std::byte> panel;      // the same in oneDNN's layout
  AlignedBuffer<std::byte> workspace;  // oneDNN's own
  AlignedBuffer<float> tile;           // [kTileRows, kTileColumns]
  dnnl::stream stream;
  memory x, rows_handle, panel_handle, tile_handle, pack_workspace, product_workspace;
};

/// tile [kTileRows, kTileColumns] f32 = x [kTileRows, in_features] * panel [kTileColumns,
/// in_features]^T, with x and the panel in bf16; the panel in the layout that oneDNN prefers.
/// Thread-safe only because the workspaces are the workers': the library's own is one for all.
class TileProduct {
 public:
  TileProduct(int64_t in_features, int n_workers)
      : engine_(dnnl::engine::kind::cpu, 0), parts_(engine_, in_features) {
    product_ = dnnl::matmul(parts_.product);
    pack_ = dnnl::reorder(parts_.pack);
    for (int w = 0; w < n_workers; ++w) workers_.push_back(make_worker());
  }

  Worker& worker(int w) { return workers_[w]; }

  /// worker.panel = worker.rows, rearranged and rounded.
  void pack(const Worker& worker) const {
    execute(pack_, worker,
            {{DNNL_ARG_FROM, worker.rows_handle.get()},
             {DNNL_ARG_TO, worker.panel_handle.get()},
             {DNNL_ARG_SCRATCHPAD, worker.pack_workspace.get()}});
  }

  /// worker.tile = x * worker.panel.
  void run(const void* x, const Worker& worker) const {
    worker.x.set_data_handle(const_cast<void*>(x));
    execute(product_, worker,
            {{DNNL_ARG_SRC, worker.x.get()},
             {DNNL_ARG_WEIGHTS, worker.panel_handle.get()},
             {DNNL_ARG_DST, worker.tile_handle.get()},
             {DNNL_ARG_SCRATCHPAD, worker.product_workspace.get()}});
  }

 private:
  Worker make_worker() const {
    Worker worker;
    worker.rows = AlignedBuffer<float>(parts_.rows.get_size() / sizeof(float));
    worker.panel = AlignedBuffer<std::byte>(parts_.panel.get_size());
    worker.workspace = AlignedBuffer<std::byte>(parts_.workspace_bytes());
    worker.tile = AlignedBuffer<float>(kTileRows * kTileColumns);
    worker.stream = dnnl::stream(engine_);
    worker.x = memory(parts_.x, engine_, nullptr);
    worker.rows_handle = memory(parts_.rows, engine_, worker.rows.data());
    worker.panel_handle = memory(parts_.panel, engine_, worker.panel.data());
    worker.tile_handle = memory(parts_.tile, engine_, worker.tile.data());
    worker.pack_workspace = memory(parts_.pack.scratchpad_desc(), engine_, worker.workspace.data());
    worker.product_workspace =
        memory(parts_.product.scratchpad_desc(), engine_, worker.workspace.data());
    return worker;
  }

  /// By the C interface: the other one takes a map, which allocates.
  template <size_t n>
  static void execute(const dnnl::primitive& primitive, const Worker& worker,
                      const dnnl_exec_arg_t (&arguments)[n]) {
    dnnl::error::wrap_c_api(
        dnnl_primitive_execute(primitive.get(), worker.stream.get(), n, arguments),
        "could not execute a primitive");
    dnnl::error::wrap_c_api(dnnl_stream_wait(worker.stream.get()), "could not wait for a stream");
  }

  dnnl::engine engine_;
  TileProductParts parts_;
  dnnl::matmul product_;
  dnnl::reorder pack_;
  std::vector<Worker> workers_;
};

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/// Of a pass: the most that it has.
int64_t packed_rows(int64_t n_rows) { return round_up(std::min(n_rows, kRowsPerPass), kTileRows); }

/// The rows of x one after another in bf16, rounded to nearest even, padded with zeros to whole
/// tiles.
void pack_x(ThreadPool& pool, const PrefillArgs& args, RowRange rows, uint16_t* packed) {
  const int64_t k = args.x.columns;
  const int64_t n_tiles = round_up(rows.size(), kTileRows) / kTileRows;
  pool.run(n_tiles, [&](int64_t tile, int) {
    for (int64_t r = tile * kTileRows; r < (tile + 1) * kTileRows; ++r) {
      uint16_t* to = packed + r * k;
      if (r >= rows.size()) {
        std::fill_n(to, k, uint16_t{0});
        continue;
      }
      std::ranges::transform(args.x.row(rows.begin + r), to, bf16_from_f32);
    }
  });
}

struct Panel {
  const MatmulOutput* output;
  int64_t first_column;
};

int64_t panel_count(const MatmulOutput& output) {
  return (output.weight->out_features + kTileColumns - 1) / kTileColumns;
}

/// The panel that is `task`'s of all outputs'.
Panel panel_of(std::span<const MatmulOutput> outputs, int64_t task) {
  const MatmulOutput* output = outputs.data();
  for (; task >= panel_count(*output); ++output) task -= panel_count(*output);
  return {output, task * kTileColumns};
}

/// Expands the panel's weight rows, zeros where the matrix ends, and packs them.
void expand_panel(Isa isa, const TileProduct& product, const Panel& panel, Worker& worker) {
  const WeightMatrix& weight = *panel.output->weight;
  const int64_t k = weight.in_features;
  const int64_t columns = std::min(kTileColumns, weight.out_features - panel.first_column);
  for (int64_t c = 0; c < columns; ++c) {
    dequantize(isa, weight.dtype, weight.row(panel.first_column + c), worker.rows.data() + c * k,
               k);
  }
  std::fill(worker.rows.data() + columns * k, worker.rows.data() + kTileColumns * k, 0.0f);
  product.pack(worker);
}

void run_panel(const TileProduct& product, const Panel& panel, const uint16_t* packed,
               RowRange rows, Worker& worker) {
  const MatmulOutput& output = *panel.output;
  const int64_t k = output.weight->in_features;
  const int64_t columns = std::min(kTileColumns, output.weight->out_features - panel.first_column);
  for (int64_t r = 0; r < rows.size(); r += kTileRows) {
    product.run(packed + r * k, worker);
    for (int64_t i = 0; i < std::min(kTileRows, rows.size() - r); ++i) {
      const std::span<float> y = output.y.row(rows.begin + r + i);
      std::copy_n(worker.tile.data() + i * kTileColumns, columns, y.data() + panel.first_column);
    }
  }
}

}  // namespace

bool onednn_has_bf16() {
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  return isa == dnnl::cpu_isa::avx512_core_bf16 || isa == dnnl::cpu_isa::avx512_core_amx;
}

bool onednn_takes_bf16() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::avx512_core:
    case dnnl::cpu_isa::avx512_core_vnni:
    case dnnl::cpu_isa::avx512_core_bf16:
    case dnnl::cpu_isa::avx512_core_amx:
      return true;
    default:
      return false;
  }
}

void count_matmul_onednn_bf16(int64_t n_rows, int64_t in_features, WorkspaceSize& size) {
  size.of_op(Use::kActivations, packed_rows(n_rows) * in_features * sizeof(uint16_t));
  if (size.knows_product(in_features)) return;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  size.of_product(in_features, TileProductParts(engine, in_features).worker_bytes());
}

void matmul_onednn_bf16(const Context& context, const PrefillArgs& args) try {
  const int64_t k = args.x.columns;
  const OneOmpThread one_thread;
  TileProduct& product = context.workspace->product_of<TileProduct>(k, [&] {
    check_room_for_code();
    return std::make_unique<TileProduct>(k, context.workspace->n_workers());
  });
  int64_t n_panels = 0;
  for (const MatmulOutput& output : args.outputs) n_panels += panel_count(output);
  auto* const packed =
      context.workspace->of_op<uint16_t>(Use::kActivations, packed_rows(args.x.rows) * k);
  for (int64_t begin = 0; begin < args.x.rows; begin += kRowsPerPass) {
    const RowRange rows{begin, std::min(args.x.rows, begin + kRowsPerPass)};
    pack_x(context.pool, args, rows, packed);
    context.pool.run(n_panels, [&](int64_t task, int w) {
      const OneOmpThread one_thread_here;
      Worker& worker = product.worker(w);
      const Panel panel = panel_of(args.outputs, task);
      expand_panel(context.isa, product, panel, worker);
      run_panel(product, panel, packed, rows, worker);
    });
  }
} catch (const dnnl::error& error) {  // from a worker, too: the pool carries it here
  if (error.status == dnnl_out_of_memory) throw std::bad_alloc();
  throw std::runtime_error(std::string("oneDNN: ") + error.what() +
                           "; --compute f32 does without it");
}

}  // namespace weft::kernels
