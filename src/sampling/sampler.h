// Picks the next token from the logits of one position: penalties, top-k, top-p, min-p,
// temperature, in the order and with the meaning that llama.cpp's defaults give them. It keeps no
// text, and of the tokens before only what the penalties count. A Sampler belongs to one request;
// it is for one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "sampling/penalties.h"

namespace weft::sampling {

struct SamplingOptions {
  float temperature = 0.0f;  // 0 = greedy: the likeliest token, the rest of the options unused
  int32_t top_k = 40;        // keep this many likeliest tokens; 0 = all
  float top_p = 0.95f;       // of those, the fewest whose probabilities reach this sum; 1 = all
  float min_p = 0.05f;  // of those, the ones at least this share as likely as the best; 0 = all
  uint64_t seed = 0;    // same seed, same logits: same tokens
  PenaltyOptions penalties;  // before all of these, with temperature 0 too
};

/// kInvalidArgument names the field, as the command line has it, and its range.
Status check_options(const SamplingOptions& options);

class Sampler {
 public:
  /// `options` must pass check_options.
  static Result<Sampler> create(const SamplingOptions& options);

  /// What comes before the text to be generated, for the repeat penalty.
  void add_prompt(std::span<const int32_t> tokens) { penalties_.add_prompt(tokens); }

  /// Goes on as another sampler of the same prompt would, which has given `answer` and taken
  /// `n_draws` random numbers for it. On a sampler that has sampled nothing.
  void resume(std::span<const int32_t> answer, uint64_t n_draws);
  /// Random numbers taken; greedy answers take none.
  uint64_t n_draws() const { return n_draws_; }

  /// The next token's id, an index into `logits` [n_vocab], which must not be empty. Among equal
  /// logits the lowest id counts as likelier. NaN counts as impossible; +infinity as the largest
  /// number; where nothing is possible the answer is 0. The penalties count the token from now on.
  int32_t sample(std::span<const float> logits);

  const SamplingOptions& options() const { return options_; }

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };

  explicit Sampler(const SamplingOptions& options)
      : options_(options), penalties_(options.penalties) {}
  int32_t choose(std::span<const float> logits);
  void collect(std::span<const float> logits);
  void keep_top_k();
  void keep_top_p();
  void keep_min_p();
  int32_t draw();

  SamplingOptions options_;
  Penalties penalties_;
  std::vector<float> penalised_;  // [n_vocab], while a penalty is on
  uint64_t n_draws_ = 0;
  std::vector<Candidate> candidates_;  // likeliest first once keep_top_k has run
};

/// The likeliest token, the lowest id among equals; NaN counts as impossible.
int32_t greedy_token(std::span<const float> logits);

}  // namespace weft::sampling
