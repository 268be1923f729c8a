// Random operations on BlockTables against a naive model: every sequence is a plain vector of what
// each of its tokens should read as, every page a plain vector of what was written to its slots.
#include "kv/block_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "base/narrow.h"
#include "kv/invariants.h"

namespace weft::kv {
namespace {

SequenceId next_id() {
  static int64_t next = 0;
  return SequenceId{next++};
}

constexpr uint64_t kFreed = 0xdeadbeefdeadbeef;

Status cut_to(BlockTables& tables, SequenceId id, int32_t n_tokens) {
  WEFT_ASSIGN_OR_RETURN(BlockTables::Change change, tables.truncated(id, n_tokens));
  tables.apply(id, std::move(change));
  return Status::ok();
}
Result<int32_t> attach_prefix(BlockTables& tables, SequenceId id, std::span<const int32_t> tokens) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<int32_t> pages, tables.find_prefix(id, tokens, {}));
  tables.attach(id, pages);
  return tables.length(id);
}

/// Pages whose slots hold one number each, in place of K and V.
class PayloadPages : public PageContents {
 public:
  PayloadPages(int32_t page_tokens, int32_t n_pages)
      : page_tokens_(page_tokens), slots_(page_tokens * n_pages, kFreed) {}

  void copy_page(int32_t from, int32_t to) override {
    std::copy_n(slots_.begin() + from * page_tokens_, page_tokens_,
                slots_.begin() + to * page_tokens_);
  }
  void page_freed(int32_t page) override {
    std::fill_n(slots_.begin() + page * page_tokens_, page_tokens_, kFreed);
  }
  void give_back(int32_t begin, int32_t end) override {
    std::fill(slots_.begin() + begin * page_tokens_, slots_.begin() + end * page_tokens_, 0);
  }
  uint64_t& at(std::span<const int32_t> table, int32_t position) {
    const int32_t page = table[position / page_tokens_];
    return slots_[page * page_tokens_ + position % page_tokens_];
  }

 private:
  int32_t page_tokens_;
  std::vector<uint64_t> slots_;
};

/// What a sequence should be: its ids, and what each position should read as. Exact values are a
/// function of the ids up to there, as a prompt's K and V are; decoding and fusion make others, and
/// so does everything after them.
struct NaiveSequence {
  std::vector<int32_t> tokens;
  std::vector<uint64_t> values;
  std::vector<SlotKind> kinds;
  int32_t kept = INT32_MAX;  // positions from here on were overwritten
};

uint64_t next_value(uint64_t before, int32_t token) {
  return (before ^ narrow<uint64_t>(token + 1)) * 0x9e3779b97f4a7c15u + 0x1234567;
}

class Simulation {
 public:
  Simulation(uint32_t seed, int32_t page_tokens, int32_t n_pages)
      : random_(seed), contents_(page_tokens, n_pages), tables_(page_tokens, n_pages, contents_) {}

  void run(int n_steps) {
    for (int step = 0; step < n_steps && !::testing::Test::HasFailure(); ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      do_one();
      check();
    }
    while (!naive_.empty()) free_one();
    tables_.evict_unused();
    EXPECT_EQ(tables_.pool().free_count(), tables_.pool().page_count());
  }

  int refused = 0;    // reservations and copies for which there was no room
  int evictions = 0;  // steps in which the prefix index lost pages
  int attached = 0;   // tokens found in the prefix index
  int copied = 0;     // pages replaced by a copy

