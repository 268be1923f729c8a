#include "fusion/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

namespace weft::fusion {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(TopK, TakesTheHighestAndListsThemAscending) {
  const std::vector<float> scores{0.5f, 3.0f, -1.0f, 2.0f, 4.0f};
  EXPECT_THAT(top_k(scores, 1), ElementsAre(4));
  EXPECT_THAT(top_k(scores, 3), ElementsAre(1, 3, 4));
}

TEST(TopK, TiesGoToTheLowerIndex) {
  const std::vector<float> scores{1, 2, 1, 2, 2, 1, 2};
  EXPECT_THAT(top_k(scores, 2), ElementsAre(1, 3));
  EXPECT_THAT(top_k(scores, 5), ElementsAre(0, 1, 3, 4, 6));
  EXPECT_THAT(top_k(std::vector<float>(200, 0.0f), 3), ElementsAre(0, 1, 2));
}

TEST(TopK, NanIsTakenLast) {
  const std::vector<float> scores{kNan, -5.0f, kNan, -6.0f};
  EXPECT_THAT(top_k(scores, 2), ElementsAre(1, 3));
  EXPECT_THAT(top_k(scores, 3), ElementsAre(0, 1, 3));
  EXPECT_THAT(top_k(std::vector<float>(5, kNan), 2), ElementsAre(0, 1));
}

TEST(TopK, NanAndMinusInfinityAreTheSame) {
  const std::vector<float> scores{kNan, -kInf, kInf, -kInf};
  EXPECT_THAT(top_k(scores, 2), ElementsAre(0, 2));
}

TEST(TopK, KIsCappedAtBothEnds) {
  const std::vector<float> scores{3, 1, 2};
  EXPECT_THAT(top_k(scores, 0), IsEmpty());
  EXPECT_THAT(top_k(scores, -4), IsEmpty());
  EXPECT_THAT(top_k(scores, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(top_k(scores, std::numeric_limits<int64_t>::max()), ElementsAre(0, 1, 2));
  EXPECT_THAT(top_k({}, 2), IsEmpty());
}

TEST(ExpectedDeviation, FallsAboutAsMeasured) {
  // The share of V that was off at these tokens, over that at the first (selection.h).
  const float floor = deviation_floor(0);
  EXPECT_FLOAT_EQ(expected_deviation(0, floor), 1.0f);
  EXPECT_NEAR(expected_deviation(11, floor), 0.15f / 0.35f, 0.05f);
  EXPECT_NEAR(expected_deviation(47, floor), 0.06f / 0.35f, 0.05f);
  EXPECT_NEAR(expected_deviation(191, floor), 0.03f / 0.35f, 0.05f);
}

TEST(ExpectedDeviation, FallsToItsFloorBehindEveryAnchor) {
  for (const int64_t anchor_tokens : {0, 3, 64, 130, 1000}) {
    const float floor = deviation_floor(anchor_tokens);
    for (int64_t i = 0; i < 8192; ++i) {
      EXPECT_GT(expected_deviation(i, floor), expected_deviation(i + 1, floor));
    }
    EXPECT_NEAR(expected_deviation(1 << 20, floor), floor, 1e-4f);
  }
  EXPECT_LT(deviation_floor(3), deviation_floor(130));
}

TEST(WeighByDeviation, BeginsAnewWithEachChunk) {
  Prompt prompt;
  prompt.prefix = {7, 7};
  prompt.chunks = {{1, 2, 3}, {4, 5}};
  std::vector<float> scores{1, 1, 10, 2, 1};
  weigh_by_deviation(prompt, 0.5f, scores);
  EXPECT_THAT(scores,
              ElementsAre(1.0f, expected_deviation(1, 0.5f), 10 * expected_deviation(2, 0.5f), 2.0f,
                          expected_deviation(1, 0.5f)));
}

TEST(SelectedCount, RoundsToTheNearest) {
  EXPECT_EQ(selected_count(0.05, 1000), 50);
  EXPECT_EQ(selected_count(0.05, 1009), 50);  // 50.45
  EXPECT_EQ(selected_count(0.05, 1011), 51);  // 50.55
  EXPECT_EQ(selected_count(0.25, 10), 3);     // 2.5: away from zero
  EXPECT_EQ(selected_count(1, 777), 777);
}

TEST(SelectedCount, IsAtLeastOneOfAnyAndNoneOfNothing) {
  EXPECT_EQ(selected_count(0.001, 10), 1);
  EXPECT_EQ(selected_count(1e-9, 1), 1);
  EXPECT_EQ(selected_count(0, 1000), 0);
  EXPECT_EQ(selected_count(0.5, 0), 0);
}

model::ModelConfig of_layers(int32_t n_layers) {
  model::ModelConfig config;
  config.n_layers = n_layers;
  config.layers.resize(n_layers);
  return config;
}

/// All layers have a window but the last of each `period`.
model::ModelConfig windowed(int32_t n_layers, int32_t period) {
  model::ModelConfig config = of_layers(n_layers);
  for (int32_t i = 0; i < n_layers; ++i) {
    if (i % period != period - 1) config.layers[i].window_tokens = 512;
  }
  return config;
}

TEST(QueryAttentionLayers, AscendWithinTheFirstThird) {
  for (int32_t n_layers = 1; n_layers <= 40; ++n_layers) {
    SCOPED_TRACE(n_layers);
    const std::vector<int32_t> layers = query_attention_layers(of_layers(n_layers));
    ASSERT_THAT(layers, ::testing::SizeIs(::testing::AllOf(::testing::Ge(1u), ::testing::Le(3u))));
    EXPECT_GE(layers.front(), 0);
    for (size_t i = 1; i < layers.size(); ++i) EXPECT_GT(layers[i], layers[i - 1]);
    EXPECT_LE(3 * layers.back(), n_layers + 1);  // a third, rounded to the nearest layer
    EXPECT_LT(layers.back(), n_layers);
    if (n_layers > 2) {
      EXPECT_LT(layers.back(), n_layers - 1);
    }
  }
}

TEST(QueryAttentionLayers, OfKnownDepths) {
  EXPECT_THAT(query_attention_layers(of_layers(1)), ElementsAre(0));
  EXPECT_THAT(query_attention_layers(of_layers(12)), ElementsAre(2, 3));
  EXPECT_THAT(query_attention_layers(of_layers(30)), ElementsAre(4, 6, 8));
  EXPECT_THAT(query_attention_layers(of_layers(32)), ElementsAre(4, 6, 9));
}

TEST(QueryAttentionLayers, SeeEverythingWhereSomeLayersDoNot) {
  EXPECT_THAT(query_attention_layers(windowed(18, 6)), ElementsAre(5));        // Gemma 3 270M
  EXPECT_THAT(query_attention_layers(windowed(26, 6)), ElementsAre(5));        // Gemma 3 1B
  EXPECT_THAT(query_attention_layers(windowed(34, 6)), ElementsAre(5, 11));    // Gemma 3 4B
  EXPECT_THAT(query_attention_layers(windowed(26, 2)), ElementsAre(3, 5, 7));  // Gemma 2 2B
  EXPECT_THAT(query_attention_layers(windowed(12, 100)), ElementsAre(2, 3));   // no other layers
}

FusionOptions with_checks(std::vector<CheckLayer> checks) {
  return {.ratio = 0.2, .selector = SelectorKind::kVDeviation, .checks = std::move(checks)};
}

TEST(CheckLayers, NoneMeansLayerOneAtTheRatio) {
  const auto checks = check_layers(with_checks({}), 30);
  ASSERT_TRUE(checks.is_ok()) << checks.status().message();
  ASSERT_EQ(checks->size(), 1u);
  EXPECT_EQ(checks->front().layer, 1);
  EXPECT_EQ(checks->front().ratio, 0.2);
}

TEST(CheckLayers, TakesThemAscendingWithRatiosThatDoNotGrow) {
  const auto checks = check_layers(with_checks({{1, 0.5}, {4, 0.5}, {29, 0}}), 30);
  ASSERT_TRUE(checks.is_ok()) << checks.status().message();
  EXPECT_EQ(checks->size(), 3u);
  EXPECT_EQ((*checks)[2].layer, 29);
}

struct Refusal {
  friend void PrintTo(const Refusal& r, std::ostream* out) { *out << r.name; }
  const char* name;
  std::vector<CheckLayer> checks;
  const char* says;
};

class RefusedChecks : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedChecks, SayWhy) {
  const Status status = check_layers(with_checks(GetParam().checks), 8).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(Table, RefusedChecks,
                         ::testing::Values(Refusal{"layer_zero_first", {{0, 0.5}}, "layer 0"},
                                           Refusal{
                                               "layer_zero_later", {{1, 0.5}, {0, 0.5}}, "layer 0"},
                                           Refusal{"below_zero", {{-1, 0.5}}, "layer -1"},
                                           Refusal{"same_twice", {{3, 0.5}, {3, 0.4}}, "layer 3"},
                                           Refusal{"descending", {{3, 0.5}, {2, 0.4}}, "layer 2"},
                                           Refusal{"past_the_last", {{8, 0.5}}, "1 to 7"},
                                           Refusal{"growing", {{1, 0.2}, {2, 0.3}}, "ratio 0.3"},
                                           Refusal{"above_one", {{1, 1.5}}, "ratio 1.5"},
                                           Refusal{"negative", {{1, -0.1}}, "ratio -0.1"},
                                           Refusal{"not_a_number",
                                                   {{1, std::numeric_limits<double>::quiet_NaN()}},
                                                   "ratio nan"}),
                         [](const auto& refusal) { return refusal.param.name; });

TEST(SelectTokens, TakesEachChunksFirstTokensAndThenTheHighestLosses) {
  Prompt prompt;
  prompt.chunks = {std::vector<int32_t>(40), std::vector<int32_t>(2), std::vector<int32_t>(40)};
  std::vector<float> expected_errors(82, 0.0F);
  for (size_t i = 20; i < 40; ++i) expected_errors[i] = 100.0f - i;  // of the first chunk
  // 24 of three chunks: a share of 8, two of it first tokens.
  std::vector<int64_t> expected = {0, 1, 40, 41, 42, 43};
  for (int64_t i = 20; i < 38; ++i) expected.push_back(i);
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(select_tokens(prompt, expected_errors, 24), expected);
  // Of a share below four none is given away.
  EXPECT_EQ(select_tokens(prompt, expected_errors, 11), top_k(expected_errors, 11));
  // However many there are, four of each are enough.
  prompt.chunks = {std::vector<int32_t>(41), std::vector<int32_t>(41)};
  std::vector<float> last_first(82);
  std::iota(last_first.begin(), last_first.end(), 0.0F);
  const std::vector<int64_t> many = select_tokens(prompt, last_first, 50);
  EXPECT_EQ(std::vector<int64_t>(many.begin(), many.begin() + 5),
            (std::vector<int64_t>{0, 1, 2, 3, 36}));
  EXPECT_EQ(std::ssize(select_tokens(prompt, last_first, 100)), 82);
}

TEST(CheckLayers, AModelOfOneLayerHasNoLayerToCheck) {
  EXPECT_FALSE(check_layers(with_checks({}), 1).is_ok());
}

}  // namespace
}  // namespace weft::fusion
