#include "fusion/benefit.h"

#include <gtest/gtest.h>

#include <utility>

namespace weft::fusion {
namespace {

/// SmolLM2-135M's shape.
model::ModelConfig smollm2() {
  model::ModelConfig config;
  config.n_layers = 30;
  config.n_embd = 576;
  config.n_ff = 1536;
  config.n_heads = 9;
  config.n_kv_heads = 3;
  config.head_dim = 64;
  config.vocab_size = 49152;
  config.layers.resize(30);
  return config;
}

FusionOptions blend() { return {.mode = ReuseMode::kBlend, .ratio = 0.05}; }
FusionOptions full() { return {.mode = ReuseMode::kFull}; }

/// Share of plain prefill's operations that reuse saves; the fusor takes it from kMinimumSaving on.
double saving(const ReuseCounts& counts, const FusionOptions& options) {
  return 1 - reuse_work(smollm2(), counts, options) / plain_work(smollm2(), counts);
}

TEST(Benefit, PlainWorkIsTheModelsOperations) {
  // Two operations a weight, and 4 * q_width a pair of row and key: from the layers' shapes.
  const double weights = 576.0 * (576 + 192 + 192 + 576) + 3.0 * 576 * 1536;
  const ReuseCounts counts{.prefix_missing = 40, .suffix_tokens = 60};
  EXPECT_DOUBLE_EQ(plain_work(smollm2(), counts), 30 * 100 * (2 * weights + 4.0 * 50 * 576));
}

TEST(Benefit, AShortPromptIsPrefilledPlainly) {
  const ReuseCounts counts{.prefix_missing = 30, .hit_tokens = 20, .suffix_tokens = 40};
  EXPECT_LT(saving(counts, blend()), kMinimumSaving);
}

TEST(Benefit, EightHitsOf480TokensSaveMoreThanFourFifths) {
  const ReuseCounts counts{.prefix_found = 32, .hit_tokens = 8 * 480, .suffix_tokens = 40};
  EXPECT_GT(plain_work(smollm2(), counts), 5 * reuse_work(smollm2(), counts, blend()));
  EXPECT_GT(plain_work(smollm2(), counts), 5 * reuse_work(smollm2(), counts, full()));
}

// Two chunks' worth of text. Of longer prompts even misses alone cost less than plain prefill,
// since a chunk that is computed by itself does not attend to the others.
TEST(Benefit, FewHitsAmongMissesArePrefilledPlainly) {
  ReuseCounts counts{.prefix_found = 32,
                     .hit_tokens = 60,
                     .missed_tokens = 900,
                     .anchor_tokens = 4,
                     .suffix_tokens = 40};
  EXPECT_LT(saving(counts, blend()), kMinimumSaving);
  std::swap(counts.hit_tokens, counts.missed_tokens);
  EXPECT_GT(saving(counts, blend()), kMinimumSaving);
}

TEST(Benefit, EveryHitMoreSavesMore) {
  double previous = -1e9;
  for (int64_t hits = 0; hits <= 8; ++hits) {
    const ReuseCounts counts{.prefix_found = 32,
                             .hit_tokens = hits * 480,
                             .missed_tokens = (8 - hits) * 480,
                             .suffix_tokens = 40};
    EXPECT_GT(saving(counts, blend()), previous) << hits;
    previous = saving(counts, blend());
  }
}

TEST(Benefit, RecomputingMoreSavesLess) {
  const ReuseCounts counts{.hit_tokens = 8 * 480, .suffix_tokens = 40};
  double previous = saving(counts, full());
  for (const double ratio : {0.01, 0.05, 0.15, 0.5, 1.0}) {
    FusionOptions options = blend();
    options.ratio = ratio;
    EXPECT_LT(saving(counts, options), previous) << ratio;
    previous = saving(counts, options);
  }
  EXPECT_LT(previous, 0);  // recomputing all of it cannot pay
}

TEST(Benefit, WhatThePrefixIndexHasCostsNothing) {
  const ReuseCounts missing{.prefix_missing = 200, .hit_tokens = 480, .suffix_tokens = 40};
  const ReuseCounts found{.prefix_found = 200, .hit_tokens = 480, .suffix_tokens = 40};
  EXPECT_LT(plain_work(smollm2(), found), plain_work(smollm2(), missing));
  EXPECT_LT(reuse_work(smollm2(), found, blend()), reuse_work(smollm2(), missing, blend()));
}

}  // namespace
}  // namespace weft::fusion
