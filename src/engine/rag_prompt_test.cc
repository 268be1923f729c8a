// What --anchor and --prompt mean, and the tokens of each form, for models with random weights.
#include "engine/rag_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gguf/random_model.h"
#include "support/files.h"

namespace weft::engine {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Kind = AnchorSpec::Kind;

TEST(AnchorSpecs, AreNamesOrAFile) {
  const test::TempDir dir;
  dir.write("anchor.txt", "One passage.\n\nAnother.");
  EXPECT_EQ(AnchorSpec::parse(posix_env(), "none")->kind, Kind::kNone);
  EXPECT_EQ(AnchorSpec::parse(posix_env(), "opening")->kind, Kind::kOpening);
  EXPECT_EQ(AnchorSpec::parse(posix_env(), "neutral")->kind, Kind::kNeutral);
  const auto file = AnchorSpec::parse(posix_env(), dir / "anchor.txt");
  ASSERT_TRUE(file.is_ok());
  EXPECT_EQ(file->kind, Kind::kFile);
  EXPECT_EQ(file->passages, "One passage.\n\nAnother.");
  const Status missing = AnchorSpec::parse(posix_env(), dir / "Neutral").status();
  EXPECT_EQ(missing.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(missing.message(), HasSubstr("must be " + AnchorSpec::choices()));
  dir.write("large.txt", std::string(64 * 1024 + 1, 'x'));
  EXPECT_FALSE(AnchorSpec::parse(posix_env(), dir / "large.txt").is_ok());
}

TEST(PromptForms, AreReadByTheNamesThatTheyAreShownBy) {
  for (const auto& one : kPromptForms) EXPECT_EQ(*parse_prompt_form(one.name), one.value);
  EXPECT_EQ(*parse_prompt_form(""), std::nullopt);
  EXPECT_EQ(parse_prompt_form("Chat").status().code(), StatusCode::kInvalidArgument);
}

/// A model with a chat template and one without.
class RagPromptTest : public ::testing::Test {
 protected:
  void SetUp() override {
    base_ = open("base.gguf", "");
    chat_ = open("chat.gguf",
                 "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
                 "{% if add_generation_prompt %}<assistant>{% endif %}");
  }
  std::unique_ptr<Engine> open(const std::string& name, const std::string& chat_template) {
    const std::string path = dir_ / name;
    EXPECT_TRUE(
        gguf::write_random_model(posix_env(), path, {.vocab = 300, .chat_template = chat_template})
            .is_ok());
    auto engine = Engine::open(
        posix_env(),
        {.model_path = path, .n_threads = 1, .context_tokens = 1024, .compute = "f32"});
    EXPECT_TRUE(engine.is_ok()) << engine.status().message();
    return *std::move(engine);
  }
  static std::string text_of(const Engine& engine, const Result<std::vector<int32_t>>& tokens) {
    EXPECT_TRUE(tokens.is_ok()) << tokens.status().message();
    return engine.tokenizer().decode(*tokens);
  }

  test::TempDir dir_;
  std::unique_ptr<Engine> base_, chat_;
};

TEST_F(RagPromptTest, TheModelsTemplateDecidesTheForm) {
  EXPECT_EQ(RagPrompt::for_engine(*base_)->form(), PromptForm::kFewShot);
  EXPECT_EQ(RagPrompt::for_engine(*chat_)->form(), PromptForm::kChat);
  EXPECT_EQ(RagPrompt::for_engine(*chat_, PromptForm::kFewShot)->form(), PromptForm::kFewShot);
  EXPECT_EQ(RagPrompt::for_engine(*base_, PromptForm::kChat).status().code(),
            StatusCode::kNotFound);
}

TEST_F(RagPromptTest, ChatPutsPassagesIntoTheUsersTurn) {
  const auto prompt = RagPrompt::for_engine(*chat_);
  ASSERT_TRUE(prompt.is_ok());
  EXPECT_EQ(text_of(*chat_, prompt->prefix()), "<user>Passages:\n\n");
  EXPECT_EQ(text_of(*chat_, prompt->chunk("Pears", "They ripen late.")),
            "Pears\nThey ripen late.\n\n");
  EXPECT_EQ(text_of(*chat_, prompt->chunk("", "No title.")), "No title.\n\n");
  EXPECT_EQ(text_of(*chat_, prompt->suffix("When?")),
            "\n\nQuestion: When?\nShort answer:</><assistant>Answer:");
}

TEST_F(RagPromptTest, FewShotGoesOnAfterExamples) {
  const auto prompt = RagPrompt::for_engine(*base_);
  ASSERT_TRUE(prompt.is_ok());
  const std::string prefix = text_of(*base_, prompt->prefix());
  EXPECT_THAT(prefix, StartsWith("Passage: Lighthouse of Orm: "));
  EXPECT_EQ(text_of(*base_, prompt->chunk("Pears", "They ripen late.")),
            "Passage: Pears: They ripen late.\n");
  EXPECT_EQ(text_of(*base_, prompt->suffix("When?")), "Question: When?\nAnswer:");
}

TEST_F(RagPromptTest, EarlierQuestionsComeBeforeThePassages) {
  const Exchange earlier[] = {{"When?", "  in October \n"}};
  const auto few_shot = RagPrompt::for_engine(*base_);
  const auto frame = few_shot->frame(std::nullopt, earlier, "Where?");
  ASSERT_TRUE(frame.is_ok());
  EXPECT_TRUE(text_of(*base_, frame->prefix).ends_with("Question: When?\nAnswer: in October\n\n"));
  EXPECT_EQ(text_of(*base_, frame->suffix), "Question: Where?\nAnswer:");
  EXPECT_EQ(few_shot->frame("Be brief.", {}, "Where?").status().code(),
            StatusCode::kInvalidArgument);
  const auto chat = RagPrompt::for_engine(*chat_);
  const auto turns = chat->frame("Be brief.", earlier, "Where?");
  ASSERT_TRUE(turns.is_ok());
  EXPECT_EQ(text_of(*chat_, turns->prefix),
            "<system>Be brief.</><user>Question: When?\nShort answer:</>"
            "<assistant>Answer: in October</><user>Passages:\n\n");
}

TEST_F(RagPromptTest, WithoutEarlierQuestionsAFrameIsPrefixAndSuffix) {
  for (const Engine* engine : {base_.get(), chat_.get()}) {
    const auto prompt = RagPrompt::for_engine(*engine);
    const auto frame = prompt->frame(std::nullopt, {}, "Where?");
    ASSERT_TRUE(frame.is_ok());
    EXPECT_EQ(frame->prefix, *prompt->prefix());
    EXPECT_EQ(frame->suffix, *prompt->suffix("Where?"));
  }
}

}  // namespace
}  // namespace weft::engine
