// Child processes by posix_spawn, not fork: this process has the caller's threads, and a fork's
// copy-on-write faults would be in the first measurement and not in the next.
#include "bench/load.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/narrow.h"
#include "base/spread.h"

extern char** environ;

namespace weft::bench {
namespace {

/// Of one process; times since just before it was started.
struct Run {
  double first_token_ms = 0;
  double exit_ms = 0;
  uint64_t peak_bytes = 0;
};

/// A running child and the end of the pipe that its output comes from.
struct Child {
  pid_t pid = 0;
  int output = -1;
};

/// The command with its output in a pipe and nothing on standard input. kIoError when the system
/// has no pipe or no such program. Every other descriptor is closed in it (O_CLOEXEC).
Result<Child> start(const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& argument : command) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    return io_error(fmt::format("pipe: {}", std::generic_category().message(errno)));
  }
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  Child child{0, ends[0]};
  const int error = ::posix_spawn(&child.pid, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  // Ours of the child's end: the pipe ends only when nobody can write to it any more.
  ::close(ends[1]);
  if (error == 0) return child;
  ::close(ends[0]);
  return io_error(
      fmt::format("{}: cannot run: {}", command[0], std::generic_category().message(error)));
}

/// Reads once; 0 at the end.
ssize_t read_some(int file) {
  char buffer[4096];
  ssize_t n = 0;
  do {
    n = ::read(file, buffer, sizeof buffer);
  } while (n < 0 && errno == EINTR);
  return n;
}

/// Starts the command and reads its output to the end, so that it never waits for a full pipe.
Result<Run> run_once(Env& env, const std::vector<std::string>& command) {
  const int64_t begin_ns = env.monotonic_ns();
  const auto ms = [&] { return env.ms_since(begin_ns); };
  WEFT_ASSIGN_OR_RETURN(const Child child, start(command));
  const bool said_something = read_some(child.output) > 0;
  Run run;
  run.first_token_ms = ms();
  while (read_some(child.output) > 0) {
  }
  ::close(child.output);
  int status = 0;
  rusage usage{};
  while (::wait4(child.pid, &status, 0, &usage) < 0) {
    if (errno != EINTR) return io_error(fmt::format("{}: lost while running", command[0]));
  }
  run.exit_ms = ms();
  // Linux counts ru_maxrss in KiB.
  run.peak_bytes = narrow<uint64_t>(usage.ru_maxrss) * 1024;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return io_error(fmt::format("{}: failed; see its line above", command[0]));
  }
  if (!said_something) return io_error(fmt::format("{}: printed nothing", command[0]));
  return run;
}

}  // namespace

Result<LoadReport> bench_load(Env& env, const LoadOptions& options,
                              FunctionRef<bool(int64_t done, int64_t total)> progress) {
  std::vector<double> first_token_ms, exit_ms;
  LoadReport report;
  for (int32_t i = 0; i < options.repeat; ++i) {
    for (const std::string& file : options.files) {
      if (options.cold) WEFT_RETURN_IF_ERROR(env.drop_page_cache(file));
    }
    WEFT_ASSIGN_OR_RETURN(const Run run, run_once(env, options.command));
    first_token_ms.push_back(run.first_token_ms);
    exit_ms.push_back(run.exit_ms);
    report.peak_bytes = std::max(report.peak_bytes, run.peak_bytes);
    if (!progress(i + 1, options.repeat)) return cancelled("interrupted");
  }
  report.first_token_ms = spread_of(first_token_ms);
  report.exit_ms = spread_of(exit_ms);
  return report;
}

}  // namespace weft::bench
