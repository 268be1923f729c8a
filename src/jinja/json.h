// JSON to the values of a template. Objects keep their order; of equal keys the last value counts,
// in the first one's place, as Python's json has it. Never throws. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "jinja/limits.h"
#include "jinja/result.h"
#include "jinja/value.h"

namespace weft::jinja {

/// Every string and number of it is of this origin. Fails on malformed JSON with line and column,
/// past the limits' collection and nesting sizes, and for integers beyond 64 bits.
Result<Value> parse_json(std::string_view json, Origin origin = Origin::kInput,
                         const Limits& limits = {});

}  // namespace weft::jinja
