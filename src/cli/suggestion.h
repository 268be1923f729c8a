// What was meant by a word that is not known: the nearest of those that are, and the words that
// people bring from other programs. Thread-safe; no state.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

/// The one of `words` that `word` most likely was to be: at most a third of its letters are wrong,
/// or it is a beginning of three letters or more that only one of them has. Case does not count.
/// Nothing for a word of over 64 bytes.
std::optional<std::string> closest(std::string_view word, const std::vector<std::string>& words);

/// ": did you mean X?", or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& words);

/// A sentence for a command of Ollama's or llama.cpp's that weft has under another name, or not:
/// `group` is "" for weft itself, else "model", "cache" and so on.
std::optional<std::string_view> foreign_command(std::string_view group, std::string_view word);

/// The one of a group's commands that a usual word for it means, as "list" means ls.
std::optional<std::string> usual_command(std::string_view word,
                                         const std::vector<std::string>& words);

/// As foreign_command for a flag of this command, with its dashes. A number may follow it (-ngl99).
std::optional<std::string_view> foreign_flag(std::string_view command, std::string_view flag);
/// Those that foreign_flag knows of every command.
std::vector<std::string> foreign_flags();
/// What llama.cpp's programs take without a command: -m, -p, --model, …
bool is_prompt_flag(std::string_view flag);
/// The flag that one of llama.cpp's short ones of several letters means here: -ctk, -ctv; else "".
std::string_view long_form(std::string_view flag);
/// -r, -f and the like of the shell's rm.
bool is_remove_flag(std::string_view flag);

}  // namespace weft::cli
