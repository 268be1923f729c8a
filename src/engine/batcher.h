// Many requests over one model: each step has the rows of all that run, decode rows beside pieces
// of prompts, as the scheduler plans it; every answer is the one that its request gets alone.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/generation.h"
#include "engine/scheduler.h"
#include "engine/speculation.h"
#include "fusion/prefill.h"

namespace weft::engine {

struct BatchRequest {
  std::vector<int32_t> prompt;
  GenerationOptions options;
  std::string salt;  // KV is shared with requests of the same salt alone
};

/// A prompt over chunks, which is prefilled as the fusor does it, whole.
struct ChunkedRequest {
  fusion::Fusor* fusor = nullptr;  // must outlive the batcher
  fusion::Prompt prompt;
  fusion::FusionOptions fusion;  // `cancelled` is not asked
  GenerationOptions options;
};

struct BatchAnswer : Generation {
  double ttft_ms = 0;  // from the request's first step to its first token; 0: it had none
  std::optional<fusion::Report> report;  // of a ChunkedRequest whose prompt was prefilled
};

struct BatcherOptions {
  int32_t max_running = 16;   // requests that are under way at once
  int32_t prompt_rows = 512;  // rows of prompts that a step may have beside those that decode;
                              // fewer where the engine's limit demands it
};

/// What was run, so far.
struct BatchStats {
  int64_t prompt_rows = 0;  // computed, those of preempted requests again
  int64_t new_tokens = 0;   // sampled
  int64_t preemptions = 0;
  int32_t pages_peak = 0;    // of the KV cache, held by requests at once
  int32_t pages_shared = 0;  // of those at the peak, held by more than one
};

/// Not thread-safe. The engine must outlive it and run nothing else meanwhile.
class Batcher {
 public:
  /// A request's index is that of its submission.
  using OnDone = FunctionRef<void(size_t index, Result<BatchAnswer> answer)>;

  /// kInvalidArgument for options that make no sense.
  static Result<std::unique_ptr<Batcher>> create(Engine& engine, const BatcherOptions& options);
  ~Batcher();
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;

  /// Takes a request, to be run in the order of arrival; returns its index. A prompt that an
  /// earlier request of its salt has, too, is computed once. Refuses, with the numbers, what cannot
  /// run even alone; what is refused has no index.
  Result<size_t> submit(BatchRequest request);
  /// The same. Its prompt is prefilled by itself, in steps with the others' rows, and as Fusor does
  /// it alone: layers that run as many rows as a step has for prompts, then the others' next token.
  Result<size_t> submit(ChunkedRequest request);

  /// Runs one step; false: nothing was left to run. `on_done` gets each request that ended in it.
  /// `cancelled` may be null; it is asked before each layer, and true ends with kCancelled, nothing
  /// having changed. kResourceExhausted when memory runs out, or for want of pages that others
  /// hold; after such an error only cancel() may follow. `on_done` must not submit.
  Result<bool> step(OnDone on_done, const model::Executor::Cancelled* cancelled = nullptr);
  /// Ends every request that has not ended, with what it has: stop reason kCancelled.
  void cancel(OnDone on_done);

  const BatchStats& stats() const { return stats_; }
  /// The scheduler's; empty when all is well.
  std::vector<std::string> violations() const { return scheduler_.violations(); }

 private:
  struct ChunkedPrompt {
    fusion::Fusor* fusor = nullptr;
    fusion::Prompt prompt;
    fusion::FusionOptions options;  // from its first prefill on those that do the same again
  };
  struct Request {
    size_t index = 0;
    std::string salt;
    int32_t prompt_tokens = 0;
    std::vector<int32_t> tokens;  // the prompt and what was generated
    std::unique_ptr<TextGeneration> text;
    std::optional<kv::OwnedSequence> sequence;  // while it runs
    std::optional<ChunkedPrompt> chunked;
    std::unique_ptr<fusion::Prefill> prefill;  // of a chunked prompt, until it is computed
    std::vector<float> first_logits;           // of one that was, until its step is committed
    std::unique_ptr<Speculation> speculation;  // from its first decode row on
    std::optional<fusion::Report> report;
    int64_t admitted_ns = 0;  // first
    int64_t begin_ns = 0;     // of the first token
  };

  Batcher(Engine& engine, Scheduler scheduler)
      : engine_(engine), scheduler_(std::move(scheduler)) {}
  class OpenPlan;

  Result<bool> run_step(OnDone on_done, const model::Executor::Cancelled* cancelled);
  Result<size_t> submit(RequestShape shape, Request request, const GenerationOptions& options);
  int32_t free_pages() const;
  Status prepare(const StepPlan& plan);
  /// `failed`: why the request ends, else ok.
  Result<WholePrompt> run_whole(const StepPlan& plan, const model::Executor::Cancelled* cancelled,
                                Status& failed);
  /// Rows of a slice, and what of them is kept.
  struct SliceRows {
    std::vector<int32_t> tokens;
    size_t sequence = 0;  // of StepRows::tried's reservations
    int32_t n_kept = 0;
  };
  struct StepRows {
    std::vector<SliceRows> of_slices;
    TriedRows tried;  // logits of the rows that sample, in the order of the slices
  };
  /// Drafts beside the decode rows where pages are free.
  Status add_drafts(const StepPlan& plan, const model::Executor::Cancelled* cancelled,
                    StepRows& rows);
  Status run_rows(const StepPlan& plan, const model::Executor::Cancelled* cancelled,
                  StepRows& rows);
  void count_step(const StepPlan& plan, int64_t n_rows, double ms);
  /// Samples; returns the requests that have ended, and why.
  using Ended = std::vector<std::pair<RequestId, Status>>;
  Ended sample(const StepPlan& plan, WholePrompt whole, const Status& failed, StepRows& rows);
  /// What was kept becomes part of the sequences; prompts that are complete are found from now on.
  void commit_rows(const StepPlan& plan, StepRows rows);
  /// Out of the requests.
  Request take(RequestId id);
  void count_pages();
  BatchAnswer finish(Request& request);

  Engine& engine_;
  Scheduler scheduler_;
  std::map<RequestId, Request> requests_;
  using SaltedPrompt = std::pair<std::string, std::vector<int32_t>>;
  std::map<SaltedPrompt, RequestId> by_prompt_;  // the first of each that runs
  size_t n_submitted_ = 0;
  std::vector<float> logits_;  // of the step
  BatchStats stats_;
};

}  // namespace weft::engine
