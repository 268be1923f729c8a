// What sparse decoding is measured with: texts, what is asked over them, and what is right. A text
// is prefilled, which reads everything; the question comes by decode's steps, or prefill would have
// found the answer already (Quest, Tang et al. 2024, section 4.2).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/names.h"
#include "base/status.h"
#include "engine/engine.h"
#include "eval/dataset.h"
#include "eval/passkey_prompts.h"

namespace weft::eval {

enum class SparseTask { kPasskey, kNeedles, kPerplexity, kQa, kSummary, kFewshot };
inline constexpr Names kSparseTasks({
    Named{SparseTask::kPasskey, "passkey", "a number that a long text mentions once"},
    Named{SparseTask::kNeedles, "needles", "one of several UUIDs, asked for by its name"},
    Named{SparseTask::kPerplexity, "perplexity", "how well the text itself is predicted"},
    Named{SparseTask::kQa, "qa", "questions over passages"},
    Named{SparseTask::kSummary, "summary", "a summary of several documents, or of a dialogue"},
    Named{SparseTask::kFewshot, "fewshot", "qa after five answered questions of the same kind"},
});

/// Whether it is about examples, not about a text.
inline constexpr bool has_examples(SparseTask task) {
  return task == SparseTask::kQa || task == SparseTask::kSummary || task == SparseTask::kFewshot;
}

/// Whether something is hidden in a text, and at a depth.
inline constexpr bool has_needles(SparseTask task) {
  return task == SparseTask::kPasskey || task == SparseTask::kNeedles;
}

/// Whether an answer is a line, which F1 of words is for.
inline constexpr bool has_short_answers(SparseTask task) {
  return task == SparseTask::kQa || task == SparseTask::kFewshot;
}

/// Answered questions that come before a case of kFewshot.
inline constexpr int32_t kShots = 5;
/// UUIDs in a text of the task kNeedles.
inline constexpr int32_t kNeedleCount = 8;
/// Tokens of a text that kPerplexity scores: its last.
inline constexpr int32_t kScoredTokens = 256;

struct SparseCase {
  std::vector<int32_t> text;         // prefilled
  std::vector<int32_t> question;     // after it, token by token; of kPerplexity what is scored
  int32_t n_shared = 0;              // first tokens of the text that the next case has, too
  std::optional<double> depth;       // of the needle
  std::vector<std::string> answers;  // any of them is right
  int32_t answer_tokens = 0;         // that are generated at most; 0: the question is scored
};

struct SparseTaskOptions {
  int32_t length_tokens = 0;  // of text and question together; of examples at most
  int32_t n_trials = 20;      // cases
  uint64_t seed = 1;
  std::optional<PasskeyText> text;  // kPerplexity needs one; of the needles none is the filler
  std::vector<Example> examples;    // of tasks that have them
};

/// kInvalidArgument where the task has not what it needs, kResourceExhausted where the text is too
/// short or no example fits.
Result<std::vector<SparseCase>> sparse_cases(const engine::Engine& engine, SparseTask task,
                                             const SparseTaskOptions& options);

/// The most tokens that a case takes beside its length: an example's kind decides it, too.
int32_t most_answer_tokens(SparseTask task, std::span<const Example> examples);

}  // namespace weft::eval
