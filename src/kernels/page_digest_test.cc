#include "kernels/page_digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "kernels/kv_codec.h"
#include "kernels/ref/kv_codec.h"
#include "kernels/ref/page_digest.h"
#include "support/instruction_sets.h"
#include "support/kv_pages.h"
#include "support/kv_types.h"
#include "support/numbers.h"
#include "support/test_pool.h"
#include "tensor/half.h"

namespace weft::kernels {
namespace {

using test::Guarded;
using test::KvPages;
using test::machine_isas;
using test::random_floats;
using test::same_bits;
using test::TestPool;

constexpr float kGuard = -12345.0f;
constexpr DigestKind kKinds[] = {DigestKind::kMinMax, DigestKind::kCuboidMean, DigestKind::kMean};
constexpr DigestType kTypes[] = {DigestType::kInt8, DigestType::kF16};

/// One layer's digests, guarded.
class Digests {
 public:
  Digests(const DigestLayout& layout, int32_t n_pages)
      : layout_(layout), bytes_(n_pages * layout.n_kv_heads * digest_bytes(layout), 0xad) {}
  PagedDigests paged() {
    return make_paged_digests(layout_, reinterpret_cast<std::byte*>(bytes_.data()));
  }
  Digests& make(Isa isa, const PagedKv& kv, const std::vector<int32_t>& pages, int n_threads = 2) {
    TestPool pool(n_threads);
    make_digests({.pool = pool, .isa = isa}, kv, pages, paged());
    bytes_.check();
    return *this;
  }
  std::vector<uint8_t> bytes() const { return bytes_.values(); }

