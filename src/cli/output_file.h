// Files that a user names for results, beside standard output: one rule for all of them. Such a
// file is created before the work, so that a bad path is said at once, and has its name when all of
// it is written: whatever ends the program before leaves what was there. A regular file of that
// name is replaced; anything else, and every file that the command reads, is refused.
#pragma once

#include <span>
#include <string>

#include "base/atomic_file.h"
#include "base/env.h"
#include "base/status.h"

namespace weft::cli {

/// kInvalidArgument where `path` is one of the files that are read, by whatever name.
Status refuse_inputs(const std::string& path, std::span<const std::string> inputs);

/// refuse_inputs, then AtomicFile::create.
Result<AtomicFile> create_output(Env& env, const std::string& path,
                                 std::span<const std::string> inputs);

}  // namespace weft::cli
