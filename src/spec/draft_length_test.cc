// What pays is drafted, and little is lost where nothing does.
#include "spec/draft_length.h"

#include <gtest/gtest.h>

#include <random>

namespace weft::spec {
namespace {

/// Steps of which each row takes so much of the first one's time.
StepCost cost_of(double row_ms, double step_ms = 10) {
  StepCost cost;
  for (int i = 0; i < 20; ++i) {
    for (const int n : {1, 3, 8}) cost.add_step(n, step_ms + row_ms * (n - 1));
  }
  return cost;
}

TEST(StepCost, IsWhatARowMoreTakes) {
  EXPECT_NEAR(cost_of(2).of_draft(1), 0.2, 0.02);
  EXPECT_NEAR(cost_of(7).of_draft(1), 0.7, 0.05);
  // Of four rows in any case, each holds up four answers.
  EXPECT_NEAR(cost_of(2).of_draft(4), 4 * 2 / 16.0, 0.02);
  EXPECT_GT(StepCost().of_draft(1), 0);
}

TEST(StepCost, DraftingCountsAndOneStepThatWaitedDoesNot) {
  StepCost cost = cost_of(2);
  cost.add_draft(4, 12);
  EXPECT_NEAR(cost.of_draft(1), 0.5, 0.05);
  StepCost disturbed = cost_of(2);
  disturbed.add_step(1, 5000);
  EXPECT_NEAR(disturbed.of_draft(1), 0.2, 0.1);
}

TEST(StepCost, StepsThatAreAllAlikeTellNothingAboutRows) {
  StepCost cost;
  for (int i = 0; i < 50; ++i) cost.add_step(1, 3);
  EXPECT_NEAR(cost.of_draft(1), StepCost().of_draft(1), 1e-6);
}

TEST(StepCost, AStepsTimeIsThatOfItsRows) {
  EXPECT_FALSE(StepCost().knows_steps());
  EXPECT_EQ(StepCost().step_ms(1), 0);
  EXPECT_TRUE(cost_of(2).knows_steps());
  EXPECT_NEAR(cost_of(2).step_ms(1), 10, 0.5);
  EXPECT_NEAR(cost_of(2).step_ms(6), 20, 1);
}

TEST(StepCost, WhatReadingTookIsBelievedLessAndLess) {
  StepCost cost;
  EXPECT_FALSE(cost.knows_reads());
  EXPECT_EQ(cost.read_ms(1000), 0);
  cost.add_read(100, 20);
  cost.add_read(50, 25);
  EXPECT_TRUE(cost.knows_reads());
  EXPECT_NEAR(cost.read_ms(1000), 500, 1e-6);
  for (int i = 0; i < 30; ++i) cost.doubt_read();
  EXPECT_LT(cost.read_ms(1000), 50);
}

TEST(StepCost, FollowsAContextThatGrows) {
  StepCost cost = cost_of(1);
  for (int i = 0; i < 100; ++i) {
    for (const int n : {1, 5}) cost.add_step(n, 20 + 12 * (n - 1));
  }
  EXPECT_NEAR(cost.of_draft(1), 0.6, 0.05);
}

/// Time of so many tokens, each drafted one right with p, in steps without drafts.
double time_of(int n_tokens, double p, double row_cost, int32_t* n_drafted = nullptr) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> uniform;
  const StepCost cost = cost_of(10 * row_cost);
  DraftLength length(8);
  double time = 0;
  for (int done = 0; done < n_tokens;) {
    const int32_t n = length.choose(1, cost.of_draft(1));
    int32_t right = 0;
    while (right < n && uniform(random) < p) ++right;
    length.add_outcome(1, n, right);
    if (n_drafted != nullptr) *n_drafted += n;
    time += 1 + n * row_cost;
    done += 1 + right;
  }
  return time / n_tokens;
}

TEST(DraftLength, NothingIsLostWhereNothingIsRight) {
  for (const double row_cost : {0.1, 0.3, 1.0}) EXPECT_LT(time_of(2000, 0, row_cost), 1.02);
  EXPECT_LT(time_of(100, 0, 0.3), 1.03);  // a short answer
}

/// Guesses in so many steps, each of them wrong.
int32_t wrong_guesses(int32_t evidence, int32_t n_steps) {
  DraftLength length(8);
  int32_t n_drafted = 0;
  for (int32_t i = 0; i < n_steps; ++i) {
    const int32_t n = length.choose(evidence, 0.2);
    length.add_outcome(evidence, n, 0);
    n_drafted += n;
  }
  return n_drafted;
}

TEST(DraftLength, AShortAnswerLosesAGuessOrTwo) {
  EXPECT_EQ(wrong_guesses(1, 9), 0);
  EXPECT_EQ(wrong_guesses(1, 19), 1);
  EXPECT_LE(wrong_guesses(1, 100), 10);
  EXPECT_LE(wrong_guesses(2, 16), 2);
}

TEST(DraftLength, LittleEvidenceIsEnoughInATextThatQuotes) {
  DraftLength length(8);
  EXPECT_EQ(length.choose(1, 0.2), 0);
  for (int i = 0; i < 3; ++i) {
    const int32_t n = length.choose(4, 0.2);
    length.add_outcome(4, n, n);
  }
  EXPECT_GT(length.choose(1, 0.2), 0);
}

TEST(DraftLength, WhatIsHardlyFasterIsNotDrafted) {
  DraftLength length(8);
  // 45 % are right at first: 1.45 tokens in the time of 1.42 are not worth it, of 1.35 they are.
  EXPECT_EQ(length.choose(2, 0.42), 0);
  EXPECT_EQ(length.choose(2, 0.35), 1);
}

TEST(DraftLength, WhatIsRightPays) {
  EXPECT_LT(time_of(2000, 0.95, 0.15), 0.40);
  EXPECT_LT(time_of(2000, 0.8, 0.2), 0.65);
  EXPECT_LT(time_of(2000, 0.5, 0.2), 0.95);
  int32_t n_drafted = 0;
  EXPECT_LT(time_of(2000, 0.3, 0.9, &n_drafted), 1.02);  // half of a row's price
  EXPECT_LT(n_drafted, 100);
}

TEST(DraftLength, WhatCostsAStepIsHardlyTriedAlthoughItIsRight) {
  DraftLength length(8);
  int32_t n_drafted = 0;
  for (int i = 0; i < 1000; ++i) {
    const int32_t n = length.choose(4, 1.1);
    length.add_outcome(4, n, n);
    n_drafted += n;
  }
  EXPECT_LE(n_drafted, 4);
}

TEST(DraftLength, WhatDraftsSaveIsTheirSpeedupsShare) {
  const DraftLength one(1);
  // 65 % are right: 1.65 tokens in the time of 1.2.
  EXPECT_NEAR(one.saved_share(4, 0.2), 1 - 1.2 / 1.65, 1e-9);
  EXPECT_GT(DraftLength(8).saved_share(4, 0.2), one.saved_share(4, 0.2));
  EXPECT_EQ(DraftLength(8).saved_share(4, 0.7), 0);
}

TEST(DraftLength, ATextThatBeginsToQuoteIsNoticed) {
  DraftLength length(8);
  for (int i = 0; i < 500; ++i) length.add_outcome(1, length.choose(1, 0.2), 0);
  int32_t n_steps = 0;
  for (; n_steps < 2000; ++n_steps) {
    const int32_t n = length.choose(1, 0.2);
    length.add_outcome(1, n, n);
    if (n == 8) break;
  }
  EXPECT_LT(n_steps, 600);
}

TEST(DraftLength, EachEvidenceHasARecordOfItsOwn) {
  DraftLength length(8);
  for (int i = 0; i < 40; ++i) {
    length.add_outcome(1, length.choose(1, 0.2), 0);
    const int32_t n = length.choose(4, 0.2);
    length.add_outcome(4, n, n);
  }
  EXPECT_EQ(length.choose(1, 0.2), 0);
  EXPECT_EQ(length.choose(4, 0.2), 8);
  EXPECT_EQ(length.choose(0, 0.2), 0);
  EXPECT_EQ(length.choose(kMostEvidence, 0.2), 0);
}

}  // namespace
}  // namespace weft::spec
