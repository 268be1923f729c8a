#include "eval/metrics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <unordered_map>

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

/// 2 PR / (P + R) over bags of words: with c words in common, precision c / |answer| and recall c /
/// |golden| give 2c / (|answer| + |golden|). Two empty ones agree, as SQuAD's script has it for
/// questions without an answer.
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

/// Numbers for words, the same for the same word.
class WordNumbers {
 public:
  /// rouge-score's words of a text. It lowers the case by Unicode's tables, in which two letters of
  /// other scripts become ASCII: the Kelvin sign becomes k, and I with a dot becomes i and a mark
  /// that is no letter.
  std::vector<int32_t> of(std::string_view text) {
    constexpr std::string_view kKelvin = "\u212a";
    constexpr std::string_view kDottedI = "\u0130";
    std::vector<int32_t> numbers;
    std::string word;
    const auto end_word = [&] {
      if (!word.empty()) numbers.push_back(number(word));
      word.clear();
    };
    for (size_t i = 0; i < text.size(); ++i) {
      if (is_ascii_alnum(text[i])) {
        word += ascii_lower(text[i]);
      } else if (text.substr(i).starts_with(kKelvin)) {
        word += 'k';
        i += kKelvin.size() - 1;
      } else {
        if (text.substr(i).starts_with(kDottedI)) word += 'i';
        end_word();
      }
    }
    end_word();
    return numbers;
  }
  int64_t count() const { return std::ssize(numbers_); }

 private:
  int32_t number(const std::string& word) {
    return numbers_.try_emplace(word, narrow<int32_t>(count())).first->second;
  }
  std::unordered_map<std::string, int32_t> numbers_;
};

/// Length of the longest common subsequence of two rows of numbers below n_numbers. Bit-parallel
/// (Hyyrö, "Bit-parallel LCS-length computation revisited", 2004): a bit for each element of a,
/// zero where the row of the usual table goes up by one, so that an addition does 64 cells. Blocks
/// of a are the outer loop, and the carries from one to the next are kept for each element of b:
/// whole rows instead need the matches of all of a for each number, megabytes where this has n.
int64_t common_subsequence(std::span<const int32_t> a, std::span<const int32_t> b,
                           int64_t n_numbers) {
  constexpr size_t kBlock = 64;
  std::vector<uint64_t> matches(n_numbers);  // bit i: a[begin + i] is that number
  std::vector<uint8_t> carries(b.size());
  int64_t length = 0;
  for (size_t begin = 0; begin < a.size(); begin += kBlock) {
    const auto block = a.subspan(begin, std::min(kBlock, a.size() - begin));
    for (size_t i = 0; i < block.size(); ++i) matches[block[i]] |= uint64_t{1} << i;
    uint64_t row = ~uint64_t{0};
    for (size_t j = 0; j < b.size(); ++j) {
      const uint64_t hits = row & matches[b[j]];
      const uint64_t partial = row + hits;
      const uint64_t sum = partial + carries[j];
      carries[j] = partial < row || sum < partial ? 1 : 0;
      row = sum | (row & ~hits);
    }
    length += std::popcount(~row);
    for (const int32_t number : block) matches[number] = 0;
  }
  return length;
}

}  // namespace

double kl_divergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  std::vector<float> p(p_logits.size());
  std::vector<float> q(q_logits.size());
  // In double from here on: the terms have both signs and nearly cancel where the rows are near
  // each other, which is what is measured. Rounding may leave a sum a little below zero.
  kernels::log_softmax(p_logits, p);
  kernels::log_softmax(q_logits, q);
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double log_p = p[i];
    sum += std::exp(log_p) * (log_p - q[i]);
  }
  return sum < 0 ? 0 : sum;  // NaN is no divergence of 0
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

double rouge_l(std::string_view candidate, std::span<const std::string> references) {
  WordNumbers numbers;
  const std::vector<int32_t> words = numbers.of(candidate);
  double best = 0;
  for (const std::string& reference : references) {
    const std::vector<int32_t> wanted = numbers.of(reference);
    if (words.empty() || wanted.empty()) continue;
    const int64_t common = common_subsequence(words, wanted, numbers.count());
    // 2 PR / (P + R), as in f1_of.
    best = std::max(best, 2.0 * common / (words.size() + wanted.size()));
  }
  return best;
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
