// One selection of pages, kept over several steps (KVStar, UCM): choosing reads digests of the
// whole context at every token, and what is chosen changes little from one to the next. A
// sequence's lock holds what each layer and KV head reads; at a checkpoint the selections are made
// anew and compared with it.
//
// A step is a token, and steps are counted by slots: what a row does follows from its slot and from
// the rows of its own sequence before it, at the same layer. So a request gets the same answer
// whatever shares its steps, many rows in one step get what they would get one by one (a request
// that was preempted, drafts to verify), and a row that is run again gets what it got.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "kv/cache.h"
#include "sparse/lock_options.h"
#include "sparse/row_lists.h"

namespace weft::sparse {

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

/// Of each KV head the chosen pages, as places in the sequence's block table; ascending.
using Selection = std::vector<std::vector<int32_t>>;

/// KV heads of which the draft's row and the row that verified it chose other pages.
int64_t verify_consistency(const Selection& draft, const Selection& target);

/// One thread, that of the selector.
class SelectionLocks {
 public:
  SelectionLocks(const LockOptions& options, int32_t n_layers);

  /// What a row does at a layer; asked of a sequence's rows in their order. What was kept for rows
  /// at its slot and later is dropped: those are run again. Ends locks whose pages are not what
  /// they were: the sequence was cut, shifted, fused or written to. Pages that move (compaction)
  /// stay what they are, and others' pages are nothing to it.
  enum class Action {
    kChoose,   // and keep it: lock()
    kCompare,  // choose, and compare with what is kept: checkpoint()
    kRead,     // get_selection()
  };
  Action action(const kv::Cache& cache, kv::SequenceId sequence, int32_t slot, int32_t layer) {
    return action(cache, sequence, slot, layer, options_.interval_tokens);
  }
  /// Of a row that saw all pages in a dense pass, and so chooses or compares in any case: kChoose
  /// or kCompare.
  Action action_of_dense(const kv::Cache& cache, kv::SequenceId sequence, int32_t slot,
                         int32_t layer) {
    return action(cache, sequence, slot, layer, 0);
  }

  /// What the layer keeps for the row. Valid until the sequence's next action at the layer.
  const Selection& get_selection(kv::SequenceId sequence, int32_t slot, int32_t layer);
  /// What the last row with that selection read, or nothing: whoever makes lists keeps them here.
  /// Valid as the selection is.
  RowLists& lists(kv::SequenceId sequence, int32_t slot, int32_t layer);
  /// Keeps the row's selection, after kChoose.
  void lock(kv::SequenceId sequence, int32_t slot, int32_t layer, const Selection& selection);
  /// Replaces what differs from the row's selection by more than update_threshold, KV head by KV
  /// head; after kCompare. What was kept until then is there by now.
  void checkpoint(kv::SequenceId sequence, int32_t slot, int32_t layer, const Selection& selection);

  /// Of the rows before `slot` the first that read chosen pages since the last dense pass, if it is
  /// known; other rows may have come since.
  std::optional<int32_t> pending_from(const kv::Cache& cache, kv::SequenceId sequence,
                                      int32_t slot) const;
  /// The same where a row at `slot` is a checkpoint's.
  std::optional<int32_t> checkpoint_from(const kv::Cache& cache, kv::SequenceId sequence,
                                         int32_t slot) const;
  /// The last slot that rows from `slot` on may take before a checkpoint's.
  int32_t last_before_checkpoint(const kv::Cache& cache, kv::SequenceId sequence,
                                 int32_t slot) const;
  /// A dense pass is about to write committed slots, which the cache counts as a change: it ends no
  /// lock.
  void begin_dense_pass(const kv::Cache& cache, kv::SequenceId sequence);

  /// Ends the sequence's lock: its next row chooses.
  void unlock(kv::SequenceId sequence);
  /// The model itself drafts, n tokens, and then verifies them: until end_speculation() the rows
  /// that verify are compared with the draft's. The draft's first row sees to it that there is a
  /// lock.
  void begin_speculation(kv::SequenceId sequence, int32_t n);
  /// A draft's row at a layer read this.
  void drafted(kv::SequenceId sequence, int32_t slot, int32_t layer, const Selection& selection);
  /// A row that verifies reads this.
  void verified(kv::SequenceId sequence, int32_t slot, int32_t layer, const Selection& selection);
  /// The lock stays where all of the draft was accepted, else it ends. Where the rows that verify
  /// read it, too, say that all was: what they get must not depend on drafts.
  void end_speculation(kv::SequenceId sequence, bool all_accepted);

  /// As PageSelector::written.
  void written(kv::SequenceId sequence, int32_t slot, int32_t layer);

  /// For tests.
  LockState state(kv::SequenceId sequence, int32_t layer) const;
  const LockCounters& counters() const { return counters_; }

 private:
  /// What a row chose or compared, for itself and for rows after it.
  struct Kept {
    int32_t slot = 0;       // of the row
    int32_t lock_slot = 0;  // of the one that made the lock: the same, unless it compared
    bool is_dense = false;  // the row saw all pages
    Selection selection;    // [n_kv_heads]
    RowLists lists;
  };
  struct Layer {
    LockState state = LockState::kUnlocked;  // after the newest row
    std::vector<Kept> kept;  // by slots; the last of committed rows, and those of rows after that
    Kept dropped;            // whose memory the next one takes

    void add(int32_t slot, int32_t lock_slot, bool is_dense);
    void drop_first();
  };
  /// What a draft's row read.
  struct Drafted {
    int32_t slot = 0;
    int32_t layer = 0;
    Selection selection;
  };
  struct Lock {
    int64_t changes = 0;        // of the sequence, when it was seen last
    std::vector<Layer> layers;  // [n_layers]
  };

  Action action(const kv::Cache& cache, kv::SequenceId sequence, int32_t slot, int32_t layer,
                int32_t interval_tokens);
  /// The newest that is kept for a row at `slot`, in the layer where locks are counted; null: none.
  const Kept* newest_before(const kv::Cache& cache, kv::SequenceId sequence, int32_t slot) const;
  void advance(Layer& layer, LockEvent event, bool counts);
  /// Brings what the next layers keep into the caches.
  void ask_ahead(const Lock& lock, int32_t layer);
  /// The newest of what the layer keeps that is no later than the slot.
  Kept& kept_for(kv::SequenceId sequence, int32_t slot, int32_t layer);
  void forget_ended(const kv::Cache& cache);

  LockOptions options_;
  int32_t n_layers_;
  int32_t counted_layer_ = -1;  // the first that selects: locks are counted there
  std::map<kv::SequenceId, Lock> locks_;
  std::map<kv::SequenceId, std::vector<Drafted>> speculations_;
  LockCounters counters_;
};

}  // namespace weft::sparse
