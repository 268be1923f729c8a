// Through engine::Batcher, as `generate --batch` goes, and not by kernels alone: what is measured
// has the planning of steps, the sampling and the bookkeeping of pages in it. The first step takes
// all prompts whole (its budget of rows is set to their sum), so that prefill and decode do not mix
// and each has a time of its own; a server's mixed steps are measured by `weft generate --batch`
// itself.
#include "bench/batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>

#include "base/narrow.h"
#include "base/spread.h"
#include "bench/random_tokens.h"
#include "bench/stopped.h"
#include "engine/batcher.h"

namespace weft::bench {
namespace {

/// A batch of one round.
struct Variant {
  int32_t batch = 0;
  bool shares_prompt = false;
};

/// What a sequence is asked for; the same in every round.
struct Work {
  std::vector<int32_t> prompt;
  int32_t new_tokens = 0;
};

/// Of all sequences together.
struct Round {
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;
  BatchKv kv;
  std::vector<std::vector<int32_t>> answers;
};

/// `mean`, or by chance from `least` to what makes that the mean.
int32_t drawn(std::mt19937& random, const BatchOptions& options, int32_t mean, int32_t least) {
  if (!options.mixed) return mean;
  return least + narrow<int32_t>(random() % (2 * (int64_t{mean} - least) + 1));
}

std::vector<Work> work_of(const engine::Engine& engine, const BatchOptions& options,
                          int32_t batch) {
  const std::vector<int32_t> shared =
      random_tokens(engine, options.shared_tokens, std::numeric_limits<uint32_t>::max());
  std::mt19937 random(1);
  std::vector<Work> work;
  for (int32_t i = 0; i < batch; ++i) {
    const int32_t own_tokens = drawn(random, options, options.prompt_tokens, 1);
    const int32_t new_tokens = drawn(random, options, options.new_tokens, 2);
    work.push_back({shared, new_tokens});
    const auto own = random_tokens(engine, own_tokens, narrow<uint32_t>(i));
    work.back().prompt.insert(work.back().prompt.end(), own.begin(), own.end());
  }
  return work;
}

int64_t prompt_tokens(std::span<const Work> work) {
  int64_t n_tokens = 0;
  for (const Work& one : work) n_tokens += std::ssize(one.prompt);
  return n_tokens;
}

/// Looks at the pages between steps, when no clock runs.
class SeenKv {
 public:
  void see(const std::vector<engine::GroupUse>& groups) {
    BatchKv now;
    int64_t n_shared = 0;
    for (const engine::GroupUse& group : groups) {
      now.pages_peak += group.pages.held;
      now.bytes_peak += group.pages.held * group.page_bytes;
      n_shared += group.pages.shared;
      slots_ += group.pages.held_slots();
      wasted_slots_ += group.pages.wasted_slots();
    }
    if (now.bytes_peak <= peak_.bytes_peak) return;
    peak_ = now;
    peak_.shared_share = 1.0 * n_shared / now.pages_peak;
  }
  BatchKv kv() const {
    BatchKv kv = peak_;
    kv.wasted_share = slots_ == 0 ? 0 : 1.0 * wasted_slots_ / slots_;
    return kv;
  }

