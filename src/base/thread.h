// The one way weft starts a thread: a thread that the machine refuses is an error of one line, and
// a thread whose object ends is joined. Never detaches, and never throws where it cannot start.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string_view>

#include "base/status.h"

namespace weft {

/// Every thread's stack, whatever the process's own limit is (ulimit -s): room for the deepest
/// nesting that weft's parsers allow, in builds with sanitizers too, whose frames are larger. It is
/// address space only; memory is taken where it is used.
constexpr size_t kStackBytes = size_t{8} << 20;

/// Owns a running thread. One owner; not thread-safe itself. Movable.
class Thread {
 public:
  /// Runs `body` on a new thread. `body` must not throw: what it meets it hands over itself.
  /// kResourceExhausted, naming `what_for` ("worker 3 of 16") and the limits to look at, when the
  /// machine refuses the thread; then `body` was not called.
  static Result<Thread> start(std::string_view what_for, std::function<void()> body);

  Thread(Thread&& other) noexcept;
  Thread& operator=(Thread&& other) noexcept;
  /// Joins.
  ~Thread();

 private:
  struct Running;
  explicit Thread(std::unique_ptr<Running> running);
  std::unique_ptr<Running> running_;  // null once it was moved from
};

}  // namespace weft
