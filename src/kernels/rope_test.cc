#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "base/test_pool_internal.h"
#include "kernels/ref/rope.h"
#include "kernels/test_support.h"
#include "tensor/half.h"

namespace weft::kernels {
namespace {

using testing::Guarded;
using testing::machine_isas;
using testing::random_floats;
using testing::same_bits;

constexpr float kGuard = -12345.0f;
constexpr double kEpsilon = std::numeric_limits<float>::epsilon() / 2;

RopeParams params_of(RopePairing pairing, int32_t n_dims) {
  RopeParams params{.pairing = pairing, .n_dims = n_dims, .inverse_frequencies = {}};
  for (int32_t i = 0; i < n_dims / 2; ++i) {
    params.inverse_frequencies.push_back(std::pow(100000.0, -2.0 * i / n_dims));
  }
  return params;
}

struct Case {
  RopePairing pairing;
  int32_t head_dim, n_dims;
};

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const RopePairing pairing : {RopePairing::kNorm, RopePairing::kNeox}) {
    for (const auto& [head_dim, n_dims] : {std::pair{8, 8},
                                           {8, 4},
                                           {24, 24},
                                           {64, 64},
                                           {64, 16},
                                           {80, 20},
                                           {80, 32},
                                           {96, 96},
                                           {96, 48},
                                           {96, 72},
                                           {128, 128},
                                           {256, 256},
                                           {256, 64},
                                           {256, 0},
                                           {64, 0},
                                           {64, 2}}) {
      list.push_back({pairing, head_dim, n_dims});
    }
  }
  return list;
}

const std::vector<int32_t> kPositions = {0, 1, 7, 100, 4095, 8191, 131071};

// cos and sin round once, the two products and the sum once each.
double bound(double a, double b) { return 4 * kEpsilon * (std::abs(a) + std::abs(b)); }

TEST(Rope, EqualsTheScalarTwin) {
  for (const Case& c : cases()) {
    constexpr int32_t kHeads = 3;
    RopeParams params = params_of(c.pairing, c.n_dims);
    params.magnitude = 1.25f;
    const RopeTable table = make_rope_table(params, kPositions);
    const auto row_floats = static_cast<size_t>(kHeads * c.head_dim);
    const std::vector<float> x = random_floats(kPositions.size() * row_floats, 1);
    for (const Isa isa : machine_isas()) {
      SCOPED_TRACE(::testing::Message() << isa_name(isa) << " " << c.head_dim << " " << c.n_dims);
      TestPool pool(2);
      Guarded<float> rotated(x, kGuard);
      apply_rope({.pool = pool, .isa = isa}, table, 0, rotated.data(),
                 static_cast<int64_t>(kPositions.size()), kHeads, c.head_dim);
      rotated.check();
      const std::vector<float> out = rotated.values();
      for (size_t r = 0; r < kPositions.size() * kHeads; ++r) {
        std::vector<double> expected(static_cast<size_t>(c.head_dim));
        const float* head = x.data() + r * expected.size();
        ref::rotate(params, kPositions[r / kHeads], head, c.head_dim, expected.data());
        for (size_t i = 0; i < expected.size(); ++i) {
          const double tolerance = static_cast<int32_t>(i) < c.n_dims ? 1.25 * bound(4, 4) : 0;
          ASSERT_NEAR(out[r * expected.size() + i], expected[i], tolerance) << r << " " << i;
        }
      }
    }
  }
}

TEST(Rope, DeltaRotationIsRotationAtTheNewPosition) {
  for (const Case& c : cases()) {
    const RopeParams params = params_of(c.pairing, c.n_dims);
    const auto n = static_cast<size_t>(c.head_dim);
    const std::vector<float> x = random_floats(n, 2);
    for (const Isa isa : machine_isas()) {
      TestPool pool(1);
      const Context context{.pool = pool, .isa = isa};
      const auto rotate = [&](std::vector<float> values, int32_t by) {
        apply_rope(context, make_rope_table(params, std::vector<int32_t>{by}), 0, values.data(), 1,
                   1, c.head_dim);
        return values;
      };
      const std::vector<float> at_once = rotate(x, 3000);
      const std::vector<float> shifted = rotate(rotate(x, 1700), 1300);
      const std::vector<float> back = rotate(rotate(x, 3500), -500);
      for (size_t i = 0; i < n; ++i) {
        ASSERT_NEAR(shifted[i], at_once[i], 3 * bound(4, 4)) << isa_name(isa) << " " << i;
        ASSERT_NEAR(back[i], at_once[i], 3 * bound(4, 4)) << isa_name(isa) << " " << i;
      }
    }
  }
}

