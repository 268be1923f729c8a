// What all commands share: how a model is opened from its flags, how running work is asked to end,
// and what goes to which of the two standard streams. Standard output has answers and reports,
// standard error all else, so that `weft generate ... > answer.txt` holds the answer alone and a
// program that reads a pipe never has to tell a note from a result.
#include "cli/app.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <limits>
#include <system_error>
#include <vector>

#include "base/counts_text.h"
#include "base/log.h"
#include "base/terminal_mode.h"
#include "base/terminal_streams.h"
#include "base/terminal_text.h"
#include "cli/draft_flags.h"
#include "cli/model_get.h"
#include "cli/sparse_flags.h"
#include "engine/compute_choice.h"
#include "engine/kv_size.h"

namespace weft::cli {
namespace {

// A signal handler may touch nothing but such variables, so this is the one state of the program
// that is global. Work looks at it at its own borders (a layer, a token, a chunk, a question): what
// is half done is then kept or undone by the destructors, which a handler could not call.
volatile std::sig_atomic_t interrupts = 0;
volatile std::sig_atomic_t second_one_ends = 1;
volatile std::sig_atomic_t termination = 0;   // SIGTERM or SIGHUP, whichever came first
volatile std::sig_atomic_t first_signal = 0;  // of all three
timespec first_time;                          // of the one that asked; the handler's alone

int64_t ms_since(const timespec& begin) {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1'000'000;
}

/// The first signal asks, the second one ends: a user who presses Ctrl-C again means now, and a
/// command that hangs must not need kill -9. A SIGHUP never counts as the second one, since closing
/// a window sends several; nor does what comes in the same moment, since `timeout 5 weft …` signals
/// its child and then the group that the child is in, and the answer so far was lost. _exit, not
/// exit: destructors and atexit handlers are not safe here; what they would have removed, as the
/// hidden folder of weft model get, the next run clears.
constexpr int64_t kSameMomentMs = 50;
void on_stop(int number) {
  const bool stopping = termination != 0 || (interrupts > 0 && second_one_ends != 0);
  if (stopping && number != SIGHUP && ms_since(first_time) >= kSameMomentMs) {
    restore_terminal_mode();
    _exit(stopped_exit_status());
  }
  if (!stopping) clock_gettime(CLOCK_MONOTONIC, &first_time);
  if (first_signal == 0) first_signal = number;
  if (number == SIGINT) {
    // Not ++, which C++20 has deprecated for a volatile.
    interrupts = interrupts + 1;
  } else if (termination == 0) {
    termination = number;
  }
}

constexpr int kBarWidth = 30;

}  // namespace

/// The names are llama.cpp's where it has the flag (-m, -t, -c, --ctx-size), so that a line copied
/// from there works. Its -ctk and -ctv have two letters and more after one dash, which CLI11 does
/// not read: long_form (suggestion.h) turns them into these names before it sees them.
Flag add_model_flags(Command command, ModelFlags& flags, bool model_is_optional) {
  Flag model =
      command.add_option("-m,--model", flags.model, "GGUF file, or the name of a fetched model")
          .value_name("MODEL")
          .or_environment("WEFT_MODEL", !model_is_optional);
  command.add_option("-t,--threads", flags.threads, "worker threads (default: all cores)")
      .in_range(1, engine::kMaxThreads);
  command
      .add_option("-c,--context,--ctx-size", flags.context_tokens,
                  "context in tokens (default: the model's, at most 8192)")
      .in_range(1, std::numeric_limits<int32_t>::max());
  command
      .add_bytes("--kv-limit", flags.kv_limit_bytes,
                 "bytes of KV cache and of a step beside it at most, as 2GB (default: what the "
                 "context needs, and the requests at once)")
      .positive();
  command
      .add_option("--cache-type-k", flags.cache_type_k,
                  "type of K in the cache, also -ctk (default: f16)")
      .one_of(kernels::kv_type_names());
  command
      .add_option("--cache-type-v", flags.cache_type_v,
                  "type of V in the cache, also -ctv (default: f16)")
      .one_of(kernels::kv_type_names());
  command.add_option("--compute", flags.compute, "how prefill multiplies (default: auto)")
      .one_of(engine::compute_names());
  command.add_option("--isa", flags.isa, "instruction set (default: the best)")
      .one_of(kernels::isa_names());
  command.add_flag(
      "-v,--verbose",
      [&flags] {
        flags.verbose = true;
        set_log_level(LogLevel::kInfo);
      },
      "on standard error more of what is done, and what the KV cache held");
  return model;
}

Flag add_verbose_flag(Command command) {
  return command.add_flag(
      "-v,--verbose", [] { set_log_level(LogLevel::kInfo); },
      "on standard error more of what is done");
}

/// llama.cpp's name.
void add_window_flag(Command command, ModelFlags& flags) {
  command.add_flag("--swa-full", flags.swa_full,
                   "keep the whole context also in layers with a sliding window, which else keep "
                   "little more than it");
}

/// llama.cpp's names, and its -gan and -gaw (suggestion.h).
Flag add_self_extend_flags(Command command, ModelFlags& flags) {
  Flag group = command
                   .add_option("--grp-attn-n", flags.group_tokens,
                               "Self-Extend, also -gan: tokens further back share positions in "
                               "groups of N, so that -c may be up to N times the model's "
                               "(default: 1, no groups)")
                   .in_range(1, kv::kMostGroupTokens);
  command
      .add_option(
          "--grp-attn-w", flags.neighbour_tokens,
          fmt::format("Self-Extend, also -gaw: the newest tokens that keep a position each, "
                      "at least (default: {}, or a quarter of a smaller context)",
                      kv::kUsualNeighbourTokens))
      .in_range(1, 1 << 30);
  return group;
}

void add_beyond_context_flag(Command command, ModelFlags& flags) {
  command.add_flag("--beyond-context", flags.beyond_context,
                   "-c may be more than the model was trained for, to see what becomes of it");
}

namespace {

Result<kv::SelfExtend> self_extend(const ModelFlags& flags) {
  if (flags.group_tokens == 1) {
    if (flags.neighbour_tokens < 0) return kv::SelfExtend();
    return invalid_argument(
        fmt::format("{} goes with a --grp-attn-n above 1",
                    flags.neighbour_tokens == 0 ? "--grp-attn-only" : "--grp-attn-w"));
  }
  return kv::SelfExtend{flags.group_tokens, flags.neighbour_tokens};
}

/// An error of the variable's model begins with the variable: whoever typed no -m would look for
/// the fault in the command.
Result<std::string> path_of_model(const App& app, const ModelFlags& flags) {
  auto path = resolve_model(app.env, flags.model, app.models_dir);
  if (path.is_ok() || !is_from_variable(app, flags)) return path;
  return Status(path.status().code(), "WEFT_MODEL: " + path.status().message());
}

}  // namespace

/// By comparing the values, as the parser does not tell here where a value came from: -m with the
/// very name that the variable has is no other model.
bool is_from_variable(const App& app, const ModelFlags& flags) {
  return !app.default_model.empty() && flags.model == app.default_model;
}

/// Without a cache folder (no home) nothing is kept, so --compute auto
/// measures again each time.
Result<std::unique_ptr<engine::Engine>> open_engine(App& app, const ModelFlags& flags) {
  engine::EngineOptions options;
  WEFT_ASSIGN_OR_RETURN(options.model_path, path_of_model(app, flags));
  options.n_threads = flags.threads;
  options.context_tokens = flags.context_tokens;
  WEFT_ASSIGN_OR_RETURN(options.self_extend, self_extend(flags));
  options.beyond_context = flags.beyond_context;
  WEFT_ASSIGN_OR_RETURN(options.sparse, sparse_options(app.env, flags));
  WEFT_ASSIGN_OR_RETURN(options.draft, draft_options(app, flags));
  options.kv_limit_bytes = flags.kv_limit_bytes;
  WEFT_ASSIGN_OR_RETURN(options.kv_types.k, kernels::parse_kv_type(flags.cache_type_k));
  WEFT_ASSIGN_OR_RETURN(options.kv_types.v, kernels::parse_kv_type(flags.cache_type_v));
  options.n_contexts = flags.n_contexts;
  options.page_tokens = flags.page_tokens;
  options.steps = flags.steps;
  // A dense checkpoint writes slots again, which windows that roll do not allow.
  const bool drafts_itself = options.draft.kind == spec::DrafterKind::kSelf &&
                             options.draft.verify == spec::Verify::kDense;
  const bool rewrites =
      options.sparse.lock.checkpoint == sparse::Checkpoint::kDense && !drafts_itself;
  options.rolls_windows = flags.rolls_windows && !flags.swa_full && !rewrites;
  options.isa = flags.isa;
  options.compute = flags.compute;
  if (!app.cache_dir.empty()) {
    options.compute_kept_file = join_path(app.cache_dir, "compute");
    options.rates_kept_file = join_path(app.cache_dir, "prefill-rates");
    options.labels_kept_folder = join_path(app.cache_dir, "labels");
  }
  WEFT_ASSIGN_OR_RETURN(auto engine, engine::Engine::open(app.env, options));
  if (flags.verbose) {
    engine->watch_kv([&app](const auto& groups) { app.fullest.see(groups); });
  }
  return engine;
}

Result<engine::ContextSize> context_of(App& app, const ModelFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const std::string path, path_of_model(app, flags));
  WEFT_ASSIGN_OR_RETURN(const auto file, gguf::File::open(app.env, path));
  WEFT_ASSIGN_OR_RETURN(const model::ModelConfig config, model::read_config(*file));
  engine::ContextRequest request{.context_tokens = flags.context_tokens,
                                 .self_extend = {},
                                 .beyond_context = flags.beyond_context};
  WEFT_ASSIGN_OR_RETURN(request.self_extend, self_extend(flags));
  return engine::context_size(request, config.context_length, config.context_tokens);
}

