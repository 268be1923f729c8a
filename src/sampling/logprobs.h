// Log-probabilities of the model itself: natural logarithms of the softmax over the whole
// vocabulary, before top-k, temperature and the like. Thread-safe; no state.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weft::sampling {

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0.0f;
};

/// The n likeliest tokens of `logits` [n_vocab], likeliest first, the lowest id first among equals;
/// fewer when the vocabulary is smaller. NaN and -infinity count as impossible and are left out.
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int32_t n);

/// Their ids alone, in that order.
std::vector<int32_t> top_tokens(std::span<const float> logits, int32_t n);

/// The logarithm of the softmax's denominator, so that a token's log-probability is its logit less
/// this. Sums in double; -infinity when no token is possible.
double log_sum_exp(std::span<const float> logits);

/// The log-probability of a token with this logit, where log_sum_exp() of all is `log_sum`;
/// -infinity when it is impossible.
double logprob_of(float logit, double log_sum);

/// One token's log-probability; -infinity when it is impossible. `id` must be in the vocabulary.
float token_logprob(std::span<const float> logits, int32_t id);

}  // namespace weft::sampling
