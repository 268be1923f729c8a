#include "base/terminal_text.h"

#include <algorithm>
#include <span>

#include "base/utf8.h"

namespace weft {
namespace {

struct CharRange {
  char32_t first;
  char32_t last;
};

// Unicode 15: controls (general category Cc) and what is invisible by its property
// Default_Ignorable_Code_Point, without the joiners and selectors; U+2028-9 and U+FFF9-B besides.
constexpr CharRange kHarmful[] = {
    {0x0000, 0x0008},   {0x000B, 0x001F},   {0x007F, 0x009F},   {0x00AD, 0x00AD},
    {0x034F, 0x034F},   {0x061C, 0x061C},   {0x115F, 0x1160},   {0x17B4, 0x17B5},
    {0x180E, 0x180E},   {0x200B, 0x200B},   {0x200E, 0x200F},   {0x2028, 0x202E},
    {0x2060, 0x206F},   {0x3164, 0x3164},   {0xFEFF, 0xFEFF},   {0xFFA0, 0xFFA0},
    {0xFFF0, 0xFFFB},   {0x1BCA0, 0x1BCA3}, {0x1D173, 0x1D17A}, {0xE0000, 0xE00FF},
    {0xE01F0, 0xE0FFF},
};

constexpr CharRange kSelectors[] = {
    {0x180B, 0x180D}, {0x180F, 0x180F}, {0xFE00, 0xFE0F}, {0xE0100, 0xE01EF}};

// Blocks of scripts whose letters join or form conjuncts, and of symbols that emoji are made of.
constexpr CharRange kJoinable[] = {
    {0x00A9, 0x00A9}, {0x00AE, 0x00AE}, {0x0590, 0x109F},   {0x1780, 0x1CFF},   {0x203C, 0x203C},
    {0x2049, 0x2049}, {0x2122, 0x2122}, {0x2139, 0x2139},   {0x2190, 0x2BFF},   {0x3030, 0x3030},
    {0x303D, 0x303D}, {0x3297, 0x3297}, {0x3299, 0x3299},   {0xA800, 0xAAFF},   {0xABC0, 0xABFF},
    {0xFB1D, 0xFDFF}, {0xFE70, 0xFEFE}, {0x10800, 0x11FFF}, {0x1E900, 0x1E95F}, {0x1F000, 0x1FAFF},
};

constexpr std::string_view kReplacement = "\uFFFD";

bool in_ranges(std::span<const CharRange> ranges, char32_t c) {
  const auto after = std::ranges::upper_bound(ranges, c, {}, &CharRange::first);
  return after != ranges.begin() && c <= std::prev(after)->last;
}

/// Beside most symbols and letters the digits and signs of key caps can have one.
bool takes_selector(char32_t c) {
  return c >= 0x80 || (c >= '0' && c <= '9') || c == '#' || c == '*';
}

}  // namespace

bool TerminalChars::may_show(char32_t c) {
  if (c == 0x200C || c == 0x200D) {
    if (joined_ || !in_ranges(kJoinable, base_)) return false;
    joined_ = true;
    return true;
  }
  if (in_ranges(kSelectors, c)) {
    if (joined_ || selected_ || !takes_selector(base_)) return false;
    selected_ = true;
    return true;
  }
  const bool shown = !in_ranges(kHarmful, c);
  base_ = shown ? c : 0;
  selected_ = joined_ = false;
  return shown;
}

std::string TerminalText::add(std::string_view piece) {
  std::string joined;
  if (!waiting_.empty()) {
    joined = waiting_.append(piece);
    waiting_.clear();
    piece = joined;
  }
  const size_t end = piece.size() - utf8_unfinished_bytes(piece);
  std::string out;
  out.reserve(piece.size());
  for (size_t at = 0; at < end;) {
    const size_t n = utf8_char_bytes(piece, at);
    const std::string_view bytes = piece.substr(at, std::max<size_t>(n, 1));
    at += bytes.size();
    if (bytes == "\r") {
      if (at == piece.size()) {
        waiting_ = bytes;
        return out;
      }
      if (piece[at] == '\n') continue;
    }
    const bool shown = chars_.may_show(n == 0 ? U'\uFFFD' : decode_utf8_char(bytes, 0, n));
    out += shown && n > 0 ? bytes : kReplacement;
  }
  waiting_ = piece.substr(end);
  return out;
}

std::string TerminalText::finish() {
  std::string out;
  for (size_t i = 0; i < waiting_.size(); ++i) out += kReplacement;
  *this = {};
  return out;
}

std::string terminal_text(std::string_view text) {
  TerminalText shown;
  std::string out = shown.add(text);
  return out += shown.finish();
}

std::string one_line(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n' || c == '\r') {
      out += kReplacement;
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace weft
