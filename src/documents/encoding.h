// Bytes of a text file as UTF-8, whatever of a few encodings they are in. A converted text keeps
// its line ends, so that its lines are the file's. It opens no file and knows no format.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "documents/refusal.h"

namespace weft::documents {

enum class Encoding {
  kAny,  // UTF-8, UTF-16, or what looks like Western text as Windows-1252
  kUtf8,
  kUtf16,  // byte order by its mark, else by where the zeros are, else little-endian
  kUtf16Le,
  kUtf16Be,
  kLatin1,
  kWindows1252,
};

/// What one may ask for, in the order in which to list it.
constexpr std::array<std::string_view, 6> kEncodingNames{"utf-8",    "utf-16",  "utf-16le",
                                                         "utf-16be", "latin-1", "windows-1252"};
/// By one of these names, any case, or a usual other spelling (utf8, iso-8859-1, cp1252, …).
std::optional<Encoding> encoding_by_name(std::string_view name);
/// Of kEncodingNames; "" for kAny.
std::string_view encoding_name(Encoding encoding);

struct Decoded {
  std::string text;  // valid UTF-8 without byte order mark
  /// How it was read where that was a guess or lost something, as "read as Windows-1252"; else "".
  std::string guess;
  /// What it was converted from; "" where the text is the bytes, but for a byte order mark.
  std::string encoding;
};

/// A byte order mark and valid UTF-8 without a zero in its first 8 KB decide by themselves; all
/// else is read as `fallback`. A refusal says what is wrong: a binary file, no text in this
/// encoding. Linear; the text is at most 3 times as long as the bytes.
Read<Decoded> decode(std::string bytes, Encoding fallback);

/// The refusal that decode() with Encoding::kAny gives for what begins so, where 8 KB are enough to
/// say it: a zero, and no UTF-16.
std::optional<Refusal> refused_as_binary(std::string_view begin);

/// One byte of Windows-1252 as a code point; five of them are C1 controls, as browsers have it.
char32_t from_windows_1252(unsigned char byte);

}  // namespace weft::documents
