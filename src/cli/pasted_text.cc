#include "cli/pasted_text.h"

#include <algorithm>
#include <array>

#include "base/terminal_text.h"
#include "base/utf8.h"

namespace weft::cli {
namespace {

// Shown for a break or a tab: the first that the text itself does not hold.
constexpr std::array<std::string_view, 4> kBreakSigns = {"\u21b5", "\u23ce", "\u2424", "\u00b6"};
constexpr std::array<std::string_view, 4> kTabSigns = {"\u21e5", "\u2192", "\u2409", "\u00bb"};

std::string_view pick(const std::array<std::string_view, 4>& signs, std::string_view text) {
  const auto absent = [&](std::string_view sign) {
    return text.find(sign) == std::string_view::npos;
  };
  const auto* found = std::ranges::find_if(signs, absent);
  return found == signs.end() ? signs.front() : *found;
}

void replace_all(std::string& line, std::string_view sign, char by) {
  std::string out;
  size_t begin = 0;
  for (size_t at = 0; (at = line.find(sign, begin)) != std::string::npos;) {
    out.append(line, begin, at - begin).push_back(by);
    begin = at + sign.size();
  }
  line = out.append(line, begin);
}

}  // namespace

std::string PastedText::as_line(std::string_view text) {
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  std::string line;
  TerminalChars chars;
  size_t n_bytes = 0;
  for (size_t at = 0; at < text.size(); at += std::max<size_t>(n_bytes, 1)) {
    const char c = text[at];
    n_bytes = utf8_char_bytes(text, at);  // 0: no UTF-8, which the editor shows as U+FFFD
    if (c == '\r' && at + 1 < text.size() && text[at + 1] == '\n') continue;
    if (c == '\n' || c == '\r') {
      if (break_sign_.empty()) break_sign_ = pick(kBreakSigns, text);
      line += break_sign_;
    } else if (c == '\t') {
      if (tab_sign_.empty()) tab_sign_ = pick(kTabSigns, text);
      line += tab_sign_;
    } else if (n_bytes == 0) {
      line += c;
    } else if (chars.may_show(decode_utf8_char(text, at, n_bytes))) {
      line += text.substr(at, n_bytes);
    }
  }
  return line;
}

void PastedText::put_back(std::string& line) const {
  if (!break_sign_.empty()) replace_all(line, break_sign_, '\n');
  if (!tab_sign_.empty()) replace_all(line, tab_sign_, '\t');
}

void PastedText::clear() { *this = {}; }

}  // namespace weft::cli
