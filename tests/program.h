// Runs the built `weft` as a process of its own, for tests of the whole program. Only tests include
// this file.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support.h"

namespace weft::test {

struct ProgramRun {
  int status = -1;  // the exit status; 1000 and the signal's number where one ended it
  std::string out;
  std::string err;
};

/// A run that goes on. Its streams are files in the folder: stdin, stdout and stderr, each with
/// `name` behind it.
struct RunningProgram {
  pid_t child = -1;
  std::string folder;
  std::string name;
};

/// Starts weft with `input` on standard input, models, caches and the three streams in `folder`.
/// `prepare` runs in the child before it becomes weft: for limits and another user. Runs at the
/// same time need names.
inline RunningProgram start_weft(const std::string& folder, std::vector<std::string> arguments,
                                 const std::string& input = "",
                                 const std::function<void()>& prepare = {},
                                 const std::string& name = "") {
  const auto stream = [&](const char* which) { return folder + "/" + which + name; };
  const std::string in = stream("stdin"), out = stream("stdout"), err = stream("stderr");
  std::ofstream(in, std::ios::binary) << input;
  const pid_t child = fork();
  if (child == 0) {
    for (const char* variable : {"XDG_CACHE_HOME", "XDG_STATE_HOME", "WEFT_MODELS"}) {
      setenv(variable, folder.c_str(), 1);
    }
    for (const char* variable : {"WEFT_MODEL", "WEFT_STORE"}) unsetenv(variable);
    std::string program = WEFT_BINARY_DIR "/weft";
    std::vector<char*> argv{program.data()};
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    // Opened here: another user may not be able to look into the folders on the way.
    const int executable = open(program.c_str(), O_RDONLY | O_CLOEXEC);
    dup2(open(in.c_str(), O_RDONLY | O_CLOEXEC), 0);
    dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), 1);
    dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), 2);
    alarm(300);  // a program that hangs ends by SIGALRM
    if (prepare) prepare();
    fexecve(executable, argv.data(), environ);
    _exit(127);
  }
  return {child, folder, name};
}

/// Waits for its end.
inline ProgramRun finish_weft(const RunningProgram& running) {
  int status = 0;
  waitpid(running.child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status),
          slurp(running.folder + "/stdout" + running.name),
          slurp(running.folder + "/stderr" + running.name)};
}

inline ProgramRun run_weft(const std::string& folder, std::vector<std::string> arguments,
                           const std::string& input = "",
                           const std::function<void()>& prepare = {}) {
  return finish_weft(start_weft(folder, std::move(arguments), input, prepare));
}

}  // namespace weft::test
