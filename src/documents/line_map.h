// Where a text came from: the line in the original file of each of a text's bytes, as grep counts
// lines. A reader that leaves out or joins what was between says so as it goes. It knows nothing of
// files and holds no text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace weft::documents {

/// About a byte for each line of the text. Thread-safe to read; one thread adds.
class LineMap {
 public:
  /// From `offset` of the text on the original's line is `line` (1-based). Neither may be less than
  /// in the call before.
  void add(uint64_t offset, uint64_t line);
  /// The line of the text's byte at `offset`; 1 before the first that was added.
  uint64_t line_of(uint64_t offset) const;
  /// The lines of a text that is the original's own, from its line `first_line` on.
  static LineMap of_lines(std::string_view text, uint64_t first_line = 1);

 private:
  struct Checkpoint {
    uint64_t offset;
    uint64_t line;
    size_t next_step;  // in steps_
  };
  /// Pairs of numbers, 7 bits a byte: twice the bytes of text since the pair before, plus 1 where
  /// more than one line lies between; then, only in that case, how many.
  std::vector<uint8_t> steps_;
  std::vector<Checkpoint> checkpoints_;  // before every 64th step
  uint64_t n_steps_ = 0;
  uint64_t offset_ = 0;  // of the last step; every later byte is of line_
  uint64_t line_ = 1;
};

}  // namespace weft::documents
