// Letters, digits and space of ASCII, by char. The functions of <cctype> ask the locale, and are
// undefined for a char below zero, so that each call of them needs a cast. These never look at a
// locale; a byte of 0x80 or above is a part of a UTF-8 character (base/utf8.h) and of no class here
// but is_high_byte. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

/// The char's bits as a number of 0 to 255, whatever the sign of char.
constexpr uint8_t byte_of(char c) { return static_cast<uint8_t>(c); }

/// A byte that is no ASCII: a part of a longer UTF-8 character where the text is UTF-8.
constexpr bool is_high_byte(char c) { return byte_of(c) >= 0x80; }

constexpr bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_ascii_lower(char c) { return c >= 'a' && c <= 'z'; }
constexpr bool is_ascii_upper(char c) { return c >= 'A' && c <= 'Z'; }
constexpr bool is_ascii_alpha(char c) { return is_ascii_lower(c) || is_ascii_upper(c); }
constexpr bool is_ascii_alnum(char c) { return is_ascii_alpha(c) || is_ascii_digit(c); }

/// Blank, tab, line feed, vertical tab, form feed, carriage return: C's isspace.
constexpr bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// What prints and is neither letter, digit nor blank: C's ispunct.
constexpr bool is_ascii_punctuation(char c) { return c > ' ' && c <= '~' && !is_ascii_alnum(c); }

/// The letter in the other case; every other byte as it is.
constexpr char ascii_lower(char c) { return is_ascii_upper(c) ? static_cast<char>(c | 0x20) : c; }
constexpr char ascii_upper(char c) { return is_ascii_lower(c) ? static_cast<char>(c & ~0x20) : c; }

inline std::string ascii_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = ascii_lower(c);
  return lower;
}

/// Equal but for the case of ASCII letters.
constexpr bool equals_ignoring_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (ascii_lower(a[i]) != ascii_lower(b[i])) return false;
  }
  return true;
}

}  // namespace weft
