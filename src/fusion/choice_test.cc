#include "fusion/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

FusionOptions automatic() {
  FusionOptions options{.mode = ReuseMode::kBlend, .auto_ratio = true};
  options.rates = {
      .block_ms = 0, .row_ms = 0.5 / 30, .key_ms = 1e-6, .kv_byte_ms = 1e-7, .logits_ms = 1};
  return options;
}

constexpr ReuseCounts kShort{.prefix_missing = 40, .hit_tokens = 500, .suffix_tokens = 30};
constexpr ReuseCounts kLong{.prefix_missing = 40, .hit_tokens = 3000, .suffix_tokens = 30};

TEST(Choice, AutoTakesFullPrefillWhereItIsSoonDone) {
  const Choice choice = choose(smollm2(), kShort, automatic());
  EXPECT_TRUE(choice.is_plain);
  ASSERT_EQ(choice.notes.size(), 1u);
  EXPECT_THAT(choice.notes[0], ::testing::HasSubstr("less than 0.4 s"));
  ASSERT_TRUE(choice.predicted);
  EXPECT_EQ(choice.predicted->ttft_ms, choice.predicted->full_prefill_ms);
  EXPECT_LT(choice.predicted->full_prefill_ms, kSoonMs);
}

TEST(Choice, AutoTakesARatioWhereItIsNot) {
  const Choice choice = choose(smollm2(), kLong, automatic());
  EXPECT_FALSE(choice.is_plain);
  EXPECT_GE(choice.options.ratio, kLeastRatio);
  EXPECT_LE(choice.predicted->ttft_ms, kSoonMs);
  EXPECT_GT(choice.predicted->full_prefill_ms, 1000);
}

// A ratio that was asked for is never replaced, however short the prompt.
TEST(Choice, AGivenRatioIsTaken) {
  FusionOptions options = automatic();
  options.auto_ratio = false;
  options.ratio = 0.3;
  for (const ReuseCounts& counts : {kShort, kLong}) {
    const Choice choice = choose(smollm2(), counts, options);
    EXPECT_FALSE(choice.is_plain);
    EXPECT_EQ(choice.options.ratio, 0.3);
  }
}

TEST(Choice, ReuseAsItIsHasNoRatioToChoose) {
  FusionOptions options = automatic();
  options.mode = ReuseMode::kFull;
  EXPECT_FALSE(choose(smollm2(), kShort, options).is_plain);
}

// What the prefix index has is cold or warm; the ratio is the same.
TEST(Choice, WhatIsFoundDoesNotChangeTheRatio) {
  ReuseCounts found = kLong;
  std::swap(found.prefix_found, found.prefix_missing);
  const Choice cold = choose(smollm2(), kLong, automatic());
  const Choice warm = choose(smollm2(), found, automatic());
  EXPECT_EQ(cold.options.ratio, warm.options.ratio);
  EXPECT_LT(warm.predicted->ttft_ms, cold.predicted->ttft_ms);  // but the prediction knows
}

// Nor does it decide whether reuse is worth it: a question asked twice is answered the same way.
TEST(Choice, WhatIsFoundDoesNotChangeTheMode) {
  int n_plain = 0;
  int n_blend = 0;
  for (int64_t chunk_tokens = 300; chunk_tokens < 1500; chunk_tokens += 10) {
    ReuseCounts counts{.prefix_missing = 140, .hit_tokens = chunk_tokens, .suffix_tokens = 30};
    const bool cold = choose(smollm2(), counts, automatic()).is_plain;
    std::swap(counts.prefix_found, counts.prefix_missing);
    EXPECT_EQ(choose(smollm2(), counts, automatic()).is_plain, cold) << chunk_tokens;
    ++(cold ? n_plain : n_blend);
  }
  EXPECT_GT(n_plain, 0);
  EXPECT_GT(n_blend, 0);
}

TEST(Choice, AConversationsHistoryIsNotPrefilledAgain) {
  const ReuseCounts counts{.prefix_found = 500, .hit_tokens = 500, .suffix_tokens = 30};
  FusionOptions options = automatic();
  EXPECT_FALSE(choose(smollm2(), counts, options).is_plain);
  options.history_tokens = 500;
  EXPECT_TRUE(choose(smollm2(), counts, options).is_plain);
}

TEST(Choice, MissingChunksArePrefilledPlainlyWhereReuseSavesNothing) {
  ReuseCounts missing{
      .prefix_missing = 40, .missed_tokens = 1000, .anchor_tokens = 130, .suffix_tokens = 30};
  const Choice choice = choose(smollm2(), missing, automatic());
  EXPECT_TRUE(choice.is_plain);
  EXPECT_THAT(choice.notes.at(0), ::testing::HasSubstr("0 of 1000 chunk tokens"));
  FusionOptions all_the_same = automatic();
  all_the_same.allow_plain = false;
  EXPECT_FALSE(choose(smollm2(), missing, all_the_same).is_plain);
}

}  // namespace
}  // namespace weft::fusion
