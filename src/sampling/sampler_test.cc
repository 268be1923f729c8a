#include "sampling/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "base/narrow.h"
#include "sampling/logprobs.h"

namespace weft::sampling {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Temperature 1 and nothing cut, so that a test switches on what it is about.
SamplingOptions plain(uint64_t seed = 1) {
  return {.temperature = 1.0f, .top_k = 0, .top_p = 1.0f, .min_p = 0.0f, .seed = seed};
}

Sampler make(const SamplingOptions& options) {
  Result<Sampler> sampler = Sampler::create(options);
  EXPECT_TRUE(sampler.is_ok()) << sampler.status().message();
  return std::move(sampler).value();
}

// Logits of the given probabilities, shifted: softmax must not care.
std::vector<float> logits_of(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + 3.0));
  return logits;
}

std::map<int32_t, int> count_draws(Sampler sampler, const std::vector<float>& logits, int n) {
  std::map<int32_t, int> counts;
  for (int i = 0; i < n; ++i) counts[sampler.sample(logits)]++;
  return counts;
}

std::set<int32_t> support(const SamplingOptions& options, const std::vector<float>& logits) {
  std::set<int32_t> ids;
  for (const auto& [id, count] : count_draws(make(options), logits, 4000)) ids.insert(id);
  return ids;
}

// Draws must match the probabilities: within five standard deviations of a binomial count.
void expect_distribution(const std::map<int32_t, int>& counts,
                         const std::map<int32_t, double>& probabilities, int n) {
  for (const auto& [id, count] : counts) EXPECT_TRUE(probabilities.contains(id)) << "token " << id;
  for (const auto& [id, p] : probabilities) {
    const auto found = counts.find(id);
    const int count = found == counts.end() ? 0 : found->second;
    EXPECT_NEAR(count, n * p, 5.0 * std::sqrt(n * p * (1.0 - p))) << "token " << id;
  }
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  Sampler sampler = make({});
  EXPECT_EQ(sampler.sample(std::vector<float>{1.0f, 3.0f, 3.0f, 2.0f}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{-kInf, kNan, -5.0f}), 2);
  EXPECT_EQ(sampler.sample(std::vector<float>{kNan, kNan}), 0);
  EXPECT_EQ(sampler.sample(std::vector<float>{1.0f, kInf, kInf}), 1);
}

TEST(Sampler, GreedyFindsTheFirstLargestInAVocabularyOfAnySize) {
  std::mt19937 random(5);
  for (const size_t n : {1, 15, 16, 511, 512, 513, 1024, 1537, 49152}) {
    for (int round = 0; round < 40; ++round) {
      std::vector<float> logits(n);
      size_t want = 0;
      for (float& logit : logits) {
        const uint32_t kind = random() % 50;
        logit = kind == 0 ? kNan : kind == 1 ? -kInf : 1.0f * (random() % 3000);
      }
      for (size_t id = 1; id < n; ++id) {
        if (logits[id] > logits[want] || std::isnan(logits[want])) want = id;
      }
      if (std::isnan(logits[want]) || logits[want] == -kInf) continue;
      ASSERT_EQ(greedy_token(logits), narrow<int32_t>(want)) << n << " round " << round;
    }
  }
}

TEST(Sampler, DrawsByProbability) {
  constexpr int kDraws = 40000;
  const std::vector<float> logits = logits_of({0.5, 0.25, 0.15, 0.1});
  expect_distribution(count_draws(make(plain()), logits, kDraws),
                      {{0, 0.5}, {1, 0.25}, {2, 0.15}, {3, 0.1}}, kDraws);
}

TEST(Sampler, TemperatureSharpensAndFlattens) {
  constexpr int kDraws = 40000;
  SamplingOptions options = plain();
  options.temperature = 0.5f;  // squares the odds: 0.8 to 0.2 becomes 16 to 1
  expect_distribution(count_draws(make(options), logits_of({0.8, 0.2}), kDraws),
                      {{0, 16.0 / 17.0}, {1, 1.0 / 17.0}}, kDraws);
  options.temperature = 2.0f;  // roots: 2 to 1
  expect_distribution(count_draws(make(options), logits_of({0.8, 0.2}), kDraws),
                      {{0, 2.0 / 3.0}, {1, 1.0 / 3.0}}, kDraws);
}

