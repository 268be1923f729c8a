// weft bench kv: what the KV cache takes of the machine's memory, and gives back.
// It needs no model: K and V are numbers whose place is all that matters here, in a cache of a
// shape that flags say. Every operation's contents are compared, so that it is a test of a million
// operations, too, and its exit status is 1 where a byte is not what it should be.
#include <fmt/format.h>

#include <cmath>

#include "base/counts_text.h"
#include "bench/kv.h"
#include "cli/app.h"
#include "kernels/paged_kv.h"

namespace weft::cli {
namespace {

struct BenchKvFlags {
  bench::KvOptions options;
  bool json = false;
};

Json moment_json(const bench::KvMoment& m) {
  return {{"sequences", m.sequences},       {"pages", m.pages.pages},
          {"used_pages", m.pages.used()},   {"cached_pages", m.pages.cached},
          {"shared_pages", m.pages.shared}, {"wasted_share", m.pages.wasted_share()},
          {"used_bytes", m.used_bytes},     {"resident_bytes", m.resident_bytes}};
}

Json steps_json(const bench::KvSteps& s) {
  return {{"steps", s.steps},
          {"moved_pages", s.moved_pages},
          {"returned_pages", s.returned_pages},
          {"ms", {{"p99", s.ms_p99}, {"max", s.ms_max}}},
          {"cpu_ms_max", s.cpu_ms_max}};
}

Json report_json(const bench::KvReport& report) {
  Json done = Json::object();
  for (size_t i = 0; i < report.done.size(); ++i) {
    done[bench::KvWork::kOperations[i].first] = report.done[i];
  }
  return {{"page_bytes", report.page_bytes},
          {"operations", std::move(done)},
          {"found_prefixes", report.found_prefixes},
          {"without_pages", report.without_pages},
          {"worked", moment_json(report.worked)},
          {"freed", moment_json(report.freed)},
          {"compacted", moment_json(report.compacted)},
          {"working", steps_json(report.working)},
          {"compacting", steps_json(report.compacting)},
          {"contents_equal", report.contents_equal}};
}

double resident_of_used(const bench::KvMoment& m) {
  return m.used_bytes == 0 ? 0 : 1.0 * m.resident_bytes / m.used_bytes;
}

void print_report(const bench::KvReport& report) {
  fmt::print("{:<18}  {:>10}  {:>10}  {:>10}\n", "", "worked", "half freed", "compacted");
  const auto row = [&](const char* name, const auto& text) {
    fmt::print("{:<18}  {:>10}  {:>10}  {:>10}\n", name, text(report.worked), text(report.freed),
               text(report.compacted));
  };
  using Moment = const bench::KvMoment&;
  row("sequences", [](Moment m) { return fmt::format("{}", m.sequences); });
  row("pages used", [](Moment m) { return fmt::format("{}", m.pages.used()); });
  row("  by prefix alone", [](Moment m) { return fmt::format("{}", m.pages.cached); });
  row("  shared", [](Moment m) { return fmt::format("{}", m.pages.shared); });
  row("slots wasted",
      [](Moment m) { return fmt::format("{:.1f} %", 100 * m.pages.wasted_share()); });
  row("used MB", [](Moment m) { return fmt::format("{:.1f}", m.used_bytes * 1e-6); });
  row("resident MB", [](Moment m) { return fmt::format("{:.1f}", m.resident_bytes * 1e-6); });
  row("resident / used", [](Moment m) { return fmt::format("{:.3f}", resident_of_used(m)); });
  const auto steps = [](const char* name, const bench::KvSteps& s) {
    fmt::print(
        "{}: {} in all, {} pages moved, {} given back; p99 {:.4f} ms, "
        "longest {:.3f} ms ({:.3f} ms of CPU)\n",
        name, s.steps, s.moved_pages, s.returned_pages, s.ms_p99, s.ms_max, s.cpu_ms_max);
  };
  fmt::print("{} pages of {} bytes; contents {}\n", report.worked.pages.pages, report.page_bytes,
             report.contents_equal ? "equal" : "DIFFERENT");
  steps("steps at work", report.working);
  steps("steps after", report.compacting);
}

Status run_bench_kv(App& app, const BenchKvFlags& flags) {
  auto progress = std::make_unique<Progress>("bench kv");
  WEFT_ASSIGN_OR_RETURN(const bench::KvReport report,
                        bench::bench_kv(app.env, flags.options, [&](int64_t done, int64_t n) {
                          progress->show(done, n, "operations");
                          return !interrupted();
                        }));
  progress.reset();
  if (flags.json) {
    print_json(report_json(report));
  } else {
    print_report(report);
  }
  if (report.contents_equal) return Status::ok();
  return corrupt("KV cache: K or V is not what was written; please report it, with the --seed");
}

}  // namespace

void add_bench_kv_command(Command bench, App& app) {
  auto flags = std::make_shared<BenchKvFlags>();
  Command command = bench.add_command("kv", "Memory of the KV cache under random work");
  bench::KvOptions& o = flags->options;
  const auto add = [&](const char* flag, int32_t& value, const char* what, int32_t most) {
    command.add_option(flag, value, fmt::format("{} (default: {})", what, value)).in_range(1, most);
  };
  add("--layers", o.shape.n_layers, "layers", 256);
  add("--kv-heads", o.shape.n_kv_heads, "KV heads of each", 256);
  command
      .add_option("--head-dim", o.shape.head_dim,
                  fmt::format("elements of a head's K (default: {})", o.shape.head_dim))
      .must([](double n) { return n >= 8 && n <= kernels::kMaxHeadDim && std::fmod(n, 8) == 0; },
            fmt::format("a multiple of 8, at most {}", kernels::kMaxHeadDim));
  add("-c,--context", o.shape.capacity_tokens, "tokens that all sequences may have", 1 << 24);
  command
      .add_option(
          "--operations", o.operations,
          "of create, append, fork, remove, truncate, free, publish (default: 1000000, some "
          "minutes)")
      .in_range(1, 20'000'000);
  command.add_option("--seed", o.seed, "of what is done (default: 1)");
  command.add_flag("--json", flags->json, "print the report as JSON");
  command.when_given(
      [flags, &app] { app.run = [flags, &app] { return run_bench_kv(app, *flags); }; });
}

}  // namespace weft::cli
