#include "base/terminal_text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/utf8.h"

namespace weft {
namespace {

std::string utf8(char32_t c) {
  std::string text;
  append_utf8(c, text);
  return text;
}

TEST(TerminalText, PlainTextOfAnyScriptStaysAsItIs) {
  const std::vector<std::string> texts = {
      "",
      "a\tb\nc",
      "gr\u00fc\u00df \u4f60\u597d \U0001F600 \ue000 \ufffd",
      "\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  // Persian: a non-joiner in a word
      "\u0915\u094d\u200d\u0937 \u0d28\u0d4d\u200d",             // Devanagari, Malayalam
      "\U0001F468\u200d\U0001F469\u200d\U0001F467",              // a family
      "\u2764\ufe0f\u200d\U0001F525 \U0001F3F3\ufe0f\u200d\U0001F308 1\ufe0f\u20e3",
      "\u8fbb\U000E0100",  // a variant of a Japanese name's character
      "\u1820\u180b"};     // Mongolian
  for (const std::string& text : texts) EXPECT_EQ(terminal_text(text), text);
}

TEST(TerminalText, WhatDrivesATerminalIsReplacedOneForOne) {
  EXPECT_EQ(terminal_text("a\x1b[2Jb"), "a\ufffd[2Jb");
  EXPECT_EQ(terminal_text("\x1b]52;c;QQ==\x07"), "\ufffd]52;c;QQ==\ufffd");
  EXPECT_EQ(terminal_text("\x9b"
                          "2J\xc2\x9b"
                          "2J"),
            "\ufffd2J\ufffd2J");
  EXPECT_EQ(terminal_text("good\rbad"), "good\ufffdbad");
  EXPECT_EQ(terminal_text("one\r\ntwo\r"), "one\ntwo\ufffd");
  for (char32_t c = 0; c < 0xa0; ++c) {
    if ((c >= 0x20 && c < 0x7f) || c == '\n' || c == '\t') continue;
    EXPECT_EQ(terminal_text(utf8(c) + "x"), "\ufffdx") << static_cast<uint32_t>(c);
  }
}

TEST(TerminalText, WhatDeceivesTheEyeIsReplaced) {
  for (const char32_t c :
       {0xad,   0x34f,  0x61c,   0x115f,  0x1160,  0x17b4,  0x180e, 0x200b, 0x200e, 0x200f,
        0x2028, 0x2029, 0x202a,  0x202b,  0x202c,  0x202d,  0x202e, 0x2060, 0x2061, 0x2064,
        0x2066, 0x2067, 0x2068,  0x2069,  0x206a,  0x206f,  0x3164, 0xfeff, 0xffa0, 0xfff9,
        0xfffa, 0xfffb, 0x1d173, 0xe0001, 0xe0041, 0xe007f, 0xe0fff}) {
    EXPECT_EQ(terminal_text("a" + utf8(c) + "b"), "a\ufffdb") << static_cast<uint32_t>(c);
    EXPECT_EQ(terminal_text("\u0915" + utf8(c) + "b"),
              "\u0915\ufffd"
              "b");
  }
}

TEST(TerminalText, JoinersAndSelectorsStayOnlyWhereTheyMeanSomething) {
  EXPECT_EQ(terminal_text("pay\u200dpal \u200c"), "pay\ufffdpal \ufffd");
  EXPECT_EQ(terminal_text("\u0915\u200d\u200d\u200c"), "\u0915\u200d\ufffd\ufffd");
  EXPECT_EQ(terminal_text("a\ufe0f \U0001F600\ufe0f\ufe0e\U000E0101"),
            "a\ufffd \U0001F600\ufe0f\ufffd\ufffd");
  EXPECT_EQ(terminal_text("\U0001F600\u200d\ufe0f"), "\U0001F600\u200d\ufffd");
  EXPECT_EQ(terminal_text("\u0915\x1b\u200d"), "\u0915\ufffd\ufffd");
}

TEST(TerminalText, BytesThatAreNotUtf8AreReplaced) {
  EXPECT_EQ(terminal_text("\xff"
                          "a\xc3"
                          "b\xe2\x80"),
            "\ufffd"
            "a\ufffd"
            "b\ufffd\ufffd");
  EXPECT_EQ(terminal_text("\xc0\x9b\xed\xa0\x80"), "\ufffd\ufffd\ufffd\ufffd\ufffd");
}

TEST(TerminalText, PiecesCutAnywhereGiveWhatTheWholeGives) {
  const std::string text =
      "a\x1b[31m \xe2\x80\xae \r\n\xc2\x9b \u0915\u200d\u200d \U0001F468\u200d\U0001F469 \xf0\x9f\r"
      "\xf3\xa0\x81\x81\xe2\x80";
  const std::string whole = terminal_text(text);
  for (size_t size = 1; size <= text.size(); ++size) {
    TerminalText shown;
    std::string out;
    for (size_t at = 0; at < text.size(); at += size) out += shown.add(text.substr(at, size));
    EXPECT_EQ(out + shown.finish(), whole) << size;
  }
}

TEST(TerminalText, OnlyAnUnfinishedCharacterWaits) {
  TerminalText shown;
  EXPECT_EQ(shown.add("a\xe2\x80"), "a");
  EXPECT_EQ(shown.add(""), "");
  EXPECT_EQ(shown.add("b"),
            "\ufffd\ufffd"
            "b");
  EXPECT_EQ(shown.add("c\x1b"), "c\ufffd");
  EXPECT_EQ(shown.add("\xc3"), "");
  EXPECT_EQ(shown.finish(), "\ufffd");
  EXPECT_EQ(shown.finish(), "");
}

TEST(TerminalText, AMessageIsOneLine) {
  EXPECT_EQ(one_line("a\nb\r\nc\td\x1b"),
            "a\ufffd"
            "b\ufffd\ufffd"
            "c\td\x1b");
}

}  // namespace
}  // namespace weft
