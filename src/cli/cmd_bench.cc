// weft bench ttft, weft bench speed, weft bench load: whole-run benchmarks.
// Each of the three runs its work several times and shows medians with least and greatest, since a
// shared machine is noisy: two figures are worth comparing within one run, not between two. The
// work itself is in src/bench, which these commands open an engine for; what is measured beside
// what is said there.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <filesystem>

#include "base/parse_number.h"
#include "bench/load.h"
#include "bench/speed.h"
#include "bench/ttft.h"
#include "cli/app.h"
#include "cli/bench_json.h"
#include "cli/model_get.h"
#include "cli/output_file.h"
#include "cli/reuse_flags.h"
#include "cli/sparse_flags.h"
#include "engine/compute_choice.h"

namespace weft::cli {
namespace {

/// A folder under the system's temporary one that removes itself.
/// Records of `bench ttft` are real files: reading them is part of what is timed. The folder may be
/// on another disk than the user's stores ($TMPDIR says where).
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::error_code error;  // then the path is empty, and mkdtemp fails
    std::string name = (std::filesystem::temp_directory_path(error) / "weft-bench-XXXXXX").string();
    if (!error && mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }  // empty: it could not be made

 private:
  std::string path_;
};

struct TtftFlags {
  ModelFlags model;
  ReuseFlags reuse;
  bench::TtftOptions options;
  std::string order = "shuffled";
  std::string modes = fmt::format("{}", fmt::join(fusion::kReuseModes.names(), ","));
  std::string tokens_file;
  bool json = false;
};

/// All parts of the TTFT with their spread; "done" and "ratio" tell what a mode chose, as blend
/// under --ratio auto may take full prefill.
Json ttft_json(const engine::Engine& engine, const bench::TtftReport& report) {
  Json modes = Json::object();
  for (const bench::TtftResult& r : report.modes) {
    modes[fusion::kReuseModes.name(r.mode)] = {{"ttft_ms", spread_json(r.ttft_ms)},
                                               {"lookup_ms", spread_json(r.lookup_ms)},
                                               {"miss_ms", spread_json(r.miss_ms)},
                                               {"load_wait_ms", spread_json(r.load_wait_ms)},
                                               {"rotate_ms", spread_json(r.rotate_ms)},
                                               {"select_ms", spread_json(r.select_ms)},
                                               {"recompute_ms", spread_json(r.recompute_ms)},
                                               {"prefill_ms", spread_json(r.prefill_ms)},
                                               {"reused_tokens", r.reused_tokens},
                                               {"recomputed_tokens", r.recomputed_tokens},
                                               {"computed_tokens", r.computed_tokens},
                                               {"loaded_bytes", r.loaded_bytes},
                                               {"done", fusion::kReuseModes.name(r.done)},
                                               {"ratio", r.ratio}};
    if (!r.predicted) continue;
    modes[fusion::kReuseModes.name(r.mode)]["predicted_ms"] = {
        {"full_prefill", r.predicted->full_prefill_ms}, {"ttft", r.predicted->ttft_ms}};
  }
  return {{"prompt_tokens", report.prompt_tokens},
          {"engine", engine_json(engine)},
          {"modes", std::move(modes)}};
}

/// "sooner" is times the first mode that was asked for, which is `none` by default.
void print_ttft(const engine::Engine& engine, const bench::TtftReport& report) {
  fmt::print("{} prompt tokens, {} threads, {}, compute {}; medians in ms\n", report.prompt_tokens,
             engine.context().pool.size(), kernels::isa_name(engine.context().isa),
             engine::kMatmulPaths.name(engine.context().matmul_path));
  fmt::print("{:<7} {:>9} {:>7} | {:>7} {:>9} {:>7} {:>7} {:>9} {:>8} | {:>6} {:>10} {:>8}\n",
             "mode", "TTFT", "sooner", "lookup", "load wait", "rotate", "select", "recompute",
             "prefill", "reused", "recomputed", "computed");
  const double base = report.modes.front().ttft_ms.median;
  for (const bench::TtftResult& r : report.modes) {
    fmt::print(
        "{:<7} {:>9.1f} {:>6.1f}x | {:>7.1f} {:>9.1f} {:>7.1f} {:>7.1f} {:>9.1f} {:>8.1f} | "
        "{:>6} {:>10} {:>8}\n",
        fusion::kReuseModes.name(r.mode), r.ttft_ms.median, base / r.ttft_ms.median,
        r.lookup_ms.median, r.load_wait_ms.median, r.rotate_ms.median, r.select_ms.median,
        r.recompute_ms.median, r.prefill_ms.median, r.reused_tokens, r.recomputed_tokens,
        r.computed_tokens);
  }
  for (const bench::TtftResult& r : report.modes) {
    if (r.mode != fusion::ReuseMode::kBlend || !r.predicted) continue;
    fmt::print("blend {}: predicted {:.0f} ms, full prefill {:.0f} ms\n",
               r.done == r.mode ? fmt::format("recomputed {:.1f} %", 100 * r.ratio)
                                : std::string("took full prefill"),
               r.predicted->ttft_ms, r.predicted->full_prefill_ms);
  }
}

/// Wrong flags, a folder that cannot be made and a file that cannot be written are said before the
/// first run: the benchmark may take minutes, and would end with nothing to show.
Status run_ttft(App& app, TtftFlags flags) {
  WEFT_RETURN_IF_ERROR(fusion_options(flags.reuse).status());
  WEFT_ASSIGN_OR_RETURN(flags.options.modes, parse_modes(flags.modes));
  if (flags.order != "shuffled" && flags.order != "same") {
    return invalid_argument(fmt::format("--order {}: must be shuffled or same", flags.order));
  }
  flags.options.shuffled = flags.order == "shuffled";
  const TemporaryFolder folder;
  if (folder.path().empty()) return io_error("cannot make a temporary folder for the records");
  flags.options.store_dir = folder.path();
  flags.model.steps = {.makes_chunks = true, .fuses = true};
  WEFT_ASSIGN_OR_RETURN(const auto engine, open_engine(app, flags.model));
  WEFT_ASSIGN_OR_RETURN(flags.options.fusion, fusion_options(flags.reuse, *engine));

  std::optional<AtomicFile> tokens;
  if (!flags.tokens_file.empty()) {
    WEFT_ASSIGN_OR_RETURN(AtomicFile file,
                          create_output(app.env, flags.tokens_file, model_files(*engine)));
    tokens.emplace(std::move(file));
  }
  auto progress = std::make_unique<Progress>("bench ttft");
  WEFT_ASSIGN_OR_RETURN(const bench::TtftReport report,
                        bench::bench_ttft(*engine, flags.options, [&](int64_t done, int64_t total) {
                          progress->show(done, total, "runs");
                          return !interrupted();
                        }));
  progress.reset();
  if (tokens) {
    const std::string text = Json(report.tokens).dump() + "\n";
    WEFT_RETURN_IF_ERROR(tokens->append(std::as_bytes(std::span(text))));
    WEFT_RETURN_IF_ERROR(tokens->commit());
  }
  if (flags.json) {
    print_json(ttft_json(*engine, report));
  } else {
    print_ttft(*engine, report);
  }
  return Status::ok();
}

void add_ttft(Command bench, App& app) {
  auto flags = std::make_shared<TtftFlags>();
  Command command = bench.add_command("ttft", "Time to first token of the reuse modes");
  add_model_flags(command, flags->model);
  add_reuse_flags(command, flags->reuse);
  bench::TtftOptions& o = flags->options;
  command.add_option("--chunks", o.n_chunks, "cached chunks in the prompt (default: 8)")
      .in_range(1, 4096);
  command.add_option("--chunk-tokens", o.chunk_tokens, "tokens of each (default: 480)")
      .in_range(1, 1 << 20);
  command.add_option("--question-tokens", o.question_tokens, "tokens after them (default: 96)")
      .in_range(1, 1 << 20);
  command.add_option("--order", flags->order, "of the chunks beside the prompt before")
      .one_of({"shuffled", "same"});
  command.add_option(
      "--modes", flags->modes,
      fmt::format("of {}, with commas (default: all)", fusion::kReuseModes.listed()));
  command.add_option("--repeat", o.repeat, "timed runs of each mode (default: 5)")
      .in_range(1, 1000);
  command.add_flag("--cold", o.cold, "drop the records from the page cache before each run");
  command.add_option("--write-tokens", flags->tokens_file,
                     "write the prompt's token ids here, to time another engine with them");
  command.add_flag("--json", flags->json, "print the report as JSON");
  command.when_given([flags, &app] { app.run = [flags, &app] { return run_ttft(app, *flags); }; });
}

struct SpeedFlags {
  ModelFlags model;
  bench::SpeedOptions options;
  std::string prefill = "512,4096";
  std::string fill = "tokens";
  bool json = false;
};

/// Of a decoded token in one layer; null where there is no such layer.
Json attention_json(const bench::AttentionSpeed& attention) {
  if (attention.n_layers == 0) return {};
  return {{"layers", attention.n_layers},
          {"ms_per_layer", spread_json(attention.ms)},
          {"select_ms_per_layer", spread_json(attention.select_ms)}};
}

void print_attention(const engine::Engine& engine, const bench::SpeedReport& report) {
  const bench::AttentionSpeed &dense = report.dense, &selecting = report.selecting;
  if (engine.selector() == nullptr) return;
  fmt::print("{}: ", sparse_text(engine.sparse_options()));
  if (selecting.n_layers == 0) {
    fmt::print("no layer chooses pages\n");
    return;
  }
  fmt::print("attention {:.3f} ms in each of {} layers that choose pages, {:.3f} of it to choose",
             selecting.ms.median, selecting.n_layers, selecting.select_ms.median);
  if (dense.n_layers > 0) {
    fmt::print("; {:.3f} ms in each of {} dense ones", dense.ms.median, dense.n_layers);
  }
  fmt::print("\n");
}

/// "512,4096": prompt lengths; 0 leaves prefill out, to time decode alone.
Status run_speed(App& app, SpeedFlags flags) {
  flags.options.prefill_tokens.clear();
  for (const std::string& item : split_list(flags.prefill)) {
    int32_t n = 0;
    if (!parse_number(item, n) || n < 0) {
      return invalid_argument(fmt::format(
          "--prefill {}: must be token counts with commas between, as 512,4096", flags.prefill));
    }
    if (n > 0) flags.options.prefill_tokens.push_back(n);
  }
  flags.options.fills_random = flags.fill == "random";
  flags.model.rolls_windows = !flags.options.fills_random;
  WEFT_ASSIGN_OR_RETURN(const auto engine, open_engine(app, flags.model));
  auto progress = std::make_unique<Progress>("bench speed");
  WEFT_ASSIGN_OR_RETURN(
      const bench::SpeedReport report,
      bench::bench_speed(*engine, flags.options, [&](int64_t done, int64_t total) {
        progress->show(done, total, "runs");
        return !interrupted();
      }));
  progress.reset();
  if (flags.json) {
    Json prefill = Json::array();
    for (const bench::PrefillSpeed& p : report.prefill) {
      prefill.push_back({{"tokens", p.tokens}, {"tokens_per_s", spread_json(p.tokens_per_s)}});
    }
    Json json = {
        {"engine", engine_json(*engine)},
        {"prefill", std::move(prefill)},
        {"decode",
         {{"depth", report.decode_depth},
          {"fill", flags.fill},
          {"tokens_per_s",
           flags.options.decode_tokens > 0 ? spread_json(report.decode_tokens_per_s) : Json()},
          {"attention",
           {{"dense", attention_json(report.dense)},
            {"selecting", attention_json(report.selecting)}}}}}};
    add_sparse_json(*engine, json);
    print_json(json);
    return Status::ok();
  }
  fmt::print("{} threads, {}, compute {}; median (min to max), tokens/s\n",
             engine->context().pool.size(), kernels::isa_name(engine->context().isa),
             engine::kMatmulPaths.name(engine->context().matmul_path));
  for (const bench::PrefillSpeed& p : report.prefill) {
    fmt::print("prefill {:>6}  {:>9.1f} ({:.1f} to {:.1f})\n", p.tokens, p.tokens_per_s.median,
               p.tokens_per_s.min, p.tokens_per_s.max);
  }
  if (flags.options.decode_tokens > 0) {
    const Spread& s = report.decode_tokens_per_s;
    fmt::print("decode at {:>4} {:>9.1f} ({:.1f} to {:.1f})\n", report.decode_depth, s.median,
               s.min, s.max);
    print_attention(*engine, report);
  }
  return Status::ok();
}

void add_speed(Command bench, App& app) {
  auto flags = std::make_shared<SpeedFlags>();
  Command command = bench.add_command("speed", "Prefill and decode in tokens a second");
  add_model_flags(command, flags->model);
  add_window_flag(command, flags->model);
  command.add_option("-p,--prefill", flags->prefill, "prompt lengths (default: 512,4096; 0: none)");
  command.add_option("-n,--tokens", flags->options.decode_tokens, "tokens to decode (default: 64)")
      .in_range(0, 1 << 20);
  command
      .add_option("-d,--depth", flags->options.depth_tokens,
                  "tokens in the cache before decoding (default: 0)")
      .in_range(0, 1 << 28);
  command
      .add_option("--fill", flags->fill,
                  "what is in the cache before decoding: what tokens leave there, or random K and "
                  "V, which take seconds where a prompt takes minutes (default: tokens)")
      .one_of({"tokens", "random"});
  add_sparse_flags(command, flags->model);
  command.add_option("--repeat", flags->options.repeat, "timed runs of each (default: 3)")
      .in_range(1, 1000);
  command.add_flag("--json", flags->json, "print the report as JSON");
  command.when_given([flags, &app] { app.run = [flags, &app] { return run_speed(app, *flags); }; });
}

struct LoadFlags {
  ModelFlags model;
  bench::LoadOptions options;
  std::string prompt = "The harbour opens at seven, and the";
  bool json = false;
};

/// This very program, generating one token.
/// Greedy and --raw, so that every process does the same work on any model. The flags that change
/// what is loaded or how it is multiplied are passed on.
Result<std::vector<std::string>> load_command(const LoadFlags& flags) {
  std::error_code error;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) return io_error("/proc/self/exe: cannot be read: " + error.message());
  const std::string note = flags.model.verbose ? "-v" : "-q";
  std::vector<std::string> command{self, "generate",   "-m",        flags.model.model,  "--raw",
                                   note, "-n",         "1",         "--temp",           "0",
                                   "-p", flags.prompt, "--compute", flags.model.compute};
  const auto add_given = [&](const char* flag, int value) {
    if (value > 0) command.insert(command.end(), {flag, std::to_string(value)});
  };
  add_given("-c", flags.model.context_tokens);
  add_given("-t", flags.model.threads);
  if (!flags.model.isa.empty()) command.insert(command.end(), {"--isa", flags.model.isa});
  return command;
}

