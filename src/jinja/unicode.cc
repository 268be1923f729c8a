// Characters and their classes. Python's str is the measure, so the tables are written by Python
// itself (tools/make_unicode_tables.py, Unicode 14.0.0) and not taken from the C library, whose
// answers change with the locale and its version.
//
// They are sorted ranges searched by halving, not an array by code point, which would have 1.1
// million entries a class. ASCII, which most text is, is answered before a table is looked at. Case
// ranges have a stride, because the alphabets beyond ASCII have capitals and small letters in turn:
// {0x101, 0x12f, 2, -1} says that every second character from U+0101 on has the one before it as
// its capital.
#include <algorithm>
#include <array>
#include <span>

#include "jinja/unicode_internal.h"

namespace weft::jinja {
namespace {

// All characters from first to last, both included.
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
// A character whose other case is several: ß to SS. Sorted by code; looked at before the ranges.
struct CaseString {
  uint32_t code;
  std::array<uint32_t, 3> to;  // 0: none
};

#include "jinja/unicode_tables.inc"

// The first range that ends at or after the code is the only one that can hold it.
bool in_ranges(std::span<const CodeRange> ranges, uint32_t code) {
  const auto at = std::lower_bound(ranges.begin(), ranges.end(), code,
                                   [](const CodeRange& r, uint32_t c) { return r.last < c; });
  return at != ranges.end() && at->first <= code;
}

// Appends the other case, the character itself if there is none, and says whether there is one.
// With `out` null it only says so, which is how is_upper and is_lower ask.
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
  if (at != ranges.begin() && code <= (--at)->last && (code - at->first) % at->stride == 0) {
    if (out != nullptr) {
      append_utf8(*out, code + at->delta);
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
  const char lower = c | 0x20;
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

}  // namespace

// Valid UTF-8 is taken for granted, so the lead byte tells the length; bytes beyond the end count
// as zero, so that no damage of a text makes it read there.
Character character_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return at + i < text.size() ? to_byte(text[at + i]) : 0u; };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xe0) return {(first & 0x1f) << 6 | (byte(1) & 0x3f), 2};
  if (first < 0xf0) return {(first & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f),
          4};
}

// Six bits a byte from the right, the lead byte first.
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

// Lead bytes below 0xc2 and above 0xf4 begin nothing; of three bytes, forms that fit two and
// surrogates are refused, of four those that fit three and what lies beyond U+10FFFF. It asks
// before it reads: n bytes are there.
bool is_valid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const uint8_t lead = to_byte(text[at]);
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

// Back to where a character begins: three steps at most in valid text.
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

// From the end, a character at a time.
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

// More than newlines: vertical tab, form feed, U+001C to U+001E, U+0085, U+2028, U+2029.
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

// Letters, decimal digits, and what else has a number: ½ and ² are among it, as in Python.
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

// Differs from upper case for characters that are two letters: ǆ becomes ǅ, upper case Ǆ.
void append_title(std::string& out, uint32_t code) {
  if (code < 0x80) return append_upper(out, code);
  append_case(kTitle, kTitleStrings, code, &out);
}

// Greek's final sigma, the one rule of str.lower that looks at neighbours: Σ after a letter and not
// before one is ς, as at the end of ΟΔΟΣ. Only the next characters are looked at; Unicode's rule
// also skips marks and apostrophes between.
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
    code = code << 4 | digit;
  }
  if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
    return error = "a \\ escape in a string that is no character", false;
  }
  append_utf8(out, code);
  at += n + 1;
  return true;
}

}  // namespace

// Python's escapes: letters, octal (\101, one to three digits), \x, \u and \U, and a backslash at a
// line's end, which joins the lines. Unknown ones stay as they are, backslash included. \N{name}
// would need the names of all characters, and a \u of half a surrogate pair is no character in
// UTF-8: both are refused.
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
        code = code * 8 + (literal[at++] - '0');
      }
      append_utf8(out, code);
    } else {
      out += '\\';  // unknown escapes mean themselves
    }
  }
  return true;
}

}  // namespace weft::jinja
