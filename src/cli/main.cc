// The command line. Reads the environment, finds the command, and turns its Status into one line on
// stderr and an exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <system_error>

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
  fmt::print(stderr, "weft: {}\n", weft::cli::printable(status.message()));
  switch (status.code()) {
    case weft::StatusCode::kCancelled:
      return 130;
    case weft::StatusCode::kInvalidArgument:
      return 2;
    default:
      return 1;
  }
}

/// Runs the command. What it printed must have arrived: a full disk behind standard output is an
/// error like any other.
int run(weft::cli::App& app) {
  const auto lost = [] {
    return weft::io_error("standard output: " + std::generic_category().message(errno));
  };
  try {
    const int status = exit_status(app.run());
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
    return status == 0 ? exit_status(lost()) : status;
  } catch (const std::system_error& error) {  // fmt's, when it cannot write
    return exit_status(weft::io_error(std::string("standard output: ") + error.what()));
  }
}

/// Options as a manual has them: a word for the value, not the parser's type and range.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string text;
    const std::string type = option->get_type_name();
    if (type.find("SIZE") != std::string::npos) {
      text = " BYTES";
    } else if (!type.empty()) {
      text = " " + type.substr(0, type.find(':'));
    }
    if (option->get_required()) text += " (required)";
    return text;
  }
};

/// One line for what the parser refused, with the help that explains it.
std::string usage_error(const CLI::App& root, const CLI::Error& error) {
  std::string name = "weft";
  const CLI::App* command = &root;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
  }
  const auto unknown = command->remaining();
  const bool is_group = !command->get_subcommands([](const CLI::App*) { return true; }).empty();
  const std::string what =
      is_group && !unknown.empty() ? fmt::format("no command '{}'", unknown.front()) : error.what();
  return fmt::format("weft: {}; see {} --help\n", what, name);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App root("weft answers questions over documents whose KV cache was computed once.", "weft");
  root.set_version_flag("--version", "weft " WEFT_VERSION);
  root.require_subcommand(1);
  root.formatter(std::make_shared<HelpFormatter>());
  root.get_formatter()->column_width(34);
  root.failure_message(
      [&](const CLI::App*, const CLI::Error& error) { return usage_error(root, error); });

  weft::cli::App app{weft::posix_env(),
                     models_folder(),
                     xdg_folder("XDG_CACHE_HOME", ".cache"),
                     xdg_folder("XDG_STATE_HOME", ".local/state"),
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
  return run(app);
}
