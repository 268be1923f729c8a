// What a prompt of the pass key test is: how long, where the key is, what the prompts of a group
// share; and what is refused.
#include "eval/passkey_prompts.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "base/narrow.h"
#include "gguf/random_model.h"
#include "support/files.h"

namespace weft::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(SentencesOf, AreTheTextAsRunningText) {
  EXPECT_THAT(
      sentences_of(
          "  Mr. Bennet\r\nmade no answer. \"Why?\" she\ncried. Then (at last.) He\n\n\nTea"),
      ElementsAre(" Mr. Bennet made no answer.", " \"Why?\" she cried.", " Then (at last.)", " He",
                  "\n\nTea"));
  EXPECT_THAT(sentences_of("春です。夏です。秋"), ElementsAre(" 春です。", "夏です。", "秋"));
  EXPECT_THAT(sentences_of(" \n\t"), ElementsAre());
}

TEST(SentencesOf, WhatHasNoEndForLongIsCut) {
  std::string words, letters;
  for (int i = 0; i < 500; ++i) words += " word";
  for (int i = 0; i < 500; ++i) letters += "ö";
  for (const std::string& text : {words, letters}) {
    const std::vector<std::string> sentences = sentences_of(text);
    EXPECT_GT(sentences.size(), 2u);
    std::string joined;
    for (const std::string& sentence : sentences) {
      EXPECT_LE(sentence.size(), 401u);
      EXPECT_NE(sentence.front() & 0xC0, 0x80) << "begins inside a character";
      joined += sentence;
    }
    EXPECT_EQ(joined, text == words ? words : " " + letters);
  }
}

TEST(PasskeyDepths, AreSpreadEvenly) {
  EXPECT_THAT(passkey_depths(10),
              ElementsAre(0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95));
  EXPECT_THAT(passkey_depths(5), ElementsAre(0.15, 0.35, 0.55, 0.75, 0.95));
  EXPECT_THAT(passkey_depths(1), ElementsAre(0.55));
}

class Prompts : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = dir_ / "model.gguf";
    ASSERT_TRUE(gguf::write_random_model(posix_env(), path, {.vocab = 300}).is_ok());
    auto engine = engine::Engine::open(
        posix_env(), {.model_path = path, .n_threads = 1, .context_tokens = 64, .compute = "f32"});
    ASSERT_TRUE(engine.is_ok()) << engine.status().message();
    engine_ = *std::move(engine);
    for (int i = 0; i < 400; ++i) {
      text_.text += fmt::format("Line {} of the\ntext{} ends here. ", i, std::string(i % 7, 'x'));
    }
  }

  PasskeyPrompts create(const PasskeyOptions& options, bool generated = false) {
    auto prompts =
        PasskeyPrompts::create(*engine_, generated ? std::nullopt : std::optional(text_), options);
    EXPECT_TRUE(prompts.is_ok()) << prompts.status().message();
    return *std::move(prompts);
  }
  Status refused(const std::string& text, const PasskeyOptions& options) {
    return PasskeyPrompts::create(*engine_, PasskeyText{"book.txt", text}, options).status();
  }
  std::string decoded(std::span<const int32_t> tokens) const {
    return engine_->tokenizer().decode(tokens);
  }
  std::vector<std::string> all(const PasskeyOptions& options) {
    const PasskeyPrompts prompts = create(options);
    std::vector<std::string> texts;
    for (int64_t g = 0; g < prompts.n_groups(); ++g) {
      for (const PasskeyPrompt& prompt : prompts.group(g)) texts.push_back(decoded(prompt.tokens));
    }
    return texts;
  }

  test::TempDir dir_;
  std::unique_ptr<engine::Engine> engine_;
  PasskeyText text_{.name = "book.txt", .text = ""};
};

