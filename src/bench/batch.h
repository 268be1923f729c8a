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
  bool mixed = false;         // by chance instead, up to twice as many, so that this is the mean
  int32_t shared_tokens = 0;  // the same for all, before the prompt; each batch runs twice then
  int32_t repeat = 3;
};

/// What the KV cache held.
struct BatchKv {
  int32_t pages_peak = 0;   // of all groups of layers
  int64_t bytes_peak = 0;   // of these pages
  double shared_share = 0;  // of these pages: held by several sequences
  double wasted_share = 0;  // of slots of held pages, over all steps: without a token
};

struct BatchSpeed {
  int32_t batch = 0;
  bool shares_prompt = false;   // the shared tokens are computed once and held once
  Spread prefill_tokens_per_s;  // tokens of prompts, whether computed or found
  Spread decode_tokens_per_s;
  double itl_ms_p50 = 0;  // between two tokens of a sequence: of all steps of all runs
  double itl_ms_p95 = 0;
  BatchKv kv;
};

struct BatchReport {
  std::vector<BatchSpeed> speeds;  // batches in their order, each without sharing first
  bool same_answers = true;        // each answer was the same with and without sharing
};

/// Rows of the longest step: all prompts of the largest batch. For EngineOptions::steps.
int64_t longest_prefill(const BatchOptions& options);

/// Greedy, over random prompts. Rounds go through all batches in turns, so that a machine that is
/// busy for a while slows each of them; the first round warms up and is not counted.
/// kInvalidArgument when a batch does not fit the KV cache or a sequence the context.
Result<BatchReport> bench_batch(engine::Engine& engine, const BatchOptions& options,
                                FunctionRef<bool(int64_t done, int64_t total)> progress);

}  // namespace weft::bench
