// The KV cache's whole metadata at one moment, as plain integers: for the invariant checker, tests
// and reports. A copy; nothing in it refers to the cache.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/page_pool.h"
#include "kv/prefix_index.h"
#include "kv/sequence.h"

namespace weft::kv {

struct Snapshot {
  struct Page {
    int32_t ref_count = 0;
    uint32_t generation = 0;
    bool operator==(const Page&) const = default;
  };
  struct NamedSequence {
    SequenceId id{};
    Sequence sequence;
  };

  int32_t page_tokens = 0;
  int32_t window_tokens = 0;  // 0: none
  std::vector<Page> pages;
  std::vector<int32_t> free_list;  // as they are handed out
  int32_t used_end = 0;            // one more than the highest used page, as the free list knows it
  int32_t memory_end = 0;          // pages from here on have no memory
  std::vector<NamedSequence> sequences;
  std::vector<PrefixIndex::Entry> prefix_entries;
  std::vector<int32_t> unused_pages;  // that the prefix index alone holds, the next to go first
};

}  // namespace weft::kv