TEST(Rope, TheMagnitudeScalesWhatIsRotatedAndNothingElse) {
  for (const RopePairing pairing : {RopePairing::kNorm, RopePairing::kNeox}) {
    RopeParams params = params_of(pairing, 32);
    params.magnitude = 2.0f;  // a power of two scales every rounding with it
    const RopeTable doubled = make_rope_table(params, kPositions);
    params.magnitude = 1.0f;
    const RopeTable table = make_rope_table(params, kPositions);
    const auto n_rows = static_cast<int64_t>(kPositions.size());
    const std::vector<float> x = random_floats(kPositions.size() * 80, 5);
    for (const Isa isa : machine_isas()) {
      TestPool pool(1);
      const Context context{.pool = pool, .isa = isa};
      std::vector<float> a = x, b = x;
      apply_rope(context, table, 0, a.data(), n_rows, 1, 80);
      apply_rope(context, doubled, 0, b.data(), n_rows, 1, 80);
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(b[i], i % 80 < 32 ? 2 * a[i] : x[i]) << isa_name(isa) << " " << i;
      }
    }
  }
}

TEST(RotateIntoPages, WithoutDimsCopiesEveryHalf) {
  constexpr int32_t kPageTokens = 16, kHeadDim = 80;
  const RopeTable table = make_rope_table({}, std::vector<int32_t>{});
  std::vector<uint16_t> k(3 * kHeadDim), v(k.size());
  std::iota(k.begin(), k.end(), uint16_t{0x7bf0});  // infinity and quiet NaNs among them
  std::iota(v.begin(), v.end(), uint16_t{0x7c01});  // signalling NaNs too: V is copied
  for (size_t i = 0x7c01 - 0x7bf0; i < k.size(); ++i) k[i] = static_cast<uint16_t>(0x8000 + i);
  const std::vector<int32_t> block_table = {1};
  for (const Isa isa : machine_isas()) {
    std::vector<uint16_t> k_pages(2 * kPageTokens * kHeadDim), v_pages = k_pages;
    TestPool pool(1);
    rotate_into_pages({.pool = pool, .isa = isa}, table, 0, k.data(), v.data(), 3, 0,
                      block_table.data(),
                      {k_pages.data(), v_pages.data(), kPageTokens, 1, kHeadDim});
    const auto at = static_cast<std::ptrdiff_t>(kPageTokens * kHeadDim);
    EXPECT_TRUE(std::equal(k.begin(), k.end(), k_pages.begin() + at)) << isa_name(isa);
    EXPECT_TRUE(std::equal(v.begin(), v.end(), v_pages.begin() + at)) << isa_name(isa);
  }
}

TEST(RotateIntoPages, IsWidenRotateNarrowAndTouchesNothingElse) {
  for (const Case& c : cases()) {
    constexpr int32_t kKvHeads = 3, kPageTokens = 16, kPages = 12;
    constexpr int64_t kTokens = 70;
    constexpr int32_t kFirst = 21;
    const std::vector<int32_t> block_table = {7, 2, 9, 0, 11, 5};
    const RopeParams params = params_of(c.pairing, c.n_dims);
    std::vector<int32_t> positions(kTokens + 2);
    std::iota(positions.begin(), positions.end(), kFirst - 2);
    const RopeTable table = make_rope_table(params, positions);  // the chunk begins at row 2

    const auto n = static_cast<size_t>(kTokens * kKvHeads * c.head_dim);
    const std::vector<float> k = random_floats(n, 3), v = random_floats(n, 4);
    std::vector<uint16_t> k_raw(n), v_raw(n);
    for (size_t i = 0; i < n; ++i) k_raw[i] = f16_from_f32(k[i]), v_raw[i] = f16_from_f32(v[i]);

    for (const Isa isa : machine_isas()) {
      SCOPED_TRACE(::testing::Message() << isa_name(isa) << " " << c.head_dim << " " << c.n_dims);
      std::vector<uint16_t> k_pages(
          static_cast<size_t>(kPages * kKvHeads * kPageTokens * c.head_dim), 0x7e00);
      std::vector<uint16_t> v_pages = k_pages, expected_k = k_pages, expected_v = k_pages;
      std::vector<float> rotated(n);
      for (size_t i = 0; i < n; ++i) rotated[i] = f32_from_f16(k_raw[i]);
      TestPool one(1);
      apply_rope({.pool = one, .isa = isa}, table, 2, rotated.data(), kTokens, kKvHeads,
                 c.head_dim);
      PagedKv kv{k_pages.data(), v_pages.data(), kPageTokens, kKvHeads, c.head_dim};
      for (size_t i = 0; i < n; ++i) {
        const auto d = static_cast<int64_t>(i) % c.head_dim;
        const auto head = static_cast<int32_t>(static_cast<int64_t>(i) / c.head_dim % kKvHeads);
        const int64_t token = static_cast<int64_t>(i) / c.head_dim / kKvHeads;
        const auto at =
            static_cast<size_t>(kv_offset(kv, block_table.data(), kFirst + token, head) + d);
        expected_k[at] = f16_from_f32(rotated[i]);
        expected_v[at] = v_raw[i];
      }
      for (const int n_threads : {1, 3}) {
        TestPool pool(n_threads);
        rotate_into_pages({.pool = pool, .isa = isa}, table, 2, k_raw.data(), v_raw.data(), kTokens,
                          kFirst, block_table.data(), kv);
        EXPECT_EQ(k_pages, expected_k);
        EXPECT_EQ(v_pages, expected_v);
      }
    }
  }
}

