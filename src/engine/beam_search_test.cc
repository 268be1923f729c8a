// Beam search over scores that are written down or computed from the tokens: what goes on, what
// ends, when it is over. tests/beams_test.cc compares whole searches with transformers'.
#include "engine/beam_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "sampling/logprobs.h"
#include "sampling/sampler.h"

namespace weft::engine {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Tokens = std::vector<int32_t>;
/// The logits after these tokens.
using Scores = std::function<std::vector<float>(const Tokens&)>;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int32_t kEndToken = 0;  // in all of these vocabularies
constexpr double kTolerance = 1e-6;

/// Token 0 ends a text, and so does the limit.
class Searching {
 public:
  Searching(const BeamSearch::Options& options, Scores scores, int32_t max_tokens = 100)
      : search_(options), scores_(std::move(scores)), max_tokens_(max_tokens) {}

  void step() {
    std::vector<float> logits;
    int64_t n_vocab = 0;
    for (const Beam& beam : search_.running()) {
      const std::vector<float> row = scores_(beam.tokens);
      n_vocab = std::ssize(row);
      logits.insert(logits.end(), row.begin(), row.end());
    }
    search_.step(MatrixView<const float>(logits, n_vocab),
                 [&](int32_t, int32_t id) -> std::optional<StopReason> {
                   if (id == kEndToken) return StopReason::kEnd;
                   if (search_.n_tokens() == max_tokens_) return StopReason::kMaxTokens;
                   return std::nullopt;
                 });
  }
  std::vector<Hypothesis> run() {
    while (!search_.is_done()) step();
    return search_.best();
  }
  std::vector<Tokens> running() const {
    std::vector<Tokens> texts;
    for (const Beam& beam : search_.running()) texts.push_back(beam.tokens);
    return texts;
  }
  const BeamSearch& search() const { return search_; }

 private:
  BeamSearch search_;
  Scores scores_;
  int32_t max_tokens_;
};

/// The logits of these probabilities, which sum to 1.
std::vector<float> of_probabilities(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

/// Probabilities after the texts that are named, the same after all others.
Scores table(std::map<Tokens, std::vector<double>> after, std::vector<double> others) {
  return [after = std::move(after), others = std::move(others)](const Tokens& tokens) {
    const auto found = after.find(tokens);
    return of_probabilities(found == after.end() ? others : found->second);
  };
}

/// Any logits, but always the same after the same tokens.
Scores random_scores(int32_t n_vocab, uint32_t seed) {
  return [=](const Tokens& tokens) {
    uint32_t mixed = seed;
    for (const int32_t id : tokens) mixed = mixed * 1000003u + static_cast<uint32_t>(id) + 1;
    std::mt19937 random(mixed);
    std::normal_distribution<float> normal(0, 2);
    std::vector<float> logits;
    for (int32_t id = 0; id < n_vocab; ++id) logits.push_back(normal(random));
    return logits;
  };
}

std::vector<Tokens> tokens_of(const std::vector<Hypothesis>& hypotheses) {
  std::vector<Tokens> texts;
  for (const Hypothesis& hypothesis : hypotheses) texts.push_back(hypothesis.tokens);
  return texts;
}

TEST(BeamSearch, FindsWhatIsLikelierThanWhatBeginsLikelier) {
  // Greedy: 1 (0.6), then 0.4 at most. 2 (0.4) is followed by 1 with 0.9.
  const Scores scores = table({{{}, {1e-9, 0.6, 0.4}}, {{2}, {0.05, 0.9, 0.05}}}, {0.3, 0.4, 0.3});
  EXPECT_EQ(Searching({.n_beams = 1}, scores, 2).run()[0].tokens, (Tokens{1, 1}));
  const std::vector<Hypothesis> best = Searching({.n_beams = 2}, scores, 2).run();
  EXPECT_THAT(tokens_of(best), ElementsAre(Tokens{2, 1}, Tokens{1, 1}));
  EXPECT_THAT(best[0].score, DoubleNear(std::log(0.4 * 0.9) / 2, kTolerance));
  EXPECT_EQ(best[0].reason, StopReason::kMaxTokens);
}

TEST(BeamSearch, WithABeamForEveryTextItFindsTheBestOfAll) {
  constexpr int32_t kVocab = 3, kLength = 4;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Scores scores = random_scores(kVocab, seed);
    // All texts up to the end token or the length, by trying them.
    std::vector<std::pair<double, Tokens>> all;
    const std::function<void(const Tokens&, double)> grow = [&](const Tokens& tokens, double sum) {
      const std::vector<float> logits = scores(tokens);
      for (int32_t id = 0; id < kVocab; ++id) {
        Tokens more = tokens;
        more.push_back(id);
        const double logprob = sum + sampling::token_logprob(logits, id);
        if (id == kEndToken || std::ssize(more) == kLength) {
          all.emplace_back(logprob / static_cast<double>(more.size()), more);
        } else {
          grow(more, logprob);
        }
      }
    };
    grow({}, 0);
    std::sort(all.rbegin(), all.rend());
    const std::vector<Hypothesis> best = Searching({.n_beams = 64}, scores, kLength).run();
    ASSERT_EQ(best.size(), all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(best[i].tokens, all[i].second) << seed;
      EXPECT_THAT(best[i].score, DoubleNear(all[i].first, kTolerance));
    }
  }
}

TEST(BeamSearch, OfOneBeamIsGreedy) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const Scores scores = random_scores(6, seed);
    Tokens greedy;
    while (greedy.size() < 30 && (greedy.empty() || greedy.back() != kEndToken)) {
      greedy.push_back(sampling::greedy_token(scores(greedy)));
    }
    const std::vector<Hypothesis> best = Searching({.n_beams = 1}, scores, 30).run();
    ASSERT_EQ(best.size(), 1u);
    EXPECT_EQ(best[0].tokens, greedy) << seed;
  }
}

