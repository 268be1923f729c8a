// KVStar's published sketch counts a step for each layer and keeps one selection for all of them.
// Here a step is a token, and each layer and KV head has its own: heads look for different things
// (docs/sparse.md).
#include "sparse/selection_locks.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

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

void SelectionLocks::advance(Lock& lock, LockEvent event) {
  const std::optional<LockState> next = next_state(lock.state, event);
  WEFT_CHECK(next.has_value());
  lock.state = *next;
  counters_.locks += event == LockEvent::kChosen ? 1 : 0;
  counters_.checkpoints += event == LockEvent::kDue ? 1 : 0;
  counters_.unlocks += event == LockEvent::kEnd ? 1 : 0;
}

void SelectionLocks::forget_ended(const kv::Cache& cache) {
  std::erase_if(locks_, [&](const auto& one) { return !cache.contains(one.first); });
}

bool SelectionLocks::holds(const Lock& lock, const kv::Cache& cache, kv::SequenceId sequence,
                           int32_t layer) {
  if (cache.changes(sequence) != lock.changes) return false;
  const std::span<const int32_t> table = cache.layer_table(sequence, layer);
  return lock.pages.size() <= table.size() &&
         std::ranges::equal(lock.pages, table.first(lock.pages.size()), {}, {},
                            [&](int32_t page) { return cache.page_handle(layer, page); });
}

void SelectionLocks::begin(Lock& lock, const kv::Cache& cache, kv::SequenceId sequence,
                           int32_t slot, int32_t layer) {
  advance(lock, LockEvent::kChosen);
  lock.changes = cache.changes(sequence);
  lock.lock_slot = lock.check_slot = slot;
  // The row's own page is still being written, and nobody chooses it.
  lock.pages.clear();
  for (const int32_t page : cache.layer_table(sequence, layer).first(slot / cache.page_tokens())) {
    lock.pages.push_back(cache.page_handle(layer, page));
  }
  for (Layer& of_layer : lock.layers) of_layer.of_slot = -1;
}

SelectionLocks::Action SelectionLocks::action(const kv::Cache& cache, kv::SequenceId sequence,
                                              int32_t slot, int32_t layer) {
  if (!locks_.contains(sequence)) forget_ended(cache);
  Lock& lock = locks_[sequence];
  lock.layers.resize(n_layers_);
  // Else another layer of the same step, or the step once more; not another row in its place.
  const bool is_step = slot != lock.newest_slot || cache.changes(sequence) != lock.changes;
  if (lock.state != LockState::kUnlocked && is_step) {
    const int64_t age = int64_t{slot} - lock.lock_slot;
    if (age < 0 || age >= options_.duration_tokens || !holds(lock, cache, sequence, layer)) {
      advance(lock, LockEvent::kEnd);
    } else {
      const bool is_due = slot - lock.check_slot >= options_.interval_tokens;
      if (is_due) lock.check_slot = slot;
      advance(lock, is_due ? LockEvent::kDue : LockEvent::kStep);
    }
  }
  if (lock.state == LockState::kUnlocked) begin(lock, cache, sequence, slot, layer);
  lock.newest_slot = slot;
  Layer& of_layer = lock.layers[layer];
  const bool is_made = of_layer.of_slot >= lock.lock_slot;
  const bool compares = slot == lock.check_slot && of_layer.of_slot != slot;
  if (is_made && !compares) {
    ++counters_.locked_reads;
    return Action::kRead;
  }
  of_layer.of_slot = slot;
  return is_made ? Action::kCompare : Action::kChoose;
}

const Selection& SelectionLocks::get_selection(kv::SequenceId sequence, int32_t layer) const {
  return locks_.at(sequence).layers[layer].selection;
}

void SelectionLocks::lock(kv::SequenceId sequence, int32_t layer, Selection selection) {
  locks_.at(sequence).layers[layer].selection = std::move(selection);
}

void SelectionLocks::checkpoint(kv::SequenceId sequence, int32_t layer, Selection selection) {
  Selection& kept = locks_.at(sequence).layers[layer].selection;
  WEFT_CHECK(kept.size() == selection.size());
  for (size_t head = 0; head < kept.size(); ++head) {
    const bool is_kept = n_differences(kept[head], selection[head]) <= options_.update_threshold;
    ++(is_kept ? counters_.kept : counters_.updated);
    if (!is_kept) kept[head] = std::move(selection[head]);
  }
}

LockState SelectionLocks::state(kv::SequenceId sequence) const {
  const auto lock = locks_.find(sequence);
  return lock == locks_.end() ? LockState::kUnlocked : lock->second.state;
}

}  // namespace weft::sparse
