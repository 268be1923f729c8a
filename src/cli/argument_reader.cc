// CLI11 reads a command line by rules of its own: a value that begins with a dash may be a flag,
// "[a]" is a list, an unknown word is an error without a hint. People come from llama.cpp, Ollama
// and git with their habits in the fingers, and a wrong guess costs them a look at the help. So
// weft reads the words first, by the one rule that docs/cli.md states: what follows a flag that
// takes a value is its value, whatever it begins with, and what is not known is refused here, with
// what was meant. CLI11 then gets arguments that leave nothing to guess, and does what it is good
// at: values, help, variables.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/names.h"
#include "cli/argument_reader_internal.h"
#include "cli/known_models.h"
#include "cli/suggestion.h"

namespace weft::cli {
namespace {

constexpr size_t kMostShownBytes = 80;

/// Whether the parser could take it for a flag: numbers, "-", "- item" and "---" are words.
/// So `weft generate -5 degrees` and `weft ask "- item"` are words, and "-n5" is a flag.
bool is_flag(std::string_view word) {
  if (!word.starts_with('-')) return false;
  word.remove_prefix(word.starts_with("--") ? 2 : 1);
  constexpr std::string_view kOfWords = "0123456789.-! \n\t";
  return !word.empty() && kOfWords.find(word.front()) == std::string_view::npos;
}

bool has_commands(const CLI::App& command) {
  return !command.get_subcommands([](const CLI::App*) { return true; }).empty();
}

/// What Ollama's `run` takes: a known model, a model's file, or a name with a tag ("llama3.2:1b").
/// `weft llama3.2:1b hello` is answered with the commands that take a model. A colon in a word with
/// spaces is a sentence's ("Note: ..."), not a tag's.
bool is_model_name(std::string_view word) {
  const auto is_word = [&](const KnownModel& model) { return model.name == word; };
  const bool is_known = std::ranges::any_of(known_models(), is_word);
  const size_t colon = word.find(':');
  const bool has_tag = colon != std::string_view::npos && colon > 0 && colon + 1 < word.size() &&
                       word.find_first_of(" \t\r\n") == std::string_view::npos;
  return is_known || word.ends_with(".gguf") || has_tag;
}

class ArgumentReader {
 public:
  explicit ArgumentReader(CLI::App& root) : command_(&root) {}

  /// `weft help docs ls` is `weft docs ls --help`: the word is taken away and the flag put at the
  /// end, where it belongs to the command that was named last.
  Status read(std::vector<std::string> arguments) {
    if (!arguments.empty() && arguments.front() == "help") {
      arguments.erase(arguments.begin());
      arguments.emplace_back("--help");
    }
    for (at_ = 0; at_ < arguments.size(); ++at_) {
      WEFT_RETURN_IF_ERROR(read_one(arguments));
    }
    return add_words();
  }

  const std::vector<std::string>& arguments() const { return out_; }
  /// The command that was given, or the group that none was given of.
  CLI::App& command() const { return *command_; }

 private:
  Status read_one(const std::vector<std::string>& arguments) {
    const std::string& word = arguments[at_];
    if (!only_words_ && word == "--") {
      only_words_ = true;
      return Status::ok();
    }
    if (!only_words_ && is_flag(word)) return read_flag(arguments);
    if (has_commands(*command_)) return read_command(word);
    words_.push_back(word);
    return Status::ok();
  }

  /// The order of the hints goes from what is known for certain to what is a guess: the very word
  /// of Ollama or llama.cpp ("run", "pull"), then a model where a command belongs, then the usual
  /// word for a command of this group ("list" for ls), then the nearest spelling ("gte" for get).
  Status read_command(const std::string& word) {
    std::vector<std::string> names;
    for (CLI::App* sub : command_->get_subcommands([](const CLI::App*) { return true; })) {
      if (sub->get_name() == word) {
        WEFT_RETURN_IF_ERROR(check_flags_come_after(*sub));
        command_ = sub;
        flag_of_command_.clear();
        out_.push_back(word);
        return Status::ok();
      }
      names.push_back(sub->get_name());
    }
    const std::string group = command_->get_parent() == nullptr ? "" : command_->get_name();
    if (const auto meant = foreign_command(group, word)) {
      return invalid_argument(std::string(*meant));
    }
    if (group.empty() && is_model_name(word)) {
      return invalid_argument(fmt::format(
          "a command goes before a model: weft chat -m {0} talks with it, weft generate "
          "-m {0} PROMPT answers once",
          shown(word)));
    }
    const auto usual = usual_command(word, names);
    const std::string meant =
        usual ? fmt::format(": did you mean {}?", *usual) : did_you_mean(word, names);
    return invalid_argument(
        fmt::format("no command {}{}; see {} --help", shown(word), meant, path_of(*command_)));
  }

