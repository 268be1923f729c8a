#include "fusion/work.h"

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

double plain_operations(const ReuseCounts& counts) {
  return operations(smollm2(), plain_work(smollm2(), counts));
}
double reuse_operations(const ReuseCounts& counts, const FusionOptions& options) {
  return operations(smollm2(), reuse_work(smollm2(), counts, options));
}

FusionOptions blend() { return {.mode = ReuseMode::kBlend, .ratio = 0.05}; }
FusionOptions full() { return {.mode = ReuseMode::kFull}; }

/// Share of plain prefill's operations that reuse saves; the fusor takes it from kMinimumSaving on.
double saving(const ReuseCounts& counts, const FusionOptions& options) {
  return 1 - reuse_operations(counts, options) / plain_operations(counts);
}

TEST(Work, PlainWorkIsTheModelsOperations) {
  // Two operations a weight, and 4 * q_width a pair of row and key: from the layers' shapes.
  const double weights = 576.0 * (576 + 192 + 192 + 576) + 3.0 * 576 * 1536;
  const ReuseCounts counts{.prefix_missing = 40, .suffix_tokens = 60};
  EXPECT_DOUBLE_EQ(plain_operations(counts), 30 * 100 * (2 * weights + 4.0 * 50 * 576));
}

TEST(Work, AShortPromptIsPrefilledPlainly) {
  const ReuseCounts counts{.prefix_missing = 30, .hit_tokens = 20, .suffix_tokens = 40};
  EXPECT_LT(saving(counts, blend()), kMinimumSaving);
}

TEST(Work, EightHitsOf480TokensSaveMoreThanFourFifths) {
  const ReuseCounts counts{.prefix_found = 32, .hit_tokens = 8 * 480, .suffix_tokens = 40};
  EXPECT_GT(plain_operations(counts), 5 * reuse_operations(counts, blend()));
  EXPECT_GT(plain_operations(counts), 5 * reuse_operations(counts, full()));
}

// Two chunks' worth of text. Of longer prompts even misses alone cost less than plain prefill,
// since a chunk that is computed by itself does not attend to the others.
TEST(Work, FewHitsAmongMissesArePrefilledPlainly) {
  ReuseCounts counts{.prefix_found = 32,
                     .hit_tokens = 60,
                     .missed_tokens = 900,
                     .anchor_tokens = 4,
                     .suffix_tokens = 40};
  EXPECT_LT(saving(counts, blend()), kMinimumSaving);
  std::swap(counts.hit_tokens, counts.missed_tokens);
  EXPECT_GT(saving(counts, blend()), kMinimumSaving);
}