int64_t count(const std::string& text, std::string_view what) {
  int64_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST_F(Prompts, HaveExactlyTheLengthAndTheKeyInFrontOfASentence) {
  for (const bool generated : {false, true}) {
    for (const int32_t length : {1000, 1337, 3001}) {
      const PasskeyPrompts prompts = create({.length_tokens = length, .n_trials = 23}, generated);
      ASSERT_EQ(prompts.n_groups(), 3);
      int64_t n_prompts = 0;
      for (int64_t g = 0; g < prompts.n_groups(); ++g) {
        for (const PasskeyPrompt& prompt : prompts.group(g)) {
          ++n_prompts;
          ASSERT_EQ(std::ssize(prompt.tokens), length);
          const auto tokens = std::span(prompt.tokens);
          const std::string before = decoded(tokens.first(prompt.needle_begin));
          const std::string after = decoded(tokens.subspan(prompt.needle_begin));
          EXPECT_TRUE(before.ends_with('.')) << before;
          EXPECT_EQ(prompt.value.size(), 5u);
          const std::string needle =
              fmt::format(" The pass key is {0}. Remember it. {0} is the pass key.", prompt.value);
          EXPECT_THAT(after, StartsWith(needle));
          EXPECT_TRUE(
              after.ends_with("\n\nWhat is the pass key? Answer with the number. The pass key is"))
              << after;
        }
      }
      EXPECT_EQ(n_prompts, 23);
    }
  }
}

TEST_F(Prompts, HaveTheKeyNearItsDepth) {
  const int32_t length = 4000;
  const PasskeyPrompts prompts = create({.length_tokens = length, .n_trials = 10});
  // Of the tokens around the text: those of the shortest prompt that there can be.
  int32_t around = 0;
  while (PasskeyPrompts::create(*engine_, text_, {.length_tokens = around, .n_trials = 1})
             .status()
             .code() == StatusCode::kResourceExhausted) {
    ++around;
  }
  const auto at_start = create({.length_tokens = length, .depth = 0, .n_trials = 1}).group(0);
  const int32_t opening = at_start.front().needle_begin;
  const auto group = prompts.group(0);
  for (size_t i = 0; i < group.size(); ++i) {
    EXPECT_EQ(group[i].depth, passkey_depths(10)[i]);
    EXPECT_NEAR(group[i].needle_begin - opening, group[i].depth * (length - around), 20);
  }
  const auto at_end = create({.length_tokens = length, .depth = 1, .n_trials = 2}).group(0);
  EXPECT_NEAR(at_end.back().needle_begin - opening, length - around, 40);
  EXPECT_EQ(at_end.back().depth, 1);
}

TEST_F(Prompts, OfAGroupShareAllBeforeTheirKeysAndGroupsBeginElsewhere) {
  for (const int32_t n_needles : {1, 5}) {
    const PasskeyPrompts prompts =
        create({.length_tokens = 3000, .n_trials = 30, .n_needles = n_needles});
    std::set<std::string> beginnings, values;
    for (int64_t g = 0; g < prompts.n_groups(); ++g) {
      const auto group = prompts.group(g);
      ASSERT_EQ(group.size(), 10u);
      for (size_t i = 0; i + 1 < group.size(); ++i) {
        ASSERT_LE(group[i].needle_begin, group[i + 1].needle_begin);
        EXPECT_TRUE(std::equal(group[i].tokens.begin(),
                               group[i].tokens.begin() + group[i].needle_begin,
                               group[i + 1].tokens.begin()));
      }
      for (const PasskeyPrompt& prompt : group) values.insert(prompt.value);
      const std::span<const int32_t> last = group.back().tokens;
      beginnings.insert(decoded(last.first(group.back().needle_begin)));
    }
    EXPECT_EQ(values.size(), 30u);
    EXPECT_EQ(beginnings.size(), 3u);
  }
}

TEST_F(Prompts, FollowFromTheirSeed) {
  const PasskeyOptions options{.length_tokens = 1500, .n_trials = 13, .n_needles = 2};
  EXPECT_EQ(all(options), all(options));
  PasskeyOptions other = options;
  other.seed = 2;
  const auto one = all(options), two = all(other);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NE(one[i], two[i]);
}

TEST_F(Prompts, OfSeveralKeysAskForOneByItsName) {
  for (const int32_t n_needles : {2, 7}) {
    const PasskeyPrompts prompts =
        create({.length_tokens = 3000, .n_trials = 10, .n_needles = n_needles});
    for (const PasskeyPrompt& prompt : prompts.group(0)) {
      ASSERT_EQ(prompt.tokens.size(), 3000u);
      const std::string text = decoded(prompt.tokens);
      EXPECT_EQ(count(text, ". Remember it. "), n_needles);
      EXPECT_EQ(prompt.value.size(), 36u);
      const size_t asked = text.find("What is the ") + 12;
      const std::string name = text.substr(asked, text.find('?', asked) - asked);
      EXPECT_THAT(name, StartsWith("pass key of the "));
      EXPECT_EQ(count(text, fmt::format("The {} is {}.", name, prompt.value)), 1);
      EXPECT_EQ(count(text, fmt::format("The {} is ", name)), 1);
      EXPECT_TRUE(text.ends_with(fmt::format("The {} is", name)));
    }
  }
}

TEST_F(Prompts, AreRefusedWhereTheyDoNotFitAndTheLeastLengthIsSaid) {
  for (const int32_t n_needles : {1, 3}) {
    const Status too_short = refused(text_.text, {.length_tokens = 40, .n_needles = n_needles});
    EXPECT_EQ(too_short.code(), StatusCode::kResourceExhausted);
    const std::string line = too_short.message();
    EXPECT_THAT(line, StartsWith("--length 40: "));
    const size_t at = line.find("must be ");
    ASSERT_NE(at, std::string::npos);
    const int32_t least = std::stoi(line.substr(at + 8));
    EXPECT_TRUE(refused(text_.text, {.length_tokens = least, .n_needles = n_needles}).is_ok());
    EXPECT_THAT(refused(text_.text, {.length_tokens = least - 1, .n_needles = n_needles}).message(),
                HasSubstr(fmt::format("must be {} or more", least)));
  }
}

TEST_F(Prompts, AreRefusedWithoutTextEnough) {
  EXPECT_EQ(refused("", {.length_tokens = 500}).message(), "book.txt: has no text");
  EXPECT_EQ(refused("a\xFFz", {.length_tokens = 500}).message(), "book.txt: is not UTF-8");
  const Status few = refused("Few words.", {.length_tokens = 1000});
  EXPECT_EQ(few.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(few.message(), StartsWith("book.txt: has 11 tokens, a prompt of --length 1000 "));
}

TEST_F(Prompts, OfATextThatIsJustLongEnoughBeginAtItsBeginning) {
  const std::string line = refused(text_.text, {.length_tokens = 100'000}).message();
  int64_t n_tokens = 0, n_needed = 0;
  ASSERT_EQ(std::sscanf(line.c_str(),
                        "book.txt: has %ld tokens, a prompt of --length 100000 takes %ld of it",
                        &n_tokens, &n_needed),
            2)
      << line;
  const auto most = narrow<int32_t>(100'000 - n_needed + n_tokens);
  EXPECT_EQ(refused(text_.text, {.length_tokens = most + 1}).code(),
            StatusCode::kResourceExhausted);
  const PasskeyPrompts whole = create({.length_tokens = most, .n_trials = 30});
  for (int64_t g = 0; g < whole.n_groups(); ++g) {
    const std::string text = decoded(whole.group(g).back().tokens);
    EXPECT_THAT(text, HasSubstr("there. Line 0 of the text"));
    EXPECT_THAT(text, HasSubstr(" Line 399 of the text ends here.\n\nWhat is the pass key?"));
  }
  // With two of its sentences to spare there are three places to begin at, and no more.
  std::set<std::string> beginnings;
  const auto n_spare = std::ssize(*engine_->tokenizer().encode(" Line 0 of the text ends here."));
  const PasskeyPrompts shorter =
      create({.length_tokens = narrow<int32_t>(most - 2 * n_spare - 1), .n_trials = 400});
  for (int64_t g = 0; g < shorter.n_groups(); ++g) {
    const std::string text = decoded(shorter.group(g).back().tokens);
    const size_t begin = text.find("there. Line ") + 12;
    beginnings.insert(text.substr(begin, text.find(' ', begin) - begin));
  }
  EXPECT_THAT(beginnings, ElementsAre("0", "1", "2"));
}

}  // namespace
}  // namespace weft::eval
