// How large an engine's KV cache is: integers alone, before anything is allocated. Free functions;
// any thread.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "base/status.h"
#include "kv/cache.h"
#include "model/config.h"

namespace weft::engine {

/// vLLM's size: of a sequence's last page half is empty on average, 8 slots.
inline constexpr int32_t kKvPageTokens = 16;

/// The most that a step adds to a sequence where windows roll. The weights are read once for each
/// step: at 2,048 rows that is lost in what the rows cost.
inline constexpr int32_t kRollingStepTokens = 2048;

/// As in EngineOptions.
struct KvRequest {
  int32_t context_tokens = 0;
  int32_t n_contexts = 1;
  kernels::KvTypes types;
  int32_t page_tokens = kKvPageTokens;
  bool rolls_windows = false;
};

/// The KV cache of what the contexts need, whatever the limit. kUnsupported for a type that the
/// heads do not take.
Result<kv::Cache::Options> kv_cache_options(const KvRequest& request,
                                            const model::ModelConfig& config);

/// Rows of a prompt that a step has at least, or all of it: under a limit pages come first, and
/// steps get what they leave. SmolLM2-135M, two threads of a Xeon with AVX-512 and AMX, int8 path:
/// steps of 64 rows prefill at 86 % of the speed of 512, of 16 at 68 %; in f32 57 and 24 %.
inline constexpr int32_t kLeastStepRows = 64;

/// How a limit is divided.
struct KvPlan {
  kv::Cache::Options cache;
  int32_t step_rows = 0;      // of a prompt that can be divided
  int64_t scratch_bytes = 0;  // set aside for steps; 0 without a limit
};

/// Memory of a command's longest step (engine/step_memory.h), which grows with both.
using StepBytes = FunctionRef<int64_t(int64_t capacity_tokens, int64_t step_rows)>;

/// Makes `wanted`, the cache of what the contexts need, as small as the limit demands, in whole
/// pages: with the longest step's memory, at least steps of kLeastStepRows, it stays within
/// `limit_bytes`. kInvalidArgument, with the size that would do, where that leaves no page.
Result<KvPlan> limit_kv(const kv::Cache::Options& wanted, uint64_t limit_bytes,
                        StepBytes step_bytes);

/// The limit under which so many pages fit beside the longest step's memory.
int64_t limit_for_pages(const kv::Cache::Options& cache, int64_t n_pages, StepBytes step_bytes);

/// K, V and digests of a cache of so many pages, all layers; a group that rolls has no more than it
/// needs.
int64_t kv_cache_bytes(const kv::Cache::Options& cache, int64_t n_pages);

}  // namespace weft::engine
