#include "base/counts_text.h"

#include <fmt/format.h>

namespace weft {

std::string grouped_digits(int64_t n) {
  std::string digits = fmt::format("{}", n);
  const size_t first = n < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string counted(int64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", grouped_digits(n), noun, n == 1 ? "" : "s");
}

}  // namespace weft
