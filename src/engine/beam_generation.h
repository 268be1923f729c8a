// Several answers to one prompt that are looked for together (beam search): beam_search.h decides,
// this gives it the model's scores. Beams are forks of the prompt's sequence, whose pages they
// share until one of them writes (kv::Cache), and go through the model in one step, a row each.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "engine/engine.h"
#include "engine/generation.h"

namespace weft::engine {

inline constexpr int32_t kMostBeams = 32;

struct BeamOptions {
  int32_t n_beams = 1;             // 1 to kMostBeams
  int32_t max_tokens = 128;        // of an answer, 1 or more; kNoTokenLimit: the context's
  bool ignore_end = false;         // tokens that end a turn are never taken
  std::vector<std::string> stops;  // texts that end an answer and are not part of it
};

struct BeamChoice {
  Generation generation;  // decode_ms: of all together
  double score = 0;  // mean natural log-probability of its tokens, the one that ended it included
};

/// Pages that so many beams hold at most: each has an answer of its own, of which `run_tokens` were
/// run, after the whole pages of the prompt; and while a step's rows are written, what was copied
/// for them.
int64_t beam_pages(int64_t prompt_tokens, int64_t run_tokens, int32_t n_beams, int32_t page_tokens);

/// The best answers to `prompt` (1 to context_tokens() ids), the best first: n_beams of them, or
/// fewer where the vocabulary is too small for so many. `goes_on` is asked before each layer of the
/// prompt and before each step, with the tokens that each answer has so far: false ends them all,
/// with stop reason kCancelled. kCancelled where that comes before the first token,
/// kInvalidArgument for options, kResourceExhausted with what would do where the pages are too few
/// for all of them, before anything is run, kCorrupt as check_logits. Whatever it returns, the
/// cache holds nothing of them afterwards.
Result<std::vector<BeamChoice>> generate_beams(Engine& engine, std::span<const int32_t> prompt,
                                               const BeamOptions& options,
                                               FunctionRef<bool(int32_t n_tokens)> goes_on);

}  // namespace weft::engine
