// The paper has two attentions, one over grouped positions and one over the neighbours', merged by
// each query's distance. Here, as in llama.cpp, a key has one position at a time, so that attention
// stays what it is: the border between grouped and not moves by blocks, and K is turned when it
// does. llama.cpp groups a whole window at once, down to the newest token, and lets the window grow
// again; here at least neighbour_tokens keep their positions. A block of half of them turns each
// key three times in its life (once f16's last bit each), and a prompt goes in steps of a block;
// with a quarter it would be five times, and shorter steps for prefill.
#include "kv/self_extend.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/narrow.h"

namespace weft::kv {

Status SelfExtend::check() const {
  if (group_tokens < 1 || group_tokens > kMostGroupTokens) {
    return invalid_argument(fmt::format("--grp-attn-n {}: must be from 1 to {} tokens of a group",
                                        group_tokens, kMostGroupTokens));
  }
  if (neighbour_tokens >= 0 && neighbour_tokens % group_tokens == 0) return Status::ok();
  return invalid_argument(fmt::format(
      "--grp-attn-w {}: must be a multiple of --grp-attn-n {}, as {}", neighbour_tokens,
      group_tokens, std::max(1, neighbour_tokens / group_tokens) * int64_t{group_tokens}));
}

int32_t SelfExtend::block_tokens() const {
  return std::max(1, neighbour_tokens / 2 / group_tokens) * group_tokens;
}

int32_t SelfExtend::grouped(int32_t slot) const {
  if (!is_on()) return 0;
  if (neighbour_tokens == 0) return slot;
  const int32_t before = std::max(0, slot - neighbour_tokens);
  return before - before % block_tokens();
}

int32_t SelfExtend::next_change(int32_t slot) const {
  if (!is_on() || neighbour_tokens == 0) return std::numeric_limits<int32_t>::max();
  const int64_t next = int64_t{grouped(slot)} + block_tokens() + neighbour_tokens;
  return narrow<int32_t>(std::min<int64_t>(next, std::numeric_limits<int32_t>::max()));
}

PositionMap SelfExtend::positions(int32_t begin, int32_t end) const {
  PositionMap map;
  if (!is_on()) return map;
  const int32_t n_grouped = neighbour_tokens == 0 ? end : grouped(begin);
  map.divide(0, n_grouped, group_tokens, end);
  map.shift(n_grouped, end, n_grouped / group_tokens - n_grouped, end);
  return map;
}

// Positions rise by one until a block more is grouped, and fall back then.
int32_t SelfExtend::last_position(int32_t n_tokens) const {
  const int32_t last = n_tokens - 1;
  if (!is_on()) return last;
  if (neighbour_tokens == 0) return last / group_tokens;
  const auto position = [&](int32_t slot) {
    return slot - grouped(slot) + grouped(slot) / group_tokens;
  };
  if (grouped(last) == 0) return position(last);
  return std::max(position(last), position(grouped(last) + neighbour_tokens - 1));
}

}  // namespace weft::kv