// K and V shifted, the same for every token of a head, before rotation and rounding.
TEST(RotateIntoPages, AShiftIsAddedBeforeRotationAndRounding) {
  for (const Case& c : cases()) {
    constexpr int32_t kKvHeads = 3, kPageTokens = 16, kPages = 8;
    constexpr int64_t kTokens = 70;
    constexpr int32_t kFirst = 5;
    const std::vector<int32_t> block_table = {7, 2, 4, 0, 1};
    const RopeParams params = params_of(c.pairing, c.n_dims);
    std::vector<int32_t> positions(kTokens);
    std::iota(positions.begin(), positions.end(), kFirst);
    const RopeTable table = make_rope_table(params, positions);

    const auto n = static_cast<size_t>(kTokens * kKvHeads * c.head_dim);
    const auto width = static_cast<size_t>(kKvHeads * c.head_dim);
    const std::vector<float> k = random_floats(n, 6), v = random_floats(n, 7);
    const std::vector<float> k_shift = random_floats(width, 8), v_shift = random_floats(width, 9);
    std::vector<uint16_t> k_raw(n), v_raw(n), expected_v(n);
    std::vector<float> shifted(n);
    for (size_t i = 0; i < n; ++i) {
      k_raw[i] = f16_from_f32(k[i]), v_raw[i] = f16_from_f32(v[i]);
      shifted[i] = f32_from_f16(k_raw[i]) + k_shift[i % width];
      expected_v[i] = f16_from_f32(f32_from_f16(v_raw[i]) + v_shift[i % width]);
    }
    for (const Isa isa : machine_isas()) {
      SCOPED_TRACE(::testing::Message() << isa_name(isa) << " " << c.head_dim << " " << c.n_dims);
      std::vector<float> rotated = shifted;
      TestPool one(1);
      apply_rope({.pool = one, .isa = isa}, table, 0, rotated.data(), kTokens, kKvHeads,
                 c.head_dim);
      std::vector<uint16_t> k_pages(
          static_cast<size_t>(kPages * kKvHeads * kPageTokens * c.head_dim), 0x7e00);
      std::vector<uint16_t> v_pages = k_pages;
      const PagedKv kv{k_pages.data(), v_pages.data(), kPageTokens, kKvHeads, c.head_dim};
      TestPool pool(3);
      rotate_into_pages({.pool = pool, .isa = isa}, table, 0, k_raw.data(), v_raw.data(), kTokens,
                        kFirst, block_table.data(), kv, {k_shift.data(), v_shift.data()});
      // The same in two steps: K is rounded before the shift as well.
      std::vector<uint16_t> k_twice(k_pages.size(), 0x7e00), v_twice = k_twice;
      const PagedKv twice{k_twice.data(), v_twice.data(), kPageTokens, kKvHeads, c.head_dim};
      rotate_into_pages({.pool = pool, .isa = isa}, table, 0, k_raw.data(), v_raw.data(), kTokens,
                        kFirst, block_table.data(), twice);
      shift_in_pages({.pool = pool, .isa = isa}, table, 0, {k_shift.data(), v_shift.data()},
                     kTokens, kFirst, block_table.data(), twice);
      EXPECT_EQ(v_twice, v_pages);
      for (size_t i = 0; i < n; ++i) {
        const auto d = static_cast<int64_t>(i) % c.head_dim;
        const auto head = static_cast<int32_t>(static_cast<int64_t>(i) / c.head_dim % kKvHeads);
        const int64_t token = static_cast<int64_t>(i) / c.head_dim / kKvHeads;
        const auto at =
            static_cast<size_t>(kv_offset(kv, block_table.data(), kFirst + token, head) + d);
        ASSERT_EQ(k_pages[at], f16_from_f32(rotated[i])) << i;
        ASSERT_EQ(v_pages[at], expected_v[i]) << i;
        ASSERT_NEAR(f32_from_f16(k_twice[at]), rotated[i], 8 * 0x1p-11) << i;  // values up to 4
      }
      const std::vector<uint16_t> before = k_twice;
      shift_in_pages({.pool = pool, .isa = isa}, table, 0, {}, kTokens, kFirst, block_table.data(),
                     twice);
      EXPECT_EQ(k_twice, before);
    }
  }
}

}  // namespace
}  // namespace weft::kernels
