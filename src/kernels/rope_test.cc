#include "kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "kernels/kv_codec.h"
#include "kernels/ref/kv_codec.h"
#include "kernels/ref/rope.h"
#include "support/instruction_sets.h"
#include "support/kv_types.h"
#include "support/numbers.h"
#include "support/test_pool.h"

namespace weft::kernels {
namespace {

using test::Guarded;
using test::machine_isas;
using test::random_floats;
using test::TestPool;

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
    const size_t row_floats = kHeads * c.head_dim;
    const std::vector<float> x = random_floats(kPositions.size() * row_floats, 1);
    for (const Isa isa : machine_isas()) {
      SCOPED_TRACE(::testing::Message() << isa_name(isa) << " " << c.head_dim << " " << c.n_dims);
      TestPool pool(2);
      Guarded<float> rotated(x, kGuard);
      const MatrixView<float> rows(rotated.data(), std::ssize(kPositions), kHeads * c.head_dim);
      apply_rope({.pool = pool, .isa = isa}, table, 0, rows, c.head_dim);
      rotated.check();
      const std::vector<float> out = rotated.values();
      for (size_t r = 0; r < kPositions.size() * kHeads; ++r) {
        std::vector<double> expected(c.head_dim);
        const float* head = x.data() + r * expected.size();
        ref::rotate(params, kPositions[r / kHeads], head, c.head_dim, expected.data());
        for (size_t i = 0; i < expected.size(); ++i) {
          const double tolerance = std::cmp_less(i, c.n_dims) ? 1.25 * bound(4, 4) : 0;
          ASSERT_NEAR(out[r * expected.size() + i], expected[i], tolerance) << r << " " << i;
        }
      }
    }
  }
}

