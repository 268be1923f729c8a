#include "retrieval/ignore_rules.h"

#include <gtest/gtest.h>

#include <string>

#include "retrieval/glob.h"

namespace weft::retrieval {
namespace {

bool matches(std::string_view pattern, std::string_view path) {
  uint64_t steps = UINT64_MAX;
  return Glob(pattern).matches(split_path(path), steps);
}

/// "ignored", "included" or "" of a path; a folder's ends with a slash.
std::string judged(std::string_view file, std::string path) {
  IgnoreRules rules;
  EXPECT_TRUE(rules.add_all(file));
  const bool is_folder = path.ends_with('/');
  if (is_folder) path.pop_back();
  switch (rules.judge(RelativePath(path), is_folder)) {
    case IgnoreRules::Verdict::kIgnored:
      return "ignored";
    case IgnoreRules::Verdict::kIncluded:
      return "included";
    case IgnoreRules::Verdict::kNothing:
      break;
  }
  return "";
}

TEST(Glob, StarsAndQuestionMarksStayWithinAName) {
  EXPECT_TRUE(matches("*.txt", "a.txt"));
  EXPECT_TRUE(matches("*.txt", ".txt"));
  EXPECT_FALSE(matches("*.txt", "a.txt.bak"));
  EXPECT_FALSE(matches("*", "a/b"));
  EXPECT_TRUE(matches("a*c*e", "abcde"));
  EXPECT_TRUE(matches("a*bc", "abcbc"));
  EXPECT_FALSE(matches("a*bc", "abcb"));
  EXPECT_TRUE(matches("?", "\u00fc"));  // a character, not a byte
  EXPECT_FALSE(matches("?", ""));
  EXPECT_TRUE(matches("?", "\xFF"));
  EXPECT_TRUE(matches("\xFF*", "\xFF\xFE"));
  EXPECT_FALSE(matches("a?c", "a/c"));
}

TEST(Glob, ASetsIntervalsMayOverlapAndComeInAnyOrder) {
  const std::string set = "[\u0410-\u044f\u0430-\u0450m-pa-cb-n\u00e4\u00e5x\u2020-\u2010]";
  for (char c = 1; c < 127; ++c) {
    if (c == '/') continue;
    const bool is_in = (c >= 'a' && c <= 'p') || c == 'x';
    EXPECT_EQ(matches(set, std::string(1, c)), is_in) << c;
    EXPECT_EQ(matches("[!" + set.substr(1), std::string(1, c)), !is_in) << c;
  }
  for (const char* c : {"\u0410", "\u0440", "\u0450", "\u00e4", "\u00e5"}) {
    EXPECT_TRUE(matches(set, c)) << c;
  }
  for (const char* c : {"\u040f", "\u0451", "\u00e3", "\u00e6", "\u2018", "\xFF"}) {
    EXPECT_FALSE(matches(set, c)) << c;
  }
}

TEST(IgnoreRules, PathsThatTakeTooLongToMatchAreLeftOut) {
  IgnoreRules rules;
  EXPECT_TRUE(rules.add("zz*"));
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(rules.add("*[a-z]q"));
  const std::string name(100, 'z');
  const RelativePath path(name);
  uint64_t steps = 10'000;
  EXPECT_EQ(rules.judge(path, false, steps), IgnoreRules::Verdict::kIgnored);
  const uint64_t taken = 10'000 - steps;
  EXPECT_GT(taken, 1000u);
  EXPECT_LT(taken, 10 * 3 * 102 + 110);
  for (uint64_t few : {uint64_t{0}, uint64_t{1}, taken / 2, taken - 1}) {
    EXPECT_EQ(rules.judge(path, false, few), IgnoreRules::Verdict::kNothing);
    EXPECT_EQ(few, 0u);
  }
}

TEST(Glob, Sets) {
  EXPECT_TRUE(matches("[a-c]x", "bx"));
  EXPECT_FALSE(matches("[a-c]x", "dx"));
  EXPECT_TRUE(matches("[!a-c]", "d"));
  EXPECT_FALSE(matches("[^a-c]", "b"));
  EXPECT_TRUE(matches("[]a]", "]"));
  EXPECT_TRUE(matches("[a-]", "-"));
  EXPECT_TRUE(matches("[\\]x]", "]"));
  EXPECT_TRUE(matches("[\u00e4\u00f6]", "\u00f6"));
  EXPECT_TRUE(matches("[[:digit:]x]*", "7a"));
  EXPECT_FALSE(matches("[[:digit:]]", "a"));
  EXPECT_FALSE(matches("[[:nosuch:]]", "n"));
  EXPECT_FALSE(matches("[z-a]", "b"));
  EXPECT_FALSE(matches("[a", "[a"));
  EXPECT_FALSE(matches("a\\", "a\\"));
}

TEST(Glob, EscapesMeanTheCharacter) {
  EXPECT_TRUE(matches("\\*", "*"));
  EXPECT_FALSE(matches("\\*", "a"));
  EXPECT_TRUE(matches("\\[a\\]", "[a]"));
  EXPECT_TRUE(matches("a\\?*", "a?b"));
}

TEST(Glob, TwoStarsAreFolders) {
  EXPECT_TRUE(matches("**/a", "a"));
  EXPECT_TRUE(matches("**/a", "x/y/a"));
  EXPECT_TRUE(matches("a/**/b", "a/b"));
  EXPECT_TRUE(matches("a/**/b", "a/x/y/b"));
  EXPECT_FALSE(matches("a/**/b", "a/x/y/c"));
  EXPECT_FALSE(matches("a/**", "a"));
  EXPECT_TRUE(matches("a/**", "a/b"));
  EXPECT_TRUE(matches("a/**", "a/b/c"));
  EXPECT_TRUE(matches("a/**/**/b", "a/b"));
  EXPECT_TRUE(matches("**/a/**/b", "a/a/c/b"));
  EXPECT_TRUE(matches("****/a", "x/y/a"));
  EXPECT_TRUE(matches("a\\/b", "a/b"));
  EXPECT_TRUE(matches("a[/b]/c", "ab/c"));
  EXPECT_FALSE(matches("a[/b]c", "a/c"));
  EXPECT_TRUE(matches("a**b", "axb"));
  EXPECT_FALSE(matches("a**b", "a/b"));
}

// In a matcher that tries every way these take longer than the universe.
TEST(Glob, MatchingTakesNoExponentialTime) {
  std::string stars, folders, name(250, 'a'), path;
  for (int i = 0; i < 250; ++i) {
    stars += "a*";
    folders += "**/a*/";
    path += "a/";
  }
  EXPECT_FALSE(matches(stars + "b", name));
  EXPECT_TRUE(matches(stars, name));
  EXPECT_FALSE(matches(folders + "b", path + "c"));
  EXPECT_FALSE(matches("a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*a*b", name));
}

TEST(IgnoreRules, TheLastRuleThatMatchesDecides) {
  EXPECT_EQ(judged("*.log\n!keep.log\n", "a.log"), "ignored");
  EXPECT_EQ(judged("*.log\n!keep.log\n", "x/keep.log"), "included");
  EXPECT_EQ(judged("!keep.log\n*.log\n", "keep.log"), "ignored");
  EXPECT_EQ(judged("*.log\n", "a.txt"), "");
}

TEST(IgnoreRules, ASlashAtTheBeginningOrWithinMakesAPathFromHere) {
  EXPECT_EQ(judged("/a", "a"), "ignored");
  EXPECT_EQ(judged("/a", "x/a"), "");
  EXPECT_EQ(judged("x/a", "x/a"), "ignored");
  EXPECT_EQ(judged("x/a", "y/x/a"), "");
  EXPECT_EQ(judged("a", "x/y/a"), "ignored");
  EXPECT_EQ(judged("**/x/a", "y/x/a"), "ignored");
  EXPECT_EQ(judged("**", "x/y"), "ignored");
  EXPECT_EQ(judged("/*", "x"), "ignored");
  EXPECT_EQ(judged("/*", "x/y"), "");
}

TEST(IgnoreRules, ATabAtTheEndIsPartOfAPattern) {
  EXPECT_EQ(judged("a\t\n", "a"), "");
  EXPECT_EQ(judged("a\t\n", "a\t"), "ignored");
  EXPECT_EQ(judged("a\t  \r\n", "a\t"), "ignored");
}

TEST(IgnoreRules, ASlashAtTheEndIsAFolder) {
  EXPECT_EQ(judged("build/", "build/"), "ignored");
  EXPECT_EQ(judged("build/", "build"), "");
  EXPECT_EQ(judged("build/", "x/build/"), "ignored");
  EXPECT_EQ(judged("/x/build/", "x/build/"), "ignored");
  EXPECT_EQ(judged("/", "x/"), "");
}

TEST(IgnoreRules, CommentsEscapesAndSpaces) {
  EXPECT_EQ(judged("# a\n\n   \n", "a"), "");
  EXPECT_EQ(judged("\\#a", "#a"), "ignored");
  EXPECT_EQ(judged("\\!a", "!a"), "ignored");
  EXPECT_EQ(judged("a  \r\n", "a"), "ignored");
  EXPECT_EQ(judged("a\\ ", "a "), "ignored");
  EXPECT_EQ(judged("a\\\\ ", "a\\"), "ignored");
  EXPECT_EQ(judged("\xEF\xBB\xBF"
                   "a",
                   "a"),
            "ignored");
  EXPECT_EQ(judged(" a", " a"), "ignored");
  EXPECT_EQ(judged("!", "!"), "");
}

TEST(IgnoreRules, PastItsBoundsItSaysSo) {
  IgnoreRules rules;
  EXPECT_FALSE(rules.add(std::string(IgnoreRules::kMaxPatternBytes + 1, 'a')));
  EXPECT_TRUE(rules.is_empty());
  std::string file;
  for (size_t i = 0; i <= IgnoreRules::kMaxRules; ++i) file += "a" + std::to_string(i) + "\n";
  EXPECT_FALSE(rules.add_all(file));
  EXPECT_EQ(rules.judge(RelativePath("a0"), false), IgnoreRules::Verdict::kIgnored);
  EXPECT_EQ(rules.judge(RelativePath("a" + std::to_string(IgnoreRules::kMaxRules)), false),
            IgnoreRules::Verdict::kNothing);
}

}  // namespace
}  // namespace weft::retrieval
