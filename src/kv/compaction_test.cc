// What moves and when, and that whoever names a page names the new one afterwards.
#include "kv/compaction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kv/cache.h"
#include "kv/invariants.h"

namespace weft::kv {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Compaction, BeginsAboveItsSlack) {
  const CompactionRule rule{.slack_pages = 8, .slack_divisor = 16};
  EXPECT_FALSE(is_sparse(0, 0, rule));
  EXPECT_FALSE(is_sparse(0, 8, rule));
  EXPECT_TRUE(is_sparse(0, 9, rule));
  EXPECT_FALSE(is_sparse(1600, 1700, rule));
  EXPECT_TRUE(is_sparse(1600, 1701, rule));
}

TEST(Compaction, AStepDoesItsBytesAndAPageAtLeast) {
  EXPECT_EQ(pages_of_step(1000, 300), 3);
  EXPECT_EQ(pages_of_step(1000, 1001), 1);
  EXPECT_EQ(pages_of_step(int64_t{1} << 40, 0), INT32_MAX);
}

/// [move]: from, to.
std::vector<std::pair<int32_t, int32_t>> pairs_of(const std::vector<PageMove>& moves) {
  std::vector<std::pair<int32_t, int32_t>> pairs;
  for (const PageMove& move : moves) pairs.emplace_back(move.from, move.to);
  return pairs;
}

class PlanTest : public ::testing::Test {
 protected:
  PlanTest() {  // used: 0, 3, 6, 7, 9
    for (int i = 0; i < 10; ++i) pages_.take();
    for (const int32_t page : {1, 2, 4, 5, 8}) pages_.give(page);
  }
  FreePages pages_{12};
  std::vector<bool> pinned_ = std::vector<bool>(12);
};

TEST_F(PlanTest, TheHighestGoToTheLowestFreeOnes) {
  const std::vector<PageMove> moves = plan_moves(pages_, pinned_, 100);
  EXPECT_EQ(pairs_of(moves), (std::vector<std::pair<int32_t, int32_t>>{{9, 1}, {7, 2}, {6, 4}}));
  EXPECT_EQ(moved_to(moves, 9), 1);
  EXPECT_EQ(moved_to(moves, 7), 2);
  EXPECT_EQ(moved_to(moves, 6), 4);
  for (const int32_t page : {kNoPage, 0, 3, 8, 10, 11}) EXPECT_EQ(moved_to(moves, page), page);
  EXPECT_EQ(moved_to({}, 5), 5);
}

TEST_F(PlanTest, NoMoreThanAsked) {
  EXPECT_EQ(plan_moves(pages_, pinned_, 2).size(), 2u);
  EXPECT_EQ(plan_moves(pages_, pinned_, 0).size(), 0u);
}

TEST_F(PlanTest, PinnedOnesStay) {
  pinned_[9] = pinned_[6] = true;
  const std::vector<std::pair<int32_t, int32_t>> expected{{7, 1}, {3, 2}};
  EXPECT_EQ(pairs_of(plan_moves(pages_, pinned_, 100)), expected);
}

constexpr CompactionRule kAll{.slack_pages = 0,
                              .slack_divisor = INT32_MAX,
                              .moved_bytes = INT64_MAX,
                              .returned_bytes = INT64_MAX};
constexpr int32_t kTokens = 16;  // of a page

/// Three layers in two groups. What a token's K and V hold follows from `seed` and its slot.
class CompactionTest : public ::testing::Test {
 protected:
  CompactionTest() {
    cache_ = std::move(*Cache::create({.n_layers = 3,
                                       .layer_groups = {0, 1, 0},
                                       .layout = {DType::kF32, DType::kF32, 32, 2, kTokens},
                                       .capacity_tokens = 64 * kTokens}));
  }

  template <class Fn>
  void for_vectors(SequenceId id, int32_t slot, const Fn& fn) {
    for (int32_t layer = 0; layer < 3; ++layer) {
      const kernels::PagedKv kv = cache_->layer(layer);
      const int32_t* const table = cache_->layer_table(id, layer).data();
      for (int32_t head = 0; head < 2; ++head) {
        fn(*reinterpret_cast<int32_t*>(kernels::k_at(kv, table, slot, head)), layer * 4 + head);
        fn(*reinterpret_cast<int32_t*>(kernels::v_at(kv, table, slot, head)), layer * 4 + head + 2);
      }
    }
  }
  static int32_t value(int32_t seed, int32_t slot, int32_t which) {
    return (seed * 1000 + slot) * 12 + which;
  }
  void write(const Reservation& reservation, int32_t seed) {
    for (int32_t slot = reservation.begin(); slot < reservation.end(); ++slot) {
      for_vectors(reservation.sequence(), slot,
                  [&](int32_t& word, int32_t which) { word = value(seed, slot, which); });
    }
  }
  void append(SequenceId id, int32_t n_tokens, int32_t seed) {
    Reservation reservation = cache_->reserve(id, n_tokens).value();
    write(reservation, seed);
    reservation.commit();
  }
  SequenceId sequence_of(int32_t n_tokens, int32_t seed) {
    const SequenceId id = cache_->create_sequence();
    append(id, n_tokens, seed);
    return id;
  }
  void expect_holds(SequenceId id, int32_t seed) {
    for (int32_t slot = 0; slot < cache_->length(id); ++slot) {
      for_vectors(id, slot, [&](int32_t word, int32_t which) {
        ASSERT_EQ(word, value(seed, slot, which)) << "slot " << slot;
      });
    }
  }
  std::vector<int32_t> table(SequenceId id, int32_t group) {
    const auto pages = cache_->block_table(id, group);
    return {pages.begin(), pages.end()};
  }
  /// Of each group.
  std::vector<int32_t> memory_ends() {
    std::vector<int32_t> ends;
    for (const Snapshot& group : cache_->snapshots()) ends.push_back(group.memory_end);
    return ends;
  }
  void expect_no_violations() { EXPECT_THAT(violations(cache_->snapshots()), IsEmpty()); }

