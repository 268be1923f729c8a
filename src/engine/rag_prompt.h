// The form of a question over passages: what comes before the passages, how one passage looks, and
// what comes after them. Ingest, ask, eval and bench all take it from here, so that a chunk's
// tokens are the same everywhere. For a model with a chat template:
//
//   [system turn] [opening of the user turn] Passages:\n\n
//   {title}\n{text}\n\n          for each passage, tokenised by itself
//   \n\nQuestion: {question}\nShort answer: [end of turn] [opening of the answer] Answer:
//
// For a base model, which has learned to go on and not to obey, three examples of our own first:
//
//   [BOS] Passage: …\nQuestion: …\nAnswer: …\n\n …
//   Passage: {title}: {text}\n    for each passage, tokenised by itself
//   Question: {question}\nAnswer:
//
// In a conversation the earlier questions come before that, each with its answer and without its
// passages, in the same words: as turns of their own ("Question: …\nShort answer:", then "Answer:
// …"), or after the examples ("Question: …\nAnswer: …\n\n").
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/names.h"
#include "base/status.h"
#include "engine/engine.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace weft::engine {

/// What a chunk is computed after.
struct AnchorSpec {
  enum class Kind {
    kNone,     // nothing, not even BOS
    kOpening,  // BOS, or for a model without BOS the opening tokens of the user turn
    kNeutral,  // that and three short neutral passages
    kFile,     // that and the passages of a file, separated by blank lines
  };
  Kind kind = Kind::kNeutral;
  std::string passages;  // kFile: the file's text

  /// A name of kAnchors, or a file's path.
  static Result<AnchorSpec> parse(Env& env, const std::string& text);
  /// "none, opening, neutral or a file": what parse takes.
  static std::string choices();
};
/// As a store keeps them; --anchor has a file by its path.
inline constexpr Names kAnchors({
    Named{AnchorSpec::Kind::kNone, "none"},
    Named{AnchorSpec::Kind::kOpening, "opening"},
    Named{AnchorSpec::Kind::kNeutral, "neutral"},
    Named{AnchorSpec::Kind::kFile, "file"},
});

enum class PromptForm { kChat, kFewShot };
inline constexpr Names kPromptForms({
    Named{PromptForm::kChat, "chat"},
    Named{PromptForm::kFewShot, "fewshot"},
});
/// "" is none.
Result<std::optional<PromptForm>> parse_prompt_form(const std::string& name);

/// A question that was answered.
struct Exchange {
  std::string question;
  std::string answer;
};

class RagPrompt {
 public:
  /// In `form`, or where none is given as the model wants it: chat if it has a template, else
  /// few-shot. The engine must outlive it. kNotFound for chat without a template; kUnsupported for
  /// a template that cannot be read.
  static Result<RagPrompt> for_engine(const Engine& engine, std::optional<PromptForm> form = {});

  PromptForm form() const { return chat_template_ ? PromptForm::kChat : PromptForm::kFewShot; }

  // A prefix or suffix longer than the context comes back as more tokens than that, and not all of
  // them: a template may make one of any size.

  Result<std::vector<int32_t>> prefix() const;
  Result<std::vector<int32_t>> chunk(std::string_view title, std::string_view text) const;
  Result<std::vector<int32_t>> suffix(std::string_view question) const;
  /// Both for a question that follows others; where none does and no system turn is given, those
  /// two. The prefix of the question after this one begins with this one's as far as the template
  /// leaves earlier turns as they were. kInvalidArgument for a system turn in the few-shot form.
  struct Frame {
    std::vector<int32_t> prefix;
    std::vector<int32_t> suffix;
  };
  Result<Frame> frame(const std::optional<std::string>& system, std::span<const Exchange> earlier,
                      std::string_view question) const;
  /// kResourceExhausted for one of more than 131072 tokens.
  Result<std::vector<int32_t>> anchor(const AnchorSpec& spec) const;

 private:
  RagPrompt(const Engine& engine, std::optional<text::ChatTemplate> chat_template);
  /// A passage as it is in the prompt; chunk() tokenises this.
  std::string passage(std::string_view title, std::string_view text) const;
  /// "Question: …", up to what the answer follows, or what ends the turn.
  std::string asked(std::string_view question) const;
  Result<std::vector<int32_t>> suffix_before(std::string_view question,
                                             std::span<const text::Segment> closing) const;

  /// The template at the time of this question.
  text::ChatTemplate current_template() const { return chat_template_->at(engine_->local_time()); }

  const Engine* engine_;
  const text::Tokenizer* tokenizer_;
  text::EncodeLimits limits_;                        // of a piece
  std::optional<text::ChatTemplate> chat_template_;  // of the chat form only
};

}  // namespace weft::engine
