#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "retrieval/spelling_internal.h"

namespace weft::retrieval {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kFar = 100;

TEST(Spelling, SlipsCostLessThanOtherLetters) {
  EXPECT_EQ(spelling_cost(U"house", U"house", kFar), 0);
  EXPECT_EQ(spelling_cost(U"huose", U"house", kFar), kSlipCost);
  EXPECT_EQ(spelling_cost(U"hose", U"house", kFar), kSlipCost);
  EXPECT_EQ(spelling_cost(U"hhouse", U"house", kFar), kSlipCost);
  EXPECT_EQ(spelling_cost(U"horse", U"house", kFar), kReplacedCost);
  EXPECT_EQ(spelling_cost(U"passport", U"password", kFar), 2 * kReplacedCost);
  EXPECT_EQ(spelling_cost(letters_of("м\u0438р"), letters_of("мор"), kFar), kReplacedCost);
  EXPECT_EQ(spelling_cost(U"", U"ab", kFar), 2 * kSlipCost);
  EXPECT_GT(spelling_cost(U"a", U"abcdef", 3), 3);
}

TEST(Spelling, AStemIsNearToABeginning) {
  EXPECT_EQ(cost_of_beginning(U"restaraunt", U"restaur", kFar), kSlipCost);
  EXPECT_EQ(cost_of_beginning(U"ferries", U"ferr", kFar), 0);
  EXPECT_EQ(cost_of_beginning(U"", U"ab", kFar), 2 * kSlipCost);
}

TEST(Spelling, TwoReplacedLettersAreAnotherWord) {
  EXPECT_LT(most_spelling_cost(8), 2 * kReplacedCost);
  EXPECT_GE(most_spelling_cost(8), kReplacedCost + kSlipCost);
  EXPECT_LT(most_spelling_cost(5), 2 * kSlipCost);
  EXPECT_TRUE(are_swapped(U"huose", U"house"));
  EXPECT_FALSE(are_swapped(U"house", U"house"));
  EXPECT_FALSE(are_swapped(U"hosue", U"houes"));
}

TEST(Spelling, WordsOfDigitsAndLettersHaveParts) {
  EXPECT_EQ(parted("12400"), "12 400");
  EXPECT_EQ(parted("1234567"), "1 234 567");
  EXPECT_EQ(parted("123456"), "123 456");
  EXPECT_EQ(parted("e119"), "e 119");
  EXPECT_EQ(parted("a1b2"), "a 1 b 2");
  for (const char* one : {"", "119", "0119", "wifi", "a1b2c3d4", "1234567890123456"}) {
    EXPECT_EQ(parted(one), "") << one;
  }
}

std::vector<std::string> joined(std::string_view text) {
  std::vector<std::string> out;
  for (const Compound& one : compounds_of(text)) out.push_back(one.written + "=" + one.joined);
  return out;
}

TEST(Spelling, CompoundsAreWhatAHyphenOrOneNumberJoins) {
  EXPECT_THAT(joined("The Wi-Fi, E-119 (12,400 or 12 400)."),
              ElementsAre("Wi-Fi=WiFi", "E-119=E119", "12,400=12400", "12 400=12400"));
  EXPECT_THAT(joined("1.234.567,50"), ElementsAre("1.234.567=1234567"));
  EXPECT_THAT(joined("state-of-the-art"), ElementsAre("state-of-the-art=stateoftheart"));
  for (const char* none :
       {"", "-", "a - b", "12 40", "0171 555 123", "12 400 33", "33 12 400", "1.23.456", "12,4000",
        "a-b-c-d-e", "it's", "--", "4.5", "pages 3-", "1.234.5678"}) {
    EXPECT_THAT(joined(none), IsEmpty()) << none;
  }
}

}  // namespace
}  // namespace weft::retrieval