 private:
  BatchKv peak_;
  int64_t slots_ = 0;
  int64_t wasted_slots_ = 0;
};

/// Prompts first, in one step where the engine has room for it, then a token of each in each step.
/// A shared prompt is in the cache once a request that has it was prefilled, as it is where
/// requests come one after the other: so the first one goes ahead, inside what is timed.
Result<Round> run_round(engine::Engine& engine, std::span<const Work> work, bool shares_prompt,
                        const FunctionRef<bool()>& cancelled, std::vector<double>& step_ms) {
  const auto batch = narrow<int32_t>(work.size());
  WEFT_ASSIGN_OR_RETURN(
      const auto batcher,
      engine::Batcher::create(
          engine, {.max_running = batch, .prompt_rows = narrow<int32_t>(prompt_tokens(work))}));
  Round round;
  round.answers.resize(work.size());
  int32_t n_submitted = 0;
  const auto submit_to = [&](int32_t end) {
    for (; n_submitted < end; ++n_submitted) {
      WEFT_RETURN_IF_ERROR(
          batcher
              ->submit({.prompt = work[n_submitted].prompt,
                        .options = {.max_tokens = work[n_submitted].new_tokens, .ignore_end = true},
                        .salt = shares_prompt ? "" : std::to_string(n_submitted)})
              .status());
    }
    return Status::ok();
  };
  WEFT_RETURN_IF_ERROR(submit_to(shares_prompt ? 1 : batch));
  Status failed;
  const auto on_done = [&](size_t index, const Result<engine::BatchAnswer>& answer) {
    if (!answer.is_ok()) {
      failed = answer.status();
      return;
    }
    for (const engine::GeneratedToken& token : answer->tokens) {
      round.answers[index].push_back(token.id);
    }
  };
  double prefill_ms = 0, decode_ms = 0;
  int64_t n_decoded = 0;
  SeenKv seen;
  while (true) {
    const engine::BatchStats before = batcher->stats();
    const int64_t begin_ns = engine.env().monotonic_ns();
    WEFT_ASSIGN_OR_RETURN(const bool goes_on, batcher->step(on_done, &cancelled));
    if (!goes_on) break;
    const double ms = engine.env().ms_since(begin_ns);
    if (batcher->stats().prompt_rows > before.prompt_rows) {
      prefill_ms += ms;
    } else {
      decode_ms += ms;
      n_decoded += batcher->stats().new_tokens - before.new_tokens;
      step_ms.push_back(ms);
    }
    seen.see(engine.kv_use());
    WEFT_RETURN_IF_ERROR(submit_to(batch));
  }
  WEFT_RETURN_IF_ERROR(failed);
  round.prefill_tokens_per_s = 1e3 * prompt_tokens(work) / prefill_ms;
  round.decode_tokens_per_s = 1e3 * n_decoded / decode_ms;
  round.kv = seen.kv();
  return round;
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
  if (options.prompt_tokens < 1 || options.new_tokens < 2 || options.shared_tokens < 0) {
    return invalid_argument("a prompt has at least 1 token, and 2 are generated at least");
  }
  const int64_t times = options.mixed ? 2 : 1;
  const int64_t n_prompt = options.shared_tokens + times * options.prompt_tokens;
  const int64_t n_new = times * options.new_tokens;
  if (n_prompt + n_new > engine.context_tokens()) {
    return invalid_argument(
        fmt::format("{} tokens of a prompt and {} new ones do not fit the context of {}", n_prompt,
                    n_new, engine.context_tokens()));
  }
  const kv::Usage kv = engine.kv_usage();
  for (const int32_t batch : options.batches) {
    const int64_t pages = (n_prompt + n_new + kv.page_tokens - 1) / kv.page_tokens * batch;
    if (pages > kv.pages) {
      return invalid_argument(
          fmt::format("a batch of {} takes {} pages of the KV cache, which has {} (--kv-limit, -c)",
                      batch, pages, kv.pages));
    }
  }
  return Status::ok();
}

}  // namespace

int64_t longest_prefill(const BatchOptions& options) {
  const int64_t times = options.mixed ? 2 : 1;
  return (options.shared_tokens + times * options.prompt_tokens) *
         std::ranges::max(options.batches);
}

Result<BatchReport> bench_batch(engine::Engine& engine, const BatchOptions& options,
                                FunctionRef<bool(int64_t, int64_t)> progress) {
  WEFT_RETURN_IF_ERROR(check(engine, options));
  std::vector<Variant> variants;
  for (const int32_t batch : options.batches) {
    variants.push_back({batch, false});
    if (options.shared_tokens > 0) variants.push_back({batch, true});
  }
  const int64_t n = std::ssize(variants);
  std::vector<std::vector<double>> prefill(n), decode(n), step_ms(n);
  std::vector<Round> last(n);
  const int64_t n_runs = n * (int64_t{options.repeat} + 1);
  int64_t done = 0;
  const auto is_cancelled = [&] { return !progress(done, n_runs); };
  const FunctionRef<bool()> cancelled(is_cancelled);
  for (int32_t round = 0; round <= options.repeat; ++round) {
    for (int64_t i = 0; i < n; ++i) {
      // The warm-up's steps go with its speeds.
      if (round <= 1) step_ms[i].clear();
      // The prompts of each round are the same, and would be found.
      engine.forget_prefixes();
      const std::vector<Work> work = work_of(engine, options, variants[i].batch);
      auto ran = run_round(engine, work, variants[i].shares_prompt, cancelled, step_ms[i]);
      if (ran.status().code() == StatusCode::kCancelled) return stopped();
      WEFT_ASSIGN_OR_RETURN(last[i], std::move(ran));
      if (!progress(++done, n_runs)) return stopped();
      if (round == 0) continue;
      prefill[i].push_back(last[i].prefill_tokens_per_s);
      decode[i].push_back(last[i].decode_tokens_per_s);
    }
  }
  BatchReport report;
  for (int64_t i = 0; i < n; ++i) {
    const auto& [batch, shares_prompt] = variants[i];
    report.speeds.push_back({batch, shares_prompt, spread_of(prefill[i]), spread_of(decode[i]),
                             percentile(step_ms[i], 0.5), percentile(step_ms[i], 0.95),
                             last[i].kv});
    if (shares_prompt && last[i].answers != last[i - 1].answers) report.same_answers = false;
  }
  return report;
}

}  // namespace weft::bench
