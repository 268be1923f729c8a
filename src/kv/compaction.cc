// The highest used page to the lowest free one: each copy takes a page off the end that is to go
// back, so nothing moves twice, and as few move as can. (llama.cpp's defragmentation moved cells
// likewise, from the end into the first hole.)
#include "kv/compaction.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "base/narrow.h"

namespace weft::kv {

bool is_sparse(int32_t used_pages, int32_t memory_end, const CompactionRule& rule) {
  const int32_t slack = std::max(rule.slack_pages, used_pages / rule.slack_divisor);
  return memory_end - used_pages > slack;
}

int32_t pages_of_step(int64_t bytes, int64_t page_bytes) {
  WEFT_CHECK(bytes >= 0 && page_bytes >= 0);
  const int64_t n_pages = bytes / std::max<int64_t>(page_bytes, 1);
  return narrow<int32_t>(std::clamp<int64_t>(n_pages, 1, INT32_MAX));
}

std::vector<PageMove> plan_moves(const FreePages& pages, const std::vector<bool>& pinned,
                                 int32_t most) {
  std::vector<PageMove> moves;
  int32_t to = pages.free().first();
  int32_t from = pages.used().last();
  while (std::ssize(moves) < most && to >= 0 && to < from) {
    if (!pinned[from]) {
      moves.push_back({from, to});
      to = pages.free().first_after(to);
    }
    from = pages.used().last_before(from);
  }
  return moves;
}

int32_t moved_to(std::span<const PageMove> moves, int32_t page) {
  if (moves.empty() || page < moves.back().from) return page;  // as most are
  const auto move = std::ranges::lower_bound(moves, page, std::ranges::greater{}, &PageMove::from);
  return move != moves.end() && move->from == page ? move->to : page;
}

}  // namespace weft::kv
