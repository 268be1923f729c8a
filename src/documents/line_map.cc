// A line number for each byte of a text would take many times the text. Numbers of lines mostly go
// up by one, so only the distances are kept, 7 bits a byte with the high bit for "more follows"
// (LEB128): about a byte a line. Looking up one offset would then read all steps before it; a
// checkpoint before every 64th step bounds that, and a binary search finds the checkpoint.
#include "documents/line_map.h"

#include <algorithm>

#include "base/check.h"

namespace weft::documents {
namespace {

/// A checkpoint takes 24 bytes, so less than half a byte for each step.
constexpr uint64_t kStepsPerCheckpoint = 64;

void put_number(uint64_t value, std::vector<uint8_t>& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(value | 0x80);
  out.push_back(value);
}

uint64_t take_number(const std::vector<uint8_t>& bytes, size_t& at) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const uint8_t byte = bytes[at++];
    value |= uint64_t{byte & 0x7fU} << shift;
    if (byte < 0x80) return value;
  }
}

}  // namespace

void LineMap::add(uint64_t offset, uint64_t line) {
  WEFT_CHECK(offset >= offset_ && line >= line_);
  if (line == line_) return;
  if (n_steps_++ % kStepsPerCheckpoint == 0) {
    checkpoints_.push_back({offset_, line_, steps_.size()});
  }
  const uint64_t lines = line - line_;
  put_number((offset - offset_) << 1 | (lines == 1 ? 0 : 1), steps_);
  if (lines != 1) put_number(lines, steps_);
  offset_ = offset;
  line_ = line;
}

uint64_t LineMap::line_of(uint64_t offset) const {
  if (offset >= offset_) return line_;
  // The last checkpoint at or before the offset. Its up to 64 steps reach to the next checkpoint.
  auto found = std::upper_bound(checkpoints_.begin(), checkpoints_.end(), offset,
                                [](uint64_t at, const Checkpoint& c) { return at < c.offset; });
  if (found == checkpoints_.begin()) return 1;
  --found;
  uint64_t line = found->line;
  uint64_t begin = found->offset;
  for (size_t at = found->next_step; at < steps_.size();) {
    const uint64_t step = take_number(steps_, at);
    begin += step >> 1;
    if (begin > offset) break;
    line += (step & 1) == 0 ? 1 : take_number(steps_, at);
  }
  return line;
}

LineMap LineMap::of_lines(std::string_view text, uint64_t first_line) {
  LineMap map;
  map.add(0, first_line);
  for (size_t end = text.find('\n'); end != std::string_view::npos;
       end = text.find('\n', end + 1)) {
    map.add(end + 1, ++first_line);
  }
  return map;
}

}  // namespace weft::documents
