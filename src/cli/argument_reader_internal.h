// The words of the command line as flags.cc gives them to CLI11, and what both say of options. What
// is not known is refused here, with what was meant. It sets no value and runs no command.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace weft::cli {

inline constexpr std::string_view kWords =
    "TEXT...";  // value names that mark a positional argument
inline constexpr std::string_view kList = "...";
inline constexpr char kListEnd = '\x01';

/// "auto|f32|bf16" or "TEXT": what comes before CLI11's own additions.
std::string value_name_of(const CLI::Option& option);
bool takes_value(const CLI::Option& option);
/// "weft model get"
std::string path_of(const CLI::App& command);
bool is_group(const CLI::App& command);

/// A value as an error shows it.
std::string shown(std::string_view value);

struct ReadArguments {
  /// In an order and a form that leave the parser nothing to guess: flags first, each value by
  /// itself, then the words.
  std::vector<std::string> arguments;
  CLI::App* command = nullptr;  // that was given, or the group that none was given of
};
/// Without the program's name. kInvalidArgument: one line about wrong usage.
Result<ReadArguments> read_arguments(CLI::App& root, std::vector<std::string> arguments);

}  // namespace weft::cli
