// Which position each slot of a sequence has: what RoPE and the mask count by. A slot's own number,
// unless tokens were shifted (llama.cpp's K-shift) or their positions divided (Self-Extend, Jin et
// al. 2024, section 3.2: tokens of a group share one). Integers only.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::kv {

/// The slots from `begin` on, up to the next run: position = floor((slot + offset) / divisor).
///
/// Shifts and divisions in any order stay of this form, as floor((floor(x / d) + b) / e) =
/// floor((x + b d) / (d e)).
struct PositionRun {
  int32_t begin = 0;
  int64_t offset = 0;
  int64_t divisor = 1;
  bool operator==(const PositionRun&) const = default;
};

/// A value. Positions never descend from one slot to the next, and are 0 to INT32_MAX. Slots past
/// the sequence's end go on by one from its last token. One thread.
class PositionMap {
 public:
  /// slot >= 0.
  int32_t at(int32_t slot) const;
  /// Whether every slot's position is its number.
  bool is_plain() const { return runs_.empty(); }

  /// Whether shift or divide of the slots [begin, end) of `length` would leave positions in order
  /// and in range; 0 <= begin <= end <= length.
  bool can_shift(int32_t begin, int32_t end, int64_t delta, int32_t length) const;
  bool can_divide(int32_t begin, int32_t end, int64_t divisor, int32_t length) const;
  /// position += delta, for the slots [begin, end).
  void shift(int32_t begin, int32_t end, int64_t delta, int32_t length);
  /// position = position / divisor, for the slots [begin, end); divisor > 0.
  void divide(int32_t begin, int32_t end, int64_t divisor, int32_t length);
  /// The slots [begin, end) go, and those after them come to lie from `begin` on, the first with
  /// the position that slot `begin` had.
  void remove(int32_t begin, int32_t end, int32_t length);
  /// The sequence ends at `length`.
  void cut(int32_t length);

  /// Empty where is_plain().
  const std::vector<PositionRun>& runs() const { return runs_; }
  bool operator==(const PositionMap&) const = default;

 private:
  int64_t value(int64_t slot) const;
  /// A run begins at `slot`.
  void split(int32_t slot);
  bool is_ordered(int32_t length) const;
  void normalise();

  std::vector<PositionRun> runs_;  // begins ascend from 0; empty: one, {}
};

}  // namespace weft::kv