/// Bytes of K and V that the prompt and its token take.
Result<int64_t> kv_bytes(const engine::Engine& engine, const std::string& prompt) {
  const text::Tokenizer& tokenizer = engine.tokenizer();
  WEFT_ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                        tokenizer.encode(prompt, {.add_bos = tokenizer.wants_bos()}));
  // One more for the token that is generated.
  return engine.kv_token_bytes() * (std::ssize(tokens) + 1);
}

/// The model is looked into first for its files, then let go: --cold drops them from the page cache
/// before each run, which the kernel refuses for pages that a process has mapped.
Status run_load(App& app, LoadFlags flags) {
  WEFT_ASSIGN_OR_RETURN(const std::string path,
                        resolve_model(app.env, flags.model.model, app.models_dir));
  flags.model.model = path;
  int64_t file_bytes = 0;
  {
    WEFT_ASSIGN_OR_RETURN(const auto file, gguf::File::open(app.env, path));
    file_bytes = file->size_bytes();
    for (const gguf::FilePart& part : file->parts()) flags.options.files.push_back(part.path);
  }  // what is mapped cannot be dropped from the page cache
  WEFT_ASSIGN_OR_RETURN(flags.options.command, load_command(flags));
  auto progress = std::make_unique<Progress>("bench load");
  WEFT_ASSIGN_OR_RETURN(const bench::LoadReport report,
                        bench::bench_load(app.env, flags.options, [&](int64_t done, int64_t total) {
                          progress->show(done, total, "runs");
                          return !interrupted();
                        }));
  progress.reset();
  // Only now, as this process's own memory would count to the children's.
  WEFT_ASSIGN_OR_RETURN(const auto engine, open_engine(app, flags.model));
  WEFT_ASSIGN_OR_RETURN(const int64_t kv, kv_bytes(*engine, flags.prompt));
  const int64_t peak_bytes = report.peak_bytes;
  // What neither the file nor the KV explains: weights laid out anew, scratch, the program. May be
  // negative, where less than the whole file was ever read.
  const int64_t other = peak_bytes - file_bytes - kv;
  if (flags.json) {
    print_json({{"engine", engine_json(*engine)},
                {"cold", flags.options.cold},
                {"first_token_ms", spread_json(report.first_token_ms)},
                {"exit_ms", spread_json(report.exit_ms)},
                {"peak_bytes", peak_bytes},
                {"file_bytes", file_bytes},
                {"kv_bytes", kv},
                {"other_bytes", other}});
    return Status::ok();
  }
  const auto megabytes = [](auto bytes) { return bytes * 1e-6; };
  const Spread& first = report.first_token_ms;
  fmt::print("{} threads, {}, page cache {}; median (min to max)\n", engine->context().pool.size(),
             kernels::isa_name(engine->context().isa), flags.options.cold ? "dropped" : "as it is");
  fmt::print("first token {:>9.1f} ms ({:.1f} to {:.1f})\n", first.median, first.min, first.max);
  fmt::print("exit        {:>9.1f} ms ({:.1f} to {:.1f})\n", report.exit_ms.median,
             report.exit_ms.min, report.exit_ms.max);
  fmt::print("peak memory {:>9.1f} MB: file {:.1f}, KV {:.1f}, other {:.1f}\n",
             megabytes(peak_bytes), megabytes(file_bytes), megabytes(kv), megabytes(other));
  return Status::ok();
}

void add_load(Command bench, App& app) {
  auto flags = std::make_shared<LoadFlags>();
  Command command = bench.add_command("load", "From the start of a process to its first token");
  add_model_flags(command, flags->model);
  command.add_option("-p,--prompt", flags->prompt, "the prompt, taken as it is");
  command.add_option("--repeat", flags->options.repeat, "processes (default: 5)").in_range(1, 1000);
  command.add_flag("--cold", flags->options.cold, "drop the model from the page cache each time");
  command.add_flag("--json", flags->json, "print the report as JSON");
  command.when_given([flags, &app] { app.run = [flags, &app] { return run_load(app, *flags); }; });
}

}  // namespace

void add_bench_command(Command root, App& app) {
  Command bench = root.add_command("bench", "Whole-run benchmarks");
  bench.needs_command();
  add_ttft(bench, app);
  add_speed(bench, app);
  add_load(bench, app);
  add_bench_batch_command(bench, app);
  add_bench_retrieval_command(bench, app);
  add_bench_kv_command(bench, app);
}

}  // namespace weft::cli
