// weft bench batch: several sequences at once.
// What a server of many users would get out of this machine: tokens a second of all of them, and
// how long each waits between two tokens (ITL), whose 95th percentile shows what a mean hides. The
// engine is opened once for the largest batch, so that all share one KV cache.
#include <fmt/format.h>

#include "base/byte_sizes.h"
#include "base/narrow.h"
#include "base/parse_number.h"
#include "bench/batch.h"
#include "cli/app.h"
#include "cli/bench_json.h"
#include "cli/reuse_flags.h"
#include "engine/compute_choice.h"

namespace weft::cli {
namespace {

struct BenchBatchFlags {
  ModelFlags model;
  bench::BatchOptions options;
  std::string batches = "1,2,4,8,16,32";
  bool json = false;
};

// Sequences.
constexpr int32_t kMostAtOnce = 1024;

Json report_json(const engine::Engine& engine, const BenchBatchFlags& flags,
                 const bench::BatchReport& report) {
  const bool is_shared = flags.options.shared_tokens > 0;
  Json batches = Json::array();
  for (const bench::BatchSpeed& s : report.speeds) {
    batches.push_back({{"batch", s.batch},
                       {"prefill_tokens_per_s", spread_json(s.prefill_tokens_per_s)},
                       {"decode_tokens_per_s", spread_json(s.decode_tokens_per_s)},
                       {"itl_ms", {{"p50", s.itl_ms_p50}, {"p95", s.itl_ms_p95}}},
                       {"kv",
                        {{"pages_peak", s.kv.pages_peak},
                         {"bytes_peak", s.kv.bytes_peak},
                         {"shared_share", s.kv.shared_share},
                         {"wasted_share", s.kv.wasted_share}}}});
    if (is_shared) batches.back()["shares_prompt"] = s.shares_prompt;
  }
  Json json = {{"engine", engine_json(engine)}, {"batches", std::move(batches)}};
  if (is_shared) json["same_answers"] = report.same_answers;
  return json;
}

std::string prompts_text(const bench::BatchOptions& options) {
  std::string text =
      options.mixed
          ? fmt::format("prompts of 1 to {}, 2 to {} new tokens", 2 * options.prompt_tokens - 1,
                        2 * options.new_tokens - 2)
          : fmt::format("prompts of {}, {} new tokens", options.prompt_tokens, options.new_tokens);
  if (options.shared_tokens == 0) return text;
  return fmt::format("{} that are the same for all, then {}", options.shared_tokens, text);
}

void print_report(const engine::Engine& engine, const BenchBatchFlags& flags,
                  const bench::BatchReport& report) {
  const bool is_shared = flags.options.shared_tokens > 0;
  fmt::print("{} threads, {}, compute {}; {}; median (min to max), tokens/s of all together\n",
             engine.context().pool.size(), kernels::isa_name(engine.context().isa),
             engine::kMatmulPaths.name(engine.context().matmul_path), prompts_text(flags.options));
  fmt::print("{:>5}{}  {:>28}  {:>26}  {:>8}  {:>8}  {:>9}  {:>6}  {:>6}\n", "batch",
             is_shared ? "  sharing" : "", "prefill", "decode", "ITL ms", "p95 ms", "KV", "shared",
             "waste");
  for (const bench::BatchSpeed& s : report.speeds) {
    const auto text = [](const Spread& x) {
      return fmt::format("{:.1f} ({:.1f} to {:.1f})", x.median, x.min, x.max);
    };
    fmt::print("{:>5}{}  {:>28}  {:>26}  {:>8.2f}  {:>8.2f}  {:>9}  {:>5.1f}%  {:>5.1f}%\n",
               s.batch,
               !is_shared        ? ""
               : s.shares_prompt ? "      yes"
                                 : "       no",
               text(s.prefill_tokens_per_s), text(s.decode_tokens_per_s), s.itl_ms_p50,
               s.itl_ms_p95, size_text(narrow<uint64_t>(s.kv.bytes_peak)), 100 * s.kv.shared_share,
               100 * s.kv.wasted_share);
  }
  if (is_shared) {
    fmt::print("with and without sharing the answers are {}\n",
               report.same_answers ? "the same" : "NOT the same");
  }
}

/// `n_contexts` is what the KV cache is made for: the largest batch with prompt and answer.
Status run_bench_batch(App& app, BenchBatchFlags flags) {
  flags.options.batches.clear();
  flags.model.n_contexts = 1;
  for (const std::string& item : split_list(flags.batches)) {
    int32_t n = 0;
    if (!parse_number(item, n) || n < 1 || n > kMostAtOnce) {
      return invalid_argument(
          fmt::format("--batch {}: must be numbers from 1 to {} with commas between, as 1,4,16",
                      flags.batches, kMostAtOnce));
    }
    flags.options.batches.push_back(n);
    flags.model.n_contexts = std::max(flags.model.n_contexts, n);
  }
  // The prefill that is timed is one step.
  flags.model.steps = {.n_sequences = flags.model.n_contexts,
                       .batches = true,
                       .whole_rows = bench::longest_prefill(flags.options)};
  WEFT_ASSIGN_OR_RETURN(const auto engine, open_engine(app, flags.model));
  auto progress = std::make_unique<Progress>("bench batch");
  WEFT_ASSIGN_OR_RETURN(const bench::BatchReport report,
                        bench::bench_batch(*engine, flags.options, [&](int64_t done, int64_t n) {
                          progress->show(done, n, "runs");
                          return !interrupted();
                        }));
  progress.reset();
  if (flags.json) {
    print_json(report_json(*engine, flags, report));
  } else {
    print_report(*engine, flags, report);
  }
  return Status::ok();
}

}  // namespace

void add_bench_batch_command(Command bench, App& app) {
  auto flags = std::make_shared<BenchBatchFlags>();
  Command command = bench.add_command("batch", "Several sequences at once, in tokens a second");
  add_model_flags(command, flags->model);
  command.add_option("--batch", flags->batches, "sequences (default: 1,2,4,8,16,32)")
      .value_name("LIST");
  command
      .add_option("-p,--prefill", flags->options.prompt_tokens, "tokens of a prompt (default: 128)")
      .in_range(1, 1 << 20);
  command.add_option("-n,--tokens", flags->options.new_tokens, "tokens to decode (default: 64)")
      .in_range(2, 1 << 20);
  command.add_flag("--mixed", flags->options.mixed,
                   "lengths by chance: -p and -n are their means, and half of the longest");
  command
      .add_option("--shared-prompt", flags->options.shared_tokens,
                  "tokens that all prompts begin with, before their own: each batch runs without "
                  "and with sharing them")
      .value_name("TOKENS")
      .in_range(1, 1 << 20);
  command.add_option("--repeat", flags->options.repeat, "timed runs of each (default: 3)")
      .in_range(1, 1000);
  command.add_flag("--json", flags->json, "print the report as JSON");
  command.when_given(
      [flags, &app] { app.run = [flags, &app] { return run_bench_batch(app, *flags); }; });
}

}  // namespace weft::cli
