#include "sparse/budget.h"

#include <gtest/gtest.h>

namespace weft::sparse {
namespace {

constexpr int32_t kPageTokens = 16;

SparseOptions quest(int32_t budget_tokens) {
  return {.policy = Policy::kQuest, .budget_tokens = budget_tokens};
}

PageBudget of(const SparseOptions& options, int32_t slot) {
  return page_budget(options, slot, kPageTokens);
}

TEST(PageBudget, ReadsAllWhereTheBudgetCoversThem) {
  for (int32_t slot = 0; slot < 64; ++slot) EXPECT_TRUE(of(quest(64), slot).reads_all()) << slot;
  EXPECT_FALSE(of(quest(64), 64).reads_all());
  EXPECT_EQ(of(quest(64), 64).n_read(), 4);
  // A budget that ends within a page covers a context that does, and else has whole pages.
  EXPECT_TRUE(of(quest(70), 69).reads_all());
  EXPECT_FALSE(of(quest(70), 70).reads_all());
  EXPECT_EQ(of(quest(70), 70).n_read(), 4);
  EXPECT_TRUE(of(quest(80), 79).reads_all());
}

TEST(PageBudget, KeepsTheRowsPageThenTheSinkThenTheNewest) {
  struct Case {
    int32_t budget_tokens, first, end, n_chosen;
  };
  // A row in slot 1,599, the last of page 99.
  for (const Case& c : {Case{32, 0, 99, 1}, Case{48, 1, 99, 1}, Case{64, 1, 98, 1},
                        Case{80, 1, 98, 2}, Case{512, 1, 98, 29}}) {
    const PageBudget budget = of(quest(c.budget_tokens), 1599);
    EXPECT_EQ(budget.n_pages, 100);
    EXPECT_EQ(budget.first, c.first) << c.budget_tokens;
    EXPECT_EQ(budget.end, c.end) << c.budget_tokens;
    EXPECT_EQ(budget.n_chosen, c.n_chosen) << c.budget_tokens;
    EXPECT_EQ(budget.n_read(), c.budget_tokens / kPageTokens);
  }
  SparseOptions gsa = quest(512);
  gsa.policy = Policy::kGsa;
  EXPECT_EQ(of(gsa, 1599).end, 98);  // two last blocks: the row's and the one before it
}

// Of 100 pages seven, what is always read counted, and a sample of the others.
TEST(PageBudget, LabelsTakeASixteenthByScoresAndDrawTheRest) {
  struct Case {
    int32_t budget_tokens, n_chosen, n_best;
  };
  for (const Case& c : {Case{64, 1, 1}, Case{112, 4, 4}, Case{128, 5, 4}, Case{512, 29, 4}}) {
    SparseOptions options{.policy = Policy::kLabels, .budget_tokens = c.budget_tokens};
    const PageBudget budget = of(options, 1599);
    EXPECT_EQ(budget.n_chosen, c.n_chosen);
    EXPECT_EQ(budget.n_best, c.n_best) << c.budget_tokens;
    EXPECT_EQ(budget.samples(), c.n_best < c.n_chosen);
    options.lock.interval_tokens = 8;  // what is drawn is drawn for one query
    EXPECT_EQ(of(options, 1599).n_best, c.n_chosen);
    EXPECT_FALSE(of(quest(c.budget_tokens), 1599).samples());
    EXPECT_EQ(of({.policy = Policy::kLabelsSample, .budget_tokens = c.budget_tokens}, 1599).n_best,
              0);
  }
  EXPECT_FALSE(of({.policy = Policy::kLabels, .retain = 0.9}, 1599).samples());
  const SparseOptions seventeen{.policy = Policy::kLabels, .budget_tokens = 272};
  EXPECT_FALSE(of(seventeen, 4099).samples());  // of 257 pages, rounded up
}

TEST(PageBudget, ARatioIsOfThePagesThereAre) {
  const SparseOptions options{.policy = Policy::kQuest, .ratio = 0.25};
  EXPECT_EQ(of(options, 1599).n_read(), 25);
  EXPECT_EQ(of(options, 399).n_read(), 7);                                     // of 25, rounded up
  EXPECT_EQ(of({.policy = Policy::kQuest, .ratio = 0.07}, 1599).n_read(), 7);  // of 100
  EXPECT_EQ(of(options, 47).n_read(), kLeastPages);
  EXPECT_TRUE(of({.policy = Policy::kQuest, .ratio = 1}, 1599).reads_all());
}

TEST(PageBudget, RetainedPagesHaveAFloorAndACap) {
  const SparseOptions options{.policy = Policy::kQuest, .retain = 0.9};
  const PageBudget budget = of(options, 1599);
  EXPECT_EQ(budget.n_fixed() + budget.n_least, kLeastRetainedPages);
  EXPECT_EQ(budget.n_read(), 100 / kMostRetainedDivisor);
  EXPECT_TRUE(of(options, 8 * kPageTokens - 1).reads_all());
}

TEST(SparseOptions, NumbersThatNoChoiceCanFollowAreRefused) {
  EXPECT_TRUE(SparseOptions().check(kPageTokens).is_ok());
  EXPECT_TRUE(quest(32).check(kPageTokens).is_ok());
  EXPECT_FALSE(quest(31).check(kPageTokens).is_ok());
  EXPECT_FALSE(quest(-5).check(kPageTokens).is_ok());
  EXPECT_FALSE(quest(0).check(kPageTokens).is_ok());
  for (const double ratio : {-0.5, 1.01, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_FALSE((SparseOptions{.policy = Policy::kQuest, .ratio = ratio}).check(16).is_ok());
  }
  EXPECT_FALSE((SparseOptions{.policy = Policy::kQuest, .budget_tokens = 64, .ratio = 0.5})
                   .check(16)
                   .is_ok());
}

TEST(SelectingLayers, TheFirstThatSeeAllSlotsAreDense) {
  const auto of_layers = [](const SparseOptions& options, std::vector<int32_t> windows) {
    return selecting_layers(options, windows);
  };
  using Layers = std::vector<bool>;
  EXPECT_EQ(of_layers(quest(64), {0, 0, 0, 0}), (Layers{false, false, true, true}));
  // Gemma 3 has five layers with windows to one without: of three such one is dense.
  const std::vector<int32_t> gemma{8, 0, 8, 0, 8, 0};
  EXPECT_EQ(of_layers(quest(64), gemma), (Layers{false, false, false, true, false, true}));
  EXPECT_EQ(of_layers(quest(64), {8, 0, 8}), (Layers{false, true, false}));
  SparseOptions all = quest(64);
  all.dense_layers = 0;
  EXPECT_EQ(of_layers(all, gemma), (Layers{false, true, false, true, false, true}));
  all.dense_layers = 100;
  EXPECT_EQ(of_layers(all, gemma), Layers(6, false));
  EXPECT_EQ(of_layers({}, {0, 0, 0}), Layers(3, false));
}

}  // namespace
}  // namespace weft::sparse
