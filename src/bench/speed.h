// Plain speed: prefill and decode in tokens a second, loading left out.
#pragma once

#include <cstdint>
#include <vector>

#include "base/function_ref.h"
#include "base/spread.h"
#include "engine/engine.h"

namespace weft::bench {

/// 512 is a step's budget of rows, 4,096 several of them with attention over what came before.
struct SpeedOptions {
  std::vector<int32_t> prefill_tokens = {512, 4096};
  int32_t decode_tokens = 64;
  int32_t depth_tokens = 0;  // in the cache before decoding starts
  bool fills_random = false;  // they are random K and V, not those of tokens
  int32_t repeat = 3;
};

struct PrefillSpeed {
  int32_t tokens = 0;
  Spread tokens_per_s;
};

/// Attention of a decoded token in one layer, the mean of some layers.
struct AttentionSpeed {
  int32_t n_layers = 0;
  Spread ms;         // all of it: choosing pages and reading them
  Spread select_ms;  // choosing pages
};

/// Medians with their spread over the repeats, the warm-up left out.
struct SpeedReport {
  std::vector<PrefillSpeed> prefill;
  int32_t decode_depth = 0;
  Spread decode_tokens_per_s;
  // Of the layers that see all slots:
  AttentionSpeed dense;      // those that read everything
  AttentionSpeed selecting;  // those that choose pages
};

/// kInvalidArgument when something does not fit the context; `progress` as in bench_ttft.
Result<SpeedReport> bench_speed(engine::Engine& engine, const SpeedOptions& options,
                                FunctionRef<bool(int64_t done, int64_t total)> progress);

}  // namespace weft::bench
