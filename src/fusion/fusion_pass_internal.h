// One fusion of one prompt: the state that its steps share. Used by prefill.cc alone.
#pragma once

#include <optional>

#include "fusion/chunk_shifts.h"
#include "fusion/fusor.h"
#include "fusion/load_pipeline.h"
#include "fusion/stopwatch.h"

namespace weft::fusion {

/// Fuses over a reserved sequence, once. Where a layer of a chunk's KV cannot be loaded it ends
/// with an error and failed() is true: failure() says which chunk to compute anew.
class FusionPass : public model::Pass {
 public:
  /// All of it must outlive the pass. `found_prefix` tokens of the prompt are in the sequence's
  /// pages already.
  struct Inputs {
    const Prompt& prompt;
    const FusionOptions& options;
    std::vector<CheckLayer> checks;
    std::span<ChunkSource> sources;
    kv::SequenceId sequence{};
    int32_t found_prefix = 0;
    float deviation_floor = 0;
  };
  struct Machine {
    model::ForwardPass& forward;
    kv::Cache& cache;
    const kernels::Context& context;
  };
  FusionPass(Inputs inputs, const Machine& machine, Stopwatch& watch, Report& report);

  Result<std::optional<model::LayerRun>> next() override;
  /// Computes the logits of the prompt's last row.
  void finish() override;
  std::vector<float>& logits() { return logits_; }

  /// The time since the last layer ended goes to the part that runs.
  void charge() {
    if (part_ != nullptr) watch_.charge(*part_);
  }

  bool failed() const { return failed_; }
  const LoadFailure& failure() const { return pipeline_->failure(); }

 private:
  enum class Phase { kBegin, kLook, kDeviation, kRows };
  struct TakeChanges {
    FusionPass* pass;
    void operator()(int64_t row_begin, MatrixView<const float> k, MatrixView<const float> v);
  };

  Status begin();
  Status start(std::span<const int64_t> selected);
  Status run_rows(std::span<const int64_t> selected, double& part);
  Status select_by_attention();
  Result<std::optional<model::LayerRun>> look();
  Result<std::optional<model::LayerRun>> check();
  Result<std::optional<model::LayerRun>> layer(bool has_chunk_rows);
  Status load_layer(int32_t layer);
  kernels::KvRecord record_of(size_t chunk) const;
  void place_layer(int32_t layer, const ChunkShifts* shifts = nullptr);
  void shift_layer(int32_t layer);
  int64_t kv_width() const { return forward_.model().config().kv_width(); }
  int32_t rope_of(int32_t layer) const { return forward_.model().config().layers[layer].rope; }
  void list_chunk_rows();
  void read_from_bytes();
  void read_from_pages(int32_t layer);
  void measure_changes(int64_t row_begin, MatrixView<const float> k, MatrixView<const float> v);
  std::vector<int64_t> select_by_deviation(int32_t layer, double ratio);
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
  Stopwatch& watch_;
  const float deviation_floor_;
  std::optional<model::Batch> batch_;  // the rows that run
  const int32_t n_layers_;
  const int32_t chunks_begin_;  // positions [chunks_begin_, chunks_end_) are chunks
  const int32_t chunks_end_;
  const std::vector<int32_t> tokens_;
  const std::vector<kernels::RopeTable> ropes_;  // of the chunks' tokens, each of the model's
  int32_t placed_layers_;  // layers below have the chunks' KV in their pages, or need none
  std::span<const std::span<const std::byte>>
      layer_bytes_;            // each chunk's bytes of the layer that runs
  int32_t loaded_layer_ = -1;  // the layer that layer_bytes_ is of
  const std::span<ChunkSource> sources_;
  std::unique_ptr<LoadPipeline> pipeline_;
  struct ChunkRow {
    int64_t row = 0;  // of the step
    size_t chunk = 0;
    int32_t slot = 0;
    int32_t token = 0;  // of the chunk
  };
  std::vector<ChunkRow> chunk_rows_;        // the recomputed tokens
  std::vector<float> stored_k_, stored_v_;  // theirs, [chunk_rows_, kv_width], K before rotation
  std::vector<kernels::RopeTable> ropes_back_;  // of chunk_rows_, each of the model's
  ChunkShifts shifts_;                          // of the current layer
  TakeChanges take_changes_{this};
  const model::LayerHooks::KvSink on_changes_{take_changes_};

  Phase phase_ = Phase::kBegin;
  int32_t layer_ = 0;       // that runs next
  double* part_ = nullptr;  // of the report's timings, which the layer that runs belongs to
  std::vector<int32_t>
      scoring_layers_;  // query attention's layers, and what they paid to each position
  std::vector<float> received_;
  size_t next_check_ = 0;  // v-deviation's
  int64_t active_ = 0;  // chunks' tokens that run since the last check, and their sum over layers
  int64_t active_sum_ = 0;
  bool has_chunk_rows_ = false;
  int64_t last_row_ = 0;
  bool failed_ = false;
  std::vector<float> logits_;
};

}  // namespace weft::fusion
