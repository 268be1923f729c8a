// Scripts that let a shell complete weft's commands, flags and values. They are made from the table
// of commands that the parser has, so that they never say another thing than it. Thread-safe; no
// state.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "cli/flags.h"

namespace weft::cli {

/// bash, zsh, fish
/// The names that completion_script takes:
const std::vector<std::string>& completion_shells();

/// The script for one of these; kInvalidArgument for another. Names of models are asked of the
/// program when a key is pressed, and never expanded by the shell.
Result<std::string> completion_script(const CommandDescription& root, const std::string& shell);

}  // namespace weft::cli