  /// A command that runs by itself, too (`weft eval -f x`), has flags of its own: in front of
  /// another command they would be read and forgotten.
  Status check_flags_come_after(const CLI::App& sub) const {
    if (flag_of_command_.empty() || is_group(*command_)) return Status::ok();
    return invalid_argument(fmt::format("{} goes after the command: {} {} ...", flag_of_command_,
                                        path_of(sub), flag_of_command_));
  }

  /// The forms of a flag with a value are "-n 5", "-n5", "-n=5", "--tokens 5" and "--tokens=5"; all
  /// become two arguments. The value is taken before anything looks at it, so "-p -x" has the
  /// prompt "-x". "--raw=1" is an error, as somebody might write "--raw=0" and mean the opposite.
  Status read_flag(const std::vector<std::string>& arguments) {
    const std::string& word = arguments[at_];
    const size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
    const std::string name = word.substr(0, equals);
    const std::string known(long_form(name));  // the parser has no short names of several letters
    const CLI::Option* option = command_->get_option_no_throw(known.empty() ? name : known);
    size_t value_begin = equals == std::string::npos ? equals : equals + 1;
    if (option == nullptr && !word.starts_with("--") && word.size() > 2) {
      option = attached(word);
      if (option != nullptr) value_begin = word[2] == '=' ? 3 : 2;
    }
    if (option == nullptr) return unknown(name);
    if (flag_of_command_.empty()) flag_of_command_ = name;
    if (!takes_value(*option)) {
      if (value_begin != std::string::npos) {
        return invalid_argument(fmt::format("{} takes no value", option->get_name()));
      }
      out_.push_back(name);
      return Status::ok();
    }
    out_.push_back(option->get_name());
    if (value_begin != std::string::npos) {
      out_.push_back(word.substr(value_begin));
    } else if (at_ + 1 < arguments.size()) {
      out_.push_back(arguments[++at_]);
    } else {
      return invalid_argument(fmt::format("{} needs a value ({}); see {} --help", name,
                                          value_name_of(*option), path_of(*command_)));
    }
    return Status::ok();
  }

  /// The option of "-n5": none where no such value can be meant, as in "-ngl".
  const CLI::Option* attached(const std::string& word) const {
    const CLI::Option* option = command_->get_option_no_throw(word.substr(0, 2));
    // "-ngl 99" would be -n with the value "gl", and the error one about numbers: so llama.cpp's
    // flags come first, and a letter after a flag that takes a number is a flag of several letters.
    // A text may begin with a letter: "-phello" is the prompt "hello".
    if (option == nullptr || !takes_value(*option) || is_foreign(word)) return nullptr;
    constexpr std::string_view kNumbers[] = {"INT", "UINT", "FLOAT"};
    const bool is_number =
        std::ranges::find(kNumbers, value_name_of(*option)) != std::end(kNumbers);
    return is_number && (word[2] >= 'A' && word[2] <= 'z') ? nullptr : option;
  }

  /// What foreign_flag says, where the flag that it names is one of the command's.
  std::optional<std::string_view> foreign(std::string_view flag) const {
    const auto sentence = foreign_flag(command_->get_name(), flag);
    if (!sentence) return sentence;
    const bool is_one = sentence->starts_with("weft's is -");
    if (!is_one && !sentence->starts_with("weft's are -")) return sentence;
    const std::string_view ours = sentence->substr(sentence->find('-'));
    const std::string name(ours.substr(0, ours.find_first_of(" :,")));
    const bool is_there = command_->get_option_no_throw(name) != nullptr;
    // Before a command, any may be meant.
    return is_there || command_->get_parent() == nullptr ? sentence : std::nullopt;
  }

  bool is_foreign(std::string_view flag) const {
    return foreign_flag(command_->get_name(), flag).has_value();
  }

