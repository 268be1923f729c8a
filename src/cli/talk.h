// Whom the terminal of `weft chat` talks with: a model alone, or a model over documents. It knows
// no terminal and no commands.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/chat_session.h"
#include "engine/generation.h"
#include "text/chat_template.h"

namespace weft::cli {

/// Each call as engine::ChatSession has it: whatever fails leaves the conversation as it was.
/// Not thread-safe.
class Talk {
 public:
  virtual ~Talk() = default;

  /// Adds the text as a question, answers it, and keeps both; kCancelled where it was stopped
  /// before the first word, and then the question is not kept.
  virtual Result<engine::ChatAnswer> say(std::string text, const engine::GenerationOptions& options,
                                         const engine::ChatCallbacks& callbacks) = 0;
  /// The last question again, with the next seed. kNotFound without one.
  virtual Result<engine::ChatAnswer> regenerate(const engine::GenerationOptions& options,
                                                const engine::ChatCallbacks& callbacks) = 0;
  /// Takes the last question and its answer back; false where there is none.
  virtual bool undo() = 0;
  /// The system turn stays.
  virtual void clear() = 0;
  /// nullopt: none, so the template's own where it has one.
  virtual Status set_system(std::optional<std::string> text) = 0;
  /// In place of the conversation; kInvalidArgument for turns that cannot be one.
  virtual Status set_turns(std::vector<text::Turn> turns) = 0;
  virtual std::vector<text::Turn> turns() const = 0;
  /// Of turns(): the oldest, which the context no longer holds.
  virtual int32_t dropped_turns() const = 0;
  /// Of the last prompt with its answer.
  virtual int32_t held_tokens() const = 0;
  /// That the context shift took out (GenerationOptions::shift) since the conversation began.
  virtual int64_t shifted_tokens() const { return 0; }

  // Over documents.

  virtual bool has_documents() const { return false; }
  /// A line of JSON for each question, and nothing else on standard output.
  virtual bool is_json() const { return false; }
  /// Whether the last question was put to the model; else its answer is none, and after_answer()
  /// says why.
  virtual bool was_asked() const { return true; }
  /// Shows what belongs to the last answer: its sources, how long it took.
  virtual void after_answer() {}
  /// The last answer's sources again. kNotFound where there are none.
  virtual Status show_sources() { return not_found("there are no documents here"); }
};

}  // namespace weft::cli
