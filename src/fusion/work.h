// What a prefill has to do, counted; whether reuse is worth it, and what a machine will take for
// it. No clock: the same request always decides the same.
#pragma once

#include <cstdint>
#include <optional>

#include "fusion/prompt.h"
#include "model/config.h"

namespace weft::fusion {

/// What a prompt would need, in tokens.
struct ReuseCounts {
  int64_t prefix_missing = 0;  // prefix tokens that the prefix index does not have
  int64_t prefix_found = 0;
  int64_t hit_tokens = 0;     // of chunks whose KV is stored
  int64_t missed_tokens = 0;  // of chunks that have to be computed after the anchor first
  int64_t anchor_tokens = 0;
  int64_t suffix_tokens = 0;
};

/// Summed over the layers.
struct Work {
  double blocks = 0;    // of up to 512 rows through a layer; each expands the layer's weights
  double rows = 0;      // rows through a layer
  double keys = 0;      // keys that the rows look at in a layer
  double kv_bytes = 0;  // of stored KV loaded, rotated and put into pages, as f16 has it
};

/// Plain prefill (from the end of what the prefix index has).
Work plain_work(const model::ModelConfig& config, const ReuseCounts& counts);
/// Reuse under the options.
Work reuse_work(const model::ModelConfig& config, const ReuseCounts& counts,
                const FusionOptions& options);

/// Of the products and the attention; loading and rotating as the operations that would take as
/// long.
double operations(const model::ModelConfig& config, const Work& work);

/// Reuse that saves less than this share of plain prefill's operations is not taken.
inline constexpr double kMinimumSaving = 0.1;

/// What it takes at the rates, with the last row's logits.
double predicted_ms(const Work& work, const PrefillRates& rates);

/// --ratio auto. A full prefill that is soon done loses nothing: below kSoonMs it is taken (none is
/// returned), and so it is where reuse is predicted to save less than kMinimumSaving. Else what may
/// be spent is the larger of kSoonMs and a tenth of full prefill's time, and the largest ratio that
/// keeps to it is taken, kLeastRatio at least. `counts` as if every chunk were stored, so that a
/// cold and a warm store give one answer.
std::optional<double> auto_ratio(const model::ModelConfig& config, const ReuseCounts& counts,
                                 const FusionOptions& options, const PrefillRates& rates);
inline constexpr double kSoonMs = 400;
inline constexpr double kSpentShare = 0.1;
inline constexpr double kLeastRatio = 0.05;

}  // namespace weft::fusion
