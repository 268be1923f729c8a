// Counts what compiling a template, reading JSON and rendering use, and fails them at the limits.
// What costs time is charged here and nowhere else: step, touch and work say how dear each thing
// is. Failure inside the room is an exception that template.cc and json_parse.cc catch at the
// border. One Budget serves one thread.
#pragma once

#include <string>
#include <string_view>

#include "jinja/limits.h"
#include "jinja/result.h"

namespace weft::jinja {

/// Thrown inside the room only. A position of 0 is filled in by whoever knows it.
struct Failure {
  Error error;
};

[[noreturn]] void fail(std::string message);
[[noreturn]] void fail_at(Position position, std::string message);
/// A limit that was reached: trying again costs as much and ends as this did.
[[noreturn]] void fail_limit(std::string message);

class Budget {
 public:
  explicit Budget(const Limits& limits);
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  const Limits& limits() const { return limits_; }

  // A step is what takes 50 ns at most, on a machine of 2020; the parts of one add up.

  /// Evaluating an expression, making a value, a library call: n of them.
  void step(int64_t n = 1) { charge(n * kStep); }
  /// n items or characters that are looked at one by one: eight are a step.
  void touch(int64_t n) { charge(n * (kStep / 8)); }
  /// n bytes that are copied, compared or searched as a block: 64 are a step.
  void work(int64_t n_bytes) { charge(n_bytes); }

  /// Memory that a value takes while it lives.
  void hold(size_t n_bytes) {
    live_bytes_ += n_bytes;
    if (live_bytes_ > limits_.live_bytes) fail_live();
  }
  void release(size_t n_bytes) { live_bytes_ -= n_bytes; }

  void check_string(int64_t n_bytes) const;
  void check_items(int64_t n_items) const;

 private:
  static constexpr int64_t kStep = 64;
  void charge(int64_t n) {
    left_ -= n;
    if (left_ < 0) fail_steps();
  }
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_live();

  const Limits limits_;
  int64_t left_;  // 64ths of a step
  size_t live_bytes_ = 0;
};

// The room compares text by these, which charge what they look at; `budget` may be null.
bool same_text(std::string_view a, std::string_view b, Budget* budget);
/// Negative, zero or positive.
int compare_text(std::string_view a, std::string_view b, Budget* budget);
bool begins_with(std::string_view text, std::string_view prefix, Budget* budget);
bool ends_with(std::string_view text, std::string_view suffix, Budget* budget);

}  // namespace weft::jinja
