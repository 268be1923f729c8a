#include "kernels/token_labels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "kernels/ref/page_digest.h"
#include "kernels/ref/token_labels.h"
#include "support/instruction_sets.h"
#include "support/kv_pages.h"
#include "support/kv_types.h"
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
constexpr LabelKind kKinds[] = {LabelKind::kSides, LabelKind::kChannels};
constexpr LabelDepth kDepths[] = {LabelDepth::kSide, LabelDepth::kAll};

struct Shape {
  int32_t head_dim, n_kv_heads, group, page_tokens;
  DType k_type = DType::kF16;
  KvLayout layout() const { return {k_type, k_type, head_dim, n_kv_heads, page_tokens}; }
  int32_t n_heads() const { return n_kv_heads * group; }
};

std::vector<Shape> shapes() {
  std::vector<Shape> all = {{16, 1, 1, 16},  {16, 3, 5, 32},  {24, 2, 3, 64},
                            {64, 8, 4, 16},  {72, 1, 7, 32},  {80, 2, 2, 16},
                            {128, 2, 1, 16}, {200, 1, 8, 64}, {256, 1, 6, 256}};
  for (const DType type : test::kv_types()) all.push_back({96, 2, 3, 32, type});
  return all;
}

/// Pages with digests and labels, guarded.
class Labelled {
 public:
  Labelled(const Shape& shape, LabelKind kind, int32_t n_pages, uint32_t seed)
      : memory_(shape.layout(), n_pages, seed),
        digest_layout_{DigestKind::kCuboidMean, DigestType::kInt8, shape.head_dim,
                       shape.n_kv_heads},
        layout_{kind, shape.head_dim, shape.n_kv_heads, shape.page_tokens},
        digests_(n_pages * shape.n_kv_heads * digest_bytes(digest_layout_), 0xad),
        labels_(n_pages * shape.n_kv_heads * label_bytes(layout_), 0xad) {
    // Of each head others: some, ascending, or all.
    std::mt19937 random(seed);
    std::vector<uint8_t> all(shape.head_dim);
    std::iota(all.begin(), all.end(), 0);
    for (int32_t head = 0; head < shape.n_kv_heads; ++head) {
      std::ranges::shuffle(all, random);
      std::vector<uint8_t> some(all.begin(), all.begin() + n_label_channels(layout_));
      if (kind == LabelKind::kChannels) std::ranges::sort(some);
      channels_.insert(channels_.end(), some.begin(), some.end());
    }
  }
  /// K's own order, which kSides may have.
  void use_own_order() { channels_.clear(); }

  KvPages& memory() { return memory_; }
  PagedDigests digests() {
    return make_paged_digests(digest_layout_, reinterpret_cast<std::byte*>(digests_.data()),
                              layout_.kind == LabelKind::kSides ? channels() : nullptr);
  }
  PagedLabels labels() {
    return make_paged_labels(layout_, reinterpret_cast<std::byte*>(labels_.data()), channels());
  }
  void make(Isa isa, const std::vector<int32_t>& pages, int n_threads = 2) {
    TestPool pool(n_threads);
    const Context context{.pool = pool, .isa = isa};
    make_digests(context, memory_.kv(), pages, digests());
    make_labels(context, memory_.kv(), pages, digests(), labels());
    digests_.check();
    labels_.check();
  }
  std::vector<uint8_t> bytes() const { return labels_.values(); }

  /// [n_heads][n][parts of a page], of each KV head's own places; part_tokens 0: whole pages.
  std::vector<float> score(Isa isa, int32_t n_heads, const std::vector<float>& q,
                           const std::vector<int32_t>& pages,
                           const std::vector<std::vector<int32_t>>& places, float scale,
                           LabelDepth depth = LabelDepth::kAll, int n_threads = 2,
                           int32_t part_tokens = 0) {
    constexpr int64_t kGap = 3;
    if (part_tokens == 0) part_tokens = layout_.page_tokens;
    const int64_t n = std::ssize(places[0]) * (layout_.page_tokens / part_tokens);
    const int64_t stride = n + kGap;
    Guarded<float> scores(n_heads * stride, kGuard);
    const std::vector<std::span<const int32_t>> of_heads(places.begin(), places.end());
    TestPool pool(n_threads);
    const LabelQuery query = {q.data(), pages, of_heads, part_tokens, scores.data(), stride};
    score_labels({.pool = pool, .isa = isa}, digests(), labels(), depth, n_heads, scale,
                 {&query, 1});
    scores.check();
    std::vector<float> dense;
    const std::vector<float> all = scores.values();
    for (int32_t h = 0; h < n_heads; ++h) {
      const auto row = all.begin() + h * stride;
      dense.insert(dense.end(), row, row + n);
      EXPECT_EQ(std::count(row + n, row + stride, kGuard), kGap);
    }
    return dense;
  }

