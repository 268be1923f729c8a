#include "eval/metrics.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>

#include "base/ascii.h"
#include "base/narrow.h"
#include "kernels/elementwise.h"

namespace weft::eval {
namespace {

/// SQuAD's normalisation, over bytes: other scripts' letters stay as they are.
std::vector<std::string> normalised_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty() && word != "a" && word != "an" && word != "the") words.push_back(word);
    word.clear();
  };
  for (const char c : text) {
    if (is_ascii_space(c)) {
      end_word();
    } else if (!is_ascii_punctuation(c)) {
      word += ascii_lower(c);
    }
  }
  end_word();
  return words;
}

double f1_of(const std::vector<std::string>& answer, const std::vector<std::string>& golden) {
  if (answer.empty() || golden.empty()) return answer.empty() && golden.empty() ? 1.0 : 0.0;
  std::map<std::string, int> counts;
  for (const std::string& word : golden) counts[word]++;
  int common = 0;
  for (const std::string& word : answer) {
    if (counts[word]-- > 0) ++common;
  }
  return 2.0 * common / (answer.size() + golden.size());
}

}  // namespace

double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  std::vector<float> p(p_logits.size());
  std::vector<float> q(q_logits.size());
  kernels::log_softmax(p_logits, p);
  kernels::log_softmax(q_logits, q);
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double log_p = p[i];
    sum += std::exp(log_p) * (log_p - q[i]);
  }
  return std::max(0.0, sum);
}

int32_t argmax(std::span<const float> values) {
  return narrow<int32_t>(std::ranges::max_element(values) - values.begin());
}

double answer_f1(std::string_view answer, std::span<const std::string> golden) {
  const std::vector<std::string> words = normalised_words(answer);
  double best = 0;
  for (const std::string& g : golden) best = std::max(best, f1_of(words, normalised_words(g)));
  return best;
}

bool contains_answer(std::string_view answer, std::span<const std::string> golden) {
  const std::vector<std::string> words = normalised_words(answer);
  return std::any_of(golden.begin(), golden.end(), [&](const std::string& g) {
    const std::vector<std::string> wanted = normalised_words(g);
    return !wanted.empty() &&
           std::search(words.begin(), words.end(), wanted.begin(), wanted.end()) != words.end();
  });
}

Share share_of(const std::vector<bool>& hits) {
  constexpr size_t kResamples = 1000;
  if (hits.empty()) return {};
  const double n = hits.size();
  const auto share = [&](int64_t count) { return count / n; };
  std::mt19937_64 random(1);
  std::vector<double> shares;
  for (size_t i = 0; i < kResamples; ++i) {
    int64_t count = 0;
    for (size_t k = 0; k < hits.size(); ++k) count += hits[random() % hits.size()] ? 1 : 0;
    shares.push_back(share(count));
  }
  std::sort(shares.begin(), shares.end());
  return {share(std::count(hits.begin(), hits.end(), true)), shares[kResamples / 40],
          shares[kResamples - 1 - kResamples / 40], std::ssize(hits)};
}

double mean_of(std::span<const double> values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / values.size();
}

}  // namespace weft::eval
