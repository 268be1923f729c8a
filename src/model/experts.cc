#include "model/experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace weft::model {

std::vector<ExpertRows> route(std::span<const float> logits, int32_t n_experts, int32_t n_used) {
  WEFT_CHECK(n_used >= 1 && n_used <= n_experts);
  const auto n = static_cast<size_t>(n_experts);
  const auto used = static_cast<ptrdiff_t>(n_used);
  std::vector<ExpertRows> experts(n);
  std::vector<size_t> order(n);
  std::vector<float> weights(static_cast<size_t>(n_used));
  for (size_t row = 0; row * n < logits.size(); ++row) {
    const auto scores = logits.subspan(row * n, n);
    // NaN counts as lowest, so that the order is one.
    const auto score = [&](size_t e) { return std::isnan(scores[e]) ? -INFINITY : scores[e]; };
    std::iota(order.begin(), order.end(), size_t{0});
    std::partial_sort(order.begin(), order.begin() + used, order.end(), [&](size_t a, size_t b) {
      return score(a) != score(b) ? score(a) > score(b) : a < b;
    });
    float sum = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] = std::exp(scores[order[i]] - scores[order[0]]);
      sum += weights[i];
    }
    for (size_t i = 0; i < weights.size(); ++i) {
      experts[order[i]].rows.push_back(static_cast<int64_t>(row));
      experts[order[i]].weights.push_back(weights[i] / sum);
    }
  }
  return experts;
}

}  // namespace weft::model