  /// As in read_command, what is known for certain comes before guesses by spelling. `weft docs
  /// --store x` lacks its command, whatever the flag is; `weft docs rm -r` asks for what rm does
  /// anyway; "--tempp" is nearer to --temp than to Ollama's --temperature, but "--temprature" is
  /// that one, which is then explained.
  Status unknown(const std::string& name) const {
    const std::string path = path_of(*command_);
    if (command_->get_parent() == nullptr && is_prompt_flag(name)) {
      return invalid_argument(fmt::format(
          "{}: a command goes before it: weft generate -m MODEL \"PROMPT\" answers once, weft chat "
          "-m MODEL talks",
          name));
    }
    if (command_->get_parent() != nullptr && is_group(*command_)) {
      std::vector<std::string> commands;
      for (const CLI::App* sub : command_->get_subcommands([](const CLI::App*) { return true; })) {
        commands.push_back(sub->get_name());
      }
      return invalid_argument(
          fmt::format("{} has no {}: a command goes before it: {}", path, name, listed(commands)));
    }
    if (command_->get_name() == "rm" && is_remove_flag(name)) {
      return invalid_argument(fmt::format(
          "{} has no {}: what lies below a path goes with it, and nothing asks back", path, name));
    }
    // What lets a model answer has more flags than what lists or removes; before a command any is.
    const bool runs_a_model =
        command_->get_option_no_throw("--model") != nullptr || command_->get_parent() == nullptr;
    if (const auto meant = runs_a_model ? foreign(name) : std::nullopt) {
      return invalid_argument(fmt::format("{}: {}", name, *meant));
    }
    std::vector<std::string> names;
    bool has_words = false;
    for (const CLI::Option* option :
         command_->get_options([](const CLI::Option*) { return true; })) {
      for (const std::string& n : option->get_lnames()) names.push_back("--" + n);
      for (const std::string& n : option->get_snames()) names.push_back("-" + n);
      has_words = has_words || value_name_of(*option) == kWords;
    }
    const std::string meant = did_you_mean(name, names);
    // "-x" is one letter away from all of them.
    const bool is_letter = name.size() == 2;  // near to everything
    const auto near =
        meant.empty() && runs_a_model && !is_letter ? closest(name, foreign_flags()) : std::nullopt;
    if (const auto sentence = near ? foreign(*near) : std::nullopt) {
      return invalid_argument(
          fmt::format("{} has no {}; {}: {}", path, shown(name), *near, *sentence));
    }
    const std::string words = has_words ? "; words that begin with - come after --" : "";
    return invalid_argument(fmt::format("{} has no {}{}{}{}", path, shown(name), meant, words,
                                        meant.empty() ? fmt::format("; see {} --help", path) : ""));
  }

  /// What is left are the positional arguments, after "--" so that CLI11 takes none for a flag.
  /// Words of a prompt that was not quoted become one text with single spaces: the shell has taken
  /// the others away.
  Status add_words() {
    if (words_.empty()) return Status::ok();
    const auto positional =
        command_->get_options([](const CLI::Option* option) { return option->get_positional(); });
    const std::string kind = positional.empty() ? "" : value_name_of(*positional.back());
    if (kind != kList && kind != kWords && words_.size() > positional.size()) {
      return one_word_too_many(words_[positional.size()]);
    }
    out_.emplace_back("--");
    if (kind == kWords) {
      std::string text = words_.front();
      for (size_t i = 1; i < words_.size(); ++i) text += " " + words_[i];
      out_.push_back(std::move(text));
      return Status::ok();
    }
    for (const std::string& word : words_) {
      // The parser would take "[a]" for a list of its own.
      out_.push_back(kind == kList ? word + kListEnd : word);
    }
    return Status::ok();
  }

  /// As after `ollama run`: a model, and perhaps a prompt.
  /// `weft chat smollm2-135m` means -m; `weft chat -m smollm2-135m hello` a single answer.
  Status one_word_too_many(const std::string& word) const {
    const std::string path = path_of(*command_);
    std::string meant = fmt::format("see {} --help", path);
    if (command_->get_name() == "chat") {
      const bool has_model = std::ranges::find(out_, "--model") != out_.end();
      meant = has_model ? "weft chat reads what you say from the terminal, or line by line from a "
                          "pipe; weft generate -m MODEL PROMPT answers once"
                        : fmt::format("a model is named by -m: {} -m {}", path, shown(word));
    } else if (command_->get_name() == "tokenize" || command_->get_name() == "template") {
      meant = fmt::format("{} reads its text from standard input; see {} --help", path, path);
    }
    return invalid_argument(fmt::format("{} is one word too many; {}", shown(word), meant));
  }

  CLI::App* command_;
  std::string flag_of_command_;  // its first; "": none so far
  size_t at_ = 0;
  bool only_words_ = false;
  std::vector<std::string> words_;
  std::vector<std::string> out_;
};

}  // namespace

/// A type name is what Flag::value_name or one_of set, and after a colon the name of a check.
std::string value_name_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  return type.find("SIZE") != std::string::npos ? "BYTES" : type.substr(0, type.find(':'));
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

/// From the root down, as a user would type it.
std::string path_of(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name()
                           : fmt::format("{} {}", path_of(*parent), command.get_name());
}

/// Command::needs_command says so by this limit, which is 0 (any number) elsewhere.
bool is_group(const CLI::App& command) { return command.get_require_subcommand_max() == 1; }

std::string shown(std::string_view value) {
  std::string text(value.substr(0, kMostShownBytes));
  if (text.size() < value.size()) text += "...";
  const bool plain = !text.empty() && text.find_first_of(" \t\r\n") == std::string::npos;
  return plain ? text : "'" + text + "'";
}

Result<ReadArguments> read_arguments(CLI::App& root, std::vector<std::string> arguments) {
  ArgumentReader reader(root);
  WEFT_RETURN_IF_ERROR(reader.read(std::move(arguments)));
  return ReadArguments{reader.arguments(), &reader.command()};
}

}  // namespace weft::cli
