#include "sampling/penalties.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/narrow.h"
#include "sampling/sampler.h"

namespace weft::sampling {
namespace {

using ::testing::FloatEq;
using ::testing::HasSubstr;
using ::testing::Pointwise;

/// What penalties.h says, token by token over the whole history.
std::vector<float> slowly(std::vector<float> logits, const PenaltyOptions& options,
                          const std::vector<int32_t>& prompt, const std::vector<int32_t>& answer) {
  std::vector<int32_t> all = prompt;
  all.insert(all.end(), answer.begin(), answer.end());
  int64_t n = std::ssize(all);
  if (options.repeat_last_n >= 0) n = std::min<int64_t>(n, options.repeat_last_n);
  const std::vector<int32_t> last(all.end() - n, all.end());
  for (size_t id = 0; id < logits.size(); ++id) {
    const int32_t token = id;
    if (std::ranges::find(last, token) != last.end()) {
      logits[id] = logits[id] > 0 ? logits[id] / options.repeat : logits[id] * options.repeat;
    }
    const float times = std::ranges::count(answer, token);
    if (times > 0) logits[id] -= times * options.frequency + options.presence;
  }
  return logits;
}

TEST(Penalties, EqualTheSlowReference) {
  std::mt19937 random(7);
  constexpr int32_t kVocab = 12;
  const auto number = [&](float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random);
  };
  const auto tokens = [&](size_t n) {
    std::vector<int32_t> ids(n);
    for (int32_t& id : ids) id = random() % kVocab;
    return ids;
  };
  for (int round = 0; round < 300; ++round) {
    const PenaltyOptions options{.repeat = number(0.5f, 2.0f),
                                 .repeat_last_n = narrow<int32_t>(random() % 8) - 1,
                                 .frequency = number(-2, 2),
                                 .presence = number(-2, 2)};
    ASSERT_TRUE(check_options(options).is_ok());
    Penalties penalties(options);
    const std::vector<int32_t> prompt = tokens(random() % 12);
    penalties.add_prompt(prompt);
    std::vector<int32_t> answer;
    for (int step = 0; step < 12; ++step) {
      std::vector<float> logits(kVocab);
      for (float& logit : logits) logit = number(-8, 8);
      const std::vector<float> expected = slowly(logits, options, prompt, answer);
      penalties.apply(logits);
      EXPECT_THAT(logits, Pointwise(FloatEq(), expected)) << "round " << round << " step " << step;
      answer.push_back(random() % kVocab);
      penalties.add(answer.back());
    }
  }
}

TEST(Penalties, OffTheyChangeNothing) {
  EXPECT_FALSE(Penalties({}).any());
  EXPECT_FALSE(Penalties({.repeat = 1.5f, .repeat_last_n = 0}).any());
  EXPECT_TRUE(Penalties({.repeat = 1.5f}).any());
  EXPECT_TRUE(Penalties({.presence = -0.5f}).any());
}

TEST(Penalties, TheRepeatPenaltyForgetsWhatIsFurtherBack) {
  Penalties penalties({.repeat = 2.0f, .repeat_last_n = 2});
  penalties.add_prompt(std::vector<int32_t>{0, 1, 2});
  penalties.add(3);
  std::vector<float> logits{4, 4, 4, -4, 4};
  penalties.apply(logits);
  EXPECT_EQ(logits, (std::vector<float>{4, 4, 2, -8, 4}));
}

TEST(Penalties, ATokenOutsideTheVocabularyAndImpossibleLogitsDoNoHarm) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  Penalties penalties({.repeat = 2.0f, .frequency = 1.0f});
  penalties.add_prompt(std::vector<int32_t>{-1, 99, 0});
  for (const int32_t id : {-7, 100, 0, 1}) penalties.add(id);
  std::vector<float> logits{-kInf, kInf, 3};
  penalties.apply(logits);
  EXPECT_EQ(logits, (std::vector<float>{-kInf, kInf, 3}));
}

TEST(Penalties, RangesAreChecked) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const float bad : {0.0f, -1.0f, 101.0f, kNan, std::numeric_limits<float>::infinity()}) {
    EXPECT_THAT(check_options(PenaltyOptions{.repeat = bad}).message(),
                HasSubstr("repeat-penalty"));
  }
  for (const float bad : {-2.5f, 2.5f, kNan}) {
    EXPECT_THAT(check_options(PenaltyOptions{.frequency = bad}).message(),
                HasSubstr("frequency-penalty"));
    EXPECT_THAT(check_options(PenaltyOptions{.presence = bad}).message(),
                HasSubstr("presence-penalty"));
  }
  EXPECT_THAT(check_options(PenaltyOptions{.repeat_last_n = -2}).message(),
              HasSubstr("repeat-last-n -2"));
  EXPECT_TRUE(check_options(PenaltyOptions{.repeat_last_n = -1}).is_ok());
}

TEST(Penalties, GreedySamplingCountsThemFirst) {
  SamplingOptions options;
  options.penalties.presence = 1.0f;
  Sampler sampler = *Sampler::create(options);
  const std::vector<float> logits{1.0f, 1.9f, 1.5f};
  EXPECT_EQ(sampler.sample(logits), 1);
  EXPECT_EQ(sampler.sample(logits), 2);
  EXPECT_EQ(sampler.sample(logits), 0);
  options.penalties = {.repeat = 10.0f};
  Sampler repeats = *Sampler::create(options);
  repeats.add_prompt(std::vector<int32_t>{1});
  EXPECT_EQ(repeats.sample(logits), 2);
}

}  // namespace
}  // namespace weft::sampling
