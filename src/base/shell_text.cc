#include "base/shell_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/ascii.h"
#include "base/terminal_text.h"
#include "base/utf8.h"

namespace weft {
namespace {

/// Of each byte, whether a terminal gets it as it is, and a shell from the terminal.
std::vector<bool> shown_bytes(std::string_view word) {
  std::vector<bool> shown(word.size(), false);
  TerminalChars chars;
  for (size_t at = 0; at < word.size();) {
    const size_t n = utf8_char_bytes(word, at);
    const char32_t c = n == 0 ? U'\uFFFD' : decode_utf8_char(word, at, n);
    const bool is_break = c == '\t' || c == '\n';  // a tab asks a shell to complete
    const bool is_shown = chars.may_show(c) && n > 0 && !is_break;
    const size_t end = at + std::max<size_t>(n, 1);
    for (; at < end; ++at) shown[at] = is_shown;
  }
  return shown;
}

/// $'…' of bash, zsh and POSIX since 2024. Three octal digits end where they end, whatever follows;
/// a ! could call back a line.
std::string with_escapes(std::string_view word, const std::vector<bool>& shown) {
  std::string out = "$'";
  for (size_t i = 0; i < word.size(); ++i) {
    const char c = word[i];
    const bool is_plain = shown[i] && c != '\'' && c != '\\' && c != '!';
    out += is_plain ? std::string(1, c) : fmt::format("\\{:03o}", c & 0xff);
  }
  return out + "'";
}

}  // namespace

std::string shell_word(std::string_view word) {
  const bool is_plain = std::ranges::all_of(word, [](char c) {
    return is_ascii_alnum(c) || std::string_view("/._-+,:@%").find(c) != std::string_view::npos;
  });
  if (is_plain && !word.empty()) return std::string(word);
  const std::vector<bool> shown = shown_bytes(word);
  if (std::ranges::find(shown, false) != shown.end()) return with_escapes(word, shown);
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string shell_path(std::string_view path) {
  return shell_word(path.starts_with('-') ? "./" + std::string(path) : std::string(path));
}

}  // namespace weft
