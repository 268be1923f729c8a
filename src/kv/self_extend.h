// Self-Extend (Jin et al. 2024, "LLM Maybe LongLM", section 3.2; llama.cpp's --grp-attn-n and
// --grp-attn-w): a model reads past its context without being trained for it. The newest tokens
// keep positions of their own, those before them share one in groups, so that no distance is larger
// than those that the model knows. Integers only.
#pragma once

#include <cstdint>
#include <limits>

#include "base/status.h"
#include "kv/positions.h"

namespace weft::kv {

/// Of a sequence that is `length` tokens long, the first grouped(length) share positions,
/// floor(slot / group_tokens); those after them, at least neighbour_tokens and less than one and a
/// half times as many, go on by one from there. What is grouped follows from the length alone, so
/// that a text gets the same positions however it came in, also after it was cut. A value; any
/// thread.
struct SelfExtend {
  int32_t group_tokens = 1;      // 1: positions are left alone
  int32_t neighbour_tokens = 0;  // 0: none has a position of its own, all are grouped

  bool is_on() const { return group_tokens > 1; }
  /// kInvalidArgument, with the flags' names, unless a group is of 1 to kMostGroupTokens and the
  /// neighbours are whole groups (or none).
  Status check() const;

  /// How many of the first tokens are grouped for a row in slot `slot` >= 0.
  int32_t grouped(int32_t slot) const;
  /// Whether that row and all before it are at positions of their own.
  bool is_plain(int32_t slot) const {
    return !is_on() || (neighbour_tokens > 0 && grouped(slot) == 0);
  }
  /// The first slot after `slot` for which more are: a step's rows do not go past it.
  int32_t next_change(int32_t slot) const;
  /// For rows in the slots [begin, end), which have one grouped(): positions of all slots below
  /// `end`.
  PositionMap positions(int32_t begin, int32_t end) const;
  /// Of a text that grows, tokens that get other positions at a time, at most.
  int32_t turned_tokens() const {
    return is_on() && neighbour_tokens > 0 ? neighbour_tokens + 2 * block_tokens() : 0;
  }
  /// The largest position in a text of n_tokens > 0.
  int32_t last_position(int32_t n_tokens) const;
  bool operator==(const SelfExtend&) const = default;

 private:
  /// So many tokens are grouped at a time.
  int32_t block_tokens() const;
};

inline constexpr int32_t kMostGroupTokens = 256;
/// For neighbour_tokens: so many that a model of model_tokens has room for groups beside them,
/// engine::context_size says how many.
inline constexpr int32_t kUsualNeighbours = -1;
/// At most.
inline constexpr int32_t kUsualNeighbourTokens = 1024;

}  // namespace weft::kv
