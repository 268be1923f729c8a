// When the KV cache's pages in use are joined at its low end, and which of them move: policy as
// plain integers. It moves nothing itself (BlockTables does), and knows no sequence.
//
// Pages have no holes inside that would have to be joined: Cache::remove moves the later tokens
// together, so that a sequence of n tokens has ceil(n / page_tokens) pages whatever was taken out
// of it. What is left to do is that pages in use lie low, so that the memory above them can go
// back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kv/free_pages.h"

namespace weft::kv {

/// When it begins, and how much of it a step does.
struct CompactionRule {
  /// Pages that may have memory beside the used ones: this many, or used / slack_divisor where that
  /// is more. Below a tenth, so that with what memory pages round up to it stays one.
  int32_t slack_pages = 8;
  int32_t slack_divisor = 16;
  /// Copied by a step, some 0.5 ms at 4 GB/s; a page at least.
  int64_t moved_bytes = int64_t{2} << 20;
  /// Given back by a step: in pages of 4 KB some 20 us a MB.
  int64_t returned_bytes = int64_t{16} << 20;
};

/// What a step did.
struct CompactionStep {
  int32_t moved_pages = 0;
  int32_t returned_pages = 0;  // whose memory went back
  bool goes_on = false;        // more is to be done, in the next step
};

/// Whether so many pages with memory are too many for those in use.
bool is_sparse(int32_t used_pages, int32_t memory_end, const CompactionRule& rule);

/// Of pages of `page_bytes` (>= 0) that a step may do `bytes` of: at least one.
int32_t pages_of_step(int64_t bytes, int64_t page_bytes);

struct PageMove {
  int32_t from = 0;
  int32_t to = 0;  // < from
};
/// The highest used pages that are not pinned, each to the lowest free one that is left, as long as
/// that is lower: at most so many, `from` descending and `to` ascending. pinned: [pages].
std::vector<PageMove> plan_moves(const FreePages& pages, const std::vector<bool>& pinned,
                                 int32_t most);

/// Where the page goes in these moves, or `page`.
int32_t moved_to(std::span<const PageMove> moves, int32_t page);

}  // namespace weft::kv
