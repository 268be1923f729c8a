#include <algorithm>
#include <array>
#include <span>

#include "jinja/unicode_internal.h"

namespace weft::jinja {
namespace {

struct CodeRange {
  uint32_t first;
  uint32_t last;
};
/// Every `stride`th character from first to last maps to itself + delta.
struct CaseRange {
  uint32_t first;
  uint32_t last;
  int32_t stride;
  int32_t delta;
};
struct CaseString {
  uint32_t code;
  std::array<uint32_t, 3> to;  // 0: none
};

#include "jinja/unicode_tables.inc"

bool in_ranges(std::span<const CodeRange> ranges, uint32_t code) {
  const auto at = std::lower_bound(ranges.begin(), ranges.end(), code,
                                   [](const CodeRange& r, uint32_t c) { return r.last < c; });
  return at != ranges.end() && at->first <= code;
}

bool append_case(std::span<const CaseRange> ranges, std::span<const CaseString> strings,
                 uint32_t code, std::string* out) {
  const auto string = std::lower_bound(strings.begin(), strings.end(), code,
                                       [](const CaseString& s, uint32_t c) { return s.code < c; });
  if (string != strings.end() && string->code == code) {
    for (const uint32_t c : string->to) {
      if (out != nullptr && c != 0) append_utf8(*out, c);
    }
    return true;
  }
  auto at = std::upper_bound(ranges.begin(), ranges.end(), code,
                             [](uint32_t c, const CaseRange& r) { return c < r.first; });
  if (at != ranges.begin() && code <= (--at)->last &&
      (code - at->first) % static_cast<uint32_t>(at->stride) == 0) {
    if (out != nullptr) {
      append_utf8(*out, static_cast<uint32_t>(static_cast<int32_t>(code) + at->delta));
    }
    return true;
  }
  if (out != nullptr) append_utf8(*out, code);
  return false;
}

bool ascii_upper(uint32_t code) { return code >= 'A' && code <= 'Z'; }
bool ascii_lower(uint32_t code) { return code >= 'a' && code <= 'z'; }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

}  // namespace

Character character_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return at + i < text.size() ? static_cast<uint8_t>(text[at + i]) : 0u;
  };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xe0) return {(first & 0x1f) << 6 | (byte(1) & 0x3f), 2};
  if (first < 0xf0) return {(first & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f),
          4};
}

void append_utf8(std::string& out, uint32_t code) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      put(0xe0 | code >> 12);
    } else {
      put(0xf0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3f));
    }
    put(0x80 | (code >> 6 & 0x3f));
  }
  put(0x80 | (code & 0x3f));
}

bool is_valid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto lead = static_cast<uint8_t>(text[at]);
    const size_t n = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (n == 0 || lead > 0xf4 || n > text.size() - at) return false;
    for (size_t i = 1; i < n; ++i) {
      if ((text[at + i] & 0xc0) != 0x80) return false;
    }
    const uint32_t code = character_at(text, at).code;
    if ((n == 3 && (code < 0x800 || (code >= 0xd800 && code < 0xe000))) ||
        (n == 4 && (code < 0x10000 || code > 0x10ffff))) {
      return false;
    }
    at += n;
  }
  return true;
}

std::string_view utf8_prefix(std::string_view text, size_t n_bytes) {
  if (text.size() <= n_bytes) return text;
  while (n_bytes > 0 && (text[n_bytes] & 0xc0) == 0x80) --n_bytes;
  return text.substr(0, n_bytes);
}

bool is_space(uint32_t code) {
  if (code < 0x80) return (code >= 9 && code <= 13) || (code >= 28 && code <= 32);
  return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
         code == 0x2028 || code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

size_t space_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Character c = character_at(text, at);
    if (!is_space(c.code)) break;
    at += c.n_bytes;
  }
  return std::min(at, text.size());
}

size_t space_suffix(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && (text[begin] & 0xc0) == 0x80) --begin;
    if (!is_space(character_at(text, begin).code)) break;
    end = begin;
  }
  return text.size() - end;
}