 private:
  const uint8_t* channels() const { return channels_.empty() ? nullptr : channels_.data(); }

  KvPages memory_;
  DigestLayout digest_layout_;
  LabelLayout layout_;
  Guarded<uint8_t> digests_;
  Guarded<uint8_t> labels_;
  std::vector<uint8_t> channels_;
};

std::string name_of(const Shape& shape, LabelKind kind) {
  return "head_dim " + std::to_string(shape.head_dim) + " group " + std::to_string(shape.group) +
         " page " + std::to_string(shape.page_tokens) +
         (kind == LabelKind::kSides ? " sides" : " channels");
}

std::vector<std::pair<int32_t, LabelDepth>> product(const std::vector<int32_t>& pages,
                                                    std::span<const LabelDepth> depths) {
  std::vector<std::pair<int32_t, LabelDepth>> all;
  for (const int32_t page : pages) {
    for (const LabelDepth depth : depths) all.emplace_back(page, depth);
  }
  return all;
}

TEST(TokenLabels, HoldWhatTheirTwinFindsInTheKeysOnEveryIsa) {
  for (const Shape& shape : shapes()) {
    for (const LabelKind kind : kKinds) {
      SCOPED_TRACE(name_of(shape, kind));
      const std::vector<int32_t> pages = {4, 0, 2, 3};
      Labelled first(shape, kind, 5, 1);
      first.make(machine_isas().front(), pages, 1);
      for (const auto& [page, depth] : product(pages, kDepths)) {
        for (int32_t head = 0; head < shape.n_kv_heads; ++head) {
          double largest = 0;
          std::vector<std::vector<double>> want;
          for (int32_t t = 0; t < shape.page_tokens; ++t) {
            want.push_back(ref::label_of_key(first.memory().kv(), first.digests(), first.labels(),
                                             depth, page, head, t));
            for (const double x : want.back()) largest = std::max(largest, std::abs(x));
          }
          // Half a step, where there is one.
          const double tolerance =
              kind == LabelKind::kSides ? 0 : 0.501 * largest / 127 * (1 + 0x1p-15);
          for (int32_t t = 0; t < shape.page_tokens; ++t) {
            const auto got =
                ref::label_values(first.digests(), first.labels(), depth, page, head, t);
            for (int32_t d = 0; d < shape.head_dim; ++d) {
              ASSERT_NEAR(got[d], want[t][d], tolerance) << page << " " << t << " " << d;
            }
          }
        }
      }
      // The page that was not named.
      const std::vector<uint8_t> bytes = first.bytes();
      const int64_t page_bytes = std::ssize(bytes) / 5;
      EXPECT_EQ(std::count(bytes.begin() + page_bytes, bytes.begin() + 2 * page_bytes, 0xad),
                page_bytes);
      for (const Isa isa : machine_isas()) {
        Labelled other(shape, kind, 5, 1);
        other.make(isa, pages, 3);
        EXPECT_EQ(other.bytes(), bytes) << isa_name(isa);
      }
    }
  }
}

/// Of each head n of the pages, in no order.
std::vector<std::vector<int32_t>> some_places(int32_t n_kv_heads, int32_t n_pages, int32_t n,
                                              uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> all(n_pages);
  std::iota(all.begin(), all.end(), 0);
  std::vector<std::vector<int32_t>> places;
  for (int32_t head = 0; head < n_kv_heads; ++head) {
    std::ranges::shuffle(all, random);
    places.emplace_back(all.begin(), all.begin() + n);
  }
  return places;
}

/// A query's rounding, half a step of each dimension times what its key may be there. What a
/// dimension is worth, q (M - m), is rounded twice, to half of 256 steps of q and of the digest and
/// to half of 127 parts of the page's largest, and counts 7 / 8 at most. As much as in the worst
/// case only if all dimensions agree, so six deviations; and the log's two polynomials.
double sides_tolerance(Labelled& pages, int32_t page, int32_t kv_head, std::span<const float> q,
                       double scale) {
  const auto both = ref::digest_values(pages.digests(), page, kv_head);
  const auto n = std::ssize(q);
  double sum = 0, largest = 0, widest = 0, worth = 0;
  for (int64_t d = 0; d < n; ++d) {
    const double width = both[d] - both[n + d];
    sum += std::abs(q[d]);
    largest = std::max({largest, std::abs(both[d]), std::abs(both[n + d])});
    widest = std::max(widest, width);
    worth = std::max(worth, std::abs(q[d]) * width);
  }
  const double step = sum / 32000;
  const double of_q = 0.29 * step * (largest + widest * 3 / 8);
  const double of_worth = 0.29 * (256 * step * largest / 127 + worth / 127) * 7 / 8;
  return 2.5e-4 + scale * 6 * std::sqrt(n) * (of_q + of_worth);
}

