// Which of the chunks' tokens to recompute: the integers of it, no tensors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "fusion/prompt.h"

namespace weft::fusion {

/// The `k` indices with the highest scores, ascending; ties go to the lower index, NaN counts as
/// minus infinity. k is capped at scores.size().
std::vector<int64_t> top_k(std::span<const float> scores, int64_t k);

/// round(ratio * n_tokens), at least 1 when the ratio is above 0.
int64_t selected_count(double ratio, int64_t n_tokens);

/// Layers whose attention ranks the tokens: at about 1/6, 1/4 and 1/3 of the depth, ascending,
/// each once, never the last layer alone of a model that has more (reference: fusion.md).
std::vector<int32_t> query_attention_layers(int32_t n_layers);

/// The check layers that the options mean; kInvalidArgument for layer 0 (K and V there do not
/// depend on context), layers not ascending or past the model's, or ratios outside [0, 1] or
/// growing.
Result<std::vector<CheckLayer>> check_layers(const FusionOptions& options, int32_t n_layers);

}  // namespace weft::fusion
