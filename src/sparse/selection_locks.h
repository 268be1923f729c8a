// One selection of pages, kept over several steps (KVStar, UCM): choosing reads digests of the
// whole context at every token, and what is chosen changes little from one to the next. A
// sequence's lock holds what each layer and KV head reads; at a checkpoint the selections are made
// anew and compared with it.
//
// A step is a token, and steps are counted by slots: a row's lock depends on the rows of its own
// sequence alone, and a row that is run again gets what it got.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "kv/cache.h"

namespace weft::sparse {

struct LockOptions {
  int32_t interval_tokens = 0;   // between checkpoints; 0: no locks, every step chooses
  int32_t duration_tokens = 16;  // so long after it was made a lock is made anew, compared or not
  int32_t update_threshold = 2;  // more pages than that, added and removed, replace a selection

  bool is_on() const { return interval_tokens > 0; }
};

enum class LockState {
  kUnlocked,    // nothing is kept
  kLocked,      // rows read what is kept
  kCheckpoint,  // the newest row compares what is kept with what it would choose
};
enum class LockEvent {
  kChosen,  // a row chooses, and what it chooses is kept
  kStep,    // a later row
  kDue,     // a later row, interval_tokens after the last checkpoint
  kEnd,     // duration_tokens have passed, or the pages are not what they were
};
/// None: the event cannot come in that state.
std::optional<LockState> next_state(LockState state, LockEvent event);

/// Of all sequences since the beginning.
struct LockCounters {
  int64_t locks = 0;
  int64_t unlocks = 0;
  int64_t checkpoints = 0;
  // Of the selections that checkpoints compared, one of each layer and KV head:
  int64_t kept = 0;
  int64_t updated = 0;
  int64_t locked_reads = 0;  // rows of a layer that read what was kept, and chose nothing
};

/// Of each KV head the chosen pages, as places in the sequence's block table; ascending.
using Selection = std::vector<std::vector<int32_t>>;

/// One thread, that of the selector.
class SelectionLocks {
 public:
  SelectionLocks(const LockOptions& options, int32_t n_layers);

  /// What a step's first row of a sequence does at a layer; asked at each layer that selects, in
  /// their order. Other rows of the sequence (drafts to verify) read what that one keeps. Ends a
  /// lock whose pages are not what they were: the sequence was cut, shifted, fused or written to,
  /// or pages of it were copied or moved.
  enum class Action {
    kChoose,   // and keep it: lock()
    kCompare,  // choose, and compare with what is kept: checkpoint()
    kRead,     // get_selection()
  };
  Action action(const kv::Cache& cache, kv::SequenceId sequence, int32_t slot, int32_t layer);

  /// What the layer keeps for the sequence: after kRead, lock() and checkpoint(). Valid until the
  /// sequence's next action.
  const Selection& get_selection(kv::SequenceId sequence, int32_t layer) const;
  /// Keeps the layer's selection.
  void lock(kv::SequenceId sequence, int32_t layer, Selection selection);
  /// Replaces what differs from the selection by more than update_threshold, KV head by KV head.
  void checkpoint(kv::SequenceId sequence, int32_t layer, Selection selection);

  /// For tests.
  LockState state(kv::SequenceId sequence) const;
  const LockCounters& counters() const { return counters_; }

 private:
  struct Layer {
    int32_t of_slot = -1;  // of the row that the selection was last made or compared for
    Selection selection;   // [n_kv_heads]
  };
  struct Lock {
    LockState state = LockState::kUnlocked;
    int64_t changes = 0;                // of the sequence, when it was locked
    std::vector<kv::PageHandle> pages;  // of the sequence then
    int32_t lock_slot = -1;             // of the row that it was made for
    int32_t check_slot = -1;            // of the last checkpoint's row, or that one
    int32_t newest_slot = -1;           // of the newest step's row
    std::vector<Layer> layers;          // [n_layers]
  };

  void advance(Lock& lock, LockEvent event);
  void begin(Lock& lock, const kv::Cache& cache, kv::SequenceId sequence, int32_t slot,
             int32_t layer);
  /// Whether the lock's pages are the sequence's, as they were.
  static bool holds(const Lock& lock, const kv::Cache& cache, kv::SequenceId sequence,
                    int32_t layer);
  void forget_ended(const kv::Cache& cache);

  LockOptions options_;
  int32_t n_layers_;
  std::map<kv::SequenceId, Lock> locks_;
  LockCounters counters_;
};

}  // namespace weft::sparse
