// weft generate --parallel and --batch: several samples of one prompt, or many prompts, in the same
// steps.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/app.h"
#include "engine/generation.h"

namespace weft::cli {

/// The prompt's tokens, in the model's chat turns unless `raw`.
Result<std::vector<int32_t>> prompt_tokens(const engine::Engine& engine, const std::string& prompt,
                                           bool raw);

/// Requests that are under way at once.
inline constexpr int32_t kBatchAtOnce = 16;

struct BatchFlags {
  std::string file;  // "-": standard input
  bool raw = false;
  bool quiet = false;
  engine::GenerationOptions generation;  // what a line does not say
  int32_t most_tokens = 0;               // the largest n of a line
};

/// Prints an object for each line of the file, in their order. kInvalidArgument, after all of them,
/// where some line failed.
Status run_batch(App& app, engine::Engine& engine, const BatchFlags& flags);

struct ParallelFlags {
  int32_t n = 1;
  bool json = false;
  bool quiet = false;
  engine::GenerationOptions generation;  // sample i has this seed + i
};

/// Prints n samples of one prompt, whose pages they share.
Status run_parallel(engine::Engine& engine, std::vector<int32_t> prompt,
                    const ParallelFlags& flags);

}  // namespace weft::cli
