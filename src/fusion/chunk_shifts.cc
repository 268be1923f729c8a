#include "fusion/chunk_shifts.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "fusion/selection.h"

namespace weft::fusion {
namespace {

/// In several sums, which the compiler does side by side.
float length_of(std::span<const float> x) {
  constexpr size_t kSums = 16;
  float sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= x.size(); i += kSums) {
    for (size_t lane = 0; lane < kSums; ++lane) sums[lane] += x[i + lane] * x[i + lane];
  }
  for (; i < x.size(); ++i) sums[0] += x[i] * x[i];
  return std::sqrt(std::accumulate(std::begin(sums), std::end(sums), 0.0F));
}

}  // namespace

void ChunkShifts::clear() {
  chunk_of_.clear();
  weights_.clear();
  changes_.clear();
  shifts_.clear();
}

void ChunkShifts::add(size_t chunk, int64_t index, const float* k, const float* v,
                      const float* stored_k, const float* stored_v) {
  chunk_of_.push_back(chunk);
  weights_.push_back(1 / expected_deviation(index, deviation_floor(0)));
  const size_t begin = changes_.size();
  changes_.resize(begin + 2 * width_);
  float* change = changes_.data() + begin;
  for (size_t i = 0; i < width_; ++i) change[i] = k[i] - stored_k[i];
  for (size_t i = 0; i < width_; ++i) change[width_ + i] = v[i] - stored_v[i];
}

void ChunkShifts::finish(double factor) {
  shifts_.assign(n_chunks_ * 2 * width_, 0.0F);
  std::vector<double> n_tokens(n_chunks_), weights(n_chunks_);
  for (size_t i = 0; i < chunk_of_.size(); ++i) {
    n_tokens[chunk_of_[i]] += 1;
    weights[chunk_of_[i]] += weights_[i];
  }
  scales_.assign(n_chunks_, 0);
  for (size_t c = 0; c < n_chunks_; ++c) {
    const double n = n_tokens[c];
    if (n > 0) scales_[c] = factor * n / (n + kDoubtTokens) / weights[c];
  }
  std::vector<float> lengths(chunk_of_.size());
  for (const size_t half : {size_t{0}, width_}) {  // K and V each by their own lengths
    const auto change = [&](size_t i) {
      return std::span(changes_).subspan(i * 2 * width_ + half, width_);
    };
    for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = length_of(change(i));
    std::vector<float> ascending = lengths;
    const auto quartile = ascending.begin() + std::ssize(ascending) / 4;
    std::nth_element(ascending.begin(), quartile, ascending.end());
    const float longest = ascending.empty() ? 0.0F : *quartile;
    for (size_t i = 0; i < lengths.size(); ++i) {
      const float cut = lengths[i] > longest ? longest / lengths[i] : 1.0F;
      const float share = static_cast<float>(scales_[chunk_of_[i]]) * weights_[i] * cut;
      float* shift = shifts_.data() + chunk_of_[i] * 2 * width_ + half;
      const std::span<const float> x = change(i);
      for (size_t d = 0; d < width_; ++d) shift[d] += share * x[d];
    }
  }
}

kernels::KvShift ChunkShifts::of(size_t chunk) const {
  if (scales_[chunk] == 0) return {};
  const float* shift = shifts_.data() + chunk * 2 * width_;
  return {shift, shift + width_};
}

}  // namespace weft::fusion
