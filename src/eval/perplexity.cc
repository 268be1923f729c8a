// perplexity = exp(-1/N sum log p(token | the window before it)). Which windows, which half of them
// and where the BOS goes is llama.cpp's `perplexity` tool: with -c 512 its figure for a file and
// this one differ only as the engines' arithmetic does (docs/measurements.md has both). Several
// short windows share a step: one of 64 tokens alone would read all weights for 64 rows.
#include "eval/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/elementwise.h"

namespace weft::eval {
namespace {

// Below it no token is left to score: the first window_tokens / 2 + 1 are context.
constexpr int64_t kMinWindowTokens = 4;

// A step of the engine's; what is beyond it is cut into several, and gains nothing.
constexpr int32_t kStepRows = 512;

/// `tokens` are whole windows, each a sequence of its own in one step. Of each the sum of -log p
/// over its tokens [first, size), each from the row before it, in order.
Result<std::vector<double>> window_losses(engine::Engine& engine, std::span<const int32_t> tokens,
                                          int64_t window_tokens, int64_t first,
                                          const FunctionRef<bool()>& cancelled) {
  const int64_t n_vocab = engine.model().config().vocab_size;
  const auto n_windows = std::ssize(tokens) / window_tokens;
  std::vector<kv::OwnedSequence> sequences;
  for (int64_t w = 0; w < n_windows; ++w) sequences.push_back(engine.create_sequence());
  std::vector<engine::Appended> windows;
  std::vector<int64_t> rows;
  for (int64_t w = 0; w < n_windows; ++w) {
    windows.push_back({&sequences[w], tokens.subspan(w * window_tokens, window_tokens)});
    for (int64_t t = first; t < window_tokens; ++t) rows.push_back(w * window_tokens + t - 1);
  }
  std::vector<double> losses(n_windows);
  std::vector<float> logprobs(n_vocab);
  const auto add = [&](int64_t row, std::span<const float> logits) {
    kernels::log_softmax(logits, logprobs);
    const int32_t target = tokens[row + 1];
    // Sums of doubles, a window at a time and in order: the figure is the same however many windows
    // share a step.
    losses[row / window_tokens] -= logprobs[target];
  };
  WEFT_RETURN_IF_ERROR(engine.score(windows, rows, add, &cancelled));
  return losses;
}

/// The same of one window, whose tokens from `first` on come one by one, as those that a model
/// generates do: what sparse decoding costs a text.
Result<std::vector<double>> decoded_loss(engine::Engine& engine, std::span<const int32_t> tokens,
                                         int64_t first, const FunctionRef<bool()>& cancelled) {
  const kv::OwnedSequence sequence = engine.create_sequence();
  WEFT_ASSIGN_OR_RETURN(std::vector<float> logits,
                        engine.append(sequence, tokens.first(first), {.cancelled = &cancelled}));
  std::vector<double> loss(1);
  std::vector<float> logprobs(engine.model().config().vocab_size);
  for (int64_t t = first; t < std::ssize(tokens); ++t) {
    kernels::log_softmax(logits, logprobs);
    loss[0] -= logprobs[tokens[t]];
    if (t + 1 == std::ssize(tokens)) break;
    WEFT_ASSIGN_OR_RETURN(
        logits, engine.append(sequence, tokens.subspan(t, 1),
                              {.kind = model::RowKind::kDecode, .cancelled = &cancelled}));
  }
  return loss;
}

/// The text's ids with BOS, the first `limit` of them; 0: all.
Result<std::vector<int32_t>> tokens_of(const text::Tokenizer& tokenizer, std::string_view text,
                                       int64_t limit) {
  WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                        tokenizer.encode(text, {.add_bos = tokenizer.wants_bos()}));
  if (limit > 0 && std::ssize(tokens) > limit) tokens.resize(limit);
  return tokens;
}

}  // namespace

int32_t windows_at_once(int32_t window_tokens) {
  return std::max(1, kStepRows / std::max(1, window_tokens));
}

engine::StepNeeds perplexity_steps(int32_t window_tokens) {
  return {.whole_rows =
              std::max<int64_t>(kStepRows, int64_t{windows_at_once(window_tokens)} * window_tokens),
          .logit_rows = engine::Engine::kScoredRowsAtOnce,
          .scores = true};
}

Status window_does_not_fit(const engine::Engine& engine, int32_t window_tokens) {
  return resource_exhausted(fmt::format("--context {}: the KV cache holds {} tokens; {}",
                                        window_tokens, engine.context_tokens(),
                                        engine.way_to_hold(window_tokens)));
}

