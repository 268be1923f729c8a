// What the commands share: the environment as main read it, the flags that open a model, and how
// results, progress and errors are shown. A command is one file: it adds its flags to the app and
// sets what runs.
#pragma once

#include <CLI/CLI.hpp>
#include <ctime>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/env.h"
#include "base/status.h"
#include "engine/engine.h"
#include "sampling/sampler.h"

namespace weft::cli {

/// Keys keep the order in which they were added.
using Json = nlohmann::ordered_json;

struct App {
  Env& env;
  std::string models_dir;       // $WEFT_MODELS, else the XDG data folder
  std::string cache_dir;        // the XDG cache folder
  std::string state_dir;        // the XDG state folder
  std::function<Status()> run;  // set by the command that was given
};

/// Flags of every command that runs a model.
struct ModelFlags {
  std::string model;
  int threads = 0;
  int32_t context_tokens = 0;
  std::string compute = "auto";
  std::string isa;
};
void add_model_flags(CLI::App& command, ModelFlags& flags);
Result<std::unique_ptr<engine::Engine>> open_engine(App& app, const ModelFlags& flags);

/// --temp, --top-k, --top-p, --min-p and --seed; the defaults are what `options` holds.
void add_sampling_flags(CLI::App& command, sampling::SamplingOptions& options);

/// A check for numbers that the parser would wrap around.
CLI::Validator not_negative();

/// A number of bytes, as 512MB; not below 0.
CLI::Option* add_bytes_flag(CLI::App& command, const std::string& name, uint64_t& bytes,
                            const std::string& help);

/// The date and time that chat templates may print.
std::tm local_time();

/// Text from elsewhere (a file's name, an answer) for a terminal or a line of its own: control
/// characters become U+FFFD, but those in `kept`.
std::string printable(std::string_view text, std::string_view kept = "");

/// "2026-11-22 14:03", in UTC.
std::string date_of(int64_t unix_ms);

/// Prints to stdout on one line; bytes that are not UTF-8 become U+FFFD.
void print_json(const Json& json);

/// All of standard input; kResourceExhausted past `limit_bytes`, kCancelled after Ctrl-C.
Result<std::string> read_stdin(uint64_t limit_bytes);

/// A line of progress on a terminal's stderr, redrawn in place; silent elsewhere.
class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(int64_t done, int64_t total, const std::string& unit = "");

 private:
  std::string label_;
  bool terminal_;
  bool drawn_ = false;
};

/// Ctrl-C: the first one asks running work to end, the second ends the program.
void install_interrupt_handler();
/// From now on no number of them ends the program by itself.
void outlive_interrupts();
bool interrupted();
void clear_interrupt();

// One file a command.
void add_generate_command(CLI::App& root, App& app);
void add_chat_command(CLI::App& root, App& app);
void add_quantize_command(CLI::App& root, App& app);
void add_template_command(CLI::App& root, App& app);
void add_tokenize_command(CLI::App& root, App& app);
void add_model_command(CLI::App& root, App& app);
void add_inspect_command(CLI::App& root, App& app);
void add_ingest_command(CLI::App& root, App& app);
void add_ask_command(CLI::App& root, App& app);
void add_cache_command(CLI::App& root, App& app);
void add_bench_command(CLI::App& root, App& app);
void add_eval_command(CLI::App& root, App& app);
void add_perplexity_command(CLI::App& root, App& app);

}  // namespace weft::cli
