// Through engine::Batcher, as `generate --batch` goes, and not by kernels alone: what is measured
// has the planning of steps, the sampling and the bookkeeping of pages in it. The first step takes
// all prompts whole (its budget of rows is set to their sum), so that prefill and decode do not mix
// and each has a time of its own; a server's mixed steps are measured by `weft generate --batch`
// itself.
#include "bench/batch.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/narrow.h"
#include "base/spread.h"
#include "bench/random_tokens.h"
#include "engine/batcher.h"

namespace weft::bench {
namespace {

/// Of all sequences together.
struct Round {
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;
};

/// All prompts in the first step, then a token of each in each.
Result<Round> run_round(engine::Engine& engine, const BatchOptions& options, int32_t batch,
                        std::vector<double>& step_ms) {
  WEFT_ASSIGN_OR_RETURN(
      const auto batcher,
      engine::Batcher::create(
          engine, {.max_running = batch, .prompt_rows = batch * options.prompt_tokens}));
  for (int32_t i = 0; i < batch; ++i) {
    engine::BatchRequest request{
        .prompt = random_tokens(engine, options.prompt_tokens, narrow<uint32_t>(i)),
        .options = {.max_tokens = options.new_tokens, .ignore_end = true}};
    WEFT_RETURN_IF_ERROR(batcher->submit(std::move(request)).status());
  }
  Status failed;
  const auto on_done = [&](size_t, const Result<engine::BatchAnswer>& generation) {
    if (!generation.is_ok()) failed = generation.status();
  };
  double prefill_ms = 0;
  double decode_ms = 0;
  for (int64_t step = 0;; ++step) {
    const int64_t begin_ns = engine.env().monotonic_ns();
    WEFT_ASSIGN_OR_RETURN(const bool goes_on, batcher->step(on_done));
    if (!goes_on) break;
    const double ms = engine.env().ms_since(begin_ns);
    if (step == 0) {
      prefill_ms = ms;
    } else {
      decode_ms += ms;
      step_ms.push_back(ms);
    }
  }
  WEFT_RETURN_IF_ERROR(failed);
  // The prefill's step gives each sequence its first token, so a decode step fewer is run.
  const double n_decoded = 1.0 * batch * (options.new_tokens - 1);
  return Round{1.0 * batch * options.prompt_tokens / prefill_ms * 1e3, n_decoded / decode_ms * 1e3};
}

/// The nearest rank; values is not empty. Sorts it.
double percentile(std::vector<double>& values, double share) {
  std::ranges::sort(values);
  const size_t at = share * (values.size() - 1) + 0.5;
  return values[at];
}

/// Before anything is timed: a batch that waited for pages would be measured as a slow one, since
/// the scheduler holds a request back rather than refuse it.
Status check(engine::Engine& engine, const BatchOptions& options) {
  const int64_t tokens = int64_t{options.prompt_tokens} + options.new_tokens;
  if (options.prompt_tokens < 1 || options.new_tokens < 2) {
    return invalid_argument("a prompt has at least 1 token, and 2 are generated at least");
  }
  if (tokens > engine.context_tokens()) {
    return invalid_argument(
        fmt::format("{} tokens of a prompt and {} new ones do not fit the "
                    "context of {}",
                    options.prompt_tokens, options.new_tokens, engine.context_tokens()));
  }
  for (const int32_t batch : options.batches) {
    const kv::Usage kv = engine.kv_usage();
    const int64_t pages = (tokens + kv.page_tokens - 1) / kv.page_tokens * batch;
    if (pages > kv.pages) {
      return invalid_argument(
          fmt::format("a batch of {} takes {} pages of the KV cache, which has {} (--kv-limit, -c)",
                      batch, pages, kv.pages));
    }
  }
  return Status::ok();
}

}  // namespace

Result<std::vector<BatchSpeed>> bench_batch(engine::Engine& engine, const BatchOptions& options,
                                            FunctionRef<bool(int64_t, int64_t)> progress) {
  WEFT_RETURN_IF_ERROR(check(engine, options));
  const int64_t n = std::ssize(options.batches);
  std::vector<std::vector<double>> prefill(n), decode(n), step_ms(n);
  const int64_t n_runs = n * (int64_t{options.repeat} + 1);
  int64_t done = 0;
  for (int32_t round = 0; round <= options.repeat; ++round) {
    for (int64_t i = 0; i < n; ++i) {
      // The warm-up's steps go with its speeds.
      if (round <= 1) step_ms[i].clear();
      // The prompts of each round are the same, and would be found.
      engine.forget_prefixes();
      WEFT_ASSIGN_OR_RETURN(const Round speed,
                            run_round(engine, options, options.batches[i], step_ms[i]));
      if (!progress(++done, n_runs)) return cancelled("stopped");
      if (round == 0) continue;
      prefill[i].push_back(speed.prefill_tokens_per_s);
      decode[i].push_back(speed.decode_tokens_per_s);
    }
  }
  std::vector<BatchSpeed> speeds;
  for (int64_t i = 0; i < n; ++i) {
    speeds.push_back({options.batches[i], spread_of(prefill[i]), spread_of(decode[i]),
                      percentile(step_ms[i], 0.5), percentile(step_ms[i], 0.95)});
  }
  return speeds;
}

}  // namespace weft::bench
