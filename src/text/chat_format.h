// Writes conversations as the chat templates of known models do, byte for byte. A template is
// recognised by its length and hash; weft never guesses what an unknown one might mean, and never
// runs one. What users and documents say stays apart from what the template says, so that it can
// never become a control token. Thread-safe; a ChatFormat is a value.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
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

class ChatFormat {
 public:
  /// The model whose template this is ("SmolLM2"); for messages.
  const char* name() const;

  /// The whole prompt; neighbouring segments of one kind are joined. kInvalidArgument where the
  /// template refuses the conversation, or when there is no turn.
  Result<std::vector<Segment>> render(std::span<const Turn> turns,
                                      bool add_generation_prompt) const;

  /// What stands before the content of the first user turn; without `system`, the template's own
  /// default system turn where it has one. user_opening + content + user_closing is what render
  /// makes of these turns with a generation prompt.
  std::vector<Segment> user_opening(std::optional<std::string_view> system) const;
  /// What opens one turn, without anything that stands before it in a conversation.
  std::vector<Segment> turn_opening(Role role) const;
  /// What follows the content of the last user turn, up to where the answer begins.
  std::vector<Segment> user_closing() const;

 private:
  friend Result<ChatFormat> find_chat_format(std::string_view, std::string_view, std::string_view);
  struct Row;
  struct Rows;
  class Writer;
  ChatFormat(const Row& row, std::string_view bos, std::string_view eos)
      : row_(&row), bos_(bos), eos_(eos) {}
  Status check_turns(std::span<const Turn> turns) const;

  const Row* row_;
  std::string bos_;
  std::string eos_;
};

/// The format of a model's `tokenizer.chat_template`. `bos` and `eos` are the texts of those tokens
/// (empty where there is none). kUnsupported for any template but the known ones.
Result<ChatFormat> find_chat_format(std::string_view template_text, std::string_view bos,
                                    std::string_view eos);

/// Tokens of a prompt, with no BOS but what the template wrote. Each segment is encoded by itself:
/// a word never spans what the template and what a user wrote.
Result<std::vector<int32_t>> encode_segments(const Tokenizer& tokenizer,
                                             std::span<const Segment> segments);

}  // namespace weft::text
