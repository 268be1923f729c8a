// The terminal of `weft chat`, or the lines of a pipe: reads what is said and the / commands, shows
// the answers as they come, and keeps the conversation in files. It opens no model and knows no
// flags; whom it talks with is a Talk.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cli/app.h"
#include "cli/chat_file.h"
#include "cli/talk.h"
#include "engine/generation.h"
#include "text/chat_template.h"

namespace weft::cli {

/// More than any context: the largest -n and /set tokens.
inline constexpr int32_t kMaxAnswerTokens = 1 << 24;

/// What flags said of how to talk.
struct ChatTerminalOptions {
  engine::GenerationOptions generation;  // until /set
  std::string load;                      // the file that the conversation is from; "": none
  std::string save;                      // the file that keeps it, after every answer; "": none
  std::string session;                   // the file that keeps it with its KV; "": none
  bool verbose = false;                  // after each answer what the KV cache holds
  /// Writes that file; null without one.
  std::function<Status(const sampling::SamplingOptions&)> keep_session;
};

/// The conversation's first question, and what goes with its beginning.
struct Beginning {
  std::optional<FileContent> loaded;  // what --load's file held
  std::string note;                   // what is said of it
  std::optional<std::string> question;
};

/// What is said of a conversation that was loaded; `more` goes at its end.
std::string loaded_line(const std::vector<text::Turn>& turns, std::string_view more = "");

/// Returns at the end of the conversation; all but `beginning` must outlive it. An error where an
/// input of a pipe failed, or what was said could not be kept.
Status talk_on_terminal(App& app, const ChatTerminalOptions& options, engine::Engine& engine,
                        Talk& talk, Beginning beginning);

}  // namespace weft::cli