TEST(Sampler, TopKKeepsTheLikeliest) {
  const std::vector<float> logits = logits_of({0.1, 0.4, 0.2, 0.3});
  SamplingOptions options = plain();
  options.top_k = 2;
  EXPECT_THAT(support(options, logits), ElementsAre(1, 3));
  options.top_k = 1;
  EXPECT_THAT(support(options, logits), ElementsAre(1));
  options.top_k = 100;
  EXPECT_THAT(support(options, logits), ElementsAre(0, 1, 2, 3));
  options.top_k = 2;  // the lowest ids among equals
  EXPECT_THAT(support(options, std::vector<float>(5, 1.0f)), ElementsAre(0, 1));
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  const std::vector<float> logits = logits_of({0.1, 0.4, 0.2, 0.3});
  SamplingOptions options = plain();
  options.top_p = 0.69f;
  EXPECT_THAT(support(options, logits), ElementsAre(1, 3));
  options.top_p = 0.71f;
  EXPECT_THAT(support(options, logits), ElementsAre(1, 2, 3));
  options.top_p = 0.001f;
  EXPECT_THAT(support(options, logits), ElementsAre(1));
}

TEST(Sampler, TopPCountsWhatTopKLeft) {
  SamplingOptions options = plain();
  options.top_k = 2;
  options.top_p = 0.55f;  // 0.4 of 0.4 + 0.3 is 0.571
  EXPECT_THAT(support(options, logits_of({0.1, 0.4, 0.2, 0.3})), ElementsAre(1));
}

TEST(Sampler, MinPComparesWithTheBestBeforeTemperature) {
  const std::vector<float> logits = logits_of({0.1, 0.4, 0.2, 0.3});
  SamplingOptions options = plain();
  options.min_p = 0.49f;  // 0.4 * 0.49 = 0.196
  EXPECT_THAT(support(options, logits), ElementsAre(1, 2, 3));
  options.min_p = 0.51f;  // 0.204
  EXPECT_THAT(support(options, logits), ElementsAre(1, 3));
  options.temperature = 5.0f;  // flatter, but what was cut stays cut
  EXPECT_THAT(support(options, logits), ElementsAre(1, 3));
}

TEST(Sampler, SeedDecidesTheTokens) {
  const std::vector<float> logits(100, 0.0f);
  const auto tokens = [&](uint64_t seed) {
    Sampler sampler = make(plain(seed));
    std::vector<int32_t> ids;
    for (int i = 0; i < 8; ++i) ids.push_back(sampler.sample(logits));
    return ids;
  };
  EXPECT_EQ(tokens(5), tokens(5));
  EXPECT_NE(tokens(5), tokens(6));
  // splitmix64 from state 0 begins with 0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F:
  // as shares of 2^64 these are 0.883, 0.431 and 0.026.
  const std::vector<int32_t> first = tokens(0);
  EXPECT_THAT(std::vector<int32_t>(first.begin(), first.begin() + 3), ElementsAre(88, 43, 2));
}

TEST(Sampler, OddLogitsNeverCrash) {
  for (const float odd : {kNan, kInf, -kInf, 3.0e38f, -3.0e38f}) {
    for (const float other : {kNan, kInf, -kInf, 0.0f}) {
      Sampler sampler = make({.temperature = 0.7f});
      const std::vector<float> logits = {odd, other, odd, other};
      for (int i = 0; i < 20; ++i) {
        const int32_t id = sampler.sample(logits);
        EXPECT_GE(id, 0);
        EXPECT_LT(id, 4);
      }
      for (const TokenLogprob& top : top_logprobs(logits, 4)) EXPECT_LE(top.logprob, 0.0f);
    }
  }
  Sampler sampler = make({.temperature = 1.0f});
  EXPECT_EQ(sampler.sample(std::vector<float>{kNan, -kInf, 1.0f}), 2);
}