 private:
  int pick(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  auto any_sequence() { return std::next(naive_.begin(), pick(narrow<int>(naive_.size()))); }

  void do_one() {
    if (naive_.empty()) return create();
    switch (pick(16)) {
      case 0:
        return create();
      case 1:
        return fork();
      case 2:
        return naive_.size() > 6 ? free_one() : create();
      case 3:
      case 4:
        return truncate();
      case 5:
      case 6:
        return publish();
      case 7:
      case 8:
        return attach();
      case 9:
      case 10:
        return overwrite();
      case 11:
        return pick(20) == 0 ? static_cast<void>(tables_.evict_unused()) : free_one();
      default:
        return append();
    }
  }

  void create() { naive_[tables_.create_sequence(next_id())] = {}; }

  void fork() {
    const auto original = any_sequence();
    const NaiveSequence copy = original->second;
    naive_[*tables_.fork(original->first, next_id())] = copy;
  }

  void free_one() {
    const auto victim = any_sequence();
    std::optional<TableReservation> open;
    if (pick(3) == 0) {  // freeing ends a reservation, whose handle must then do nothing
      auto reservation = tables_.reserve(victim->first, pick(8));
      if (reservation.is_ok()) open = std::move(*reservation);
    }
    tables_.free_sequence(victim->first);
    naive_.erase(victim);
  }

  void truncate() {
    const auto it = any_sequence();
    const auto n = pick(narrow<int>(it->second.tokens.size()) + 1);
    ASSERT_TRUE(cut_to(tables_, it->first, n).is_ok());
    it->second.tokens.resize(n);
    it->second.values.resize(n);
    it->second.kinds.resize(n);
  }

  void publish() {
    const auto it = any_sequence();
    const size_t kept = std::min<size_t>(it->second.tokens.size(), it->second.kept);
    tables_.publish(it->first, std::span(it->second.tokens).first(kept), {});
  }

  /// Starts a sequence from a prompt that begins like another sequence's.
  void attach() {
    std::vector<int32_t> prompt = any_sequence()->second.tokens;
    if (!prompt.empty() && pick(2) == 0) prompt[pick(narrow<int>(prompt.size()))] ^= 1;
    EXPECT_EQ(tables_.match_prefix(prompt, {}), naive_match(prompt));
    const SequenceId id = tables_.create_sequence(next_id());
    const auto length = attach_prefix(tables_, id, prompt);
    ASSERT_TRUE(length.is_ok());
    EXPECT_EQ(*length, naive_match(prompt));
    attached += *length;
    NaiveSequence& sequence = naive_[id];
    for (int32_t i = 0; i < *length; ++i) add(sequence, prompt[i], SlotKind::kPrompt);
  }

  void add(NaiveSequence& sequence, int32_t token, SlotKind kind) {
    const uint64_t before = sequence.values.empty() ? 0 : sequence.values.back();
    sequence.tokens.push_back(token);
    sequence.values.push_back(kind == SlotKind::kPrompt ? next_value(before, token) : random_());
    sequence.kinds.push_back(kind);
  }

  /// A step: reserve, write, then commit or not.
  void append() {
    const auto it = any_sequence();
    const SequenceId id = it->first;
    const int32_t length = tables_.length(id);
    const int32_t n = pick(8) == 0 ? pick(60) : pick(9);
    const Snapshot before = tables_.snapshot();
    const int32_t first_slot = length / tables_.page_tokens();
    const int32_t last_slot = (length + n - 1) / tables_.page_tokens();
    const bool fits = has_room(before, id, first_slot, n == 0 ? first_slot - 1 : last_slot);
    const auto any_kind = [&] { return pick(8) == 0 ? SlotKind(pick(3)) : SlotKind::kPrompt; };
    std::vector<SlotKind> kinds(n, any_kind());
    auto reservation = tables_.reserve(id, n, kinds.empty() ? any_kind() : kinds.front());
    ASSERT_EQ(reservation.is_ok(), fits) << reservation.status().message();
    if (!fits) {
      ++refused;
      EXPECT_EQ(reservation.status().code(), StatusCode::kResourceExhausted);
      return expect_same(before, tables_.snapshot());
    }
    if (tables_.snapshot().prefix_entries.size() < before.prefix_entries.size()) {
      EXPECT_EQ(tables_.pool().free_count(), 0);  // no more was dropped than it took
    }
    for (int32_t from = pick(n + 1); pick(3) == 0; from += pick(n - from + 1)) {
      const SlotKind kind = any_kind();
      std::fill(kinds.begin() + from, kinds.end(), kind);
      reservation->grow_kinds();
      reservation->mark_from(length + from, kind);
    }
    check();
    NaiveSequence longer = it->second;
    for (int32_t i = 0; i < n; ++i) {
      add(longer, pick(2), kinds[i]);
      contents_.at(tables_.block_table(id), length + i) = longer.values.back();
    }
    EXPECT_EQ(tables_.reserve(id, 1).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(tables_.fork(id, next_id()).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(cut_to(tables_, id, 0).code(), StatusCode::kInvalidArgument);
    if (pick(4) != 0) {
      TableReservation moved = std::move(*reservation);
      const int32_t n_kept = pick(3) == 0 ? pick(n + 1) : n;  // of drafts the first are right
      moved.commit(n_kept);
      longer.tokens.resize(length + n_kept);
      longer.values.resize(length + n_kept);
      longer.kinds.resize(length + n_kept);
      it->second = longer;
    } else {
      { const TableReservation dropped = std::move(*reservation); }
      expect_same(before, tables_.snapshot());
    }
  }

  /// As fusion does: other values at committed positions.
  void overwrite() {
    const auto it = any_sequence();
    const int32_t length = tables_.length(it->first);
    const int32_t begin = pick(length + 1);
    const int32_t end = begin + pick(length - begin + 1);
    const Snapshot before = tables_.snapshot();
    const bool fits = begin == end || has_room(before, it->first, begin / tables_.page_tokens(),
                                               (end - 1) / tables_.page_tokens());
    const Status status = tables_.make_writable(it->first, begin, end);
    ASSERT_EQ(status.is_ok(), fits) << status.message();
    if (!fits) {
      ++refused;
      return expect_same(before, tables_.snapshot());
    }
    for (int32_t position = begin; position < end; ++position) {
      const uint64_t value = random_();
      contents_.at(tables_.block_table(it->first), position) = value;
      it->second.values[position] = value;
      it->second.kept = std::min(it->second.kept, position);
    }
  }

  /// Every page that no sequence holds can be had; a slot to be written needs one when it has no
  /// page yet or when another sequence has the same one.
  static bool has_room(const Snapshot& s, SequenceId id, int32_t first_slot, int32_t last_slot) {
    std::map<int32_t, int> holders;
    const Sequence* own = nullptr;
    for (const auto& named : s.sequences) {
      for (const int32_t page : named.sequence.pages) ++holders[page];
      if (named.id == id) own = &named.sequence;
    }
    int64_t needed = 0;
    for (int32_t slot = first_slot; slot <= last_slot; ++slot) {
      const size_t at = slot;
      if (at >= own->pages.size() || holders[own->pages[at]] > 1) ++needed;
    }
    return needed <= std::ssize(s.pages) - std::ssize(holders);
  }

  /// The longest start of the prompt that the index's entries spell.
  int32_t naive_match(const std::vector<int32_t>& prompt) const {
    std::map<int32_t, PrefixIndex::Entry> entries;
    for (const auto& entry : tables_.snapshot().prefix_entries) entries[entry.page.page] = entry;
    size_t longest = 0;
    for (const auto& [page, entry] : entries) {
      std::vector<int32_t> path;
      for (int32_t at = page; at >= 0; at = entries.at(at).parent) {
        const auto& tokens = entries.at(at).tokens;
        path.insert(path.begin(), tokens.begin(), tokens.end());
      }
      if (path.size() <= prompt.size() && std::equal(path.begin(), path.end(), prompt.begin())) {
        longest = std::max(longest, path.size());
      }
    }
    return narrow<int32_t>(longest);
  }

  /// Sequences, tables and references are equal, but for pages that the prefix index gave up.
  static void expect_same(const Snapshot& before, const Snapshot& after) {
    ASSERT_EQ(before.sequences.size(), after.sequences.size());
    for (size_t i = 0; i < before.sequences.size(); ++i) {
      EXPECT_EQ(before.sequences[i].id, after.sequences[i].id);
      EXPECT_EQ(before.sequences[i].sequence.pages, after.sequences[i].sequence.pages);
      EXPECT_EQ(before.sequences[i].sequence.generations, after.sequences[i].sequence.generations);
      EXPECT_EQ(before.sequences[i].sequence.length, after.sequences[i].sequence.length);
      EXPECT_EQ(before.sequences[i].sequence.kinds, after.sequences[i].sequence.kinds);
      EXPECT_FALSE(after.sequences[i].sequence.has_reservation);
    }
    if (before.prefix_entries.size() != after.prefix_entries.size()) return;
    EXPECT_EQ(before.free_list, after.free_list);
    for (size_t page = 0; page < before.pages.size(); ++page) {
      EXPECT_EQ(before.pages[page].ref_count, after.pages[page].ref_count) << "page " << page;
    }
  }

  void check() {
    const Snapshot snapshot = tables_.snapshot();
    ASSERT_THAT(violations(snapshot), ::testing::IsEmpty());
    for (const auto& [id, sequence] : naive_) {
      const auto table = tables_.block_table(id);
      ASSERT_EQ(tables_.length(id), std::ssize(sequence.tokens));
      const std::span<const SlotRun> runs = tables_.slot_kinds(id);
      for (int32_t i = 0; i < tables_.length(id); ++i) {
        const auto run = std::ranges::upper_bound(runs, i, {}, &SlotRun::end);
        ASSERT_EQ(run->kind, sequence.kinds[i]) << "slot " << i;
        ASSERT_EQ(contents_.at(table, i), sequence.values[i])
            << "sequence " << to_underlying(id) << " position " << i;
      }
    }
    for (size_t page = 0; page < snapshot.pages.size(); ++page) {
      if (last_.pages.empty()) break;
      ASSERT_GE(snapshot.pages[page].generation, last_.pages[page].generation);
      const bool was_freed = last_.pages[page].ref_count > 0 && snapshot.pages[page].ref_count == 0;
      if (was_freed) {
        ASSERT_GT(snapshot.pages[page].generation, last_.pages[page].generation);
      }
    }
    if (snapshot.prefix_entries.size() < last_.prefix_entries.size()) ++evictions;
    count_copies(snapshot);
    last_ = snapshot;
  }

  void count_copies(const Snapshot& snapshot) {
    std::map<SequenceId, const Sequence*> earlier;
    for (const auto& named : last_.sequences) earlier[named.id] = &named.sequence;
    for (const auto& named : snapshot.sequences) {
      const auto it = earlier.find(named.id);
      if (it == earlier.end()) continue;
      const size_t n = std::min(named.sequence.pages.size(), it->second->pages.size());
      for (size_t i = 0; i < n; ++i) copied += named.sequence.pages[i] != it->second->pages[i];
    }
  }

  std::mt19937 random_;
  PayloadPages contents_;
  BlockTables tables_;
  std::map<SequenceId, NaiveSequence> naive_;
  Snapshot last_;
};

TEST(BlockTablesProperty, AgreesWithTheNaiveModelUnderPressure) {
  int refused = 0, evictions = 0, attached = 0, copied = 0;
  for (uint32_t seed = 1; seed <= 30 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed, seed % 2 == 0 ? 4 : 2, 12 + narrow<int32_t>(seed % 5) * 6);
    simulation.run(1500);
    refused += simulation.refused;
    evictions += simulation.evictions;
    attached += simulation.attached;
    copied += simulation.copied;
  }
  // The walk went where it should: each of these paths was taken many times.
  EXPECT_GT(refused, 200);
  EXPECT_GT(evictions, 200);
  EXPECT_GT(attached, 1000);
  EXPECT_GT(copied, 200);
}

TEST(BlockTablesProperty, AgreesWithTheNaiveModelWithRoomToSpare) {
  for (uint32_t seed = 100; seed < 104 && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Simulation simulation(seed, 4, 600);
    simulation.run(1500);
    EXPECT_EQ(simulation.refused, 0);
  }
}

class BlockTablesTest : public ::testing::Test {
 protected:
  SequenceId sequence_of(int32_t n_tokens) {
    const SequenceId id = tables_.create_sequence(next_id());
    tables_.reserve(id, n_tokens).value().commit();
    return id;
  }
  PayloadPages contents_{4, 8};
  BlockTables tables_{4, 8, contents_};
};

TEST_F(BlockTablesTest, GivenTooFewPagesThenTheMessageSaysHowManyAreNeededAndFree) {
  sequence_of(20);
  const Status status = tables_.reserve(tables_.create_sequence(next_id()), 17).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("5 more pages of 4 tokens needed, 3 free"));
}

TEST_F(BlockTablesTest, GivenMoreTokensThanCapacityThenRefusedWithoutOverflow) {
  const SequenceId id = sequence_of(20);
  const Status status = tables_.reserve(id, INT32_MAX).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("holds 32 at most"));
  EXPECT_EQ(tables_.reserve(id, -1).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(BlockTablesTest, GivenAForkWhenWrittenThenOnlyThePartialPageIsCopied) {
  const SequenceId a = sequence_of(6);
  const SequenceId b = *tables_.fork(a, next_id());
  EXPECT_EQ(tables_.pool().free_count(), 6);
  tables_.reserve(b, 1).value().commit();
  EXPECT_EQ(tables_.pool().free_count(), 5);
  EXPECT_EQ(tables_.block_table(a)[0], tables_.block_table(b)[0]);
  EXPECT_NE(tables_.block_table(a)[1], tables_.block_table(b)[1]);
  tables_.reserve(a, 1).value().commit();  // alone on its page by now: no copy
  EXPECT_EQ(tables_.pool().free_count(), 5);
}

TEST_F(BlockTablesTest, GivenAFullCacheWhenOnlyTheIndexSharesThePageThenItForgetsInsteadOfACopy) {
  const SequenceId id = sequence_of(32);
  const std::vector<int32_t> tokens(32, 7);
  tables_.publish(id, tokens, {});
  ASSERT_TRUE(cut_to(tables_, id, 31).is_ok());
  EXPECT_EQ(tables_.pool().free_count(), 0);
  tables_.reserve(id, 1).value().commit();
  EXPECT_EQ(tables_.match_prefix(tokens, {}), 28);
  EXPECT_THAT(violations(tables_.snapshot()), ::testing::IsEmpty());
}

TEST_F(BlockTablesTest, GivenSlotsThatNoPromptMadeThenTheyAreNotFoundByTokenIds) {
  const std::vector<int32_t> tokens(20, 7);
  for (const SlotKind kind : {SlotKind::kDecode, SlotKind::kFused}) {
    const SequenceId id = tables_.create_sequence(next_id());
    TableReservation reservation = std::move(*tables_.reserve(id, 20));
    reservation.grow_kinds();
    reservation.mark_from(13, kind);
    reservation.commit();
    EXPECT_THAT(tables_.slot_kinds(id),
                ::testing::ElementsAre(SlotRun{13, SlotKind::kPrompt}, SlotRun{20, kind}));
    tables_.publish(id, tokens, {});
    EXPECT_EQ(tables_.match_prefix(tokens, {}), 12);  // the fourth page holds one of them
    ASSERT_TRUE(cut_to(tables_, id, 13).is_ok());
    EXPECT_THAT(tables_.slot_kinds(id), ::testing::ElementsAre(SlotRun{13, SlotKind::kPrompt}));
    tables_.free_sequence(id);
    tables_.evict_unused();
  }
}

TEST_F(BlockTablesTest, GivenAMovedReservationThenOnlyTheLastOneActs) {
  const SequenceId id = sequence_of(3);
  TableReservation first = std::move(*tables_.reserve(id, 5));
  EXPECT_EQ(first.begin(), 3);
  EXPECT_EQ(first.end(), 8);
  TableReservation second = std::move(first);
  first.rollback();
  EXPECT_EQ(tables_.block_table(id).size(), 2u);
  second.commit();
  second.rollback();
  EXPECT_EQ(tables_.length(id), 8);
}

TEST_F(BlockTablesTest, GivenPositionsOutsideTheSequenceThenInvalidArgument) {
  const SequenceId id = sequence_of(5);
  EXPECT_EQ(cut_to(tables_, id, 6).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(cut_to(tables_, id, -1).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(tables_.make_writable(id, 0, 6).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(tables_.make_writable(id, -1, 2).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(tables_.make_writable(id, 3, 2).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(attach_prefix(tables_, id, {}).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weft::kv
