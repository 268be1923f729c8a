#include "base/shell_text.h"

#include <algorithm>

namespace weft {

std::string shell_word(std::string_view word) {
  const bool is_plain = std::ranges::all_of(word, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("/._-+,:@%").find(c) != std::string_view::npos;
  });
  if (is_plain && !word.empty()) return std::string(word);
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string shell_path(std::string_view path) {
  return shell_word(path.starts_with('-') ? "./" + std::string(path) : std::string(path));
}

}  // namespace weft
