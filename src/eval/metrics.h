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

/// Whether one of the golden answers, normalised like the answer, lies in it as whole words. An
/// empty golden answer lies in none.
bool contains_answer(std::string_view answer, std::span<const std::string> golden);

/// ROUGE-L (Lin, "ROUGE", 2004, section 3.1) as Google's rouge-score has it, without stemmer: of
/// the longest common subsequence of words (runs of a-z and 0-9 of the lower-case text) the
/// harmonic mean of precision and recall, best over the references. 0 where one of the two has no
/// words or there is no reference. Time n m / 64 for n and m words, memory n + m.
double rouge_l(std::string_view candidate, std::span<const std::string> references);

/// A share with its 95 % interval: the 2.5 and 97.5 percentiles of 1,000 resamples, whose seed is
/// fixed. `of` is how many there were; zeros for none.
struct Share {
  double share = 0;
  double low = 0;
  double high = 0;
  int64_t of = 0;
};
Share share_of(const std::vector<bool>& hits);

double mean_of(std::span<const double> values);

}  // namespace weft::eval
