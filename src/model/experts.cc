#include "model/experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace weft::model {

void Router::reserve(int64_t n_rows, int32_t n_experts, int32_t n_used) {
  order_.reserve(static_cast<size_t>(n_experts));
  weights_.reserve(static_cast<size_t>(n_used));
  if (experts_.size() < static_cast<size_t>(n_experts)) {
    experts_.resize(static_cast<size_t>(n_experts));
  }
  for (ExpertRows& expert : experts_) {
    expert.rows.reserve(static_cast<size_t>(n_rows));
    expert.weights.reserve(static_cast<size_t>(n_rows));
  }
}

const std::vector<ExpertRows>& Router::route(std::span<const float> logits, int32_t n_experts,
                                             int32_t n_used) {
  WEFT_CHECK(n_used >= 1 && n_used <= n_experts);
  const auto n = static_cast<size_t>(n_experts);
  const auto used = static_cast<ptrdiff_t>(n_used);
  experts_.resize(n);
  order_.resize(n);
  weights_.resize(static_cast<size_t>(n_used));
  for (ExpertRows& expert : experts_) {
    expert.rows.clear();
    expert.weights.clear();
  }
  for (size_t row = 0; row * n < logits.size(); ++row) {
    const auto scores = logits.subspan(row * n, n);
    // NaN counts as lowest, so that the order is one.
    const auto score = [&](size_t e) { return std::isnan(scores[e]) ? -INFINITY : scores[e]; };
    std::iota(order_.begin(), order_.end(), size_t{0});
    std::partial_sort(order_.begin(), order_.begin() + used, order_.end(), [&](size_t a, size_t b) {
      return score(a) != score(b) ? score(a) > score(b) : a < b;
    });
    float sum = 0;
    for (size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] = std::exp(scores[order_[i]] - scores[order_[0]]);
      sum += weights_[i];
    }
    for (size_t i = 0; i < weights_.size(); ++i) {
      experts_[order_[i]].rows.push_back(static_cast<int64_t>(row));
      experts_[order_[i]].weights.push_back(weights_[i] / sum);
    }
  }
  return experts_;
}

}  // namespace weft::model
