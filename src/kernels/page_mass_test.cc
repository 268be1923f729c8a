#include "kernels/page_mass.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/kv_codec.h"
#include "kernels/kv_codec_internal.h"
#include "kernels/ref/page_mass.h"
#include "support/instruction_sets.h"
#include "support/kv_pages.h"
#include "support/kv_types.h"
#include "support/numbers.h"
#include "support/test_pool.h"

namespace weft::kernels {
namespace {

using test::KvPages;
using test::machine_isas;
using test::random_floats;
using test::same_bits;
using test::TestPool;

constexpr float kGuard = -12345.0f;

struct Shape {
  int32_t head_dim, n_kv_heads, group, page_tokens;
  DType k_type = DType::kF16;
  KvLayout layout() const { return {k_type, k_type, head_dim, n_kv_heads, page_tokens}; }
  int32_t n_heads() const { return n_kv_heads * group; }
};

/// A query, its list of pages and one scale a head.
struct Row {
  Row(const Shape& shape, std::vector<int32_t> list, int32_t last_tokens, uint32_t seed)
      : q(random_floats(shape.n_heads() * shape.head_dim, seed)),
        pages(std::move(list)),
        last_page_tokens(last_tokens) {
    for (int32_t h = 0; h < shape.n_heads(); ++h) scales.push_back(0.05f + 0.01f * h);
  }
  MassQuery query(float* scores = nullptr, int64_t stride = 0) const {
    return {q.data(), scales, pages, last_page_tokens, part_tokens, scores, stride};
  }
  std::vector<float> q, scales;
  std::vector<int32_t> pages;
  int32_t last_page_tokens;
  int32_t part_tokens = 0;
};

using Op = void (*)(const Context&, const PagedKv&, int32_t, std::span<const MassQuery>);

/// [n_heads][n] of several rows in one call, each written n wide with a gap after it.
std::vector<std::vector<float>> run(Op op, Isa isa, int n_threads, const PagedKv& kv,
                                    int32_t n_heads, const std::vector<Row>& rows) {
  constexpr int64_t kGap = 3;
  std::vector<std::vector<float>> scores;
  std::vector<MassQuery> queries;
  std::vector<int64_t> widths;
  for (const Row& row : rows) {
    const int64_t n_pages = std::ssize(row.pages);
    const int64_t n_tokens = (n_pages - 1) * kv.layout.page_tokens + row.last_page_tokens;
    const int32_t part_tokens = row.part_tokens > 0 ? row.part_tokens : kv.layout.page_tokens;
    widths.push_back(op == page_mass ? (n_tokens + part_tokens - 1) / part_tokens : n_tokens);
    if (n_pages == 0) widths.back() = 0;
    scores.emplace_back(n_heads * (widths.back() + kGap), kGuard);
    queries.push_back(row.query(scores.back().data(), widths.back() + kGap));
  }
  TestPool pool(n_threads);
  op({.pool = pool, .isa = isa}, kv, n_heads, queries);
  for (size_t i = 0; i < rows.size(); ++i) {
    std::vector<float> dense;
    for (auto at = scores[i].begin(); at < scores[i].end(); at += widths[i] + kGap) {
      dense.insert(dense.end(), at, at + widths[i]);
      EXPECT_EQ(std::count(at + widths[i], at + widths[i] + kGap, kGuard), kGap);
    }
    scores[i] = dense;
  }
  return scores;
}

/// What the twin is asked on a set that makes int8 with a scale per 32 of queries.
Row as_on(Isa isa, const Shape& shape, Row row) {
  if (kv_codec(isa, shape.k_type).prepare_queries == nullptr) return row;
  for (size_t begin = 0; begin < row.q.size(); begin += 32) {
    const std::span<float> block = std::span(row.q).subspan(begin, 32);
    float most = 0;
    for (const float q : block) most = std::max(most, std::abs(q));
    for (float& q : block) q = std::nearbyint(q * (127 / most)) * (most / 127);
  }
  return row;
}

// A product of head_dim terms rounds as often, each time by at most 2^-24 of what was added up so
// far: in norms |q||k| scale, 16 * 40 * 0.4 for our longest keys. exp and log add 1e-6.
double tolerance(const Shape& shape) {
  const double norms = 0.4 * std::sqrt(shape.head_dim) * 2.5 * std::sqrt(shape.head_dim);
  return 1e-6 + (shape.head_dim / 4.0 + 8) * 0x1p-24 * norms;
}

TEST(PageMass, EqualsTheScalarTwinOnEveryShapeAndType) {
  std::vector<Shape> shapes = {{8, 1, 1, 16},   {24, 2, 3, 32},  {64, 2, 4, 16}, {80, 1, 7, 64},
                               {128, 2, 1, 16}, {256, 1, 2, 64}, {64, 1, 2, 256}};
  for (const DType type : test::kv_types()) shapes.push_back({96, 2, 3, 32, type});
  for (const Shape& shape : shapes) {
    KvPages memory(shape.layout(), 70, 1);
    for (const int32_t n_pages : {1, 2, 5, 40, 70}) {
      for (const int32_t last_tokens : {1, 7, shape.page_tokens}) {
        std::vector<int32_t> pages = memory.shuffled(2);
        pages.resize(n_pages);
        const Row row(shape, pages, last_tokens, 3);
        for (const Isa isa : machine_isas()) {
          SCOPED_TRACE(::testing::Message() << isa_name(isa) << " head_dim " << shape.head_dim
                                            << " K " << dtype_info(shape.k_type).name << " pages "
                                            << n_pages << " last " << last_tokens);
          const Row asked = as_on(isa, shape, row);
          const auto masses = ref::page_mass(memory.kv(), shape.n_heads(), asked.query());
          const auto tokens = ref::token_scores(memory.kv(), shape.n_heads(), asked.query());
          const auto got = run(page_mass, isa, 2, memory.kv(), shape.n_heads(), {row})[0];
          const auto each = run(token_scores, isa, 2, memory.kv(), shape.n_heads(), {row})[0];
          ASSERT_EQ(got.size(), masses.size());
          ASSERT_EQ(each.size(), tokens.size());
          for (size_t i = 0; i < got.size(); ++i) {
            ASSERT_NEAR(got[i], masses[i], tolerance(shape)) << i;
          }
          for (size_t i = 0; i < each.size(); ++i) {
            ASSERT_NEAR(each[i], tokens[i], tolerance(shape)) << i;
          }
          Row in_runs = row, asked_in_runs = asked;
          in_runs.part_tokens = asked_in_runs.part_tokens = kRunTokens;
          const auto runs = ref::page_mass(memory.kv(), shape.n_heads(), asked_in_runs.query());
          const auto of_runs = run(page_mass, isa, 2, memory.kv(), shape.n_heads(), {in_runs})[0];
          ASSERT_EQ(of_runs.size(), runs.size());
          for (size_t i = 0; i < runs.size(); ++i) {
            ASSERT_NEAR(of_runs[i], runs[i], tolerance(shape)) << i;
          }
        }
      }
    }
  }
}

TEST(PageMass, AScoreDependsOnItsPageQueryAndHeadAlone) {
  const Shape shape{64, 2, 3, 16};
  KvPages memory(shape.layout(), 90, 4);
  std::vector<Row> rows;
  for (int32_t i = 0; i < 5; ++i) {
    std::vector<int32_t> pages = memory.shuffled(i);
    pages.resize(i == 3 ? 0 : 1 + 21 * i);
    rows.emplace_back(shape, pages, 1 + 3 * i, 10 + i);
  }
  for (const Op op : {page_mass, token_scores}) {
    for (const Isa isa : machine_isas()) {
      const auto together = run(op, isa, 1, memory.kv(), 6, rows);
      for (const int n_threads : {2, 5}) {
        const auto again = run(op, isa, n_threads, memory.kv(), 6, rows);
        for (size_t i = 0; i < 5; ++i) EXPECT_TRUE(same_bits(again[i], together[i]));
      }
      for (size_t i = 0; i < 5; ++i) {
        EXPECT_TRUE(same_bits(run(op, isa, 2, memory.kv(), 6, {rows[i]})[0], together[i]));
      }
      // A page's in another list: the last here is the first there.
      const Row reversed(shape, {rows[4].pages.rbegin() + 1, rows[4].pages.rend()}, 16, 14);
      const auto there = run(page_mass, isa, 2, memory.kv(), 6, {reversed})[0];
      const auto here = run(page_mass, isa, 2, memory.kv(), 6, {rows[4]})[0];
      const auto n = std::ssize(rows[4].pages);
      for (int64_t i = 0; i + 1 < n; ++i) EXPECT_EQ(there[n - 2 - i], here[i]);
    }
  }
}

// Lists of another length for each KV head, of runs or of pages, in any order and more than a
// task's slots: the bits of a run or a page by itself.
TEST(PageMass, OfListsOfEachKvHeadEveryEntryHasItsOwnScore) {
  for (const DType type : {DType::kF16, DType::kF32, DType::kQ8_0, DType::kQ4_0}) {
    const Shape shape{64, 2, 3, 32, type};
    KvPages memory(shape.layout(), 40, 4);
    for (const int32_t entry_tokens : {kRunTokens, shape.page_tokens}) {
      const int32_t n_parts = shape.page_tokens / entry_tokens;
      Row all(shape, memory.shuffled(5), shape.page_tokens, 6);
      all.part_tokens = entry_tokens;
      std::vector<std::vector<int32_t>> lists(2);
      std::vector<std::vector<int64_t>> places(2);  // among the parts of all.pages
      std::mt19937 random(7);
      for (const size_t head : {0, 1}) {
        for (int64_t i = 0; i < 40 * n_parts; ++i) places[head].push_back(i);
        std::ranges::shuffle(places[head], random);
        if (head == 0) places[head].resize(7);
        for (const int64_t place : places[head]) {
          lists[head].push_back(all.pages[place / n_parts] * n_parts + place % n_parts);
        }
      }
      for (const Isa isa : machine_isas()) {
        const auto want = run(page_mass, isa, 1, memory.kv(), 6, {all})[0];
        for (const int n_threads : {1, 3}) {
          const int64_t stride = 40 * n_parts + 2;
          std::vector<float> got(6 * stride, kGuard);
          std::vector<HeadPages> heads;
          for (const auto& list : lists) {
            const auto n = static_cast<int32_t>(std::ssize(list));
            heads.push_back({list.data(), n * entry_tokens - 1, entry_tokens});
          }
          MassQuery query = {.q = all.q.data(), .scales = all.scales, .scores = got.data()};
          query.stride = stride;
          query.heads = heads;
          TestPool pool(n_threads);
          page_mass({.pool = pool, .isa = isa}, memory.kv(), 6, {{query}});
          for (int64_t head = 0; head < 6; ++head) {
            const std::vector<int64_t>& of_head = places[head / 3];
            for (size_t i = 0; i < of_head.size(); ++i) {
              ASSERT_EQ(got[head * stride + i], want[head * 40 * n_parts + of_head[i]])
                  << isa_name(isa) << " head " << head << " entry " << i;
            }
            const auto row_end = got.begin() + (head + 1) * stride;
            EXPECT_EQ(std::count(got.begin() + head * stride + of_head.size(), row_end, kGuard),
                      stride - std::ssize(of_head));
          }
        }
      }
    }
  }
}

TEST(PageMass, ANanOrAnInfiniteScoreIsSeenInItsPageAlone) {
  const Shape shape{32, 1, 2, 16, DType::kF32};
  KvPages memory(shape.layout(), 5, 6);
  std::vector<float> k = random_floats(32, 7);
  k[9] = std::numeric_limits<float>::quiet_NaN();
  memory.set_key(1, 0, 12, k);
  k[9] = std::numeric_limits<float>::infinity();
  memory.set_key(3, 0, 0, k);
  k[9] = std::numeric_limits<float>::quiet_NaN();
  memory.set_key(4, 0, 8, k);  // after the last token
  const Row row(shape, {0, 1, 2, 3, 4}, 8, 8);
  for (const Isa isa : machine_isas()) {
    const auto masses = run(page_mass, isa, 1, memory.kv(), 2, {row})[0];
    for (int32_t h = 0; h < 2; ++h) {
      const bool is_up = row.q[h * 32 + 9] > 0;  // else exp(-inf) adds nothing to page 3
      for (int32_t i = 0; i < 5; ++i) {
        EXPECT_EQ(std::isnan(masses[h * 5 + i]), i == 1 || (i == 3 && is_up)) << h << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace weft::kernels
