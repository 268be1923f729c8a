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

constexpr int64_t kMinWindowTokens = 4;

constexpr int64_t kLogitRows = 64;  // at a time: 64 rows of 128 K logits are 32 MB

constexpr int32_t kStepRows = 512;

/// Sum of -log p over the window's tokens [first, size), each from the row before it; the window's
/// rows are the batch's from `row_begin` on.
double window_loss(engine::Engine& engine, const model::Batch& batch, int64_t row_begin,
                   std::span<const int32_t> window, int64_t first) {
  const auto n_vocab = static_cast<size_t>(engine.model().config().vocab_size);
  std::vector<float> logits(kLogitRows * n_vocab);
  std::vector<float> logprobs(n_vocab);
  double loss = 0;
  const auto n = static_cast<int64_t>(window.size());
  for (int64_t token = first; token < n; token += kLogitRows) {
    std::vector<int64_t> rows(static_cast<size_t>(std::min(kLogitRows, n - token)));
    std::iota(rows.begin(), rows.end(), row_begin + token - 1);
    engine.forward().logits(batch, rows, logits.data(), kernels::KernelClass::kPrefill);
    for (size_t i = 0; i < rows.size(); ++i) {
      kernels::log_softmax(logits.data() + i * n_vocab, static_cast<int64_t>(n_vocab),
                           logprobs.data());
      const int32_t target = window[static_cast<size_t>(token) + i];
      loss -= static_cast<double>(logprobs[static_cast<size_t>(target)]);
    }
  }
  return loss;
}

/// `tokens` are whole windows, each a sequence of its own in one step. Their losses, in order.
Result<std::vector<double>> window_losses(engine::Engine& engine, std::span<const int32_t> tokens,
                                          int64_t window_tokens, int64_t first) {
  std::vector<kv::OwnedSequence> sequences;
  std::vector<kv::Reservation> reservations;
  model::Rows rows;
  const auto size = static_cast<size_t>(window_tokens);
  for (size_t begin = 0; begin < tokens.size(); begin += size) {
    const kv::SequenceId id =
        sequences.emplace_back(engine.cache(), engine.cache().create_sequence()).id();
    WEFT_ASSIGN_OR_RETURN(kv::Reservation reservation,
                          engine.cache().reserve(id, static_cast<int32_t>(window_tokens)));
    reservations.push_back(std::move(reservation));
    rows.add(id, tokens.subspan(begin, size), 0);
  }
  model::RowsPass pass(engine.forward(), engine.cache(), std::move(rows), {.keep_all_rows = true});
  WEFT_RETURN_IF_ERROR(model::Executor(engine.forward()).run(pass));
  std::vector<double> losses;
  for (size_t begin = 0; begin < tokens.size(); begin += size) {
    losses.push_back(window_loss(engine, pass.batch(), static_cast<int64_t>(begin),
                                 tokens.subspan(begin, size), first));
  }
  return losses;
}

}  // namespace

int32_t windows_at_once(int32_t window_tokens) {
  return std::max(1, kStepRows / std::max(1, window_tokens));
}

Result<PerplexityResult> perplexity(engine::Engine& engine, std::string_view text,
                                    const PerplexityOptions& options,
                                    FunctionRef<bool(int64_t, int64_t)> progress) {
  const int64_t window_tokens = options.window_tokens;
  const int32_t context_length = engine.model().config().context_length;
  if (window_tokens <= context_length && window_tokens > engine.context_tokens()) {
    return resource_exhausted(
        fmt::format("--context {}: the KV cache holds {} tokens; a larger --kv-limit is needed",
                    window_tokens, engine.context_tokens()));
  }
  if (window_tokens < kMinWindowTokens || window_tokens > engine.context_tokens()) {
    return invalid_argument(fmt::format("--context {}: must be a window of {} to {} tokens",
                                        window_tokens, kMinWindowTokens, context_length));
  }
  const text::Tokenizer& tokenizer = engine.tokenizer();
  const bool bos = tokenizer.wants_bos();
  WEFT_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, tokenizer.encode(text, {.add_bos = bos}));
  if (options.limit_tokens > 0 && static_cast<int64_t>(tokens.size()) > options.limit_tokens) {
    tokens.resize(static_cast<size_t>(options.limit_tokens));
  }
  const int64_t n_windows = static_cast<int64_t>(tokens.size()) / window_tokens;
  if (n_windows == 0) {
    return invalid_argument(fmt::format("the text has {} tokens, fewer than one window of {}",
                                        tokens.size(), window_tokens));
  }
  PerplexityResult result;
  double loss = 0;
  const int64_t first = window_tokens / 2 + 1;  // the first half is context
  const kv::Cache& cache = engine.cache();
  const int64_t window_pages = (window_tokens + cache.page_tokens() - 1) / cache.page_tokens();
  const int64_t at_once = std::clamp(cache.free_page_count() / window_pages, int64_t{1},
                                     int64_t{windows_at_once(options.window_tokens)});
  for (int64_t w = 0; w < n_windows;) {
    const int64_t n = std::min(at_once, n_windows - w);
    const auto windows = std::span(tokens).subspan(static_cast<size_t>(w * window_tokens),
                                                   static_cast<size_t>(n * window_tokens));
    for (int64_t i = 0; bos && i < n; ++i) {
      windows[static_cast<size_t>(i * window_tokens)] = tokenizer.bos();
    }
    WEFT_ASSIGN_OR_RETURN(const std::vector<double> losses,
                          window_losses(engine, windows, window_tokens, first));
    for (const double one : losses) {
      loss += one;
      result.tokens += window_tokens - first;
      if (!progress(++w, n_windows)) return cancelled("stopped");
    }
  }
  result.perplexity = std::exp(loss / static_cast<double>(result.tokens));
  return result;
}

}  // namespace weft::eval
