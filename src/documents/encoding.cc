// How the encoding of a file is told, most certain evidence first: a byte order mark; valid UTF-8,
// which other encodings almost never form by chance; then what the user or the page says; then a
// guess between UTF-16, damaged UTF-8 and Windows-1252.
//
// Only these are guessed. A guess by letter frequencies could name many more encodings, but where
// it is wrong the text is garbage that is found for no question and looks ingested. A refusal that
// names iconv and --encoding costs the user one command.
#include "documents/encoding.h"

#include <algorithm>
#include <utility>

#include "base/ascii.h"
#include "base/utf8.h"

namespace weft::documents {
namespace {

/// A zero among so many first bytes means a binary file or UTF-16.
constexpr size_t kProbeBytes = 8192;
constexpr std::string_view kUtf8Mark = "\xEF\xBB\xBF";
constexpr std::string_view kUtf16LeMark = "\xFF\xFE";
constexpr std::string_view kUtf16BeMark = "\xFE\xFF";

/// The code points of the bytes 0x80 to 0x9F (WHATWG Encoding Standard, index windows-1252). The
/// five bytes that Windows leaves undefined are the control characters of the same number.
constexpr std::array<uint16_t, 32> kWindows1252High{
    0x20AC, 0x81,   0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160,
    0x2039, 0x0152, 0x8D,   0x017D, 0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
    0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0x9D,   0x017E, 0x0178};

/// A control character that no text has. Allowed are tab to carriage return, 0x1A, with which DOS
/// ended files, and 0x1B, which begins the colours of terminal output.
bool is_odd_control(char32_t c) {
  return (c < 0x20 && !(c >= '\t' && c <= '\r') && c != 0x1A && c != 0x1B) || c == 0x7F;
}

bool is_odd_char(char c) { return is_odd_control(byte_of(c)); }

Decoded from_single_bytes(std::string_view bytes, bool is_windows) {
  Decoded decoded{.text = "", .guess = "", .encoding = is_windows ? "windows-1252" : "latin-1"};
  const auto n_high = std::ranges::count_if(bytes, [](unsigned char c) { return c >= 0x80; });
  decoded.text.reserve(bytes.size() + n_high);
  for (const char c : bytes) {
    if (!is_high_byte(c)) {
      decoded.text += c;
    } else {
      append_utf8(is_windows ? from_windows_1252(byte_of(c)) : char32_t{byte_of(c)}, decoded.text);
    }
  }
  return decoded;
}

/// Nothing for a lone surrogate, an odd number of bytes or a zero character. It is this strict
/// since almost any bytes are UTF-16 of some kind: what is damaged is more likely no UTF-16.
std::optional<std::string> from_utf16(std::string_view bytes, bool is_little) {
  if (bytes.size() % 2 != 0) return std::nullopt;
  const auto unit = [&](size_t at) {
    const char32_t first = byte_of(bytes[at]);
    const char32_t second = byte_of(bytes[at + 1]);
    return is_little ? second << 8 | first : first << 8 | second;
  };
  std::string text;
  text.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size(); at += 2) {
    char32_t c = unit(at);
    // A high surrogate and a low one after it are one character (RFC 2781, 2.2).
    if (c >= 0xD800 && c < 0xDC00 && at + 2 < bytes.size()) {
      const char32_t low = unit(at + 2);
      if (low < 0xDC00 || low > 0xDFFF) return std::nullopt;
      c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
      at += 2;
    } else if ((c >= 0xD800 && c <= 0xDFFF) || c == 0) {
      return std::nullopt;
    }
    append_utf8(c, text);
  }
  return text;
}

/// The byte order of UTF-16 without a mark. A letter of a Western language has one zero byte and
/// one that is not: in the second byte of its pair the zero means little-endian, in the first
/// big-endian. Both false where that is not clear.
struct ByteOrder {
  bool is_little = false;
  bool is_big = false;
};
ByteOrder guess_byte_order(std::string_view bytes) {
  const std::string_view probe = bytes.substr(0, std::min(bytes.size(), kProbeBytes) & ~size_t{1});
  size_t zeros[2] = {0, 0};
  for (size_t i = 0; i < probe.size(); ++i) zeros[i % 2] += probe[i] == '\0' ? 1 : 0;
  const size_t pairs = probe.size() / 2;
  // 7 of 10 characters with a zero in the one place, and none in the other. Less than all, since
  // quotes, dashes and some letters have no zero byte.
  const auto most = [&](size_t n) { return pairs > 0 && 10 * n >= 7 * pairs; };
  return {.is_little = most(zeros[1]) && zeros[0] == 0, .is_big = most(zeros[0]) && zeros[1] == 0};
}

/// How much of some bytes is UTF-8.
struct Utf8Share {
  size_t characters = 0;  // of more than one byte
  size_t bad_bytes = 0;
};
Utf8Share count_utf8(std::string_view bytes) {
  Utf8Share share;
  for (size_t at = 0; at < bytes.size();) {
    const size_t n = utf8_char_bytes(bytes, at);
    if (n == 0) ++share.bad_bytes;
    if (n > 1) ++share.characters;
    at += std::max<size_t>(n, 1);
  }
  return share;
}

/// Each byte that is part of no character becomes U+FFFD.
Decoded damaged_utf8(std::string_view bytes) {
  Decoded decoded{
      .text = "", .guess = "read as UTF-8 with bytes that are not", .encoding = "utf-8"};
  std::string& text = decoded.text;
  for (size_t at = 0; at < bytes.size();) {
    const size_t n = utf8_char_bytes(bytes, at);
    if (n == 0) {
      text += "\uFFFD";
    } else {
      text.append(bytes, at, n);
    }
    at += std::max<size_t>(n, 1);
  }
  return decoded;
}

/// Whether bytes may be Western text in Windows-1252: none of them is undefined there or an odd
/// control, and at most half of those that are no space lie above ASCII. In encodings of Cyrillic,
/// Greek or Asian scripts most do.
bool looks_western(std::string_view bytes) {
  size_t n_high = 0;
  size_t n_seen = 0;
  for (const unsigned char byte : bytes) {
    const bool is_undefined = byte >= 0x80 && byte < 0xA0 && from_windows_1252(byte) == byte;
    if (is_undefined || is_odd_control(byte)) return false;
    if (byte > ' ') ++n_seen;
    if (byte >= 0x80) ++n_high;
  }
  return 2 * n_high <= n_seen;
}

Refusal binary() { return {"binary", "a binary file"}; }

Refusal in_another_encoding(std::string reason) {
  return {"in another encoding", std::move(reason)};
}

Read<Decoded> decode_utf16(std::string_view bytes, bool is_little) {
  auto text = from_utf16(bytes, is_little);
  if (!text) {
    return in_another_encoding(is_little ? "not valid UTF-16LE" : "not valid UTF-16BE");
  }
  return Decoded{
      .text = *std::move(text), .guess = "", .encoding = is_little ? "utf-16le" : "utf-16be"};
}

/// For bytes with neither a mark nor valid UTF-8, where nobody named an encoding.
Read<Decoded> guess(std::string_view bytes, bool has_zero) {
  if (has_zero) {
    const ByteOrder order = guess_byte_order(bytes);
    if (!order.is_little && !order.is_big) return binary();
    auto read = decode_utf16(bytes, order.is_little);
    auto* decoded = std::get_if<Decoded>(&read);
    if (decoded == nullptr || std::ranges::any_of(decoded->text, is_odd_char)) return binary();
    decoded->guess = order.is_little ? "read as UTF-16LE" : "read as UTF-16BE";
    return read;
  }
  const Utf8Share share = count_utf8(bytes);
  // In another encoding nearly all high bytes are bad ones: two of them that happen to be a whole
  // character are "Ã¼" or the like in Windows-1252, which nobody writes. So as many characters as
  // bad bytes say that this is UTF-8 with some damaged places.
  if (share.characters >= share.bad_bytes) {
    return damaged_utf8(bytes);
  }
  if (looks_western(bytes)) {
    Decoded decoded = from_single_bytes(bytes, /*is_windows=*/true);
    decoded.guess = "read as Windows-1252";
    return decoded;
  }
  if (std::ranges::any_of(bytes.substr(0, kProbeBytes), is_odd_char)) return binary();
  return in_another_encoding(
      "neither UTF-8 nor by its looks Western text: iconv makes UTF-8 of it, or --encoding says "
      "what it is");
}

}  // namespace

