// Numbers of bytes as flags take them and as reports show them: units without an i are powers of
// 1000, those with one powers of 1024, so that what is printed means the same when it is given.
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

struct ByteSize {
  uint64_t bytes = 0;
  bool has_unit = false;
};
/// 512MB, "1.5 GB", 10GiB, 4096; any case, and spaces only between number and unit. KB to EB are
/// powers of 1000, KiB to EiB of 1024, and so are K to E alone, as GNU's tools have it. Rounded to
/// a whole byte. nullopt: none, or too large.
std::optional<ByteSize> parse_byte_size(std::string_view text);

/// "830 KB", "1.2 GB": to two or three digits.
std::string size_text(uint64_t bytes);

/// As a flag takes it: exactly these bytes, as "200KB" or "3GiB".
std::string size_flag(uint64_t bytes);

/// As a flag takes it: these bytes or a few more, in three digits, as "12.4MB".
std::string size_flag_for(uint64_t bytes);

}  // namespace weft