void print_fullest(App& app) {
  for (const std::string& line : kv_lines(app.fullest.groups())) print_error(line);
  app.fullest.clear();
}

LockWait index_wait() { return {.limit_ms = kUsualLockWait.limit_ms, .cancelled = interrupted}; }

std::vector<std::string> model_files(const engine::Engine& engine) {
  std::vector<std::string> paths;
  for (const gguf::FilePart& part : engine.model().file().parts()) paths.push_back(part.path);
  return paths;
}

/// The defaults that the help says are those that `options` holds when this is called: chat has 0.8
/// and 1024 tokens where generate and ask have 0 and 128, and no second list could go stale.
/// in_range is for whole numbers with both ends inside; an end that is outside (--top-p 0), a gap
/// (-n 0) or a bound in words needs must().
void add_sampling_flags(Command command, engine::GenerationOptions& options, int32_t most_tokens) {
  const auto add = [&](const char* flag, auto& value, const char* help) {
    return command.add_option(flag, value, fmt::format("{} (default: {})", help, value));
  };
  const auto is_penalty = [](double value) { return value >= -2 && value <= 2; };
  sampling::SamplingOptions& s = options.sampling;
  sampling::PenaltyOptions& p = s.penalties;
  add("-n,--tokens,--n-predict", options.max_tokens,
      "tokens to generate at most; -1: until the end or a full context")
      .must([most_tokens](double n) { return n == -1 || (n >= 1 && n <= most_tokens); },
            fmt::format("a whole number from 1 to {}, or -1 (no limit)", most_tokens));
  command.add_repeated("--stop", options.stops,
                       "end before this text, which is not printed; may be given several times");
  command.add_flag("--ignore-eos", options.ignore_end, "go on where the model would end");
  add("--temp", s.temperature, "temperature; 0 is greedy")
      .must([](double value) { return value >= 0; }, "a number from 0 (greedy) to 3.4e38");
  add("--top-k", s.top_k, "keep the k likeliest; 0: all")
      .in_range(0, std::numeric_limits<int32_t>::max());
  add("--top-p", s.top_p, "keep this share of probability")
      .must([](double value) { return value > 0 && value <= 1; },
            "a number over 0 and at most 1 (all)");
  add("--min-p", s.min_p, "drop tokens less likely than this share of the likeliest")
      .must([](double value) { return value >= 0 && value <= 1; }, "a number from 0 (all) to 1");
  add("--repeat-penalty", p.repeat, "divide the odds of what was said lately; 1: off")
      .must([](double value) { return value > 0 && value <= 100; },
            "a number over 0 and at most 100; 1 is off");
  add("--repeat-last-n", p.repeat_last_n, "tokens that count for that; 0: none, -1: all")
      .in_range(-1, std::numeric_limits<int32_t>::max());
  add("--presence-penalty", p.presence, "less likely once the answer has it; 0: off")
      .must(is_penalty, "a number from -2 to 2; 0 is off");
  add("--frequency-penalty", p.frequency, "less likely each time the answer has it; 0: off")
      .must(is_penalty, "a number from -2 to 2; 0 is off");
  add("--seed", s.seed, "seed of the sampler: the same seed gives the same answer")
      .must([](double) { return true; },
            "a whole number from 0 to 18446744073709551615; for a random one --seed $RANDOM");
}

