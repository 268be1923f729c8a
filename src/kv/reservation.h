// A step's hold on the pages it will write: planned, reserved, run and committed. Destroyed without
// a commit it is rolled back, and the sequence is as it was before. It never writes K or V.
#pragma once

#include <cstdint>

#include "kv/sequence.h"

namespace weft::kv {

class BlockTables;

/// Positions [begin, end) of one sequence, writable and exclusively its own. Movable, not copyable;
/// must not outlive the cache it came from. Freeing the sequence ends its reservation. One thread.
class Reservation {
 public:
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  ~Reservation() { rollback(); }

  SequenceId sequence() const { return sequence_; }
  int32_t begin() const { return begin_; }
  int32_t end() const { return end_; }

  /// The slots [slot, end) are of this kind, not of the one that was reserved; begin <= slot <=
  /// end. Calls go forward: `slot` is not below the last call's.
  void mark_from(int32_t slot, SlotKind kind);
  /// The positions' K and V are there: the sequence's length becomes `end`. Once, on a reservation
  /// that is still open.
  void commit();
  /// The sequence's pages and length become what they were. Nothing happens after commit().
  void rollback();

 private:
  friend class BlockTables;
  Reservation(BlockTables* tables, SequenceId sequence, int32_t begin, int32_t end)
      : tables_(tables), sequence_(sequence), begin_(begin), end_(end) {}

  BlockTables* tables_;  // null once committed, rolled back or moved from
  SequenceId sequence_;
  int32_t begin_;
  int32_t end_;
};

}  // namespace weft::kv
