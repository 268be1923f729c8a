// From cold start to the first token: a program run from its beginning, as a fresh process, since
// nothing that this process has loaded may help. Knows nothing of what the program does but that
// its first byte of output is the first token's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/function_ref.h"
#include "base/spread.h"

namespace weft::bench {

struct LoadOptions {
  std::vector<std::string> command;  // a path, then arguments
  std::vector<std::string> files;    // that the program loads
  int32_t repeat = 5;
  bool cold = false;  // drop the files from the page cache before each run
};

/// Over the repeats. Times begin before the process does.
struct LoadReport {
  Spread first_token_ms;
  Spread exit_ms;
  uint64_t peak_bytes = 0;  // the largest resident set of all runs; mapped file pages count
};

/// Runs the command again and again, its standard error going to ours. kIoError when it cannot be
/// run, ends with another status than 0 or prints nothing. `progress` as in bench_ttft. The
/// caller's own peak memory must be small: the system counts it to the child's.
Result<LoadReport> bench_load(Env& env, const LoadOptions& options,
                              FunctionRef<bool(int64_t done, int64_t total)> progress);

}  // namespace weft::bench
