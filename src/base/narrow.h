// Conversions between number types that look whether the value fits. Few are needed: where a count
// or an index is int64_t from its beginning there is nothing to convert (CONTRIBUTING.md says
// when).
#pragma once

#include <concepts>
#include <type_traits>
#include <utility>

#include "base/check.h"

namespace weft {

/// The same number as a To. For a value that is known to fit because something else has bounded it
/// (a count of tokens, of pages, of layers); what input can make too large is an error before it
/// comes here. Aborts where it does not fit. Not for inner loops.
template <std::integral To, std::integral From>
constexpr To narrow(From value) {
  WEFT_CHECK(std::in_range<To>(value));
  return static_cast<To>(value);
}

/// An enumerator's number, as std::to_underlying of C++23.
template <class Enum>
constexpr std::underlying_type_t<Enum> to_underlying(Enum value) {
  return static_cast<std::underlying_type_t<Enum>>(value);
}

}  // namespace weft
