// Counts what a rendering uses, and fails it at the limits. Failure inside the room is an exception
// that template.cc and json_parse.cc catch at the border. One Budget serves one thread.
#pragma once

#include <string>

#include "jinja/limits.h"
#include "jinja/result.h"

namespace weft::jinja {

/// Thrown inside the room only. A position of 0 is filled in by whoever knows it.
struct Failure {
  Error error;
};

[[noreturn]] void fail(std::string message);
[[noreturn]] void fail_at(Position position, std::string message);

class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits), steps_left_(limits.steps) {}
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  const Limits& limits() const { return limits_; }

  void step(int64_t n = 1) {
    steps_left_ -= n;
    if (steps_left_ < 0) fail_steps();
  }
  /// Work over n bytes: comparing, copying, searching.
  void work(size_t n_bytes) { step(static_cast<int64_t>(n_bytes / 64)); }

  /// Memory that a value takes while it lives.
  void hold(size_t n_bytes) {
    live_bytes_ += n_bytes;
    if (live_bytes_ > limits_.live_bytes) fail_live();
  }
  void release(size_t n_bytes) { live_bytes_ -= n_bytes; }

  void check_string(size_t n_bytes) const;
  void check_items(size_t n_items) const;

 private:
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_live();

  const Limits limits_;
  int64_t steps_left_;
  size_t live_bytes_ = 0;
};

}  // namespace weft::jinja
