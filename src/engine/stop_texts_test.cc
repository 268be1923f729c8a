#include "engine/stop_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/utf8.h"

namespace weft::engine {
namespace {

using ::testing::HasSubstr;

struct Streamed {
  std::string text;
  bool stopped = false;
};

Streamed stream(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopTexts finder(stops);
  Streamed out;
  for (const std::string& piece : pieces) {
    const StopTexts::Certain certain = finder.push(piece);
    out.text += certain.text;
    out.stopped = certain.stopped;
    if (out.stopped) return out;
  }
  out.text += finder.finish();
  return out;
}

/// What stop_texts.h says, looked for at every byte of the whole text.
Streamed slowly(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop)) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

TEST(StopTexts, PiecesJoinedAreTheTextCutAtTheFirstStop) {
  std::mt19937 random(11);
  const auto letters = [&](size_t n) {
    static const std::vector<std::string> kLetters{"a", "b", "a", "\n", "\u00fc", "\u20ac", "\x80"};
    std::string text;
    for (size_t i = 0; i < n; ++i) text += kLetters[random() % kLetters.size()];
    return text;
  };
  int stopped = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = random() % 4; i > 0; --i) stops.push_back(letters(1 + random() % 4));
    std::vector<std::string> pieces;
    std::string text;
    for (size_t i = random() % 12; i > 0; --i) {
      pieces.push_back(letters(random() % 5));
      text += pieces.back();
    }
    const Streamed expected = slowly(stops, text);
    const Streamed made = stream(stops, pieces);
    ASSERT_EQ(made.text, expected.text) << "round " << round;
    ASSERT_EQ(made.stopped, expected.stopped) << "round " << round;
    stopped += expected.stopped ? 1 : 0;
  }
  EXPECT_GT(stopped, 500);  // so that both ways were seen
  EXPECT_LT(stopped, 2500);
}

TEST(StopTexts, OnlyWhatMayBeginAStopIsHeldBack) {
  StopTexts finder({"\n\nUser:"});
  EXPECT_EQ(finder.push("Hello\n").text, "Hello");
  EXPECT_EQ(finder.push("\nUse").text, "");
  EXPECT_EQ(finder.push("ful").text, "\n\nUseful");
  EXPECT_EQ(finder.push("\n\n\nUs").text, "\n");
  const StopTexts::Certain end = finder.push("er: and more");
  EXPECT_TRUE(end.stopped);
  EXPECT_EQ(end.text, "");
}

TEST(StopTexts, TheEndOfTheAnswerGivesBackWhatWasHeld) {
  StopTexts finder({"END"});
  EXPECT_EQ(finder.push("The EN").text, "The ");
  EXPECT_EQ(finder.finish(), "EN");
  EXPECT_EQ(finder.push("D").text, "D");  // it began anew
}

TEST(StopTexts, NoPieceCutsACharacter) {
  const std::string euro = "\u20ac";
  StopTexts finder({euro.substr(1) + "!"});  // begins inside a character
  std::string all;
  for (const std::string& piece : {"x" + euro, euro + "?", euro}) {
    const std::string certain = finder.push(piece).text;
    for (size_t at = 0; at < certain.size();) {
      const size_t n = utf8_char_bytes(certain, at);
      ASSERT_GT(n, 0u) << certain;
      at += n;
    }
    all += certain;
  }
  EXPECT_EQ(all + finder.finish(), "x" + euro + euro + "?" + euro);
}

TEST(StopTexts, ManyBeginningsTakeLinearTime) {
  // By comparing anew at every byte this would be 2.5e11 steps.
  const std::string stop = std::string(500'000, 'a') + "b";
  StopTexts finder({stop});
  EXPECT_EQ(finder.push(std::string(1'000'000, 'a')).text.size(), 500'000u);
  EXPECT_TRUE(finder.push("b").stopped);
}

TEST(StopTexts, BadOnesAreRefused) {
  EXPECT_THAT(check_stop_texts({"a", ""}).message(), HasSubstr("must not be empty"));
  EXPECT_THAT(check_stop_texts(std::vector<std::string>(65, "a")).message(),
              HasSubstr("65 texts; at most 64"));
  EXPECT_TRUE(check_stop_texts({}).is_ok());
}

}  // namespace
}  // namespace weft::engine
