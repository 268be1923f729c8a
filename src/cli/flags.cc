// Flags over CLI11. A Flag and a Command hold a void* to its objects, since its header takes five
// seconds to compile and some twenty files declare flags. What a value may be is decided here and
// not by CLI11: its checks word their errors in their own way, and its numbers are not those of
// docs/cli.md (see add_number).
#include "cli/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <sstream>
#include <string_view>
#include <type_traits>

#include "base/byte_sizes.h"
#include "base/names.h"
#include "base/parse_number.h"
#include "cli/argument_reader_internal.h"
#include "cli/suggestion.h"

namespace weft::cli {
namespace {

// CLI11 owns its options and commands and never moves them, so the pointers live as long as the
// CommandLine.
CLI::Option& as_option(void* option) { return *static_cast<CLI::Option*>(option); }
CLI::App& as_command(void* command) { return *static_cast<CLI::App*>(command); }

/// Options as a manual has them: a word for the value, not the parser's type and range.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string text;
    const std::string value = value_name_of(*option);
    if (!value.empty()) text = " " + value;
    if (!option->get_envname().empty()) {
      text += fmt::format(" (or ${})", option->get_envname());
    } else if (option->get_required()) {
      text += " (required)";
    }
    return text;
  }
};

/// "--ratio 1.5: must be a number from 0 to 1"
std::string value_error(const CLI::Option& option, std::string_view value,
                        std::string_view expected) {
  return fmt::format("{} {}: must be {}", option.get_name(), shown(value), expected);
}

constexpr const char* kNotEmpty = "not empty";  // the check's name

CLI::Option* refuse_empty(CLI::Option* option) {
  const auto check = [option](const std::string& text) -> std::string {
    return text.empty() ? option->get_name() + ": must not be empty" : "";
  };
  // Where the shell does not have the variable, --store "$NOTES" is an empty text, which nobody
  // means. The check has a name, so that may_be_empty can find it again.
  return option->check(CLI::Validator(check, "", kNotEmpty));
}

/// One line for what the parser refused.
/// By the name of the exception's class, as its text is made for CLI11's own form. A check's text
/// comes with the option's name before it, which value_error's line has already.
std::string usage_error(const CLI::App& command, const CLI::ParseError& error) {
  const std::string what = error.what();
  const std::string path = path_of(command);
  if (error.get_name() == "ValidationError") {  // "NAME: " and value_error's line
    return what.substr(std::min(what.find(": ") + 2, what.size()));
  }
  if (error.get_name() == "ExcludesError") {
    const size_t joint = what.find(" excludes ");
    return fmt::format("{} and {} do not go together: give one", what.substr(0, joint),
                       what.substr(joint + std::string_view(" excludes ").size()));
  }
  if (error.get_name() == "RequiredError") {
    for (const CLI::Option* option : command.get_options([](const CLI::Option*) { return true; })) {
      if (!option->get_required() || option->count() > 0) continue;
      const std::string variable = option->get_envname();
      const std::string value = value_name_of(*option);
      if (variable.empty()) {
        return fmt::format("{} is missing; see {} --help", option->get_name(), path);
      }
      return fmt::format("{} {} is missing, and {} is not set{}", option->get_name(), value,
                         variable, value == "MODEL" ? "; weft model ls lists the models" : "");
    }
  }
  return fmt::format("{}; see {} --help", what, path);
}

}  // namespace

/// What a number may be, beside what its type holds.
struct Flag::Range {
  std::optional<std::pair<int64_t, int64_t>> limits;  // as in_range says
  std::function<bool(double)> also;                   // as must says
  std::string also_expected;

  template <class T>
  /// must() sees the number as a double, which is exact up to 2^53: enough for every range so far.
  bool holds(T value) const {
    if (also && !also(value)) return false;
    if (!limits) return true;
    if constexpr (std::is_floating_point_v<T>) {
      return value >= limits->first && value <= limits->second;
    } else {
      return std::cmp_greater_equal(value, limits->first) &&
             std::cmp_less_equal(value, limits->second);
    }
  }

  /// "a whole number from 1 to 64"
  template <class T>
  std::string expected() const {
    if (also) return also_expected;
    constexpr const char* kKind = std::is_floating_point_v<T> ? "a number" : "a whole number";
    if (limits) return fmt::format("{} from {} to {}", kKind, limits->first, limits->second);
    if constexpr (std::is_floating_point_v<T>) {
      return kKind;
    } else {
      return fmt::format("{} from {} to {}", kKind, std::numeric_limits<T>::min(),
                         std::numeric_limits<T>::max());
    }
  }
};

Flag Flag::required() {
  as_option(option_).required();
  return *this;
}

/// Changes the range that the check of add_number reads when it runs; the order of the calls on a
/// flag does not matter.
Flag Flag::in_range(int64_t least, int64_t most) {
  WEFT_CHECK(range_ != nullptr);
  range_->limits = {least, most};
  return *this;
}

Flag Flag::positive() { return in_range(1, std::numeric_limits<int64_t>::max()); }

