// Delta propagation (docs/fusion.md): for a chunk with recomputed tokens R, shift = factor * n / (n
// + kDoubtTokens) * sum_R w_i c_i / sum_R w_i, where c_i is the change of token i's K (before
// rotation) or V, and w_i is 1 / the change expected so far into the chunk. The first tokens of a
// chunk change several times as much as the others, whatever the context; unweighted, they alone
// would decide. Changes longer than the lower quartile are cut to its length, since a mean follows
// its outliers and these say nothing of the others. docs/experiments.md has what else was tried.
#include "fusion/chunk_shifts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/check.h"
#include "fusion/selection.h"
#include "tensor/matrix_view.h"

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

void ChunkShifts::clear(size_t n_changes) {
  chunk_of_.clear();
  weights_.clear();
  changes_.clear();
  changes_.reserve(n_changes * 2 * width_);
  shifts_.clear();
}

void ChunkShifts::add(size_t chunk, int64_t index, std::span<const float> k,
                      std::span<const float> v, std::span<const float> stored_k,
                      std::span<const float> stored_v) {
  WEFT_CHECK(std::ssize(k) == width_ && v.size() == k.size());
  WEFT_CHECK(stored_k.size() == k.size() && stored_v.size() == k.size());
  chunk_of_.push_back(chunk);
  weights_.push_back(1 / expected_deviation(index, deviation_floor(0)));
  const int64_t begin = std::ssize(changes_);
  changes_.resize(begin + 2 * width_);
  std::ranges::transform(k, stored_k, changes_.begin() + begin, std::minus());
  std::ranges::transform(v, stored_v, changes_.begin() + begin + width_, std::minus());
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
    // Few tokens are trusted little: one of them says as much of itself as of its chunk.
    if (n > 0) scales_[c] = factor * n / (n + kDoubtTokens) / weights[c];
  }
  const MatrixView<const float> changes(changes_, 2 * width_);
  const MatrixView<float> shifts(shifts_, 2 * width_);
  std::vector<float> lengths(chunk_of_.size());
  for (const int64_t half : {int64_t{0}, width_}) {  // K and V each by their own lengths
    const auto change = [&](size_t i) { return changes.row(i).subspan(half, width_); };
    for (size_t i = 0; i < lengths.size(); ++i) lengths[i] = length_of(change(i));
    std::vector<float> ascending = lengths;
    const auto quartile = ascending.begin() + std::ssize(ascending) / 4;
    std::nth_element(ascending.begin(), quartile, ascending.end());
    const float longest = ascending.empty() ? 0.0F : *quartile;
    for (size_t i = 0; i < lengths.size(); ++i) {
      const float cut = lengths[i] > longest ? longest / lengths[i] : 1.0F;
      const float scale = scales_[chunk_of_[i]];
      const float share = scale * weights_[i] * cut;
      const std::span<float> shift = shifts.row(chunk_of_[i]).subspan(half, width_);
      std::ranges::transform(shift, change(i), shift.begin(),
                             [share](float sum, float x) { return sum + share * x; });
    }
  }
}

kernels::KvShift ChunkShifts::of(size_t chunk) const {
  if (scales_[chunk] == 0) return {};
  const std::span<const float> shift = MatrixView<const float>(shifts_, 2 * width_).row(chunk);
  return {shift.first(width_), shift.last(width_)};
}

}  // namespace weft::fusion
