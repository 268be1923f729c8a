#include "cli/pasted_text.h"

#include <gtest/gtest.h>

namespace weft::cli {
namespace {

std::string there_and_back(const std::string& text) {
  PastedText paste;
  std::string line = paste.as_line(text);
  EXPECT_EQ(line.find_first_of("\r\n\t"), std::string::npos);
  paste.put_back(line);
  return line;
}

TEST(PastedText, PutBackRestoresTheText) {
  for (const std::string text : {"", "one", "def f(x):\n\treturn x\n\n\tpass",
                                 "a\u21b5b\n\u21e5\tc", "gr\u00fc\u00df\n\u4f60"}) {
    EXPECT_EQ(there_and_back(text), text);
  }
  EXPECT_EQ(there_and_back("a\r\nb\rc"), "a\nb\nc");
}

TEST(PastedText, BreaksAtTheEndAreLeftOut) {
  PastedText paste;
  EXPECT_EQ(paste.as_line("/undo\r\n"), "/undo");
  EXPECT_FALSE(paste.has_breaks());
  paste.as_line("a\nb\n");
  EXPECT_TRUE(paste.has_breaks());
  paste.clear();
  EXPECT_FALSE(paste.has_breaks());
}

TEST(PastedText, ControlCharactersAreLeftOut) {
  std::string keys = "a";
  for (char c = 1; c < 0x20; ++c) {
    if (c != '\t' && c != '\n' && c != '\r') keys += c;
  }
  keys += "\x7f\xc2\x88\xc2\x9f" + std::string(1, '\0') + "b\xc2\xa0";
  EXPECT_EQ(there_and_back(keys), "ab\xc2\xa0");
}

TEST(PastedText, InvisibleCharactersAreLeftOut) {
  EXPECT_EQ(there_and_back("a\u202eb\u2066c\u200bd\u00ade\U000e0041f"), "abcdef");
  EXPECT_EQ(there_and_back("a\xff\n\u0627\u200c\u0628"), "a\xff\n\u0627\u200c\u0628");
}

}  // namespace
}  // namespace weft::cli
