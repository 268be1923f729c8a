#include "kv/invariants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kv/block_tables.h"

namespace weft::kv {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class NoContents : public PageContents {
  void copy_page(int32_t, int32_t) override {}
  void page_freed(int32_t) override {}
  void give_back(int32_t, int32_t) override {}
};

/// A good snapshot, for each test to break: two sequences that share pages, one of them with an
/// open reservation that replaced a page, and a prefix index with two pages.
class InvariantsTest : public ::testing::Test {
 protected:
  InvariantsTest() {
    NoContents contents;
    BlockTables tables(4, 12, contents);
    const SequenceId a = tables.create_sequence(SequenceId{0});
    tables.reserve(a, 10).value().commit();
    tables.publish(a, std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {});
    const SequenceId b = *tables.fork(a, SequenceId{1});
    auto reservation = tables.reserve(b, 5);
    snapshot_ = tables.snapshot();
  }
  Sequence& first() { return snapshot_.sequences[0].sequence; }
  Sequence& second() { return snapshot_.sequences[1].sequence; }
  Snapshot::Page& page(int32_t id) { return snapshot_.pages[id]; }

  /// The snapshot's violations contain one with this text.
  void expect(const std::string& text) {
    EXPECT_THAT(violations(snapshot_), Contains(HasSubstr(text)));
  }

