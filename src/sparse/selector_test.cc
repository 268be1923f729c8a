// What selectors choose, against choices that are made here in double from the K that lies in the
// pages.
#include "sparse/selector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <set>

#include "kernels/attention.h"
#include "kernels/kv_codec.h"
#include "kernels/ref/page_digest.h"
#include "kernels/ref/token_labels.h"
#include "kernels/sample_pages.h"
#include "sparse/budget.h"
#include "sparse/label_scorer.h"
#include "support/test_pool.h"

namespace weft::sparse {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kPageTokens = 16;
constexpr int32_t kHeadDim = 32;
constexpr int32_t kKvHeads = 2;
constexpr int32_t kHeads = 6;
constexpr int32_t kGroup = kHeads / kKvHeads;
constexpr float kScale = 0.17f;

/// Two layers, the second of which selects.
class Filled {
 public:
  explicit Filled(const SparseOptions& options, DType k_type = DType::kF16, int n_threads = 2)
      : pool_(n_threads), options_(options) {
    auto cache = kv::Cache::create({.n_layers = 2,
                                    .layer_groups = {},
                                    .layout = {.k_type = k_type,
                                               .v_type = DType::kF16,
                                               .head_dim = kHeadDim,
                                               .n_kv_heads = kKvHeads,
                                               .page_tokens = kPageTokens},
                                    .capacity_tokens = 900 * kPageTokens,
                                    .windows = {},
                                    .digests = digest_format(options)});
    EXPECT_TRUE(cache.is_ok());
    cache_ = std::move(*cache);
    selector_ = make_selector(options, {false, true}, posix_env());
  }

  kv::Cache& cache() { return *cache_; }
  kernels::Context& context() { return context_; }
  CountingSelector& selector() { return *selector_; }

  /// A sequence of random K whose pages differ, as their sums do; and one token more, reserved.
  kv::SequenceId add(int32_t n_tokens, uint32_t seed) {
    const kv::SequenceId id = cache_->create_sequence();
    auto reservation = cache_->reserve(id, n_tokens);
    EXPECT_TRUE(reservation.is_ok());
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> k(int64_t{n_tokens} * kKvHeads * kHeadDim), middle(kKvHeads * kHeadDim);
    for (int32_t slot = 0; slot < n_tokens; ++slot) {
      if (slot % kPageTokens == 0) {
        for (float& x : middle) x = normal(random);
      }
      for (size_t i = 0; i < middle.size(); ++i) {
        k[slot * middle.size() + i] = middle[i] + 0.5f * normal(random);
      }
    }
    write(id, 0, k);
    reservation->commit();
    return id;
  }

  /// K and V of the slots from `begin` on.
  void write(kv::SequenceId id, int32_t begin, std::span<const float> k) {
    constexpr int64_t kWidth = kKvHeads * kHeadDim;
    const int64_t n = std::ssize(k) / kWidth;
    std::vector<int32_t> slots(n);
    std::iota(slots.begin(), slots.end(), begin);
    const kernels::AttentionSequence rows[] = {
        {cache_->layer_table(id, 1).data(), 0, n, kernels::KernelClass::kPrefill}};
    const MatrixView<const float> keys(k.data(), n, kWidth);
    kernels::write_kv(context_, cache_->layer(1), rows, slots, keys, keys);
  }

  /// K of a page and KV head as it lies there.
  std::vector<float> keys(kv::SequenceId id, int32_t page, int32_t head) {
    const kernels::PagedKv kv = cache_->layer(1);
    std::vector<float> out(kPageTokens * kHeadDim);
    const int32_t* table = cache_->layer_table(id, 1).data();
    for (int32_t t = 0; t < kPageTokens; ++t) {
      const auto* from = kernels::k_at(kv, table, page * kPageTokens + t, head);
      kernels::decode_kv(context_.isa, kv.layout.k_type, reinterpret_cast<const std::byte*>(from),
                         std::span(out).subspan(t * kHeadDim, kHeadDim));
    }
    return out;
  }

