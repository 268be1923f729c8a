// JSON to the values of a template. Objects keep their order; of equal keys the last value counts,
// in the first one's place, as Python's json has it: {"b": 1, "a": 2, "b": 3} is {'b': 3, 'a': 2}.
// Never throws. Thread-safe.
//
// It is the one place where nlohmann::json appears in this room, and only as a stream of events:
// its own tree would lose the order of keys, take a second copy of everything, and be freed by
// recursion.
#pragma once

#include <string>
#include <string_view>

#include "jinja/limits.h"
#include "jinja/result.h"
#include "jinja/value.h"

namespace weft::jinja {

/// The value of one JSON text (RFC 8259), which must be valid UTF-8. Every string and number of it
/// is of `origin`. Fails on malformed JSON with line and column ("line 2, column 3: not valid
/// JSON"), past the limits' collection and nesting sizes, and for integers beyond 64 bits, which
/// Python would keep and a double would round.
Result<Value> parse_json(std::string_view json, Origin origin = Origin::kInput,
                         const Limits& limits = {});

}  // namespace weft::jinja
