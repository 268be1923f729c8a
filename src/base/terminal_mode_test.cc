#include "base/terminal_mode.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "base/check.h"

namespace weft {
namespace {

struct Ended {
  int status = 0;
  bool mode_is_as_before = false;
  std::string screen;
};

/// Runs `end` in a process that has made its terminal raw.
Ended end_with_raw_terminal(const std::function<void()>& end) {
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    for (const int number : {SIGQUIT, SIGUSR1}) signal(number, SIG_DFL);
    termios before{};
    tcgetattr(STDIN_FILENO, &before);
    if (!keep_terminal_mode()) _exit(99);
    undo_with_terminal_mode("<undone>");
    termios raw = before;
    cfmakeraw(&raw);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    end();
    _exit(98);
  }
  Ended ended;
  char buffer[4096];
  for (ssize_t n = 0; (n = read(terminal, buffer, sizeof(buffer))) > 0;) {
    ended.screen.append(buffer, static_cast<size_t>(n));
  }
  waitpid(child, &ended.status, 0);
  termios after{};
  tcgetattr(terminal, &after);
  ended.mode_is_as_before = (after.c_lflag & (ICANON | ECHO | ISIG)) == (ICANON | ECHO | ISIG) &&
                            (after.c_oflag & OPOST) != 0;
  close(terminal);
  return ended;
}

void expect_restored(const Ended& ended) {
  EXPECT_TRUE(ended.mode_is_as_before);
  EXPECT_NE(ended.screen.find("<undone>"), std::string::npos) << ended.screen;
}

int overrun_the_stack(int depth) {
  volatile char frame[4096] = {};
  frame[depth % 4096] = 1;
  return depth < 0 ? 0 : overrun_the_stack(depth + 1) + frame[0];
}

TEST(TerminalMode, EverySignalThatEndsAProcessGivesItBackFirst) {
  for (const int number : {SIGQUIT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGUSR1, SIGXCPU}) {
    const Ended ended = end_with_raw_terminal([&] {
      kill(getpid(), number);
      pause();
    });
    expect_restored(ended);
    // By the signal, or with the status of a sanitizer that took it over.
    EXPECT_TRUE(WIFSIGNALED(ended.status) ? WTERMSIG(ended.status) == number
                                          : WEXITSTATUS(ended.status) == 1)
        << number;
  }
}

TEST(TerminalMode, FaultsAndFailedChecksGiveItBack) {
  expect_restored(end_with_raw_terminal([] { WEFT_CHECK(1 + 1 == 3); }));
  expect_restored(end_with_raw_terminal([] { std::terminate(); }));
  expect_restored(end_with_raw_terminal([] {
    // Not the null pointer, which UBSan would find first.
    void* const page = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *static_cast<volatile int*>(page) = 1;
  }));
  expect_restored(end_with_raw_terminal([] { overrun_the_stack(1); }));
}

TEST(TerminalMode, WhoEndsByItselfCanGiveItBack) {
  const Ended ended = end_with_raw_terminal([] { _exit(restore_terminal_mode() ? 7 : 8); });
  expect_restored(ended);
  EXPECT_EQ(WEXITSTATUS(ended.status), 7);
}

TEST(TerminalMode, WithoutATerminalThereIsNothingToGiveBack) {
  const pid_t child = fork();
  if (child == 0) {
    close(STDIN_FILENO);
    _exit(keep_terminal_mode() || restore_terminal_mode() ? 1 : 0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace weft
