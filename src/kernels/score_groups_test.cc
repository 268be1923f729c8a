// score_groups() (page_digest.h): it is the largest log softmax of a group's scores, to rounding,
// whatever the numbers of heads and pages, and a row's own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/page_digest.h"
#include "kernels/ref/top_pages.h"
#include "support/instruction_sets.h"
#include "support/kv_pages.h"
#include "support/numbers.h"
#include "support/test_pool.h"

namespace weft::kernels {
namespace {

using test::Guarded;
using test::KvPages;
using test::machine_isas;
using test::random_floats;
using test::same_bits;
using test::TestPool;

constexpr float kGuard = -12345.0f;
constexpr int32_t kHeadDim = 64;
constexpr float kScale = 0.125f;

/// A layer's digests of random keys.
struct Layer {
  Layer(int32_t n_kv_heads, int32_t n_pages, DigestType type)
      : keys({DType::kF32, DType::kF32, kHeadDim, n_kv_heads, 16}, n_pages, 3),
        bytes(n_pages * n_kv_heads * digest_bytes(layout(n_kv_heads, type))),
        digests(make_paged_digests(layout(n_kv_heads, type), bytes.data())),
        pages(keys.shuffled(4)) {}
  static DigestLayout layout(int32_t n_kv_heads, DigestType type) {
    return {DigestKind::kMinMax, type, kHeadDim, n_kv_heads};
  }
  Layer& make() {
    TestPool pool(1);
    make_digests({.pool = pool, .isa = best_isa()}, keys.kv(), pages, digests);
    return *this;
  }