  std::unique_ptr<Cache> cache_;
};

TEST_F(CompactionTest, PagesMoveDownInEveryGroupAndContentsStay) {
  const SequenceId low = sequence_of(20 * kTokens, 1);
  const SequenceId high = sequence_of(5 * kTokens - 3, 2);
  cache_->free_sequence(low);
  EXPECT_THAT(memory_ends(), ElementsAre(25, 25));
  const CompactionStep step = cache_->give_back_memory();  // by the usual rule
  EXPECT_EQ(step.moved_pages, 10);
  EXPECT_EQ(step.returned_pages, 40);
  EXPECT_FALSE(step.goes_on);
  EXPECT_THAT(memory_ends(), ElementsAre(5, 5));
  for (const int32_t group : {0, 1}) {
    EXPECT_THAT(table(high, group), ::testing::UnorderedElementsAre(0, 1, 2, 3, 4));
  }
  expect_holds(high, 2);
  expect_no_violations();
  append(high, 40, 2);
  expect_holds(high, 2);
}

TEST_F(CompactionTest, NothingHappensWithinTheSlack) {
  const SequenceId low = sequence_of(8 * kTokens, 1);
  const SequenceId high = sequence_of(5 * kTokens, 2);
  cache_->free_sequence(low);
  const std::vector<int32_t> before = table(high, 0);
  const CompactionStep step = cache_->give_back_memory();
  EXPECT_EQ(step.moved_pages + step.returned_pages, 0);
  EXPECT_FALSE(step.goes_on);
  EXPECT_EQ(table(high, 0), before);
  EXPECT_THAT(memory_ends(), ElementsAre(13, 13));
}

// Then not another step is due for the next page that is freed.
TEST_F(CompactionTest, OnceBegunItGoesOnToTheEndAStepAtATime) {
  const SequenceId low = sequence_of(12 * kTokens, 1);
  const SequenceId high = sequence_of(12 * kTokens, 2);
  cache_->free_sequence(low);
  const CompactionRule rule{.moved_bytes = 2 * cache_->page_bytes(), .returned_bytes = 1};
  int32_t n_steps = 0;
  for (CompactionStep step{.goes_on = true}; step.goes_on; ++n_steps) {
    ASSERT_LT(n_steps, 100);
    step = cache_->give_back_memory(rule);
    // Two pages of three layers are six of the group that has one; one byte is a page.
    EXPECT_LE(step.moved_pages, 6);
    EXPECT_LE(step.returned_pages, 1);
    expect_holds(high, 2);
    expect_no_violations();
  }
  EXPECT_EQ(n_steps, 24);  // a page of one group each
  EXPECT_THAT(memory_ends(), ElementsAre(12, 12));
}

TEST_F(CompactionTest, ForksAndThePrefixIndexFollowTheirPages) {
  const SequenceId low = sequence_of(30 * kTokens, 1);
  const SequenceId text = sequence_of(4 * kTokens, 2);
  const SequenceId other = sequence_of(3 * kTokens, 3);
  const SequenceId copy = *cache_->fork(text);
  append(copy, 20, 2);
  std::vector<int32_t> ids(4 * kTokens, 7), other_ids(3 * kTokens, 7);
  other_ids[2 * kTokens] = 8;
  cache_->publish(text, ids, "tenant");
  cache_->publish(other, other_ids);
  cache_->free_sequence(other);  // the index alone has it now
  cache_->free_sequence(low);
  EXPECT_EQ(cache_->give_back_memory().moved_pages, 2 * 9);
  expect_no_violations();
  expect_holds(text, 2);
  expect_holds(copy, 2);
  for (const int32_t group : {0, 1}) {
    const auto a = table(text, group), b = table(copy, group);
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin()));  // shared as before
  }
  const SequenceId found = cache_->create_sequence();
  EXPECT_EQ(*cache_->attach_prefix(found, ids, "tenant"), 4 * kTokens);
  EXPECT_EQ(table(found, 1), table(text, 1));
  expect_holds(found, 2);
  const SequenceId unused = cache_->create_sequence();
  EXPECT_EQ(*cache_->attach_prefix(unused, other_ids), 3 * kTokens);
  expect_holds(unused, 3);
}

