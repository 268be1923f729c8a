#include "eval/sparse_tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "engine/rag_prompt.h"
#include "eval/passkey.h"

namespace weft::eval {
namespace {

constexpr int32_t kQaTokens = 16;        // as in evaluate()
constexpr int32_t kSummaryTokens = 192;  // MultiNews' summaries have some 300 words, and begin with
                                         // what matters

Result<std::vector<SparseCase>> needle_cases(const engine::Engine& engine, int32_t n_needles,
                                             const SparseTaskOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const PasskeyPrompts prompts,
                        PasskeyPrompts::create(engine, options.text,
                                               {.length_tokens = options.length_tokens,
                                                .n_trials = options.n_trials,
                                                .n_needles = n_needles,
                                                .seed = options.seed}));
  std::vector<SparseCase> cases;
  for (int64_t g = 0; g < prompts.n_groups(); ++g) {
    for (const PasskeyPrompt& prompt : prompts.group(g)) {
      const auto question = prompt.tokens.begin() + prompt.question_begin;
      cases.push_back({.text = {prompt.tokens.begin(), question},
                       .question = {question, prompt.tokens.end()},
                       .n_shared = prompt.needle_begin,
                       .depth = prompt.depth,
                       .answers = {prompt.value},
                       .answer_tokens = passkey_answer_tokens(n_needles)});
    }
  }
  return cases;
}

/// Stretches of the text, one after the other and as far from each other as it allows.
Result<std::vector<SparseCase>> perplexity_cases(const engine::Engine& engine,
                                                 const SparseTaskOptions& options) {
  if (!options.text) return invalid_argument("--task perplexity needs a text: -f FILE");
  const text::Tokenizer& tokenizer = engine.tokenizer();
  WEFT_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                        tokenizer.encode(options.text->text, {.add_bos = false}));
  const int64_t length = options.length_tokens;
  if (length <= kScoredTokens) {
    return invalid_argument(
        fmt::format("--lengths {}: the last {} tokens are scored, so it must "
                    "be more",
                    length, kScoredTokens));
  }
  if (std::ssize(tokens) < length) {
    return resource_exhausted(fmt::format("{}: has {} tokens, --lengths {} needs more of it",
                                          options.text->name, tokens.size(), length));
  }
  const int64_t n_bos = tokenizer.wants_bos() ? 1 : 0;
  const int64_t n_cases = std::min<int64_t>(options.n_trials, std::ssize(tokens) / length);
  std::vector<SparseCase> cases(n_cases);
  for (int64_t i = 0; i < n_cases; ++i) {
    const int64_t begin = n_cases == 1 ? 0 : i * (std::ssize(tokens) - length) / (n_cases - 1);
    const std::span<const int32_t> stretch = std::span(tokens).subspan(begin, length - n_bos);
    if (n_bos > 0) cases[i].text.push_back(tokenizer.bos());
    const auto text = stretch.first(stretch.size() - kScoredTokens);
    const auto scored = stretch.last(kScoredTokens);
    cases[i].text.insert(cases[i].text.end(), text.begin(), text.end());
    cases[i].question.assign(scored.begin(), scored.end());
  }
  return cases;
}

/// As `weft ask` puts it.
Result<std::vector<SparseCase>> example_cases(const engine::Engine& engine, int32_t answer_tokens,
                                              const SparseTaskOptions& options) {
  if (options.examples.empty()) {
    return invalid_argument("--task qa and summary need questions over passages: -f FILE");
  }
  WEFT_ASSIGN_OR_RETURN(const engine::RagPrompt rag, engine::RagPrompt::for_engine(engine));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int32_t> prefix, rag.prefix());
  std::vector<SparseCase> cases;
  for (const Example& example : options.examples) {
    if (std::ssize(cases) == options.n_trials) break;
    SparseCase one{
        .text = prefix, .question = {}, .answers = example.answers, .answer_tokens = answer_tokens};
    for (const EvalPassage& passage : example.passages) {
      WEFT_ASSIGN_OR_RETURN(const std::vector<int32_t> chunk,
                            rag.chunk(passage.title, passage.text));
      one.text.insert(one.text.end(), chunk.begin(), chunk.end());
    }
    WEFT_ASSIGN_OR_RETURN(one.question, rag.suffix(example.question));
    const auto n_tokens = std::ssize(one.text) + std::ssize(one.question);
    if (n_tokens <= options.length_tokens) cases.push_back(std::move(one));
  }
  if (cases.empty()) {
    return resource_exhausted(
        fmt::format("no example has {} tokens or fewer (--lengths)", options.length_tokens));
  }
  return cases;
}

}  // namespace

int32_t answer_tokens_of(SparseTask task) {
  switch (task) {
    case SparseTask::kPasskey:
      return passkey_answer_tokens(1);
    case SparseTask::kNeedles:
      return passkey_answer_tokens(kNeedleCount);
    case SparseTask::kPerplexity:
      return 0;
    case SparseTask::kQa:
      return kQaTokens;
    case SparseTask::kSummary:
      return kSummaryTokens;
  }
  return 0;
}

Result<std::vector<SparseCase>> sparse_cases(const engine::Engine& engine, SparseTask task,
                                             const SparseTaskOptions& options) {
  switch (task) {
    case SparseTask::kPasskey:
      return needle_cases(engine, 1, options);
    case SparseTask::kNeedles:
      return needle_cases(engine, kNeedleCount, options);
    case SparseTask::kPerplexity:
      return perplexity_cases(engine, options);
    case SparseTask::kQa:
    case SparseTask::kSummary:
      return example_cases(engine, answer_tokens_of(task), options);
  }
  return std::vector<SparseCase>();
}

}  // namespace weft::eval
