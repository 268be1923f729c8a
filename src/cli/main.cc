// The command line. Reads the environment, finds the command, and turns its Status into one line on
// stderr and an exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted (143 by SIGTERM, 129
// by SIGHUP).
//
// The order in main() is of importance: a standard stream that is closed is opened on /dev/null
// first, as the next file would else get its descriptor and be printed into; then all output is
// filtered for terminals; then the program runs on a stack of known size, since a shell's `ulimit
// -s` may leave too little for the deepest template. Commands never see any of that.
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <new>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "base/process.h"
#include "base/terminal_mode.h"
#include "base/terminal_streams.h"
#include "cli/app.h"

namespace {

using weft::join_path;

std::string environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before any thread
  return value == nullptr ? "" : value;
}

/// $HOME, else what the system has for the user; "" where neither is a path from the root.
std::string home_folder() {
  std::string home = environment("HOME");
  if (home.empty()) {
    const passwd* user = ::getpwuid(::geteuid());  // NOLINT(concurrency-mt-unsafe): as above
    if (user != nullptr && user->pw_dir != nullptr) home = user->pw_dir;
  }
  return home.starts_with('/') ? home : "";
}

/// $variable/weft, else ~/fallback/weft, else "": nothing is kept there then. A variable that is
/// no path from the root does not count, as the XDG base directories have it.
std::string xdg_folder(const char* variable, const char* fallback) {
  const std::string folder = environment(variable);
  if (folder.starts_with('/')) return join_path(folder, "weft");
  const std::string home = home_folder();
  return home.empty() ? "" : join_path(join_path(home, fallback), "weft");
}

/// $WEFT_MODELS may be relative, unlike the folders of XDG: who sets it means the working folder.
std::string models_folder() {
  const std::string folder = environment("WEFT_MODELS");
  if (!folder.empty()) return folder;
  const std::string data = xdg_folder("XDG_DATA_HOME", ".local/share");
  return data.empty() ? "" : join_path(data, "models");
}

/// The one place where a status becomes a line and a number.
int exit_status(const weft::Status& status) {
  if (status.is_ok()) return 0;
  weft::cli::print_error(status.message());
  switch (status.code()) {
    case weft::StatusCode::kCancelled:
      return weft::cli::stopped_exit_status();
    case weft::StatusCode::kInvalidArgument:
      return 2;
    default:
      return 1;
  }
}

/// Runs the command. What it printed must have arrived: standard output on a full disk is an error
/// like any other.
/// fflush at the end, because stdio holds the last piece back until then: without the look at it,
/// `weft generate > /full/answer.txt` would end with 0 and no answer.
int run(weft::cli::App& app) {
  try {
    const weft::Status ran = app.run();
    weft::cli::print_fullest(app);
    const int status = exit_status(ran);
    return status == 0 ? exit_status(weft::cli::output_written()) : status;
  } catch (const std::filesystem::filesystem_error&) {
    throw;                                    // guarded() names the path
  } catch (const std::system_error& error) {  // fmt's, when it cannot write
    return exit_status(weft::io_error(std::string("standard output: ") + error.what()));
  }
}

constexpr char kOutOfMemory[] =
    "weft: out of memory; give it a shorter input, a smaller context (-c), a smaller model or "
    "fewer "
    "threads (-t), or raise the limit (ulimit -v)\n";

/// Takes no memory: there may be none.
int end_out_of_memory() {
  std::fflush(stdout);
  [[maybe_unused]] const ssize_t n =
      ::write(STDERR_FILENO, kOutOfMemory, std::strlen(kOutOfMemory));
  return 1;
}

/// What fn() returns, 1 and one line when it throws: the last line of defence, after destructors
/// have released locks, temporary files and the terminal.
template <class F>
int guarded(F&& fn) {
  try {
    return fn();
  } catch (const std::bad_alloc&) {
    return end_out_of_memory();
  } catch (const std::length_error&) {  // a size that no memory could have
    return end_out_of_memory();
  } catch (const std::exception& error) {
    weft::cli::print_error(std::string("internal error: ") + error.what());
    return 1;
  }
}

/// Where memory ran out while something was being released, or in a library that cannot report it.
[[noreturn]] void on_terminate() {
  if (const std::exception_ptr thrown = std::current_exception()) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::bad_alloc&) {
      weft::restore_terminal_mode();
      ::_exit(end_out_of_memory());
    } catch (...) {
    }
  }
  std::abort();
}

/// Declares the commands, reads the arguments, and runs the one that was given. Signals are taken
/// over only then: until here Ctrl-C ends the program as any other.
int weft_main(int argc, char** argv) {
  weft::cli::CommandLine line(
      "weft", "weft answers questions over documents whose KV cache was computed once.",
      "weft " WEFT_VERSION);
  weft::cli::Command root = line.root();
  root.needs_command();

  weft::cli::App app{weft::posix_env(),
                     models_folder(),
                     xdg_folder("XDG_CACHE_HOME", ".cache"),
                     xdg_folder("XDG_STATE_HOME", ".local/state"),
                     environment("WEFT_MODEL"),
                     {}};
  weft::cli::add_model_command(root, app);
  weft::cli::add_inspect_command(root, app);
  weft::cli::add_quantize_command(root, app);
  weft::cli::add_tokenize_command(root, app);
  weft::cli::add_template_command(root, app);
  weft::cli::add_generate_command(root, app);
  weft::cli::add_chat_command(root, app);
  weft::cli::add_ingest_command(root, app);
  weft::cli::add_ask_command(root, app);
  weft::cli::add_docs_command(root, app);
  weft::cli::add_cache_command(root, app);
  weft::cli::add_bench_command(root, app);
  weft::cli::add_eval_command(root, app);
  weft::cli::add_perplexity_command(root, app);
  weft::cli::add_completions_command(root, app, line);
  const weft::Result<std::string> help = line.parse(argc, argv);
  if (!help.is_ok()) return exit_status(help.status());
  if (!help->empty()) {
    app.run = [&] {
      std::fwrite(help->data(), 1, help->size(), stdout);
      return weft::Status::ok();
    };
  }
  weft::cli::install_stop_handlers();
  return run(app);
}

}  // namespace

int main(int argc, char** argv) {
  std::set_terminate(on_terminate);
  weft::open_standard_streams();
  weft::ignore_file_size_signal();
  const weft::TerminalStreams streams;
  return guarded([&] {
    // guarded() is there twice, as an exception must not leave the thread that it was thrown in,
    // and starting that thread may throw, too.
    const weft::Result<int> status =
        weft::run_with_whole_stack([&] { return guarded([&] { return weft_main(argc, argv); }); });
    return status.is_ok() ? *status : exit_status(status.status());
  });
}
