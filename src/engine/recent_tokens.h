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

  /// The sequence's slots from `slot` on have these now, and no slot has any after them.
  void add(const kv::Cache& cache, kv::SequenceId sequence, int32_t slot,
           std::span<const int32_t> tokens);
  /// Its last change was a dense pass that writes its slots again: the tokens stay.
  void keep(const kv::Cache& cache, kv::SequenceId sequence);
  /// Those of slots [begin, end); none where they are not known, as after a shift.
  std::span<const int32_t> of(const kv::Cache& cache, kv::SequenceId sequence, int32_t begin,
                              int32_t end) const;

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
