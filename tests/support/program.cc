#include "support/program.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "support/files.h"

namespace weft::test {

RunningProgram start_weft(const std::string& folder, std::vector<std::string> arguments,
                          const std::string& input, const std::function<void()>& prepare,
                          const std::string& name) {
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

ProgramRun finish_weft(const RunningProgram& running) {
  int status = 0;
  waitpid(running.child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status),
          read_text(running.folder + "/stdout" + running.name),
          read_text(running.folder + "/stderr" + running.name)};
}

ProgramRun run_weft(const std::string& folder, std::vector<std::string> arguments,
                    const std::string& input, const std::function<void()>& prepare) {
  return finish_weft(start_weft(folder, std::move(arguments), input, prepare));
}

}  // namespace weft::test