 private:
  DigestLayout layout_;
  Guarded<uint8_t> bytes_;
};

/// Of a list of pages, [n_heads][stride].
std::vector<float> score(Isa isa, const PagedDigests& digests, const std::vector<float>& q,
                         const std::vector<int32_t>& pages, float scale, int n_threads = 2,
                         int64_t gap = 3) {
  const auto n_heads = static_cast<int32_t>(std::ssize(q) / digests.layout.head_dim);
  const int64_t stride = std::ssize(pages) + gap;
  Guarded<float> scores(n_heads * stride, kGuard);
  TestPool pool(n_threads);
  const DigestQuery query = {q.data(), pages, scores.data(), stride};
  score_digests({.pool = pool, .isa = isa}, digests, n_heads, scale, {&query, 1});
  scores.check();
  std::vector<float> dense;
  const std::vector<float> all = scores.values();
  for (int32_t h = 0; h < n_heads; ++h) {
    const auto row = all.begin() + h * stride;
    dense.insert(dense.end(), row, row + std::ssize(pages));
    EXPECT_EQ(std::count(row + std::ssize(pages), row + stride, kGuard), gap);
  }
  return dense;
}

struct Shape {
  int32_t head_dim, n_kv_heads, group, page_tokens;
  DType k_type = DType::kF16;
  KvLayout layout() const { return {k_type, k_type, head_dim, n_kv_heads, page_tokens}; }
};

std::vector<Shape> shapes() {
  std::vector<Shape> all = {{8, 1, 1, 16},   {8, 3, 5, 32},   {24, 2, 3, 64},
                            {64, 8, 4, 16},  {72, 1, 7, 32},  {80, 2, 2, 16},
                            {128, 2, 1, 16}, {200, 1, 8, 64}, {256, 1, 6, 16}};
  for (const DType type : test::kv_types()) all.push_back({96, 2, 3, 32, type});
  return all;
}

/// Half a unit of what is rounded to nearest, and what the sums in f32 before it may be off.
double rounding_error(const DigestLayout& layout, double step, double value) {
  const double unit =
      layout.type == DigestType::kInt8 ? step : std::max(std::abs(value) * 0x1p-10, 0x1p-24);
  return 0.5 * unit + 64 * 0x1p-24 * 127 * step;
}

/// Checks what a page's digest says of its keys.
void expect_digest(const PagedKv& kv, const PagedDigests& digests, int32_t page, int32_t head) {
  const DigestLayout& layout = digests.layout;
  const std::vector<double> want = ref::digest_of_keys(kv, page, head, layout.kind);
  const std::vector<double> got = ref::digest_values(digests, page, head);
  double largest = 0;
  for (const double x : want) largest = std::max(largest, std::abs(x));
  const double step = largest / 127 * (1 + 0x1p-15);
  for (int32_t d = 0; d < std::ssize(want); ++d) {
    if (layout.kind != DigestKind::kMinMax) {
      ASSERT_NEAR(got[d], want[d], rounding_error(layout, step, want[d])) << d;
      continue;
    }
    // Outwards, and by less than a unit.
    const bool is_maximum = d < layout.head_dim;
    const double outwards = is_maximum ? got[d] - want[d] : want[d] - got[d];
    const double unit =
        layout.type == DigestType::kInt8 ? step : std::max(std::abs(want[d]) * 0x1p-10, 0x1p-24);
    ASSERT_GE(outwards, 0) << d;
    ASSERT_LT(outwards, unit) << d;
    if (layout.type == DigestType::kF16 && kv.layout.k_type == DType::kF16) {
      ASSERT_EQ(got[d], want[d]);
    }
  }
}

TEST(PageDigest, HoldsWhatItsTwinFindsInTheKeys) {
  for (const Shape& shape : shapes()) {
    KvPages memory(shape.layout(), 5, 1);
    const std::vector<int32_t> pages = {4, 0, 2, 1, 3};
    for (const DigestKind kind : kKinds) {
      for (const DigestType type : kTypes) {
        const DigestLayout layout = {kind, type, shape.head_dim, shape.n_kv_heads};
        Digests first(layout, 5);
        first.make(machine_isas().front(), memory.kv(), pages, 1);
        SCOPED_TRACE(::testing::Message()
                     << "head_dim " << shape.head_dim << " K " << dtype_info(shape.k_type).name
                     << " kind " << int{to_underlying(kind)} << " type "
                     << int{to_underlying(type)});
        for (const int32_t page : pages) {
          for (int32_t head = 0; head < shape.n_kv_heads; ++head) {
            expect_digest(memory.kv(), first.paged(), page, head);
          }
        }
        for (const Isa isa : machine_isas()) {
          Digests other(layout, 5);
          EXPECT_EQ(other.make(isa, memory.kv(), pages, 3).bytes(), first.bytes()) << isa_name(isa);
        }
      }
    }
  }
}

TEST(PageDigest, OnlyThePagesThatAreNamedAreWritten) {
  const Shape shape{64, 2, 1, 16};
  KvPages memory(shape.layout(), 6, 2);
  for (const Isa isa : machine_isas()) {
    Digests digests({DigestKind::kMinMax, DigestType::kInt8, 64, 2}, 6);
    digests.make(isa, memory.kv(), {});
    EXPECT_EQ(std::ranges::count(digests.bytes(), 0xad), std::ssize(digests.bytes()));
    digests.make(isa, memory.kv(), {3});
    std::vector<uint8_t> bytes = digests.bytes();
    const PagedDigests paged = digests.paged();
    for (int32_t head = 0; head < 2; ++head) {
      const auto own = bytes.begin() + (digest_at(paged, 3, head) - paged.digests);
      std::fill(own, own + paged.bytes, 0xad);
    }
    EXPECT_EQ(std::ranges::count(bytes, 0xad), std::ssize(bytes));
    expect_digest(memory.kv(), digests.paged(), 3, 1);
  }
}

/// What the int8 kernels make of a head's query is worth: its largest is 127 of them.
double query_step(const std::vector<float>& q, int32_t head_dim, int32_t head) {
  double largest = 0;
  for (int32_t d = 0; d < head_dim; ++d) {
    largest = std::max(largest, std::abs(double{q[head * head_dim + d]}));
  }
  return largest / 127;
}

/// Queries that lose nothing by that.
std::vector<float> whole_queries(int32_t n_heads, int32_t head_dim, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int32_t> any(-127, 127);
  std::vector<float> q(n_heads * head_dim);
  for (float& x : q) x = any(random) * 0x1p-5f;
  for (int32_t head = 0; head < n_heads; ++head) {
    q[head * head_dim + head % head_dim] = (head % 2 == 0 ? 127 : -127) * 0x1p-5f;
  }
  return q;
}

// Int8: four roundings to f32. F16: sums of up to 512 floats. |q||x| is about sqrt(n) of the
// largest products for our data; n covers it.
double score_tolerance(const DigestLayout& layout, double largest_q, double largest_x,
                       double scale) {
  const double unit = (layout.type == DigestType::kInt8 ? 4 : 32) * 0x1p-24;
  return scale * layout.head_dim * largest_q * largest_x * unit;
}

TEST(PageDigest, ScoresAreItsTwinsAndOfInt8AlikeOnEveryIsa) {
  for (const Shape& shape : shapes()) {
    constexpr int32_t kPages = 75;
    KvPages memory(shape.layout(), kPages, 3);
    const int32_t n_heads = shape.n_kv_heads * shape.group;
    const std::vector<float> q = whole_queries(n_heads, shape.head_dim, 4);
    for (const DigestKind kind : kKinds) {
      for (const DigestType type : kTypes) {
        const DigestLayout layout = {kind, type, shape.head_dim, shape.n_kv_heads};
        Digests digests(layout, kPages);
        digests.make(best_isa(), memory.kv(), memory.shuffled(5));
        for (const int32_t n_pages : {1, 2, 5, 32, 33, kPages}) {
          SCOPED_TRACE(::testing::Message()
                       << "head_dim " << shape.head_dim << " kind " << int{to_underlying(kind)}
                       << " type " << int{to_underlying(type)} << " pages " << n_pages);
          std::vector<int32_t> pages = memory.shuffled(6);
          pages.resize(n_pages);
          const DigestQuery query = {q.data(), pages};
          const auto want = ref::score_digests(digests.paged(), n_heads, 0.125, query);
          const double tolerance = score_tolerance(layout, 5, 20, 0.125);
          const auto first = score(Isa::kBaseline, digests.paged(), q, pages, 0.125f, 1);
          for (const Isa isa : machine_isas()) {
            const auto got = score(isa, digests.paged(), q, pages, 0.125f, 3);
            for (int64_t i = 0; i < std::ssize(want); ++i) {
              ASSERT_NEAR(got[i], want[i], tolerance) << isa_name(isa) << " " << i;
            }
            if (type == DigestType::kInt8) {
              EXPECT_TRUE(same_bits(got, first)) << isa_name(isa);
            }
          }
        }
      }
    }
  }
}

TEST(PageDigest, AScoreOfMinimaAndMaximaIsLessThanAKeysByTheQuerysRoundingAtMost) {
  constexpr int32_t kPages = 12;
  for (const Shape& shape : shapes()) {
    KvPages memory(shape.layout(), kPages, 7);
    const int32_t n_heads = shape.n_kv_heads * shape.group;
    const DigestLayout layout = {DigestKind::kMinMax, DigestType::kInt8, shape.head_dim,
                                 shape.n_kv_heads};
    Digests digests(layout, kPages);
    digests.make(best_isa(), memory.kv(), memory.shuffled(8));
    const PagedDigests paged = digests.paged();
    const std::vector<int32_t> pages = memory.shuffled(9);
    for (uint32_t seed = 0; seed < 20; ++seed) {
      std::vector<float> q = random_floats(n_heads * shape.head_dim, seed, 0.01f + seed);
      if (seed % 3 == 0) q[seed % 8] *= 1000;  // the others are rounded to few bits
      const float scale = 0.3f;
      const auto scores = score(machine_isas().back(), paged, q, pages, scale);
      for (int32_t h = 0; h < n_heads; ++h) {
        const double step = query_step(q, shape.head_dim, h);
        for (int64_t i = 0; i < kPages; ++i) {
          const std::vector<double> x = ref::digest_values(paged, pages[i], h / shape.group);
          double rounding = 0;  // half a step of each q, and what is rounded in f32
          for (int32_t d = 0; d < shape.head_dim; ++d) {
            rounding += step * (0.5 + 127 * 0x1p-21) *
                        std::max(std::abs(x[d]), std::abs(x[shape.head_dim + d]));
          }
          for (int32_t t = 0; t < shape.page_tokens; ++t) {
            double product = 0;
            const uint8_t* k = memory.key(pages[i], h / shape.group, t);
            for (int32_t d = 0; d < shape.head_dim; ++d) {
              product += double{q[h * shape.head_dim + d]} * ref::kv_element(shape.k_type, k, d);
            }
            ASSERT_GE(scores[h * kPages + i], scale * (product - rounding)) << seed << " " << h;
          }
        }
      }
    }
  }
}

// Keys that are all alike, so that minimum, maximum and key are one: what is left is the rounding
// of the digest, which is outwards.
TEST(PageDigest, TheBoundHoldsWhereThereIsNothingButRounding) {
  const Shape shape{64, 1, 1, 16, DType::kF32};
  KvPages memory(shape.layout(), 8, 10);
  for (int32_t page = 0; page < 8; ++page) {
    const std::vector<float> k = random_floats(64, 20 + page);
    for (int32_t t = 0; t < 16; ++t) memory.set_key(page, 0, t, k);
  }
  const std::vector<int32_t> pages = {0, 1, 2, 3, 4, 5, 6, 7};
  Digests digests({DigestKind::kMinMax, DigestType::kInt8, 64, 1}, 8);
  digests.make(best_isa(), memory.kv(), pages);
  const PagedDigests paged = digests.paged();
  for (uint32_t seed = 0; seed < 500; ++seed) {
    const std::vector<float> q = whole_queries(1, 64, 100 + seed);
    const auto scores = score(best_isa(), paged, q, pages, 1.0f);
    for (int32_t page = 0; page < 8; ++page) {
      double product = 0;
      for (int32_t d = 0; d < 64; ++d) {
        product += double{q[d]} * ref::kv_element(DType::kF32, memory.key(page, 0, 0), d);
      }
      ASSERT_GE(scores[page], product) << seed;
    }
  }
}

TEST(PageDigest, TheLargestSumsDoNotOverflow) {
  const Shape shape{256, 1, 1, 16, DType::kF32};
  for (const float sign : {1.0f, -1.0f}) {
    KvPages memory(shape.layout(), 4, 11);
    for (int32_t page = 0; page < 4; ++page) {
      for (int32_t t = 0; t < 16; ++t) memory.set_key(page, 0, t, std::vector(256, sign));
    }
    for (const DigestKind kind : kKinds) {
      Digests digests({kind, DigestType::kInt8, 256, 1}, 4);
      digests.make(best_isa(), memory.kv(), {0, 1, 2, 3});
      for (const float q_sign : {1.0f, -1.0f}) {
        const std::vector<float> q(256, q_sign);
        const std::vector<int32_t> pages = {0, 1, 2, 3};
        const auto want = ref::score_digests(digests.paged(), 1, 1.0, {q.data(), pages});
        for (const Isa isa : machine_isas()) {
          const auto scores = score(isa, digests.paged(), q, pages, 1.0f);
          for (int64_t i = 0; i < 4; ++i) {
            EXPECT_NEAR(scores[i], want[i], 0.02) << isa_name(isa);
            EXPECT_GT(std::abs(scores[i]), 253);  // of 256: a constant is rounded by up to a step
          }
        }
      }
    }
  }
}

TEST(PageDigest, AScoreDependsOnItsQueryHeadAndPageAlone) {
  const Shape shape{64, 2, 3, 16};
  constexpr int32_t kPages = 150;
  KvPages memory(shape.layout(), kPages, 12);
  for (const DigestType type : kTypes) {
    Digests digests({DigestKind::kMinMax, type, 64, 2}, kPages);
    digests.make(best_isa(), memory.kv(), memory.shuffled(13));
    std::vector<std::vector<float>> q;
    std::vector<std::vector<int32_t>> pages;
    for (uint32_t i = 0; i < 6; ++i) {
      q.push_back(random_floats(6 * 64, 30 + i));
      pages.push_back(memory.shuffled(40 + i));
      pages.back().resize(i == 2 ? 0 : 1 + 29 * i);
      std::ranges::sort(pages.back());
    }
    for (const Isa isa : machine_isas()) {
      for (const int n_threads : {1, 2, 5}) {
        std::vector<std::vector<float>> scores(6, std::vector<float>(6 * kPages, kGuard));
        std::vector<DigestQuery> queries;
        for (size_t i = 0; i < 6; ++i) {
          queries.push_back({q[i].data(), pages[i], scores[i].data(), kPages});
        }
        TestPool pool(n_threads);
        score_digests({.pool = pool, .isa = isa}, digests.paged(), 6, 0.125f, queries);
        for (size_t i = 0; i < 6; ++i) {
          const int64_t n = std::ssize(pages[i]);
          const auto alone = score(isa, digests.paged(), q[i], pages[i], 0.125f, 1);
          for (int32_t h = 0; h < 6; ++h) {
            const auto row = scores[i].begin() + h * kPages;
            EXPECT_TRUE(std::equal(row, row + n, alone.begin() + h * n)) << isa_name(isa);
            EXPECT_EQ(std::count(row + n, row + kPages, kGuard), kPages - n);
          }
        }
      }
    }
  }
}

TEST(PageDigest, WhatIsNotFiniteIsNanInItsHeadAndPageAlone) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    const Shape shape{64, 2, 2, 16, DType::kF32};
    KvPages memory(shape.layout(), 6, 14);
    for (const int32_t token : {0, 15}) {
      std::vector<float> k = random_floats(64, 15);
      k[token + 40] = bad;
      memory.set_key(2, 1, token, k);
    }
    for (const DigestKind kind : kKinds) {
      for (const DigestType type : kTypes) {
        std::vector<uint8_t> first;
        for (const Isa isa : machine_isas()) {
          Digests digests({kind, type, 64, 2}, 6);
          const std::vector<int32_t> pages = {0, 1, 2, 3, 4, 5};
          digests.make(isa, memory.kv(), pages);
          if (first.empty()) first = digests.bytes();
          EXPECT_EQ(digests.bytes(), first) << isa_name(isa);
          std::vector<float> q = random_floats(4 * 64, 16);
          const auto scores = score(isa, digests.paged(), q, pages, 1.0f);
          for (int64_t i = 0; i < 24; ++i) {
            EXPECT_EQ(std::isnan(scores[i]), i >= 12 && i % 6 == 2) << isa_name(isa) << " " << i;
          }
          q[64 + 63] = bad;
          const auto of_bad = score(isa, digests.paged(), q, pages, 1.0f);
          for (int64_t i = 0; i < 12; ++i) {
            EXPECT_EQ(std::isnan(of_bad[i]), i >= 6) << isa_name(isa) << " " << i;
          }
        }
      }
    }
  }
}

