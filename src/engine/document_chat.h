// A conversation over documents, without a terminal and without a search: earlier questions with
// their answers, and the prompt of the next one over the passages that the caller found for it.
//
//   [system turn] [question 1] [answer 1] … [opening] passages of this question [question]
//   [closing]
//
// Earlier turns are there without their passages, so token ids alone determine all that comes
// before the passages, and the prefix index keeps it from question to question: only the newest
// turn is prefilled. Every prompt is rendered and prefilled from scratch otherwise, so that an
// answer is that of a fresh process with the same turns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/generation.h"
#include "engine/rag_prompt.h"
#include "fusion/fusor.h"

namespace weft::engine {

struct DocumentAnswer {
  Generation generation;
  fusion::Report report;
  double ttft_ms = 0;
  size_t n_chunks = 0;         // of those that were given: the first ones, which fit
  int32_t history_tokens = 0;  // of the prompt: those that the question before had left
  int32_t n_dropped = 0;       // exchanges, the oldest, that are from now on not in the prompt
};

/// Null members are not called.
struct DocumentChatCallbacks {
  /// Each piece of the answer as it becomes certain; false ends it, and what was said stays.
  std::function<bool(std::string_view)> on_text;
  /// Before anything is run: this many exchanges, the oldest, no longer fit.
  std::function<void(int32_t)> on_dropped;
};

/// Not thread-safe. Whatever fails leaves the conversation as it was.
class DocumentChat {
 public:
  /// Both must outlive it.
  DocumentChat(Engine& engine, const RagPrompt& rag) : engine_(engine), rag_(rag) {}

  /// Answers over these chunks (token ids, none empty), best first, as many of the first ones as
  /// fit; `options` as for Fusor::prefill, but for history_tokens, which is set here. The oldest
  /// exchanges are left out of the prompt where it would leave no room for chunks and answer, until
  /// there is a quarter of the context more; chunks are left out only when no exchange is in it.
  /// kResourceExhausted where not even the best chunk fits alone; kInvalidArgument, kUnsupported as
  /// RagPrompt::frame; kCancelled when the answer was ended before it began.
  /// An answer without text, or white space alone, does not become part of the conversation: the
  /// next ones would be like it.
  Result<DocumentAnswer> ask(fusion::Fusor& fusor, const std::string& question,
                             const std::vector<std::vector<int32_t>>& chunks,
                             fusion::FusionOptions options, const GenerationOptions& generation,
                             const DocumentChatCallbacks& callbacks);

  /// All of them, those that are no longer in the prompt too.
  const std::vector<Exchange>& exchanges() const { return exchanges_; }
  const std::optional<std::string>& system() const { return system_; }
  /// How many of the oldest are no longer in the prompt.
  size_t n_dropped() const { return first_; }
  /// In place of those there are.
  void set_exchanges(std::vector<Exchange> exchanges);
  /// Errors as RagPrompt::frame, for a system turn that the model does not take.
  Status set_system(std::optional<std::string> system);

 private:
  struct Plan {
    fusion::Prompt prompt;
    size_t first = 0;
    int32_t history_tokens = 0;
  };
  Result<Plan> plan(const std::string& question, const std::vector<std::vector<int32_t>>& chunks,
                    const GenerationOptions& generation) const;
  Result<RagPrompt::Frame> frame_from(size_t first, const std::string& question) const;
  Result<int32_t> history_tokens(const fusion::Prompt& prompt) const;
  Result<DocumentAnswer> run(fusion::Fusor& fusor, const Plan& plan,
                             const fusion::FusionOptions& options,
                             const GenerationOptions& generation,
                             const DocumentChatCallbacks& callbacks);

  Engine& engine_;
  const RagPrompt& rag_;
  std::optional<std::string> system_;
  std::vector<Exchange> exchanges_;
  size_t first_ = 0;  // the first of them that is in the prompt
};

}  // namespace weft::engine
