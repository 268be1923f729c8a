// Lowers the logits of tokens that were said before. The repeat penalty is llama.cpp's (Keskar et
// al. 2019, CTRL, section 4.1): it divides a logit above 0 and multiplies any other, once however
// often the token came, over the last tokens of prompt and answer. The frequency and presence
// penalties are OpenAI's: subtracted for each time, and once, that the token came in the answer;
// the prompt does not count. For one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>

#include "base/status.h"

namespace weft::sampling {

struct PenaltyOptions {
  float repeat = 1.0f;         // over 0 to 100; 1 = off
  int32_t repeat_last_n = 64;  // tokens that `repeat` looks back; 0 = none, -1 = all
  float frequency = 0.0f;      // -2 to 2; 0 = off
  float presence = 0.0f;       // -2 to 2; 0 = off
};

/// kInvalidArgument names the field, as the command line has it, and its range.
Status check_options(const PenaltyOptions& options);

class Penalties {
 public:
  /// `options` must pass check_options.
  explicit Penalties(const PenaltyOptions& options) : options_(options) {}

  /// Whether apply changes anything, ever.
  bool any() const { return repeats() || counts(); }

  void add_prompt(std::span<const int32_t> tokens);
  /// A token of the answer.
  void add(int32_t id);
  /// `logits` [n_vocab]; a token outside of it is passed over. Takes time by how many different
  /// tokens count.
  void apply(std::span<float> logits) const;

 private:
  bool repeats() const { return options_.repeat != 1.0f && options_.repeat_last_n != 0; }
  bool counts() const { return options_.frequency != 0.0f || options_.presence != 0.0f; }
  void add_to_window(int32_t id);

  PenaltyOptions options_;
  std::deque<int32_t> window_;                      // the last repeat_last_n tokens, oldest first
  std::unordered_map<int32_t, int32_t> in_window_;  // how often each is in it; none 0 times
  std::unordered_map<int32_t, int32_t> in_answer_;
};

}  // namespace weft::sampling
