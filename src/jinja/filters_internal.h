// The two tables of filters. Internal to the room.
#pragma once

#include <string_view>

#include "jinja/runtime_internal.h"

namespace weft::jinja {

using FilterFn = Value (*)(Runtime&, const Value&, const Args&);

/// Null where the table has no such filter.
FilterFn find_text_filter(std::string_view name);
FilterFn find_list_filter(std::string_view name);

}  // namespace weft::jinja
