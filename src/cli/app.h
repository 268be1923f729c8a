// What the commands share: the environment as main read it, the flags that open a model, and how
// results, progress and errors are shown. A command is one file: it adds its flags to the app and
// sets what runs.
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "cli/flags.h"
#include "cli/kv_report.h"
#include "engine/context_size.h"
#include "engine/engine.h"
#include "engine/generation.h"

namespace weft::cli {

/// Keys keep the order in which they were added.
using Json = nlohmann::ordered_json;

struct App {
  Env& env;
  std::string models_dir;       // $WEFT_MODELS, else the XDG data folder; "": there is none
  std::string cache_dir;        // the XDG cache folder; "": nothing is kept
  std::string state_dir;        // the XDG state folder; "": nothing is kept
  std::string default_model;    // $WEFT_MODEL; what -m takes it from by itself (flags.h)
  std::function<Status()> run;  // set by the command that was given
  FullestKv fullest;            // with -v: main shows it at the end
};

/// Flags of every command that runs a model.
struct ModelFlags {
  std::string model;
  int threads = 0;
  int32_t context_tokens = 0;
  uint64_t kv_limit_bytes = 0;
  std::string cache_type_k = "f16";
  std::string cache_type_v = "f16";
  int32_t group_tokens = 1;  // EngineOptions::self_extend's
  int32_t neighbour_tokens = kv::kUsualNeighbours;
  bool beyond_context = false;
  std::string draft = "none";     // EngineOptions::draft's, with the next two
  std::string verify;             // "": as usual
  int32_t draft_tokens = 0;       // 0: as usual
  sparse::SparseOptions sparse;   // EngineOptions::sparse's, with the next two
  std::string sparse_policy;      // empty: what amounts ask for
  std::string sparse_config;      // a file in their place
  int32_t lock_interval = 0;      // 0: no locks
  int32_t lock_duration = 0;      // 0: as usual
  int32_t update_threshold = -1;  // -1: as usual
  std::string checkpoint;         // "": as usual
  std::string digest_type = "int8";
  int32_t page_tokens = 0;     // 0: as usual
  int32_t dense_layers = -1;   // -1: as usual
  int32_t n_contexts = 1;      // that a command fills at once; no flag
  engine::StepNeeds steps;     // EngineOptions'; no flag
  bool rolls_windows = false;  // EngineOptions', unless swa_full; no flag
  bool swa_full = false;
  bool verbose = false;
  std::string compute = "auto";
  std::string isa;
};
/// Returns --model, which is required unless `model_is_optional`. -v among them.
Flag add_model_flags(Command command, ModelFlags& flags, bool model_is_optional = false);
/// -v of a command without these: log_info's lines.
Flag add_verbose_flag(Command command);
/// --swa-full, for commands that set rolls_windows.
void add_window_flag(Command command, ModelFlags& flags);
/// --grp-attn-n and --grp-attn-w; returns the first. Of what goes on from saved KV, or runs several
/// requests at once, it is no part: exclude them.
Flag add_self_extend_flags(Command command, ModelFlags& flags);
/// --beyond-context.
void add_beyond_context_flag(Command command, ModelFlags& flags);
Result<std::unique_ptr<engine::Engine>> open_engine(App& app, const ModelFlags& flags);
/// What it makes of -c, without opening the model.
Result<engine::ContextSize> context_of(App& app, const ModelFlags& flags);
/// The fullest that the KV cache was, where that was watched; once.
void print_fullest(App& app);
/// Whether the model is that of $WEFT_MODEL, and -m named no other one.
bool is_from_variable(const App& app, const ModelFlags& flags);

/// The files that it was opened from.
std::vector<std::string> model_files(const engine::Engine& engine);

/// How an answer is made and where it ends: -n, --temp, --stop and the like; the defaults are what
/// `options` holds. `most_tokens`: the largest -n.
void add_sampling_flags(Command command, engine::GenerationOptions& options,
                        int32_t most_tokens = 1 << 24);

/// What is done where a text fills its context: --context-shift, --keep and --context-sinks.
struct ShiftFlags {
  bool half = false;
  int32_t keep_tokens = engine::kUsualKept;
  int32_t sink_tokens = -1;
};
/// `kept`: what stays without --keep, as "the system turn". Returns the flags.
std::vector<Flag> add_shift_flags(Command command, ShiftFlags& flags, const std::string& kept);
/// kInvalidArgument for --keep alone.
Result<engine::ContextShift> context_shift(const ShiftFlags& flags);

/// One line on stderr where the answer ended at a limit or is empty.
/// `which`: what it begins with, as "sample 2: ".
void note_end(const engine::Engine& engine, const engine::Generation& generation,
              const std::string& which = "");

/// With -v how fast an answer came, after it, and how its drafts went.
void log_answer(int64_t n_tokens, double decode_ms, const spec::DraftCounters& drafts = {});

/// The date and time.
std::tm local_time();

/// "2026-11-22 14:03", in UTC.
std::string date_of(int64_t unix_ms);

/// One line on stderr, "weft: " before the message; that nobody can read it is no error.
void print_error(std::string_view message);

/// Flushes standard output. What was printed up to now has been taken, or the first reason why not,
/// which stdio itself forgets. One thread.
Status output_written();

/// Prints to stdout on one line; bytes that are not UTF-8 become U+FFFD.
void print_json(const Json& json);

/// All of standard input; kResourceExhausted past `limit_bytes`, kCancelled after interrupted().
Result<std::string> read_stdin(uint64_t limit_bytes);

/// A line of progress on a terminal's stderr, redrawn in place; silent elsewhere.
class Progress {
 public:
  explicit Progress(std::string label);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void show(int64_t done, int64_t total, const std::string& unit = "");
  /// In place of the bar; nothing in it may drive the terminal.
  void show_line(const std::string& line);
  /// Off the line, until it is shown again.
  void hide();
  /// Of the terminal; 80 where it does not say.
  static int columns();