  KvPages keys;
  std::vector<std::byte> bytes;
  PagedDigests digests;
  std::vector<int32_t> pages;
};

/// What rows' heads score, each by itself: [n_heads][pages].
std::vector<float> scores_of(Isa isa, const PagedDigests& digests, std::span<const float> q,
                             std::span<const int32_t> pages) {
  const auto n_heads = static_cast<int32_t>(std::ssize(q) / kHeadDim);
  std::vector<float> scores(n_heads * pages.size());
  TestPool pool(1);
  const DigestQuery query = {q.data(), pages, scores.data(), std::ssize(pages)};
  score_digests({.pool = pool, .isa = isa}, digests, n_heads, kScale, {&query, 1});
  return scores;
}

struct Row {
  std::vector<float> q;
  std::vector<int32_t> pages;
};

/// Of each row [n_kv_heads][pages].
std::vector<std::vector<float>> shares_of(Isa isa, const PagedDigests& digests,
                                          std::span<const Row> rows, int n_threads) {
  const auto n_heads = static_cast<int32_t>(std::ssize(rows[0].q) / kHeadDim);
  const int64_t n_kv_heads = digests.layout.n_kv_heads;
  std::vector<Guarded<float>> of_heads, of_groups;
  std::vector<GroupQuery> queries;
  for (const Row& row : rows) {
    const int64_t n_pages = std::ssize(row.pages);
    of_heads.emplace_back(group_query_floats(n_heads, n_pages), kGuard * -1e30f);
    of_groups.emplace_back(n_kv_heads * n_pages, kGuard);
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    queries.push_back({.q = rows[i].q.data(),
                       .pages = rows[i].pages,
                       .of_heads = of_heads[i].data(),
                       .of_groups = {of_groups[i].data(), n_kv_heads, std::ssize(rows[i].pages)}});
  }
  TestPool pool(n_threads);
  score_groups({.pool = pool, .isa = isa}, digests, n_heads, kScale, queries);
  std::vector<std::vector<float>> shares;
  for (size_t i = 0; i < rows.size(); ++i) {
    of_heads[i].check();
    of_groups[i].check();
    shares.push_back(of_groups[i].values());
  }
  return shares;
}

// As group_scores' (top_pages_test.cc), and one exp and one product more: of a block's maximum.
// What lies that much below it is rounded to f16.
double tolerance(int64_t n_pages, double score) {
  const double below = 2 * std::abs(score);
  return 1e-6 + (0.25 * n_pages + 16) * 0x1p-24 + 4 * 0x1p-24 * std::abs(score) + 0x1p-11 * below;
}

void expect_group_scores(const Layer& layer, const Row& row) {
  const int64_t n_heads = std::ssize(row.q) / kHeadDim, n_pages = std::ssize(row.pages);
  const int32_t n_kv_heads = layer.digests.layout.n_kv_heads;
  for (const Isa isa : machine_isas()) {
    const std::vector<float> scores = scores_of(isa, layer.digests, row.q, row.pages);
    double largest = 0;
    for (const float score : scores) {
      if (std::isfinite(score)) largest = std::max<double>(largest, std::abs(score));
    }
    const auto want = ref::group_scores({scores.data(), n_heads, n_pages}, n_kv_heads);
    const std::vector<float> got = shares_of(isa, layer.digests, {&row, 1}, 2)[0];
    for (int64_t i = 0; i < std::ssize(want); ++i) {
      if (std::isinf(want[i])) {
        ASSERT_EQ(got[i], want[i]) << isa_name(isa) << " " << i;
      } else {
        ASSERT_NEAR(got[i], want[i], tolerance(n_pages, largest)) << isa_name(isa) << " " << i;
      }
    }
  }
}

TEST(ScoreGroups, AreTheLargestLogSoftmaxOfTheGroup) {
  for (const auto& [n_heads, n_kv_heads] : {std::pair{1, 1}, {9, 3}, {32, 8}, {5, 5}, {38, 2}}) {
    for (const DigestType type : {DigestType::kInt8, DigestType::kF16}) {
      Layer layer(n_kv_heads, 200, type);
      layer.make();
      for (const int64_t n_pages : {1, 3, 63, 64, 65, 200}) {
        const float size = n_pages % 2 == 0 ? 4.0f : 0.1f;  // some peaked, some flat
        Row row = {random_floats(n_heads * kHeadDim, 5, size), layer.pages};
        row.pages.resize(n_pages);
        expect_group_scores(layer, row);
      }
    }
  }
}

TEST(ScoreGroups, WhatIsNoNumberIsTheLeastAndSpoilsNothingElse) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  Layer layer(2, 70, DigestType::kInt8);
  layer.keys.set_key(layer.pages[40], 1, 3, std::vector(kHeadDim, kNan));
  layer.make();
  Row row = {random_floats(6 * kHeadDim, 6), layer.pages};
  expect_group_scores(layer, row);
  row.q[4 * kHeadDim + 7] = kNan;  // one of a group's heads
  expect_group_scores(layer, row);
  for (int32_t head = 3; head < 6; ++head) row.q[head * kHeadDim] = kNan;  // all of them
  expect_group_scores(layer, row);
  const auto shares = shares_of(best_isa(), layer.digests, {&row, 1}, 1)[0];
  EXPECT_EQ(std::ranges::count(shares, -std::numeric_limits<float>::infinity()), 70);
}

TEST(ScoreGroups, ARowsDependOnItAlone) {
  Layer layer(3, 150, DigestType::kInt8);
  layer.make();
  std::vector<Row> rows;
  for (uint32_t i = 0; i < 5; ++i) {
    rows.push_back({random_floats(9 * kHeadDim, 30 + i), layer.pages});
    rows.back().pages.resize(i == 2 ? 0 : 1 + 37 * i);
  }
  for (const Isa isa : machine_isas()) {
    for (const int n_threads : {1, 2, 5}) {
      const auto together = shares_of(isa, layer.digests, rows, n_threads);
      for (size_t i = 0; i < rows.size(); ++i) {
        const auto alone = shares_of(isa, layer.digests, {&rows[i], 1}, 1)[0];
        EXPECT_TRUE(same_bits(together[i], alone)) << isa_name(isa) << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace weft::kernels
