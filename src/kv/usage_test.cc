#include "kv/usage.h"

#include <gtest/gtest.h>

#include <vector>

#include "kv/block_tables.h"

namespace weft::kv {
namespace {

class NoContents : public PageContents {
  void copy_page(int32_t, int32_t) override {}
  void page_freed(int32_t) override {}
  void give_back(int32_t, int32_t) override {}
};

/// Pages of 4 slots.
class UsageTest : public ::testing::Test {
 protected:
  SequenceId sequence(int32_t n_tokens) {
    const SequenceId id = tables_.create_sequence(SequenceId{next_++});
    tables_.reserve(id, n_tokens).value().commit();
    return id;
  }
  PageUse use() const { return page_use(tables_.snapshot()); }
  static void expect(const PageUse& use, int32_t held, int32_t shared, int32_t cached,
                     int64_t wasted) {
    EXPECT_EQ(use.held, held);
    EXPECT_EQ(use.shared, shared);
    EXPECT_EQ(use.cached, cached);
    EXPECT_EQ(use.free, use.pages - held - cached);
    EXPECT_EQ(use.wasted_slots(), wasted);
  }

  NoContents contents_;
  BlockTables tables_{4, 20, contents_};
  int64_t next_ = 0;
};

TEST(PageUse, OfASnapshotByHand) {
  // Pages 0 and 1 are of both sequences, 2 of the first, 3 of the second; 4 is the index's alone.
  Snapshot snapshot{.page_tokens = 4, .pages = std::vector<Snapshot::Page>(7)};
  for (const int32_t page : {0, 1, 2, 3, 4}) snapshot.pages[page].ref_count = 1;
  snapshot.sequences.push_back({SequenceId{0}, {.pages = {0, 1, 2}, .length = 9}});
  snapshot.sequences.push_back({SequenceId{1}, {.pages = {0, 1, 3}, .length = 12}});
  const PageUse use = page_use(snapshot);
  EXPECT_EQ(use.pages, 7);
  EXPECT_EQ(use.free, 2);
  EXPECT_EQ(use.cached, 1);
  EXPECT_EQ(use.held, 4);
  EXPECT_EQ(use.used(), 5);
  EXPECT_EQ(use.shared, 2);
  EXPECT_EQ(use.tokens, 4 + 4 + 1 + 4);
  EXPECT_EQ(use.wasted_slots(), 3);
  EXPECT_DOUBLE_EQ(use.wasted_share(), 3.0 / 16);
}

TEST(PageUse, OfPagesThatLeftTheWindow) {
  Snapshot snapshot{.page_tokens = 4, .window_tokens = 5, .pages = std::vector<Snapshot::Page>(4)};
  snapshot.pages[2].ref_count = snapshot.pages[3].ref_count = 1;
  snapshot.sequences.push_back(
      {SequenceId{0}, {.pages = {kNoPage, kNoPage, 2, 3}, .first_page = 2, .length = 14}});
  const PageUse use = page_use(snapshot);
  EXPECT_EQ(use.held, 2);
  EXPECT_EQ(use.tokens, 6);
}

TEST_F(UsageTest, AnEmptyCacheWastesNothing) {
  expect(use(), 0, 0, 0, 0);
  EXPECT_EQ(use().wasted_share(), 0);
}

TEST_F(UsageTest, TheLastPageIsFilledAsTokensCome) {
  const SequenceId id = sequence(1);
  expect(use(), 1, 0, 0, 3);
  tables_.reserve(id, 3).value().commit();
  expect(use(), 1, 0, 0, 0);
  tables_.reserve(id, 1).value().commit();
  expect(use(), 2, 0, 0, 3);
  const TableReservation open = tables_.reserve(id, 6).value();  // held, and not written yet
  expect(use(), 3, 0, 0, 7);
}

TEST_F(UsageTest, AForkSharesUntilOneOfTheTwoWrites) {
  const SequenceId id = sequence(10);
  const SequenceId other = *tables_.fork(id, SequenceId{next_++});
  expect(use(), 3, 3, 0, 2);
  tables_.reserve(other, 1).value().commit();  // its last page is a copy now
  expect(use(), 4, 2, 0, 2 + 1);
  tables_.apply(other, tables_.truncated(other, 4).value());
  expect(use(), 3, 1, 0, 2);
  tables_.free_sequence(id);
  expect(use(), 1, 0, 0, 0);
}

TEST_F(UsageTest, WhatOnlyTheIndexHasIsCachedAndNotHeld) {
  const std::vector<int32_t> ids{1, 2, 3, 4, 5, 6, 7, 8, 9};
  const SequenceId id = sequence(9);
  tables_.publish(id, ids, {});
  expect(use(), 3, 0, 0, 3);  // the index and one sequence: nobody shares
  tables_.free_sequence(id);
  expect(use(), 0, 0, 2, 0);
  const SequenceId next = tables_.create_sequence(SequenceId{next_++});
  tables_.attach(next, tables_.find_prefix(next, ids, {}).value());
  expect(use(), 2, 0, 0, 0);
}

}  // namespace
}  // namespace weft::kv
