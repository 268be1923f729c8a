// The states one by one, and locks over sequences of a real cache.
#include "sparse/selection_locks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kv/cache.h"

namespace weft::sparse {
namespace {

using ::testing::ElementsAre;
using enum LockState;
using Action = SelectionLocks::Action;

constexpr int32_t kPageTokens = 16;

TEST(LockStates, EachTransition) {
  using enum LockEvent;
  EXPECT_EQ(next_state(kUnlocked, kChosen), kLocked);
  EXPECT_EQ(next_state(kUnlocked, kStep), std::nullopt);
  EXPECT_EQ(next_state(kUnlocked, kDue), std::nullopt);
  EXPECT_EQ(next_state(kUnlocked, kEnd), std::nullopt);
  EXPECT_EQ(next_state(kLocked, kChosen), std::nullopt);
  EXPECT_EQ(next_state(kLocked, kStep), kLocked);
  EXPECT_EQ(next_state(kLocked, kDue), kCheckpoint);
  EXPECT_EQ(next_state(kLocked, kEnd), kUnlocked);
  EXPECT_EQ(next_state(kCheckpoint, kChosen), std::nullopt);
  EXPECT_EQ(next_state(kCheckpoint, kStep), kLocked);
  EXPECT_EQ(next_state(kCheckpoint, kDue), kCheckpoint);
  EXPECT_EQ(next_state(kCheckpoint, kEnd), kUnlocked);
}

/// Layers 1 and 2 of three select.
class Locks : public ::testing::Test {
 protected:
  void SetUp() override { restart({.interval_tokens = 4, .duration_tokens = 10}); }
  void restart(const LockOptions& options) {
    auto cache = kv::Cache::create({.n_layers = 3,
                                    .layer_groups = {},
                                    .layout = {.k_type = DType::kF32,
                                               .v_type = DType::kF32,
                                               .head_dim = 16,
                                               .n_kv_heads = 2,
                                               .page_tokens = kPageTokens},
                                    .capacity_tokens = 64 * kPageTokens,
                                    .windows = {}});
    ASSERT_TRUE(cache.is_ok());
    cache_ = std::move(*cache);
    locks_.emplace(options, 3);
  }
  kv::SequenceId add(int32_t n_tokens) {
    const kv::SequenceId id = cache_->create_sequence();
    grow(id, n_tokens);
    return id;
  }
  void grow(kv::SequenceId id, int32_t n_tokens) {
    auto reservation = cache_->reserve(id, n_tokens);
    ASSERT_TRUE(reservation.is_ok());
    reservation->commit();
  }
  /// A token's row through all layers: what layer 1 does. Layer 2 must do the same.
  Action step(kv::SequenceId id, int32_t first_page = 3) {
    auto reservation = cache_->reserve(id, 1);
    EXPECT_TRUE(reservation.is_ok());
    const int32_t slot = reservation->begin();
    Action action{};
    for (const int32_t layer : {1, 2}) {
      const Action one = locks_->action(*cache_, id, slot, layer);
      if (layer == 2) {
        EXPECT_EQ(one, action);
      }
      action = one;
      const Selection chosen = {{first_page, first_page + 1}, {first_page, 9}};
      if (one == Action::kChoose) locks_->lock(id, slot, layer, chosen);
      if (one == Action::kCompare) locks_->checkpoint(id, slot, layer, chosen);
    }
    reservation->commit();
    return action;
  }
  /// "crrr": of so many steps whether each chose, read or compared.
  std::string steps(kv::SequenceId id, int32_t n) {
    std::string did;
    for (int32_t i = 0; i < n; ++i) {
      const Action action = step(id);
      did += action == Action::kChoose ? 'c' : action == Action::kRead ? 'r' : '=';
    }
    return did;
  }

