// When a selection of pages is kept (sparse/selection_locks.h), and how often it was.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/names.h"

namespace weft::sparse {

/// What happens at a checkpoint.
enum class Checkpoint {
  kSelect,  // the newest row chooses by its policy
  kDense,  // it and the rows since the last one run again over all pages, which makes their K and V
           // those of dense decoding; what these rows attend to is the choice
};
inline constexpr Names kCheckpoints({
    Named{Checkpoint::kSelect, "select"},
    Named{Checkpoint::kDense, "dense"},
});

/// Tokens between dense checkpoints at most: they run in one step.
inline constexpr int32_t kMostRewritten = 64;

struct LockOptions {
  int32_t interval_tokens = 0;   // between checkpoints; 0: no locks, every step chooses
  int32_t duration_tokens = 16;  // so long after it was made a lock is made anew, compared or not
  int32_t update_threshold = 2;  // more pages than that, added and removed, replace a selection
  Checkpoint checkpoint = Checkpoint::kSelect;
  bool drafts_share =
      true;  // the model's own drafts read what is kept; else they choose themselves

  bool is_on() const { return interval_tokens > 0; }
};
/// Where nobody says how long a lock lasts: KVStar's 16, and so long that it is compared once.
constexpr int32_t usual_duration(int32_t interval_tokens) {
  return std::max(LockOptions().duration_tokens, 2 * interval_tokens);
}

/// Of all sequences since the beginning.
struct LockCounters {
  int64_t locks = 0;
  int64_t unlocks = 0;
  int64_t checkpoints = 0;
  // Of the selections that checkpoints compared, one of each layer and KV head:
  int64_t kept = 0;
  int64_t updated = 0;
  int64_t locked_reads = 0;  // rows of a layer that read what was kept, and chose nothing
  // Of the rows of drafts by the model itself that were verified with pages of their own, a
  // selection of each layer and KV head, and those that were not the draft's:
  int64_t compared_drafts = 0;
  int64_t inconsistencies = 0;
};

}  // namespace weft::sparse