TEST_F(CompactionTest, PagesOfAnOpenReservationStayWhoeverElseHoldsThem) {
  const SequenceId low = sequence_of(30 * kTokens, 1);
  const SequenceId text = sequence_of(2 * kTokens + 5, 2);
  const SequenceId copy = *cache_->fork(text);
  const SequenceId high = sequence_of(4 * kTokens, 3);
  Reservation open = cache_->reserve(text, 2 * kTokens).value();  // copies the part full page
  cache_->free_sequence(low);
  const std::vector<int32_t> pinned = table(text, 0), of_copy = table(copy, 0);
  EXPECT_EQ(cache_->give_back_memory(kAll).moved_pages, 2 * 4);  // of `high`
  EXPECT_EQ(table(text, 0), pinned);
  EXPECT_EQ(table(copy, 0), of_copy);
  EXPECT_THAT(table(high, 0), ::testing::UnorderedElementsAre(0, 1, 2, 3));
  expect_no_violations();
  write(open, 2);
  open.commit();
  const CompactionStep step = cache_->give_back_memory(kAll);
  EXPECT_FALSE(step.goes_on);
  EXPECT_THAT(memory_ends(), ElementsAre(10, 10));
  for (const SequenceId id : {text, copy}) expect_holds(id, 2);
  expect_holds(high, 3);
  expect_no_violations();
}

// The original of a page that the reservation copied comes back with a rollback.
TEST_F(CompactionTest, ARollbackFindsItsPagesWhereTheyWere) {
  const SequenceId low = sequence_of(30 * kTokens, 1);
  const SequenceId text = sequence_of(2 * kTokens + 5, 2);
  const SequenceId copy = *cache_->fork(text);
  {
    Reservation open = cache_->reserve(text, 2 * kTokens).value();
    cache_->free_sequence(low);
    cache_->free_sequence(copy);  // the reservation alone keeps the original
    cache_->give_back_memory(kAll);
  }
  expect_no_violations();
  expect_holds(text, 2);
  cache_->give_back_memory(kAll);
  EXPECT_THAT(memory_ends(), ElementsAre(3, 3));
  expect_holds(text, 2);
}

// Nothing has holes that would have to be joined.
TEST_F(CompactionTest, AfterRemovesASequenceHasNoMorePagesThanItsTokensFill) {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    const SequenceId id = sequence_of(10 * kTokens + round, 1);
    while (cache_->length(id) > 0) {
      const int32_t length = cache_->length(id);
      const int32_t begin = narrow<int32_t>(random() % length);
      const int32_t end = begin + 1 + narrow<int32_t>(random() % std::min(40, length - begin));
      ASSERT_TRUE(cache_->remove(id, begin, end, [](std::span<const int32_t>) {}).is_ok());
      for (const int32_t group : {0, 1}) {
        ASSERT_EQ(std::ssize(table(id, group)), (cache_->length(id) + kTokens - 1) / kTokens);
      }
      ASSERT_EQ(cache_->used_page_count(), std::ssize(table(id, 0)));
    }
    cache_->free_sequence(id);
  }
}

TEST_F(CompactionTest, ARolledWindowsPagesMove) {
  cache_ = std::move(*Cache::create({.n_layers = 3,
                                     .layer_groups = {0, 1, 0},
                                     .layout = {DType::kF32, DType::kF32, 32, 2, kTokens},
                                     .capacity_tokens = 64 * kTokens,
                                     .windows = {{}, {20, 24 * kTokens}}}));
  const SequenceId low = sequence_of(10 * kTokens, 1);
  const SequenceId text = cache_->create_sequence();
  for (int i = 0; i < 30; ++i) append(text, kTokens, 2);  // its window's first pages go
  EXPECT_THAT(table(text, 1), ::testing::Contains(kNoPage));
  cache_->free_sequence(low);
  EXPECT_GT(cache_->give_back_memory(kAll).moved_pages, 0);
  expect_no_violations();
  const int32_t length = cache_->length(text);
  for (int32_t slot = length - 20; slot < length; ++slot) {
    for_vectors(text, slot,
                [&](int32_t word, int32_t which) { ASSERT_EQ(word, value(2, slot, which)); });
  }
}

// Memory pages of 4 KB are a quarter of a layer's page here.
TEST_F(CompactionTest, WhatIsGivenBackIsNotResident) {
  const int64_t none = cache_->resident_bytes();
  const SequenceId low = sequence_of(40 * kTokens, 1);
  const SequenceId high = sequence_of(4 * kTokens, 2);
  EXPECT_GE(cache_->resident_bytes() - none, 44 * cache_->page_bytes());
  cache_->free_sequence(low);
  EXPECT_GE(cache_->resident_bytes() - none, 44 * cache_->page_bytes());
  cache_->give_back_memory();
  EXPECT_EQ(cache_->resident_bytes() - none, 4 * cache_->page_bytes());
  expect_holds(high, 2);
}

}  // namespace
}  // namespace weft::kv