  /// What layer 1 keeps after the newest step.
  const Selection& kept(kv::SequenceId id) {
    return locks_->get_selection(id, cache_->length(id), 1);
  }
  /// As steps(), rows in one step of which the first n_accepted are kept.
  std::string verify(kv::SequenceId id, int32_t n_rows, int32_t n_accepted) {
    auto reservation = cache_->reserve(id, n_rows);
    EXPECT_TRUE(reservation.is_ok());
    std::string did;
    for (const int32_t layer : {1, 2}) {
      did.clear();
      for (int32_t slot = reservation->begin(); slot < reservation->begin() + n_rows; ++slot) {
        const Action action = locks_->action(*cache_, id, slot, layer);
        did += action == Action::kChoose ? 'c' : action == Action::kRead ? 'r' : '=';
        if (action == Action::kChoose) locks_->lock(id, slot, layer, {{slot}, {slot}});
        if (action == Action::kCompare) locks_->checkpoint(id, slot, layer, {{slot}, {slot}});
      }
    }
    reservation->rollback();
    if (n_accepted > 0) grow(id, n_accepted);
    return did;
  }

  std::unique_ptr<kv::Cache> cache_;
  std::optional<SelectionLocks> locks_;
};

TEST_F(Locks, AreComparedEachIntervalAndMadeAnewAfterTheirDuration) {
  const kv::SequenceId id = add(200);
  EXPECT_EQ(locks_->state(id, 1), kUnlocked);
  EXPECT_EQ(steps(id, 1), "c");
  EXPECT_EQ(locks_->state(id, 1), kLocked);
  EXPECT_EQ(locks_->state(id, 0), kUnlocked);
  EXPECT_EQ(steps(id, 4), "rrr=");
  EXPECT_EQ(locks_->state(id, 2), kCheckpoint);
  EXPECT_EQ(steps(id, 18), "rrr=rcrrr=rrr=rcrr");
  const LockCounters& c = locks_->counters();
  EXPECT_EQ(c.locks, 3);
  EXPECT_EQ(c.unlocks, 2);
  EXPECT_EQ(c.checkpoints, 4);
  EXPECT_EQ(c.kept, 4 * 2 * 2);  // of two layers and two KV heads
  EXPECT_EQ(c.updated, 0);
  EXPECT_EQ(c.locked_reads, 2 * (23 - 3 - 4));
}

TEST_F(Locks, AnIntervalOfOneComparesAtEachStep) {
  restart({.interval_tokens = 1, .duration_tokens = 5});
  EXPECT_EQ(steps(add(100), 8), "c====c==");
}

TEST_F(Locks, AShortDurationNeverCompares) {
  restart({.interval_tokens = 8, .duration_tokens = 3});
  EXPECT_EQ(steps(add(100), 8), "crrcrrcr");
}

TEST_F(Locks, ASelectionIsReplacedByOneWithMoreDifferencesThanTheThreshold) {
  restart({.interval_tokens = 1, .duration_tokens = 100, .update_threshold = 2});
  const kv::SequenceId id = add(200);
  step(id, 3);  // {3, 4} and {3, 9}
  step(id, 4);  // {4, 5} and {4, 9}: two differences each
  EXPECT_THAT(kept(id), ElementsAre(ElementsAre(3, 4), ElementsAre(3, 9)));
  step(id, 6);  // {6, 7}: four; {6, 9}: two
  EXPECT_THAT(kept(id), ElementsAre(ElementsAre(6, 7), ElementsAre(3, 9)));
  EXPECT_EQ(locks_->counters().kept, 2 * 2 + 2);
  EXPECT_EQ(locks_->counters().updated, 2);
  // With retain a head may choose more or fewer.
  EXPECT_EQ(locks_->action(*cache_, id, 203, 1), Action::kCompare);
  locks_->checkpoint(id, 203, 1, {{6, 7, 8}, {1, 2, 3, 9, 10}});
  EXPECT_THAT(kept(id), ElementsAre(ElementsAre(6, 7), ElementsAre(1, 2, 3, 9, 10)));
}

TEST_F(Locks, ARowThatIsRunAgainDoesTheSame) {
  const kv::SequenceId id = add(100);
  steps(id, 4);
  for (int i = 0; i < 3; ++i) {
    auto reservation = cache_->reserve(id, 1);
    ASSERT_TRUE(reservation.is_ok());
    EXPECT_EQ(locks_->action(*cache_, id, 104, 1), Action::kCompare);
    if (i < 2) reservation->rollback();  // before layer 2
  }
  EXPECT_EQ(locks_->action(*cache_, id, 104, 2), Action::kCompare);
}

TEST_F(Locks, RowsOfOneStepDoWhatEachWouldDoInItsOwn) {
  restart({.interval_tokens = 4, .duration_tokens = 10, .update_threshold = 0});
  const kv::SequenceId one_by_one = add(100), id = add(100);
  std::string expected;
  for (int i = 0; i < 30; ++i) expected += verify(one_by_one, 1, 1);
  EXPECT_EQ(expected, "crrr=rrr=rcrrr=rrr=rcrrr=rrr=r");
  EXPECT_EQ(verify(id, 30, 30), expected);
  EXPECT_EQ(kept(id), kept(one_by_one));
}

TEST_F(Locks, RowsThatAreNotAcceptedLeaveNothing) {
  restart({.interval_tokens = 4, .duration_tokens = 10, .update_threshold = 0});
  const kv::SequenceId id = add(100);
  EXPECT_EQ(verify(id, 3, 3), "crr");
  EXPECT_EQ(verify(id, 12, 1), "r=rrr=rcrrr=");  // at slots 103 to 114
  EXPECT_EQ(kept(id), (Selection{{104}, {104}}));
  EXPECT_EQ(verify(id, 3, 0), "=rr");
  EXPECT_EQ(verify(id, 1, 1), "=");
  EXPECT_EQ(kept(id), (Selection{{104}, {104}}));
  // Nobody has accepted the row that chose.
  const kv::SequenceId other = add(100);
  EXPECT_EQ(verify(other, 3, 0), "crr");
  EXPECT_EQ(verify(other, 2, 2), "cr");
}

// A draft is rejected, and the next question's rows take its slots.
TEST_F(Locks, WhatRowsThatAPromptOverwroteChoseIsVoid) {
  const kv::SequenceId id = add(100);
  EXPECT_EQ(verify(id, 1, 1), "c");
  EXPECT_EQ(verify(id, 6, 2), "rrr=rr");  // compared at 104, and rejected from 103 on
  for (const int32_t layer : {1, 2}) locks_->written(id, 103, layer);
  grow(id, 3);
  EXPECT_EQ(verify(id, 1, 1), "=");
  // Of what it never locked, and of others, it knows nothing.
  locks_->written(id, 0, 0);
  locks_->written(add(10), 0, 1);
  EXPECT_EQ(verify(id, 1, 1), "r");
}

// The rows that a dense pass runs again are those since the last one; of it the newest makes or
// compares.
TEST_F(Locks, SayWhenADensePassIsDueAndFromWhere) {
  restart({.interval_tokens = 4, .duration_tokens = 10, .checkpoint = Checkpoint::kDense});
  const kv::SequenceId id = add(100);
  EXPECT_EQ(locks_->checkpoint_from(*cache_, id, 100), std::nullopt);
  EXPECT_EQ(locks_->last_before_checkpoint(*cache_, id, 100), 103);  // if 100 chooses
  EXPECT_EQ(steps(id, 3), "crr");
  EXPECT_EQ(locks_->checkpoint_from(*cache_, id, 103), std::nullopt);
  EXPECT_EQ(locks_->last_before_checkpoint(*cache_, id, 103), 103);
  EXPECT_EQ(steps(id, 1), "r");
  EXPECT_EQ(locks_->checkpoint_from(*cache_, id, 104), 100);  // which chose by its policy

  const auto pass = [&](int32_t from, int32_t slot, const Selection& seen) {
    EXPECT_TRUE(cache_->make_writable(id, from, slot).is_ok());
    locks_->begin_dense_pass(*cache_, id);
    for (const int32_t layer : {1, 2}) {
      const Action action = locks_->action_of_dense(*cache_, id, slot, layer);
      if (action == Action::kChoose) locks_->lock(id, slot, layer, seen);
      if (action == Action::kCompare) locks_->checkpoint(id, slot, layer, seen);
      EXPECT_NE(action, Action::kRead);
    }
    grow(id, 1);
  };
  pass(100, 104, {{1, 2, 3}, {3, 9}});
  EXPECT_EQ(locks_->counters().kept, 2);  // {3, 9}, of two layers
  EXPECT_EQ(locks_->counters().updated, 2);
  EXPECT_THAT(kept(id), ElementsAre(ElementsAre(1, 2, 3), ElementsAre(3, 9)));
  EXPECT_EQ(steps(id, 3), "rrr");
  EXPECT_EQ(locks_->checkpoint_from(*cache_, id, 108), 105);  // 104 saw all pages
  pass(105, 108, {{1, 2, 3}, {3, 9}});
  EXPECT_EQ(steps(id, 3), "rrr");
  EXPECT_EQ(locks_->counters().locks, 1);
  EXPECT_EQ(locks_->pending_from(*cache_, id, 111), 109);
  // The duration ends with a pass, not between two: its tokens would be no longer pending.
  pass(109, 112, {{7}, {8}});  // twelve tokens after the lock was made
  EXPECT_EQ(locks_->counters().locks, 2);
  EXPECT_THAT(kept(id), ElementsAre(ElementsAre(7), ElementsAre(8)));
  // What others change ends it as ever.
  ASSERT_TRUE(cache_->make_writable(id, 40, 41).is_ok());
  EXPECT_EQ(locks_->checkpoint_from(*cache_, id, 116), std::nullopt);
  EXPECT_EQ(steps(id, 1), "c");
}

TEST_F(Locks, AreEndedByWhoAsksForIt) {
  const kv::SequenceId id = add(100), other = add(100);
  EXPECT_EQ(steps(id, 2), "cr");
  EXPECT_EQ(steps(other, 2), "cr");
  locks_->unlock(id);
  EXPECT_EQ(locks_->state(id, 1), kUnlocked);
  EXPECT_EQ(locks_->counters().unlocks, 1);
  locks_->unlock(id);
  locks_->unlock(add(10));
  EXPECT_EQ(locks_->counters().unlocks, 1);
  EXPECT_EQ(steps(other, 1), "r");
  EXPECT_EQ(steps(id, 2), "cr");
}

TEST_F(Locks, CountWhatDraftsAndTargetsReadOtherwise) {
  EXPECT_EQ(verify_consistency({{1, 2}, {3}}, {{1, 2}, {3}}), 0);
  EXPECT_EQ(verify_consistency({{1, 2}, {3}}, {{1, 4}, {3}}), 1);
  EXPECT_EQ(verify_consistency({{1, 2}, {3}}, {{1}, {}}), 2);
  const kv::SequenceId id = add(100);
  const Selection selection = {{1, 2}, {3}};
  locks_->verified(id, 100, 1, selection);  // of no draft
  locks_->begin_speculation(id, 2);
  for (const int32_t slot : {100, 101}) locks_->drafted(id, slot, 1, selection);
  locks_->verified(id, 100, 1, selection);
  locks_->verified(id, 101, 1, {{1, 3}, {3}});
  locks_->verified(id, 102, 1, selection);  // after the draft
  locks_->verified(id, 100, 2, {{9}, {9}});
  EXPECT_EQ(locks_->counters().compared_drafts, 4);
  EXPECT_EQ(locks_->counters().inconsistencies, 1);
  locks_->end_speculation(id, true);
  locks_->verified(id, 100, 1, {{9}, {9}});
  EXPECT_EQ(locks_->counters().compared_drafts, 4);
}

TEST_F(Locks, StayAfterADraftThatWasRightAndEndAfterAnother) {
  const kv::SequenceId id = add(100);
  EXPECT_EQ(steps(id, 2), "cr");
  locks_->begin_speculation(id, 3);
  locks_->end_speculation(id, true);
  EXPECT_EQ(steps(id, 1), "r");
  locks_->begin_speculation(id, 3);
  locks_->end_speculation(id, false);
  EXPECT_EQ(steps(id, 2), "cr");
}

TEST_F(Locks, EndWhereThePagesAreNotWhatTheyWere) {
  const auto no_turn = [](std::span<const int32_t>) {};
  const auto locked = [&] {
    const kv::SequenceId id = add(200);
    EXPECT_EQ(steps(id, 2), "cr");
    return id;
  };
  kv::SequenceId id = locked();
  ASSERT_TRUE(cache_->truncate(id, 150).is_ok());
  EXPECT_EQ(steps(id, 2), "cr");
  id = locked();
  ASSERT_TRUE(cache_->shift(id, 100, 202, 5, no_turn).is_ok());
  EXPECT_EQ(steps(id, 2), "cr");
  id = locked();
  ASSERT_TRUE(cache_->remove(id, 10, 30, no_turn).is_ok());
  EXPECT_EQ(steps(id, 2), "cr");
  id = locked();
  ASSERT_TRUE(cache_->make_writable(id, 40, 41).is_ok());  // as fusion does
  EXPECT_EQ(steps(id, 2), "cr");
  EXPECT_EQ(locks_->counters().unlocks, 4);
  EXPECT_EQ(steps(id, 2), "rr");  // nothing happened
}

TEST_F(Locks, ACopyBeginsWithoutOneAndEndsThatOfWhoWritesACopiedPage) {
  const kv::SequenceId id = add(200);
  EXPECT_EQ(steps(id, 2), "cr");
  const auto copy = cache_->fork(id);
  ASSERT_TRUE(copy.is_ok());
  EXPECT_EQ(locks_->state(*copy, 1), kUnlocked);
  EXPECT_EQ(steps(id, 1), "r");  // its last page is copied, which no lock holds
  EXPECT_EQ(steps(*copy, 2), "cr");
  ASSERT_TRUE(cache_->make_writable(id, 0, 1).is_ok());
  EXPECT_EQ(steps(id, 1), "c");
  EXPECT_EQ(steps(*copy, 1), "r");
}

// Else an answer would depend on the requests beside it, whose pages leave gaps when they end.
TEST_F(Locks, OutliveMovesOfTheirPages) {
  const kv::SequenceId low = add(20 * kPageTokens), id = add(200);
  EXPECT_EQ(steps(id, 2), "cr");
  cache_->free_sequence(low);
  ASSERT_GT(cache_->give_back_memory({.slack_pages = 0, .slack_divisor = 1 << 20}).moved_pages, 0);
  EXPECT_EQ(steps(id, 3), "rr=");
}

// What it writes may have been shared, and is a copy then.
TEST_F(Locks, KeepNoListsOverADensePass) {
  const kv::SequenceId id = add(200);
  EXPECT_EQ(steps(id, 1), "c");
  RowLists& lists = locks_->lists(id, cache_->length(id), 1);
  lists.moves = cache_->moves();
  EXPECT_TRUE(lists.fit({}, cache_->moves()));
  locks_->begin_dense_pass(*cache_, id);
  EXPECT_FALSE(lists.fit({}, cache_->moves()));
}

TEST_F(Locks, HoldUnderRandomLives) {
  std::mt19937 random(5);
  std::vector<kv::SequenceId> ids;
  const auto no_turn = [](std::span<const int32_t>) {};
  for (int i = 0; i < 3000; ++i) {
    if (ids.empty() || (ids.size() < 4 && random() % 40 == 0))
      ids.push_back(add(60 + random() % 60));
    const size_t which = random() % ids.size();
    const kv::SequenceId id = ids[which];
    const int64_t locks = locks_->counters().locks;
    switch (random() % 12) {
      case 0:
        ASSERT_TRUE(cache_->truncate(id, std::min(40, cache_->length(id) - 1)).is_ok());
        EXPECT_EQ(steps(id, 1), "c");
        break;
      case 1:
        ASSERT_TRUE(cache_->shift(id, 10, cache_->length(id), 1, no_turn).is_ok());
        EXPECT_EQ(steps(id, 1), "c");
        break;
      case 2:
        if (cache_->length(id) < 200) break;
        cache_->free_sequence(id);
        ids.erase(ids.begin() + static_cast<int64_t>(which));
        break;
      default:
        steps(id, 3);
    }
    EXPECT_LE(locks_->counters().locks - locks, 2);
    EXPECT_LE(locks_->counters().unlocks, locks_->counters().locks);
  }
  EXPECT_GT(locks_->counters().checkpoints, 100);
}

}  // namespace
}  // namespace weft::sparse
