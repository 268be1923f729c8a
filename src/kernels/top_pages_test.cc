#include "kernels/top_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
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
using test::same_bits;
using test::TestPool;

constexpr float kGuard = -12345.0f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<int32_t> choose(Isa isa, std::span<const float> scores, int64_t n_chosen) {
  Guarded<int32_t> chosen(n_chosen, -7);
  TestPool pool(1);
  const PageChoice choice = {scores, {chosen.data(), chosen.size()}};
  top_pages({.pool = pool, .isa = isa}, {&choice, 1});
  chosen.check();
  return chosen.values();
}

/// Scores that are hard in one way each.
std::vector<std::vector<float>> hard_scores(int64_t n) {
  std::mt19937 generator(1);
  std::vector<std::vector<float>> all = {random_floats(n, 2), random_floats(n, 3, 1e-30f),
                                         std::vector<float>(n, 1.5f), std::vector<float>(n, kNan),
                                         std::vector<float>(n, -kInfinity)};
  std::vector<float> few(n), bits(n), zeros(n), ascending(n), mixed(n);
  for (int64_t i = 0; i < n; ++i) {
    few[i] = static_cast<float>(generator() % 3) - 1;
    bits[i] = std::bit_cast<float>(static_cast<uint32_t>(generator()));
    zeros[i] = generator() % 2 == 0 ? 0.0f : -0.0f;
    ascending[i] = 0.25f * i;
    const float odd[] = {kNan, kInfinity, -kInfinity, 0.0f, -0.0f, -1.0f, 1.0f};
    mixed[i] = odd[generator() % 7];
  }
  for (const auto& scores : {few, bits, zeros, ascending, mixed}) all.push_back(scores);
  return all;
}

TEST(TopPages, AreThoseThatSortingFindsOnEveryIsa) {
  for (const int64_t n : {1, 2, 7, 16, 33, 100, 1023, 8192}) {
    for (const std::vector<float>& scores : hard_scores(n)) {
      for (const int64_t n_chosen : {int64_t{0}, int64_t{1}, n / 4, n / 2, n - 1, n}) {
        const std::vector<int32_t> want = ref::top_pages(scores, n_chosen);
        for (const Isa isa : machine_isas()) {
          ASSERT_EQ(choose(isa, scores, n_chosen), want)
              << isa_name(isa) << " " << n_chosen << " of " << n << ", first " << scores[0];
        }
      }
    }
  }
}

TEST(TopPages, OfEqualScoresTheLowerIndexIsTaken) {
  const std::vector<float> scores = {1, 5, 3, 5, 0.0f, 3, -0.0f, 3, kNan, -kInfinity};
  for (const Isa isa : machine_isas()) {
    EXPECT_EQ(choose(isa, scores, 3), (std::vector<int32_t>{1, 2, 3}));
    EXPECT_EQ(choose(isa, scores, 7), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 7}));
    EXPECT_EQ(choose(isa, scores, 9), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  }
}

TEST(TopPages, ManyChoicesAreEachTheirOwnAtAnyThreadCount) {
  std::vector<std::vector<float>> scores;
  for (uint32_t i = 0; i < 9; ++i) scores.push_back(random_floats(10 + 100 * i, i));
  for (const Isa isa : machine_isas()) {
    for (const int n_threads : {1, 2, 5}) {
      std::vector<std::vector<int32_t>> chosen(9);
      std::vector<PageChoice> choices;
      for (size_t i = 0; i < 9; ++i) {
        chosen[i].resize(5 * i);
        choices.push_back({scores[i], chosen[i]});
      }
      TestPool pool(n_threads);
      top_pages({.pool = pool, .isa = isa}, choices);
      for (size_t i = 0; i < 9; ++i) EXPECT_EQ(chosen[i], ref::top_pages(scores[i], 5 * i));
      top_pages({.pool = pool, .isa = isa}, {});
    }
  }
}

/// [n_heads, stride] of n_pages scores each, and their groups'.
struct Grouped {
  std::vector<float> of_heads;
  int64_t n_heads, n_pages, stride;
  MatrixView<const float> view() const { return {of_heads.data(), n_heads, n_pages, stride}; }
};

std::vector<float> group(Isa isa, const Grouped& scores, int64_t n_kv_heads, int n_threads = 2,
                         decltype(group_scores)& joined = group_scores) {
  Guarded<float> of_groups(n_kv_heads * scores.n_pages, kGuard);
  TestPool pool(n_threads);
  const PageScores row = {scores.view(), {of_groups.data(), n_kv_heads, scores.n_pages}};
  joined({.pool = pool, .isa = isa}, {&row, 1});
  of_groups.check();
  return of_groups.values();
}

