#include "base/terminal_streams.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <string>

#include "base/terminal_text.h"

namespace weft {
namespace {

constexpr size_t kPieceBytes = 4096;  // filtered at a time: little memory, however long a text is

/// One of the two streams. It outlives main: a logger may still hold it then.
struct Filtered {
  int fd = -1;
  FILE* raw = nullptr;    // what the C library opened
  FILE* shown = nullptr;  // what replaced it; null where that is no terminal
  TerminalText text;
};

Filtered& of_fd(int fd) {
  static auto* both = new Filtered[2];
  return both[fd == STDERR_FILENO ? 1 : 0];
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes.remove_prefix(n);
  }
  return true;
}

/// As fopencookie(3) wants it: how many bytes were taken, 0 when that failed.
ssize_t write_shown(void* cookie, const char* bytes, size_t size) {
  auto& stream = *static_cast<Filtered*>(cookie);
  bool written = true;
  try {
    for (size_t at = 0; at < size && written; at += kPieceBytes) {
      const std::string_view piece{bytes + at, std::min(kPieceBytes, size - at)};
      written = write_all(stream.fd, stream.text.add(piece));
    }
  } catch (const std::bad_alloc&) {  // nothing may be thrown through the C library
    errno = ENOMEM;
    written = false;
  }
  // A terminal that is gone: nobody can be told on stderr, and a message must not end the program.
  return written || stream.fd == STDERR_FILENO ? size : 0;
}

void replace(FILE*& stream, int fd, int buffering) {
  Filtered& filtered = of_fd(fd);
  if (filtered.shown != nullptr || isatty(fd) != 1) return;
  cookie_io_functions_t functions{};
  functions.write = write_shown;
  FILE* shown = fopencookie(&filtered, "w", functions);
  if (shown == nullptr) return;
  std::setvbuf(shown, nullptr, buffering, BUFSIZ);
  std::fflush(stream);
  filtered.fd = fd;
  filtered.raw = stream;
  filtered.shown = shown;
  stream = shown;
}

void put_back(FILE*& stream, int fd) {
  Filtered& filtered = of_fd(fd);
  if (filtered.shown == nullptr) return;
  std::fflush(filtered.shown);
  write_all(fd, filtered.text.finish());
  stream = filtered.raw;
}

}  // namespace

TerminalStreams::TerminalStreams() {
  replace(stdout, STDOUT_FILENO, _IOLBF);
  replace(stderr, STDERR_FILENO, _IONBF);
}

TerminalStreams::~TerminalStreams() {
  put_back(stdout, STDOUT_FILENO);
  put_back(stderr, STDERR_FILENO);
}

FILE* unfiltered(FILE* stream) {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    if (of_fd(fd).shown == stream && stream != nullptr) return of_fd(fd).raw;
  }
  return stream;
}

void write_control(FILE* stream, std::string_view sequence) {
  std::fflush(stream);
  FILE* raw = unfiltered(stream);
  std::fwrite(sequence.data(), 1, sequence.size(), raw);
  std::fflush(raw);
}

}  // namespace weft
