// A sequence's place in the KV cache: its ordered pages and how many tokens they hold. Plain data;
// only BlockTables changes it.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/page_pool.h"
#include "kv/positions.h"

namespace weft::kv {

/// Names a sequence of one cache; never used again after the sequence was freed.
enum class SequenceId : int64_t {};

/// What made a slot's K and V.
enum class SlotKind : uint8_t {
  kPrompt,  // a prompt's row: what the token ids before it alone determine
  kDecode,  // a generated token's row: decode's arithmetic
  kFused,   // a chunk placed by a fusion, or a row that saw one, or one that saw tokens that were
            // removed or moved since: depends on more than token ids
};

/// Slots from the end of the run before up to `end`.
struct SlotRun {
  int32_t end = 0;
  SlotKind kind = SlotKind::kPrompt;
  bool operator==(const SlotRun&) const = default;
};

/// A page that an open reservation replaced by a copy; it goes back to `slot` on rollback.
struct ReplacedPage {
  int32_t slot = 0;
  PageHandle old_page;
};

/// In a block table: the page was given back, as its slots had left the layers' window.
inline constexpr int32_t kNoPage = -1;

/// Slot s has its K and V in page pages[s / page_tokens], at s % page_tokens.
struct Sequence {
  std::vector<int32_t> pages;         // the block table, for length + reserved tokens
  int32_t first_page = 0;             // of `pages`, those before it are kNoPage
  std::vector<uint32_t> generations;  // of `pages`, as they were when the sequence took them
  int32_t length = 0;                 // committed tokens
  std::vector<SlotRun> kinds;         // of committed and reserved slots, ends ascending
  PositionMap positions;              // of all slots
  int32_t reserved = 0;               // tokens after them that an open reservation may write
  bool has_reservation = false;
  int64_t changes = 0;                 // of committed slots
  std::vector<ReplacedPage> replaced;  // held for the open reservation's rollback
};

}  // namespace weft::kv
