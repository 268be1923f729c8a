// KVStar's published sketch counts a step for each layer and keeps one selection for all of them.
// Here a step is a token, and each layer and KV head has its own: heads look for different things
// (docs/sparse.md).
#include "sparse/selection_locks.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace weft::sparse {
namespace {

/// Whether there are more than n pages that one of two ascending lists has and the other has not.
bool differ_by_more(std::span<const int32_t> a, std::span<const int32_t> b, int64_t n) {
  int64_t n_differences = 0;
  while (!a.empty() && !b.empty() && n_differences <= n) {
    const int32_t first = std::min(a.front(), b.front());
    const bool in_a = a.front() == first, in_b = b.front() == first;
    n_differences += in_a != in_b ? 1 : 0;
    a = a.subspan(in_a ? 1 : 0);
    b = b.subspan(in_b ? 1 : 0);
  }
  return n_differences + std::ssize(a) + std::ssize(b) > n;
}

}  // namespace

int64_t verify_consistency(const Selection& draft, const Selection& target) {
  WEFT_CHECK(draft.size() == target.size());
  int64_t n = 0;
  for (size_t head = 0; head < draft.size(); ++head) n += draft[head] != target[head] ? 1 : 0;
  return n;
}

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

// Where a checkpoint allocated its selection and lists and freed those before them, it took 1.8
// times as long as choosing without a lock does (scores not counted).
void SelectionLocks::Layer::add(int32_t slot, int32_t lock_slot, bool is_dense) {
  dropped.slot = slot;
  dropped.lock_slot = lock_slot;
  dropped.is_dense = is_dense;
  dropped.lists.moves = -1;
  kept.push_back(std::exchange(dropped, {}));
}

void SelectionLocks::Layer::drop_first() {
  dropped = std::move(kept.front());
  kept.erase(kept.begin());
}

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
  const auto is_gone = [&](const auto& one) { return !cache.contains(one.first); };
  std::erase_if(locks_, is_gone);
  std::erase_if(speculations_, is_gone);
}

// The lock's pages are those that the sequence has in its places, for as long as its changes are
// counted the same: page handles were compared here first, and a page that compaction moved ended
// the lock. When it moves depends on the sequences beside it, and so then did the answers.
SelectionLocks::Action SelectionLocks::action(const kv::Cache& cache, kv::SequenceId sequence,
                                              int32_t slot, int32_t layer,
                                              int32_t interval_tokens) {
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
  // Rows in committed slots are not run again. What is kept for others stays, as many as they are:
  // a request that was preempted has hundreds in a step, and all of a step's rows act before the
  // first is asked for what it keeps.
  while (own.kept.size() > 1 && own.kept[1].slot < cache.length(sequence)) own.drop_first();

  const Kept* last = own.kept.empty() ? nullptr : &own.kept.back();
  // Where dense passes compare, nothing else ends what is kept or compares it: the passes' tokens
  // would begin there.
  const bool is_dense = interval_tokens == 0;
  const bool may_end = is_dense || options_.checkpoint == Checkpoint::kSelect;
  if (last == nullptr || (may_end && slot - last->lock_slot >= options_.duration_tokens)) {
    if (own.state != LockState::kUnlocked) advance(own, LockEvent::kEnd, counts);
    advance(own, LockEvent::kChosen, counts);
    own.add(slot, slot, is_dense);
    return Action::kChoose;
  }
  if (may_end && slot - last->slot >= interval_tokens) {
    advance(own, LockEvent::kDue, counts);
    own.add(slot, last->lock_slot, is_dense);
    return Action::kCompare;
  }
  advance(own, LockEvent::kStep, counts);
  ++counters_.locked_reads;
  ask_ahead(lock, layer);
  return Action::kRead;
}

