// What fusion is asked to prefill, and how. Plain data.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/names.h"
#include "base/status.h"

namespace weft::fusion {

/// A prompt in its three kinds of text: the prefix and the suffix are always computed (or found in
/// the prefix index, where they are exact); each chunk may be reused wherever it is.
struct Prompt {
  std::vector<int32_t> prefix;
  std::vector<std::vector<int32_t>> chunks;  // none empty
  std::vector<int32_t> suffix;               // not empty

  int32_t n_chunk_tokens() const;
  int32_t n_tokens() const;
  /// Everything in order, as plain prefill takes it.
  std::vector<int32_t> tokens() const;
  /// Where chunk i begins in the prompt; i may be chunks.size(), then where the suffix begins.
  int32_t chunk_begin(size_t i) const;
};

enum class ReuseMode {
  kNone,    // compute everything
  kPrefix,  // reuse what the prefix index has: an exact match from the prompt's start
  kFull,    // reuse every chunk's stored KV as it is (PromptCache)
  kBlend,   // reuse it and recompute the tokens that matter (CacheBlend)
};

enum class SelectorKind {
  kQueryAttention,  // tokens that the suffix attends to over the reused KV
  kVDeviation,      // tokens whose V at a check layer deviates most (CacheBlend)
};

/// From `layer` on, `ratio` of the chunks' tokens stay active.
struct CheckLayer {
  int32_t layer = 1;
  double ratio = 0;
};

/// What a machine takes for prefill, measured once (engine/prefill_rates.h); milliseconds for one
/// of fusion/work.h's units each.
struct PrefillRates {
  double block_ms = 0;
  double row_ms = 0;
  double key_ms = 0;
  double kv_byte_ms = 0;
  double logits_ms = 0;  // of the last row
};

struct FusionOptions {
  ReuseMode mode = ReuseMode::kBlend;
  /// Share of the chunks' tokens that blend recomputes, 0 to 1.
  double ratio = 0.05;
  /// Blend chooses the ratio, or full prefill, by what is saved (work.h); needs `rates`.
  bool auto_ratio = false;
  /// Prefix tokens that are in the prefix index because this conversation put them there; what
  /// auto_ratio chooses leaves them out. The rest of the prefix counts as missing.
  int32_t history_tokens = 0;
  /// With them the report says what was predicted.
  std::optional<PrefillRates> rates;
  SelectorKind selector = SelectorKind::kQueryAttention;
  /// How much of the mean change of a chunk's recomputed tokens its other tokens are given, 0 to 1
  /// (chunk_shifts.h); 0: they stay as they are stored.
  double propagate = 1;
  /// v-deviation only: layers ascending from 1, ratios not growing, which count in place of
  /// `ratio`; empty means {1, ratio}.
  std::vector<CheckLayer> checks;
  /// Take plain prefill where reuse would save less than a tenth of the work.
  bool allow_plain = true;
  /// Asked in front of each layer and each chunk that is missing: true ends it with kCancelled.
  std::function<bool()> cancelled;
};

/// Flags, reports and JSON have them by these names.
inline constexpr Names kReuseModes({
    Named{ReuseMode::kNone, "none"},
    Named{ReuseMode::kPrefix, "prefix", "what a prefix cache would have"},
    Named{ReuseMode::kFull, "full", "all, as it is"},
    Named{ReuseMode::kBlend, "blend", "all, with some tokens recomputed"},
});
inline constexpr Names kSelectors({
    Named{SelectorKind::kQueryAttention, "query-attention"},
    Named{SelectorKind::kVDeviation, "v-deviation"},
});

/// What a mode does. Fusion asks this and no mode by its name, so that a new mode is a case here.
struct ReuseTraits {
  bool reuses_chunks = false;      // the chunks' stored KV
  bool recomputes_chunks = false;  // of it, the tokens that a selector chooses
  bool shares_prompt = false;      // plain prefill looks the whole prompt up in the prefix index
};
constexpr ReuseTraits traits_of(ReuseMode mode) {
  switch (mode) {
    case ReuseMode::kNone:
      return {};
    case ReuseMode::kPrefix:
      return {.shares_prompt = true};
    case ReuseMode::kFull:
      return {.reuses_chunks = true};
    case ReuseMode::kBlend:
      return {.reuses_chunks = true, .recomputes_chunks = true};
  }
  return {};
}
constexpr bool reuses_chunks(ReuseMode mode) { return traits_of(mode).reuses_chunks; }

}  // namespace weft::fusion