TEST(PageDigest, ExtremeKeysAndQueriesKeepTheirOrder) {
  const Shape shape{8, 1, 1, 16, DType::kF32};
  for (const float size : {0.0f, 1e-45f, 1e-38f, 1e-20f, 60000.0f, 1e6f, 1e30f, 3.4e38f}) {
    KvPages memory(shape.layout(), 2, 17);
    for (int32_t t = 0; t < 16; ++t) {
      memory.set_key(0, 0, t, std::vector(8, -size));
      memory.set_key(1, 0, t, std::vector(8, size * (t / 16.0f)));
    }
    for (const DigestType type : kTypes) {
      for (const Isa isa : machine_isas()) {
        Digests digests({DigestKind::kMinMax, type, 8, 1}, 2);
        digests.make(isa, memory.kv(), {0, 1});
        const std::vector<double> values = ref::digest_values(digests.paged(), 1, 0);
        const double largest = type == DigestType::kF16 ? 65504 : 15.0 / 16 * size;
        for (int32_t d = 0; d < 8; ++d) {
          EXPECT_GE(values[d], std::min<double>(largest, 15.0 / 16 * size));
          EXPECT_EQ(values[8 + d], 0);
        }
        for (const float q : {0.0f, 1e-3f}) {
          const auto scores = score(isa, digests.paged(), std::vector(8, q), {0, 1}, 1.0f);
          EXPECT_LE(scores[0], scores[1]) << isa_name(isa) << " " << size << " " << q;
        }
      }
    }
  }
}

TEST(PageDigest, BytesAreWhatTheLayoutSays) {
  EXPECT_EQ(digest_bytes({DigestKind::kMinMax, DigestType::kInt8, 64, 8}), 132);
  EXPECT_EQ(digest_bytes({DigestKind::kCuboidMean, DigestType::kInt8, 128, 1}), 260);
  EXPECT_EQ(digest_bytes({DigestKind::kMean, DigestType::kInt8, 64, 8}), 68);
  EXPECT_EQ(digest_bytes({DigestKind::kMinMax, DigestType::kF16, 64, 8}), 256);
  EXPECT_EQ(digest_bytes({DigestKind::kMean, DigestType::kF16, 64, 8}), 128);
}

}  // namespace
}  // namespace weft::kernels