TEST(Work, EveryHitMoreSavesMore) {
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

TEST(Work, RecomputingMoreSavesLess) {
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

TEST(Work, WhatThePrefixIndexHasCostsNothing) {
  const ReuseCounts missing{.prefix_missing = 200, .hit_tokens = 480, .suffix_tokens = 40};
  const ReuseCounts found{.prefix_found = 200, .hit_tokens = 480, .suffix_tokens = 40};
  EXPECT_LT(plain_operations(found), plain_operations(missing));
  EXPECT_LT(reuse_operations(found, blend()), reuse_operations(missing, blend()));
}

TEST(Work, AWindowLimitsWhatRowsSee) {
  model::ModelConfig windowed = smollm2();
  for (model::LayerConfig& layer : windowed.layers) layer.window_tokens = 100;
  const ReuseCounts inside{.prefix_missing = 50, .suffix_tokens = 50};
  EXPECT_EQ(plain_work(windowed, inside).keys, plain_work(smollm2(), inside).keys);
  // 100 rows that see 50 on average, 900 that see 100.
  const ReuseCounts beyond{.hit_tokens = 900, .suffix_tokens = 100};
  EXPECT_DOUBLE_EQ(plain_work(windowed, beyond).keys, 30 * (100.0 * 50 + 900.0 * 100));
}

// What each check leaves runs up to the next one; --ratio says nothing then.
TEST(Work, CheckLayersAreCountedWithTheirOwnRatios) {
  const ReuseCounts counts{.hit_tokens = 1000, .suffix_tokens = 40};
  FusionOptions options{
      .mode = ReuseMode::kBlend, .ratio = 0, .selector = SelectorKind::kVDeviation};
  options.checks = {{1, 0.2}, {8, 0.1}};
  EXPECT_DOUBLE_EQ(reuse_work(smollm2(), counts, options).rows,
                   30 * 40.0 + 1 * 1000 + 7 * 200 + 22 * 100);
}

PrefillRates rates() {  // 2,000 tokens a second, attention and loading aside
  return {.block_ms = 0, .row_ms = 0.5 / 30, .key_ms = 1e-6, .kv_byte_ms = 1e-7, .logits_ms = 1};
}

TEST(AutoRatio, AFullPrefillThatIsSoonDoneIsTaken) {
  const ReuseCounts counts{.prefix_missing = 30, .hit_tokens = 600, .suffix_tokens = 40};
  ASSERT_LT(predicted_ms(plain_work(smollm2(), counts), rates()), kSoonMs);
  EXPECT_EQ(auto_ratio(smollm2(), counts, blend(), rates()), std::nullopt);
}

TEST(AutoRatio, TheLargestRatioThatKeepsToTheTimeIsTaken) {
  double previous = 1;
  for (const int64_t tokens : {1000, 1500, 2000, 3000}) {
    const ReuseCounts counts{.prefix_missing = 30, .hit_tokens = tokens, .suffix_tokens = 40};
    FusionOptions options = blend();
    const auto ratio = auto_ratio(smollm2(), counts, options, rates());
    ASSERT_TRUE(ratio);
    EXPECT_GE(*ratio, kLeastRatio);
    EXPECT_LT(*ratio, previous);
    previous = *ratio;
    options.ratio = *ratio;
    EXPECT_LE(predicted_ms(reuse_work(smollm2(), counts, options), rates()), kSoonMs);
    options.ratio = *ratio + 2.0 / tokens;
    EXPECT_GT(predicted_ms(reuse_work(smollm2(), counts, options), rates()), kSoonMs);
  }
}

TEST(AutoRatio, ALongPromptMayTakeATenthOfFullPrefill) {
  const ReuseCounts counts{.prefix_missing = 30, .hit_tokens = 7000, .suffix_tokens = 40};
  PrefillRates slow = rates();
  slow.row_ms *= 20;  // full prefill takes over a minute
  FusionOptions options = blend();
  options.ratio = auto_ratio(smollm2(), counts, options, slow).value();
  const double may_take_ms = kSpentShare * predicted_ms(plain_work(smollm2(), counts), slow);
  ASSERT_GT(may_take_ms, kSoonMs);
  EXPECT_GT(options.ratio, kLeastRatio);
  EXPECT_LE(predicted_ms(reuse_work(smollm2(), counts, options), slow), may_take_ms);
  options.ratio += 2.0 / 7000;
  EXPECT_GT(predicted_ms(reuse_work(smollm2(), counts, options), slow), may_take_ms);
}

TEST(AutoRatio, IsNeverBelowTheLeast) {
  const ReuseCounts counts{.prefix_missing = 500, .hit_tokens = 700, .suffix_tokens = 400};
  PrefillRates slow = rates();
  slow.row_ms *= 20;  // what is always computed is more than may be spent
  EXPECT_EQ(auto_ratio(smollm2(), counts, blend(), slow), kLeastRatio);
}

// As with little in chunks, or rates that were measured while the machine did something else.
TEST(AutoRatio, FullPrefillIsTakenWhereReuseIsNotFaster) {
  const ReuseCounts few_chunks{.prefix_missing = 3000, .hit_tokens = 100, .suffix_tokens = 1000};
  EXPECT_EQ(auto_ratio(smollm2(), few_chunks, blend(), rates()), std::nullopt);
  const ReuseCounts counts{.prefix_missing = 40, .hit_tokens = 3000, .suffix_tokens = 40};
  PrefillRates slow_disk = rates();
  EXPECT_TRUE(auto_ratio(smollm2(), counts, blend(), slow_disk));
  slow_disk.kv_byte_ms *= 1000;
  EXPECT_EQ(auto_ratio(smollm2(), counts, blend(), slow_disk), std::nullopt);
}

TEST(AutoRatio, AHostileMeasurementGivesARatioAllTheSame) {
  const ReuseCounts counts{.hit_tokens = 3000, .suffix_tokens = 40};
  for (const double ms : {0.0, 1e-300, 1e9}) {
    const PrefillRates odd{ms, ms, ms, ms, ms};
    const auto ratio = auto_ratio(smollm2(), counts, blend(), odd);
    const double value = ratio.value_or(kLeastRatio);
    EXPECT_TRUE(value >= kLeastRatio && value <= 1) << ms;
  }
}

}  // namespace
}  // namespace weft::fusion
