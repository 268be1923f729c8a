#include "base/utf8.h"

#include <algorithm>

#include "base/check.h"

namespace weft {
namespace {

// What the lead byte says: the character's length and the range of its second byte, which is where
// overlong forms, surrogates and too large values are told apart (RFC 3629, section 4).
struct Lead {
  size_t length;
  unsigned char second_min;
  unsigned char second_max;
};

Lead lead_of(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// How many of the bytes from text[at] on fit the character that its lead byte announces.
size_t fitting_bytes(std::string_view text, size_t at, const Lead& lead) {
  if (lead.length == 0) return 0;
  const size_t end = std::min(text.size() - at, lead.length);
  for (size_t i = 1; i < end; ++i) {
    const auto byte = static_cast<unsigned char>(text[at + i]);
    const unsigned char low = i == 1 ? lead.second_min : 0x80;
    const unsigned char high = i == 1 ? lead.second_max : 0xBF;
    if (byte < low || byte > high) return i;
  }
  return end;
}

}  // namespace

size_t utf8_char_bytes(std::string_view text, size_t at) {
  WEFT_DCHECK(at < text.size());
  if ((text[at] & 0x80) == 0) return 1;
  const Lead lead = lead_of(text[at]);
  return fitting_bytes(text, at, lead) == lead.length ? lead.length : 0;
}

bool is_valid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t n_bytes = utf8_char_bytes(text, at);
    if (n_bytes == 0) return false;
    at += n_bytes;
  }
  return true;
}

size_t utf8_unfinished_bytes(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const size_t at = text.size() - back;
    if (is_utf8_continuation(text[at])) continue;
    const Lead lead = lead_of(text[at]);
    const bool unfinished = lead.length > back && fitting_bytes(text, at, lead) == back;
    return unfinished ? back : 0;
  }
  return 0;
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

char32_t decode_utf8_char(std::string_view text, size_t at, size_t n_bytes) {
  const auto byte = [&](size_t i) { return char32_t{static_cast<unsigned char>(text[at + i])}; };
  switch (n_bytes) {
    case 1:
      return byte(0);
    case 2:
      return ((byte(0) & 0x1F) << 6) | (byte(1) & 0x3F);
    case 3:
      return ((byte(0) & 0x0F) << 12) | ((byte(1) & 0x3F) << 6) | (byte(2) & 0x3F);
    default:
      return ((byte(0) & 0x07) << 18) | ((byte(1) & 0x3F) << 12) | ((byte(2) & 0x3F) << 6) |
             (byte(3) & 0x3F);
  }
}

}  // namespace weft
