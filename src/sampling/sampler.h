// Picks the next token from the logits of one position: top-k, top-p, min-p, temperature, in the
// order and with the meaning that llama.cpp's defaults give them. It keeps no text and no history.
// A Sampler belongs to one request; it is for one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace weft::sampling {

struct SamplingOptions {
  float temperature = 0.0f;  // 0 = greedy: the likeliest token, the rest of the options unused
  int32_t top_k = 40;        // keep this many likeliest tokens; 0 = all
  float top_p = 0.95f;       // of those, the fewest whose probabilities reach this sum; 1 = all
  float min_p = 0.05f;  // of those, the ones at least this share as likely as the best; 0 = all
  uint64_t seed = 0;    // same seed, same logits: same tokens
};

/// kInvalidArgument names the field and its range.
Status check_options(const SamplingOptions& options);

class Sampler {
 public:
  /// `options` must pass check_options.
  static Result<Sampler> create(const SamplingOptions& options);

  /// The next token's id, an index into `logits` [n_vocab], which must not be empty. Among equal
  /// logits the lowest id counts as likelier. NaN counts as impossible; +infinity as the largest
  /// number; where nothing is possible the answer is 0.
  int32_t sample(std::span<const float> logits);

  const SamplingOptions& options() const { return options_; }

 private:
  struct Candidate {
    float logit;
    int32_t id;
  };

  explicit Sampler(const SamplingOptions& options) : options_(options) {}
  void collect(std::span<const float> logits);
  void keep_top_k();
  void keep_top_p();
  void keep_min_p();
  int32_t draw();

  SamplingOptions options_;
  uint64_t n_draws_ = 0;
  std::vector<Candidate> candidates_;  // likeliest first once keep_top_k has run
};

/// The likeliest token, the lowest id among equals; NaN counts as impossible.
int32_t greedy_token(std::span<const float> logits);

}  // namespace weft::sampling