// By whole pages and by runs.
void expect_twins_scores(const Shape& shape, LabelKind kind, int32_t part_tokens) {
  constexpr int32_t kPages = 70;
  constexpr float kScale = 0.125f;
  const std::vector<float> q = random_floats(shape.n_heads() * shape.head_dim, 4);
  float largest_q = 0;
  for (const float x : q) largest_q = std::max(largest_q, std::abs(x));
  Labelled pages(shape, kind, kPages, 3);
  pages.make(best_isa(), pages.memory().shuffled(5));
  const std::vector<int32_t> list = pages.memory().shuffled(6);
  for (const auto& [n, depth] : product({1, 31, 33, kPages}, kDepths)) {
    SCOPED_TRACE(name_of(shape, kind) + " places " + std::to_string(n) +
                 (depth == LabelDepth::kAll ? " all" : " side") + " parts of " +
                 std::to_string(part_tokens));
    const int64_t n_scores = n * (shape.page_tokens / part_tokens);
    const auto places = some_places(shape.n_kv_heads, kPages, n, 7);
    const std::vector<std::span<const int32_t>> of_heads(places.begin(), places.end());
    const auto want = ref::score_labels(pages.digests(), pages.labels(), depth, shape.n_heads(),
                                        kScale, {q.data(), list, of_heads, part_tokens});
    const auto tolerance_of = [&](int64_t i) {
      const auto head = static_cast<int32_t>(i / n_scores), kv_head = head / shape.group;
      const int64_t place = i % n_scores / (n_scores / n);
      const auto of_head = std::span(q).subspan(head * shape.head_dim, shape.head_dim);
      if (kind == LabelKind::kSides) {
        return sides_tolerance(pages, list[places[kv_head][place]], kv_head, of_head, kScale);
      }
      // A query's rounding, half a step of each dimension times a key of at most 20.
      return 2.5e-4 + kScale * shape.head_dim * largest_q / 32767 * 20 * 0.55;
    };
    const auto first = pages.score(Isa::kBaseline, shape.n_heads(), q, list, places, kScale, depth,
                                   1, part_tokens);
    for (const Isa isa : machine_isas()) {
      const auto got =
          pages.score(isa, shape.n_heads(), q, list, places, kScale, depth, 3, part_tokens);
      ASSERT_EQ(got.size(), want.size());
      for (int64_t i = 0; i < std::ssize(want); ++i) {
        ASSERT_NEAR(got[i], want[i], tolerance_of(i) + 1e-6 * std::abs(want[i]))
            << isa_name(isa) << " " << i;
      }
      EXPECT_TRUE(same_bits(got, first)) << isa_name(isa);
    }
  }
}

TEST(TokenLabels, ScoresAreTheirTwinsAndAlikeOnEveryIsa) {
  for (const Shape& shape : shapes()) {
    for (const LabelKind kind : kKinds) {
      for (const int32_t part_tokens : {kRunTokens, shape.page_tokens}) {
        expect_twins_scores(shape, kind, part_tokens);
      }
    }
  }
}

// One key of sixteen lies far from the others: its page's digest is as before, its label is not.
TEST(TokenLabels, AKeyThatPointsTheQuerysWayIsSeenAmongOthers) {
  const Shape shape{64, 1, 1, 16, DType::kF32};
  Labelled pages(shape, LabelKind::kSides, 2, 8);
  pages.use_own_order();
  for (int32_t page = 0; page < 2; ++page) {
    for (int32_t t = 0; t < 16; ++t) {
      // Each dimension is high in half of the tokens; on page 1 token 3 has all of them.
      std::vector<float> k(64);
      for (int32_t d = 0; d < 64; ++d) {
        const bool is_high = (t + d) % 2 == 0;
        k[d] = is_high || (page == 1 && t == 3) ? 1.0f : -1.0f;
      }
      pages.memory().set_key(page, 0, t, k);
    }
  }
  pages.make(best_isa(), {0, 1});
  const std::vector<float> q(64, 1.0f);
  for (const Isa isa : machine_isas()) {
    const auto scores = pages.score(isa, 1, q, {0, 1}, {{0, 1}}, 1.0f, LabelDepth::kSide);
    EXPECT_NEAR(scores[0], std::log(16.0), 0.1);
    EXPECT_NEAR(scores[1], 32.0, 0.5);  // the first half of its dimensions
  }
}

