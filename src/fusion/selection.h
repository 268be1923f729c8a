// Which of the chunks' tokens to recompute: the integers of it, no tensors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "fusion/prompt.h"
#include "model/config.h"

namespace weft::fusion {

/// The `k` indices with the highest scores, ascending; ties go to the lower index, NaN counts as
/// minus infinity. k is capped at scores.size().
std::vector<int64_t> top_k(std::span<const float> scores, int64_t k);

/// Where expected_deviation() levels off, by the length of the anchor that the chunks were computed
/// after. 0.06 is what V's deviation comes down to. After passages the tokens far into a chunk
/// count for more than that: of 0, 0.2 and 1, HotpotQA, XQuAD and passages of 300 to 550
/// tokens lost least with 0.2 together (docs/experiments.md).
float deviation_floor(int64_t anchor_tokens);

/// How far V of a chunk's token `index`, computed without what precedes the chunk, is from V in its
/// place: squared and relative, up to a constant factor. The more of its own chunk a token has
/// seen, the less it misses. Fitted to what was measured on SmolLM2 over all layers, XQuAD with
/// five distractors: 0.35 for the first four tokens, 0.15 for 8 to 15, 0.10, 0.06, 0.04 and 0.03
/// for the next spans, each twice as long.
float expected_deviation(int64_t index, float floor);

/// Multiplies scores [tokens of all chunks, one chunk after another] by expected_deviation() of
/// each token's place in its chunk.
void weigh_by_deviation(const Prompt& prompt, float floor, std::span<float> scores);

/// The `k` tokens of the chunks to recompute, ascending, counted over all chunks one after another:
/// the first tokens of every chunk, a quarter of an equal share of k but at most kFirstTokens, and
/// for the rest those with the highest `expected_errors` [tokens of all chunks]. What a chunk's
/// first tokens hold for the others (the sink that each chunk brings along) the question's
/// attention does not show.
std::vector<int64_t> select_tokens(const Prompt& prompt, std::span<const float> expected_errors,
                                   int64_t k);
inline constexpr int64_t kFirstTokens = 4;

/// round(ratio * n_tokens), at least 1 when the ratio is above 0.
int64_t selected_count(double ratio, int64_t n_tokens);

/// Layers whose attention ranks the tokens: at 2/15, 1/5 and 4/15 of the depth (4, 6 and 8 of
/// SmolLM2's 30: of a dozen choices within the first third the best on XQuAD and HotpotQA
/// together), ascending, each once (reference: fusion.md). Where some layers have a window, the
/// ones nearest to these that see everything (5 of Gemma 3 270M's 18): a window shows the question
/// only the chunks next to it.
std::vector<int32_t> query_attention_layers(const model::ModelConfig& config);

/// The check layers that the options mean; kInvalidArgument for layer 0 (K and V there do not
/// depend on context), layers not ascending or past the model's, or ratios outside [0, 1] or
/// growing.
Result<std::vector<CheckLayer>> check_layers(const FusionOptions& options, int32_t n_layers);

}  // namespace weft::fusion
