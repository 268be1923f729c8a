// Where the time of a prefill goes, part by part.
#pragma once

#include <cstdint>

#include "base/env.h"

namespace weft::fusion {

/// Adds up the time of parts, one after the other. Not thread-safe.
class Stopwatch {
 public:
  explicit Stopwatch(Env& env) : env_(env), last_ns_(env.monotonic_ns()) {}
  /// Adds what passed since the last call to `part`.
  void charge(double& part) {
    const int64_t now_ns = env_.monotonic_ns();
    part += (now_ns - last_ns_) * 1e-6;
    last_ns_ = now_ns;
  }
  /// What passed since the last call belongs to others.
  void skip() { last_ns_ = env_.monotonic_ns(); }

 private:
  Env& env_;
  int64_t last_ns_;
};

}  // namespace weft::fusion
