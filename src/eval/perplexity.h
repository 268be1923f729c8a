// Perplexity of a text, by llama.cpp's protocol, so that figures can be laid side by side: the
// tokens are cut into windows of the context's length, each is prefilled by itself, and the second
// half of each is scored. A last, shorter window is left out.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/function_ref.h"
#include "engine/context_shift.h"
#include "engine/engine.h"

namespace weft::eval {

struct PerplexityOptions {
  int32_t window_tokens = 512;
  int64_t limit_tokens = 0;  // of the text; 0: all
};

struct PerplexityResult {
  int64_t tokens = 0;  // scored
  double perplexity = 0;
  int64_t windows = 0;  // scored
  int64_t windows_in_text = 0;

  bool is_stopped() const { return windows < windows_in_text; }
};

/// Windows that one step computes, where the KV cache has room for them: more are not quicker.
int32_t windows_at_once(int32_t window_tokens);

/// kResourceExhausted: the KV cache holds less than a window, with what would hold it.
Status window_does_not_fit(const engine::Engine& engine, int32_t window_tokens);

/// What perplexity() and endless_perplexity() run.
engine::StepNeeds perplexity_steps(int32_t window_tokens);

/// Where decode reads a part of the pages (EngineOptions::sparse) the scored half of a window is
/// read token by token, which takes as long as generating it.
/// kInvalidArgument when the text is shorter than one window. `progress` as in evaluate(); stopped
/// after some windows it tells of these, before that it is kCancelled.
Result<PerplexityResult> perplexity(engine::Engine& engine, std::string_view text,
                                    const PerplexityOptions& options,
                                    FunctionRef<bool(int64_t done, int64_t total)> progress);

struct EndlessOptions {
  engine::ContextShift shift;  // not kNone: how the context is kept from being full
  int64_t limit_tokens = 0;    // of the text; 0: all
};

struct EndlessResult {
  int64_t tokens = 0;  // scored
  double perplexity = 0;
  int64_t dropped_tokens = 0;
};

/// Of the second half of a text that is read from its beginning to its end in one context, the
/// engine's: what a text loses that outgrows its context. `progress` counts tokens.
/// kInvalidArgument for a text of fewer than four tokens.
Result<EndlessResult> endless_perplexity(engine::Engine& engine, std::string_view text,
                                         const EndlessOptions& options,
                                         FunctionRef<bool(int64_t done, int64_t total)> progress);

}  // namespace weft::eval
