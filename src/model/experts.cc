// Mixture of experts with a softmax over the chosen experts' scores: for row x and scores s, the
// n_used largest are chosen, and out = sum_e exp(s_e) / sum_chosen exp(s) * expert_e(x) (Mixtral's
// form, which Qwen 3 MoE's equals: its softmax over all experts, renormalised over the chosen ones,
// is the same number). The order is by expert, not by row, so that each expert's weights are read
// once for all its rows.
#include "model/experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace weft::model {

// Before the layer runs, so that no allocation can fail in the middle of a step.
void Router::reserve(int64_t n_rows, int32_t n_experts, int32_t n_used) {
  order_.reserve(n_experts);
  weights_.reserve(n_used);
  if (std::ssize(experts_) < n_experts) experts_.resize(n_experts);
  for (ExpertRows& expert : experts_) {
    expert.rows.reserve(n_rows);
    expert.weights.reserve(n_rows);
  }
}

const std::vector<ExpertRows>& Router::route(MatrixView<const float> logits, int32_t n_used) {
  WEFT_CHECK(n_used >= 1 && n_used <= logits.columns);
  experts_.resize(logits.columns);
  order_.resize(logits.columns);
  weights_.resize(n_used);
  for (ExpertRows& expert : experts_) {
    expert.rows.clear();
    expert.weights.clear();
  }
  for (int64_t row = 0; row < logits.rows; ++row) {
    const std::span<const float> scores = logits.row(row);
    // NaN counts as lowest, so that the order is one.
    const auto score = [&](int64_t e) { return std::isnan(scores[e]) ? -INFINITY : scores[e]; };
    std::iota(order_.begin(), order_.end(), int64_t{0});
    std::partial_sort(
        order_.begin(), order_.begin() + n_used, order_.end(),
        [&](int64_t a, int64_t b) { return score(a) != score(b) ? score(a) > score(b) : a < b; });
    float sum = 0;
    for (size_t i = 0; i < weights_.size(); ++i) {
      // Less the largest, which no exponential overflows of.
      weights_[i] = std::exp(scores[order_[i]] - scores[order_[0]]);
      sum += weights_[i];
    }
    for (size_t i = 0; i < weights_.size(); ++i) {
      experts_[order_[i]].rows.push_back(row);
      experts_[order_[i]].weights.push_back(weights_[i] / sum);
    }
  }
  return experts_;
}

}  // namespace weft::model
