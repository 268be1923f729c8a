// How a text goes on past the end of its context: which tokens go to make room for more. The K and
// V of those that stay are moved, not computed anew (model/context_shift.h).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"

namespace weft::engine {

enum class ShiftPolicy {
  kNone,   // the text ends where its context is full
  kHalf,   // the first tokens stay, the older half of the others goes (llama.cpp's context shift)
  kSinks,  // the first tokens stay, of the others as many of the newest as there is room for
           // (StreamingLLM, Xiao et al. 2023): the oldest page goes, of K in q4_0 a quarter
};

/// As many first tokens stay where nobody says how many. Of SmolLM2's text past its context
/// perplexity is 39.6 with none kept, 20.1 with 4 and 20.3 with 64 (docs/measurements.md).
inline constexpr int32_t kSinkTokens = 4;
inline constexpr int32_t kUsualKept = -1;

struct ContextShift {
  ShiftPolicy policy = ShiftPolicy::kNone;
  /// The first tokens, that never go; more than fit are clamped. kUsualKept: a chat's system turn,
  /// of another text kSinkTokens.
  int32_t keep_tokens = kUsualKept;
  bool is_on() const { return policy != ShiftPolicy::kNone; }
};

/// Tokens [begin, end) of a sequence.
struct TokenRange {
  int32_t begin = 0;
  int32_t end = 0;
  int32_t size() const { return end - begin; }
};

/// Which tokens of a full sequence of `length` go: at least one, with sinks `step_tokens` at most,
/// and never the newest half of what may go. `length` > 0, the policy is not kNone.
TokenRange tokens_to_drop(const ContextShift& shift, int32_t length, int32_t step_tokens);

/// Where the sequence fills the engine's context, drops tokens from it, and the same ones from
/// `held` (may be null), which has the sequence's ids. Returns how many went. Errors as
/// model::remove_tokens; then nothing changed.
Result<int32_t> make_room(Engine& engine, const kv::OwnedSequence& sequence,
                          const ContextShift& shift, std::vector<int32_t>* held);

/// The tokens of `held` that are not in `wanted`, where all that follows them is: held = a b c and
/// wanted = a c d give b. Only of two pages or more that would be found again; nullopt: no such
/// place. What a conversation's oldest turns leave behind when the prompt no longer has them.
std::optional<TokenRange> dropped_between(std::span<const int32_t> held,
                                          std::span<const int32_t> wanted, int32_t page_tokens);

}  // namespace weft::engine
