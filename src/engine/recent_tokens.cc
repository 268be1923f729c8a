#include "engine/recent_tokens.h"

#include <algorithm>

#include "base/narrow.h"

namespace weft::engine {

void RecentTokens::add(const kv::Cache& cache, kv::SequenceId sequence, int32_t slot,
                       std::span<const int32_t> tokens) {
  if (!runs_.contains(sequence)) {
    std::erase_if(runs_, [&](const auto& run) { return !cache.contains(run.first); });
  }
  Run& run = runs_[sequence];
  const int64_t end = run.first_slot + std::ssize(run.tokens);
  const bool goes_on = run.changes == cache.changes(sequence) && slot == end;
  if (!goes_on) run = {.changes = cache.changes(sequence), .first_slot = slot, .tokens = {}};
  run.tokens.insert(run.tokens.end(), tokens.begin(), tokens.end());
  const int64_t n_over = std::ssize(run.tokens) - most_;
  if (n_over <= 0) return;
  run.tokens.erase(run.tokens.begin(), run.tokens.begin() + n_over);
  run.first_slot += narrow<int32_t>(n_over);
}

void RecentTokens::keep(const kv::Cache& cache, kv::SequenceId sequence) {
  const auto run = runs_.find(sequence);
  if (run != runs_.end()) run->second.changes = cache.changes(sequence);
}

RecentTokens::Known RecentTokens::of(const kv::Cache& cache, kv::SequenceId sequence, int32_t begin,
                                     int32_t end) const {
  const auto found = runs_.find(sequence);
  if (found == runs_.end() || found->second.changes != cache.changes(sequence)) return {end, {}};
  const Run& run = found->second;
  const int32_t first = std::max(begin, run.first_slot);
  if (first >= end || end != run.first_slot + std::ssize(run.tokens)) return {end, {}};
  return {first, std::span(run.tokens).subspan(first - run.first_slot)};
}

}  // namespace weft::engine
