// Every byte, beside <cctype> in the C locale, which is what these functions replace.
#include "base/ascii.h"

#include <gtest/gtest.h>

#include <cctype>

namespace weft {
namespace {

TEST(Ascii, EveryByteIsOfTheClassThatTheCLocaleGivesIt) {
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    SCOPED_TRACE(byte);
    EXPECT_EQ(byte_of(c), byte);
    EXPECT_EQ(is_high_byte(c), byte >= 128);
    EXPECT_EQ(is_ascii_digit(c), std::isdigit(byte) != 0);
    EXPECT_EQ(is_ascii_lower(c), std::islower(byte) != 0);
    EXPECT_EQ(is_ascii_upper(c), std::isupper(byte) != 0);
    EXPECT_EQ(is_ascii_alpha(c), std::isalpha(byte) != 0);
    EXPECT_EQ(is_ascii_alnum(c), std::isalnum(byte) != 0);
    EXPECT_EQ(is_ascii_space(c), std::isspace(byte) != 0);
    EXPECT_EQ(is_ascii_punctuation(c), std::ispunct(byte) != 0);
    EXPECT_EQ(byte_of(ascii_lower(c)), std::tolower(byte));
    EXPECT_EQ(byte_of(ascii_upper(c)), std::toupper(byte));
  }
}

TEST(Ascii, CaseIsIgnoredForAsciiLettersAlone) {
  EXPECT_TRUE(equals_ignoring_case("Q4_k", "q4_K"));
  EXPECT_TRUE(equals_ignoring_case("", ""));
  EXPECT_FALSE(equals_ignoring_case("date", "dates"));
  EXPECT_FALSE(equals_ignoring_case("Ä", "ä"));
  EXPECT_FALSE(equals_ignoring_case("@", "`"));  // 0x20 apart, and no letters
  EXPECT_EQ(ascii_lower("Straße ÜBER"), "straße Über");
}

}  // namespace
}  // namespace weft
