// Runs work through the layers. What goes through is a pass: plain rows, a chunk's, a fusion's two
// phases; it says layer by layer what runs next, so that several may be under way at once. The one
// place that runs layers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "kv/cache.h"
#include "model/batch.h"
#include "model/forward.h"

namespace weft::model {

/// One layer of a batch.
struct LayerRun {
  enum class Part {
    kWhole,
    kLast,  // the last layer, of which only `wanted` rows remain
    kLook,  // attention received only, added to hooks.received: no layer follows
  };
  Batch* batch = nullptr;
  int32_t layer = 0;
  Part part = Part::kWhole;
  std::span<const int64_t> wanted;  // ascending, may be none; for kLast
  LayerHooks hooks;
};

/// Work that goes through the layers, between two of which it may rest as long as its sequences are
/// left alone. Destroyed before its end it leaves the cache as it was.
class Pass {
 public:
  Pass() = default;
  virtual ~Pass() = default;
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  /// The layer to run next, the last one having been run; nullopt: there is none. What it refers to
  /// stays until the next call.
  virtual Result<std::optional<LayerRun>> next() = 0;
  /// After the last layer, before what was reserved is committed.
  virtual void finish() {}

  /// A reservation that the pass fills, and that is committed at its end.
  void hold(kv::Reservation reservation) { reservations_.push_back(std::move(reservation)); }
  /// What it fills is not committed at its end but left to who takes it: drafts are committed as
  /// far as they are accepted.
  void leave_open() { leaves_open_ = true; }
  std::vector<kv::Reservation> take_reservations() { return std::move(reservations_); }

 private:
  friend class Executor;
  std::vector<kv::Reservation> reservations_;
  bool leaves_open_ = false;
};

/// One thread. The forward pass must outlive it.
class Executor {
 public:
  using Cancelled = FunctionRef<bool()>;

  explicit Executor(ForwardPass& forward) : forward_(forward) {}

  /// Runs the pass's next layer; returns how many rows went into it. 0: there was none, and the
  /// pass is finished and committed.
  Result<int64_t> advance(Pass& pass);
  /// Runs all layers. `cancelled` may be null; it is asked before each of them, and true ends with
  /// kCancelled. After an error the pass is of no use: destroy it, and the cache is as it was.
  Status run(Pass& pass, const Cancelled* cancelled = nullptr);

 private:
  ForwardPass& forward_;
};

/// Rows that go through all layers: prefill, decode, verification, or all of them in one step.
class RowsPass : public Pass {
 public:
  struct Options {
    std::vector<int64_t> wanted;  // rows whose logits are wanted, ascending
    bool keep_all_rows = false;   // batch() holds all rows at the end; else only the wanted ones
    const LayerHooks::KvSink* kv_sink = nullptr;
    std::span<const int32_t> layers;  // for measuring: only these; none: all
  };
  /// `forward` must outlive the pass. Errors are ForwardPass::start's.
  RowsPass(ForwardPass& forward, kv::Cache& cache, Rows rows, Options options)
      : forward_(forward), cache_(cache), rows_(std::move(rows)), options_(std::move(options)) {}

  Result<std::optional<LayerRun>> next() override;
  /// Computes the logits.
  void finish() override;

  const Batch& batch() const { return *batch_; }
  Batch take_batch() { return std::move(*batch_); }
  /// [wanted][vocab_size], after the pass; to be moved from. What it holds before is memory to use.
  std::vector<float>& logits() { return logits_; }

 private:
  ForwardPass& forward_;
  kv::Cache& cache_;
  Rows rows_;
  Options options_;
  std::optional<Batch> batch_;
  int32_t next_ = 0;  // of the layers that run
  std::vector<float> logits_;
};

}  // namespace weft::model
