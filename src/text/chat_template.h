// The chat template that a model carries, as a way to write prompts: whole conversations, and the
// stretches before and after one user's text that questions over passages need. What users,
// documents and tools say stays apart from what the template says (Segment), so that it can never
// become a control token. It does not tokenise by itself, run a model, or read a clock.
// Thread-safe; a ChatTemplate is a value.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "jinja/template.h"
#include "text/tokenizer.h"

namespace weft::text {

enum class Role { kSystem, kUser, kAssistant };

struct Turn {
  Role role = Role::kUser;
  std::string text;
};

/// A stretch of a prompt. Only `special` text, which is the template's own, may hold control
/// tokens.
struct Segment {
  std::string text;
  bool special = false;
  bool operator==(const Segment&) const = default;
};

/// What a conversation in the OpenAI API's form says. Roles that the API knows ("user" …) count as
/// the template's text, everything else as the input's.
struct Conversation {
  jinja::Value messages;  // a list of objects
  jinja::Value tools = jinja::Value::none();
  jinja::Variables variables;  // whatever else the object held
  std::optional<bool> add_generation_prompt;
};

/// An object with `messages`, and perhaps `tools`, `add_generation_prompt`, `chat_template_kwargs`
/// (an object of variables) and other variables; or the bare list of messages. kCorrupt for
/// malformed JSON (with line and column) and for anything else.
Result<Conversation> parse_conversation(std::string_view json);

struct ChatTemplateOptions {
  std::string bos;  // texts of these tokens; empty where there is none
  std::string eos;
  std::tm now{};  // local time, for templates that print the date
  jinja::Limits limits{};
};

class ChatTemplate {
 public:
  /// kUnsupported with the place in the template where its syntax is wrong or unknown.
  static Result<ChatTemplate> compile(std::string_view source, ChatTemplateOptions options);

  /// The same template at another time.
  ChatTemplate at(const std::tm& now) const {
    ChatTemplate copy = *this;
    copy.options_.now = now;
    return copy;
  }

  enum class Adapt {
    kNo,  // variables as transformers gives them to a template
    // Tool calls' arguments that are JSON in a string become objects for a template that wants
    // them; a template that fails is given "" for content that is null, and no `tools` where there
    // are none.
    kToTemplate,
  };

  /// The whole prompt; neighbouring segments differ in kind. kUnsupported with the place in the
  /// template where it refuses the conversation, fails, or reaches a limit.
  Result<std::vector<Segment>> render(const Conversation& conversation, bool add_generation_prompt,
                                      Adapt adapt = Adapt::kToTemplate) const;
  Result<std::vector<Segment>> render(std::span<const Turn> turns,
                                      bool add_generation_prompt) const;

  /// What comes before the text of the first user turn; without `system`, the template's own
  /// default system turn where it has one. user_opening + text + user_closing is what render makes
  /// of these turns with a generation prompt.
  Result<std::vector<Segment>> user_opening(std::optional<std::string_view> system) const;
  /// What opens a user turn, without anything that comes before it in a conversation.
  Result<std::vector<Segment>> turn_opening() const;
  /// What follows the text of the last user turn, up to where the answer begins.
  Result<std::vector<Segment>> user_closing() const;
  /// Both, of a user turn that follows `earlier` turns; where there are none, those two. Whatever
  /// the earlier turns' texts are.
  struct UserFrame {
    std::vector<Segment> opening;  // the earlier turns with it
    std::vector<Segment> closing;
  };
  Result<UserFrame> user_frame(std::span<const Turn> earlier) const;

 private:
  ChatTemplate(jinja::Template compiled, ChatTemplateOptions options)
      : template_(std::move(compiled)), options_(std::move(options)) {}
  Result<std::vector<Segment>> render_within(const Conversation& conversation,
                                             bool add_generation_prompt, Adapt adapt,
                                             const jinja::Limits& limits) const;
  /// Turns of a word each, for the pieces of a prompt.
  Result<std::vector<Segment>> render_few(std::span<const Turn> turns,
                                          bool add_generation_prompt) const;
  jinja::Result<std::vector<Segment>> render_as_given(const Conversation& conversation,
                                                      bool add_generation_prompt, bool pass_none,
                                                      const jinja::Limits& limits) const;
  bool wants_argument_objects() const;

  jinja::Template template_;
  ChatTemplateOptions options_;
};

/// Tokens of part of a prompt, with no BOS but what the template wrote: those of the joined text,
/// as the models were trained on it, except that only the template's own text may hold control
/// tokens.
Result<std::vector<int32_t>> encode_segments(const Tokenizer& tokenizer,
                                             std::span<const Segment> segments,
                                             const EncodeLimits& limits = {});

/// Tokens of a prompt from its beginning: encode_segments, and where the model expects BOS exactly
/// one, whether the template wrote it or not.
Result<std::vector<int32_t>> encode_prompt(const Tokenizer& tokenizer,
                                           std::span<const Segment> segments,
                                           const EncodeLimits& limits = {});

}  // namespace weft::text
