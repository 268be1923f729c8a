#include "fusion/chunk_shifts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "fusion/selection.h"

namespace weft::fusion {
namespace {

struct Token {
  size_t chunk;
  int64_t index;
  std::vector<float> k, v, stored_k, stored_v;
};

std::vector<Token> random_tokens(size_t width) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<Token> tokens;
  for (const auto& [chunk, index] : std::vector<std::pair<size_t, int64_t>>{
           {0, 0}, {0, 3}, {0, 40}, {2, 7}, {2, 90}, {2, 91}, {2, 200}}) {
    Token token{chunk, index, {}, {}, {}, {}};
    for (size_t i = 0; i < width; ++i) {
      token.k.push_back(normal(random));
      token.v.push_back(3 * normal(random));
      token.stored_k.push_back(normal(random));
      token.stored_v.push_back(normal(random));
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

/// The same as the formula says it, in doubles; `of_k` or of V.
std::vector<double> plain_shift(const std::vector<Token>& tokens, size_t chunk, size_t width,
                                double factor, bool of_k) {
  const auto change = [&](const Token& t, size_t i) {
    return of_k ? double{t.k[i]} - t.stored_k[i] : double{t.v[i]} - t.stored_v[i];
  };
  std::vector<double> lengths;
  for (const Token& t : tokens) {
    double sum = 0;
    for (size_t i = 0; i < width; ++i) sum += change(t, i) * change(t, i);
    lengths.push_back(std::sqrt(sum));
  }
  std::vector<double> sorted = lengths;
  std::sort(sorted.begin(), sorted.end());
  const double quartile = sorted[sorted.size() / 4];
  std::vector<double> shift(width);
  double weights = 0;
  int n = 0;
  for (size_t t = 0; t < tokens.size(); ++t) {
    if (tokens[t].chunk != chunk) continue;
    const double weight = 1 / (0.06 + 0.94 * 6 / (6.0 + tokens[t].index));
    const double cut = std::min(1.0, quartile / lengths[t]);
    for (size_t i = 0; i < width; ++i) shift[i] += weight * cut * change(tokens[t], i);
    weights += weight;
    ++n;
  }
  for (double& x : shift) x *= factor * n / (n + ChunkShifts::kDoubtTokens) / weights;
  return shift;
}

TEST(ChunkShifts, AreTheDampedWeightedMeanOfTheChanges) {
  constexpr size_t kWidth = 24;
  const std::vector<Token> tokens = random_tokens(kWidth);
  ChunkShifts shifts(3, kWidth);
  for (int layer = 0; layer < 2; ++layer) {  // nothing is left of the layer before
    shifts.clear();
    for (const Token& t : tokens) {
      shifts.add(t.chunk, t.index, t.k, t.v, t.stored_k, t.stored_v);
    }
    shifts.finish(0.7);
    for (const size_t chunk : {0u, 2u}) {
      const kernels::KvShift shift = shifts.of(chunk);
      const auto k = plain_shift(tokens, chunk, kWidth, 0.7, true);
      const auto v = plain_shift(tokens, chunk, kWidth, 0.7, false);
      for (size_t i = 0; i < kWidth; ++i) {
        ASSERT_NEAR(shift.k[i], k[i], 1e-5) << layer << " " << chunk << " " << i;
        ASSERT_NEAR(shift.v[i], v[i], 1e-5) << layer << " " << chunk << " " << i;
      }
    }
    EXPECT_TRUE(shifts.of(1).k.empty());  // of no recomputed token nothing is known
    EXPECT_TRUE(shifts.of(1).v.empty());
  }
}

TEST(ChunkShifts, OfNothingAreNothing) {
  ChunkShifts shifts(2, 8);
  shifts.finish(1);
  EXPECT_TRUE(shifts.of(0).k.empty());
  const std::vector<float> x(8, 1.0F);
  shifts.clear();
  shifts.add(0, 5, x, x, x, x);
  shifts.finish(1);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(shifts.of(0).k[i], 0.0F);
}

}  // namespace
}  // namespace weft::fusion
