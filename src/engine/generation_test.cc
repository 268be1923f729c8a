// One answer as it grows, over logits that are given: what is shown of it, and when and why it
// ends.
#include "engine/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "support/vocabularies.h"
#include "text/tokenizer.h"

namespace weft::engine {
namespace {

using test::bpe_test_vocab;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A tokenizer of bytes (a letter's id is not its code), and texts that grow by chosen tokens.
class TextGenerationTest : public ::testing::Test {
 protected:
  TextGenerationTest() : tokenizer_(text::Tokenizer::create(bpe_test_vocab({}))) {}

  std::vector<int32_t> ids_of(std::string_view text) {
    return *tokenizer_->encode(text, {.add_bos = false});
  }
  int32_t end_token() const { return tokenizer_->vocab_size() - 2; }  // <|im_end|>

  /// Logits that make `first` likeliest and `second` next.
  std::vector<float> logits_for(int32_t first, int32_t second = 0) const {
    std::vector<float> logits(static_cast<size_t>(tokenizer_->vocab_size()), 0.0f);
    logits[static_cast<size_t>(second)] = 1.0f;
    logits[static_cast<size_t>(first)] = 2.0f;
    return logits;
  }

  /// The model wants to say these tokens, then to end; there is room for `room` of them.
  Generation grow(const GenerationOptions& options, std::vector<int32_t> tokens,
                  size_t room = std::numeric_limits<size_t>::max()) {
    auto text = TextGeneration::create(*tokenizer_, options, {});
    EXPECT_TRUE(text.is_ok()) << text.status().message();
    shown_.clear();
    const auto on_text = [&](std::string_view piece) {
      shown_ += piece;
      return shown_.size() < cancel_at_;
    };
    for (size_t i = 0;; ++i) {
      std::vector<float> logits = logits_for(i < tokens.size() ? tokens[i] : end_token());
      if (!(*text)->next(logits, i < room, on_text)) break;
    }
    return (*text)->finish(on_text);
  }

  Result<text::Tokenizer> tokenizer_;
  std::string shown_;
  size_t cancel_at_ = std::numeric_limits<size_t>::max();
};

TEST_F(TextGenerationTest, EndsWithTheModelsTurn) {
  const Generation out = grow({}, ids_of("seven"));
  EXPECT_EQ(out.text, "seven");
  EXPECT_EQ(out.stop_reason, StopReason::kEnd);
  EXPECT_EQ(out.tokens.size(), 5u);  // the one that ended it is no part
  EXPECT_EQ(shown_, out.text);
}

TEST_F(TextGenerationTest, HasAsManyTokensAsAllowed) {
  const Generation out = grow({.max_tokens = 3}, ids_of("seven"));
  EXPECT_EQ(out.text, "sev");
  EXPECT_EQ(out.stop_reason, StopReason::kMaxTokens);
  EXPECT_EQ(grow({.max_tokens = kNoTokenLimit}, ids_of("seven")).text, "seven");
}

TEST_F(TextGenerationTest, OfNoTokensSamplesNone) {
  auto text = TextGeneration::create(*tokenizer_, {.max_tokens = 0}, {});
  ASSERT_TRUE(text.is_ok());
  std::vector<float> logits = logits_for(ids_of("a")[0]);
  const auto never = [](std::string_view) { return ADD_FAILURE() << "text", true; };
  EXPECT_EQ((*text)->next(logits, true, never), std::nullopt);
  const Generation out = (*text)->finish(never);
  EXPECT_EQ(out.stop_reason, StopReason::kMaxTokens);
  EXPECT_THAT(out.tokens, IsEmpty());
}

TEST_F(TextGenerationTest, ATokenWithoutRoomIsTheLast) {
  const Generation out = grow({}, ids_of("seven"), 2);
  EXPECT_EQ(out.text, "sev");  // the third was sampled, and cannot be run
  EXPECT_EQ(out.stop_reason, StopReason::kContextFull);
}

TEST_F(TextGenerationTest, AStopTextAndWhatFollowsAreNoPartOfIt) {
  const Generation out = grow({.stops = {"ve"}}, ids_of("seven"));
  EXPECT_EQ(out.text, "se");
  EXPECT_EQ(shown_, "se");
  EXPECT_EQ(out.stop_reason, StopReason::kStopText);
  EXPECT_EQ(out.tokens.size(), 3u);  // without the one that completed the stop text
}

TEST_F(TextGenerationTest, WhatOnlyBeganAStopTextIsGivenBack) {
  const Generation out = grow({.stops = {"never"}}, ids_of("seven"));
  EXPECT_EQ(out.text, "seven");
  EXPECT_EQ(shown_, "seven");
  EXPECT_EQ(out.stop_reason, StopReason::kEnd);
}

TEST_F(TextGenerationTest, OneLineEndsAtTheFirstBreakAfterText) {
  const Generation out = grow({.one_line = true}, ids_of("\n at seven\nor later"));
  EXPECT_EQ(out.text, "\n at seven");
  EXPECT_EQ(out.stop_reason, StopReason::kEnd);
}

TEST_F(TextGenerationTest, WhoTakesTheTextCanEndIt) {
  cancel_at_ = 2;
  const Generation out = grow({}, ids_of("seven"));
  EXPECT_EQ(out.text, "se");
  EXPECT_EQ(out.stop_reason, StopReason::kCancelled);
}

TEST_F(TextGenerationTest, AnIgnoredEndIsNeverSampled) {
  auto text = TextGeneration::create(*tokenizer_, {.ignore_end = true}, {});
  ASSERT_TRUE(text.is_ok());
  const int32_t next = ids_of("s")[0];
  std::vector<float> logits = logits_for(end_token(), next);
  const std::vector<float> before = logits;
  EXPECT_EQ((*text)->next(logits, true, [](std::string_view) { return true; }), next);
  EXPECT_EQ(logits, before);
}

TEST_F(TextGenerationTest, ACharacterIsShownWhole) {
  std::vector<std::string> pieces;
  auto text = TextGeneration::create(*tokenizer_, {}, {});
  ASSERT_TRUE(text.is_ok());
  for (const int32_t id : ids_of("é!")) {
    std::vector<float> logits = logits_for(id);
    (*text)->next(logits, true, [&](std::string_view piece) {
      pieces.emplace_back(piece);
      return true;
    });
  }
  EXPECT_THAT(pieces, ElementsAre("", "é", "!"));
}

TEST(GenerationOptions, AreRefusedByName) {
  const auto refused = [](const GenerationOptions& options) {
    const Status status = check_options(options);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(refused({.max_tokens = -2}), HasSubstr("tokens -2: must be -1 (no limit) or more"));
  EXPECT_THAT(refused({.stops = {""}}), HasSubstr("stop"));
  EXPECT_THAT(refused({.sampling = {.temperature = -1.0f}}), HasSubstr("temp -1"));
  EXPECT_TRUE(check_options({.max_tokens = kNoTokenLimit}).is_ok());
  EXPECT_TRUE(check_options({.max_tokens = 0}).is_ok());
}

TEST(GenerationOptions, LogitsOfWhichNoneIsFiniteAreCorrupt) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float none[] = {kNan, kInf, -kInf};
  const float one[] = {kNan, 0.5f, -kInf};
  EXPECT_EQ(check_logits(none).code(), StatusCode::kCorrupt);
  EXPECT_EQ(check_logits({}).code(), StatusCode::kCorrupt);
  EXPECT_TRUE(check_logits(one).is_ok());
}

// Without a limit an answer has a quarter of the context: a prompt of 300 needs 400.
TEST(GenerationOptions, RoomForTheAnswerAndTheContextThatLeavesIt) {
  EXPECT_EQ(room_for_answer({.max_tokens = 50}, 1000), 50);
  EXPECT_EQ(room_for_answer({.max_tokens = kNoTokenLimit}, 1000), 250);
  EXPECT_EQ(context_for({.max_tokens = 50}, 300), 350);
  for (const int64_t prompt : {1, 2, 3, 299, 300, 301}) {
    const GenerationOptions unlimited{.max_tokens = kNoTokenLimit};
    const int64_t context = context_for(unlimited, prompt);
    const auto left = [&](int64_t of) {
      return of - room_for_answer(unlimited, static_cast<int32_t>(of));
    };
    EXPECT_GE(left(context), prompt);
    EXPECT_LT(left(context - 2), prompt) << "a smaller one would do";  // 399 holds 300, too
  }
}

}  // namespace
}  // namespace weft::engine