Flag Flag::must(std::function<bool(double)> holds, const std::string& expected) {
  WEFT_CHECK(range_ != nullptr);
  range_->also = std::move(holds);
  range_->also_expected = expected;
  return *this;
}

/// The values become the flag's type name, "auto|f32|bf16", which the help shows and from which
/// describe_flag makes the completions.
Flag Flag::one_of(const std::vector<std::string>& values) {
  CLI::Option* option = &as_option(option_);
  std::string joined;
  for (const std::string& value : values) joined += (joined.empty() ? "" : "|") + value;
  option->type_name(joined);
  const auto check = [option, values](const std::string& text) -> std::string {
    if (std::ranges::find(values, text) != values.end()) return "";
    const std::optional<std::string> meant = closest(text, values);
    return value_error(*option, text, listed(values)) +
           (meant ? fmt::format("; did you mean {}?", *meant) : "");
  };
  option->check(CLI::Validator(check, ""));
  return *this;
}

Flag Flag::may_be_empty() {
  as_option(option_).get_validator(kNotEmpty)->active(false);
  return *this;
}

Flag Flag::value_name(const std::string& name) {
  as_option(option_).type_name(name);
  return *this;
}

Flag Flag::or_environment(const std::string& variable, bool required) {
  as_option(option_).envname(variable)->required(required);
  return *this;
}

Flag Flag::excludes(Flag other) {
  as_option(option_).excludes(&as_option(other.option_));
  return *this;
}

bool Flag::was_given() const { return as_option(option_).count() > 0; }

std::string Flag::name() const { return as_option(option_).get_name(); }

Flag Flag::describe(const std::string& help) {
  as_option(option_).description(help);
  return *this;
}

Command Command::add_command(const std::string& name, const std::string& help) {
  CLI::App* command = as_command(command_).add_subcommand(name, help);
  command->require_subcommand(0, 0);  // any number: else it has its parent's limit
  return Command(command);
}

void Command::needs_command() { as_command(command_).require_subcommand(0, 1); }

Flag Command::add_option(const std::string& names, std::string& value, const std::string& help) {
  return Flag(refuse_empty(as_command(command_).add_option(names, value, help)->take_last()));
}
Flag Command::add_option(const std::string& names, std::optional<std::string>& value,
                         const std::string& help) {
  return Flag(refuse_empty(as_command(command_).add_option(names, value, help)->take_last()));
}
/// The parser gets what was read here, in a form that it cannot take for another number: by itself
/// it takes 010 for 8, 1'000 for 1000, and wraps around or cuts off what is too large.
template <class T>
Flag Command::add_number(const std::string& names, T& value, const std::string& help) {
  CLI::Option* option = as_command(command_).add_option(names, value, help)->take_last();
  auto range = std::make_shared<Flag::Range>();
  const auto read = [range, option](std::string& text) -> std::string {
    const std::optional<T> number = parse_number<T>(text);
    if (!number || !range->holds(*number)) {
      return value_error(*option, text, range->expected<T>());
    }
    // What CLI11 parses is this text and not the user's. fmt writes the shortest text that reads
    // back as the same number, so nothing is lost on the way.
    text = fmt::format("{}", *number);
    return "";
  };
  option->transform(CLI::Validator(read, ""));
  return Flag(option, std::move(range));
}

Flag Command::add_option(const std::string& names, int32_t& value, const std::string& help) {
  return add_number(names, value, help);
}
Flag Command::add_option(const std::string& names, int64_t& value, const std::string& help) {
  return add_number(names, value, help);
}
Flag Command::add_option(const std::string& names, uint64_t& value, const std::string& help) {
  return add_number(names, value, help);
}
Flag Command::add_option(const std::string& names, float& value, const std::string& help) {
  return add_number(names, value, help);
}
Flag Command::add_option(const std::string& names, double& value, const std::string& help) {
  return add_number(names, value, help);
}
/// The words as they came: argument_reader_internal.h has why each ends with kListEnd here.
Flag Command::add_option(const std::string& name, std::vector<std::string>& values,
                         const std::string& help) {
  const auto take = [&values](const CLI::results_t& results) {
    values = results;
    for (std::string& value : values) {
      if (value.ends_with(kListEnd)) value.pop_back();  // ArgumentReader put it there
    }
    return true;
  };
  CLI::Option* option = as_command(command_).add_option(name, take, help);
  option->expected(CLI::detail::expected_max_vector_size)->type_name(std::string(kList));
  return Flag(option);
}

Flag Command::add_words(const std::string& name, std::optional<std::string>& text,
                        const std::string& help) {
  return Flag(as_command(command_).add_option(name, text, help)->type_name(std::string(kWords)));
}

Flag Command::add_repeated(const std::string& names, std::vector<std::string>& values,
                           const std::string& help) {
  const auto take = [&values](const CLI::results_t& results) {
    values = results;
    return true;
  };
  CLI::Option* option = as_command(command_).add_option(names, take, help);
  option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->type_name("TEXT");
  return Flag(refuse_empty(option));
}

