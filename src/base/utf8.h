// UTF-8 by bytes: where a character begins and ends, and what is no character at all. It never
// normalises, classifies or converts text. Strict as RFC 3629: overlong forms, surrogates and
// values past U+10FFFF are invalid. Thread-safe; no state.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft {

/// Bytes of the character that begins at text[at] (1 to 4); 0 when no valid one begins there.
/// `at` must be inside the text.
size_t utf8_char_bytes(std::string_view text, size_t at);

bool is_valid_utf8(std::string_view text);

/// How many bytes at the end of `text` (0 to 3) are the beginning of a character that more bytes
/// could still complete.
size_t utf8_unfinished_bytes(std::string_view text);

/// True where text[at] continues a character (a byte 10xxxxxx).
inline bool is_utf8_continuation(char byte) { return (static_cast<unsigned char>(byte) >> 6) == 2; }

/// Appends the code point's UTF-8 form; it must be a scalar value.
void append_utf8(char32_t code_point, std::string& out);

/// The code point of the valid character of `n_bytes` that begins at text[at].
char32_t decode_utf8_char(std::string_view text, size_t at, size_t n_bytes);

}  // namespace weft
