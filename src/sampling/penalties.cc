// Two families that users know by name, in the order llama.cpp applies them: the repeat penalty of
// CTRL (Keskar et al. 2019), which divides a positive logit and multiplies a negative one, over the
// last n tokens of prompt and answer; and OpenAI's frequency and presence penalties, which
// subtract, over the answer alone. Counts are kept as tokens come, so that a step costs what was
// said and not what the vocabulary has.
#include "sampling/penalties.h"

#include <fmt/format.h>

namespace weft::sampling {
namespace {

constexpr float kMostRepeat = 100.0f;
constexpr float kMostPenalty = 2.0f;  // OpenAI's range

}  // namespace

Status check_options(const PenaltyOptions& options) {
  if (!(options.repeat > 0.0f && options.repeat <= kMostRepeat)) {
    return invalid_argument(fmt::format(
        "repeat-penalty {}: must be over 0 and at most {}; 1 is off", options.repeat, kMostRepeat));
  }
  if (options.repeat_last_n < -1) {
    return invalid_argument(
        fmt::format("repeat-last-n {}: must be -1 (all), 0 (none) or more", options.repeat_last_n));
  }
  for (const auto& [name, value] : {std::pair{"frequency-penalty", options.frequency},
                                    std::pair{"presence-penalty", options.presence}}) {
    if (!(value >= -kMostPenalty && value <= kMostPenalty)) {
      return invalid_argument(fmt::format("{} {}: must be from {} to {}; 0 is off", name, value,
                                          -kMostPenalty, kMostPenalty));
    }
  }
  return Status::ok();
}

void Penalties::add_prompt(std::span<const int32_t> tokens) {
  if (!repeats()) return;
  const int64_t most = options_.repeat_last_n;
  if (most > 0 && std::ssize(tokens) > most) tokens = tokens.last(most);
  for (const int32_t id : tokens) add_to_window(id);
}

void Penalties::add(int32_t id) {
  if (repeats()) add_to_window(id);
  if (counts()) ++in_answer_[id];
}

// A token may be in the window several times: it leaves the counts with its last occurrence.
void Penalties::add_to_window(int32_t id) {
  ++in_window_[id];
  if (options_.repeat_last_n < 0) return;  // nothing ever leaves it
  window_.push_back(id);
  if (std::ssize(window_) <= options_.repeat_last_n) return;
  const auto oldest = in_window_.find(window_.front());
  if (--oldest->second == 0) in_window_.erase(oldest);
  window_.pop_front();
}

void Penalties::apply(std::span<float> logits) const {
  const auto has = [&](int32_t id) { return id >= 0 && id < std::ssize(logits); };
  for (const auto& [id, times] : in_window_) {
    if (!has(id)) continue;
    float& logit = logits[id];
    logit = logit > 0.0f ? logit / options_.repeat : logit * options_.repeat;
  }
  for (const auto& [id, times] : in_answer_) {
    if (!has(id)) continue;
    // An infinite logit stays infinite, and no NaN comes of it: both penalties are bounded.
    logits[id] -= times * options_.frequency + options_.presence;
  }
}

}  // namespace weft::sampling