  Snapshot snapshot_;
};

TEST_F(InvariantsTest, AGoodSnapshotHasNone) {
  EXPECT_THAT(violations(snapshot_), IsEmpty());
  EXPECT_THAT(second().replaced, SizeIs(1));
  EXPECT_THAT(snapshot_.prefix_entries, SizeIs(2));
}

TEST_F(InvariantsTest, ReferenceCountUnlikeItsHolders) {
  page(first().pages[0]).ref_count += 1;
  expect("page 0 has reference count 4 and 3 holders");
  EXPECT_THAT(violations(snapshot_), SizeIs(1));
}

TEST_F(InvariantsTest, FreeAndHeld) {
  snapshot_.free_list.push_back(first().pages[1]);
  expect("page 1 is free and held");
}

TEST_F(InvariantsTest, FreeTwice) {
  snapshot_.free_list.push_back(snapshot_.free_list.back());
  expect("page 11 is 2 times in the free list");
}

TEST_F(InvariantsTest, LeakedPage) {
  snapshot_.free_list.pop_back();
  expect("is neither free nor held");
}

TEST_F(InvariantsTest, FreeListBeyondThePool) {
  snapshot_.free_list.push_back(12);
  snapshot_.free_list.push_back(-1);
  expect("the free list has page 12, which does not exist");
  expect("the free list has page -1, which does not exist");
}

TEST_F(InvariantsTest, EndsThatPagesInUseContradict) {
  const int32_t end = snapshot_.used_end;
  snapshot_.used_end = end + 1;
  expect("pages in use end at " + std::to_string(end) + ", not at " + std::to_string(end + 1));
  snapshot_.used_end = end;
  snapshot_.memory_end = end - 1;
  expect("gave their memory back, those in use end at");
  snapshot_.memory_end = 13;
  expect("pages from 13 on gave their memory back");
}

TEST_F(InvariantsTest, AFreeListInDisorder) {
  std::swap(snapshot_.free_list.front(), snapshot_.free_list.back());
  expect("the free list does not ascend");
}

TEST_F(InvariantsTest, KindsThatDoNotCoverTheSlots) {
  second().kinds = {{12, SlotKind::kPrompt}};
  expect("sequence 1 knows the kinds of 12 slots, not of 15");
  second().kinds = {{9, SlotKind::kPrompt}, {9, SlotKind::kDecode}, {15, SlotKind::kFused}};
  expect("sequence 1 has a run of slots to 9 after one to 9");
  second().kinds = {{9, SlotKind::kDecode}, {15, SlotKind::kDecode}};
  expect("sequence 1 has two runs of the same kind at slot 9");
}

TEST_F(InvariantsTest, TableTooLongOrTooShort) {
  first().length = 13;
  expect("sequence 0 has 3 pages for 13 tokens, not 4");
  first().length = 8;
  expect("sequence 0 has 3 pages for 8 tokens, not 2");
}

TEST_F(InvariantsTest, TableWithoutGenerations) {
  first().generations.pop_back();
  expect("sequence 0 has 2 generations for 3 pages");
}

TEST_F(InvariantsTest, TableNamesAPageThatDoesNotExist) {
  first().pages[0] = 99;
  expect("sequence 0 holds page 99, which does not exist");
}

TEST_F(InvariantsTest, TableNamesAPageTwice) {
  first().pages[1] = first().pages[0];
  expect("sequence 0 has page 0 twice");
  expect("sequence 0 has page 0 in slot 1, another holder in slot 0");
}

TEST_F(InvariantsTest, StaleGeneration) {
  page(first().pages[2]).generation += 1;
  expect("sequence 0 holds page 2 of generation 0, which is at 1");
  expect("sequence 1 (replaced) holds page 2 of generation 0, which is at 1");
}

TEST_F(InvariantsTest, NegativeLengths) {
  first().length = -1;
  second().reserved = -20;
  expect("sequence 0 has length -1");
  expect("sequence 1 has -20 tokens reserved");
}

TEST_F(InvariantsTest, LeftoversOfAReservation) {
  second().has_reservation = false;
  expect("sequence 1 has 5 tokens reserved without a reservation");
  expect("sequence 1 keeps 1 replaced pages without a reservation");
}

TEST_F(InvariantsTest, ReplacedSlotBeyondTheTable) {
  second().replaced[0].slot = 7;
  expect("sequence 1 replaced slot 7, which its table lacks");
}

TEST_F(InvariantsTest, ReservedPageIsShared) {
  first().pages[2] = second().pages[2];
  page(second().pages[2]).ref_count = 2;
  page(2).ref_count -= 1;
  expect("sequence 1 may write page 3, which has 2 holders");
  EXPECT_THAT(violations(snapshot_), SizeIs(1));
}

TEST_F(InvariantsTest, SequenceListedTwice) {
  snapshot_.sequences[1].id = snapshot_.sequences[0].id;
  expect("sequence 0 is listed twice");
}

TEST_F(InvariantsTest, PrefixEntryAfterNothing) {
  snapshot_.prefix_entries.erase(snapshot_.prefix_entries.begin());
  expect("prefix page 1 comes after page 0, which the index lacks");
}

TEST_F(InvariantsTest, PrefixEntryOutOfShape) {
  auto& entry = snapshot_.prefix_entries[1];
  entry.depth = 5;
  entry.tokens.pop_back();
  entry.page.generation = 3;
  expect("prefix page 1 has depth 5 after depth 0");
  expect("the prefix index has 3 tokens for page 1");
  expect("the prefix index holds page 1 of generation 3, which is at 0");
  expect("the prefix index has page 1 in slot 5, another holder in slot 1");
}

TEST_F(InvariantsTest, PrefixEntryAtTheRootIsAtDepthZero) {
  snapshot_.prefix_entries[1].parent = -1;
  expect("prefix page 1 starts at depth 1");
}

TEST_F(InvariantsTest, PrefixEntriesTwice) {
  snapshot_.prefix_entries.push_back(snapshot_.prefix_entries[1]);
  expect("the prefix index has page 1 twice");
  expect("the prefix index has pages 1 and 1 for the same tokens");
}

TEST_F(InvariantsTest, NonsenseEverywhereIsReportedAndNotFollowed) {
  snapshot_.page_tokens = 0;
  first().length = INT32_MIN;
  first().pages = {INT32_MAX, -5};
  second().replaced[0].slot = INT32_MIN;
  snapshot_.prefix_entries[0].parent = INT32_MAX;
  snapshot_.prefix_entries[0].depth = INT32_MAX;
  expect("page_tokens is 0");
  expect("sequence 0 holds page 2147483647, which does not exist");
}

}  // namespace
}  // namespace weft::kv
