// A script holds the whole table of commands, as two `case` statements over "the command so far and
// the word before" and "the command so far". The other way, a script that asks `weft` at each key,
// would start a process for every word; only names of models, which change, are asked of the
// program. Tests run the real bash, zsh and fish over the scripts (tests/habits_program_test.cc).
//
// All that a script holds is weft's own (names and helps of flags). The models' names are files'
// names, and one as "$(rm -rf ~).gguf" must never be expanded. bash quotes them by printf %q, zsh
// and fish add words as they are.
#include "cli/completions.h"

#include <fmt/format.h>

#include <string_view>

namespace weft::cli {
namespace {

constexpr std::string_view kModel = "MODEL";
constexpr std::string_view kFolder = "DIR";

/// Calls fn(command, "weft model get") for each, groups before their commands.
template <class Fn>
/// Everything goes by whole paths: "-n" of generate is not "-n" of bench speed.
void for_each_command(const CommandDescription& command, const std::string& path, Fn fn) {
  fn(command, path);
  for (const CommandDescription& sub : command.commands) {
    for_each_command(sub, path + " " + sub.name, fn);
  }
}

std::string joined(const std::vector<std::string>& words, std::string_view between = " ") {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += between;
    text += word;
  }
  return text;
}

/// In single quotes, for bash and zsh.
/// A single quote ends the quotes, is written with a backslash, and begins them again: 'it'\''s'.
std::string single_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

/// In fish's single quotes a backslash does quote, but only itself and the quote.
std::string fish_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

/// The patterns of a `case` for what is below weft.
std::string command_patterns(const CommandDescription& root) {
  std::vector<std::string> paths;
  for_each_command(root, root.name, [&](const CommandDescription&, const std::string& path) {
    if (path != root.name) paths.push_back(single_quoted(path));
  });
  return joined(paths, "|");
}

/// A `case` over "$path $prev" of what completes a flag's value, and one over "$path" of what else
/// can be there, as bash and zsh have them alike.
std::string value_cases(const CommandDescription& root) {
  std::string text = "  case \"$path $prev\" in\n";
  for_each_command(
      root, root.name, [&](const CommandDescription& command, const std::string& path) {
        for (const FlagDescription& flag : command.flags) {
          if (flag.value.empty()) continue;
          std::vector<std::string> patterns;
          for (const std::string& name : flag.names)
            patterns.push_back(single_quoted(path + " " + name));
          // The default, as most values without a list are files, and for a number an offer of
          // files does no harm.
          const char* action = "_weft_files";
          std::string values;
          if (flag.value == kModel) action = "_weft_models";
          if (flag.value == kFolder) action = "_weft_folders";
          if (!flag.values.empty()) {
            action = "_weft_offer";
            values = " " + joined(flag.values);
          }
          text += fmt::format("    {}) {}{}; return ;;\n", joined(patterns, "|"), action, values);
        }
      });
  return text + "  esac\n";
}

/// Flags once a dash is typed, else commands or a positional argument's values. Quantize offers the
/// types that it takes and files.
std::string word_cases(const CommandDescription& root) {
  std::string text = "  case \"$path\" in\n";
  for_each_command(
      root, root.name, [&](const CommandDescription& command, const std::string& path) {
        std::vector<std::string> flags;
        for (const FlagDescription& flag : command.flags) {
          flags.insert(flags.end(), flag.names.begin(), flag.names.end());
        }
        std::vector<std::string> words;
        for (const CommandDescription& sub : command.commands) words.push_back(sub.name);
        if (path == root.name) words.emplace_back("help");
        bool models = false;
        for (const FlagDescription& argument : command.positional) {
          models = models || argument.value == kModel;
          words.insert(words.end(), argument.values.begin(), argument.values.end());
        }
        text += fmt::format("    {})\n      if [[ $cur == -* ]]; then _weft_offer {}; ",
                            single_quoted(path), joined(flags));
        if (!words.empty()) {
          text += fmt::format("else _weft_offer {}; ", joined(words));
          if (command.commands.empty()) text += "_weft_files; ";
        } else {
          text += models ? "else _weft_models; " : "else _weft_files; ";
        }
        text += "fi ;;\n";
      });
  return text + "  esac\n";
}

/// bash splits "--flag=value" at the "=", into three words, hence the two lines about it at the
/// end. COMP_WORDS[0] is the program that is completed: a weft that is not in PATH is asked for its
/// own models.
std::string bash_script(const CommandDescription& root) {
  return fmt::format(
      R"(# bash completion for weft. Made by `weft completions bash`.
_weft_offer() {{
  local word
  for word in "$@"; do
    if [[ $word == "$cur"* ]]; then COMPREPLY+=("$word"); fi
  done
}}
_weft_files() {{ :; }}  # bash's own way, as nothing else is offered
_weft_folders() {{
  local word
  while IFS= read -r word; do COMPREPLY+=("$word"); done < <(compgen -d -- "$cur")
  compopt -o filenames 2>/dev/null
}}
_weft_models() {{
  local word
  while IFS= read -r word; do
    if [[ $word == "$cur"* ]]; then printf -v word %q "$word"; COMPREPLY+=("$word"); fi
  done < <("${{COMP_WORDS[0]}}" model ls --names 2>/dev/null)
}}
_weft() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} path=weft i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path ${{COMP_WORDS[i]}}" in
      {0}) path="$path ${{COMP_WORDS[i]}}" ;;
    esac
  done
  if [[ $cur == = ]]; then
    cur=
  elif [[ $prev == = ]] && ((COMP_CWORD > 1)); then
    prev=${{COMP_WORDS[COMP_CWORD-2]}}
  fi
{1}{2}}}
complete -o bashdefault -o default -F _weft weft
)",
      command_patterns(root), value_cases(root), word_cases(root));
}