TEST(BeamSearch, LogitsDecideWhereSumsOfThemAreTooCoarse) {
  // 1e-20 is lost beside the logarithm of the softmax's denominator, and is the larger one still.
  const Scores scores = [](const Tokens&) { return std::vector<float>{-9, 0, 1e-20F, 0}; };
  EXPECT_EQ(Searching({.n_beams = 1}, scores, 2).run()[0].tokens, (Tokens{2, 2}));
}

TEST(BeamSearch, OfEqualsTheBetterBeamAndTheLowerIdComeFirst) {
  const Scores even = [](const Tokens&) { return std::vector<float>{-kInf, 1, 1, 1}; };
  Searching searching({.n_beams = 2}, even, 3);
  searching.step();
  EXPECT_THAT(searching.running(), ElementsAre(Tokens{1}, Tokens{2}));
  searching.step();
  EXPECT_THAT(searching.running(), ElementsAre(Tokens{1, 1}, Tokens{1, 2}));
  EXPECT_EQ(searching.search().running()[0].parent, 0);
  EXPECT_EQ(searching.search().running()[1].parent, 0);
  EXPECT_THAT(tokens_of(searching.run()), ElementsAre(Tokens{1, 1, 1}, Tokens{1, 1, 2}));
}

TEST(BeamSearch, TheEndTokenCountsInSumAndLength) {
  const Scores scores = table({{{}, {0.1, 0.9}}, {{1}, {0.8, 0.2}}}, {0.5, 0.5});
  const std::vector<Hypothesis> best = Searching({.n_beams = 1}, scores).run();
  ASSERT_EQ(best[0].tokens, (Tokens{1, kEndToken}));
  EXPECT_EQ(best[0].reason, StopReason::kEnd);
  EXPECT_THAT(best[0].score, DoubleNear(std::log(0.9 * 0.8) / 2, kTolerance));
}

TEST(BeamSearch, WhereAllBeamsEndAtOnceTheNextBestGoOnIfTheyCanBeBetter) {
  // Both beams end by token 0 in the second step. What goes on has 0.3 of each and then 1, so that
  // its mean would rise above theirs; the guess is made by the length that it has.
  const auto after = [](double end) {
    return table({{{}, {1e-9, 0.5, 0.5}}, {{1}, {end, 1 - end, 1e-9}}, {{2}, {end, 1 - end, 1e-9}}},
                 {1e-9, 1, 1e-9});
  };
  Searching over({.n_beams = 2}, after(0.7), 10);
  over.step();
  over.step();
  EXPECT_TRUE(over.search().is_done());
  EXPECT_THAT(tokens_of(over.run()), ElementsAre(Tokens{1, 0}, Tokens{2, 0}));

  Searching goes_on({.n_beams = 2}, after(0.3), 10);  // the ends come third and fourth: dropped
  goes_on.step();
  goes_on.step();
  EXPECT_FALSE(goes_on.search().is_done());
  EXPECT_THAT(goes_on.search().best(), ::testing::SizeIs(2));  // those that go on, cancelled
  EXPECT_EQ(goes_on.search().best()[0].reason, StopReason::kCancelled);
  for (const Hypothesis& hypothesis : goes_on.run()) {
    EXPECT_EQ(hypothesis.tokens.size(), 10u);
    EXPECT_EQ(hypothesis.reason, StopReason::kMaxTokens);
  }
}

TEST(BeamSearch, OnlyTheBestCandidatesOfAStepEnd) {
  // The end comes third, with ln 0.25; of what goes on all is worse. Two beams drop it.
  std::vector<double> first(12, 1e-9);
  first[kEndToken] = 0.25;
  first[1] = 0.4;
  first[2] = 0.35;
  const Scores scores = table({{{}, first}}, std::vector<double>(12, 1.0 / 12));
  EXPECT_EQ(Searching({.n_beams = 3}, scores, 3).run()[0].tokens, Tokens{kEndToken});
  EXPECT_THAT(tokens_of(Searching({.n_beams = 2}, scores, 3).run()),
              ::testing::Not(::testing::Contains(Tokens{kEndToken})));
}

