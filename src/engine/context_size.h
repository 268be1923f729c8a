// How long a context may be: the model's own, groups of it (Self-Extend), or more than the model
// was trained for. Integers; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "kv/self_extend.h"

namespace weft::engine {

/// As in EngineOptions.
struct ContextRequest {
  int32_t context_tokens = 0;  // 0: what is usual
  kv::SelfExtend self_extend;  // kUsualNeighbours or a number
  bool beyond_context = false;
};

struct ContextSize {
  int32_t tokens = 0;          // longest prompt and answer together
  int32_t model_tokens = 0;    // the model is to be opened for: some RoPEs depend on it
  int32_t most_tokens = 0;     // that could be asked for
  kv::SelfExtend self_extend;  // with a number of neighbours
  std::string note;  // on positions that the model was not trained for; "": there are none
};

/// For a model that was trained for model_length tokens, and of which usual_tokens are taken where
/// nobody says how many; both > 0. kInvalidArgument with the flag and the range.
Result<ContextSize> context_size(const ContextRequest& request, int32_t model_length,
                                 int32_t usual_tokens);

}  // namespace weft::engine
