// Two policies for the same move. Half of the rest at once (llama.cpp) moves each token a few times
// in its life and leaves a text whose context is between half and full. Sinks and a window
// (StreamingLLM) keep the context full: a page of tokens goes at a time, since one at a time would
// turn every key in the cache for every token. Figures of both: docs/measurements.md, "Endless
// text". That some first tokens stay matters more than which policy it is: attention that has
// nowhere to go rests on them, and without them the text falls apart (Xiao et al. 2023, figure 2).
#include "engine/context_shift.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "base/narrow.h"

namespace weft::engine {
namespace {

/// Tokens that sinks let go at a time. Every move rounds the keys that stay once more, and four
/// bits do not bear some thirty of that: at 512 tokens of SmolLM2, K in q4_0, perplexity was 50.0
/// with a page at a time, 47.3, 44.6 and 41.7 with a 16th, an 8th and a quarter of the context,
/// and 42.3 with half (f16: 35.6 with a page).
int32_t step_tokens(const Engine& engine) {
  const int32_t page_tokens = engine.kv_usage().page_tokens;
  if (engine.k_type() != DType::kQ4_0) return page_tokens;
  return std::max(page_tokens, engine.context_tokens() / 4);
}

}  // namespace

TokenRange tokens_to_drop(const ContextShift& shift, int32_t length, int32_t step_tokens) {
  // A step at least may go, else every token would move all others.
  const int32_t wanted = shift.keep_tokens == kUsualKept ? kSinkTokens : shift.keep_tokens;
  const int32_t keep = std::clamp(wanted, 0, std::max(0, length - 2 * step_tokens));
  const int32_t rest = length - keep;
  const int32_t half = std::max(1, rest / 2);
  const int32_t dropped = shift.policy == ShiftPolicy::kSinks ? std::min(step_tokens, half) : half;
  return {keep, keep + dropped};
}

Result<int32_t> make_room(Engine& engine, const kv::OwnedSequence& sequence,
                          const ContextShift& shift, std::vector<int32_t>* held) {
  if (!shift.is_on() || sequence.length() < engine.context_tokens()) return 0;
  const TokenRange gone = tokens_to_drop(shift, sequence.length(), step_tokens(engine));
  WEFT_RETURN_IF_ERROR(engine.remove_tokens(sequence, gone.begin, gone.end));
  if (held != nullptr) held->erase(held->begin() + gone.begin, held->begin() + gone.end);
  if (logs_info()) {
    log_info(fmt::format("context shift: {} tokens after the first {} went, {} stay", gone.size(),
                         gone.begin, sequence.length()));
  }
  return gone.size();
}

std::optional<TokenRange> dropped_between(std::span<const int32_t> held,
                                          std::span<const int32_t> wanted, int32_t page_tokens) {
  const auto common = [](std::span<const int32_t> a, std::span<const int32_t> b) {
    return std::ranges::mismatch(a, b).in1 - a.begin();
  };
  const int64_t begin = common(held, wanted);
  const std::span<const int32_t> rest = wanted.subspan(begin);
  // Less is not worth the rounding that a move costs.
  int64_t most = 2 * page_tokens - 1;
  std::optional<TokenRange> best;
  for (int64_t end = begin + 1; end + most < std::ssize(held); ++end) {
    const int64_t n = common(held.subspan(end), rest);
    if (n <= most) continue;
    most = n;
    best = {narrow<int32_t>(begin), narrow<int32_t>(end)};
  }
  return best;
}

}  // namespace weft::engine
