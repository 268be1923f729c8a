// The words of the command line as flags.cc gives them to CLI11, and what both say of options. What
// is not known is refused here, with what was meant. It sets no value and runs no command.
// Only flags.cc and argument_reader.cc include it: CLI11 is known nowhere else.
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
// After each word of a list, since CLI11 takes "[a]" for a list of its own; flags.cc takes it off
// again.
inline constexpr char kListEnd = '\x01';

/// "auto|f32|bf16" or "TEXT": what comes before CLI11's own additions.
/// Byte sizes, whose check CLI11 adds to the name as SIZE, are "BYTES"; "" for a plain flag.
std::string value_name_of(const CLI::Option& option);
/// False for a flag that is there or not, as --json.
bool takes_value(const CLI::Option& option);
/// "weft model get"
std::string path_of(const CLI::App& command);
/// Whether it is there for the commands below it alone: weft itself, `weft model`, `weft docs` and
/// so on.
bool is_group(const CLI::App& command);

/// A value as an error shows it.
/// At most 80 bytes, with "..." where there are more; in quotes where it is empty or has white
/// space.
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
