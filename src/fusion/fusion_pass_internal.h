// One fusion of one prompt: the state that its steps share. Used by fusor.cc alone.
#pragma once

#include <optional>

#include "fusion/chunk_shifts.h"
#include "fusion/fusor.h"
#include "fusion/load_pipeline.h"

namespace weft::fusion {

/// Adds the time until its end, or until the next start, to one of the report's parts.
class Stopwatch {
 public:
  explicit Stopwatch(Env& env) : env_(env), last_ns_(env.monotonic_ns()) {}
  /// Adds what passed since the last call to `part`.
  void charge(double& part) {
    const int64_t now_ns = env_.monotonic_ns();
    part += static_cast<double>(now_ns - last_ns_) * 1e-6;
    last_ns_ = now_ns;
  }

 private:
  Env& env_;
  int64_t last_ns_;
};

/// Runs over a reserved sequence, once. After run() returned false, failure() says which chunk to
/// compute anew.
class FusionPass {
 public:
  /// `found_prefix` tokens of the prompt are in the sequence's pages already.
  FusionPass(const Prompt& prompt, const FusionOptions& options, std::vector<CheckLayer> checks,
             std::span<ChunkSource> sources, kv::SequenceId sequence, int32_t found_prefix,
             model::ForwardPass& forward, kv::Cache& cache, const kernels::Context& context,
             Env& env, float deviation_floor, Report& report);

  Result<bool> run();
  /// After run(): the prompt's last row is its last.
  const model::Batch& batch() const { return *batch_; }
  const LoadFailure& failure() const { return pipeline_->failure(); }

 private:
  Result<bool> run_query_attention();
  Result<bool> run_v_deviation();
  Result<bool> run_rows(std::span<const int64_t> selected, double& part);
  bool run_layer(int32_t layer, bool has_chunk_rows, double& part);
  bool load_layer(int32_t layer);
  void place_layer(int32_t layer, const ChunkShifts* shifts = nullptr);
  void shift_layer(int32_t layer);
  void list_chunk_rows();
  void read_from_bytes();
  void read_from_pages(int32_t layer);
  void measure_changes(int64_t row_begin, int64_t n_rows, const float* k, const float* v);
  std::vector<int64_t> select_by_deviation(int32_t layer, double ratio);
  Status start(std::span<const int64_t> selected);
  void run_layer_of_batch(int32_t layer, const model::LayerHooks& hooks = {});
  bool is_chunk_position(int32_t position) const {
    return position >= chunks_begin_ && position < chunks_end_;
  }
  void count_recomputed(std::span<const int64_t> selected);

  const Prompt& prompt_;
  const FusionOptions& options_;
  const std::vector<CheckLayer> checks_;
  const kv::SequenceId sequence_;
  const int32_t found_prefix_;
  model::ForwardPass& forward_;
  kv::Cache& cache_;
  const kernels::Context& context_;
  Report& report_;
  Stopwatch watch_;
  const float deviation_floor_;
  std::optional<model::Batch> batch_;  // the rows that run
  const int32_t n_layers_;
  const int32_t chunks_begin_;  // positions [chunks_begin_, chunks_end_) are chunks
  const int32_t chunks_end_;
  const std::vector<int32_t> tokens_;
  const std::vector<kernels::RopeTable> ropes_;  // of the chunks' positions, each of the model's
  int32_t placed_layers_;  // layers below have the chunks' KV in their pages, or need none
  std::span<const std::span<const uint16_t>>
      layer_bytes_;            // each chunk's bytes of the layer that runs
  int32_t loaded_layer_ = -1;  // the layer that layer_bytes_ is of
  const std::span<ChunkSource> sources_;
  std::unique_ptr<LoadPipeline> pipeline_;
  struct ChunkRow {
    int64_t row = 0;  // of the step
    size_t chunk = 0;
    int32_t position = 0;
    int32_t token = 0;  // of the chunk
  };
  std::vector<ChunkRow> chunk_rows_;        // the recomputed tokens
  std::vector<float> stored_k_, stored_v_;  // theirs, [chunk_rows_][kv_width], K before rotation
  std::vector<kernels::RopeTable> ropes_back_;  // of chunk_rows_, each of the model's
  ChunkShifts shifts_;                          // of the current layer
};

}  // namespace weft::fusion