// A sum of n terms in lanes of at least 4 rounds n / 4 + 4 times, each term is an exp (4e-7), and
// the log of the sum is off by as much as the sum is, relative; then two differences of floats.
double tolerance(int64_t n_pages, double value) {
  return 4e-7 + (0.25 * n_pages + 8) * 0x1p-24 + 3 * 0x1p-24 * std::abs(value);
}

TEST(GroupScores, AreTheLargestLogSoftmaxOfTheGroup) {
  for (const int64_t n_pages : {1, 2, 5, 16, 31, 1000}) {
    for (const auto& [n_heads, n_kv_heads] : {std::pair{1, 1}, {4, 1}, {9, 3}, {8, 8}}) {
      const int64_t stride = n_pages + 5;
      Grouped scores = {random_floats(n_heads * stride, 5, 4.0f), n_heads, n_pages, stride};
      for (int64_t i = 0; i < stride; ++i) scores.of_heads[i] += 100;  // a head of another size
      const auto want = ref::group_scores(scores.view(), n_kv_heads);
      for (const Isa isa : machine_isas()) {
        const auto got = group(isa, scores, n_kv_heads, 1);
        for (int64_t i = 0; i < std::ssize(want); ++i) {
          ASSERT_NEAR(got[i], want[i], tolerance(n_pages, 130)) << isa_name(isa) << " " << i;
        }
        for (const int n_threads : {2, 5}) {
          EXPECT_TRUE(same_bits(group(isa, scores, n_kv_heads, n_threads), got));
        }
      }
    }
  }
}

// A share is an exp over a sum, each as above; the sum of a group's rounds once for each head.
TEST(SumShares, AreThoseOfTheGroup) {
  for (const int64_t n_pages : {1, 5, 31, 1000}) {
    for (const auto& [n_heads, n_kv_heads] : {std::pair{1, 1}, {4, 1}, {9, 3}}) {
      const int64_t stride = n_pages + 5;
      Grouped scores = {random_floats(n_heads * stride, 5, 4.0f), n_heads, n_pages, stride};
      for (int64_t i = 0; i < stride; ++i) scores.of_heads[i] += 100;
      const auto want = ref::sum_shares(scores.view(), n_kv_heads);
      for (const Isa isa : machine_isas()) {
        const auto got = group(isa, scores, n_kv_heads, 1, sum_shares);
        for (int64_t i = 0; i < std::ssize(want); ++i) {
          ASSERT_NEAR(got[i], want[i], 2 * tolerance(n_pages, 130) * want[i]) << isa_name(isa);
        }
        EXPECT_TRUE(same_bits(group(isa, scores, n_kv_heads, 5, sum_shares), got));
      }
    }
  }
}

TEST(SumShares, OfWhatIsNoNumberAreNothing) {
  const Grouped scores = {{1, kNan, 2, -kInfinity, 1.5f,              //
                           kNan, kNan, -kInfinity, kNan, -kInfinity,  //
                           kInfinity, 0, 1, kInfinity, -1},
                          3,
                          5,
                          5};
  const auto want = ref::sum_shares(scores.view(), 1);
  for (const Isa isa : machine_isas()) {
    const auto got = group(isa, scores, 1, 2, sum_shares);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6) << i;
  }
}

TEST(GroupScores, NanCountsAsTheLeastAndSpoilsNothingElse) {
  // Of three heads: one with a page that is not finite, one with nothing but such, one of infinity.
  const Grouped scores = {{1, kNan, 2, -kInfinity, 1.5f,              //
                           kNan, kNan, -kInfinity, kNan, -kInfinity,  //
                           kInfinity, 0, 1, kInfinity, -1},
                          3,
                          5,
                          5};
  const auto want = ref::group_scores(scores.view(), 3);
  for (const Isa isa : machine_isas()) {
    const auto got = group(isa, scores, 3);
    for (int64_t i = 0; i < std::ssize(want); ++i) {
      ASSERT_FALSE(std::isnan(got[i]));
      if (want[i] < -1e30) {
        EXPECT_LT(got[i], -1e30) << i;
      } else {
        EXPECT_NEAR(got[i], want[i], tolerance(5, 4)) << i;
      }
    }
    const auto of_all = group(isa, scores, 1);
    EXPECT_EQ(choose(isa, of_all, 2), (std::vector<int32_t>{0, 2}));
  }
}

TEST(GroupScores, OfNoPagesOrNoRowsIsNothing) {
  for (const Isa isa : machine_isas()) {
    EXPECT_TRUE(group(isa, {{}, 4, 0, 0}, 2).empty());
    TestPool pool(2);
    group_scores({.pool = pool, .isa = isa}, {});
  }
}

}  // namespace
}  // namespace weft::kernels