/// `--kv-limit 512` would be 512 bytes, and was surely meant as MB: below a million a unit has to
/// be said. 0, which means none at all, needs no unit.
Flag Command::add_bytes(const std::string& names, uint64_t& bytes, const std::string& help) {
  CLI::Option* option = as_command(command_).add_option(names, bytes, help)->take_last();
  auto range = std::make_shared<Flag::Range>();
  const auto read = [range, option](std::string& text) -> std::string {
    const std::optional<ByteSize> size = parse_byte_size(text);
    if (!size || !range->holds(size->bytes)) {
      const std::string limits =
          range->limits ? fmt::format("from {} to {}", range->limits->first, range->limits->second)
                        : fmt::format("at most {}", std::numeric_limits<uint64_t>::max());
      return value_error(*option, text, "a number of bytes, as 512MB or 10GB, " + limits);
    }
    constexpr uint64_t kLeastBare = 1'000'000;
    if (!size->has_unit && size->bytes > 0 && size->bytes < kLeastBare) {
      return value_error(*option, text,
                         fmt::format("more: {0} {1} too few; {0}GB?", size->bytes,
                                     size->bytes == 1 ? "byte is" : "bytes are"));
    }
    text = fmt::format("{}", size->bytes);
    return "";
  };
  option->transform(CLI::Validator(read, "SIZE"));
  return Flag(option, std::move(range));
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

/// Here, so that the header does not need CLI::App's definition.
struct CommandLine::Parser {
  Parser(const std::string& about, const std::string& program) : root(about, program) {}
  CLI::App root;
};

CommandLine::CommandLine(const std::string& program, const std::string& about,
                         const std::string& version)
    : parser_(std::make_unique<Parser>(about, program)) {
  CLI::App& root = parser_->root;
  root.set_version_flag("-v,--version", version);
  root.formatter(std::make_shared<HelpFormatter>());
  root.get_formatter()->column_width(34);
}

CommandLine::~CommandLine() = default;

Command CommandLine::root() { return Command(&parser_->root); }

namespace {

/// What completions.cc needs, without CLI11's types: whether a value has a list is seen by the bars
/// in its name.
FlagDescription describe_flag(const CLI::Option& option) {
  FlagDescription out;
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  if (option.get_positional()) out.names.push_back(option.get_name(true));
  out.help = option.get_description();
  out.repeated = option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll ||
                 option.get_items_expected_max() > 1;
  if (!takes_value(option)) return out;
  out.value = value_name_of(option);
  if (out.value.find('|') == std::string::npos) return out;
  std::istringstream values(std::exchange(out.value, "VALUE"));
  for (std::string value; std::getline(values, value, '|');) out.values.push_back(value);
  return out;
}

CommandDescription describe_command(const CLI::App& command) {
  CommandDescription out{command.get_name(), command.get_description(), {}, {}, {}};
  for (const CLI::Option* option : command.get_options([](const CLI::Option*) { return true; })) {
    (option->get_positional() ? out.positional : out.flags).push_back(describe_flag(*option));
  }
  for (const CLI::App* sub : command.get_subcommands([](const CLI::App*) { return true; })) {
    out.commands.push_back(describe_command(*sub));
  }
  return out;
}

}  // namespace

namespace {

/// The parser would read the variables of every command, also of those that were not given, into
/// what commands share: over the flag that was given. It would also want the required flags of a
/// command above the given one, and call what that does (`weft eval` for `weft eval passkey`).
/// For example `weft docs ls --store A` with WEFT_STORE=B: `docs rm`, whose flags write to the same
/// struct, would have put B over A.
void leave_out_others(CLI::App& command, const CLI::App& given) {
  if (&command != &given) {
    for (CLI::Option* option : command.get_options([](CLI::Option*) { return true; })) {
      option->envname("")->required(false);
    }
    command.callback({});
  }
  for (CLI::App* sub : command.get_subcommands([](CLI::App*) { return true; })) {
    leave_out_others(*sub, given);
  }
}

}  // namespace

CommandDescription CommandLine::describe() const { return describe_command(parser_->root); }

/// CLI11 takes its arguments last first. Help and version are exceptions to it as errors are;
/// exit() tells them apart by a status of 0. The catch is here because no exception crosses a
/// room's border.
Result<std::string> CommandLine::parse(int argc, const char* const* argv) {
  CLI::App& root = parser_->root;
  WEFT_ASSIGN_OR_RETURN(const ReadArguments read,
                        read_arguments(root, {argv + std::min(argc, 1), argv + argc}));
  leave_out_others(root, *read.command);
  try {
    root.parse(std::vector<std::string>(read.arguments.rbegin(), read.arguments.rend()));
  } catch (const CLI::ParseError& error) {
    std::ostringstream help;
    if (root.exit(error, help, help) == 0) return help.str();
    return invalid_argument(usage_error(*read.command, error));
  }
  // `weft` and `weft model` by themselves: as Ollama does, and no error.
  return is_group(*read.command) ? root.help() : std::string();
}

}  // namespace weft::cli