// All layers' weights, K and V have gone through the caches since a layer's lock was read, so that
// each step from one part of it to the next would wait for memory.
void SelectionLocks::ask_ahead(const Lock& lock, int32_t layer) {
  if (layer + 2 < n_layers_ && !lock.layers[layer + 2].kept.empty()) {
    const auto* next = reinterpret_cast<const char*>(lock.layers[layer + 2].kept.data());
    for (size_t i = 0; i < sizeof(Kept); i += 64) __builtin_prefetch(next + i);
  }
  if (layer + 1 < n_layers_ && !lock.layers[layer + 1].kept.empty()) {
    const RowLists& lists = lock.layers[layer + 1].kept.front().lists;
    for (const kernels::HeadPages& head : lists.heads) __builtin_prefetch(&head);
  }
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

RowLists& SelectionLocks::lists(kv::SequenceId sequence, int32_t slot, int32_t layer) {
  return kept_for(sequence, slot, layer).lists;
}

void SelectionLocks::lock(kv::SequenceId sequence, int32_t slot, int32_t layer,
                          const Selection& selection) {
  kept_for(sequence, slot, layer).selection = selection;
}

void SelectionLocks::checkpoint(kv::SequenceId sequence, int32_t slot, int32_t layer,
                                const Selection& selection) {
  const Selection& kept = kept_for(sequence, slot - 1, layer).selection;
  Selection& own = kept_for(sequence, slot, layer).selection;
  WEFT_CHECK(kept.size() == selection.size());
  own.resize(kept.size());
  for (size_t head = 0; head < kept.size(); ++head) {
    const bool is_kept = !differ_by_more(kept[head], selection[head], options_.update_threshold);
    ++(is_kept ? counters_.kept : counters_.updated);
    own[head] = is_kept ? kept[head] : selection[head];
  }
}

const SelectionLocks::Kept* SelectionLocks::newest_before(const kv::Cache& cache,
                                                          kv::SequenceId sequence,
                                                          int32_t slot) const {
  const auto lock = locks_.find(sequence);
  if (lock == locks_.end() || lock->second.changes != cache.changes(sequence)) return nullptr;
  const std::vector<Kept>& kept = lock->second.layers[counted_layer_].kept;
  const auto after = std::ranges::lower_bound(kept, slot, {}, &Kept::slot);
  return after == kept.begin() ? nullptr : &*std::prev(after);
}

std::optional<int32_t> SelectionLocks::pending_from(const kv::Cache& cache, kv::SequenceId sequence,
                                                    int32_t slot) const {
  const Kept* last = newest_before(cache, sequence, slot);
  if (last == nullptr) return std::nullopt;
  return last->is_dense ? last->slot + 1 : last->slot;
}

std::optional<int32_t> SelectionLocks::checkpoint_from(const kv::Cache& cache,
                                                       kv::SequenceId sequence,
                                                       int32_t slot) const {
  const Kept* last = newest_before(cache, sequence, slot);
  if (last == nullptr || slot - last->slot < options_.interval_tokens) return std::nullopt;
  return pending_from(cache, sequence, slot);
}

int32_t SelectionLocks::last_before_checkpoint(const kv::Cache& cache, kv::SequenceId sequence,
                                               int32_t slot) const {
  const Kept* last = newest_before(cache, sequence, slot);
  const int32_t first = last == nullptr ? slot : last->slot;
  return std::max(slot, first + options_.interval_tokens - 1);
}

void SelectionLocks::begin_dense_pass(const kv::Cache& cache, kv::SequenceId sequence) {
  const auto lock = locks_.find(sequence);
  if (lock == locks_.end()) return;
  lock->second.changes = cache.changes(sequence);
  // What is written may have been shared, and be a copy now.
  for (Layer& layer : lock->second.layers) {
    for (Kept& one : layer.kept) one.lists.moves = -1;
  }
}

void SelectionLocks::unlock(kv::SequenceId sequence) {
  const auto lock = locks_.find(sequence);
  if (lock == locks_.end()) return;
  for (size_t layer = 0; layer < lock->second.layers.size(); ++layer) {
    Layer& one = lock->second.layers[layer];
    one.kept.clear();
    if (one.state == LockState::kUnlocked) continue;
    advance(one, LockEvent::kEnd, std::cmp_equal(layer, counted_layer_));
  }
}

void SelectionLocks::begin_speculation(kv::SequenceId sequence, int32_t n) {
  std::vector<Drafted>& rows = speculations_[sequence];
  rows.clear();
  rows.reserve(int64_t{n} * n_layers_);
}

void SelectionLocks::drafted(kv::SequenceId sequence, int32_t slot, int32_t layer,
                             const Selection& selection) {
  const auto rows = speculations_.find(sequence);
  if (rows != speculations_.end()) rows->second.push_back({slot, layer, selection});
}

void SelectionLocks::verified(kv::SequenceId sequence, int32_t slot, int32_t layer,
                              const Selection& selection) {
  const auto rows = speculations_.find(sequence);
  if (rows == speculations_.end()) return;
  for (const Drafted& row : rows->second) {
    if (row.slot != slot || row.layer != layer) continue;
    counters_.compared_drafts += std::ssize(selection);
    counters_.inconsistencies += verify_consistency(row.selection, selection);
  }
}

void SelectionLocks::end_speculation(kv::SequenceId sequence, bool all_accepted) {
  speculations_.erase(sequence);
  if (!all_accepted) unlock(sequence);
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
