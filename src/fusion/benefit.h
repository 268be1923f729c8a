// Whether reuse is worth it, from operation counts alone: the same request always decides the same.
#pragma once

#include <cstdint>

#include "fusion/prompt.h"
#include "model/config.h"

namespace weft::fusion {

/// What a prompt would need, in tokens.
struct ReuseCounts {
  int64_t prefix_missing = 0;  // prefix tokens that the prefix index does not have
  int64_t prefix_found = 0;
  int64_t hit_tokens = 0;     // of chunks whose KV is stored
  int64_t missed_tokens = 0;  // of chunks that have to be computed behind the anchor first
  int64_t anchor_tokens = 0;
  int64_t suffix_tokens = 0;
};

/// Operations of plain prefill (from the end of what the prefix index has).
double plain_work(const model::ModelConfig& config, const ReuseCounts& counts);

/// Operations of reuse under the options, loading and rotating counted as the operations that would
/// take as long.
double reuse_work(const model::ModelConfig& config, const ReuseCounts& counts,
                  const FusionOptions& options);

/// Reuse that saves less than this share of plain prefill is not taken.
inline constexpr double kMinimumSaving = 0.1;

}  // namespace weft::fusion
