#include "support/plan_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace weft::test {

std::string draw(const engine::StepPlan& plan) {
  std::vector<std::string> parts;
  for (const engine::Preemption& p : plan.preempted)
    parts.push_back(fmt::format("-{}", number(p.id)));
  for (const engine::Admission& a : plan.admitted) {
    parts.push_back(a.reused_tokens == 0 ? fmt::format("+{}", number(a.id))
                                         : fmt::format("+{}@{}", number(a.id), a.reused_tokens));
  }
  for (const engine::Slice& s : plan.slices) {
    const char kind = s.kind == engine::SliceKind::kPrompt      ? 'P'
                      : s.kind == engine::SliceKind::kRecompute ? 'R'
                      : s.kind == engine::SliceKind::kWhole     ? 'W'
                                                                : 'D';
    const bool is_whole = s.kind == engine::SliceKind::kWhole;
    std::string part = fmt::format("{}:{}{}", number(s.id), kind, is_whole ? s.n : s.begin);
    if (s.kind != engine::SliceKind::kDecode && !is_whole)
      part += fmt::format("-{}", s.begin + s.n - 1);
    parts.push_back(part + (s.samples ? "*" : ""));
  }
  return fmt::format("{}", fmt::join(parts, " "));
}

}  // namespace weft::test
