// KVStar's published sketch counts a step for each layer and keeps one selection for all of them.
// Here a step is a token, and each layer and KV head has its own: heads look for different things
// (docs/sparse.md).
#include "sparse/selection_locks.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "kv/page_selector.h"

namespace weft::sparse {
namespace {

/// Pages that one of two ascending lists has and the other has not.
int64_t n_differences(std::span<const int32_t> a, std::span<const int32_t> b) {
  std::vector<int32_t> differences;
  std::ranges::set_symmetric_difference(a, b, std::back_inserter(differences));
  return std::ssize(differences);
}

}  // namespace

std::optional<LockState> next_state(LockState state, LockEvent event) {
  using enum LockState;
  constexpr auto kNever = std::nullopt;
  constexpr std::optional<LockState> kNext[3][4] = {
      //               kChosen   kStep    kDue         kEnd
      /* kUnlocked */ {kLocked, kNever, kNever, kNever},
      /* kLocked */ {kNever, kLocked, kCheckpoint, kUnlocked},
      /* kCheckpoint */ {kNever, kLocked, kCheckpoint, kUnlocked},
  };
  return kNext[static_cast<int>(state)][static_cast<int>(event)];
}

SelectionLocks::SelectionLocks(const LockOptions& options, int32_t n_layers)
    : options_(options), n_layers_(n_layers) {}

void SelectionLocks::advance(Layer& layer, LockEvent event, bool counts) {
  const std::optional<LockState> next = next_state(layer.state, event);
  WEFT_CHECK(next.has_value());
  layer.state = *next;
  if (!counts) return;
  counters_.locks += event == LockEvent::kChosen ? 1 : 0;
  counters_.checkpoints += event == LockEvent::kDue ? 1 : 0;
  counters_.unlocks += event == LockEvent::kEnd ? 1 : 0;
}

void SelectionLocks::forget_ended(const kv::Cache& cache) {
  std::erase_if(locks_, [&](const auto& one) { return !cache.contains(one.first); });
}

// The lock's pages are those that the sequence has in its places, for as long as its changes are
// counted the same: page handles were compared here first, and a page that compaction moved ended
// the lock. When it moves depends on the sequences beside it, and so then did the answers.
SelectionLocks::Action SelectionLocks::action(const kv::Cache& cache, kv::SequenceId sequence,
                                              int32_t slot, int32_t layer) {
  if (!locks_.contains(sequence)) forget_ended(cache);
  if (counted_layer_ < 0) counted_layer_ = layer;
  const bool counts = layer == counted_layer_;
  Lock& lock = locks_[sequence];
  lock.layers.resize(n_layers_);
  if (lock.changes != cache.changes(sequence)) {
    for (Layer& one : lock.layers) one.kept.clear();
    lock.changes = cache.changes(sequence);
  }
  Layer& own = lock.layers[layer];
  while (!own.kept.empty() && own.kept.back().slot >= slot) own.kept.pop_back();
  // Rows in committed slots are not run again.
  while (own.kept.size() > 1 && (own.kept[1].slot < cache.length(sequence) ||
                                 own.kept[1].slot <= slot - kv::kMostTriedRows)) {
    own.kept.erase(own.kept.begin());
  }

  const Kept* last = own.kept.empty() ? nullptr : &own.kept.back();
  if (last == nullptr || slot - last->lock_slot >= options_.duration_tokens) {
    if (own.state != LockState::kUnlocked) advance(own, LockEvent::kEnd, counts);
    advance(own, LockEvent::kChosen, counts);
    own.kept.push_back({.slot = slot, .lock_slot = slot, .selection = {}});
    return Action::kChoose;
  }
  if (slot - last->slot >= options_.interval_tokens) {
    advance(own, LockEvent::kDue, counts);
    own.kept.push_back({.slot = slot, .lock_slot = last->lock_slot, .selection = {}});
    return Action::kCompare;
  }
  advance(own, LockEvent::kStep, counts);
  ++counters_.locked_reads;
  return Action::kRead;
}

SelectionLocks::Kept& SelectionLocks::kept_for(kv::SequenceId sequence, int32_t slot,
                                               int32_t layer) {
  std::vector<Kept>& kept = locks_.at(sequence).layers[layer].kept;
  const auto after = std::ranges::upper_bound(kept, slot, {}, &Kept::slot);
  WEFT_CHECK(after != kept.begin());
  return *std::prev(after);
}

const Selection& SelectionLocks::get_selection(kv::SequenceId sequence, int32_t slot,
                                               int32_t layer) {
  return kept_for(sequence, slot, layer).selection;
}

void SelectionLocks::lock(kv::SequenceId sequence, int32_t slot, int32_t layer,
                          Selection selection) {
  kept_for(sequence, slot, layer).selection = std::move(selection);
}

void SelectionLocks::checkpoint(kv::SequenceId sequence, int32_t slot, int32_t layer,
                                Selection selection) {
  Selection kept = kept_for(sequence, slot - 1, layer).selection;
  WEFT_CHECK(kept.size() == selection.size());
  for (size_t head = 0; head < kept.size(); ++head) {
    const bool is_kept = n_differences(kept[head], selection[head]) <= options_.update_threshold;
    ++(is_kept ? counters_.kept : counters_.updated);
    if (!is_kept) kept[head] = std::move(selection[head]);
  }
  kept_for(sequence, slot, layer).selection = std::move(kept);
}

void SelectionLocks::written(kv::SequenceId sequence, int32_t slot, int32_t layer) {
  const auto lock = locks_.find(sequence);
  if (lock == locks_.end()) return;
  std::erase_if(lock->second.layers[layer].kept, [&](const Kept& one) { return one.slot >= slot; });
}

LockState SelectionLocks::state(kv::SequenceId sequence, int32_t layer) const {
  const auto lock = locks_.find(sequence);
  return lock == locks_.end() ? LockState::kUnlocked : lock->second.layers[layer].state;
}

}  // namespace weft::sparse
