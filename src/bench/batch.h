// Prefill and decode of several sequences at once, in tokens a second of all together.
#pragma once

#include <cstdint>
#include <vector>

#include "base/function_ref.h"
#include "base/spread.h"
#include "engine/engine.h"

namespace weft::bench {

struct BatchOptions {
  // Powers of two, so that a table shows where a step stops being bound by reading the weights and
  // begins to be bound by arithmetic.
  std::vector<int32_t> batches = {1, 2, 4, 8, 16, 32};  // sequences at once
  int32_t prompt_tokens = 128;                          // of each
  int32_t new_tokens = 64;                              // of each
  int32_t repeat = 3;
};

struct BatchSpeed {
  int32_t batch = 0;
  Spread prefill_tokens_per_s;
  Spread decode_tokens_per_s;
  double itl_ms_p50 = 0;  // between two tokens of a sequence: of all steps of all runs
  double itl_ms_p95 = 0;
};

/// Greedy, over random prompts that share nothing. Rounds go through all batches in turns, so that
/// a machine that is busy for a while slows each of them; the first round warms up and is not
/// counted. kInvalidArgument when a batch does not fit the KV cache or a sequence the context.
Result<std::vector<BatchSpeed>> bench_batch(
    engine::Engine& engine, const BatchOptions& options,
    FunctionRef<bool(int64_t done, int64_t total)> progress);

}  // namespace weft::bench
