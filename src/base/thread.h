// The one way weft starts a thread: a thread that the machine refuses is an error of one line, and
// a thread whose object ends is joined. Never detaches, and never throws where it cannot start.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "base/status.h"

namespace weft {

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