size_t line_end_at(std::string_view text, size_t at) {
  const Character c = character_at(text, at);
  if (c.code == '\r') return text.substr(at).starts_with("\r\n") ? 2 : 1;
  const bool ends = c.code == '\n' || c.code == 0x0b || c.code == 0x0c ||
                    (c.code >= 0x1c && c.code <= 0x1e) || c.code == 0x85 || c.code == 0x2028 ||
                    c.code == 0x2029;
  return ends ? c.n_bytes : 0;
}

bool is_alpha(uint32_t code) {
  return code < 0x80 ? ascii_upper(code) || ascii_lower(code) : in_ranges(kAlpha, code);
}

bool is_decimal(uint32_t code) {
  return code < 0x80 ? code >= '0' && code <= '9' : in_ranges(kDecimal, code);
}

bool is_alnum(uint32_t code) {
  return is_alpha(code) || is_decimal(code) || (code >= 0x80 && in_ranges(kNumeric, code));
}

bool is_upper(uint32_t code) {
  return code < 0x80 ? ascii_upper(code) : append_case(kLower, kLowerStrings, code, nullptr);
}

bool is_lower(uint32_t code) {
  return code < 0x80 ? ascii_lower(code) : append_case(kUpper, kUpperStrings, code, nullptr);
}

void append_upper(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(ascii_lower(code) ? code - 32 : code);
  } else {
    append_case(kUpper, kUpperStrings, code, &out);
  }
}

void append_lower(std::string& out, uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(ascii_upper(code) ? code + 32 : code);
  } else {
    append_case(kLower, kLowerStrings, code, &out);
  }
}

void append_title(std::string& out, uint32_t code) {
  if (code < 0x80) return append_upper(out, code);
  append_case(kTitle, kTitleStrings, code, &out);
}

void append_lower_in(std::string& out, std::string_view text, size_t at) {
  const Character c = character_at(text, at);
  if (c.code != 0x3a3) return append_lower(out, c.code);
  size_t before = at;
  while (before > 0 && (text[--before] & 0xc0) == 0x80) {
  }
  const size_t after = at + c.n_bytes;
  const bool ends_word = at > 0 && is_alpha(character_at(text, before).code) &&
                         (after >= text.size() || !is_alpha(character_at(text, after).code));
  append_utf8(out, ends_word ? 0x3c2 : 0x3c3);
}

bool is_printable(uint32_t code) {
  return code < 0x80 ? code >= 0x20 && code < 0x7f : !in_ranges(kUnprintable, code);
}

namespace {

// \xhh, \uhhhh, \Uhhhhhhhh: `at` is the letter's.
bool unescape_hex(std::string_view literal, size_t& at, std::string& out, std::string& error) {
  const size_t n = literal[at] == 'x' ? 2 : literal[at] == 'u' ? 4 : 8;
  uint32_t code = 0;
  for (size_t i = 1; i <= n; ++i) {
    const int digit = at + i < literal.size() ? hex_digit(literal[at + i]) : -1;
    if (digit < 0 || code > 0x10ffff) return error = "a malformed \\ escape in a string", false;
    code = code << 4 | static_cast<uint32_t>(digit);
  }
  if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
    return error = "a \\ escape in a string that is no character", false;
  }
  append_utf8(out, code);
  at += n + 1;
  return true;
}

}  // namespace

bool unescape(std::string_view literal, std::string& out, std::string& error) {
  static constexpr std::string_view kLetters = "abfnrtv\\'\"";
  static constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
  for (size_t at = 0; at < literal.size();) {
    if (literal[at] != '\\' || at + 1 >= literal.size()) {
      out += literal[at++];
      continue;
    }
    const char c = literal[++at];
    if (const size_t known = kLetters.find(c); known != std::string_view::npos) {
      out += kMeanings[known];
      ++at;
    } else if (c == '\n') {
      ++at;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      if (!unescape_hex(literal, at, out, error)) return false;
    } else if (c == 'N') {
      return error = "\\N escapes are not supported", false;
    } else if (c >= '0' && c <= '7') {
      uint32_t code = 0;
      for (int i = 0; i < 3 && at < literal.size() && literal[at] >= '0' && literal[at] <= '7';
           ++i) {
        code = code * 8 + static_cast<uint32_t>(literal[at++] - '0');
      }
      append_utf8(out, code);
    } else {
      out += '\\';  // unknown escapes stand for themselves
    }
  }
  return true;
}

}  // namespace weft::jinja
