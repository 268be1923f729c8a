// A sample is its twin's; what it stands for is all that was given.
#include "kernels/sample_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "kernels/ref/top_pages.h"
#include "support/instruction_sets.h"
#include "support/numbers.h"
#include "support/test_pool.h"

namespace weft::kernels {
namespace {

using test::Guarded;
using test::machine_isas;
using test::random_floats;
using test::TestPool;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Drawn {
  std::vector<int32_t> pages;
  std::vector<float> weights;
};

Drawn sample(std::span<const float> scores, int64_t n_chosen, Isa isa = machine_isas().front(),
             int64_t n_best = 0) {
  Guarded<int32_t> chosen(n_chosen, -7);
  Guarded<float> weights(n_chosen, -7.0f);
  TestPool pool(1);
  const PageChoice one = {
      scores, {chosen.data(), chosen.size()}, {weights.data(), weights.size()}, n_best};
  sample_pages({.pool = pool, .isa = isa}, {&one, 1});
  chosen.check();
  weights.check();
  return {chosen.values(), weights.values()};
}

/// The pages that a drawn one stands for, by its weight.
double stands_for(float weight) { return 1 + (weight - 1) / kRestCounted; }

/// Shares that add up to 1: exp of normal numbers, of a wide or a narrow distribution.
std::vector<float> any_shares(int64_t n, uint32_t seed, float deviation) {
  std::vector<float> shares = random_floats(n, seed, deviation);
  double sum = 0;
  for (float& share : shares) sum += share = std::exp(share);
  for (float& share : shares) share /= static_cast<float>(sum);
  return shares;
}

TEST(SamplePages, IsItsTwinsOnEveryIsa) {
  int n_compared = 0;
  for (const int64_t n : {2, 3, 16, 33, 255, 2048}) {
    for (const float deviation : {0.0f, 0.5f, 3.0f, 12.0f}) {
      for (const int64_t n_chosen : {int64_t{1}, n / 8, n / 3, n - 1}) {
        for (uint32_t seed = 0; seed < 5; ++seed) {
          const std::vector<float> scores = any_shares(n, seed, deviation);
          const int64_t n_best = seed * n_chosen / 5;  // 0 to most
          const ref::Sample want = ref::sample_pages(scores, n_chosen, n_best);
          // Shares are floats, their sums are not exact: points of a long line may lie elsewhere.
          if (want.least_margin < 1e-4) continue;
          ++n_compared;
          for (const Isa isa : machine_isas()) {
            const Drawn got = sample(scores, n_chosen, isa, n_best);
            ASSERT_EQ(got.pages, want.pages) << n_chosen << " of " << n << ", " << deviation;
            for (size_t i = 0; i < got.pages.size(); ++i) {
              ASSERT_NEAR(got.weights[i], want.weights[i], 1e-5 * want.weights[i]) << i;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(n_compared, 250);  // of 480
}

// Each drawn page stands for as much as another, and the certain ones for themselves.
TEST(SamplePages, StandForAllSharesTogether) {
  for (const float deviation : {0.5f, 3.0f}) {
    for (const int64_t n_chosen : {1, 10, 29, 200}) {
      const std::vector<float> scores = any_shares(256, 3, deviation);
      const Drawn drawn = sample(scores, n_chosen);
      double all = 0, largest_drawn = 0, least_certain = 1;
      for (size_t i = 0; i < drawn.pages.size(); ++i) {
        const double share = scores[drawn.pages[i]];
        all += stands_for(drawn.weights[i]) * share;
        EXPECT_GE(drawn.weights[i], 1.0f);
        (drawn.weights[i] > 1 ? largest_drawn : least_certain) =
            drawn.weights[i] > 1 ? std::max(largest_drawn, share) : std::min(least_certain, share);
      }
      EXPECT_NEAR(all, 1, 1e-5);
      EXPECT_GT(least_certain, largest_drawn);
    }
  }
}

// What has little share is read if it is among the best, and what is left is drawn as without it.
TEST(SamplePages, TheBestStandForThemselvesAndTheDrawnForTheRest) {
  const std::vector<float> scores = any_shares(256, 3, 0.5f);
  const std::vector<int32_t> best = ref::top_pages(scores, 12);
  const Drawn drawn = sample(scores, 30, machine_isas().front(), 12);
  double all = 0;
  int n_drawn = 0;
  for (size_t i = 0; i < drawn.pages.size(); ++i) {
    all += stands_for(drawn.weights[i]) * scores[drawn.pages[i]];
    const bool is_best = std::ranges::count(best, drawn.pages[i]) > 0;
    EXPECT_EQ(is_best, drawn.weights[i] == 1) << drawn.pages[i];
    n_drawn += is_best ? 0 : 1;
  }
  EXPECT_EQ(n_drawn, 18);
  EXPECT_NEAR(all, 1, 1e-5);
  EXPECT_EQ(sample(scores, 12, machine_isas().front(), 12).pages, best);
}

TEST(SamplePages, WithoutWeightsTheBestAreTaken) {
  const std::vector<float> scores = any_shares(100, 5, 1.0f);
  std::vector<int32_t> chosen(9);
  TestPool pool(2);
  const PageChoice one = {scores, chosen};
  sample_pages({.pool = pool, .isa = machine_isas().front()}, {&one, 1});
  EXPECT_EQ(chosen, ref::top_pages(scores, 9));
}

// In another order on the line other pages are drawn, each about as often as it should be.
TEST(SamplePages, DrawsAPageAsOftenAsItsShareSays) {
  constexpr int64_t kPages = 64, kChosen = 8, kOrders = 4000;
  std::vector<double> shares(kPages);
  for (int64_t i = 0; i < kPages; ++i) shares[i] = 1 + i / 21.0;
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<int32_t> order(kPages);
  std::iota(order.begin(), order.end(), 0);
  std::vector<int> n_drawn(kPages);
  std::mt19937 random(7);
  for (int64_t trial = 0; trial < kOrders; ++trial) {
    std::ranges::shuffle(order, random);
    std::vector<float> scores;
    for (const int32_t i : order) scores.push_back(static_cast<float>(shares[i] / all));
    for (const int32_t page : sample(scores, kChosen).pages) ++n_drawn[order[page]];
  }
  for (int64_t i = 0; i < kPages; ++i) {
    const double expected = kOrders * kChosen * shares[i] / all;  // 197 to 788
    EXPECT_NEAR(n_drawn[i], expected, 6 * std::sqrt(expected)) << i;
  }
}

TEST(SamplePages, OfEqualSharesAreEquallyFarApart) {
  const std::vector<float> scores(100, 0.01f);
  const Drawn drawn = sample(scores, 10);
  for (int32_t i = 0; i < 10; ++i) {
    EXPECT_NEAR(drawn.pages[i], 10 * i + 5, 1);
    EXPECT_NEAR(drawn.weights[i], 1 + 9 * kRestCounted, 1e-4);
  }
}

TEST(SamplePages, WhereFewHaveAnyShareTheBestAreTaken) {
  std::vector<float> scores(40, 0.0f);
  scores[7] = 0.75f;
  scores[31] = 0.25f;
  scores[3] = kNan;
  scores[9] = 1e-30f;
  for (const int64_t n_chosen : {2, 3, 5, 40}) {
    const Drawn drawn = sample(scores, n_chosen);
    EXPECT_EQ(drawn.pages, ref::top_pages(scores, n_chosen));
    EXPECT_EQ(drawn.weights, std::vector<float>(n_chosen, 1.0f));
  }
  EXPECT_EQ(sample(scores, 1).pages, std::vector<int32_t>{7});
  EXPECT_TRUE(sample(scores, 0).pages.empty());
}

// What no score should be: each list is as long as asked for, and of pages that are there.
TEST(SamplePages, OfScoresThatAreNoSharesIsAListAllTheSame) {
  const float odd[] = {kNan, kInfinity, -kInfinity, 3e38f, -3e38f, 0.0f, -0.0f, 2e-26f, 1e-40f};
  for (const int64_t n : {1, 9, 100, 1000}) {
    std::vector<float> scores(n);
    for (int64_t i = 0; i < n; ++i) scores[i] = odd[i * i % 9];
    for (const int64_t n_chosen : {int64_t{0}, n / 10, n / 2, n}) {
      const Drawn drawn = sample(scores, n_chosen);
      EXPECT_TRUE(std::ranges::is_sorted(drawn.pages, std::ranges::less_equal{}) || n_chosen < 2);
      for (int64_t i = 0; i < n_chosen; ++i) {
        EXPECT_GE(drawn.pages[i], 0);
        EXPECT_LT(drawn.pages[i], n);
        EXPECT_TRUE(std::isfinite(drawn.weights[i]) && drawn.weights[i] >= 1);
      }
    }
  }
}

TEST(SamplePages, AreEachTheirOwnAtAnyThreadCount) {
  std::vector<std::vector<float>> scores;
  for (uint32_t i = 0; i < 9; ++i) scores.push_back(any_shares(10 + 100 * i, i, 2.0f));
  for (const int n_threads : {1, 2, 5}) {
    std::vector<std::vector<int32_t>> chosen(9);
    std::vector<std::vector<float>> weights(9);
    std::vector<PageChoice> samples;
    for (size_t i = 0; i < 9; ++i) {
      chosen[i].resize(5 * i);
      weights[i].resize(5 * i);
      samples.push_back({scores[i], chosen[i], weights[i]});
    }
    TestPool pool(n_threads);
    sample_pages({.pool = pool, .isa = machine_isas().front()}, samples);
    for (size_t i = 0; i < 9; ++i) {
      EXPECT_EQ(chosen[i], sample(scores[i], 5 * i).pages);
      EXPECT_EQ(weights[i], sample(scores[i], 5 * i).weights);
    }
    sample_pages({.pool = pool, .isa = machine_isas().front()}, {});
  }
}

}  // namespace
}  // namespace weft::kernels