std::vector<Flag> add_shift_flags(Command command, ShiftFlags& flags, const std::string& kept) {
  constexpr int32_t kMostKept = 1 << 24;  // more than fit are cut to what does
  Flag half = command.add_flag(
      "--context-shift", flags.half,
      "where the context is full, drop half of it and go on: the first tokens stay (--keep), what "
      "is left moves there without being computed again");
  Flag keep =
      command
          .add_option("--keep", flags.keep_tokens,
                      "--context-shift: first tokens that stay, beside BOS (default: " + kept + ")")
          .in_range(0, kMostKept);
  Flag sinks = command
                   .add_option("--context-sinks", flags.sink_tokens,
                               "the same, a page at a time: so many first tokens stay, and the "
                               "newest that there is room for (StreamingLLM)")
                   .in_range(0, kMostKept)
                   .excludes(half);
  return {half, keep, sinks};
}

Result<engine::ContextShift> context_shift(const ShiftFlags& flags) {
  if (flags.keep_tokens >= 0 && !flags.half) {
    return invalid_argument("--keep goes with --context-shift: it says which tokens stay then");
  }
  if (flags.sink_tokens >= 0) {
    return engine::ContextShift{engine::ShiftPolicy::kSinks, flags.sink_tokens};
  }
  if (!flags.half) return engine::ContextShift{};
  return engine::ContextShift{engine::ShiftPolicy::kHalf, flags.keep_tokens};
}

