// log p_i = x_i - log sum exp(x), as OpenAI's API gives it: of the model's own distribution, before
// temperature, filters and penalties. In double: the sum has a term for each of up to 256,000
// tokens.
#include "sampling/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace weft::sampling {
namespace {

constexpr double kImpossible = -std::numeric_limits<double>::infinity();

// NaN as impossible, +infinity as the largest number: the sums stay numbers.
double usable_logit(float logit) {
  if (std::isnan(logit)) return kImpossible;
  return std::min(logit, std::numeric_limits<float>::max());
}

}  // namespace

double log_sum_exp(std::span<const float> logits) {
  double largest = kImpossible;
  for (const float logit : logits) largest = std::max(largest, usable_logit(logit));
  if (largest == kImpossible) return kImpossible;
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(usable_logit(logit) - largest);
  return largest + std::log(sum);
}

double logprob_of(float logit, double log_sum) {
  const double usable = usable_logit(logit);
  return usable == kImpossible ? kImpossible : usable - log_sum;
}

float token_logprob(std::span<const float> logits, int32_t id) {
  WEFT_CHECK(id >= 0 && id < std::ssize(logits));
  return static_cast<float>(logprob_of(logits[id], log_sum_exp(logits)));
}

std::vector<int32_t> top_tokens(std::span<const float> logits, int32_t n) {
  std::vector<int32_t> ids;
  if (n <= 0) return ids;
  ids.reserve(logits.size());
  for (int32_t id = 0; id < std::ssize(logits); ++id) {
    if (usable_logit(logits[id]) != kImpossible) ids.push_back(id);
  }
  const int64_t count = std::min<int64_t>(n, std::ssize(ids));
  const auto logit = [&](int32_t id) { return logits[id]; };
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), [&](int32_t a, int32_t b) {
    return logit(a) != logit(b) ? logit(a) > logit(b) : a < b;
  });
  ids.resize(count);
  return ids;
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int32_t n) {
  std::vector<TokenLogprob> top;
  const double log_sum = log_sum_exp(logits);
  for (const int32_t id : top_tokens(logits, n)) {
    top.push_back({id, static_cast<float>(logprob_of(logits[id], log_sum))});
  }
  return top;
}

}  // namespace weft::sampling
