// A line editor has one line, and a paste may have many: ended at the first break, the others would
// be questions of their own. So a break is shown as one character, U+21B5, edited and deleted as
// one, and put back when the line is done. A text that holds that character itself gets the next of
// four; one that holds all four (a page about arrows) would have its own turned into breaks, too,
// which is the price.
#include "cli/pasted_text.h"

#include <algorithm>
#include <array>

#include "base/terminal_text.h"
#include "base/utf8.h"

namespace weft::cli {
namespace {

// Shown for a break or a tab: the first that the text itself does not hold.
constexpr std::array<std::string_view, 4> kBreakSymbols = {"\u21b5", "\u23ce", "\u2424", "\u00b6"};
constexpr std::array<std::string_view, 4> kTabSymbols = {"\u21e5", "\u2192", "\u2409", "\u00bb"};

/// Once for all pastes of a line: a second paste with the symbol in it is the same price.
std::string_view pick(const std::array<std::string_view, 4>& symbols, std::string_view text) {
  const auto absent = [&](std::string_view symbol) {
    return text.find(symbol) == std::string_view::npos;
  };
  const auto* found = std::ranges::find_if(symbols, absent);
  return found == symbols.end() ? symbols.front() : *found;
}

void replace_all(std::string& line, std::string_view symbol, char by) {
  std::string out;
  size_t begin = 0;
  for (size_t at = 0; (at = line.find(symbol, begin)) != std::string::npos;) {
    out.append(line, begin, at - begin).push_back(by);
    begin = at + symbol.size();
  }
  line = out.append(line, begin);
}

}  // namespace

/// "one\r\ntwo\r" is "one" and "two" with one symbol between: terminals send a break as \r, and
/// some texts have \r\n.
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
      if (break_symbol_.empty()) break_symbol_ = pick(kBreakSymbols, text);
      line += break_symbol_;
    } else if (c == '\t') {
      if (tab_symbol_.empty()) tab_symbol_ = pick(kTabSymbols, text);
      line += tab_symbol_;
    } else if (n_bytes == 0) {
      line += c;
    } else if (chars.may_show(decode_utf8_char(text, at, n_bytes))) {
      line += text.substr(at, n_bytes);
    }
  }
  return line;
}

void PastedText::put_back(std::string& line) const {
  if (!break_symbol_.empty()) replace_all(line, break_symbol_, '\n');
  if (!tab_symbol_.empty()) replace_all(line, tab_symbol_, '\t');
}

void PastedText::clear() { *this = {}; }

}  // namespace weft::cli
