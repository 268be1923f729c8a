#include "eval/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/elementwise.h"

namespace weft::eval {
namespace {

constexpr int64_t kMinWindowTokens = 4;

constexpr int64_t kLogitRows = 64;  // at a time: 64 rows of 128 K logits are 32 MB

/// Sum of -log p over the window's tokens [first, size), each from the row before it.
double window_loss(engine::Engine& engine, const model::Batch& batch,
                   std::span<const int32_t> window, int64_t first) {
  const auto n_vocab = static_cast<size_t>(engine.model().config().vocab_size);
  std::vector<float> logits(kLogitRows * n_vocab);
  std::vector<float> logprobs(n_vocab);
  double loss = 0;
  const auto n = static_cast<int64_t>(window.size());
  for (int64_t token = first; token < n; token += kLogitRows) {
    std::vector<int64_t> rows(static_cast<size_t>(std::min(kLogitRows, n - token)));
    std::iota(rows.begin(), rows.end(), token - 1);
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

Status prefill_window(engine::Engine& engine, std::span<const int32_t> window, int64_t first,
                      double& loss) {
  const kv::OwnedSequence sequence(engine.cache(), engine.cache().create_sequence());
  WEFT_ASSIGN_OR_RETURN(const kv::Reservation reservation,
                        engine.cache().reserve(sequence.id(), static_cast<int32_t>(window.size())));
  model::RowsPass pass(engine.forward(), engine.cache(), model::Rows::of(sequence.id(), window, 0),
                       {.keep_all_rows = true});
  WEFT_RETURN_IF_ERROR(model::Executor(engine.forward()).run(pass));
  loss += window_loss(engine, pass.batch(), window, first);
  return Status::ok();
}

}  // namespace

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
  for (int64_t w = 0; w < n_windows; ++w) {
    const auto window = std::span(tokens).subspan(static_cast<size_t>(w * window_tokens),
                                                  static_cast<size_t>(window_tokens));
    if (bos) window.front() = tokenizer.bos();
    WEFT_RETURN_IF_ERROR(prefill_window(engine, window, first, loss));
    result.tokens += window_tokens - first;
    if (!progress(w + 1, n_windows)) return cancelled("stopped");
  }
  result.perplexity = std::exp(loss / static_cast<double>(result.tokens));
  return result;
}

}  // namespace weft::eval
