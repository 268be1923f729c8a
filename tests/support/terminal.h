// Runs the built `weft` on a terminal of its own (a pty), for tests of what its users see and of
// how it ends.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/program.h"

namespace weft::test {

/// For a child: weft keeps what it keeps in `folder`, and ends as if a user had begun it.
inline void set_environment(const std::string& folder) {
  for (const char* name : {"XDG_CACHE_HOME", "XDG_STATE_HOME", "WEFT_MODELS"}) {
    setenv(name, folder.c_str(), 1);
  }
  for (const char* name : {"WEFT_MODEL", "WEFT_STORE"}) unsetenv(name);
  setenv("TERM", "xterm", 1);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  // What ran the tests may ignore some, as `nohup` does.
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP}) signal(number, SIG_DFL);
}

/// Replaces this process by weft, after `prepare`.
[[noreturn]] inline void become_weft(const std::string& folder, std::vector<std::string> arguments,
                                     const std::function<void()>& prepare = {}) {
  set_environment(folder);
  if (prepare) prepare();
  std::string program = WEFT_BINARY_DIR "/weft";
  std::vector<char*> argv{program.data()};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  _exit(127);
}

/// The exit status, or 1000 and the number of the signal that ended it.
inline int wait_for_exit(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/// weft on a terminal of its own.
class Terminal {
 public:
  /// `out` and `err`, where they are given, are files that standard output and standard error go to
  /// instead.
  Terminal(const std::string& folder, std::vector<std::string> arguments,
           const std::string& out = "", const std::string& err = "") {
    const winsize size{.ws_row = 24, .ws_col = 200, .ws_xpixel = 0, .ws_ypixel = 0};
    child_ = forkpty(&fd_, nullptr, nullptr, &size);
    if (child_ != 0) return;
    const bool redirected = (out.empty() || freopen(out.c_str(), "w", stdout) != nullptr) &&
                            (err.empty() || freopen(err.c_str(), "w", stderr) != nullptr);
    if (redirected) become_weft(folder, std::move(arguments));
    _exit(126);
  }
  /// A shell there instead, whose prompt is "$ ".
  static Terminal shell(const std::string& folder) { return Terminal(folder); }
  Terminal(Terminal&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), child_(std::exchange(other.child_, -1)) {}
  ~Terminal() {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      wait_for_exit(child_);
    }
    if (fd_ >= 0) close(fd_);
  }
  void type(const std::string& keys) {
    EXPECT_EQ(write(fd_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }

  /// Reads until `text` shows, from where the last one ended; false when it never does.
  bool shows(const std::string& text) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < end) {
      const size_t found = screen_.find(text, seen_);
      if (found != std::string::npos) {
        seen_ = found + text.size();
        return true;
      }
      if (!read_more()) break;
    }
    ADD_FAILURE() << "'" << text << "' does not show after:\n" << screen_.substr(seen_);
    return false;
  }

  /// Something other than white space, from where the last one ended.
  bool shows_anything() {
    const size_t begin = seen_;
    while (screen_.find_first_not_of(" \r\n", begin) == std::string::npos) {
      if (!read_more()) return false;
    }
    return true;
  }

  /// Whatever comes next; false where nothing does.
  bool shows_more() { return read_more(); }

  /// What the terminal got so far.
  const std::string& screen() const { return screen_; }

  /// As tcgetattr has them, byte by byte.
  std::string modes() const {
    termios mode{};
    EXPECT_EQ(tcgetattr(fd_, &mode), 0);
    return {reinterpret_cast<const char*>(&mode), sizeof(mode)};
  }

  void send(int signal) const { kill(child_, signal); }

  /// The terminal goes away, as when its window is closed.
  void hang_up() { close(std::exchange(fd_, -1)); }

  /// All that is still shown, until nobody has the terminal open.
  void read_to_the_end() {
    while (fd_ >= 0 && read_more()) {
    }
  }
  /// The exit status, or 1000 and the number of the signal that ended it; reads nothing.
  int status_without_reading() { return wait_for_exit(std::exchange(child_, -1)); }
  int exit_status() {
    read_to_the_end();
    return status_without_reading();
  }

 private:
  explicit Terminal(const std::string& folder) {
    child_ = forkpty(&fd_, nullptr, nullptr, nullptr);
    if (child_ != 0) return;
    set_environment(folder);
    setenv("PS1", "$ ", 1);
    unsetenv("ENV");
    execl("/bin/sh", "sh", "-i", nullptr);
    _exit(127);
  }

  bool read_more() {
    pollfd input{fd_, POLLIN, 0};
    if (poll(&input, 1, 60'000) <= 0) return false;
    char buffer[4096];
    const ssize_t n = read(fd_, buffer, sizeof(buffer));
    if (n > 0) screen_.append(buffer, static_cast<size_t>(n));
    return n > 0;  // EIO: nobody has the terminal open any more
  }

  int fd_ = -1;
  pid_t child_ = -1;
  std::string screen_;
  size_t seen_ = 0;
};

}  // namespace weft::test
