#include "documents/encoding.h"

#include <gtest/gtest.h>

#include <string>

#include "base/utf8.h"

namespace weft::documents {
namespace {

std::string utf16(const std::u16string& text, bool is_little) {
  std::string bytes;
  for (const char16_t c : text) {
    const char low = static_cast<char>(c & 0xff);
    const char high = static_cast<char>(c >> 8);
    bytes += is_little ? low : high;
    bytes += is_little ? high : low;
  }
  return bytes;
}

/// "TEXT", or "TEXT [how it was guessed]", or "! the reason".
std::string read(const std::string& bytes, Encoding fallback = Encoding::kAny) {
  const auto decoded = decode(bytes, fallback);
  if (const auto* refusal = std::get_if<Refusal>(&decoded)) return "! " + refusal->reason;
  const auto& text = std::get<Decoded>(decoded);
  EXPECT_TRUE(is_valid_utf8(text.text));
  return text.text + (text.guess.empty() ? "" : " [" + text.guess + "]");
}

TEST(Encoding, ValidUtf8IsTakenAsItIs) {
  for (const Encoding fallback : {Encoding::kAny, Encoding::kUtf8, Encoding::kUtf16Le,
                                  Encoding::kLatin1, Encoding::kWindows1252}) {
    EXPECT_EQ(read("Gr\u00fc\u00dfe\r\n\u20ac", fallback), "Gr\u00fc\u00dfe\r\n\u20ac");
    EXPECT_EQ(read("", fallback), "");
  }
}

TEST(Encoding, AByteOrderMarkDecidesAndIsRemoved) {
  EXPECT_EQ(read("\xEF\xBB\xBFtext"), "text");
  EXPECT_EQ(read("\xEF\xBB\xBF"), "");
  EXPECT_EQ(read("\xFF\xFE" + utf16(u"a\u00e9\u4e2d\n", true)), "a\u00e9\u4e2d\n");
  EXPECT_EQ(read("\xFE\xFF" + utf16(u"a\u00e9\u4e2d\n", false)), "a\u00e9\u4e2d\n");
  EXPECT_EQ(read("\xFE\xFF" + utf16(u"a", false), Encoding::kLatin1), "a");
  EXPECT_EQ(read("\xFF\xFE"), "");
  EXPECT_EQ(read("\xFF\xFE" + utf16(u"\xD83D\xDE00!", true)), "\U0001F600!");
  EXPECT_EQ(read(std::string("\xFF\xFE\0\0a\0\0\0", 8)), "! UTF-32 text: iconv makes UTF-8 of it");
  EXPECT_EQ(read("\xEF\xBB\xBFgr\xFC"), "gr\uFFFD [read as UTF-8 with bytes that are not]");
}

TEST(Encoding, IncompleteCharactersAreNotUtf16) {
  EXPECT_EQ(read("\xFF\xFE" + utf16(u"a", true) + "b"), "! not valid UTF-16LE");
  EXPECT_EQ(read("\xFF\xFE" + utf16(u"a\xD83D", true)), "! not valid UTF-16LE");
  EXPECT_EQ(read("\xFF\xFE" + utf16(u"a\xD83D"
                                    u"b",
                                    true)),
            "! not valid UTF-16LE");
  EXPECT_EQ(read("\xFE\xFF" + utf16(u"\xDE00", false)), "! not valid UTF-16BE");
  EXPECT_EQ(read(std::string("\xFF\xFE\0\0", 4) + "a"), "! UTF-32 text: iconv makes UTF-8 of it");
  EXPECT_EQ(read(std::string("\xFE\xFF\0\0", 4)), "! not valid UTF-16BE");
}

TEST(Encoding, WesternUtf16WithoutAMarkIsSeenByItsZeros) {
  EXPECT_EQ(read(utf16(u"Gr\u00fc\u00dfe\n", true)), "Gr\u00fc\u00dfe\n [read as UTF-16LE]");
  EXPECT_EQ(read(utf16(u"Gr\u00fc\u00dfe\n", false)), "Gr\u00fc\u00dfe\n [read as UTF-16BE]");
  EXPECT_EQ(read(utf16(u"a\u0001b", true)), "! a binary file");
  EXPECT_EQ(read(std::string("ab\0cd", 5)), "! a binary file");
  EXPECT_EQ(read(std::string("\0\0\0\0", 4)), "! a binary file");
  // Said, it need not be clear.
  EXPECT_EQ(read(utf16(u"\u4e2d\u6587\u5b57 a", true), Encoding::kUtf16Le), "\u4e2d\u6587\u5b57 a");
  EXPECT_EQ(read(utf16(u"\u4e2d\u6587 a", false), Encoding::kUtf16Be), "\u4e2d\u6587 a");
  EXPECT_EQ(read(utf16(u"ab", false), Encoding::kUtf16), "ab");
  EXPECT_EQ(read(utf16(u"ab", true), Encoding::kUtf16), "ab");
  EXPECT_EQ(read("gr\xFC\xDF!", Encoding::kUtf16Le), "! not valid UTF-16LE");
}

TEST(Encoding, WesternBytesAreWindows1252) {
  EXPECT_EQ(read("Gr\xFC\xDF"
                 "e \x80 5 \x96 \x93so\x94"),
            "Gr\u00fc\u00dfe \u20ac 5 \u2013 \u201cso\u201d [read as Windows-1252]");
  EXPECT_EQ(read("caf\xE9\r\n"), "caf\u00e9\r\n [read as Windows-1252]");
  EXPECT_EQ(read("caf\xE9 \x80", Encoding::kLatin1), "caf\u00e9 \u0080");
  EXPECT_EQ(read("caf\xE9 \x80", Encoding::kWindows1252), "caf\u00e9 \u20ac");
  EXPECT_EQ(read(std::string("a\0\xE9", 3), Encoding::kLatin1), "! a binary file");
}

TEST(Encoding, BytesThatDoNotLookWesternAreRefused) {
  // Russian in KOI8-R, a byte that Windows-1252 lacks, and no text at all.
  EXPECT_TRUE(read("\xF0\xD2\xC9\xD7\xC5\xD4, \xCD\xC9\xD2!").starts_with("! neither UTF-8"));
  EXPECT_EQ(read("\xF0\xD2\xC9\xD7\xC5\xD4", Encoding::kLatin1),
            "\u00f0\u00d2\u00c9\u00d7\u00c5\u00d4");
  EXPECT_TRUE(read("abcdef \x81 ghi").starts_with("! neither UTF-8"));
  EXPECT_EQ(read("abc\x01\xE9"), "! a binary file");
}

TEST(Encoding, DamagedUtf8StaysUtf8) {
  EXPECT_EQ(read("\u00fc\u00e4\u00f6\u00df\xFF."),
            "\u00fc\u00e4\u00f6\u00df\uFFFD. [read as UTF-8 with bytes that are not]");
  // A short note with one damaged place is not Windows-1252's "KÃ¼che".
  EXPECT_EQ(read("K\u00fcche, T\xFCr"),
            "K\u00fcche, T\uFFFDr [read as UTF-8 with bytes that are not]");
  EXPECT_EQ(read("gr\xFC.", Encoding::kUtf8), "gr\uFFFD. [read as UTF-8 with bytes that are not]");
}

TEST(Encoding, NamesInTheirUsualSpellings) {
  for (const std::string_view name : kEncodingNames) {
    EXPECT_TRUE(encoding_by_name(name).has_value()) << name;
  }
  EXPECT_EQ(encoding_by_name("UTF8"), Encoding::kUtf8);
  EXPECT_EQ(encoding_by_name("UTF_16-LE"), Encoding::kUtf16Le);
  EXPECT_EQ(encoding_by_name("ISO-8859-1"), Encoding::kLatin1);
  EXPECT_EQ(encoding_by_name("CP1252"), Encoding::kWindows1252);
  for (const std::string_view name : {"", "utf-7", "latin-2", "utf-16lee", "shift_jis"}) {
    EXPECT_FALSE(encoding_by_name(name).has_value()) << name;
  }
}

}  // namespace
}  // namespace weft::documents
