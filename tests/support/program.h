// Runs the built `weft` as a process of its own, for tests of the whole program.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace weft::test {

struct ProgramRun {
  int status = -1;  // the exit status; 1000 and the signal's number where one ended it
  std::string out;
  std::string err;
};

/// A run that goes on. Its streams are files in the folder: stdin, stdout and stderr, each with
/// `name` after it.
struct RunningProgram {
  pid_t child = -1;
  std::string folder;
  std::string name;
};

/// Starts weft with `input` on standard input, models, caches and the three streams in `folder`.
/// `prepare` runs in the child before it becomes weft: for limits and another user. Runs at the
/// same time need names.
RunningProgram start_weft(const std::string& folder, std::vector<std::string> arguments,
                          const std::string& input = "", const std::function<void()>& prepare = {},
                          const std::string& name = "");

/// Waits for its end.
ProgramRun finish_weft(const RunningProgram& running);

ProgramRun run_weft(const std::string& folder, std::vector<std::string> arguments,
                    const std::string& input = "", const std::function<void()>& prepare = {});

}  // namespace weft::test
