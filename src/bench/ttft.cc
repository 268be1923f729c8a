// What a user of RAG waits for: the documents are known, the question is not, and the documents
// come in an order that no earlier prompt had. Each mode is timed from the state that it would
// find: `none` and `prefix` without a store's help, `full` and `blend` with every chunk on the
// disk. Loading is inside the time; only computing the records is not, as that is done at ingest.
#include "bench/ttft.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>

#include "base/narrow.h"
#include "base/spread.h"
#include "bench/stopped.h"
#include "engine/rag_prompt.h"

namespace weft::bench {
namespace {

using fusion::ReuseMode;

/// Ordinary tokens without meaning, of which the vocabulary must have some: timing does not depend
/// on which they are.
std::vector<int32_t> random_tokens(const text::Tokenizer& tokenizer, std::mt19937& random,
                                   int32_t n) {
  std::vector<int32_t> tokens;
  while (std::ssize(tokens) < n) {
    const int32_t id = random() % narrow<uint32_t>(tokenizer.vocab_size());
    if (!tokenizer.is_control(id) && !tokenizer.is_end_of_generation(id)) tokens.push_back(id);
  }
  return tokens;
}

/// What can be said before the model's template is known; prepare() looks at the whole prompt.
Status check_sizes(const engine::Engine& engine, const TtftOptions& options) {
  if (options.n_chunks < 1 || options.chunk_tokens < 1 || options.question_tokens < 1) {
    return invalid_argument("chunks, chunk tokens and question tokens must be at least 1");
  }
  const int64_t n_tokens =
      int64_t{options.n_chunks} * options.chunk_tokens + options.question_tokens;
  if (n_tokens > engine.context_tokens()) {
    return invalid_argument(fmt::format("the prompt has {} tokens and more, the context {}",
                                        n_tokens, engine.context_tokens()));
  }
  const text::Tokenizer& tokenizer = engine.tokenizer();
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_control(id) && !tokenizer.is_end_of_generation(id)) return Status::ok();
  }
  return unsupported("the vocabulary has control tokens only; there is no prompt to make of them");
}

/// The runs of one mode, part by part.
struct Runs {
  std::vector<double> ttft_ms;
  std::array<std::vector<double>, 7> parts_ms;
  fusion::Report last;

  void add(double total_ms, const fusion::Report& report) {
    const fusion::Timings& t = report.timings;
    const double parts[] = {t.lookup_ms, t.miss_ms,      t.load_wait_ms, t.rotate_ms,
                            t.select_ms, t.recompute_ms, t.prefill_ms};
    ttft_ms.push_back(total_ms);
    for (size_t i = 0; i < parts_ms.size(); ++i) parts_ms[i].push_back(parts[i]);
    last = report;
  }

  TtftResult result(ReuseMode mode) const {
    const auto part = [&](size_t i) { return spread_of(parts_ms[i]); };
    return {mode,
            spread_of(ttft_ms),
            part(0),
            part(1),
            part(2),
            part(3),
            part(4),
            part(5),
            part(6),
            last.reused_tokens,
            last.recomputed_tokens,
            last.computed_tokens,
            last.loaded_bytes,
            last.mode,
            last.ratio,
            last.predicted};
  }
};

class TtftBench {
 public:
  TtftBench(engine::Engine& engine, const TtftOptions& options)
      : engine_(engine), options_(options) {}

  /// Makes the two prompts and computes the records of their chunks, all outside of what is timed.
  Status prepare(const std::function<bool()>& is_cancelled) {
    std::mt19937 random(7);
    const text::Tokenizer& tokenizer = engine_.tokenizer();
    WEFT_ASSIGN_OR_RETURN(const engine::RagPrompt rag, engine::RagPrompt::for_engine(engine_));
    WEFT_ASSIGN_OR_RETURN(prompt_.prefix, rag.prefix());
    for (int32_t i = 0; i < options_.n_chunks; ++i) {
      prompt_.chunks.push_back(random_tokens(tokenizer, random, options_.chunk_tokens));
    }
    prompt_.suffix = random_tokens(tokenizer, random, options_.question_tokens);
    if (prompt_.n_tokens() > engine_.context_tokens()) {
      return invalid_argument(fmt::format("the prompt has {} tokens, the context {}",
                                          prompt_.n_tokens(), engine_.context_tokens()));
    }
    before_ = prompt_;
    before_.suffix = random_tokens(tokenizer, random, options_.question_tokens);
    if (options_.shuffled) {  // no chunk keeps its place, where there are more than one
      const auto middle = prompt_.chunks.begin() + (options_.n_chunks + 1) / 2;
      std::rotate(prompt_.chunks.begin(), middle, prompt_.chunks.end());
    }
    WEFT_ASSIGN_OR_RETURN(anchor_, rag.anchor({}));
    return fill_store(is_cancelled);
  }

