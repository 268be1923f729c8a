#include "cli/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>
#include <string_view>
#include <system_error>
#include <type_traits>

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

/// All of `text` as a number; nullopt where it is none, or none of this type.
template <class T>
std::optional<T> parse_whole(std::string_view text) {
  // Of a float as of a double: what is too small for a float is its 0, not out of range.
  std::conditional_t<std::is_floating_point_v<T>, double, T> value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if constexpr (std::is_floating_point_v<T>) {
    if (!(std::fabs(value) <= double{std::numeric_limits<T>::max()})) return std::nullopt;
  }
  return static_cast<T>(value);
}

struct Bytes {
  uint64_t count = 0;
  bool has_unit = false;
};
/// 512MB, 1.5 GiB, 4096: units are powers of 1024. A part of a byte is left off.
std::optional<Bytes> parse_bytes(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string unit;
  for (const char c : text.substr(digits)) {
    if (c != ' ') unit += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  const bool has_unit = !unit.empty();
  constexpr std::string_view kPrefixes = "KMGTPE";
  const size_t power = unit.empty() ? std::string_view::npos : kPrefixes.find(unit.front());
  if (power != std::string_view::npos) unit.erase(0, 1);
  const bool is_unit = unit.empty() || unit == "B" || unit == "IB" || unit == "I";
  if (!is_unit || (power == std::string_view::npos && unit.starts_with('I'))) return std::nullopt;
  const size_t shift = power == std::string_view::npos ? 0 : 10 * (power + 1);
  const std::string_view number = text.substr(0, digits);
  if (const auto whole = parse_whole<uint64_t>(number)) {
    if (*whole > std::numeric_limits<uint64_t>::max() >> shift) return std::nullopt;
    return Bytes{*whole << shift, has_unit};
  }
  const auto fraction = parse_whole<double>(number);
  const bool is_decimal = !number.starts_with('.') && !number.ends_with('.');
  if (!fraction || !is_decimal || shift == 0) return std::nullopt;
  const double bytes = std::ldexp(*fraction, static_cast<int>(shift));
  if (!(bytes < 0x1p64)) return std::nullopt;
  return Bytes{static_cast<uint64_t>(bytes), has_unit};
}

}  // namespace

/// What a number may be, beside what its type holds.
struct Flag::Range {
  std::optional<std::pair<int64_t, int64_t>> limits;  // as in_range says

  template <class T>
  bool holds(T value) const {
    if (!limits) return true;
    if constexpr (std::is_floating_point_v<T>) {
      return value >= static_cast<T>(limits->first) && value <= static_cast<T>(limits->second);
    } else {
      return std::cmp_greater_equal(value, limits->first) &&
             std::cmp_less_equal(value, limits->second);
    }
  }

  /// "a whole number from 1 to 64"
  template <class T>
  std::string expected() const {
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

Flag Flag::in_range(int64_t least, int64_t most) {
  WEFT_CHECK(range_ != nullptr);
  range_->limits = {least, most};
  return *this;
}

Flag Flag::positive() { return in_range(1, std::numeric_limits<int64_t>::max()); }

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
/// The parser gets what was read here, in a form that it cannot take for another number: by itself
/// it takes 010 for 8, 1'000 for 1000, and wraps around or cuts off what is too large.
template <class T>
Flag Command::add_number(const std::string& names, T& value, const std::string& help) {
  CLI::Option* option = as_command(command_).add_option(names, value, help);
  auto range = std::make_shared<Flag::Range>();
  const auto read = [range](std::string& text) -> std::string {
    const std::optional<T> number = parse_whole<T>(text);
    if (!number || !range->holds(*number)) {
      return fmt::format("'{}': must be {}", text, range->expected<T>());
    }
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
Flag Command::add_option(const std::string& names, std::vector<std::string>& values,
                         const std::string& help) {
  return Flag(as_command(command_).add_option(names, values, help));
}

Flag Command::add_repeated(const std::string& names, std::vector<std::string>& values,
                           const std::string& help) {
  return Flag(as_command(command_).add_option(names, values, help)->allow_extra_args(false));
}

Flag Command::add_bytes(const std::string& names, uint64_t& bytes, const std::string& help) {
  CLI::Option* option = as_command(command_).add_option(names, bytes, help);
  auto range = std::make_shared<Flag::Range>();
  const auto read = [range](std::string& text) -> std::string {
    const std::optional<Bytes> bytes_read = parse_bytes(text);
    if (!bytes_read || !range->holds(bytes_read->count)) {
      return fmt::format(
          "'{}': must be a number of bytes, as 512MB or 10GB, {}", text,
          range->limits ? fmt::format("from {} to {}", range->limits->first, range->limits->second)
                        : fmt::format("at most {}", std::numeric_limits<uint64_t>::max()));
    }
    constexpr uint64_t kLeastBare = 1 << 20;
    if (!bytes_read->has_unit && bytes_read->count > 0 && bytes_read->count < kLeastBare) {
      return fmt::format("'{}': {} bytes are too few for any chunk; {}GB?", text, bytes_read->count,
                         bytes_read->count);
    }
    text = fmt::format("{}", bytes_read->count);
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
