// A conversation over the documents of a store: finds the passages of each question, asks the model
// over them, and shows the answer's sources as `weft ask` does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/narrow.h"
#include "cli/ask_report.h"
#include "cli/document_flags.h"
#include "cli/found_passages.h"
#include "cli/talk.h"
#include "engine/document_chat.h"
#include "engine/engine.h"
#include "library/found_passages.h"
#include "library/library.h"

namespace weft::cli {

/// A question that the documents have nothing on is not put to the model and does not become part
/// of the conversation, nor does an empty answer.
class DocumentTalk : public Talk {
 public:
  /// All must outlive it.
  DocumentTalk(const DocumentFlags& flags, engine::Engine& engine, library::Library& library)
      : flags_(flags), engine_(engine), library_(library), chat_(engine, library.rag()) {}

  Result<engine::ChatAnswer> say(std::string text, const engine::GenerationOptions& options,
                                 const engine::ChatCallbacks& callbacks) override;
  Result<engine::ChatAnswer> regenerate(const engine::GenerationOptions& options,
                                        const engine::ChatCallbacks& callbacks) override;
  bool undo() override;
  void clear() override;
  Status set_system(std::optional<std::string> text) override;
  /// kInvalidArgument also for turns that are not questions with an answer each.
  Status set_turns(std::vector<text::Turn> turns) override;
  std::vector<text::Turn> turns() const override;
  // A question and its answer are left out together.
  int32_t dropped_turns() const override { return narrow<int32_t>(2 * chat_.n_dropped()); }
  int32_t held_tokens() const override { return held_tokens_; }
  bool has_documents() const override { return true; }
  bool is_json() const override { return flags_.json; }
  bool was_asked() const override { return answer_.has_value(); }
  void after_answer() override;
  Status show_sources() override;

 private:
  Result<engine::ChatAnswer> answer(const std::string& question,
                                    const engine::GenerationOptions& options,
                                    const engine::ChatCallbacks& callbacks);
  void forget_answer(std::string why);
  void print_as_json(const std::vector<std::string>& notes) const;

  const DocumentFlags& flags_;
  engine::Engine& engine_;
  library::Library& library_;
  engine::DocumentChat chat_;
  // Of the last question.
  std::string question_;
  library::FoundPassages found_;
  std::optional<Answer> answer_;
  int32_t history_tokens_ = 0;
  int32_t max_tokens_ = 0;
  std::vector<library::Passage> shown_;                    // of the last answer
  std::string no_sources_ = "no answer with sources yet";  // why shown_ is empty
  int32_t held_tokens_ = 0;
  bool last_is_unanswered_ = false;  // the documents had nothing on the last question
  bool after_unanswered_ = false;    // nor on the one before the last
  uint64_t n_again_ = 0;             // how often the last question was answered again
};

}  // namespace weft::cli
