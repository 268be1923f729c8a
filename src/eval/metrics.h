// How near an answer is to another: over token distributions and over words.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::eval {

/// KL(p || q) in nats of two rows of logits [n].
double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits);

/// Index of the largest value; the lowest one on a tie.
int32_t argmax(std::span<const float> values);

/// Best F1 over the golden answers, on lower-case words without punctuation and articles (SQuAD's).
double answer_f1(std::string_view answer, std::span<const std::string> golden);

struct Spread {
  double median = 0;
  double min = 0;
  double max = 0;
};
/// Zeros for an empty list.
Spread spread_of(std::vector<double> values);
double mean_of(std::span<const double> values);

}  // namespace weft::eval
