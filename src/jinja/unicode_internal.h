// What Python's str knows about characters: white space, letter case, digits, line ends; and UTF-8.
// Case and classes cover Unicode by the tables in unicode_tables.inc (made by
// tools/make_unicode_tables.py). Pure functions, thread-safe; none asks the locale.
//
// Characters are code points, as in Python: "é" written as e and U+0301 has a length of 2. The text
// must be valid UTF-8 where nothing else is said, which every Text is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::jinja {

/// The char's bits as a number of 0 to 255, whatever the sign of char.
constexpr uint8_t to_byte(char c) { return static_cast<uint8_t>(c); }

/// The character at byte `at` of valid UTF-8, and how many bytes it takes.
struct Character {
  uint32_t code = 0;
  size_t n_bytes = 1;
};
Character character_at(std::string_view text, size_t at);
/// `code` must be a character: at most 0x10ffff and no surrogate.
void append_utf8(std::string& out, uint32_t code);
/// By the Unicode standard's table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_valid_utf8(std::string_view text);
/// The beginning of the text: at most n_bytes, never half a character.
std::string_view utf8_prefix(std::string_view text, size_t n_bytes);

/// Calls fn(part) for parts of at most 64 KiB that together are the text, so that what is made of a
/// part at a time stays small.
template <class Fn>
void for_parts(std::string_view text, Fn fn) {
  while (!text.empty()) {
    const std::string_view part = utf8_prefix(text, size_t{1} << 16);
    fn(part);
    text.remove_prefix(part.size());
  }
}

/// str.isspace of one character. More than Unicode's White_Space: U+001C to U+001F count as well.
bool is_space(uint32_t code);
/// Bytes of white space that the text begins or ends with.
size_t space_prefix(std::string_view text);
size_t space_suffix(std::string_view text);
/// Bytes of the line end at `at` ("\r\n" is one), as str.splitlines; 0 if there is none.
size_t line_end_at(std::string_view text, size_t at);

/// str.isalpha, isdecimal and isalnum of one character, by Unicode's general categories.
bool is_alpha(uint32_t code);
bool is_decimal(uint32_t code);
bool is_alnum(uint32_t code);
/// Whether the other case of the character differs from it. For letters with both cases that is
/// str.isupper and str.islower.
bool is_upper(uint32_t code);
bool is_lower(uint32_t code);
/// Appends the upper, lower or title case of one character (one to three characters).
void append_upper(std::string& out, uint32_t code);
void append_lower(std::string& out, uint32_t code);
void append_title(std::string& out, uint32_t code);
/// The lower case of the character at `at`: a capital sigma that ends a word is a final one.
void append_lower_in(std::string& out, std::string_view text, size_t at);
/// Whether repr() writes the character as it is; others become \x85, \u200b, \U000e0001.
bool is_printable(uint32_t code);

/// The inside of a Python string literal to the string; false with `error` if it is malformed.
bool unescape(std::string_view literal, std::string& out, std::string& error);

}  // namespace weft::jinja