TEST(BeamSearch, IsOverOnceNothingThatGoesOnIsBetterThanTheWorstThatEnded) {
  // {0} ends with ln 0.6, {1, 0} with ln(0.22) / 2 = -0.76; {1, 1} is at ln(0.18) / 2 = -0.86.
  Searching over({.n_beams = 2}, table({{{}, {0.6, 0.4}}, {{1}, {0.55, 0.45}}}, {0.5, 0.5}));
  over.step();
  EXPECT_FALSE(over.search().is_done());  // only one has ended
  EXPECT_THAT(over.running(), ElementsAre(Tokens{1}));
  over.step();
  EXPECT_TRUE(over.search().is_done());
  EXPECT_THAT(tokens_of(over.run()), ElementsAre(Tokens{0}, Tokens{1, 0}));

  // Texts that end late can be better by token than those that ended at once.
  const Scores late = table({{{}, {0.3, 0.7}}, {{1}, {0.2, 0.8}}}, {0.45, 0.55});
  Searching goes_on({.n_beams = 2}, late);
  goes_on.step();
  goes_on.step();
  EXPECT_FALSE(goes_on.search().is_done());
  // {0} is ln 0.3 = -1.20 and {1, 0} ln(0.14) / 2 = -0.98; {1, 1, 0} has ln(0.252) / 3 = -0.46.
  const std::vector<Hypothesis> best = goes_on.run();
  EXPECT_EQ(best[0].tokens, (Tokens{1, 1, 0}));
  EXPECT_THAT(best[0].score, DoubleNear(std::log(0.7 * 0.8 * 0.45) / 3, kTolerance));
}

TEST(BeamSearch, AVocabularyOfFewerThanTwiceTheBeamsGivesAsManyAsThereAre) {
  for (const int32_t n_vocab : {1, 2, 3, 5, 7}) {
    for (const int32_t n_beams : {1, 2, 4, 8, 32}) {
      Searching searching({.n_beams = n_beams}, random_scores(n_vocab, 5), 6);
      while (!searching.search().is_done()) {
        searching.step();
        EXPECT_LE(std::ssize(searching.running()), n_beams);
      }
      const std::vector<Tokens> best = tokens_of(searching.run());
      EXPECT_FALSE(best.empty());
      EXPECT_LE(std::ssize(best), n_beams);
      for (const Tokens& tokens : best) EXPECT_EQ(std::ranges::count(best, tokens), 1);
    }
  }
  // Two tokens, one of which ends: a text of each length.
  const std::vector<Hypothesis> best = Searching(
                                           {.n_beams = 4},
                                           [](const Tokens&) {
                                             return std::vector<float>{0, 0};
                                           },
                                           3)
                                           .run();
  EXPECT_THAT(tokens_of(best), ::testing::UnorderedElementsAre(Tokens{0}, Tokens{1, 0},
                                                               Tokens{1, 1, 0}, Tokens{1, 1, 1}));
}

TEST(BeamSearch, ImpossibleTokensAreFollowedByNothing) {
  const Scores scores = [](const Tokens& tokens) {
    if (tokens.empty()) return std::vector<float>{-kInf, kNan, 1, 2, -kInf};
    if (tokens.back() == 3) return std::vector<float>(5, kNan);
    return std::vector<float>{kNan, 0, kInf, kNan, 0};
  };
  Searching searching({.n_beams = 4}, scores, 3);
  searching.step();
  EXPECT_THAT(searching.running(), ElementsAre(Tokens{3}, Tokens{2}));
  searching.step();  // nothing can follow the better one
  EXPECT_THAT(searching.running(), ElementsAre(Tokens{2, 2}, Tokens{2, 1}, Tokens{2, 4}));
  for (const Beam& beam : searching.search().running()) EXPECT_EQ(beam.parent, 1);
  EXPECT_TRUE(std::isfinite(searching.search().running()[0].logprob));

  Searching dead({.n_beams = 2}, [](const Tokens&) { return std::vector<float>(3, kNan); });
  EXPECT_THAT(dead.run(), IsEmpty());
}

TEST(BeamSearch, ATokenThatIsNeverTakenKeepsItsProbability) {
  const Scores scores = table({}, {0.5, 0.3, 0.2});
  const std::vector<Hypothesis> best =
      Searching({.n_beams = 2, .n_end_tokens = 0, .never = {kEndToken}}, scores, 2).run();
  EXPECT_THAT(tokens_of(best), ElementsAre(Tokens{1, 1}, Tokens{1, 2}));
  EXPECT_THAT(best[0].score, DoubleNear(std::log(0.3), kTolerance));
}

TEST(BeamSearch, SeveralEndTokensLeaveEnoughToGoOn) {
  // Ids 0 to 2 end a text and are the likeliest after every beam.
  const auto ends = [](int32_t, int32_t id) -> std::optional<StopReason> {
    return id < 3 ? std::optional(StopReason::kEnd) : std::nullopt;
  };
  const std::vector<float> row{9, 8, 7, 3, 2, 1, 0, -1};
  BeamSearch search({.n_beams = 2, .n_end_tokens = 3});
  search.step(MatrixView<const float>(row, 8), ends);
  ASSERT_EQ(search.running().size(), 2u);
  EXPECT_EQ(search.running()[0].tokens, Tokens{3});
  EXPECT_EQ(search.running()[1].tokens, Tokens{4});
}

}  // namespace
}  // namespace weft::engine
