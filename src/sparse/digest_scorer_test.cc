// What a scorer remembers of a sequence's pages from step to step is never more than what holds:
// after each of many random operations on a cache its scores are those of a scorer that remembers
// nothing.
#include "sparse/digest_scorer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/cache_walk.h"
#include "support/numbers.h"

namespace weft::sparse {
namespace {

using test::CacheWalk;

constexpr int32_t kHeads = 4;

/// Rows of sequences chosen by chance, each at its sequence's last token; of each row's pages some,
/// from a first one on that differs.
class Step {
 public:
  Step(CacheWalk& walk, int32_t layer) : layer_(layer), cache_(walk.cache()) {
    for (int32_t i = 0; i <= walk.below(3); ++i) {
      const auto id = walk.any_sequence();
      const int32_t n_full = id ? walk.n_slots(*id) / CacheWalk::kPageTokens : 0;
      if (n_full < 3) continue;
      rows_.push_back({.sequence = *id,
                       .slot = walk.n_slots(*id) - 1,
                       .q = q_.data(),
                       .block_table = cache_.layer_table(*id, layer)});
      first_.push_back(walk.below(2));
      n_pages_.push_back(n_full - first_.back() - walk.below(2));
    }
  }
  int64_t n_rows() const { return std::ssize(rows_); }

  /// [rows][n_kv_heads][pages]
  std::vector<float> scores(const kernels::Context& context, DigestScorer& scorer) const {
    constexpr int32_t kKvHeads = CacheWalk::kKvHeads;
    int64_t n = 0;
    for (const int32_t n_pages : n_pages_) n += kKvHeads * n_pages;
    std::vector<float> scores(n);
    std::vector<Candidates> candidates;
    float* to = scores.data();
    for (size_t i = 0; i < rows_.size(); ++i) {
      candidates.push_back({.row = &rows_[i],
                            .pages = rows_[i].block_table.subspan(first_[i], n_pages_[i]),
                            .first = first_[i],
                            .n_chosen = 1,
                            .scores = {to, kKvHeads, n_pages_[i]}});
      to += kKvHeads * n_pages_[i];
    }
    const kv::SelectingLayer layer = {
        .cache = cache_, .layer = layer_, .n_heads = kHeads, .rows = rows_};
    scorer.prepare(context, layer, candidates);
    scorer.score(context, layer, candidates);
    return scores;
  }

 private:
  int32_t layer_;
  kv::Cache& cache_;
  std::vector<float> q_ = test::random_floats(kHeads * CacheWalk::kHeadDim, 7);
  std::vector<kv::SelectingRow> rows_;
  std::vector<int32_t> first_, n_pages_;
};

class DigestScorerProperty : public ::testing::TestWithParam<uint32_t> {};

TEST_P(DigestScorerProperty, RemembersNoMoreThanWhatHolds) {
  CacheWalk walk(GetParam());
  DigestScorer scorer(CacheWalk::kDigests, HeadsAgree::kByMaximum);
  int64_t n_rows = 0;
  const auto check = [&] {
    for (int32_t layer = 0; layer < CacheWalk::kLayers; ++layer) {
      const Step step(walk, layer);
      if (step.n_rows() == 0) continue;
      const std::vector<float> scores = step.scores(walk.context(), scorer);
      DigestScorer fresh(CacheWalk::kDigests, HeadsAgree::kByMaximum);
      ASSERT_TRUE(test::same_bits(scores, step.scores(walk.context(), fresh)));
      n_rows += step.n_rows();
    }
  };
  walk.while_reserved = check;
  for (int i = 0; i < 4'000 && !HasFatalFailure(); ++i) {
    walk.step();
    check();
  }
  EXPECT_GT(n_rows, 4'000);
}

INSTANTIATE_TEST_SUITE_P(Seeds, DigestScorerProperty, ::testing::Range(1u, 4u));

}  // namespace
}  // namespace weft::sparse
