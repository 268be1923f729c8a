// A scheduler's plan in one line.
#pragma once

#include <cstdint>
#include <string>

#include "engine/scheduler.h"

namespace weft::test {

inline int64_t number(engine::RequestId id) { return static_cast<int64_t>(id); }

/// A plan as a line: -2 preempted, +3 admitted, +3@4 with 4 tokens reused, then the slices: 0:D8
/// the decode row of request 0 at position 8, 1:P0-5 rows of its prompt, 1:R6-7 tokens computed
/// again, 2:W8 a whole prompt with 8 rows for it. A slice that samples ends in *.
std::string draw(const engine::StepPlan& plan);

}  // namespace weft::test
