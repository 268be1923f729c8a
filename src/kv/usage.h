// What the pages of the KV cache are used for, as one pure function over its metadata: for reports.
#pragma once

#include <cstdint>

#include "kv/snapshot.h"

namespace weft::kv {

/// Of one group of layers. pages = free + cached + held.
struct PageUse {
  int32_t page_tokens = 0;
  int32_t pages = 0;
  int32_t free = 0;
  int32_t cached = 0;  // only the prefix index has them: dropped when others need them
  int32_t held = 0;    // by sequences
  int32_t shared = 0;  // of the held ones, those of several sequences
  int64_t tokens = 0;  // in held pages; what sequences share counts once

  int32_t used() const { return cached + held; }
  int64_t held_slots() const { return int64_t{held} * page_tokens; }
  /// In held pages, without a token: the ends of last pages, and what is reserved and not written.
  int64_t wasted_slots() const { return held_slots() - tokens; }
  /// Of the slots of held pages, 0 to 1.
  double wasted_share() const { return held == 0 ? 0 : 1.0 * wasted_slots() / held_slots(); }
};

/// Of a snapshot without violations.
PageUse page_use(const Snapshot& snapshot);

}  // namespace weft::kv