/// An answer that was cut reads like one that ended, most of all in a file, so it is said. One that
/// Ctrl-C ended has the line of its command.
void note_end(const engine::Engine& engine, const engine::Generation& generation,
              const std::string& which) {
  if (generation.stop_reason == engine::StopReason::kMaxTokens) {
    const size_t n = generation.tokens.size();
    print_error(fmt::format("{}{} token{}: the limit (-n); -n -1 goes on to the end", which, n,
                            n == 1 ? "" : "s"));
  } else if (generation.stop_reason == engine::StopReason::kContextFull) {
    print_error(fmt::format("{}the context of {} tokens is full: the text ends here ({})", which,
                            engine.context_tokens(), engine.context_flag()));
  } else if (generation.text.empty() && generation.stop_reason != engine::StopReason::kCancelled) {
    print_error(which + "the model gave an empty answer");
  }
}

void log_answer(int64_t n_tokens, double decode_ms, const spec::DraftCounters& drafts) {
  if (!logs_info()) return;
  (void)output_written();
  log_info(fmt::format("answer: {} in {:.0f} ms ({:.1f} tokens/s)", counted(n_tokens, "token"),
                       decode_ms, n_tokens * 1e3 / std::max(decode_ms, 1e-3)));
  const std::string text = drafts_text(drafts);
  if (!text.empty()) log_info("drafts: " + text);
}

/// For chat templates, which print the day in their system turn (strftime_now).
std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

/// In UTC, and its callers say so: a time zone would make two listings of one store differ.
std::string date_of(int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &parts);
  return text;
}

/// A token may be part of a character, so an answer that was cut may end in the middle of one;
/// nlohmann's dump() would throw there, hence error_handler_t::replace. Nothing is flushed here but
/// where a question ends: a batch has to see that the disk is full, and a flush in between would
/// take that error away from it.
void print_json(const Json& json) {
  const std::string line =
      json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
  std::fwrite(line.data(), 1, line.size(), stdout);
}