char32_t from_windows_1252(unsigned char byte) {
  return byte >= 0x80 && byte < 0xA0 ? char32_t{kWindows1252High[byte - 0x80]} : char32_t{byte};
}

std::string_view encoding_name(Encoding encoding) {
  switch (encoding) {
    case Encoding::kAny:
      return "";
    case Encoding::kUtf8:
      return "utf-8";
    case Encoding::kUtf16:
      return "utf-16";
    case Encoding::kUtf16Le:
      return "utf-16le";
    case Encoding::kUtf16Be:
      return "utf-16be";
    case Encoding::kLatin1:
      return "latin-1";
    case Encoding::kWindows1252:
      return "windows-1252";
  }
  return "";
}

std::optional<Encoding> encoding_by_name(std::string_view name) {
  std::string plain;  // in lower case, without the hyphens that spellings differ in
  for (const char c : name.substr(0, 32)) {
    if (c != '-' && c != '_' && c != ' ') plain += ascii_lower(c);
  }
  constexpr std::array<std::pair<std::string_view, Encoding>, 12> kNames{{
      {"utf8", Encoding::kUtf8},
      {"utf16", Encoding::kUtf16},
      {"utf16le", Encoding::kUtf16Le},
      {"utf16be", Encoding::kUtf16Be},
      {"latin1", Encoding::kLatin1},
      {"iso88591", Encoding::kLatin1},
      {"windows1252", Encoding::kWindows1252},
      {"cp1252", Encoding::kWindows1252},
      {"ansi", Encoding::kWindows1252},
      {"l1", Encoding::kLatin1},
      {"ucs2", Encoding::kUtf16},
      {"unicode", Encoding::kUtf16},
  }};
  const auto* found =
      std::ranges::find(kNames, plain, &std::pair<std::string_view, Encoding>::first);
  if (found == kNames.end()) return std::nullopt;
  return found->second;
}

