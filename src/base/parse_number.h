// A text that is a number as a whole: "0.5x" is none, so that a typo is not read as its beginning.
#pragma once

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace weft {

/// All of `text` as a number: decimal, no sign but "-", no white space, no locale's comma; nullopt
/// where it is none, or none of this type. "1e400" and "nan" are none; "1e-60" for a float is 0.
template <class T>
std::optional<T> parse_number(std::string_view text) {
  // A float is read as a double: what is too small for a float is its 0, not out of range.
  std::conditional_t<std::is_floating_point_v<T>, double, T> value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if constexpr (std::is_floating_point_v<T>) {
    if (!(std::fabs(value) <= double{std::numeric_limits<T>::max()})) return std::nullopt;
  }
  return static_cast<T>(value);
}

/// The same into `value`, which stays as it is where the text is no such number (false).
template <class T>
bool parse_number(std::string_view text, T& value) {
  const std::optional<T> number = parse_number<T>(text);
  if (number) value = *number;
  return number.has_value();
}

}  // namespace weft
