#include "base/mapped_guard.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "base/terminal_mode.h"
#include "base/terminal_text.h"

namespace weft {

/// One guarded mapping. The signal handler walks these without a lock, so they are never freed:
/// a released range is empty and is taken again by the next guard.
struct Range {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};  // 0 while unused
  Range* next = nullptr;
  char path[1001] = {};
};

namespace {

// A signal handler can reach nothing but globals.
std::atomic<Range*> first_range{nullptr};
std::mutex ranges_mutex;
struct sigaction previous_action;

void write_all(const char* text, size_t size) {
  while (size > 0) {
    const ssize_t n = ::write(STDERR_FILENO, text, size);
    if (n <= 0) return;
    text += n;
    size -= n;
  }
}

/// Uses only what POSIX allows in a signal handler.
void on_sigbus(int, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Range* range = first_range.load(std::memory_order_acquire); range != nullptr;
       range = range->next) {
    if (address < range->begin.load() || address >= range->end.load()) continue;
    // Where a conversation was on the line, this begins another.
    char line[1200] = "";
    const auto add = [&line](const char* text) {
      const size_t used = std::strlen(line);
      const size_t n = std::min(std::strlen(text), sizeof(line) - 1 - used);
      std::memcpy(line + used, text, n);
    };
    add(restore_terminal_mode() ? "\nweft: " : "weft: ");
    add(range->path);
    add(": cannot be read any more: it shrank, or its disk failed, while it was in use\n");
    write_all(line, std::strlen(line));
    ::_exit(1);
  }
  // Not ours: the faulting read happens again, under the previous handler.
  ::sigaction(SIGBUS, &previous_action, nullptr);
}

void install_handler() {
  struct sigaction action {};
  action.sa_sigaction = on_sigbus;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, &previous_action);
}

}  // namespace

MappedGuard::MappedGuard(const void* address, size_t size_bytes, std::string_view path) {
  const std::lock_guard lock(ranges_mutex);
  range_ = first_range.load();
  if (range_ == nullptr) install_handler();
  while (range_ != nullptr && range_->end.load() != 0) range_ = range_->next;
  if (range_ == nullptr) {
    range_ = new Range;
    range_->next = first_range.load();
    first_range.store(range_, std::memory_order_release);
  }
  const std::string line = one_line(path);
  const std::string shown = ::isatty(STDERR_FILENO) == 1 ? terminal_text(line) : line;
  const std::string_view kept = std::string_view(shown).substr(0, sizeof(range_->path) - 1);
  std::memcpy(range_->path, kept.data(), kept.size());
  range_->path[kept.size()] = '\0';
  range_->begin.store(reinterpret_cast<uintptr_t>(address));
  range_->end.store(reinterpret_cast<uintptr_t>(address) + size_bytes);
}

MappedGuard::~MappedGuard() { range_->end.store(0); }

}  // namespace weft