 private:
  test::TestPool pool_;
  kernels::Context context_{pool_, kernels::best_isa()};
  SparseOptions options_;
  std::unique_ptr<kv::Cache> cache_;
  std::unique_ptr<CountingSelector> selector_;
};

std::vector<float> query(uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> q(kHeads * kHeadDim);
  for (float& x : q) x = normal(random);
  return q;
}

/// q with its quarter of largest components alone.
std::vector<float> sparq_query(std::span<const float> q) {
  std::vector<int32_t> by_size(q.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::ranges::sort(by_size, {}, [&](int32_t d) { return -std::abs(q[d]); });
  std::vector<float> out(q.size());
  for (size_t i = 0; i < q.size() / 4; ++i) out[by_size[i]] = q[by_size[i]];
  return out;
}

double magnitude(std::span<const float> q) {
  double sum = 0;
  for (const float x : q) sum += std::abs(x);
  return sum;
}

/// The score of one page for one query head, by the policy's paper.
double page_score(Policy policy, std::span<const float> all_of_q, std::span<const float> keys,
                  int32_t n_tokens = kPageTokens) {
  std::vector<float> q(all_of_q.begin(), all_of_q.end());
  double scale = kScale;
  if (policy == Policy::kSparq) {
    q = sparq_query(q);
    scale /= std::sqrt(magnitude(q) / magnitude(all_of_q));
  }
  double score = 0, mass = 0;
  for (int32_t d = 0; d < kHeadDim; ++d) {
    double least = keys[d], most = keys[d], mean = 0, deviation = 0;
    for (int32_t t = 0; t < kPageTokens; ++t) {
      const double k = keys[t * kHeadDim + d];
      least = std::min(least, k);
      most = std::max(most, k);
      mean += k / kPageTokens;
    }
    const double centre = (least + most) / 2;
    for (int32_t t = 0; t < kPageTokens; ++t) {
      deviation += std::abs(keys[t * kHeadDim + d] - centre) / kPageTokens;
    }
    if (policy == Policy::kQuest) score += std::max(q[d] * least, q[d] * most);
    if (policy == Policy::kCuboid) score += q[d] * centre + std::abs(q[d]) * deviation;
    if (policy == Policy::kGsa) score += q[d] * mean;
  }
  for (int32_t t = 0; t < n_tokens; ++t) {
    double dot = 0;
    for (int32_t d = 0; d < kHeadDim; ++d) dot += q[d] * keys[t * kHeadDim + d];
    mass += std::exp(scale * dot);
  }
  const bool is_bounded =
      policy == Policy::kQuest || policy == Policy::kCuboid || policy == Policy::kGsa;
  return is_bounded ? scale * score : std::log(mass);
}

/// exp(score) of each key.
std::vector<double> token_masses(std::span<const float> q, std::span<const float> keys) {
  std::vector<double> out;
  for (size_t t = 0; t < keys.size(); t += kHeadDim) {
    double dot = 0;
    for (int32_t d = 0; d < kHeadDim; ++d) dot += q[d] * keys[t + d];
    out.push_back(std::exp(kScale * dot));
  }
  return out;
}

/// exp(score) of all keys of the sequence's pages that are read in any case, the row's own up to
/// its token.
double fixed_mass(Filled& setup, kv::SequenceId id, const PageBudget& budget,
                  std::span<const float> q_head, int32_t kv_head) {
  double mass = 0;
  for (int32_t page = 0; page < budget.n_pages; ++page) {
    if (page >= budget.first && page < budget.end) continue;
    const bool is_own = page + 1 == budget.n_pages;
    const int32_t n_tokens = is_own ? setup.cache().length(id) % kPageTokens + 1 : kPageTokens;
    mass += std::exp(page_score(Policy::kOracle, q_head, setup.keys(id, page, kv_head), n_tokens));
  }
  return mass;
}

enum class By { kDigest, kSides, kLabels };

/// Of a page's labels, or of one of its n_parts, as they lie in the cache, of their sides or of
/// their digest alone.
double labelled_score(Filled& setup, std::span<const float> q, int32_t page, int32_t kv_head, By by,
                      int32_t part = 0, int32_t n_parts = 1) {
  const int32_t pages[] = {page};
  const kv::LayerDigests all = setup.cache().digests(setup.context(), 1, pages);
  const std::vector<double> both = kernels::ref::digest_values(all.digests, page, kv_head);
  double coarse = 0, mass = 0;
  for (int32_t d = 0; d < kHeadDim; ++d) {
    coarse += std::max(q[d] * both[d], q[d] * both[kHeadDim + d]);
  }
  const auto depth = by == By::kSides ? kernels::LabelDepth::kSide : kernels::LabelDepth::kAll;
  const int32_t part_tokens = kPageTokens / n_parts;
  for (int32_t t = part * part_tokens; t < (part + 1) * part_tokens; ++t) {
    const auto k = kernels::ref::label_values(all.digests, *all.labels, depth, page, kv_head, t);
    double dot = 0;
    for (int32_t d = 0; d < kHeadDim; ++d) dot += q[d] * k[d];
    mass += std::exp(kScale * dot);
  }
  return by == By::kDigest ? kScale * coarse : std::log(mass);
}

/// How many parts of a page are chosen by themselves.
int32_t parts_of(const SparseOptions& options) {
  return options.chooses_runs() ? kPageTokens / kernels::kRunTokens : 1;
}

/// [kv heads][candidates][n_parts], by labels; NaN where it cannot be told whether digests or sides
/// let the page through, as others are as good but for rounding.
std::vector<std::vector<double>> expected_by_labels(Filled& setup, Policy policy, kv::SequenceId id,
                                                    const PageBudget& budget,
                                                    std::span<const float> q, int32_t n_parts) {
  const int32_t n = budget.n_candidates();
  const auto table = setup.cache().layer_table(id, 1);
  using Scores = std::vector<std::vector<double>>;
  // Of the pages that are let through, in so many parts: heads of a group are compared by their
  // shares of these. Of the pages that sides do not let through, theirs.
  const auto scores_of = [&](By by, int32_t of_page, const Scores& let_through,
                             const Scores* refined = nullptr) {
    Scores out(kKvHeads, std::vector<double>(n * of_page, -INFINITY));
    for (int32_t head = 0; head < kHeads; ++head) {
      std::vector<double> scores;
      const auto q_head = q.subspan(head * kHeadDim, kHeadDim);
      double all = policy != Policy::kDoubleSparsity && by != By::kDigest
                       ? fixed_mass(setup, id, budget, q_head, head / kGroup)
                       : 0;
      for (int32_t i = 0; i < n * of_page; ++i) {
        const int32_t page = i / of_page;
        const double refines = refined == nullptr ? 0 : (*refined)[head / kGroup][page];
        const double score =
            labelled_score(setup, q_head, table[budget.first + page], head / kGroup,
                           refines == -INFINITY ? By::kSides : by, i % of_page, of_page);
        scores.push_back(std::isnan(refines) ? NAN : score + let_through[head / kGroup][page]);
        if (!std::isnan(scores.back())) all += std::exp(scores.back());
      }
      for (int32_t i = 0; i < n * of_page; ++i) {
        double& group = out[head / kGroup][i];
        const double share = scores[i] - std::log(all);
        const bool sums = policy != Policy::kDoubleSparsity && by != By::kDigest;
        group = std::isnan(scores[i]) ? NAN
                : sums                ? std::log(std::exp(group) + std::exp(share))
                                      : std::max(group, share);
      }
    }
    return out;
  };
  Scores let_through(kKvHeads, std::vector<double>(n, 0.0));
  // What is as good as the last one that is let through, but for so much, may be: not much, as its
  // weight is missing in what the others' shares are of.
  const auto cut = [&](By by, int64_t n_left, double rounding) {
    const Scores scores = scores_of(by, 1, let_through);
    for (int32_t head = 0; head < kKvHeads; ++head) {
      // Without NaN, which lies too near to an earlier cut to be among the best of this one.
      std::vector<double> sorted;
      for (const double score : scores[head]) {
        if (!std::isnan(score)) sorted.push_back(score);
      }
      std::ranges::sort(sorted, std::greater<>());
      for (int32_t i = 0; i < n; ++i) {
        const double above = scores[head][i] - sorted[n_left - 1];
        if (above < rounding) let_through[head][i] = above > -rounding ? NAN : -INFINITY;
      }
    }
  };
  const auto n_labelled = std::max<int64_t>(kLeastLabelled, kLabelledPerChosen * budget.n_chosen);
  const int64_t half = std::min<int64_t>(n, n_labelled) / 2;
  const int64_t n_refined = std::min(half, kRefinedPerChosen * budget.n_chosen);
  if (n_labelled < n) cut(By::kDigest, n_labelled, 0.01);
  if (policy == Policy::kDoubleSparsity || half < kLeastRefinedPerChosen * budget.n_chosen) {
    return scores_of(By::kLabels, n_parts, let_through);
  }
  const Scores labelled = let_through;
  cut(By::kSides, n_refined, 0.0005);
  return scores_of(By::kLabels, n_parts, labelled, &let_through);
}

/// [kv heads][candidates][n_parts], as the policy combines its query heads.
std::vector<std::vector<double>> expected_scores(Filled& setup, Policy policy, kv::SequenceId id,
                                                 const PageBudget& budget, std::span<const float> q,
                                                 int32_t n_parts) {
  const int32_t n = budget.n_candidates();
  if (policy == Policy::kLabels || policy == Policy::kLabelsSample ||
      policy == Policy::kDoubleSparsity) {
    return expected_by_labels(setup, policy, id, budget, q, n_parts);
  }
  std::vector<std::vector<double>> out(kKvHeads, std::vector<double>(n, -INFINITY));
  std::vector<double> sum(n, 0.0);
  std::vector<std::vector<double>> shares(kKvHeads, std::vector<double>(n, 0.0));
  for (int32_t head = 0; head < kHeads; ++head) {
    std::vector<double> scores;
    for (int32_t i = 0; i < n; ++i) {
      scores.push_back(page_score(policy, q.subspan(head * kHeadDim, kHeadDim),
                                  setup.keys(id, budget.first + i, head / kGroup)));
    }
    double all = 0;
    for (const double score : scores) all += std::exp(score);
    for (int32_t i = 0; i < n; ++i) {
      double& group = out[head / kGroup][i];
      group = std::max(group, scores[i] - std::log(all));
      sum[i] += scores[i];
      shares[head / kGroup][i] += std::exp(scores[i]) / all;
    }
  }
  if (policy == Policy::kGsa) std::ranges::fill(out, sum);
  if (policy == Policy::kOracle) {
    // Of all that the head attends to, by runs.
    for (int32_t head = 0; head < kKvHeads; ++head) out[head].assign(n * n_parts, 0.0);
    for (int32_t head = 0; head < kHeads; ++head) {
      const auto q_head = q.subspan(head * kHeadDim, kHeadDim);
      double all = fixed_mass(setup, id, budget, q_head, head / kGroup);
      std::vector<double> masses;
      for (int32_t i = 0; i < n; ++i) {
        const std::vector<float> keys = setup.keys(id, budget.first + i, head / kGroup);
        for (int32_t part = 0; part < n_parts; ++part) {
          const std::vector<double> of_tokens = token_masses(q_head, keys);
          const auto begin = of_tokens.begin() + part * kPageTokens / n_parts;
          masses.push_back(std::accumulate(begin, begin + kPageTokens / n_parts, 0.0));
          all += masses.back();
        }
      }
      for (int32_t i = 0; i < n * n_parts; ++i) out[head / kGroup][i] += masses[i] / all;
    }
  }
  // Of the first step: what came before is not known.
  if (policy == Policy::kTova || policy == Policy::kH2o) out = shares;
  if (policy == Policy::kH2o) {
    for (auto& scores : out) {
      std::fill(scores.end() - budget.n_chosen / 2, scores.end(), INFINITY);
    }
  }
  if (policy == Policy::kStreaming) {
    for (auto& scores : out) std::iota(scores.begin(), scores.end(), 0.0);
  }
  return out;
}

SparseOptions options_of(Policy policy, int32_t budget_tokens = 8 * kPageTokens,
                         kernels::DigestType type = kernels::DigestType::kF16) {
  SparseOptions options{.policy = policy, .budget_tokens = budget_tokens, .digest_type = type};
  for (int32_t i = 0; policy == Policy::kDoubleSparsity && i < 2 * kKvHeads * 16; ++i) {
    options.channels.push_back(i % 16 * 2);
  }
  const bool is_ordered = labels_of(policy) == kernels::LabelKind::kSides;
  for (int32_t i = 0; is_ordered && i < 2 * kKvHeads * kHeadDim; ++i) {
    options.channels.push_back(i * 5 % kHeadDim);
  }
  return options;
}

/// Of a row's head: the best are there and count once, and what it chose stands for the shares of
/// all candidates, but for rounding. Nothing is said where a score cannot be told.
void expect_sample(const kernels::HeadPages& list, const PageBudget& budget, int32_t n_parts,
                   std::span<const int32_t> places, std::span<const double> scores) {
  ASSERT_NE(list.weights, nullptr);
  if (std::ranges::any_of(scores, [](double score) { return std::isnan(score); })) return;
  std::vector<double> sorted(scores.begin(), scores.end());
  std::ranges::sort(sorted, std::greater<>());
  const int32_t n_best = budget.n_best * n_parts, n = budget.n_candidates() * n_parts;
  const int32_t first = budget.first * n_parts;
  const double least_best = n_best > 0 ? sorted[n_best - 1] + 2e-2 : INFINITY;
  double all = 0, read = 0;
  for (int32_t c = 0; c < n; ++c) {
    all += std::exp(scores[c]);
    const auto at = std::ranges::find(places, first + c);
    const bool is_read = at != places.end();
    const float weight = is_read ? list.weights[at - places.begin()] : 0;
    const double stands_for = is_read ? 1 + (weight - 1) / kernels::kRestCounted : 0;
    read += stands_for * std::exp(scores[c]);
    EXPECT_TRUE(!is_read || weight >= 1) << c;
    EXPECT_TRUE(scores[c] < least_best || weight == 1) << c;
  }
  EXPECT_NEAR(read, all, 0.05 * all);
  for (size_t i = 0; i < places.size(); ++i) {
    const int32_t candidate = places[i] - first;
    if (candidate >= 0 && candidate < n) continue;
    EXPECT_EQ(list.weights[i], 1) << "place " << places[i];
  }
}

/// One read of a sequence's 40 pages by the second layer.
std::vector<kernels::HeadPages> read_once(Filled& filled, kv::SequenceId id,
                                          std::span<const float> q) {
  const kv::Reservation reservation = *filled.cache().reserve(id, 1);
  filled.write(id, filled.cache().length(id), std::vector<float>(kKvHeads * kHeadDim));
  const kv::SelectingRow rows[] = {
      {id, filled.cache().length(id), q.data(), filled.cache().layer_table(id, 1)}};
  const auto lists =
      filled.selector().select(filled.context(), {filled.cache(), 1, kHeads, kScale, 0, rows});
  return {lists[0].begin(), lists[0].end()};
}

class EachPolicy : public ::testing::TestWithParam<Policy> {};
class EachLockedPolicy : public EachPolicy {};

/// kFirstPage: the first head of each group finds what it is after there.
enum class Finds { kAnywhere, kFirstPage };

void point_at_first_page(Filled& setup, kv::SequenceId id, std::vector<float>& q) {
  for (int32_t head = 0; head < kHeads; head += kGroup) {
    const auto keys = setup.keys(id, 0, head / kGroup);
    double norm = 0;
    for (int32_t d = 0; d < kHeadDim; ++d) norm += keys[d] * keys[d];
    for (int32_t d = 0; d < kHeadDim; ++d) {
      q[head * kHeadDim + d] = static_cast<float>(12 / (kScale * norm) * keys[d]);
    }
  }
}

/// Sequences of these lengths in one step: each KV head reads what its scores say.
void expect_chosen(Policy policy, DType k_type, const std::vector<int32_t>& lengths,
                   Finds finds = Finds::kAnywhere, int32_t budget_tokens = 8 * kPageTokens) {
  const SparseOptions options = options_of(policy, budget_tokens);
  const int32_t n_parts = parts_of(options), entry_tokens = kPageTokens / n_parts;
  Filled setup(options, k_type);
  std::vector<kv::SequenceId> ids;
  std::vector<std::vector<float>> queries;
  std::vector<kv::SelectingRow> rows;
  for (size_t i = 0; i < lengths.size(); ++i) {
    ids.push_back(setup.add(lengths[i], 10 + i));
    queries.push_back(query(20 + i));
    if (finds == Finds::kFirstPage) point_at_first_page(setup, ids[i], queries[i]);
  }
  std::vector<kv::Reservation> reserved;
  for (size_t i = 0; i < lengths.size(); ++i) {
    auto reservation = setup.cache().reserve(ids[i], 1);
    ASSERT_TRUE(reservation.is_ok());
    reserved.push_back(std::move(*reservation));
    setup.write(ids[i], lengths[i], std::vector<float>(kKvHeads * kHeadDim));
    rows.push_back({.sequence = ids[i],
                    .slot = lengths[i],
                    .q = queries[i].data(),
                    .block_table = setup.cache().layer_table(ids[i], 1)});
  }
  const auto lists =
      setup.selector().select(setup.context(), {setup.cache(), 1, kHeads, kScale, 0, rows});
  ASSERT_EQ(lists.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const PageBudget budget = page_budget(options, lengths[i], kPageTokens);
    const auto scores = expected_scores(setup, policy, ids[i], budget, queries[i], n_parts);
    ASSERT_EQ(lists[i].size(), kKvHeads);
    for (int32_t head = 0; head < kKvHeads; ++head) {
      const kernels::HeadPages& list = lists[i][head];
      ASSERT_EQ(list.entry_tokens, entry_tokens);
      const std::span<const int32_t> entries(list.table, list.last_slot / entry_tokens + 1);
      const int32_t last_part = lengths[i] % kPageTokens / entry_tokens;  // of the row's own page
      ASSERT_EQ(std::ssize(entries), (budget.n_read() - 1) * n_parts + last_part + 1);
      EXPECT_EQ(list.last_slot % entry_tokens, lengths[i] % entry_tokens);
      // As places in the sequence, ascending, with what is always read.
      std::vector<int32_t> places;
      for (const int32_t entry : entries) {
        const auto at = std::ranges::find(rows[i].block_table, entry / n_parts);
        const auto page = static_cast<int32_t>(at - rows[i].block_table.begin());
        places.push_back(page * n_parts + entry % n_parts);
      }
      EXPECT_TRUE(std::ranges::is_sorted(places));
      EXPECT_EQ(std::set(places.begin(), places.end()).size(), places.size());
      EXPECT_EQ(places.front(), 0);
      EXPECT_EQ(places.back(), (budget.n_pages - 1) * n_parts + last_part);
      if (budget.samples()) {
        expect_sample(list, budget, n_parts, places, scores[head]);
        continue;
      }
      EXPECT_EQ(list.weights, nullptr);
      // Every chosen page, or run, is as good as every other one that was not, but for rounding.
      double worst = INFINITY, best = -INFINITY;
      for (int32_t c = 0; c < budget.n_candidates() * n_parts; ++c) {
        const bool is_chosen = std::ranges::count(places, budget.first * n_parts + c) > 0;
        (is_chosen ? worst : best) =
            is_chosen ? std::min(worst, scores[head][c]) : std::max(best, scores[head][c]);
      }
      EXPECT_GE(worst, best - 2e-2) << "head " << head << " of row " << i;
    }
  }
}

TEST_P(EachPolicy, ChoosesThePagesThatItsScoresSay) {
  for (const DType k_type : {DType::kF16, DType::kQ8_0, DType::kF32}) {
    expect_chosen(GetParam(), k_type, {700, 16 * 40, 333});
  }
}

// A sixteenth of the pages by their scores, what is always read counted, and a sample of the rest.
TEST(Labels, TheBestAreReadAndASampleOfTheRest) {
  const SparseOptions options = options_of(Policy::kLabels, 20 * kPageTokens);
  EXPECT_EQ(page_budget(options, 16 * 150 + 3, kPageTokens).n_best, 10 - 3);
  EXPECT_EQ(page_budget(options, 16 * 400, kPageTokens).n_best, 17);  // all that are chosen
  EXPECT_FALSE(page_budget(options, 16 * 400, kPageTokens).samples());
  for (const DType k_type : {DType::kF16, DType::kF32}) {
    expect_chosen(Policy::kLabels, k_type, {16 * 150 + 3, 16 * 99, 16 * 400}, Finds::kAnywhere,
                  20 * kPageTokens);
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

TEST_P(EachPolicy, ARowGetsWhatItGetsAloneAndWithAnyThreads) {
  const auto lists_of = [&](std::vector<size_t> which, int n_threads) {
    Filled setup(options_of(GetParam()), DType::kF16, n_threads);
    std::vector<std::vector<float>> queries;
    std::vector<kv::SelectingRow> rows;
    std::vector<kv::Reservation> reserved;
    for (const size_t i : {0, 1, 2, 3}) {
      const int32_t length = 500 + 77 * static_cast<int32_t>(i);
      const kv::SequenceId id = setup.add(length, 30 + i);
      reserved.push_back(*setup.cache().reserve(id, 1));
      setup.write(id, length, std::vector<float>(kKvHeads * kHeadDim));
      queries.push_back(query(40 + i));
      if (std::ranges::count(which, i) == 0) continue;
      rows.push_back({id, length, nullptr, setup.cache().layer_table(id, 1)});
    }
    for (size_t i = 0; i < which.size(); ++i) rows[i].q = queries[which[i]].data();
    std::vector<std::vector<int32_t>> out;
    const auto lists =
        setup.selector().select(setup.context(), {setup.cache(), 1, kHeads, kScale, 0, rows});
    for (const auto& heads : lists) {
      auto& all = out.emplace_back();
      for (const kernels::HeadPages& list : heads) {
        const int32_t n_entries = list.last_slot / list.entry_tokens + 1;
        all.insert(all.end(), list.table, list.table + n_entries);
        for (int32_t i = 0; list.weights != nullptr && i < n_entries; ++i) {
          all.push_back(std::bit_cast<int32_t>(list.weights[i]));
        }
      }
    }
    return out;
  };
  const auto together = lists_of({0, 1, 2, 3}, 2);
  EXPECT_EQ(together, lists_of({0, 1, 2, 3}, 1));
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(together[i], lists_of({i}, 3).front()) << i;
}

TEST_P(EachPolicy, CountsWhatItReadsAndWhyNot) {
  Filled setup(options_of(GetParam()));
  const kv::SequenceId longer = setup.add(640, 1), shorter = setup.add(100, 2);
  const kv::Reservation a = *setup.cache().reserve(longer, 1);
  const kv::Reservation b = *setup.cache().reserve(shorter, 1);
  setup.write(longer, 640, std::vector<float>(kKvHeads * kHeadDim));
  const std::vector<float> q = query(3);
  const kv::SelectingRow rows[] = {
      {longer, 640, q.data(), setup.cache().layer_table(longer, 1)},
      {shorter, 100, q.data(), setup.cache().layer_table(shorter, 1)},
  };
  EXPECT_TRUE(setup.selector()
                  .select(setup.context(), {setup.cache(), 0, kHeads, kScale, 0, rows})[0]
                  .empty());
  const auto lists =
      setup.selector().select(setup.context(), {setup.cache(), 1, kHeads, kScale, 0, rows});
  EXPECT_FALSE(lists[0].empty());
  EXPECT_TRUE(lists[1].empty());
  const SparseCounters& c = setup.selector().counters();
  EXPECT_EQ(c.reads, 1);
  EXPECT_EQ(c.reads_in_dense_layers, 2);
  EXPECT_EQ(c.reads_within_budget, 1);
  EXPECT_EQ(c.pages, 41 * kKvHeads);
  EXPECT_EQ(c.pages_read, 8 * kKvHeads);
  const int64_t token = kernels::kv_token_bytes(setup.cache().layout());
  EXPECT_EQ(c.kv_bytes, 2 * (641 + 101) * token);
  EXPECT_EQ(c.kv_bytes_read, c.kv_bytes - (41 - 8) * kPageTokens * token);
  EXPECT_EQ(c.index_bytes_read == 0, GetParam() == Policy::kStreaming);
}

/// Which places a sequence's first KV head reads at each of some steps.
std::vector<std::vector<int32_t>> places_read(Filled& setup, kv::SequenceId id, int32_t n_steps) {
  std::vector<std::vector<int32_t>> out;
  for (int32_t step = 0; step < n_steps; ++step) {
    const int32_t slot = setup.cache().length(id);
    kv::Reservation reservation = *setup.cache().reserve(id, 1);
    setup.write(id, slot, std::vector<float>(kKvHeads * kHeadDim));
    const std::vector<float> q = query(100 + step);
    const auto table = setup.cache().layer_table(id, 1);
    const kv::SelectingRow rows[] = {{id, slot, q.data(), table}};
    const auto lists =
        setup.selector().select(setup.context(), {setup.cache(), 1, kHeads, kScale, 0, rows});
    const kernels::HeadPages& list = lists[0][0];
    auto& places = out.emplace_back();
    for (int32_t i = 0; i <= list.last_slot / kPageTokens; ++i) {
      const auto at = std::ranges::find(table, list.table[i]);
      places.push_back(static_cast<int32_t>(at - table.begin()));
    }
    reservation.commit();
  }
  return out;
}

// Three tokens on a selection, each of any policy's.
TEST_P(EachLockedPolicy, UnderALockStepsReadWhatTheFirstOneChose) {
  SparseOptions locked = options_of(GetParam());
  locked.lock = {.interval_tokens = 3, .duration_tokens = 1000, .update_threshold = 0};
  SparseOptions free = options_of(GetParam());
  // Without any lock it chooses runs, or draws; one of a step is what it chooses in the step.
  if (free.chooses_runs()) free.lock = {.interval_tokens = 1, .update_threshold = 0};
  Filled free_setup(free), setup(locked);
  const kv::SequenceId free_id = free_setup.add(16 * 40, 7), id = setup.add(16 * 40, 7);
  const auto free_steps = places_read(free_setup, free_id, 10);
  const auto steps = places_read(setup, id, 10);
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i], steps[i - i % 3]) << i;
    // H2O and TOVA choose among what earlier steps left, of which a lock has fewer.
    const bool remembers = GetParam() == Policy::kH2o || GetParam() == Policy::kTova;
    if (i % 3 == 0 && (i == 0 || !remembers)) {
      EXPECT_EQ(steps[i], free_steps[i]) << i;
    }
  }
  const SparseCounters& c = setup.selector().counters();
  EXPECT_EQ(c.reads, 10);
  EXPECT_EQ(c.locks.locks, 1);
  EXPECT_EQ(c.locks.checkpoints, 3);
  EXPECT_EQ(c.locks.locked_reads, 6);
  EXPECT_EQ(c.locks.kept + c.locks.updated, 3 * kKvHeads);
  EXPECT_EQ(c.pages_read, free_setup.selector().counters().pages_read);
  EXPECT_LE(c.index_bytes_read * 2, free_setup.selector().counters().index_bytes_read);
}

/// The places that rows read, KV head 0, of a sequence's rows from `begin` on, so many in each
/// step, beside another sequence's.
std::vector<std::vector<int32_t>> places_in_steps(const SparseOptions& options,
                                                  std::span<const int32_t> rows_of_steps) {
  Filled setup(options);
  const kv::SequenceId id = setup.add(16 * 40, 7), other = setup.add(16 * 30, 8);
  std::vector<std::vector<int32_t>> read;
  for (const int32_t n_rows : rows_of_steps) {
    kv::Reservation reservation = *setup.cache().reserve(id, n_rows);
    const kv::Reservation others = *setup.cache().reserve(other, 1);
    const int32_t begin = setup.cache().length(id);
    const std::span<const int32_t> table = setup.cache().layer_table(id, 1);
    std::vector<std::vector<float>> queries;
    for (int32_t i = 0; i <= n_rows; ++i) queries.push_back(query(begin + i));
    std::vector<kv::SelectingRow> rows;
    for (int32_t i = 0; i < n_rows; ++i) {
      setup.write(id, begin + i, std::vector<float>(kKvHeads * kHeadDim));
      rows.push_back({id, begin + i, queries[i].data(), table});
    }
    setup.write(other, 16 * 30, std::vector<float>(kKvHeads * kHeadDim));
    rows.push_back({other, 16 * 30, queries.back().data(), setup.cache().layer_table(other, 1)});
    const auto lists =
        setup.selector().select(setup.context(), {setup.cache(), 1, kHeads, kScale, 0, rows});
    for (int32_t i = 0; i < n_rows; ++i) {
      const kernels::HeadPages& list = lists[i][0];
      auto& places = read.emplace_back();
      for (int32_t page = 0; page <= list.last_slot / kPageTokens; ++page) {
        places.push_back(
            static_cast<int32_t>(std::ranges::find(table, list.table[page]) - table.begin()));
      }
    }
    reservation.commit();
  }
  return read;
}

// A request that was preempted computes its answer again with many rows in a step.
TEST_P(EachLockedPolicy, RowsOfOneStepReadUnderALockWhatTheyWouldInStepsOfTheirOwn) {
  SparseOptions options = options_of(GetParam());
  options.lock = {.interval_tokens = 2, .duration_tokens = 5};
  // The last of 100 rows are further from the first than any draft is long.
  const std::vector<int32_t> ones(124, 1), many = {7, 1, 12, 100, 4};
  EXPECT_EQ(places_in_steps(options, many), places_in_steps(options, ones));
}

// Lists are kept with the lock, as ids.
TEST(LockedRows, ReadWhereTheirPagesHaveMovedTo) {
  SparseOptions options{.policy = Policy::kQuest, .budget_tokens = 8 * kPageTokens};
  options.lock = {.interval_tokens = 1000, .duration_tokens = 1000};
  Filled setup(options);
  const kv::SequenceId low = setup.add(20 * kPageTokens, 6), id = setup.add(40 * kPageTokens, 7);
  const auto first = places_read(setup, id, 2);
  setup.cache().free_sequence(low);
  ASSERT_GT(
      setup.cache().give_back_memory({.slack_pages = 0, .slack_divisor = 1 << 20}).moved_pages, 0);
  EXPECT_EQ(places_read(setup, id, 1)[0], first[0]);
  const int32_t before = setup.cache().layer_table(id, 1)[40];
  ASSERT_TRUE(setup.cache().fork(id).is_ok());
  EXPECT_EQ(places_read(setup, id, 1)[0], first[0]);
  // The page that both would write to.
  EXPECT_NE(setup.cache().layer_table(id, 1)[40], before);
  // A page later the newest full one is another.
  EXPECT_NE(places_read(setup, id, kPageTokens).back(), first[0]);
}

TEST(LockedRows, AShareThatGrowsReadsNoPageTwice) {
  SparseOptions options{.policy = Policy::kCuboid, .ratio = 0.3};
  options.lock = {.interval_tokens = 1000, .duration_tokens = 1000};
  Filled setup(options);
  const kv::SequenceId id = setup.add(4 * kPageTokens, 7);
  for (const std::vector<int32_t>& places : places_read(setup, id, 14 * kPageTokens)) {
    EXPECT_TRUE(std::ranges::is_sorted(places));
    EXPECT_EQ(std::ranges::adjacent_find(places), places.end());
  }
}

TEST(History, WhatWasDroppedIsNeverReadAgainUnlessTheSequenceIsCut) {
  for (const Policy policy : {Policy::kH2o, Policy::kTova}) {
    Filled setup(options_of(policy));
    const kv::SequenceId id = setup.add(480, 7);
    const auto steps = places_read(setup, id, 40);
    for (size_t i = 1; i < steps.size(); ++i) {
      for (const int32_t place : steps[i]) {
        const bool was_read = std::ranges::count(steps[i - 1], place) > 0;
        EXPECT_TRUE(was_read || place >= steps[i - 1].back()) << "step " << i;
      }
    }
    EXPECT_NE(steps.front(), steps.back());
    ASSERT_TRUE(setup.cache().truncate(id, 480).is_ok());
    EXPECT_EQ(places_read(setup, id, 1).front(), steps.front());
  }
}

/// Of each query head, by page: the share of its attention over the sequence's full pages.
std::vector<std::vector<double>> shares_of_pages(Filled& filled, kv::SequenceId id,
                                                 std::span<const float> q, int32_t first,
                                                 int32_t end) {
  std::vector<std::vector<double>> out;
  for (int32_t head = 0; head < kHeads; ++head) {
    double all = 0;
    auto& shares = out.emplace_back();
    for (int32_t page = first; page < end; ++page) {
      shares.push_back(std::exp(page_score(Policy::kOracle, q.subspan(head * kHeadDim, kHeadDim),
                                           filled.keys(id, page, head / kGroup))));
      all += shares.back();
    }
    for (double& share : shares) share /= all;
  }
  return out;
}

TEST(Retain, TakesWhatTheShareTakesAndEachHeadItsOwn) {
  std::set<int32_t> lengths;
  for (const double retain : {0.3, 0.6, 0.9}) {
    Filled filled({.policy = Policy::kOracle, .retain = retain});
    const kv::SequenceId id = filled.add(1600, 5);
    std::vector<float> q = query(6);
    for (float& x : q) x *= 2;  // some pages get most
    const auto lists = read_once(filled, id, q);
    const auto shares = shares_of_pages(filled, id, q, 0, 100);
    for (int32_t head = 0; head < kKvHeads; ++head) {
      const int32_t n_read = lists[head].last_slot / kPageTokens + 1;
      lengths.insert(n_read);
      EXPECT_GE(n_read, kLeastRetainedPages);
      EXPECT_LE(n_read, 101 / kMostRetainedDivisor);
      // The pages that are chosen from, by the sum of their heads' shares, and the least count of
      // them that makes up so much; a bucket of scores more may be taken.
      std::vector<double> group(98, 0.0);
      for (int32_t i = 0; i < kGroup; ++i) {
        for (size_t p = 0; p < group.size(); ++p) group[p] += shares[head * kGroup + i][p + 1];
      }
      std::ranges::sort(group, std::greater());
      const double all = std::accumulate(group.begin(), group.end(), 0.0);
      double kept = 0;
      int32_t least = 0;
      while (kept < retain * all) kept += group[least++];
      const auto in_bucket = std::ranges::count_if(
          group, [&](double x) { return std::abs(std::log(x / group[least - 1])) < 1.0 / 16; });
      const int32_t n_chosen = n_read - 3;  // the row's page, the sink, the newest
      EXPECT_GE(n_chosen + 1, std::min(least, 101 / kMostRetainedDivisor - 3));
      if (n_read > kLeastRetainedPages) {
        EXPECT_LE(n_chosen - 1, least + in_bucket);
      }
    }
  }
  EXPECT_GT(lengths.size(), 2);
}

TEST(ReadMeter, TellsTheShareOfAttentionThatWasKept) {
  SparseOptions options = options_of(Policy::kQuest);
  options.measure_every = 1;
  Filled filled(options);
  const kv::SequenceId id = filled.add(640, 3);  // with full pages alone, and a row of its own
  const std::vector<float> q = query(4);
  const auto lists = read_once(filled, id, q);
  const auto shares = shares_of_pages(filled, id, q, 0, 40);
  double expected = 0;
  for (int32_t head = 0; head < kHeads; ++head) {
    const kernels::HeadPages& list = lists[head / kGroup];
    const auto table = filled.cache().layer_table(id, 1);
    for (int32_t page = 0; page < 40; ++page) {
      const auto* end = list.table + list.last_slot / kPageTokens + 1;
      if (std::find(list.table, end, table[page]) != end) expected += shares[head][page];
    }
  }
  const ReadQuality quality = filled.selector().counters().all_quality();
  EXPECT_EQ(quality.reads, 1);
  // The row's own token, whose K is 0, is a key more.
  EXPECT_NEAR(quality.mass, expected / kHeads, 0.02);
  EXPECT_GT(quality.mass, 0.1);
  EXPECT_LE(quality.top10, 1);
  EXPECT_GT(quality.top10, 0);
}

// A list of runs holds the tokens of these and no others of their pages: what labels keep is what
// the shares of their runs add up to.
TEST(ReadMeter, TellsRunsApart) {
  SparseOptions options = options_of(Policy::kLabels);
  options.measure_every = 1;
  Filled filled(options);
  const kv::SequenceId id = filled.add(640, 3);
  const std::vector<float> q = query(4);
  const auto lists = read_once(filled, id, q);
  const auto table = filled.cache().layer_table(id, 1);
  double expected = 0;
  for (int32_t head = 0; head < kHeads; ++head) {
    const kernels::HeadPages& list = lists[head / kGroup];
    const auto* const end = list.table + list.last_slot / kernels::kRunTokens + 1;
    double all = 0, read = 0;
    for (int32_t run = 0; run < 80; ++run) {
      const auto keys = filled.keys(id, run / 2, head / kGroup);
      const auto masses = token_masses(std::span(q).subspan(head * kHeadDim, kHeadDim), keys);
      const auto begin = masses.begin() + run % 2 * kernels::kRunTokens;
      const double mass = std::accumulate(begin, begin + kernels::kRunTokens, 0.0);
      all += mass;
      if (std::find(list.table, end, table[run / 2] * 2 + run % 2) != end) read += mass;
    }
    expected += read / all;
  }
  const ReadQuality quality = filled.selector().counters().all_quality();
  EXPECT_NEAR(quality.mass, expected / kHeads, 0.02);  // with the row's own token, whose K is 0
}

TEST(ReadMeter, ABetterChoiceKeepsMore) {
  const auto kept = [](Policy policy) {
    SparseOptions options = options_of(policy);
    options.measure_every = 1;
    Filled filled(options);
    const kv::SequenceId id = filled.add(1600, 8);
    for (int32_t step = 0; step < 20; ++step) read_once(filled, id, query(200 + step));
    const ReadQuality quality = filled.selector().counters().all_quality();
    EXPECT_EQ(quality.reads, 20);
    return quality.mass / 20;
  };
  const double oracle = kept(Policy::kOracle), streaming = kept(Policy::kStreaming);
  for (const Policy policy : {Policy::kQuest, Policy::kCuboid, Policy::kSparq}) {
    EXPECT_GT(kept(policy), streaming + 0.05) << kPolicies.name(policy);
    EXPECT_LE(kept(policy), oracle + 1e-3) << kPolicies.name(policy);
  }
}

/// All, or those that may be locked.
std::vector<Policy> sparse_policies(const LockOptions& lock = {}) {
  std::vector<Policy> all;
  for (const auto& policy : kPolicies) {
    SparseOptions options = options_of(policy.value);
    options.digest_type = kernels::DigestType::kInt8;
    options.lock = lock;
    if (options.is_on() && options.check(kPageTokens).is_ok()) all.push_back(policy.value);
  }
  return all;
}

std::string name_of(const ::testing::TestParamInfo<Policy>& test) {
  std::string name = kPolicies.name(test.param);
  std::erase(name, '-');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, EachPolicy, ::testing::ValuesIn(sparse_policies()), name_of);
INSTANTIATE_TEST_SUITE_P(All, EachLockedPolicy,
                         ::testing::ValuesIn(sparse_policies({.interval_tokens = 2})), name_of);

// What is looked at of all pages is a fifth of a label, the sides of half of the dimensions. With
// 20 of 400 pages eight times as many are left for all bits, with 50 the half; with 51 sides would
// rule out too few to be looked at first.
TEST(Labels, SidesAreLookedAtByThemselvesWhereTheyRuleOutHalfOfThePages) {
  const kv::DigestFormat format = *digest_format({.policy = Policy::kLabels});
  const LabelScorer scorer(format, false, SharesOf::kCandidates, HeadsJoin::kByMaximum);
  const kernels::KvLayout layout = {DType::kF16, DType::kF16, 64, kKvHeads, kPageTokens};
  const int64_t digest = kv::page_digest_bytes(format, layout);
  const int64_t fifth = kv::page_label_bytes(format, layout) / 5;
  EXPECT_EQ(scorer.bytes_read(layout, 400, 20), 400 * digest + 400 * fifth + 160 * 4 * fifth);
  EXPECT_EQ(scorer.bytes_read(layout, 400, 50), 400 * digest + 400 * fifth + 200 * 4 * fifth);
  EXPECT_EQ(scorer.bytes_read(layout, 400, 51), 400 * digest + 400 * 5 * fifth);
}

}  // namespace
}  // namespace weft::sparse
