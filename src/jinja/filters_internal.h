// The two tables of filters: those that make text or numbers (filters_text.cc) and those that walk
// lists and dicts (filters_list.cc). They are split by file only; apply_filter looks into one after
// the other, and a name is in one of them. Internal to the room.
#pragma once

#include <string_view>

#include "jinja/runtime_internal.h"

namespace weft::jinja {

/// `value | name(args)`. It checks its arguments by a Bound first, so that a wrong call fails the
/// same way whatever the value is. Throws Failure.
using FilterFn = Value (*)(Runtime&, const Value&, const Args&);

/// Null where the table has no such filter. The tables are searched from the beginning: they have
/// some twenty rows each, and apply_filter charges the search.
FilterFn find_text_filter(std::string_view name);
FilterFn find_list_filter(std::string_view name);

}  // namespace weft::jinja
