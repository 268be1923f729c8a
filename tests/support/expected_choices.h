// What a policy makes of a filled cache's K, in double, and what a row reads then.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <span>
#include <vector>

#include "kernels/ref/kv_codec.h"
#include "kernels/ref/page_digest.h"
#include "kernels/ref/token_labels.h"
#include "kernels/sample_pages.h"
#include "sparse/budget.h"
#include "sparse/label_scorer.h"
#include "support/filled_cache.h"

namespace weft::sparse {

/// q with its quarter of largest components alone.
inline std::vector<float> sparq_query(std::span<const float> q) {
  std::vector<int32_t> by_size(q.size());
  std::iota(by_size.begin(), by_size.end(), 0);
  std::ranges::sort(by_size, {}, [&](int32_t d) { return -std::abs(q[d]); });
  std::vector<float> out(q.size());
  for (size_t i = 0; i < q.size() / 4; ++i) out[by_size[i]] = q[by_size[i]];
  return out;
}

inline double magnitude(std::span<const float> q) {
  double sum = 0;
  for (const float x : q) sum += std::abs(x);
  return sum;
}

/// The score of one page for one query head, by the policy's paper.
inline double page_score(Policy policy, std::span<const float> all_of_q,
                         std::span<const float> keys, int32_t n_tokens = kPageTokens) {
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
inline std::vector<double> token_masses(std::span<const float> q, std::span<const float> keys) {
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
inline double fixed_mass(Filled& setup, kv::SequenceId id, const PageBudget& budget,
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

enum class By { kDigest, kSides, kLabels, kKeys };

/// Of a page's labels, or of one of its n_parts, as they lie in the cache, of their sides, of their
/// digest alone, or of the keys themselves.
inline double labelled_score(Filled& setup, std::span<const float> q, int32_t page, int32_t kv_head,
                             By by, int32_t part = 0, int32_t n_parts = 1) {
  const int32_t pages[] = {page};
  const kv::LayerDigests all = setup.cache().digests(setup.context(), 1, pages);
  const std::vector<double> both = kernels::ref::digest_values(all.digests, page, kv_head);
  double coarse = 0, mass = 0;
  for (int32_t d = 0; d < kHeadDim; ++d) {
    coarse += std::max(q[d] * both[d], q[d] * both[kHeadDim + d]);
  }
  const kernels::PagedKv kv = setup.cache().layer(1);
  const auto depth = by == By::kSides ? kernels::LabelDepth::kSide : kernels::LabelDepth::kAll;
  const int32_t part_tokens = kPageTokens / n_parts;
  for (int32_t t = part * part_tokens; t < (part + 1) * part_tokens; ++t) {
    auto k = kernels::ref::label_values(all.digests, *all.labels, depth, page, kv_head, t);
    for (int32_t d = 0; by == By::kKeys && d < kHeadDim; ++d) {
      k[d] = kernels::ref::kv_element(kv.layout.k_type, kernels::k_at(kv, &page, t, kv_head), d);
    }
    double dot = 0;
    for (int32_t d = 0; d < kHeadDim; ++d) dot += q[d] * k[d];
    mass += std::exp(kScale * dot);
  }
  return by == By::kDigest ? kScale * coarse : std::log(mass);
}

/// How many parts of a page are chosen by themselves.
inline int32_t parts_of(const SparseOptions& options) {
  return options.chooses_runs() ? kPageTokens / kernels::kRunTokens : 1;
}

using Scores = std::vector<std::vector<double>>;

/// Marks what is not among the n largest scores of its KV head with -inf, and with NaN what is as
/// good as the last of them but for so much.
inline void mark_others(const Scores& scores, int64_t n, double rounding, Scores& marks) {
  for (size_t head = 0; head < scores.size(); ++head) {
    // Without NaN, which lies too near to an earlier cut to be among the best of this one.
    std::vector<double> sorted;
    for (const double score : scores[head]) {
      if (!std::isnan(score)) sorted.push_back(score);
    }
    std::ranges::sort(sorted, std::greater<>());
    for (size_t i = 0; i < scores[head].size(); ++i) {
      const double above = scores[head][i] - sorted[n - 1];
      if (above < rounding) marks[head][i] = above > -rounding ? NAN : -INFINITY;
    }
  }
}

/// [kv heads][candidates][n_parts], by labels, or the best of them by keys; NaN where it cannot be
/// told whether digests or sides let the page through, or what it is scored by, as others are as
/// good but for rounding.
inline Scores expected_by_labels(Filled& setup, Policy policy, kv::SequenceId id,
                                 const PageBudget& budget, std::span<const float> q,
                                 int32_t n_parts, bool is_by_keys) {
  const int32_t n = budget.n_candidates();
  const auto table = setup.cache().layer_table(id, 1);
  // Of the pages that are let through, in so many parts: heads of a group are compared by their
  // shares of these. Of the pages that sides do not let through, theirs. Of the parts that are
  // looked up, the keys'.
  const auto scores_of = [&](By by, int32_t of_page, const Scores& let_through,
                             const Scores* refined = nullptr, const Scores* looked_up = nullptr) {
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
        const double looks = looked_up == nullptr ? -INFINITY : (*looked_up)[head / kGroup][i];
        const By own = looks == 0 ? By::kKeys : refines == -INFINITY ? By::kSides : by;
        const double score = labelled_score(setup, q_head, table[budget.first + page],
                                            head / kGroup, own, i % of_page, of_page);
        const bool is_known = !std::isnan(refines) && !std::isnan(looks);
        scores.push_back(is_known ? score + let_through[head / kGroup][page] : NAN);
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
    mark_others(scores_of(by, 1, let_through), n_left, rounding, let_through);
  };
  const auto n_labelled = std::max<int64_t>(kLeastLabelled, kLabelledPerChosen * budget.n_chosen);
  const int64_t half = std::min<int64_t>(n, n_labelled) / 2;
  const int64_t n_refined = std::min(half, kRefinedPerChosen * budget.n_chosen);
  if (n_labelled < n) cut(By::kDigest, n_labelled, 0.01);
  if (is_by_keys) {
    const int64_t n_keys =
        std::min<int64_t>(n, kByKeysPerChosen * std::min(budget.n_chosen, (n - 1) / 16 + 1));
    Scores looked_up(kKvHeads, std::vector<double>(n * n_parts, 0.0));
    mark_others(scores_of(By::kLabels, n_parts, let_through), n_keys * n_parts, 0.0005, looked_up);
    return scores_of(By::kLabels, n_parts, let_through, nullptr, &looked_up);
  }
  if (policy == Policy::kDoubleSparsity || half < kLeastRefinedPerChosen * budget.n_chosen) {
    return scores_of(By::kLabels, n_parts, let_through);
  }
  const Scores labelled = let_through;
  cut(By::kSides, n_refined, 0.0005);
  return scores_of(By::kLabels, n_parts, labelled, &let_through);
}

/// [kv heads][candidates][n_parts], as the policy combines its query heads.
inline std::vector<std::vector<double>> expected_scores(Filled& setup, Policy policy,
                                                        kv::SequenceId id, const PageBudget& budget,
                                                        std::span<const float> q, int32_t n_parts,
                                                        bool is_by_keys) {
  const int32_t n = budget.n_candidates();
  if (policy == Policy::kLabels || policy == Policy::kLabelsSample ||
      policy == Policy::kDoubleSparsity) {
    return expected_by_labels(setup, policy, id, budget, q, n_parts,
                              is_by_keys && policy != Policy::kDoubleSparsity);
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

/// Of a row's head: the best are there and count once, and what it chose stands for the shares of
/// all candidates, but for rounding. Nothing is said where a score cannot be told.
inline void expect_sample(const kernels::HeadPages& list, const PageBudget& budget, int32_t n_parts,
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

/// kFirstPage: the first head of each group finds what it is after there.
enum class Finds { kAnywhere, kFirstPage };

inline void point_at_first_page(Filled& setup, kv::SequenceId id, std::vector<float>& q) {
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
inline void expect_chosen(Policy policy, DType k_type, const std::vector<int32_t>& lengths,
                          Finds finds = Finds::kAnywhere, int32_t budget_tokens = 8 * kPageTokens,
                          bool is_by_keys = true) {
  const SparseOptions options = options_of(policy, budget_tokens);
  const int32_t n_parts = parts_of(options), entry_tokens = kPageTokens / n_parts;
  Filled setup(options, k_type, 2, {!is_by_keys, true});
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
    const auto scores =
        expected_scores(setup, policy, ids[i], budget, queries[i], n_parts, is_by_keys);
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

}  // namespace weft::sparse
