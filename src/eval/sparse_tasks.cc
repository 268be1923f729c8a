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
constexpr int32_t kDialogueTokens = 64;  // SAMSum's have 20 words

Result<std::vector<SparseCase>> needle_cases(const engine::Engine& engine, int32_t n_needles,
                                             const SparseTaskOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const PasskeyPrompts prompts,
                        PasskeyPrompts::create(engine, options.text,
                                               {.length_tokens = options.length_tokens,
                                                .n_trials = options.n_trials,
                                                .n_needles = n_needles,
                                                .seed = options.seed,
                                                .length_flag = "--lengths",
                                                .has_needles_flag = false}));
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

/// Another example with its answer: the passages that hold it, the question, what is right.
Result<std::vector<int32_t>> shot(const engine::RagPrompt& rag, const Example& example) {
  std::string text;
  for (const EvalPassage& passage : example.passages) {
    if (passage.is_gold) text += passage.text + "\n";
  }
  text += fmt::format("Question: {}\nAnswer: {}", example.question, example.answers.front());
  return rag.chunk("Example", text);
}

/// The examples after the one at `at`, round about, in this order; as many as `most`, and as
/// `room_tokens` have space for.
Status add_shots(const engine::RagPrompt& rag, std::span<const Example> examples, int64_t at,
                 int64_t most, int64_t room_tokens, std::vector<int32_t>& text) {
  const int64_t end = std::min(most, std::ssize(examples) - 1);
  for (int64_t i = 1; i <= end; ++i) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                          shot(rag, examples[(at + i) % examples.size()]));
    room_tokens -= std::ssize(tokens);
    if (room_tokens < 0) break;
    text.insert(text.end(), tokens.begin(), tokens.end());
  }
  return Status::ok();
}

int32_t answer_tokens_of(SparseTask task) {
  switch (task) {
    case SparseTask::kPasskey:
      return passkey_answer_tokens(1);
    case SparseTask::kNeedles:
      return passkey_answer_tokens(kNeedleCount);
    case SparseTask::kPerplexity:
      return 0;
    case SparseTask::kQa:
    case SparseTask::kFewshot:
      return kQaTokens;
    case SparseTask::kSummary:
      return kSummaryTokens;
  }
  return 0;
}

/// As `weft ask` puts it.
Result<std::vector<SparseCase>> example_cases(const engine::Engine& engine, SparseTask task,
                                              const SparseTaskOptions& options) {
  const std::span<const Example> examples = options.examples;
  if (examples.empty()) {
    return invalid_argument(
        fmt::format("--task {} needs questions over passages: -f FILE", kSparseTasks.name(task)));
  }
  if (task == SparseTask::kFewshot && std::ssize(examples) <= kShots) {
    return invalid_argument(fmt::format("--task fewshot needs {} examples or more, here are {}",
                                        kShots + 1, examples.size()));
  }
  WEFT_ASSIGN_OR_RETURN(const engine::RagPrompt rag, engine::RagPrompt::for_engine(engine));
  WEFT_ASSIGN_OR_RETURN(const std::vector<int32_t> prefix, rag.prefix());
  std::vector<SparseCase> cases;
  for (int64_t i = 0; i < std::ssize(examples); ++i) {
    if (std::ssize(cases) == options.n_trials) break;
    const Example& example = examples[i];
    SparseCase one{.text = prefix,
                   .question = {},
                   .answers = example.answers,
                   .answer_tokens = example.is_dialogue ? kDialogueTokens : answer_tokens_of(task)};
    std::vector<int32_t> passages;
    for (const EvalPassage& passage : example.passages) {
      WEFT_ASSIGN_OR_RETURN(const std::vector<int32_t> chunk,
                            rag.chunk(passage.title, passage.text));
      passages.insert(passages.end(), chunk.begin(), chunk.end());
    }
    WEFT_ASSIGN_OR_RETURN(one.question, rag.suffix(example.question));
    const int64_t room = options.length_tokens - std::ssize(prefix) - std::ssize(passages) -
                         std::ssize(one.question);
    if (room < 0) continue;
    if (task == SparseTask::kFewshot) {
      WEFT_RETURN_IF_ERROR(add_shots(rag, examples, i, kShots, INT64_MAX, one.text));
      if (std::ssize(one.text) - std::ssize(prefix) > room) continue;
    } else if (task == SparseTask::kSummary && example.is_dialogue) {
      // A dialogue is no long text: after as many others as fit it is (as in LongBench).
      WEFT_RETURN_IF_ERROR(add_shots(rag, examples, i, INT64_MAX, room, one.text));
    }
    one.text.insert(one.text.end(), passages.begin(), passages.end());
    cases.push_back(std::move(one));
  }
  if (cases.empty()) {
    return resource_exhausted(
        fmt::format("no example has {} tokens or fewer (--lengths)", options.length_tokens));
  }
  return cases;
}

}  // namespace

int32_t most_answer_tokens(SparseTask task, std::span<const Example> examples) {
  const bool has_dialogue = std::ranges::any_of(examples, &Example::is_dialogue);
  return std::max(answer_tokens_of(task), has_dialogue ? kDialogueTokens : 0);
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
    case SparseTask::kFewshot:
      return example_cases(engine, task, options);
  }
  return std::vector<SparseCase>();
}

}  // namespace weft::eval