/// Works as a file in fpath, where zsh calls it as _weft, and by `source <(weft completions zsh)`,
/// where it registers itself: the last line tells which.
std::string zsh_script(const CommandDescription& root) {
  return fmt::format(
      R"(#compdef weft
# zsh completion for weft. Made by `weft completions zsh`.
_weft_offer() {{ compadd -- "$@" }}
_weft_files() {{ _files }}
_weft_folders() {{ _files -/ }}
_weft_models() {{
  local -a names
  names=("${{(@f)$("${{words[1]}}" model ls --names 2>/dev/null)}}")
  compadd -- "${{(@)names:#}}"
  _files
}}
_weft() {{
  local cur="${{words[CURRENT]}}" prev="${{words[CURRENT-1]}}" word
  local weft_path=weft
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    case "$weft_path $word" in
      ({0}) weft_path="$weft_path $word" ;;
    esac
  done
  if [[ $cur == --*=* ]]; then
    prev="${{cur%%=*}}"
    cur="${{cur#*=}}"
    compset -P '*='
  fi
{1}{2}}}
if [[ ${{funcstack[1]}} == _weft ]]; then _weft "$@"; else compdef _weft weft; fi
)",
      command_patterns(root), value_cases(root), word_cases(root));
}

/// -r: a value is needed and files are offered; -x: a value is needed and none are.
std::string fish_flags(const CommandDescription& command, const std::string& path) {
  std::string text;
  const std::string at = fish_quoted("__weft_at " + single_quoted(path));
  for (const FlagDescription& flag : command.flags) {
    text += "complete -c weft -n " + at;
    for (const std::string& name : flag.names) {
      text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    }
    if (flag.value == kModel) {
      text += " -r -a '(__weft_models)'";
    } else if (flag.value == kFolder) {
      text += " -x -a '(__fish_complete_directories)'";
    } else if (!flag.values.empty()) {
      text += " -x -a " + fish_quoted(joined(flag.values));
    } else if (!flag.value.empty()) {
      text += " -r";
    }
    text += " -d " + fish_quoted(flag.help) + "\n";
  }
  return text;
}

/// fish takes a list of lines, each with a condition, in place of one function: __weft_at says
/// whether the words so far are exactly this command's.
std::string fish_script(const CommandDescription& root) {
  std::vector<std::string> paths;
  std::string lines;
  for_each_command(root, root.name,
                   [&](const CommandDescription& command, const std::string& path) {
                     if (path != root.name) paths.push_back(fish_quoted(path));
                     const std::string at = fish_quoted("__weft_at " + single_quoted(path));
                     for (const CommandDescription& sub : command.commands) {
                       lines += fmt::format("complete -c weft -n {} -f -a {} -d {}\n", at, sub.name,
                                            fish_quoted(sub.help));
                     }
                     for (const FlagDescription& argument : command.positional) {
                       if (argument.value == kModel) {
                         lines += fmt::format("complete -c weft -n {} -a '(__weft_models)'\n", at);
                       } else if (!argument.values.empty()) {
                         lines += fmt::format("complete -c weft -n {} -a {}\n", at,
                                              fish_quoted(joined(argument.values)));
                       }
                     }
                     lines += fish_flags(command, path);
                   });
  return fmt::format(
      R"(# fish completion for weft. Made by `weft completions fish`.
function __weft_at
    set -l weft_path weft
    for word in (commandline -opc)[2..-1]
        switch "$weft_path $word"
            case {0}
                set weft_path "$weft_path $word"
        end
    end
    test "$weft_path" = "$argv[1]"
end
function __weft_models
    set -l words (commandline -opc)
    command $words[1] model ls --names 2>/dev/null
end
complete -c weft -n '__weft_at weft' -f -a help -d 'Show the help of a command'
{1})",
      joined(paths), lines);
}

}  // namespace

const std::vector<std::string>& completion_shells() {
  static const std::vector<std::string> kShells{"bash", "zsh", "fish"};
  return kShells;
}

Result<std::string> completion_script(const CommandDescription& root, const std::string& shell) {
  if (shell == "bash") return bash_script(root);
  if (shell == "fish") return fish_script(root);
  if (shell != "zsh") {
    return invalid_argument(fmt::format("shell {}: must be bash, zsh or fish", shell));
  }
  // zsh's `path` is the search path.
  std::string script = zsh_script(root);
  for (size_t at = 0; (at = script.find("$path", at)) != std::string::npos;) {
    script.replace(at, 5, "$weft_path");
  }
  return script;
}

}  // namespace weft::cli
