#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "retrieval/unspaced_internal.h"

namespace weft::retrieval {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Unspaced, ARunBecomesItsPairsAndItsLastCharacter) {
  EXPECT_EQ(pieces_of("", "東京"), "u026481u020140 u020140");
  EXPECT_EQ(pieces_of("海", ""), "u028023");
  EXPECT_EQ(pieces_of("", "plain words, and ünïcödé"), "");
}

TEST(Unspaced, AsciiWordsNextToARunAreTermsOfTheirOwn) {
  EXPECT_EQ(pieces_of("", "海2024年"), "u028023 2024 u024180");
  EXPECT_EQ(pieces_of("", "iPhone海 and Android"), "iPhone u028023");
  EXPECT_EQ(pieces_of("", "iPhone 海 Android"), "u028023");
}

TEST(Unspaced, InvalidUtf8IsHandled) {
  EXPECT_EQ(pieces_of("", "\xe6\x9d\xff\xf0\x9f"), "");
  const UnspacedQuestion question = split_unspaced("\xe6\x9d walnut \xff");
  EXPECT_THAT(question.pairs, IsEmpty());
  EXPECT_EQ(question.spaced, "\xe6\x9d walnut \xff");
}

TEST(Unspaced, AskingWordsAreRemovedFromAQuestionsRuns) {
  // The Great Wall, how long is it? Length and name stay.
  const UnspacedQuestion chinese = split_unspaced("长城是什么?");
  EXPECT_EQ(chinese.spaced, " ?");
  EXPECT_EQ(chinese.pairs.size(), 1u);
  EXPECT_THAT(split_unspaced("什么?").pairs, IsEmpty());
  // Of 東京の人口は何ですか the pairs of hiragana alone go.
  const UnspacedQuestion japanese = split_unspaced("東京の人口は何ですか");
  EXPECT_THAT(japanese.pairs, ElementsAre("u026481u020140", "u020140u012398", "u012398u020154",
                                          "u020154u021475", "u021475u012399"));
  EXPECT_THAT(split_unspaced("ひらがな").pairs.size(), 3u);  // unless there is nothing else
  EXPECT_THAT(split_unspaced("海?").begins, ElementsAre("u028023"));
  EXPECT_EQ(split_unspaced("Where is 東京 2024?").spaced, "Where is   2024?");
}

}  // namespace
}  // namespace weft::retrieval