Result<PerplexityResult> perplexity(engine::Engine& engine, std::string_view text,
                                    const PerplexityOptions& options,
                                    FunctionRef<bool(int64_t, int64_t)> progress) {
  const int64_t window_tokens = options.window_tokens;
  const int32_t context_length = engine.longest_context();
  if (window_tokens <= context_length && window_tokens > engine.context_tokens()) {
    return window_does_not_fit(engine, options.window_tokens);
  }
  if (window_tokens < kMinWindowTokens || window_tokens > engine.context_tokens()) {
    return invalid_argument(fmt::format("--context {}: must be a window of {} to {} tokens",
                                        window_tokens, kMinWindowTokens, context_length));
  }
  const text::Tokenizer& tokenizer = engine.tokenizer();
  const bool bos = tokenizer.wants_bos();
  WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                        tokens_of(tokenizer, text, options.limit_tokens));
  const int64_t n_windows = std::ssize(tokens) / window_tokens;
  if (n_windows == 0) {
    return invalid_argument(fmt::format("the text has {} tokens, fewer than one window of {}",
                                        tokens.size(), window_tokens));
  }
  PerplexityResult result;
  double loss = 0;
  const int64_t first = window_tokens / 2 + 1;  // the first half is context
  const kv::Usage kv = engine.kv_usage();
  const int64_t window_pages = (window_tokens + kv.page_tokens - 1) / kv.page_tokens;
  const bool decodes = engine.selector() != nullptr;
  const int64_t most_at_once = decodes ? 1 : windows_at_once(options.window_tokens);
  const int64_t at_once = std::clamp(kv.free / window_pages, int64_t{1}, most_at_once);
  int64_t w = 0;
  const auto is_stopped = [&] { return !progress(w, n_windows); };
  const FunctionRef<bool()> cancelled_now(is_stopped);
  while (w < n_windows) {
    const int64_t n = std::min(at_once, n_windows - w);
    const auto windows = std::span(tokens).subspan(w * window_tokens, n * window_tokens);
    for (int64_t i = 0; bos && i < n; ++i) {
      // In place of the window's first token, as llama.cpp does, not before it: windows stay as
      // long as the context.
      windows[i * window_tokens] = tokenizer.bos();
    }
    const Result<std::vector<double>> losses =
        decodes ? decoded_loss(engine, windows, first, cancelled_now)
                : window_losses(engine, windows, window_tokens, first, cancelled_now);
    if (losses.status().code() == StatusCode::kCancelled && w > 0) break;
    WEFT_RETURN_IF_ERROR(losses.status());
    for (const double one : *losses) {
      loss += one;
      result.tokens += window_tokens - first;
      progress(++w, n_windows);
    }
  }
  result.windows = w;
  result.windows_in_text = n_windows;
  result.perplexity = std::exp(loss / result.tokens);
  return result;
}

// Prefill's rows, not decode's: the same text as in perplexity(), in steps as long as the context
// has room for. With sinks a step is a page, as a page goes at a time.
Result<EndlessResult> endless_perplexity(engine::Engine& engine, std::string_view text,
                                         const EndlessOptions& options,
                                         FunctionRef<bool(int64_t, int64_t)> progress) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                        tokens_of(engine.tokenizer(), text, options.limit_tokens));
  const int64_t n_tokens = std::ssize(tokens);
  if (n_tokens < 4) {
    return invalid_argument(fmt::format("the text has {} tokens, at least 4 are needed", n_tokens));
  }
  const kv::OwnedSequence sequence = engine.create_sequence();
  EndlessResult result;
  double loss = 0;
  std::vector<float> logprobs(engine.model().config().vocab_size);
  int64_t begin = 0;
  const auto is_stopped = [&] { return !progress(begin, n_tokens - 1); };
  const FunctionRef<bool()> cancelled_now(is_stopped);
  while (begin + 1 < n_tokens) {
    WEFT_ASSIGN_OR_RETURN(const int32_t n_dropped,
                          engine::make_room(engine, sequence, options.shift, nullptr));
    result.dropped_tokens += n_dropped;
    const int64_t room = engine.context_tokens() - sequence.length();
    const int64_t n = std::min({room, int64_t{kStepRows}, n_tokens - 1 - begin});
    std::vector<int64_t> rows(n);
    std::iota(rows.begin(), rows.end(), 0);
    std::erase_if(rows, [&](int64_t row) { return begin + row + 1 < n_tokens / 2; });
    const engine::Appended step[] = {{&sequence, std::span(tokens).subspan(begin, n)}};
    WEFT_RETURN_IF_ERROR(engine.score(
        step, rows,
        [&](int64_t row, std::span<const float> logits) {
          kernels::log_softmax(logits, logprobs);
          loss -= logprobs[tokens[begin + row + 1]];
          ++result.tokens;
        },
        &cancelled_now));
    begin += n;
    if (!progress(begin, n_tokens - 1)) return cancelled("stopped");
  }
  result.perplexity = std::exp(loss / result.tokens);
  return result;
}

}  // namespace weft::eval
