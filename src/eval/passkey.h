// The pass key test: whether a model finds a key that a long text mentions once, by where in the
// text that is. Greedy; what a prompt is, passkey_prompts.h says.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "engine/engine.h"
#include "eval/passkey_prompts.h"

namespace weft::eval {

/// Whether the answer has the value, and not as a part of a longer number or word.
bool holds_value(std::string_view answer, std::string_view value);

struct PasskeyTrial {
  double depth = 0;
  std::string value;                   // the right answer
  std::string answer;                  // may hold invalid UTF-8
  std::vector<int32_t> answer_tokens;  // for tests
  bool is_correct = false;
};

struct PasskeyAtDepth {
  double depth = 0;
  int64_t correct = 0;
  int64_t trials = 0;
};

struct PasskeyResult {
  std::vector<PasskeyTrial> trials;  // in the order in which they were run
  int64_t n_asked = 0;               // trials; fewer were run where `progress` said to stop
  bool is_stopped() const { return std::ssize(trials) < n_asked; }
  int64_t correct() const;
  std::vector<PasskeyAtDepth> by_depth() const;  // ascending
};

/// Two contexts of the KV cache serve best (EngineOptions::n_contexts): what prompts have in common
/// is prefilled once then. kResourceExhausted where not even one prompt and its answer fit.
/// `progress` as in evaluate(), in trials; it is asked before each layer of a prompt, too. Stopped,
/// the trials until then are the result; before the first one it is kCancelled.
Result<PasskeyResult> passkey(engine::Engine& engine, const PasskeyPrompts& prompts,
                              FunctionRef<bool(int64_t done, int64_t total)> progress);

}  // namespace weft::eval
