#include "cli/app.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <ctime>

#include "cli/model_get.h"

namespace weft::cli {
namespace {

volatile std::sig_atomic_t interrupts = 0;
volatile std::sig_atomic_t second_one_ends = 1;

void on_interrupt(int) {
  interrupts = interrupts + 1;
  if (interrupts > 1 && second_one_ends != 0) _exit(130);
}

constexpr int kBarWidth = 30;

}  // namespace

void add_model_flags(CLI::App& command, ModelFlags& flags) {
  command.add_option("-m,--model", flags.model, "GGUF file, or the name of a fetched model")
      ->required();
  command.add_option("-t,--threads", flags.threads, "worker threads (default: all cores)");
  command.add_option("-c,--context", flags.context_tokens,
                     "context in tokens (default: the model's, at most 8192)");
  command.add_option("--compute", flags.compute,
                     "how prefill multiplies: auto, f32, bf16 or int8 (default: auto)");
  command.add_option("--isa", flags.isa,
                     "instruction set: baseline, avx2, avx512 or avx512bf16 (default: the best)");
}

Result<std::unique_ptr<engine::Engine>> open_engine(App& app, const ModelFlags& flags) {
  engine::EngineOptions options;
  WEFT_ASSIGN_OR_RETURN(options.model_path, resolve_model(app.env, flags.model, app.models_dir));
  options.n_threads = flags.threads;
  options.context_tokens = flags.context_tokens;
  options.isa = flags.isa;
  options.compute = flags.compute;
  options.compute_kept_file = join_path(app.cache_dir, "compute");
  options.now = local_time();
  return engine::Engine::open(app.env, options);
}

void add_sampling_flags(CLI::App& command, sampling::SamplingOptions& options) {
  const auto add = [&](const char* flag, auto& value, const char* help) {
    command.add_option(flag, value, fmt::format("{} (default: {})", help, value));
  };
  add("--temp", options.temperature, "temperature; 0 is greedy");
  add("--top-k", options.top_k, "keep the k likeliest; 0: all");
  add("--top-p", options.top_p, "keep this share of probability");
  add("--min-p", options.min_p, "drop tokens less likely than this share of the likeliest");
  add("--seed", options.seed, "seed of the sampler");
}

CLI::Option* add_bytes_flag(CLI::App& command, const std::string& name, uint64_t& bytes,
                            const std::string& help) {
  const auto refuse_negative = [](std::string& text) {
    return text.starts_with('-') ? fmt::format("{} is below 0", text) : std::string();
  };
  // What is added last transforms first.
  return command.add_option(name, bytes, help)
      ->transform(CLI::AsSizeValue(false))
      ->transform(CLI::Validator(refuse_negative, ""));
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

void print_json(const Json& json) {
  const std::string line =
      json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
}

Result<std::string> read_stdin(uint64_t limit_bytes) {
  std::string text;
  char buffer[64 * 1024];
  size_t n = 0;
  while ((n = std::fread(buffer, 1, sizeof(buffer), stdin)) > 0) {
    text.append(buffer, n);
    if (text.size() > limit_bytes) {
      return resource_exhausted(
          fmt::format("standard input: over the limit of {} bytes", limit_bytes));
    }
  }
  return text;
}

Progress::Progress(std::string label) : label_(std::move(label)), terminal_(isatty(2) == 1) {}

Progress::~Progress() {
  if (drawn_) fmt::print(stderr, "\r\033[K");
}

void Progress::show(int64_t done, int64_t total, const std::string& unit) {
  if (!terminal_ || total <= 0) return;
  const auto filled = static_cast<int>(kBarWidth * done / total);
  fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {}/{} {}\033[K", label_, "", filled, "",
             kBarWidth - filled, done, total, unit);
  std::fflush(stderr);
  drawn_ = true;
}

void install_interrupt_handler() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

void outlive_interrupts() { second_one_ends = 0; }

bool interrupted() { return interrupts > 0; }
void clear_interrupt() { interrupts = 0; }

}  // namespace weft::cli
