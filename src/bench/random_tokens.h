// Token ids by chance: of a prompt whose speed alone matters.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "base/narrow.h"
#include "engine/engine.h"

namespace weft::bench {

/// The same for the same seed.
inline std::vector<int32_t> random_tokens(const engine::Engine& engine, int32_t n, uint32_t seed) {
  std::mt19937 random(seed);
  const auto vocab_size = narrow<uint32_t>(engine.model().config().vocab_size);
  // Control tokens may be among them: nothing samples or stops here, and a token's row of the
  // embedding costs what any other's does. (bench ttft leaves them out, whose prompts go through
  // chunks' keys.)
  std::vector<int32_t> tokens(n);
  for (int32_t& token : tokens) token = random() % vocab_size;
  return tokens;
}

}  // namespace weft::bench