 private:
  std::string label_;
  bool terminal_;
  bool drawn_ = false;
  std::string line_;  // the bar as it is drawn
};

/// Ctrl-C (SIGINT), SIGTERM and SIGHUP ask running work to end; a Ctrl-C or SIGTERM after any of
/// them ends the program at once, with the terminal as it was. One in the same moment is no second
/// one. A SIGHUP never does that: who closes
/// a terminal sends several. Those that are ignored when the program starts (nohup, a shell's trap)
/// stay ignored.
void install_stop_handlers();
/// From now on Ctrl-C alone never ends the program, however often.
void outlive_interrupts();
/// Whether running work is to end.
bool interrupted();
/// How long commands wait for another process's change of an index, or until Ctrl-C.
LockWait index_wait();
/// Whether the program is to end: SIGTERM or SIGHUP came.
bool terminated();
/// Forgets Ctrl-C.
void clear_interrupt();
/// Of a program that a signal stopped: 128 and its number, as shells have it.
int stopped_exit_status();

// One file a command.
void add_generate_command(Command root, App& app);
void add_chat_command(Command root, App& app);
void add_quantize_command(Command root, App& app);
void add_template_command(Command root, App& app);
void add_tokenize_command(Command root, App& app);
void add_model_command(Command root, App& app);
void add_inspect_command(Command root, App& app);
void add_ingest_command(Command root, App& app);
void add_ask_command(Command root, App& app);
void add_cache_command(Command root, App& app);
void add_docs_command(Command root, App& app);
void add_bench_command(Command root, App& app);
void add_bench_retrieval_command(Command bench, App& app);
void add_bench_batch_command(Command bench, App& app);
void add_bench_kv_command(Command bench, App& app);
void add_eval_command(Command root, App& app);
void add_eval_passkey_command(Command eval, App& app);
void add_eval_sparse_command(Command eval, App& app);
void add_eval_speculation_command(Command eval, App& app);
void add_perplexity_command(Command root, App& app);
/// `line` is what it describes.
void add_completions_command(Command root, App& app, const CommandLine& line);

}  // namespace weft::cli
