// How large an engine's KV cache is: integers alone, before anything is allocated. Free functions;
// any thread.
#pragma once

#include <cstdint>

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
  uint64_t limit_bytes = 0;  // 0: none
  bool rolls_windows = false;
};

/// The KV cache: of what the contexts need, or of what the limit holds of that, in whole pages.
/// kInvalidArgument for a limit below a page, kUnsupported for a type that the heads do not take.
Result<kv::Cache::Options> kv_cache_options(const KvRequest& request,
                                            const model::ModelConfig& config);

/// K and V of a cache of so many pages, all layers; a group that rolls has no more than it needs.
int64_t kv_cache_bytes(const kv::Cache::Options& cache, int64_t n_pages);

}  // namespace weft::engine
