// Counts what compiling a template, reading JSON and rendering use, and fails them at the limits.
// What costs time is charged here and nowhere else: step, touch and work say how expensive each
// thing is.
//
// Counting is what makes a hostile template harmless. A clock would do it too, but then the same
// template would be refused on a busy machine and accepted on an idle one. With counted steps the
// outcome depends on template, input and limits alone, and time_test.cc holds the prices to the
// clock: whatever a template can repeat must not cost more time than its steps say.
//
// The rule for new code: whatever loops over something that template or input can make long charges
// before the loop, or once in each iteration. Allocation is charged by whoever makes the value.
//
// Failure inside the room is an exception, because an evaluation is many calls deep when a limit is
// reached; template.cc and json_parse.cc catch it at the room's border. One Budget serves one
// thread.
#pragma once

#include <string>
#include <string_view>

#include "jinja/limits.h"
#include "jinja/result.h"

namespace weft::jinja {

/// Thrown inside the room only. A position of 0 is filled in by whoever knows it: an operator such
/// as `+` does not know where in the template it is, the interpreter that called it does.
struct Failure {
  Error error;
};

// `message` is one line without the place; whatever of the template or input it quotes is cut short
// (quoted, operators_internal.h), because it reaches a terminal or a log.
[[noreturn]] void fail(std::string message);
[[noreturn]] void fail_at(Position position, std::string message);
/// A limit that was reached: trying again costs as much and ends as this did, so callers that have
/// another way to render (text/chat_template.cc) do not take it.
[[noreturn]] void fail_limit(std::string message);

class Budget {
 public:
  // Copies the limits; nothing is spent yet.
  explicit Budget(const Limits& limits);
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;

  const Limits& limits() const { return limits_; }

  // Three prices for three kinds of work. A step is what takes 50 ns at most, on a machine of 2020;
  // the parts of one add up, so that eight characters looked at and 64 bytes compared are two
  // steps.

  /// Evaluating an expression, making a value, a library call: n of them.
  void step(int64_t n = 1) { charge(n * kStep); }
  /// n items or characters that are looked at one by one: eight are a step.
  void touch(int64_t n) { charge(n * (kStep / 8)); }
  /// n bytes that are copied, compared or searched as a block: 64 are a step.
  void work(int64_t n_bytes) { charge(n_bytes); }

  /// Memory that a value takes while it lives. Each Text and Object releases in its destructor what
  /// it held, so the sum is what lives at this moment, not what was ever made: a loop over a
  /// million short strings passes, a list that keeps them does not.
  void hold(size_t n_bytes) {
    live_bytes_ += n_bytes;
    if (live_bytes_ > limits_.live_bytes) fail_live();
  }
  void release(size_t n_bytes) { live_bytes_ -= n_bytes; }

  /// For sizes that are known before anything is allocated: `'a' * 1000000000` fails here, before
  /// the memory is asked for. At the limit itself they pass.
  void check_string(int64_t n_bytes) const;
  void check_items(int64_t n_items) const;

 private:
  /// Prices are 64ths of a step, so that one byte of `work` is 1 and one item of `touch` is 8.
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

// The room compares text by these, which charge what they look at; `budget` may be null (for values
// made outside of a rendering). Plain == on two strings of 1 MB in a loop of 100,000 rounds would
// be 100 GB of comparing for 100,000 steps.
bool same_text(std::string_view a, std::string_view b, Budget* budget);
/// Negative, zero or positive.
int compare_text(std::string_view a, std::string_view b, Budget* budget);
bool begins_with(std::string_view text, std::string_view prefix, Budget* budget);
bool ends_with(std::string_view text, std::string_view suffix, Budget* budget);

}  // namespace weft::jinja
