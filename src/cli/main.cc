// The command line. Reads the environment, finds the command, and turns its Status into one line on
// stderr and an exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "cli/app.h"

namespace {

using weft::join_path;

std::string environment(const char* name) {
  const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before any thread
  return value == nullptr ? "" : value;
}

/// $variable/weft, else ~/fallback/weft.
std::string xdg_folder(const char* variable, const char* fallback) {
  const std::string folder = environment(variable);
  if (!folder.empty()) return join_path(folder, "weft");
  return join_path(join_path(environment("HOME"), fallback), "weft");
}

std::string models_folder() {
  const std::string folder = environment("WEFT_MODELS");
  return folder.empty() ? join_path(xdg_folder("XDG_DATA_HOME", ".local/share"), "models") : folder;
}

int exit_status(const weft::Status& status) {
  if (status.is_ok()) return 0;
  std::fflush(stdout);
  fmt::print(stderr, "weft: {}\n", status.message());
  return status.code() == weft::StatusCode::kCancelled ? 130 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App root("weft answers questions over documents whose KV cache was computed once.", "weft");
  root.set_version_flag("--version", "weft " WEFT_VERSION);
  root.require_subcommand(1);
  root.get_formatter()->column_width(34);

  weft::cli::App app{
      weft::posix_env(), models_folder(), xdg_folder("XDG_CACHE_HOME", ".cache"), {}};
  weft::cli::add_model_command(root, app);
  weft::cli::add_inspect_command(root, app);
  weft::cli::add_tokenize_command(root, app);
  weft::cli::add_generate_command(root, app);
  weft::cli::add_ingest_command(root, app);
  weft::cli::add_ask_command(root, app);
  weft::cli::add_cache_command(root, app);
  weft::cli::add_bench_command(root, app);
  weft::cli::add_eval_command(root, app);
  weft::cli::add_perplexity_command(root, app);
  try {
    root.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return root.exit(error) == 0 ? 0 : 2;
  }
  weft::cli::install_interrupt_handler();
  return exit_status(app.run());
}
