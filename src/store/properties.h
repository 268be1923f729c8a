// The store's own small facts (its anchor, what the rooms above add): names and values in one text
// file with a version and a checksum. Knows the format only; the chunk store reads and writes it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace weft::store {

constexpr uint64_t kMaxPropertiesBytes = 64u << 10;

using Properties = std::map<std::string, std::string>;

/// kInvalidArgument when the name is not 1 to 64 of [a-z0-9_.-].
Status check_property_name(std::string_view name);
/// "weft-store 1 CHECKSUM", then one name=value a line; values with \\, \n and \r escaped.
std::string encode_properties(const Properties& properties);
/// kCorrupt, kUnsupported; `file` is put before the message.
Result<Properties> decode_properties(std::string_view text, std::string_view file);

}  // namespace weft::store
