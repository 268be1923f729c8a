// Limits of the KV cache as tests give them: so many pages and what a step takes beside them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <regex>
#include <string>

#include "base/byte_sizes.h"
#include "base/env.h"
#include "base/narrow.h"
#include "engine/engine.h"

namespace weft::test {

/// The --kv-limit under which the cache of a program that runs in `folder` (support/program.h) has
/// n_pages, for a command with such steps. `how`: its -t and --compute, where it has them; auto is
/// the compute path that the program takes, which is measured once and kept in the folder. In whole
/// KiB, rounded up.
inline std::string kv_limit_flag(const std::string& folder, const std::string& model,
                                 int64_t n_pages, const engine::StepNeeds& steps = {},
                                 engine::EngineOptions how = {}) {
  how.model_path = model;
  how.steps = steps;
  how.compute_kept_file = folder + "/weft/compute";
  const auto engine = engine::Engine::open(posix_env(), how);
  EXPECT_TRUE(engine.is_ok()) << engine.status().message();
  if (!engine.is_ok()) return "1";
  return std::to_string(((*engine)->limit_to_hold(n_pages) + 1023) / 1024) + "KiB";
}

/// The size that a line names, as `pattern` finds it.
inline std::string named_limit(const std::string& line, const std::string& pattern) {
  std::smatch found;
  EXPECT_TRUE(std::regex_search(line, found, std::regex(pattern))) << line;
  return found.size() < 2 ? "" : found[1].str();
}

/// A size less so many bytes.
inline std::string less_than(const std::string& size, int64_t n_bytes) {
  const auto parsed = parse_byte_size(size);
  EXPECT_TRUE(parsed.has_value()) << size;
  return parsed ? std::to_string((narrow<int64_t>(parsed->bytes) - n_bytes) / 1024) + "KiB" : "";
}

/// What ask and chat --store run, and generate with several answers at once.
inline constexpr engine::StepNeeds kAskSteps{.makes_chunks = true, .fuses = true};
inline constexpr engine::StepNeeds batch_steps(int32_t n_sequences) {
  return {.n_sequences = n_sequences, .batches = true};
}

}  // namespace weft::test
