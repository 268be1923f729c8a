// The decode loop: samples a token, hands its text out, runs it, until the model ends its turn.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "engine/engine.h"
#include "sampling/logprobs.h"
#include "sampling/sampler.h"

namespace weft::engine {

struct GenerationOptions {
  sampling::SamplingOptions sampling;
  int32_t max_tokens = 128;
  int32_t n_logprobs = 0;  // most likely tokens to report for each position
  bool one_line = false;   // end at the first line break behind some text
};

enum class StopReason { kEnd, kMaxTokens, kContextFull, kCancelled };
/// "end", "length", "context", "cancelled".
const char* stop_reason_name(StopReason reason);

struct GeneratedToken {
  int32_t id = 0;
  float logprob = 0;  // of the sampled token, before any sampler; only when n_logprobs > 0
  std::vector<sampling::TokenLogprob> top;
};

struct Generation {
  std::vector<GeneratedToken> tokens;  // without the one that ended the turn
  std::string text;                    // may hold invalid UTF-8: what the tokens' bytes are
  StopReason stop_reason = StopReason::kEnd;
  double decode_ms = 0;
};

/// Continues a prefilled sequence whose last row gave `logits`. `on_text` gets each piece of text
/// as it becomes certain, never a part of a UTF-8 character, and an empty one for a token that made
/// nothing certain; returning false cancels. kInvalidArgument for options, a sequence or
/// logits that are not the model's, kResourceExhausted when memory runs out; the text so far was
/// handed out then.
Result<Generation> generate(Engine& engine, kv::SequenceId sequence, std::vector<float> logits,
                            const GenerationOptions& options,
                            FunctionRef<bool(std::string_view)> on_text);

}  // namespace weft::engine
