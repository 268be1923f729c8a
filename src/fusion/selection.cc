// Which tokens are recomputed. The score of a token is what leaving it as stored would cost, as far
// as a look can tell: by v-deviation how much its V changes in the first layers (as CacheBlend
// does), by query-attention how much the question attends to it, weighed by how much V is expected
// to change so far into a chunk. The expectation is measured (docs/fusion.md): a chunk's first
// tokens see least of what they would see in the prompt.
#include "fusion/selection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace weft::fusion {

// By rank, with the lower index first of equal ones: the same prompt selects the same tokens on
// every machine whose scores are equal.
std::vector<int64_t> top_k(std::span<const float> scores, int64_t k) {
  std::vector<int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto rank = [&](int64_t i) {
    const float score = scores[i];
    return std::isnan(score) ? -std::numeric_limits<float>::infinity() : score;
  };
  const int64_t n = std::clamp<int64_t>(k, 0, std::ssize(order));
  const auto middle = order.begin() + n;
  std::nth_element(order.begin(), middle, order.end(), [&](int64_t a, int64_t b) {
    return rank(a) != rank(b) ? rank(a) > rank(b) : a < b;
  });
  order.resize(n);
  std::sort(order.begin(), order.end());
  return order;
}

float deviation_floor(int64_t anchor_tokens) {
  constexpr int64_t kPassageTokens = 64;  // an opening has a few, three neutral passages 130
  return anchor_tokens < kPassageTokens ? 0.06F : 0.2F;
}

float expected_deviation(int64_t index, float floor) {
  constexpr float kHalved = 6;  // the token about where deviation is half the first one's
  return floor + (1 - floor) * kHalved / (kHalved + index);
}

void weigh_by_deviation(const Prompt& prompt, float floor, std::span<float> scores) {
  auto score = scores.begin();
  for (const auto& chunk : prompt.chunks) {
    for (int64_t i = 0; i < std::ssize(chunk); ++i) *score++ *= expected_deviation(i, floor);
  }
}

// Each chunk's first tokens are in, up to a quarter of the budget: they are the ones whose context
// is missing altogether.
std::vector<int64_t> select_tokens(const Prompt& prompt, std::span<const float> expected_errors,
                                   int64_t k) {
  std::vector<float> ranked(expected_errors.begin(), expected_errors.end());
  const auto n_chunks = std::max<int64_t>(std::ssize(prompt.chunks), 1);
  const int64_t n_first = std::min(k / n_chunks / 4, kFirstTokens);
  auto chunk_begin = ranked.begin();
  for (const auto& chunk : prompt.chunks) {
    std::fill_n(chunk_begin, std::min(n_first, std::ssize(chunk)),
                std::numeric_limits<float>::infinity());
    chunk_begin += std::ssize(chunk);
  }
  return top_k(ranked, k);
}

int64_t selected_count(double ratio, int64_t n_tokens) {
  if (ratio <= 0 || n_tokens == 0) return 0;
  return std::clamp<int64_t>(std::llround(ratio * n_tokens), 1, n_tokens);
}

namespace {

/// Of equally near ones the earlier; `layer` itself where every layer has a window.
int32_t nearest_full_layer(const model::ModelConfig& config, int32_t layer) {
  for (int32_t distance = 0; distance < config.n_layers; ++distance) {
    for (const int32_t candidate : {layer - distance, layer + distance}) {
      if (candidate < 0 || candidate >= config.n_layers) continue;
      if (config.layers[candidate].window_tokens == 0) return candidate;
    }
  }
  return layer;
}

}  // namespace

std::vector<int32_t> query_attention_layers(const model::ModelConfig& config) {
  std::vector<int32_t> layers;
  for (const int32_t thirtieths : {4, 6, 8}) {
    const int32_t wanted = std::min((config.n_layers * thirtieths + 15) / 30, config.n_layers - 1);
    const int32_t layer = nearest_full_layer(config, wanted);
    if (layers.empty() || layer > layers.back()) layers.push_back(layer);
  }
  return layers;
}

Result<std::vector<CheckLayer>> check_layers(const FusionOptions& options, int32_t n_layers) {
  std::vector<CheckLayer> checks = options.checks;
  if (checks.empty()) checks.push_back({1, options.ratio});
  int32_t previous_layer = 0;
  double previous_ratio = 1;
  for (const CheckLayer& check : checks) {
    if (check.layer == 0) {
      return invalid_argument(
          "a check at layer 0 means nothing: K and V there do not depend on context");
    }
    if (check.layer <= previous_layer || check.layer >= n_layers) {
      return invalid_argument(fmt::format("check layer {}: layers must ascend from 1 to {}",
                                          check.layer, n_layers - 1));
    }
    if (!(check.ratio >= 0 && check.ratio <= previous_ratio)) {
      return invalid_argument(fmt::format(
          "check ratio {}: ratios lie in 0 to 1 and never grow from layer to layer", check.ratio));
    }
    previous_layer = check.layer;
    previous_ratio = check.ratio;
  }
  return checks;
}

}  // namespace weft::fusion
