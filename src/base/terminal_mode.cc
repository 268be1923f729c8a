#include "base/terminal_mode.h"

#include <signal.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <utility>

namespace weft {
namespace {

// A signal handler can reach nothing but globals.
termios kept_mode;
const char* volatile undo_sequence = "";
volatile std::sig_atomic_t is_kept = 0;
volatile std::sig_atomic_t continued = 0;
std::array<struct sigaction, NSIG> actions_before;

// What ends a process and can be caught, but SIGINT, SIGTERM and SIGHUP, which ask it to end.
constexpr int kEndingSignals[] = {SIGABRT, SIGALRM, SIGBUS,    SIGFPE,  SIGILL,    SIGIO,  SIGPIPE,
                                  SIGPROF, SIGPWR,  SIGQUIT,   SIGSEGV, SIGSTKFLT, SIGSYS, SIGTRAP,
                                  SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU, SIGXFSZ};

/// Whether the instruction that raised it is run again when the handler returns.
bool comes_again(int number, const siginfo_t& info) {
  const bool is_fault =
      number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL;
  return is_fault && info.si_code > 0;  // not sent by a process
}

void on_end(int number, siginfo_t* info, void*) {
  restore_terminal_mode();
  ::sigaction(number, &actions_before[number], nullptr);
  if (!comes_again(number, *info)) ::raise(number);  // delivered when this returns
}

void on_stop(int number) {
  const int error = errno;
  restore_terminal_mode();
  struct sigaction stop {};
  struct sigaction ours {};
  stop.sa_handler = SIG_DFL;
  ::sigaction(number, &stop, &ours);
  ::raise(number);  // stops here, as SA_NODEFER left it unblocked
  ::sigaction(number, &ours, nullptr);
  errno = error;
}

void install(int number, struct sigaction action) {
  ::sigemptyset(&action.sa_mask);
  struct sigaction& before = actions_before[number];
  ::sigaction(number, nullptr, &before);
  const bool ignored = (before.sa_flags & SA_SIGINFO) == 0 && before.sa_handler == SIG_IGN;
  if (!ignored) ::sigaction(number, &action, nullptr);
}

/// A stack that ran over leaves no room for a handler on it.
void add_signal_stack() {
  stack_t stack{};
  if (::sigaltstack(nullptr, &stack) != 0 || (stack.ss_flags & SS_DISABLE) == 0) return;
  alignas(16) static char bytes[64 * 1024];
  stack.ss_sp = bytes;
  stack.ss_size = sizeof(bytes);
  stack.ss_flags = 0;
  ::sigaltstack(&stack, nullptr);
}

}  // namespace

bool keep_terminal_mode() {
  if (::tcgetattr(STDIN_FILENO, &kept_mode) != 0) return false;
  is_kept = 1;
  add_signal_stack();
  struct sigaction end {};
  end.sa_sigaction = on_end;
  end.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int number : kEndingSignals) install(number, end);
  struct sigaction stop {};
  stop.sa_handler = on_stop;
  stop.sa_flags = SA_RESTART | SA_NODEFER;
  install(SIGTSTP, stop);
  struct sigaction resume {};
  resume.sa_handler = [](int) { continued = 1; };
  resume.sa_flags = SA_RESTART;
  install(SIGCONT, resume);
  return true;
}

void undo_with_terminal_mode(const char* sequence) { undo_sequence = sequence; }

bool restore_terminal_mode() {
  if (is_kept == 0 || ::tcgetpgrp(STDIN_FILENO) != ::getpgrp()) return false;
  const int error = errno;
  ::tcsetattr(STDIN_FILENO, TCSANOW, &kept_mode);
  const char* undo = undo_sequence;
  [[maybe_unused]] const ssize_t n = ::write(STDOUT_FILENO, undo, std::strlen(undo));
  errno = error;
  return true;
}

bool was_continued() { return std::exchange(continued, 0) != 0; }

}  // namespace weft