// By the sides the first of a head's order are told apart, the others are the page's middle.
TEST(TokenLabels, TheSidesAreThoseOfTheFirstHalfOfTheOrder) {
  const Shape shape{64, 1, 1, 16, DType::kF32};
  Labelled ordered(shape, LabelKind::kSides, 1, 8), own(shape, LabelKind::kSides, 1, 8);
  own.use_own_order();
  for (Labelled* const pages : {&ordered, &own}) pages->make(best_isa(), {0});
  const uint8_t* const order = ordered.labels().channels;
  for (int32_t i = 0; i < 64; ++i) {
    std::vector<float> q(64, 0.0f);
    q[order[i]] = 8.0f;
    const auto by = [&](Labelled& pages, LabelDepth depth) {
      return pages.score(best_isa(), 1, q, {0}, {{0}}, 1.0f, depth)[0];
    };
    const auto both = ref::digest_values(own.digests(), 0, 0);
    const double middle = 8 * (both[order[i]] + both[64 + order[i]]) / 2 + std::log(16.0);
    EXPECT_EQ(std::abs(by(ordered, LabelDepth::kSide) - middle) < 0.1, i >= 32) << i;
    EXPECT_EQ(std::abs(by(own, LabelDepth::kSide) - middle) < 0.1, order[i] >= 32) << i;
    // The first half has a third bit.
    if ((i < 32) != (order[i] < 32)) continue;
    EXPECT_NEAR(by(ordered, LabelDepth::kAll), by(own, LabelDepth::kAll), 1e-3) << i;
  }
}

TEST(TokenLabels, WhatIsNotFiniteMakesItsPagesScoreNanAndNoOthers) {
  constexpr float kBad[] = {std::numeric_limits<float>::quiet_NaN(),
                            -std::numeric_limits<float>::infinity()};
  for (const LabelKind kind : kKinds) {
    for (const float bad : kBad) {
      const Shape shape{64, 2, 3, 16, DType::kF32};
      Labelled pages(shape, kind, 4, 9);
      for (const int32_t d : {0, 17, 63}) {  // in the channels or not
        std::vector<float> k = random_floats(64, 1);
        k[d] = bad;
        pages.memory().set_key(d % 3, 1, 5, k);
      }
      pages.make(best_isa(), {0, 1, 2, 3});
      for (const Isa isa : machine_isas()) {
        const std::vector<float> q = random_floats(6 * 64, 10);
        const auto scores = pages.score(isa, 6, q, {0, 1, 2, 3}, {{3, 2, 1, 0}, {0, 1, 2, 3}}, 1);
        for (int32_t h = 0; h < 6; ++h) {
          for (int32_t i = 0; i < 4; ++i) {
            const bool is_bad = h >= 3 && (i == 0 || i == 2);
            EXPECT_EQ(std::isnan(scores[h * 4 + i]), is_bad) << isa_name(isa) << h << i;
          }
        }
        std::vector<float> bad_q = q;
        bad_q[64 + 30] = bad;
        const auto none = pages.score(isa, 6, bad_q, {3}, {{0}, {0}}, 1);
        for (int32_t h = 0; h < 6; ++h) EXPECT_EQ(std::isnan(none[h]), h == 1) << isa_name(isa);
      }
    }
  }
}

TEST(TokenLabels, LargeAndTinyNumbersGiveNumbers) {
  const Shape shape{64, 1, 4, 16, DType::kF32};
  for (const LabelKind kind : kKinds) {
    for (const float size : {0.0f, 1e-30f, 1e4f}) {
      Labelled pages(shape, kind, 2, 11);
      for (int32_t t = 0; t < 16; ++t) {
        pages.memory().set_key(0, 0, t, random_floats(64, t, size));
        pages.memory().set_key(1, 0, t, random_floats(64, 50 + t, size));
      }
      pages.make(best_isa(), {0, 1});
      const std::vector<float> q = random_floats(4 * 64, 12, std::max(size, 1e-20f));
      const auto first = pages.score(Isa::kBaseline, 4, q, {0, 1}, {{0, 1}}, 0.125f);
      for (const Isa isa : machine_isas()) {
        const auto scores = pages.score(isa, 4, q, {0, 1}, {{0, 1}}, 0.125f);
        EXPECT_TRUE(same_bits(scores, first));
        for (const float score : scores) {
          EXPECT_TRUE(std::isfinite(score));
          if (size < 1) {
            EXPECT_NEAR(score, std::log(16.0), 1e-3);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::kernels