  const fusion::Prompt& prompt() const { return prompt_; }

  /// One timed prefill from the mode's stated state: `prefix` after the earlier prompt; `full` and
  /// `blend` with every chunk on disk and nothing in the memory tier.
  Status run(ReuseMode mode, const std::function<bool()>& is_cancelled, Runs& runs) {
    engine_.forget_prefixes();
    if (fusion::traits_of(mode).shares_prompt) {
      const auto fusor = engine_.make_fusor(nullptr, anchor_);
      fusion::FusionOptions earlier{.mode = ReuseMode::kPrefix};
      earlier.cancelled = is_cancelled;
      WEFT_RETURN_IF_ERROR(fusor->prefill(before_, earlier).status());
    }
    WEFT_ASSIGN_OR_RETURN(const auto store, open_store());
    if (options_.cold) WEFT_RETURN_IF_ERROR(drop_page_cache());
    const auto fusor = engine_.make_fusor(store.get(), anchor_);

    fusion::FusionOptions fusion_options = options_.fusion;
    fusion_options.mode = mode;
    fusion_options.cancelled = is_cancelled;
    const int64_t begin_ns = engine_.env().monotonic_ns();
    WEFT_ASSIGN_OR_RETURN(const fusion::Prefilled done, fusor->prefill(prompt_, fusion_options));
    runs.add(engine_.env().ms_since(begin_ns), done.report);
    return Status::ok();
  }

 private:
  /// Opened anew for each run: a store's memory tier would answer from the run before.
  Result<std::unique_ptr<store::ChunkStore>> open_store() {
    return store::ChunkStore::open(engine_.env(), {.dir = options_.store_dir, .create = true});
  }

  Status fill_store(const std::function<bool()>& is_cancelled) {
    WEFT_ASSIGN_OR_RETURN(const auto store, open_store());
    const auto fusor = engine_.make_fusor(store.get(), anchor_);
    for (const std::vector<int32_t>& chunk : prompt_.chunks) {
      if (is_cancelled()) return stopped();
      WEFT_RETURN_IF_ERROR(fusor->ensure_stored(chunk));
    }
    return Status::ok();
  }

  /// A cold start of the records: the next read comes from the disk. Needs no rights, as only this
  /// file's clean pages go (posix_fadvise).
  Status drop_page_cache() {
    WEFT_ASSIGN_OR_RETURN(const auto entries, engine_.env().list(options_.store_dir));
    for (const DirEntry& entry : entries) {
      if (entry.is_directory) continue;
      WEFT_RETURN_IF_ERROR(
          engine_.env().drop_page_cache(join_path(options_.store_dir, entry.name)));
    }
    return Status::ok();
  }

  engine::Engine& engine_;
  const TtftOptions& options_;
  fusion::Prompt prompt_;
  fusion::Prompt before_;  // the same chunks in the order of an earlier question
  std::vector<int32_t> anchor_;
};

}  // namespace

Result<TtftReport> bench_ttft(engine::Engine& engine, const TtftOptions& options,
                              FunctionRef<bool(int64_t, int64_t)> progress) {
  WEFT_RETURN_IF_ERROR(check_sizes(engine, options));
  TtftBench bench(engine, options);
  // Modes take turns, so that a drift of the machine meets them all; the first round warms up.
  std::vector<Runs> runs(options.modes.size());
  const auto total = std::ssize(options.modes) * (int64_t{options.repeat} + 1);
  int64_t done = 0;
  const auto is_cancelled = [&] { return !progress(done, total); };
  WEFT_RETURN_IF_ERROR(bench.prepare(is_cancelled));
  for (int32_t round = 0; round <= options.repeat; ++round) {
    for (size_t m = 0; m < options.modes.size(); ++m) {
      Runs warm_up;
      const Status ran = bench.run(options.modes[m], is_cancelled, round == 0 ? warm_up : runs[m]);
      if (ran.code() != StatusCode::kCancelled) WEFT_RETURN_IF_ERROR(ran);
      if (!ran.is_ok() || !progress(++done, total)) return stopped();
    }
  }
  TtftReport report;
  report.prompt_tokens = bench.prompt().n_tokens();
  report.tokens = bench.prompt().tokens();
  for (size_t m = 0; m < runs.size(); ++m) {
    report.modes.push_back(runs[m].result(options.modes[m]));
  }
  return report;
}

}  // namespace weft::bench
