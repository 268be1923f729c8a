// A prompt on its way into the KV cache: the missing chunks, then a fusion or plain prefill, layer
// by layer, so that other sequences can decode in between. Fusor::start makes it.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fusion/fusor.h"
#include "fusion/load_pipeline.h"
#include "fusion/selection.h"
#include "fusion/stopwatch.h"

namespace weft::fusion {

class FusionPass;
class Gathering;

/// Not thread-safe. Between two calls the fusor, its cache and its forward pass may be used for
/// anything else. Destroyed before its end it leaves the cache as it was. The fusor must outlive
/// it.
class Prefill {
 public:
  ~Prefill();
  Prefill(const Prefill&) = delete;
  Prefill& operator=(const Prefill&) = delete;

  /// Runs the next layer; returns how many rows went into it. 0: the prompt is prefilled, and only
  /// take() may follow. Errors as Fusor::prefill's, after which it is of no use.
  Result<int64_t> advance();
  /// Once, at the end.
  Prefilled take();

  /// Whether the pages of the whole prompt are held.
  bool has_pages() const { return sequence_.has_value(); }
  /// Options that have the same prompt prefilled in the same way, whatever is stored by then. After
  /// the first advance().
  const FusionOptions& settled() const { return options_; }

 private:
  friend class Fusor;

  enum class Stage { kChoose, kGather, kPlain, kFuse, kDone };

  /// Where `sources` are given, these are fused, nothing is looked up.
  Prefill(Fusor& fusor, Prompt prompt, FusionOptions options,
          std::optional<std::vector<ChunkSource>> sources);

  Result<int64_t> advance_any();
  Status choose_way();
  Status finish_gathering();
  Result<kv::OwnedSequence> begin_sequence(std::span<const int32_t> prefix);
  Result<kv::Reservation> reserve(kv::SequenceId id, int32_t row, int32_t end);
  Status start_plain();
  Status start_plain_step(kv::SequenceId id);
  Status start_fusion();
  const LoadFailure* charge_pass();
  void compute_anew(LoadFailure failure);
  void mark_damaged(const LoadFailure& failure);
  void mark_damaged_besides(size_t chunk);
  void finish();
  void count_tokens();
  void log_fused() const;

  Fusor& fusor_;
  const Prompt prompt_;
  const std::vector<int32_t> tokens_;
  FusionOptions options_;  // as asked for, then as chosen
  std::vector<CheckLayer> checks_;
  Stopwatch watch_;
  Stage stage_ = Stage::kChoose;
  std::vector<Fusor::NamedChunk> chunks_;
  std::vector<std::optional<ChunkSource>> found_;
  std::vector<ChunkSource> sources_;
  std::unique_ptr<Gathering> gathering_;
  std::vector<size_t> damaged_;  // the chunks that are gathered anew
  int32_t found_prefix_ = 0;
  Report report_;
  std::optional<kv::OwnedSequence> sequence_;
  std::unique_ptr<model::Pass> pass_;     // after all that it refers to
  model::RowsPass* rows_pass_ = nullptr;  // pass_, in plain prefill
  FusionPass* fusion_ = nullptr;          // pass_, in a fusion
  std::vector<float> logits_;
};

}  // namespace weft::fusion