Status output_written() {
  static int first_errno = 0;
  if ((std::fflush(stdout) != 0 || std::ferror(stdout) != 0) && first_errno == 0) {
    first_errno = errno != 0 ? errno : EIO;
  }
  if (first_errno == 0) return Status::ok();
  return io_error("standard output: " + std::generic_category().message(first_errno));
}

/// What was printed before comes first, also where both streams are one terminal.
void print_error(std::string_view message) {
  (void)output_written();
  const std::string line = fmt::format("weft: {}\n", one_line(message));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

/// A read() alone would not end at Ctrl-C: install_stop_handlers has the kernel go on with calls
/// that a signal came into. poll() does return then, but a signal may come between the look at
/// interrupted() and the call, so it waits for a tenth of a second at most. The limit counts bytes
/// as they come: `yes | weft generate` ends with an error, not with all memory taken.
Result<std::string> read_stdin(uint64_t limit_bytes) {
  constexpr int kWaitMs = 100;  // how often Ctrl-C is looked for
  std::string text;
  std::vector<char> buffer(64 * 1024);
  while (true) {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    const int ready = poll(&input, 1, kWaitMs);
    if (interrupted()) return cancelled("interrupted");
    if (ready <= 0) continue;
    const ssize_t n = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      return io_error("standard input: " + std::generic_category().message(errno));
    }
    if (n == 0) return text;
    text.append(buffer.data(), n);
    if (text.size() > limit_bytes) {
      return resource_exhausted(
          fmt::format("standard input: over the limit of {} bytes", limit_bytes));
    }
  }
}

Progress::Progress(std::string label) : label_(std::move(label)), terminal_(isatty(2) == 1) {}

Progress::~Progress() { hide(); }

/// "\033[K" clears to the end of the line, so a shorter line leaves nothing of a longer one.
void Progress::hide() {
  if (drawn_) write_control(stderr, "\r\033[K");
  drawn_ = false;
}

/// Asked each time: a window may be made narrower while an ingest runs, and a line that wraps can
/// no longer be drawn over.
int Progress::columns() {
  winsize window{};
  const bool is_known = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0;
  return is_known ? window.ws_col : 80;
}

void Progress::show_line(const std::string& line) {
  if (!terminal_) return;
  write_control(stderr, "\r" + line + "\033[K");
  drawn_ = true;
}

/// "ingest [##########....................] 4/12 chunks"
void Progress::show(int64_t done, int64_t total, const std::string& unit) {
  if (!terminal_ || total <= 0) return;
  const int64_t filled = kBarWidth * done / total;
  std::string line = fmt::format("{} [{:#<{}}{:.<{}}] {}/{} {}", label_, "", filled, "",
                                 kBarWidth - filled, done, total, unit);
  if (drawn_ && line == line_) return;  // work tells at each layer
  show_line(line);
  line_ = std::move(line);
}

/// SA_RESTART, for the libraries: SQLite, stdio and libedit then never meet a call that failed
/// because a signal came. What waits for input looks by itself (read_stdin, line_input.cc). `nohup
/// weft ingest` and `trap "" INT` start weft with a signal ignored, and mean it: such a one gets no
/// handler.
void install_stop_handlers() {
  struct sigaction action {};
  action.sa_handler = on_stop;
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&action.sa_mask, number);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    sigaction(number, nullptr, &before);
    if (before.sa_handler != SIG_IGN) sigaction(number, &action, nullptr);
  }
}

void outlive_interrupts() { second_one_ends = 0; }

bool interrupted() { return interrupts > 0 || termination != 0; }
bool terminated() { return termination != 0; }
/// Of the first signal, as that is what asked: after Ctrl-C and then a closed window it is 130.
int stopped_exit_status() { return 128 + (first_signal != 0 ? first_signal : SIGINT); }
/// For chat, where Ctrl-C ends an answer and not the program. A SIGTERM stays: it means all of it.
void clear_interrupt() {
  interrupts = 0;
  first_signal = termination;
}

}  // namespace weft::cli
