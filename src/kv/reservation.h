// A step's hold on the pages it will write: planned, reserved, run and committed. Destroyed without
// a commit it is rolled back, and the sequence is as it was before. It never writes K or V.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kv/sequence.h"

namespace weft::kv {

class BlockTables;

/// What a sequence is to get: n_tokens slots after its last, that `kind` will make.
struct Growth {
  SequenceId id{};
  int32_t n_tokens = 0;
  SlotKind kind = SlotKind::kPrompt;
};

/// Positions [begin, end) of one sequence in one group of layers, writable and exclusively its own.
/// Movable, not copyable; must not outlive the tables it came from. Freeing the sequence ends its
/// reservation. One thread.
class TableReservation {
 public:
  TableReservation(TableReservation&& other) noexcept;
  TableReservation& operator=(TableReservation&& other) noexcept;
  ~TableReservation() { rollback(); }

  SequenceId sequence() const { return sequence_; }
  int32_t begin() const { return begin_; }
  int32_t end() const { return end_; }

  /// Memory for a mark_from(), which takes none itself.
  void grow_kinds();
  /// The slots [slot, end) are of this kind, not of the one that was reserved; begin <= slot <=
  /// end. Calls go forward: `slot` is not below the last call's. After grow_kinds().
  void mark_from(int32_t slot, SlotKind kind) noexcept;
  /// The K and V of the first n_tokens positions are there: the sequence's length becomes begin +
  /// n_tokens, and the others are as if they had not been reserved (drafts that were rejected).
  /// Once, on a reservation that is still open.
  void commit(int32_t n_tokens);
  void commit() { commit(end_ - begin_); }
  /// The sequence's pages and length become what they were. Nothing happens after commit().
  void rollback();

 private:
  friend class BlockTables;
  TableReservation(BlockTables* tables, SequenceId sequence, int32_t begin, int32_t end)
      : tables_(tables), sequence_(sequence), begin_(begin), end_(end) {}

  BlockTables* tables_;  // null once committed, rolled back or moved from
  SequenceId sequence_;
  int32_t begin_;
  int32_t end_;
};

/// The same positions in every group of layers. Movable; otherwise as above.
class Reservation {
 public:
  SequenceId sequence() const { return groups_.front().sequence(); }
  int32_t begin() const { return groups_.front().begin(); }
  int32_t end() const { return groups_.front().end(); }

  /// As TableReservation's, with the memory for it: in all groups or, without memory, in none.
  void mark_from(int32_t slot, SlotKind kind) {
    for (TableReservation& group : groups_) group.grow_kinds();
    for (TableReservation& group : groups_) group.mark_from(slot, kind);
  }
  void commit() {
    for (TableReservation& group : groups_) group.commit();
  }
  void commit(int32_t n_tokens) {
    for (TableReservation& group : groups_) group.commit(n_tokens);
  }
  void rollback() {
    for (TableReservation& group : groups_) group.rollback();
  }

 private:
  friend class Cache;
  explicit Reservation(std::vector<TableReservation> groups) : groups_(std::move(groups)) {}

  std::vector<TableReservation> groups_;  // one at least
};

}  // namespace weft::kv
