// The commands and their flags, as a command file declares them. A number is decimal and whole (or
// finite) and must fit: what does not is one line with the flag, the value and the range, as
// "--ratio 1.5: must be a number from 0 to 1". A text must not be empty: that is what a variable of
// a shell leaves that is not set. What is not known gets the nearest that is. Help and
// what a value becomes are CLI11's, which flags.cc and argument_reader.cc alone include: its header
// costs five seconds of compiling in every file that sees it. No command's work is here.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace weft::cli {

/// An option of a command; each call says one thing more of it. As long-lived as the CommandLine.
class Flag {
 public:
  /// Without it the command is wrong usage: "--model is missing; see weft generate --help".
  Flag required();
  /// A number from `least` to `most`. Without this, from the least to the greatest of its type.
  Flag in_range(int64_t least, int64_t most);
  /// A whole number above 0.
  Flag positive();
  /// A number of which `holds` is true; `expected` goes on after "must be ".
  Flag must(std::function<bool(double)> holds, const std::string& expected);
  /// One of these texts, letter by letter; an error lists them, and names the nearest.
  Flag one_of(const std::vector<std::string>& values);
  /// Of a text: an empty one is not refused, it means something.
  Flag may_be_empty();
  /// The word for the value in the help, and what shells complete it with: MODEL, DIR and FILE.
  Flag value_name(const std::string& name);
  /// Where the flag is not given, what the environment's `variable` says; one of both must be, if
  /// the flag is required.
  Flag or_environment(const std::string& variable, bool required = true);
  /// Not together with `other`.
  Flag excludes(Flag other);
  /// On the command line, or by its environment variable; for when the command runs.
  bool was_given() const;
  /// "--model".
  std::string name() const;
  /// In place of the help that it has.
  Flag describe(const std::string& help);

 private:
  friend class Command;
  struct Range;
  explicit Flag(void* option, std::shared_ptr<Range> range = nullptr)
      : option_(option), range_(std::move(range)) {}
  void* option_;                  // CLI::Option
  std::shared_ptr<Range> range_;  // of a number, as it was added; null for all else
};

/// A command, or a group of them. As long-lived as the CommandLine. What flags write to must live
/// until the command has run.
class Command {
 public:
  Command add_command(const std::string& name, const std::string& help);
  /// A group of commands: by itself it prints its help.
  void needs_command();

  /// `names` as "-m,--model"; without dashes it is a positional argument. Of a flag that is given
  /// several times the last value counts.
  Flag add_option(const std::string& names, std::string& value, const std::string& help);
  Flag add_option(const std::string& names, std::optional<std::string>& value,
                  const std::string& help);
  Flag add_option(const std::string& names, int32_t& value, const std::string& help);
  Flag add_option(const std::string& names, int64_t& value, const std::string& help);
  Flag add_option(const std::string& names, uint64_t& value, const std::string& help);
  Flag add_option(const std::string& names, float& value, const std::string& help);
  Flag add_option(const std::string& names, double& value, const std::string& help);
  /// A positional argument that takes all words that are left.
  Flag add_option(const std::string& name, std::vector<std::string>& values,
                  const std::string& help);
  /// The same, joined by spaces: a sentence that was not quoted. The command's only positional one.
  Flag add_words(const std::string& name, std::optional<std::string>& text,
                 const std::string& help);
  /// A flag that may be given several times, with a value each.
  Flag add_repeated(const std::string& names, std::vector<std::string>& values,
                    const std::string& help);
  /// A number of bytes, as parse_byte_size has it. Without a unit one below 1 MB is taken for one
  /// whose unit was forgotten, and refused; 0 is not.
  Flag add_bytes(const std::string& names, uint64_t& bytes, const std::string& help);
  /// True once it is given.
  Flag add_flag(const std::string& names, bool& value, const std::string& help);
  /// Calls `given` while the arguments are read, once however often it is given.
  Flag add_flag(const std::string& names, std::function<void()> given, const std::string& help);
  /// One that was added before.
  Flag get_option(const std::string& name);
  /// What happens when this command was given, after its flags were read.
  void when_given(std::function<void()> action);

 private:
  friend class CommandLine;
  template <class T>
  Flag add_number(const std::string& names, T& value, const std::string& help);
  explicit Command(void* command) : command_(command) {}
  void* command_;  // CLI::App
};

/// A flag, or a positional argument, as it was declared.
struct FlagDescription {
  std::vector<std::string> names;  // "-m", "--model"; of a positional one its name alone
  std::string help;
  std::string value;                // MODEL, DIR, FILE, TEXT …; "" for a flag that takes none
  std::vector<std::string> values;  // of one_of
  bool repeated = false;
};

/// What completions.h makes its scripts of: a command as it was declared, with those below it.
struct CommandDescription {
  std::string name;
  std::string help;
  std::vector<FlagDescription> flags;
  std::vector<FlagDescription> positional;
  std::vector<CommandDescription> commands;
};

/// The whole command line. One thread.
class CommandLine {
 public:
  CommandLine(const std::string& program, const std::string& about, const std::string& version);
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  Command root();
  CommandDescription describe() const;
  /// To be called once. Reads the arguments and calls what the given command says. The text of the
  /// help or the version where that was asked for (by --help, `help COMMAND`, or a group without a
  /// command), else "". kInvalidArgument: one line about wrong usage.
  Result<std::string> parse(int argc, const char* const* argv);

 private:
  struct Parser;
  std::unique_ptr<Parser> parser_;
};

}  // namespace weft::cli
