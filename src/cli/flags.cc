#include "cli/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <sstream>

namespace weft::cli {
namespace {

CLI::Option& as_option(void* option) { return *static_cast<CLI::Option*>(option); }
CLI::App& as_command(void* command) { return *static_cast<CLI::App*>(command); }

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
  std::string name = root.get_name();
  const CLI::App* command = &root;
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
  }
  const auto unknown = command->remaining();
  const bool is_group = !command->get_subcommands([](const CLI::App*) { return true; }).empty();
  const std::string what =
      is_group && !unknown.empty() ? fmt::format("no command '{}'", unknown.front()) : error.what();
  return fmt::format("{}; see {} --help", what, name);
}

std::string bytes_from_size(std::string& text) {
  const std::string given = text;
  try {
    if (CLI::AsSizeValue(false)(text).empty()) return "";
  } catch (const CLI::ValidationError&) {
  }
  return fmt::format("{} is no number of bytes; give one as 512MB or 10GB", given);
}

}  // namespace

Flag Flag::required() {
  as_option(option_).required();
  return *this;
}

Flag Flag::in_range(int64_t least, int64_t most) {
  as_option(option_).check(CLI::Range(least, most));
  return *this;
}

Flag Flag::positive() {
  as_option(option_).check(CLI::PositiveNumber);
  return *this;
}

Flag Flag::not_negative() {
  as_option(option_).transform(CLI::Validator(
      [](std::string& text) {
        return text.starts_with('-') ? fmt::format("{} is below 0", text) : std::string();
      },
      ""));
  return *this;
}

Flag Flag::one_of(const std::vector<std::string>& values) {
  as_option(option_).check(CLI::IsMember(values));
  return *this;
}

Flag Flag::excludes(Flag other) {
  as_option(option_).excludes(&as_option(other.option_));
  return *this;
}

Flag Flag::describe(const std::string& help) {
  as_option(option_).description(help);
  return *this;
}

Command Command::add_command(const std::string& name, const std::string& help) {
  return Command(as_command(command_).add_subcommand(name, help));
}

void Command::needs_command() { as_command(command_).require_subcommand(1); }

Flag Command::add_option(const std::string& names, std::string& value, const std::string& help) {
  return Flag(as_command(command_).add_option(names, value, help));
}
Flag Command::add_option(const std::string& names, std::optional<std::string>& value,
                         const std::string& help) {
  return Flag(as_command(command_).add_option(names, value, help));
}
Flag Command::add_option(const std::string& names, int32_t& value, const std::string& help) {
  return Flag(as_command(command_).add_option(names, value, help));
}
Flag Command::add_option(const std::string& names, int64_t& value, const std::string& help) {
  return Flag(as_command(command_).add_option(names, value, help));
}
Flag Command::add_option(const std::string& names, uint64_t& value, const std::string& help) {
  return Flag(as_command(command_).add_option(names, value, help));
}
Flag Command::add_option(const std::string& names, float& value, const std::string& help) {
  return Flag(as_command(command_).add_option(names, value, help));
}
Flag Command::add_option(const std::string& names, double& value, const std::string& help) {
  return Flag(as_command(command_).add_option(names, value, help));
}
Flag Command::add_option(const std::string& names, std::vector<std::string>& values,
                         const std::string& help) {
  return Flag(as_command(command_).add_option(names, values, help));
}

Flag Command::add_bytes(const std::string& names, uint64_t& bytes, const std::string& help) {
  // What is added last transforms first.
  CLI::Option* option = as_command(command_).add_option(names, bytes, help);
  option->transform(CLI::Validator(bytes_from_size, "SIZE"));
  return Flag(option).not_negative();
}

Flag Command::add_flag(const std::string& names, bool& value, const std::string& help) {
  return Flag(as_command(command_).add_flag(names, value, help));
}

Flag Command::add_flag(const std::string& names, std::function<void()> given,
                       const std::string& help) {
  return Flag(as_command(command_).add_flag_callback(names, std::move(given), help));
}

Flag Command::get_option(const std::string& name) {
  return Flag(as_command(command_).get_option(name));
}

void Command::when_given(std::function<void()> action) {
  as_command(command_).callback(std::move(action));
}

struct CommandLine::Parser {
  Parser(const std::string& about, const std::string& program) : root(about, program) {}
  CLI::App root;
};

CommandLine::CommandLine(const std::string& program, const std::string& about,
                         const std::string& version)
    : parser_(std::make_unique<Parser>(about, program)) {
  CLI::App& root = parser_->root;
  root.set_version_flag("--version", version);
  root.formatter(std::make_shared<HelpFormatter>());
  root.get_formatter()->column_width(34);
}

CommandLine::~CommandLine() = default;

Command CommandLine::root() { return Command(&parser_->root); }

Result<std::string> CommandLine::parse(int argc, const char* const* argv) {
  CLI::App& root = parser_->root;
  try {
    root.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::ostringstream help;
    if (root.exit(error, help, help) != 0) return invalid_argument(usage_error(root, error));
    return help.str();
  }
  return std::string();
}

}  // namespace weft::cli
