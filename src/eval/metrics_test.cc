#include "eval/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace weft::eval {
namespace {

TEST(Metrics, KlOfTwoKnownDistributions) {
  const float p[] = {std::log(0.5f), std::log(0.25f), std::log(0.25f)};
  const float q[] = {std::log(0.25f) + 3, std::log(0.25f) + 3, std::log(0.5f) + 3};  // unnormalised
  EXPECT_NEAR(kl_divergence(p, q), 0.25 * std::log(2.0), 1e-6);
  EXPECT_EQ(kl_divergence(p, p), 0);
}

TEST(Metrics, F1CountsWordsWithoutCasePunctuationAndArticles) {
  const std::string golden[] = {"The Cat sat", "dog"};
  EXPECT_DOUBLE_EQ(answer_f1("a cat, sat!", golden), 1.0);
  EXPECT_DOUBLE_EQ(answer_f1("cat", golden), 2.0 / 3);
  EXPECT_DOUBLE_EQ(answer_f1("cat cat", golden), 0.5);  // the second one matches nothing
  EXPECT_DOUBLE_EQ(answer_f1("", golden), 0.0);
  EXPECT_DOUBLE_EQ(answer_f1("Dog.", golden), 1.0);
}

TEST(Metrics, ArgmaxTakesTheLowestOfEquals) {
  const float values[] = {1, 3, 3};
  EXPECT_EQ(argmax(values), 1);
}

TEST(Metrics, ContainsIsOfWholeNormalisedWords) {
  const std::string golden[] = {"the 10 cats", "Dog"};
  EXPECT_TRUE(contains_answer("There were 10 cats, I think.", golden));
  EXPECT_TRUE(contains_answer("A DOG!", golden));
  EXPECT_FALSE(contains_answer("10 dogs and cats", golden));  // neither "10 cats" nor "dog"
  EXPECT_FALSE(contains_answer("", golden));
  const std::string empty[] = {"the", ""};
  EXPECT_FALSE(contains_answer("the", empty));
}

// The interval of a binomial share: 0.7 of 100 has a standard error of 0.046.
TEST(Metrics, AShareHasItsInterval) {
  std::vector<bool> hits(100, false);
  std::fill(hits.begin(), hits.begin() + 70, true);
  const Share s = share_of(hits);
  EXPECT_DOUBLE_EQ(s.share, 0.7);
  EXPECT_EQ(s.of, 100);
  EXPECT_NEAR(s.low, 0.7 - 1.96 * 0.046, 0.03);
  EXPECT_NEAR(s.high, 0.7 + 1.96 * 0.046, 0.03);
  EXPECT_EQ(share_of(hits).low, s.low);  // the seed is fixed
  EXPECT_EQ(share_of({}).of, 0);
  const Share all = share_of(std::vector<bool>(5, true));
  EXPECT_EQ(all.low, 1);
  EXPECT_EQ(all.high, 1);
}

}  // namespace
}  // namespace weft::eval