TEST(Sampler, OneThatResumesGoesOnAsTheOneThatItTakesThePlaceOf) {
  SamplingOptions options = plain(7);
  options.penalties = {.repeat = 1.5f, .repeat_last_n = 6, .frequency = 0.5f, .presence = 0.5f};
  const std::vector<int32_t> prompt = {3, 1, 4, 1, 5};
  const std::vector<float> logits(20, 1.0f);
  for (const size_t n_before : {0u, 1u, 9u}) {
    Sampler whole = make(options);
    whole.add_prompt(prompt);
    std::vector<int32_t> answer;
    for (size_t i = 0; i < n_before; ++i) answer.push_back(whole.sample(logits));
    Sampler resumed = make(options);
    resumed.add_prompt(prompt);
    resumed.resume(answer, whole.n_draws());
    EXPECT_EQ(resumed.n_draws(), n_before);
    for (int i = 0; i < 30; ++i) EXPECT_EQ(resumed.sample(logits), whole.sample(logits)) << i;
  }
}

TEST(Sampler, GreedyAnswersDrawNothing) {
  Sampler sampler = make({.temperature = 0.0f});
  (void)sampler.sample(logits_of({0.1, 0.9}));
  EXPECT_EQ(sampler.n_draws(), 0u);
}

TEST(Sampler, RefusesOptionsOutOfRange) {
  const std::vector<std::pair<std::string, SamplingOptions>> cases = {
      {"temp", {.temperature = -1.0f}}, {"temp", {.temperature = kNan}},
      {"temp", {.temperature = kInf}},  {"top-k", {.top_k = -1}},
      {"top-p", {.top_p = 0.0f}},       {"top-p", {.top_p = 1.1f}},
      {"top-p", {.top_p = kNan}},       {"min-p", {.min_p = -0.1f}},
      {"min-p", {.min_p = kNan}},       {"min-p", {.min_p = 1.5f}},
  };
  for (const auto& [field, options] : cases) {
    const Result<Sampler> sampler = Sampler::create(options);
    ASSERT_FALSE(sampler.is_ok()) << field;
    EXPECT_EQ(sampler.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(sampler.status().message(), HasSubstr(field));
  }
}

TEST(Logprobs, AreTheLogarithmsOfTheSoftmax) {
  const std::vector<float> logits = logits_of({0.1, 0.4, 0.2, 0.3});
  // A logit near 3 is rounded by at most 2^-23, and so is the result.
  constexpr float kTolerance = 4.0f / (1 << 23);
  const std::vector<TokenLogprob> top = top_logprobs(logits, 3);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].id, 1);
  EXPECT_NEAR(top[0].logprob, std::log(0.4), kTolerance);
  EXPECT_EQ(top[1].id, 3);
  EXPECT_NEAR(top[1].logprob, std::log(0.3), kTolerance);
  EXPECT_EQ(top[2].id, 2);
  EXPECT_NEAR(token_logprob(logits, 0), std::log(0.1), kTolerance);
  EXPECT_EQ(top_logprobs(logits, 10).size(), 4u);
  for (const TokenLogprob& one : top) {
    EXPECT_EQ(static_cast<float>(logprob_of(logits[one.id], log_sum_exp(logits))), one.logprob);
  }
  EXPECT_EQ(logprob_of(kNan, 0), -kInf);
  EXPECT_EQ(top_tokens(logits, 3), (std::vector<int32_t>{top[0].id, top[1].id, top[2].id}));
  EXPECT_TRUE(top_logprobs(logits, 0).empty());
  EXPECT_EQ(token_logprob(std::vector<float>{0.0f, kNan}, 1), -kInf);
}

}  // namespace
}  // namespace weft::sampling
