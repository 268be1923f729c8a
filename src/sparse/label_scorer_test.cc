// What labels choose, against labels and keys read one by one in double.
#include "sparse/label_scorer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/expected_choices.h"

namespace weft::sparse {
namespace {

using ::testing::HasSubstr;

// Of 381 pages all are scored: by all bits of their labels, or where these are looked at first by
// sides where they rule a page out; and in the first layers the best by keys.
TEST(Labels, EveryPageHasTheScoreOfWhatItWasLastLookedUpBy) {
  const SparseOptions options = options_of(Policy::kLabels);
  Filled setup(options, DType::kF32);
  const kv::SequenceId id = setup.add(16 * 384 + 5, 3);
  const kv::Reservation reservation = *setup.cache().reserve(id, 1);
  const PageBudget budget = page_budget(options, 16 * 384 + 5, kPageTokens);
  const std::vector<float> q = query(4);
  const auto table = setup.cache().layer_table(id, 1);
  const kv::SelectingRow row = {id, 16 * 384 + 5, q.data(), table};
  const kv::SelectingLayer layer = {setup.cache(), 1, kHeads, kScale, 0, {&row, 1}};
  const int32_t n_parts = parts_of(options);
  for (const bool is_by_keys : {true, false}) {
    LabelScorer scorer(*digest_format(options), false, SharesOf::kAllPages, HeadsJoin::kBySum,
                       is_by_keys ? 2 : 1);
    std::vector<float> scores(kKvHeads * budget.n_candidates() * n_parts);
    const int64_t n_of_head = std::ssize(scores) / kKvHeads;
    const Candidates rows[] = {{.row = &row,
                                .pages = table.subspan(budget.first, budget.n_candidates()),
                                .first = budget.first,
                                .n_chosen = budget.n_chosen,
                                .n_parts = n_parts,
                                .scores = {scores.data(), kKvHeads, n_of_head}}};
    scorer.prepare(setup.context(), layer, rows);
    scorer.score(setup.context(), layer, rows);
    const Scores want =
        expected_by_labels(setup, options.policy, id, budget, q, n_parts, is_by_keys);
    int64_t n_told = 0;
    for (int64_t i = 0; i < std::ssize(scores); ++i) {
      const double expected = want[i / n_of_head][i % n_of_head];
      if (std::isnan(expected)) continue;
      ++n_told;
      EXPECT_NEAR(std::log(scores[i]), expected, 2e-2) << i << " by keys: " << is_by_keys;
    }
    EXPECT_GT(n_told, std::ssize(scores) * 9 / 10);
  }
}

// In a layer that is not one of the first to choose labels have the last word.
TEST(Labels, AreLookedUpByKeysInTheFirstLayersAlone) {
  for (const Policy policy : {Policy::kLabels, Policy::kLabelsSample, Policy::kDoubleSparsity}) {
    for (const DType k_type : {DType::kF16, DType::kQ8_0, DType::kF32}) {
      expect_chosen(policy, k_type, {700, 16 * 40, 333, 16 * 620 + 3}, Finds::kAnywhere,
                    8 * kPageTokens, false);
    }
  }
}

// A sixteenth of the pages by their scores, what is always read counted, and a sample of the rest.
TEST(Labels, TheBestAreReadAndASampleOfTheRest) {
  const SparseOptions options = options_of(Policy::kLabels, 20 * kPageTokens);
  EXPECT_EQ(page_budget(options, 16 * 150 + 3, kPageTokens).n_best, 10 - 3);
  EXPECT_EQ(page_budget(options, 16 * 400, kPageTokens).n_best, 17);  // all that are chosen
  EXPECT_FALSE(page_budget(options, 16 * 400, kPageTokens).samples());
  for (const DType k_type : {DType::kF16, DType::kF32}) {
    for (const bool is_by_keys : {true, false}) {
      expect_chosen(Policy::kLabels, k_type, {16 * 150 + 3, 16 * 99, 16 * 400}, Finds::kAnywhere,
                    20 * kPageTokens, is_by_keys);
    }
  }
}

// Its shares are of all its attention, so that the group's other heads have the sample.
TEST(Labels, OfASampleAHeadThatFindsWhatIsReadInAnyCaseAsksForLittle) {
  expect_chosen(Policy::kLabelsSample, DType::kF32, {700, 16 * 40, 333}, Finds::kFirstPage);
}

// Weights are those of one query and one budget.
TEST(Labels, ASampleIsNeitherLockedNorAShareOfTheAttention) {
  const SparseOptions drawn =
      options_of(Policy::kLabelsSample, 8 * kPageTokens, kernels::DigestType::kInt8);
  EXPECT_TRUE(drawn.check(kPageTokens).is_ok());
  SparseOptions locked = drawn, share = drawn;
  locked.lock.interval_tokens = 8;
  EXPECT_THAT(locked.check(kPageTokens).message(), HasSubstr("labels-sample: "));
  share.budget_tokens = 0;
  share.retain = 0.7;
  EXPECT_THAT(share.check(kPageTokens).message(), HasSubstr("no share of the attention to retain"));
}

// More than are all labelled.
TEST(Labels, DigestsLetThroughTheOnesThatLabelsChooseAmong) {
  for (const Policy policy : {Policy::kLabels, Policy::kLabelsSample, Policy::kDoubleSparsity}) {
    expect_chosen(policy, DType::kF16, {16 * 620 + 3, 16 * 200});
  }
}

// What is looked at of all pages is a fifth of a label, the sides of half of the dimensions. With
// 20 of 400 pages eight times as many are left for all bits, with 50 the half; with 51 sides would
// rule out too few to be looked at first.
TEST(Labels, SidesAreLookedAtByThemselvesWhereTheyRuleOutHalfOfThePages) {
  const kv::DigestFormat format = *digest_format({.policy = Policy::kLabels});
  const LabelScorer scorer(format, false, SharesOf::kAllPages, HeadsJoin::kBySum, 2);
  const kernels::KvLayout layout = {DType::kF16, DType::kF16, 64, kKvHeads, kPageTokens};
  const int64_t digest = kv::page_digest_bytes(format, layout);
  const int64_t fifth = kv::page_label_bytes(format, layout) / 5;
  EXPECT_EQ(scorer.bytes_read(layout, 2, 400, 20), 400 * digest + 400 * fifth + 160 * 4 * fifth);
  EXPECT_EQ(scorer.bytes_read(layout, 2, 400, 50), 400 * digest + 400 * fifth + 200 * 4 * fifth);
  EXPECT_EQ(scorer.bytes_read(layout, 2, 400, 51), 400 * digest + 400 * 5 * fifth);
  // Of the first two layers all, and K of two pages for each that is chosen by its score: a
  // sixteenth of 400 at most.
  const int64_t key = 16 * 64 * 2 * kKvHeads;
  EXPECT_EQ(scorer.bytes_read(layout, 1, 400, 20), 400 * digest + 400 * 5 * fifth + 40 * key);
  EXPECT_EQ(scorer.bytes_read(layout, 1, 400, 50), 400 * digest + 400 * 5 * fifth + 50 * key);
}

// Pages, which a lock keeps and `retain` counts, are chosen by labels in every layer.
TEST(Labels, KeysAreLookedUpWhereRunsAreChosenAlone) {
  SparseOptions runs = options_of(Policy::kLabels), locked = runs, retains = runs;
  locked.lock.interval_tokens = 8;
  retains.budget_tokens = 0;
  retains.retain = 0.9;
  const kernels::KvLayout layout = {DType::kF16, DType::kF16, 64, kKvHeads, kPageTokens};
  const auto first_reads_more = [&](const SparseOptions& options) {
    const auto scorer = make_scorer(options, {true, true, true, true});
    EXPECT_EQ(scorer->bytes_read(layout, 2, 400, 20), scorer->bytes_read(layout, 3, 400, 20));
    return scorer->bytes_read(layout, 1, 400, 20) > scorer->bytes_read(layout, 2, 400, 20);
  };
  EXPECT_TRUE(first_reads_more(runs));
  EXPECT_FALSE(first_reads_more(locked));
  EXPECT_FALSE(first_reads_more(retains));
}

}  // namespace
}  // namespace weft::sparse
