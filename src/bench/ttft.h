// Time to first token of the reuse modes on one prompt of cached chunks: what reuse is for. The
// chunks come in another order than they were prefilled in before, so that prefix caching meets
// what it meets in practice. Loading is counted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/spread.h"
#include "engine/engine.h"
#include "fusion/prompt.h"

namespace weft::bench {

struct TtftOptions {
  int32_t n_chunks = 8;
  int32_t chunk_tokens = 480;
  int32_t question_tokens = 96;
  bool shuffled = true;  // chunks are in another order than in the prompt that came before
  std::vector<fusion::ReuseMode> modes = fusion::kReuseModes.values();
  fusion::FusionOptions fusion;  // its mode is set per run
  int32_t repeat = 5;
  bool cold = false;      // drop the records from the page cache before each run
  std::string store_dir;  // an empty folder for the records
};

/// Over the repeats; parts as in fusion::Timings.
struct TtftResult {
  fusion::ReuseMode mode = fusion::ReuseMode::kNone;
  Spread ttft_ms;
  Spread lookup_ms, miss_ms, load_wait_ms, rotate_ms, select_ms, recompute_ms, prefill_ms;
  int32_t reused_tokens = 0;
  int32_t recomputed_tokens = 0;
  int32_t computed_tokens = 0;
  uint64_t loaded_bytes = 0;
  fusion::ReuseMode done = fusion::ReuseMode::kNone;  // plainer than `mode` where that was chosen
  double ratio = 0;                                   // as in fusion::Report
  std::optional<fusion::Prediction> predicted;        // full and blend, where there are rates
};

struct TtftReport {
  int32_t prompt_tokens = 0;
  std::vector<TtftResult> modes;
  std::vector<int32_t> tokens;  // of the prompt that was timed, to give to another engine
};

/// `progress` is called after each run; returning false ends with kCancelled.
Result<TtftReport> bench_ttft(engine::Engine& engine, const TtftOptions& options,
                              FunctionRef<bool(int64_t done, int64_t total)> progress);

}  // namespace weft::bench
