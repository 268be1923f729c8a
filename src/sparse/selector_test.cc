// What selectors choose, against choices that are made in double from the K that lies in the pages.
#include "sparse/selector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "support/expected_choices.h"

namespace weft::sparse {
namespace {

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

TEST_P(EachPolicy, ChoosesThePagesThatItsScoresSay) {
  for (const DType k_type : {DType::kF16, DType::kQ8_0, DType::kF32}) {
    expect_chosen(GetParam(), k_type, {700, 16 * 40, 333});
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

}  // namespace
}  // namespace weft::sparse
