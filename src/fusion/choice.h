// Full prefill or reuse, and at which ratio: decided before anything runs, from counts alone.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fusion/prompt.h"
#include "fusion/work.h"

namespace weft::fusion {

/// What was expected to pass until the first token.
struct Prediction {
  double full_prefill_ms = 0;  // of everything that the prefix index does not have
  double ttft_ms = 0;          // of what was chosen
};

struct Choice {
  bool is_plain = false;                // full prefill, through the prefix index
  FusionOptions options;                // else: as asked for, with the ratio that was chosen
  std::vector<std::string> notes;       // why, fit for the user
  std::optional<Prediction> predicted;  // where the options have rates
};

/// For modes full and blend. An automatic ratio depends on the lengths only, not on what is stored
/// or found; whether reuse saves enough (kMinimumSaving) depends on both.
Choice choose(const model::ModelConfig& config, const ReuseCounts& counts,
              const FusionOptions& options);

}  // namespace weft::fusion