TEST(Rope, DeltaRotationIsRotationAtTheNewPosition) {
  for (const Case& c : cases()) {
    const RopeParams params = params_of(c.pairing, c.n_dims);
    const size_t n = c.head_dim;
    const std::vector<float> x = random_floats(n, 2);
    for (const Isa isa : machine_isas()) {
      TestPool pool(1);
      const Context context{.pool = pool, .isa = isa};
      const auto rotate = [&](std::vector<float> values, int32_t by) {
        apply_rope(context, make_rope_table(params, std::vector<int32_t>{by}), 0,
                   {values, c.head_dim}, c.head_dim);
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
    const std::vector<float> x = random_floats(kPositions.size() * 80, 5);
    for (const Isa isa : machine_isas()) {
      TestPool pool(1);
      const Context context{.pool = pool, .isa = isa};
      std::vector<float> a = x, b = x;
      apply_rope(context, table, 0, {a, 80}, 80);
      apply_rope(context, doubled, 0, {b, 80}, 80);
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(b[i], i % 80 < 32 ? 2 * a[i] : x[i]) << isa_name(isa) << " " << i;
      }
    }
  }
}

/// Page memory of NaN, and the elements of its vectors.
struct Pages {
  Pages(int32_t n_pages, const KvLayout& of)
      : layout(of), bytes(n_pages * of.page_tokens * kv_token_bytes(of), 0xff) {}
  PagedKv kv() { return make_paged_kv(layout, reinterpret_cast<std::byte*>(bytes.data())); }
  KvLayout layout;
  std::vector<uint8_t> bytes;
};

/// Values as a record of the type has them, one token after another.
struct Record {
  Record(DType of, const std::vector<float>& k_values, const std::vector<float>& v_values)
      : type(of), k(encoded(of, k_values)), v(encoded(of, v_values)) {}
  static std::vector<uint8_t> encoded(DType of, const std::vector<float>& values) {
    std::vector<uint8_t> bytes(values.size() * row_bytes(of, 1));
    for (size_t i = 0; i < values.size(); ++i) {
      ref::set_kv_element(of, values[i], i, bytes.data());
    }
    return bytes;
  }
  KvRecord get() const {
    return {type, reinterpret_cast<const std::byte*>(k.data()),
            reinterpret_cast<const std::byte*>(v.data())};
  }
  float k_element(size_t i) const { return ref::kv_element(type, k.data(), i); }
  float v_element(size_t i) const { return ref::kv_element(type, v.data(), i); }
  DType type;
  std::vector<uint8_t> k, v;
};

TEST(RotateIntoPages, WithoutDimsCopiesEveryHalf) {
  constexpr int32_t kPageTokens = 16, kHeadDim = 80;
  const RopeTable table = make_rope_table({}, std::vector<int32_t>{});
  std::vector<uint16_t> k(3 * kHeadDim), v(k.size());
  std::iota(k.begin(), k.end(), uint16_t{0x7bf0});  // infinity and quiet NaNs among them
  std::iota(v.begin(), v.end(), uint16_t{0x7c01});  // signalling NaNs too: V is copied
  for (size_t i = 0x7c01 - 0x7bf0; i < k.size(); ++i) k[i] = 0x8000 + i;
  const std::vector<int32_t> block_table = {1};
  for (const Isa isa : machine_isas()) {
    Pages pages(2, {DType::kF16, DType::kF16, kHeadDim, 1, kPageTokens});
    TestPool pool(1);
    rotate_into_pages({.pool = pool, .isa = isa}, table, 0,
                      {DType::kF16, reinterpret_cast<const std::byte*>(k.data()),
                       reinterpret_cast<const std::byte*>(v.data())},
                      3, 0, block_table.data(), pages.kv());
    const uint8_t* const k_there = k_at(pages.kv(), block_table.data(), 0, 0);
    const uint8_t* const v_there = v_at(pages.kv(), block_table.data(), 0, 0);
    EXPECT_EQ(std::memcmp(k.data(), k_there, 2 * k.size()), 0) << isa_name(isa);
    EXPECT_EQ(std::memcmp(v.data(), v_there, 2 * v.size()), 0) << isa_name(isa);
  }
}

/// A record's type, and the pages'.
struct Types {
  DType record, k, v;
};
/// Records are f16 but in two, of which one is all f32.
std::vector<Types> placed_types() {
  std::vector<Types> all = {{DType::kBF16, DType::kBF16, DType::kF16},
                            {DType::kF32, DType::kF32, DType::kF32}};
  for (const KvTypes& types : test::kv_type_pairs()) all.push_back({DType::kF16, types.k, types.v});
  return all;
}

/// Of K that was rounded twice, its values up to 4, and up to 8 with a shift; and turned in f32.
double two_roundings(DType type) { return 2 * 8 * test::kv_error(type) + 16 * kEpsilon * 8; }

// K and V shifted, the same for every token of a head, before rotation and rounding; or not.
void expect_placed(const Case& c, const Types& types, bool is_shifted) {
  if (test::has_blocks({types.k, types.v}) && c.head_dim % 32 != 0) return;
  constexpr int32_t kKvHeads = 3, kPageTokens = 16, kPages = 12;
  constexpr int64_t kTokens = 70;
  constexpr int32_t kFirst = 21;
  const std::vector<int32_t> block_table = {7, 2, 9, 0, 11, 5};
  const RopeParams params = params_of(c.pairing, c.n_dims);
  std::vector<int32_t> positions(kTokens + 2);
  std::iota(positions.begin(), positions.end(), kFirst - 2);
  const RopeTable table = make_rope_table(params, positions);  // the chunk begins at row 2

  const size_t n = kTokens * kKvHeads * c.head_dim;
  const size_t width = kKvHeads * c.head_dim;
  const Record record(types.record, random_floats(n, 3), random_floats(n, 4));
  const std::vector<float> k_shift = random_floats(width, 8), v_shift = random_floats(width, 9);
  const KvShift shift = is_shifted ? KvShift{.k = k_shift, .v = v_shift} : KvShift{};
  for (const Isa isa : machine_isas()) {
    SCOPED_TRACE(::testing::Message() << isa_name(isa) << " " << c.head_dim << " " << c.n_dims
                                      << " " << dtype_info(types.k).name);
    const KvLayout layout{types.k, types.v, c.head_dim, kKvHeads, kPageTokens};
    Pages pages(kPages, layout), expected(kPages, layout);
    std::vector<float> rotated(n);
    for (size_t i = 0; i < n; ++i) {
      rotated[i] = record.k_element(i);
      if (is_shifted) rotated[i] += k_shift[i % width];
    }
    TestPool one(1);
    const int64_t row_floats = kKvHeads * c.head_dim;
    apply_rope({.pool = one, .isa = isa}, table, 2, {rotated, row_floats}, c.head_dim);
    for (size_t i = 0; i < n; i += c.head_dim) {
      const int32_t head = i / c.head_dim % kKvHeads;
      const int64_t slot = kFirst + i / c.head_dim / kKvHeads;
      std::vector<float> v(c.head_dim);
      for (int32_t d = 0; d < c.head_dim; ++d) {
        v[d] = record.v_element(i + d) + (is_shifted ? v_shift[(i + d) % width] : 0.0f);
      }
      ref::set_kv_vector(types.k, &rotated[i], c.head_dim,
                         k_at(expected.kv(), block_table.data(), slot, head));
      ref::set_kv_vector(types.v, v.data(), c.head_dim,
                         v_at(expected.kv(), block_table.data(), slot, head));
    }
    for (const int n_threads : {1, 3}) {
      TestPool pool(n_threads);
      rotate_into_pages({.pool = pool, .isa = isa}, table, 2, record.get(), kTokens, kFirst,
                        block_table.data(), pages.kv(), shift);
      EXPECT_EQ(pages.bytes, expected.bytes);
    }
    if (!is_shifted) continue;
    // The same in two steps: what is placed is rounded before the shift as well.
    Pages twice(kPages, layout);
    TestPool pool(3);
    const Context context{.pool = pool, .isa = isa};
    rotate_into_pages(context, table, 2, record.get(), kTokens, kFirst, block_table.data(),
                      twice.kv());
    const std::vector<uint8_t> before = twice.bytes;
    shift_in_pages(context, table, 2, {}, kTokens, kFirst, block_table.data(), twice.kv());
    EXPECT_EQ(twice.bytes, before);
    shift_in_pages(context, table, 2, shift, kTokens, kFirst, block_table.data(), twice.kv());
    for (int64_t i = 0; types.record == types.v && i < kTokens * kKvHeads; ++i) {
      const int64_t slot = kFirst + i / kKvHeads;
      const int32_t head = i % kKvHeads;
      ASSERT_EQ(
          std::memcmp(v_at(twice.kv(), block_table.data(), slot, head),
                      v_at(expected.kv(), block_table.data(), slot, head), twice.kv().v_bytes),
          0);
    }
    std::vector<int32_t> slots(kTokens);
    std::iota(slots.begin(), slots.end(), kFirst);
    std::vector<float> k(n), v(n);
    read_kv(context, twice.kv(), block_table.data(), slots, {k, row_floats}, {v, row_floats});
    const double bound = two_roundings(types.k);
    for (size_t i = 0; i < n; ++i) ASSERT_NEAR(k[i], rotated[i], bound) << i;
  }
}

TEST(RotateIntoPages, IsWidenRotateNarrowAndTouchesNothingElse) {
  for (const Case& c : cases()) {
    for (const Types& types : placed_types()) expect_placed(c, types, false);
  }
}

// Tokens in slots [kFrom, …) move to kTo in two steps and must be what fresh rotation at their new
// positions gives, but for one rounding more a step.
void expect_moved(const Case& c, const Types& types) {
  if (test::has_blocks({types.k, types.v}) && c.head_dim % 32 != 0) return;
  constexpr int32_t kKvHeads = 2, kPageTokens = 16, kPages = 8, kTokens = 40;
  constexpr int32_t kFrom = 45, kBetween = 30, kTo = 3;
  const std::vector<int32_t> block_table = {6, 1, 4, 0, 7, 3};
  RopeParams params = params_of(c.pairing, c.n_dims);
  params.magnitude = 1.25f;  // is in what is stored, and must not come twice
  const auto table_at = [&](int32_t first) {
    std::vector<int32_t> positions(kTokens);
    std::iota(positions.begin(), positions.end(), first);
    return make_rope_table(params, positions);
  };
  const size_t n = kTokens * kKvHeads * c.head_dim;
  const Record record(types.record, random_floats(n, 3), random_floats(n, 4));
  const KvLayout layout{types.k, types.v, c.head_dim, kKvHeads, kPageTokens};
  for (const Isa isa : machine_isas()) {
    SCOPED_TRACE(::testing::Message() << isa_name(isa) << " " << c.head_dim << " " << c.n_dims);
    TestPool pool(3);
    const Context context{.pool = pool, .isa = isa};
    Pages pages(kPages, layout), fresh(kPages, layout);
    rotate_into_pages(context, table_at(kFrom), 0, record.get(), kTokens, kFrom, block_table.data(),
                      pages.kv());
    rotate_into_pages(context, table_at(kTo), 0, record.get(), kTokens, kTo, block_table.data(),
                      fresh.kv());
    const auto move = [&](int32_t from, int32_t to) {
      RopeParams turn_params = params;
      turn_params.magnitude = 1.0f;
      const int32_t by[] = {to - from};
      const RopeTable turn = make_rope_table(turn_params, by);
      const MovedLayer layers[] = {{pages.kv(), block_table.data(), &turn}};
      move_in_pages(context, layers, kTokens, from, to);
    };
    move(kFrom, kBetween);
    move(kBetween, kTo);
    // Two roundings more than fresh, of a pair as long as 1.25 * sqrt(2) times its largest value
    // (up to 4), each by half a unit of the last place; f32's own are far below.
    // Three roundings of a block, whose largest value is below 8.
    const double bound =
        (is_quantised(types.k) ? 3 : 6) * 8 * test::kv_error(types.k) + 16 * kEpsilon * 8;
    std::vector<int32_t> slots(kTokens);
    std::iota(slots.begin(), slots.end(), kTo);
    const int64_t width = kKvHeads * c.head_dim;
    std::vector<float> k(n), v(n), fresh_k(n), fresh_v(n);
    read_kv(context, pages.kv(), block_table.data(), slots, {k, width}, {v, width});
    read_kv(context, fresh.kv(), block_table.data(), slots, {fresh_k, width}, {fresh_v, width});
    for (size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(k[i], fresh_k[i], bound) << i;
      ASSERT_EQ(v[i], fresh_v[i]) << i;
    }
  }
}

TEST(MoveInPages, IsFreshRotationAtTheNewPositions) {
  for (const Case& c : cases()) {
    for (const Types& types : placed_types()) expect_moved(c, types);
  }
}

// As Self-Extend divides positions: by other angles for each token, and none for the first.
TEST(MoveInPages, InPlaceEachTokenTurnsByItsOwnAngleAndOneThatDoesNotKeepsItsBits) {
  constexpr int32_t kTokens = 24, kHeadDim = 64;
  const RopeParams params = params_of(RopePairing::kNeox, kHeadDim);
  std::vector<int32_t> from(kTokens), to, by;
  std::iota(from.begin(), from.end(), 0);
  for (const int32_t p : from) to.push_back(p / 3), by.push_back(p / 3 - p);
  const std::vector<int32_t> block_table = {1, 0};
  const size_t n = kTokens * kHeadDim;
  for (const DType type : test::kv_types()) {
    const Record record(DType::kF32, random_floats(n, 3), random_floats(n, 4));
    const KvLayout layout{type, type, kHeadDim, 1, 16};
    for (const Isa isa : machine_isas()) {
      TestPool pool(2);
      const Context context{.pool = pool, .isa = isa};
      Pages pages(2, layout), fresh(2, layout);
      rotate_into_pages(context, make_rope_table(params, from), 0, record.get(), kTokens, 0,
                        block_table.data(), pages.kv());
      rotate_into_pages(context, make_rope_table(params, to), 0, record.get(), kTokens, 0,
                        block_table.data(), fresh.kv());
      const RopeTable turn = make_rope_table(params, by);
      const MovedLayer layers[] = {{pages.kv(), block_table.data(), &turn}};
      move_in_pages(context, layers, kTokens, 0, 0);
      std::vector<int32_t> slots(kTokens);
      std::iota(slots.begin(), slots.end(), 0);
      std::vector<float> k(n), v(n), fresh_k(n), fresh_v(n);
      read_kv(context, pages.kv(), block_table.data(), slots, {k, kHeadDim}, {v, kHeadDim});
      read_kv(context, fresh.kv(), block_table.data(), slots, {fresh_k, kHeadDim},
              {fresh_v, kHeadDim});
      EXPECT_EQ(v, fresh_v);
      const double bound = (is_quantised(type) ? 2 : 4) * 8 * test::kv_error(type) + 1e-5;
      for (size_t i = 0; i < n; ++i) ASSERT_NEAR(k[i], fresh_k[i], bound) << i;
      for (size_t i = 0; i < kHeadDim; ++i) ASSERT_EQ(k[i], fresh_k[i]);
    }
  }
}

TEST(RotateIntoPages, AShiftIsAddedBeforeRotationAndRounding) {
  for (const Case& c : cases()) {
    for (const Types& types : placed_types()) expect_placed(c, types, true);
  }
}

}  // namespace
}  // namespace weft::kernels
