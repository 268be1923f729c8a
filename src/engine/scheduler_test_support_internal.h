// A scheduler's plan in one line, for its tests. Only for these.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/narrow.h"
#include "engine/scheduler.h"

namespace weft::engine {

inline int64_t number(RequestId id) { return to_underlying(id); }

/// A plan as a line: -2 preempted, +3 admitted, +3@4 with 4 tokens reused, then the slices: 0:D8
/// the decode row of request 0 at position 8, 1:P0-5 rows of its prompt, 1:R6-7 tokens computed
/// again, 2:W8 a whole prompt with 8 rows for it. A slice that samples ends in *.
inline std::string draw(const StepPlan& plan) {
  std::vector<std::string> parts;
  for (const Preemption& p : plan.preempted) parts.push_back(fmt::format("-{}", number(p.id)));
  for (const Admission& a : plan.admitted) {
    parts.push_back(a.reused_tokens == 0 ? fmt::format("+{}", number(a.id))
                                         : fmt::format("+{}@{}", number(a.id), a.reused_tokens));
  }
  for (const Slice& s : plan.slices) {
    const char kind = s.kind == SliceKind::kPrompt      ? 'P'
                      : s.kind == SliceKind::kRecompute ? 'R'
                      : s.kind == SliceKind::kWhole     ? 'W'
                                                        : 'D';
    const bool is_whole = s.kind == SliceKind::kWhole;
    std::string part = fmt::format("{}:{}{}", number(s.id), kind, is_whole ? s.n : s.begin);
    if (s.kind != SliceKind::kDecode && !is_whole) part += fmt::format("-{}", s.begin + s.n - 1);
    parts.push_back(part + (s.samples ? "*" : ""));
  }
  return fmt::format("{}", fmt::join(parts, " "));
}

}  // namespace weft::engine
