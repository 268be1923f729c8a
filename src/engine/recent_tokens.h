// Which tokens sequences ended with: a dense pass runs them again, and the cache does not know
// them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "kv/cache.h"

namespace weft::engine {

/// One thread.
class RecentTokens {
 public:
  /// So many of each sequence are kept.
  explicit RecentTokens(int64_t most) : most_(most) {}

  /// The sequence's slots from `slot` on have these now, and no slot has any after them: told of
  /// rows that are committed, not of what is tried. Other slots between two calls, as a prompt's,
  /// are not known.
  void add(const kv::Cache& cache, kv::SequenceId sequence, int32_t slot,
           std::span<const int32_t> tokens);
  /// Its last change was a dense pass that writes its slots again: the tokens stay.
  void keep(const kv::Cache& cache, kv::SequenceId sequence);
  struct Known {
    int32_t first_slot = 0;
    std::span<const int32_t> tokens;  // valid until the next call that changes something
  };
  /// Of the slots [begin, end) the last ones whose tokens are known: not those before a prompt's or
  /// a shift.
  Known of(const kv::Cache& cache, kv::SequenceId sequence, int32_t begin, int32_t end) const;
  void forget(kv::SequenceId sequence) noexcept { runs_.erase(sequence); }

 private:
  struct Run {
    int64_t changes = 0;  // of the sequence, when they were added
    int32_t first_slot = 0;
    std::vector<int32_t> tokens;
  };
  int64_t most_;
  std::map<kv::SequenceId, Run> runs_;
};

}  // namespace weft::engine
