// Measures the reuse modes against full prefill on the same prompts: does reuse change what the
// model says, and how much sooner does it say it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "engine/engine.h"
#include "engine/rag_prompt.h"
#include "eval/dataset.h"
#include "eval/metrics.h"
#include "fusion/prompt.h"
#include "fusion/record_type.h"

namespace weft::eval {

struct EvalOptions {
  std::vector<fusion::ReuseMode> modes = {fusion::ReuseMode::kNone, fusion::ReuseMode::kFull,
                                          fusion::ReuseMode::kBlend};
  fusion::FusionOptions fusion;  // its mode is set per run
  engine::AnchorSpec anchor;
  DType record_type = fusion::kUsualRecordType;  // one that fusion::check_record_type takes
  std::optional<engine::PromptForm> prompt;      // none: as the model wants it
};

/// Means over the examples. KL and agreement are over the tokens of full prefill's greedy answer
/// (up to 16), teacher-forced; F1 is of the mode's own greedy answer.
struct ModeResult {
  fusion::ReuseMode mode = fusion::ReuseMode::kNone;
  double kl = 0;         // nats a token
  double agreement = 0;  // share of tokens whose top token is full prefill's
  double f1 = 0;
  Share kept;  // of the questions that full prefill answers right, those that the mode does, too
  Share same;  // of all questions, those with full prefill's very answer
  double fallback_share = 0;    // of the questions, those where full prefill was done instead
  double recomputed_share = 0;  // of the chunks' tokens
  double ttft_ms_median = 0;    // chunks' KV in memory, page cache warm
};

/// One example, for looking at it and for giving its prompt to another engine.
struct ExampleResult {
  struct Mode {
    std::string answer;     // its first line
    bool is_right = false;  // has a golden answer in it
    double f1 = 0;
    double kl = 0;
  };
  std::string question;
  std::vector<std::string> answers;
  std::vector<int32_t> prompt_tokens;
  std::vector<Mode> modes;  // as in the options
};

struct EvalResult {
  int64_t examples = 0;
  int64_t skipped = 0;  // prompts longer than the context
  int64_t n_asked = 0;  // examples; more than those two where `progress` said to stop
  double prompt_tokens_mean = 0;
  std::vector<ModeResult> modes;  // as in the options
  std::vector<ExampleResult> details;
  bool is_stopped() const { return examples + skipped < n_asked; }
};

/// What evaluate() runs.
engine::StepNeeds steps_of(const EvalOptions& options);

/// Answers of several examples grow in the same steps, as many as the KV cache holds beside each
/// other; each is what it is alone. `progress` is called after each example and in between;
/// returning false ends with the examples that were done by then, or kCancelled where none was.
Result<EvalResult> evaluate(engine::Engine& engine, const std::vector<Example>& examples,
                            const EvalOptions& options,
                            FunctionRef<bool(int64_t done, int64_t total)> progress);

}  // namespace weft::eval