std::optional<Refusal> refused_as_binary(std::string_view begin) {
  if (begin.starts_with(kUtf16LeMark) || begin.starts_with(kUtf16BeMark)) return std::nullopt;
  if (begin.substr(0, kProbeBytes).find('\0') == std::string_view::npos) return std::nullopt;
  const ByteOrder order = guess_byte_order(begin);
  if (order.is_little || order.is_big) return std::nullopt;
  return binary();
}

Read<Decoded> decode(std::string bytes, Encoding fallback) {
  // Before UTF-16, whose little-endian mark is the beginning of UTF-32's.
  if (bytes.starts_with(std::string_view("\xFF\xFE\0\0", 4)) ||
      bytes.starts_with(std::string_view("\0\0\xFE\xFF", 4))) {
    return in_another_encoding("UTF-32 text: iconv makes UTF-8 of it");
  }
  for (const bool is_little : {true, false}) {
    const std::string_view mark = is_little ? kUtf16LeMark : kUtf16BeMark;
    if (bytes.starts_with(mark)) {
      return decode_utf16(std::string_view(bytes).substr(mark.size()), is_little);
    }
  }
  if (bytes.starts_with(kUtf8Mark)) {
    bytes.erase(0, kUtf8Mark.size());
    fallback = Encoding::kUtf8;
  }
  const std::string_view probe = std::string_view(bytes).substr(0, kProbeBytes);
  const bool has_zero = probe.find('\0') != std::string_view::npos;
  if (!has_zero && is_valid_utf8(bytes)) {
    return Decoded{.text = std::move(bytes), .guess = "", .encoding = ""};
  }
  switch (fallback) {
    case Encoding::kAny:
      return guess(bytes, has_zero);
    case Encoding::kUtf8:
      if (has_zero) return binary();
      return damaged_utf8(bytes);
    case Encoding::kUtf16:
      return decode_utf16(bytes, !guess_byte_order(bytes).is_big);
    case Encoding::kUtf16Le:
      return decode_utf16(bytes, /*is_little=*/true);
    case Encoding::kUtf16Be:
      return decode_utf16(bytes, /*is_little=*/false);
    case Encoding::kLatin1:
    case Encoding::kWindows1252:
      if (has_zero) return binary();
      return from_single_bytes(bytes, fallback == Encoding::kWindows1252);
  }
  return binary();
}

}  // namespace weft::documents
