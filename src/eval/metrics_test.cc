#include "eval/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace weft::eval {
namespace {

TEST(Metrics, KlOfTwoKnownDistributions) {
  const float p[] = {std::log(0.5f), std::log(0.25f), std::log(0.25f)};
  const float q[] = {std::log(0.25f) + 3, std::log(0.25f) + 3, std::log(0.5f) + 3};  // unnormalised
  EXPECT_NEAR(kl_divergence(p, q), 0.25 * std::log(2.0), 1e-6);
  EXPECT_EQ(kl_divergence(p, p), 0);
  const std::vector<float> no_numbers(std::size(p), std::nanf(""));
  EXPECT_TRUE(std::isnan(kl_divergence(p, no_numbers)));
  EXPECT_TRUE(std::isnan(kl_divergence(no_numbers, no_numbers)));
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

/// n words of a vocabulary of `of`, drawn by C's old rand.
std::string drawn_words(int n, uint32_t seed, uint32_t of) {
  std::string text;
  for (int i = 0; i < n; ++i) {
    seed = (seed * 1103515245u + 12345u) & 0x7fffffffu;
    text += "w" + std::to_string((seed >> 16) % of) + " ";
  }
  return text;
}

// By rouge-score 0.1.2 of PyPI:
// RougeScorer(["rougeL"], use_stemmer=False).score_multi(references, candidate)["rougeL"].fmeasure
TEST(Metrics, RougeLIsThatOfTheRougeScorePackage) {
  const struct {
    std::string candidate;
    std::vector<std::string> references;
    double f;
  } cases[] = {
      {"the cat sat on the mat", {"the cat lay on the mat"}, 0.8333333333333334},
      {"police killed the gunman", {"police kill the gunman"}, 0.75},
      {"the gunman kill police", {"police killed the gunman"}, 0.5},
      {"The, CAT-sat!", {"the cat sat"}, 1},
      {"", {""}, 0},
      {"...", {"..."}, 0},
      {"a b c", {""}, 0},
      {"", {"a b c"}, 0},
      {"a a a a b", {"a b a b a"}, 0.6},
      {"Zürich's naïve café", {"Zurich s na ve caf"}, 0.7272727272727272},
      {"\u212aelvin \u0130stanbul", {"kelvin i stanbul"}, 1},
      {"日本語 2024年", {"2024 Japan"}, 0.6666666666666666},
      {"one two three four", {"four three two one"}, 0.25},
      {"x1 y2 z3", {"x1", "z3 x1 y2 z3 q"}, 0.7499999999999999},  // the best reference
      {"snake_case and 3.14", {"snake case and 3 14"}, 1},
      {"a\n\tb\u00a0c\u2003d", {"a b c d"}, 1},
      {drawn_words(63, 1, 5), {drawn_words(64, 2, 5)}, 0.5826771653543307},
      {drawn_words(64, 1, 5), {drawn_words(65, 2, 5)}, 0.5891472868217055},
      {drawn_words(129, 1, 7), {drawn_words(200, 2, 7)}, 0.5227963525835866},
      {drawn_words(1500, 1, 40), {drawn_words(1000, 2, 40)}, 0.2632},
  };
  for (const auto& c : cases) {
    EXPECT_DOUBLE_EQ(rouge_l(c.candidate, c.references), c.f) << c.candidate;
  }
  EXPECT_EQ(rouge_l("a", {}), 0);
}

/// The table that the definition gives.
int64_t plain_common_subsequence(std::string_view a, std::string_view b) {
  std::vector<std::vector<int64_t>> table(a.size() + 1, std::vector<int64_t>(b.size() + 1));
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < b.size(); ++j) {
      table[i + 1][j + 1] =
          a[i] == b[j] ? table[i][j] + 1 : std::max(table[i][j + 1], table[i + 1][j]);
    }
  }
  return table[a.size()][b.size()];
}

// Lengths round the blocks of 64 words, few and many different ones: a carry that goes astray
// changes the length.
TEST(Metrics, RougeLHasTheLongestCommonSubsequence) {
  constexpr std::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyz";
  uint32_t seed = 7;
  const auto draw = [&](uint32_t below) {
    seed = (seed * 1103515245u + 12345u) & 0x7fffffffu;
    return (seed >> 16) % below;
  };
  const auto spaced = [](std::string_view letters) {
    std::string text;
    for (const char c : letters) text += {c, ' '};
    return text;
  };
  for (int round = 0; round < 300; ++round) {
    const uint32_t n_letters = 1 + draw(26);
    std::string letters[2];
    for (std::string& row : letters) {
      for (uint32_t n = 1 + draw(300); n > 0; --n) row += kAlphabet[draw(n_letters)];
    }
    const std::string references[] = {spaced(letters[1])};
    const double n = letters[0].size() + letters[1].size();
    EXPECT_DOUBLE_EQ(rouge_l(spaced(letters[0]), references),
                     2.0 * plain_common_subsequence(letters[0], letters[1]) / n)
        << letters[0] << " " << letters[1];
  }
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
