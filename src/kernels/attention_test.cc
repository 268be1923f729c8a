#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/kv_codec.h"
#include "kernels/kv_codec_internal.h"
#include "kernels/ref/attention.h"
#include "kernels/ref/kv_codec.h"
#include "support/attention_step.h"
#include "support/instruction_sets.h"
#include "support/kv_types.h"
#include "support/numbers.h"
#include "support/test_pool.h"

namespace weft::kernels {
namespace {

using test::Guarded;
using test::machine_isas;
using test::random_floats;
using test::same_bits;
using test::TestPool;

/// What decode adds to the error where weights are 16 bits as a share of the largest of a block of
/// keys: half a step each, and by the root of their number, as they are independent.
double weight_error(const Shape& shape, int64_t n_keys) {
  const bool has_integer_weights = is_quantised(shape.types.v);
  return has_integer_weights ? 0x1p-16 * std::sqrt(1.0 * std::min<int64_t>(n_keys, 64)) : 0;
}

/// Whether the set's kernel makes integers of the step's queries: decode's over K in blocks.
bool has_integer_queries(const Step& step, Isa isa) {
  return kv_codec(isa, step.shape.types.k).prepare_queries != nullptr &&
         step.sequences.front().kernel_class == KernelClass::kDecode;
}

/// What the scalar twin gives for queries that are int8 with a scale per 32.
ref::AttentionResult expected_of_integers(Step step) {
  for (size_t begin = 0; begin < step.q.size(); begin += 32) {
    const std::span<float> block = std::span(step.q).subspan(begin, 32);
    float most = 0;
    for (const float q : block) most = std::max(most, std::abs(q));
    for (float& q : block) q = std::nearbyint(q * (127 / most)) * (most / 127);
  }
  return ref::attention(step.args(), std::ssize(step.slots));
}

TEST(Attention, EqualsTheScalarTwinOnEveryShapeAndType) {
  std::vector<Shape> shapes = {{8, 1, 1, 16},    {8, 4, 2, 16},   {24, 2, 3, 32},
                               {64, 3, 3, 64},   {64, 2, 8, 128}, {80, 2, 1, 16},
                               {128, 2, 4, 256}, {256, 1, 4, 64}, {96, 1, 5, 32}};
  for (const KvTypes& types : test::kv_type_pairs()) {
    if (test::has_blocks(types)) {
      shapes.push_back({32, 1, 1, 32, types});
      shapes.push_back({64, 1, 7, 16, types});
      shapes.push_back({96, 1, 4, 16, types});
    } else {
      shapes.push_back({24, 2, 3, 32, types});
      shapes.push_back({64, 3, 4, 16, types});
    }
  }
  shapes.push_back({256, 1, 2, 64, {DType::kQ8_0, DType::kQ8_0}});
  for (const Shape& shape : shapes) {
    Pages pages(shape, 64);
    const std::vector<int32_t> table = pages.add(330, 1);
    for (const std::vector<int32_t>& rows :
         {range(0, 330), range(0, 63), range(60, 70), range(128, 133), range(7, 11),
          std::vector<int32_t>{329}, std::vector<int32_t>{0, 5, 63, 64, 127, 200, 255, 256, 329},
          std::vector<int32_t>{0}}) {
      Step step{.shape = shape, .kv = pages.kv()};
      step.add(table, rows);
      const auto expected = ref::attention(step.args(), std::ssize(rows));
      for (const Isa isa : machine_isas()) {
        SCOPED_TRACE(::testing::Message()
                     << isa_name(isa) << " head_dim " << shape.head_dim << " group " << shape.group
                     << " pages of " << shape.page_tokens << ", K "
                     << dtype_info(shape.types.k).name << ", V " << dtype_info(shape.types.v).name
                     << ", rows " << rows.front() << " to " << rows.back());
        expect_close(run(step, isa, 2),
                     has_integer_queries(step, isa) ? expected_of_integers(step) : expected,
                     tolerance(shape, 330) + weight_error(shape, 330));
      }
    }
  }
}

TEST(Attention, EqualsTheScalarTwinAroundBlockAndSplitBorders) {
  const Shape shape{64, 1, 3, 16};
  Pages pages(shape, 70);
  const std::vector<int32_t> table = pages.add(1030, 2);
  for (const int32_t last : {0, 1, 15, 16, 62, 63, 64, 65, 510, 511, 512, 513, 1023, 1024, 1029}) {
    for (const int32_t n_rows : {1, 4, 5, 33}) {
      if (n_rows > last + 1) continue;
      Step step{.shape = shape, .kv = pages.kv()};
      step.add(table, range(last + 1 - n_rows, last + 1));
      const auto expected = ref::attention(step.args(), n_rows);
      for (const Isa isa : machine_isas()) {
        SCOPED_TRACE(::testing::Message() << isa_name(isa) << " " << n_rows << " rows to " << last);
        expect_close(run(step, isa, 1), expected, tolerance(shape, last + 1));
      }
    }
  }
}

TEST(Attention, ARowDoesNotDependOnItsNeighboursNorOnTheThreads) {
  const Shape shape{64, 2, 3, 32};
  Pages pages(shape, 64);
  const std::vector<int32_t> a = pages.add(700, 3);
  const std::vector<int32_t> b = pages.add(650, 4, a, 5);  // shares 160 tokens
  const std::vector<int32_t> scattered = {3, 64, 65, 66, 200, 333, 334, 511, 512, 600, 649};
  for (const Isa isa : machine_isas()) {
    SCOPED_TRACE(isa_name(isa));
    Step step{.shape = shape, .kv = pages.kv()};
    step.add(a, range(0, 700));
    step.add(b, scattered);
    step.add(a, {699});
    step.add(b, {0, 64, 600, 649});
    const Result together = run(step, isa, 1);
    for (const int n_threads : {2, 5}) {
      const Result again = run(step, isa, n_threads);
      EXPECT_TRUE(same_bits(together.out, again.out));
      EXPECT_TRUE(same_bits(together.log_sum_exp, again.log_sum_exp));
    }
    const auto row_floats = step.q.size() / step.slots.size();
    const auto expect_same = [&](const std::vector<int32_t>& table, std::vector<int32_t> rows,
                                 size_t first_row) {
      Step part{.shape = shape, .kv = pages.kv()};
      part.add(table, rows);
      const Result alone = run(part, isa, 2);
      const auto begin = together.out.begin() + (first_row * row_floats);
      const std::vector<float> whole(begin, begin + alone.out.size());
      EXPECT_TRUE(same_bits(alone.out, whole)) << "rows from " << rows.front();
    };
    // Chunks of the prefill, in odd sizes; then the other sequences alone.
    for (int32_t first = 0, n = 5; first < 700; first += n, n = n * 2 + 1) {
      const int32_t end = 700 - (first + n) < 5 ? 700 : first + n;
      expect_same(a, range(first, end), first);
      n = end - first;
    }
    expect_same(b, scattered, 700);
    expect_same(a, {699}, 711);
    expect_same(b, {0, 64, 600, 649}, 712);
    expect_same(b, {600}, 714);
  }
}

TEST(Attention, ARowOfEitherClassDoesNotDependOnHowManyThereAre) {
  const Shape shape{64, 2, 3, 32};
  Pages pages(shape, 64);
  const std::vector<int32_t> table = pages.add(1200, 31);
  const std::vector<int32_t> rows = {0, 1, 63, 64, 200, 333, 511, 512, 600, 1023, 1024, 1199};
  for (const int32_t window_tokens : {0, 100}) {
    for (const Isa isa : machine_isas()) {
      for (const KernelClass kernel_class : {KernelClass::kPrefill, KernelClass::kDecode}) {
        SCOPED_TRACE(::testing::Message() << isa_name(isa) << " window " << window_tokens);
        Step all{.shape = shape, .kv = pages.kv(), .window_tokens = window_tokens};
        all.add(table, {17, 18}, KernelClass::kPrefill);
        all.add(table, rows, kernel_class);
        all.add(table, {5, 700}, KernelClass::kDecode);
        const Result together = run(all, isa, 3);
        const size_t row_floats = all.q.size() / all.slots.size();
        for (size_t i = 0; i < rows.size(); ++i) {
          Step one{.shape = shape, .kv = pages.kv(), .window_tokens = window_tokens};
          one.add(table, {rows[i]}, kernel_class);
          const auto begin = together.out.begin() + ((i + 2) * row_floats);
          EXPECT_TRUE(same_bits(run(one, isa, 2).out, {begin, begin + row_floats})) << rows[i];
        }
      }
    }
  }
}

TEST(Attention, KeysThatARowMayNotSeeMayHoldAnything) {
  const Shape shape{24, 1, 2, 16};
  for (const Isa isa : machine_isas()) {
    SCOPED_TRACE(isa_name(isa));
    Pages pages(shape, 32);
    const std::vector<int32_t> table = pages.add(200, 5);
    const std::vector<int32_t> early = {0, 3, 64, 65, 99};
    Step step{.shape = shape, .kv = pages.kv()};
    step.add(table, {0, 3, 64, 65, 99, 120, 199});
    const Result clean = run(step, isa, 1);
    // Position 100 turns to NaN: the rows before it, in the same tile, must not notice.
    pages.poison(table, 100, 0);
    const Result poisoned = run(step, isa, 1);
    const size_t n_early = early.size() * 2 * 24;
    for (size_t i = 0; i < clean.out.size(); ++i) {
      if (i < n_early) {
        ASSERT_EQ(clean.out[i], poisoned.out[i]) << i;
      } else {
        ASSERT_TRUE(std::isnan(poisoned.out[i])) << i;
      }
    }
    Step few{.shape = shape, .kv = pages.kv()};
    few.add(table, {3, 99, 100});
    const Result decoded = run(few, isa, 1);
    for (size_t i = 0; i < decoded.out.size(); ++i) {
      ASSERT_EQ(std::isnan(decoded.out[i]), i >= 2 * 2 * 24) << i;
    }
  }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  const Shape shape{64, 1, 1, 64};
  Pages pages(shape, 8);
  const std::vector<int32_t> table = pages.add(300, 6);
  for (const std::vector<int32_t>& rows : {range(0, 300), std::vector<int32_t>{299}}) {
    Step step{.shape = shape, .kv = pages.kv()};
    step.add(table, rows);
    for (float& q : step.q) q *= 200.0f;  // scores of about 200: exp of them is infinite
    const auto expected = ref::attention(step.args(), std::ssize(rows));
    for (const Isa isa : machine_isas()) {
      SCOPED_TRACE(isa_name(isa));
      expect_close(run(step, isa, 1), expected, 200 * tolerance(shape, 300));
    }
  }
}

/// Makes NaN of what the sequence's rows do not see, and of its pages without such keys a table
/// entry that nothing can be read through.
void hide_unseen(Pages& pages, std::vector<int32_t>& table, const std::vector<int32_t>& rows,
                 int32_t window_tokens) {
  const KvLayout kv = pages.kv().layout;
  const size_t page_tokens = kv.page_tokens;
  std::vector<bool> seen(table.size() * page_tokens);
  for (const int32_t p : rows) {
    for (int32_t j = std::max(0, p - window_tokens + 1); j <= p; ++j) {
      seen[j] = true;
    }
  }
  for (size_t j = 0; j < seen.size(); ++j) {
    if (seen[j]) continue;
    for (int32_t head = 0; head < kv.n_kv_heads; ++head) {
      pages.poison(table, j, head);
    }
  }
  for (size_t page = 0; page < table.size(); ++page) {
    const auto begin = seen.begin() + (page * page_tokens);
    if (std::count(begin, begin + kv.page_tokens, true) == 0) table[page] = 1 << 28;
  }
}

TEST(AttentionWindow, EqualsTheScalarTwinAndReadsNothingElse) {
  const std::vector<Shape> shapes = {{24, 2, 3, 32},  {64, 2, 8, 64},
                                     {80, 1, 7, 16},  {96, 2, 1, 16, {DType::kF32, DType::kBF16}},
                                     {256, 1, 4, 16}, {24, 2, 3, 16, {DType::kBF16, DType::kF32}}};
  const std::vector<std::vector<int32_t>> rows_of_steps = {range(0, 260),
                                                           range(290, 310),
                                                           range(500, 504),
                                                           {0},
                                                           {599},
                                                           {575},
                                                           {3, 130, 598},
                                                           {0, 5, 63, 64, 127, 200, 255, 256, 599},
                                                           {100, 101, 102, 103, 595, 596, 597}};
  for (const Shape& shape : shapes) {
    Pages all_pages(shape, 64);
    const std::vector<int32_t> all_table = all_pages.add(600, 21);
    for (const std::vector<int32_t>& rows : rows_of_steps) {
      for (const int32_t window_tokens : {1, 5, 64, 130, 512}) {
        Pages pages = all_pages;
        std::vector<int32_t> table = all_table;
        hide_unseen(pages, table, rows, window_tokens);
        Step step{.shape = shape, .kv = pages.kv(), .window_tokens = window_tokens};
        step.add(table, rows);
        const auto expected = ref::attention(step.args(), std::ssize(rows));
        const std::vector<double> received = ref::attention_received(step.args(), 590);
        for (const Isa isa : machine_isas()) {
          SCOPED_TRACE(::testing::Message()
                       << isa_name(isa) << " head_dim " << shape.head_dim << ", window "
                       << window_tokens << ", rows " << rows.front() << " to " << rows.back());
          Result result = run(step, isa, 2);
          expect_close(result, expected, tolerance(shape, window_tokens));
          AttentionArgs args = step.args();
          args.log_sum_exp = {result.log_sum_exp, args.n_heads};
          TestPool pool(2);
          Guarded<float> sums(std::vector<float>(590), kGuard);
          attention_received({.pool = pool, .isa = isa}, args, std::span(sums.data(), 590));
          sums.check();
          const std::vector<float> values = sums.values();
          for (size_t j = 0; j < received.size(); ++j) {
            ASSERT_NEAR(values[j], received[j], (tolerance(shape, 512) * 2 + 6e-8) * received[j])
                << j;
          }
        }
      }
    }
  }
}

TEST(AttentionWindow, DecodeOverBlocksEqualsTheScalarTwinAndReadsNothingElse) {
  for (const DType type : {DType::kQ8_0, DType::kQ4_0}) {
    for (const Shape& shape : {Shape{64, 2, 4, 64, {type, type}},
                               {32, 1, 1, 16, {type, DType::kF16}},
                               {96, 1, 6, 32, {DType::kF16, type}},
                               {128, 1, 9, 128, {type, type}}}) {
      Pages all_pages(shape, 64);
      const std::vector<int32_t> all_table = all_pages.add(600, 41);
      for (const std::vector<int32_t>& rows :
           {std::vector<int32_t>{599}, {575}, {63}, {0}, {3, 130, 598}}) {
        for (const int32_t window_tokens : {1, 5, 17, 64, 130, 512}) {
          Pages pages = all_pages;
          std::vector<int32_t> table = all_table;
          hide_unseen(pages, table, rows, window_tokens);
          Step step{.shape = shape, .kv = pages.kv(), .window_tokens = window_tokens};
          step.add(table, rows);
          const auto expected = ref::attention(step.args(), std::ssize(rows));
          for (const Isa isa : machine_isas()) {
            SCOPED_TRACE(::testing::Message() << isa_name(isa) << " " << dtype_info(type).name
                                              << " head_dim " << shape.head_dim << ", window "
                                              << window_tokens << ", rows to " << rows.back());
            expect_close(run(step, isa, 2),
                         has_integer_queries(step, isa) ? expected_of_integers(step) : expected,
                         tolerance(shape, window_tokens) + weight_error(shape, window_tokens));
          }
        }
      }
    }
  }
}

TEST(Attention, ScalesOfVMayHaveEitherSignAndWhatIsNotFiniteShows) {
  const Shape shape{64, 1, 3, 16, {DType::kF16, DType::kQ8_0}};
  for (const Isa isa : machine_isas()) {
    SCOPED_TRACE(isa_name(isa));
    Pages pages(shape, 16);
    const std::vector<int32_t> table = pages.add(200, 42);
    // A file may hold what no rounding makes: the second block of key 70 the other way round.
    uint8_t* const scale = v_at(pages.kv(), table.data(), 70, 0) + 34;
    scale[1] ^= 0x80;
    Step step{.shape = shape, .kv = pages.kv()};
    step.add(table, {64, 199});
    expect_close(run(step, isa, 1), ref::attention(step.args(), 2),
                 tolerance(shape, 200) + weight_error(shape, 200));
    scale[0] = 0;
    scale[1] = 0x7c;  // infinity
    const Result poisoned = run(step, isa, 1);
    for (size_t i = 0; i < poisoned.out.size(); ++i) {
      const bool sees = i >= poisoned.out.size() / 2 && i % 64 >= 32;
      ASSERT_EQ(std::isfinite(poisoned.out[i]), !sees) << i;
    }
  }
}

// Heads of a group are quantised, and their softmax is done, some at a time.
TEST(Attention, AQueryThatIsNotFiniteShowsInItsHeadAndChangesNoBitOfAnother) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const DType type : test::kv_types()) {
    const Shape shape{64, 2, 5, 32, {type, type}};
    Pages pages(shape, 8);
    Step step{.shape = shape, .kv = pages.kv()};
    step.add(pages.add(200, 43), {199});
    for (const Isa isa : machine_isas()) {
      const Result clean = run(step, isa, 1);
      for (const float bad : {std::nanf(""), kInfinity, -kInfinity}) {
        for (const int32_t head : {0, 3, 4, 9}) {
          SCOPED_TRACE(::testing::Message() << isa_name(isa) << " " << dtype_info(type).name << " "
                                            << bad << " in head " << head);
          Step poisoned = step;
          poisoned.q[head * 64 + 40] = bad;
          const Result result = run(poisoned, isa, 1);
          for (int32_t i = 0; i < 10 * 64; ++i) {
            if (i / 64 == head) {
              ASSERT_FALSE(std::isfinite(result.out[i])) << i;
            } else {
              ASSERT_EQ(result.out[i], clean.out[i]) << i;
            }
          }
        }
      }
    }
  }
}

TEST(AttentionWindow, ARowDoesNotDependOnItsNeighboursNorOnTheThreads) {
  const Shape shape{64, 2, 3, 32};
  constexpr int32_t kTokens = 700;
  Pages pages(shape, 64);
  const std::vector<int32_t> table = pages.add(kTokens, 22);
  for (const int32_t window_tokens : {3, 64, 100, 513}) {
    for (const Isa isa : machine_isas()) {
      SCOPED_TRACE(::testing::Message() << isa_name(isa) << ", window " << window_tokens);
      const auto rows_alone = [&](const std::vector<int32_t>& rows, int n_threads) {
        Step step{.shape = shape, .kv = pages.kv(), .window_tokens = window_tokens};
        step.add(table, rows);
        return run(step, isa, n_threads).out;
      };
      const std::vector<float> whole = rows_alone(range(0, kTokens), 1);
      EXPECT_TRUE(same_bits(whole, rows_alone(range(0, kTokens), 5)));
      const size_t row_floats = whole.size() / kTokens;
      // Rows with neighbours near and far, so that blocks are skipped or gone through masked.
      for (const std::vector<int32_t>& rows : {range(0, 50),
                                               range(111, 130),
                                               range(500, 700),
                                               {5, 6, 7, 8, 699},
                                               {0, 63, 64, 65, 66, 200, 333, 511, 512, 600},
                                               {90, 300, 301, 302, 690}}) {
        const std::vector<float> alone = rows_alone(rows, 2);
        for (size_t r = 0; r < rows.size(); ++r) {
          const auto a = alone.begin() + (r * row_floats);
          const auto b = whole.begin() + (rows[r] * row_floats);
          const int64_t n = row_floats;
          ASSERT_TRUE(same_bits(std::vector<float>(a, a + n), std::vector<float>(b, b + n)))
              << rows[r];
        }
      }
      for (const int32_t row : {0, 99, 640}) {
        EXPECT_TRUE(same_bits(rows_alone({row}, 1), rows_alone({row}, 3)));
        const std::vector<float> two = rows_alone({row, row + 1}, 2);
        EXPECT_TRUE(same_bits(rows_alone({row}, 1), {two.begin(), two.begin() + row_floats}));
      }
    }
  }
}

TEST(AttentionWindow, ThatCoversTheContextChangesNoBit) {
  const Shape shape{80, 2, 2, 16};
  Pages pages(shape, 64);
  const std::vector<int32_t> table = pages.add(600, 23);
  for (const std::vector<int32_t>& rows : {range(0, 600), {599}, {0, 64, 599}}) {
    for (const Isa isa : machine_isas()) {
      Step step{.shape = shape, .kv = pages.kv()};
      step.add(table, rows);
      const Result dense = run(step, isa, 2);
      for (const int32_t window_tokens : {600, 601, std::numeric_limits<int32_t>::max()}) {
        step.window_tokens = window_tokens;
        const Result windowed = run(step, isa, 2);
        EXPECT_TRUE(same_bits(dense.out, windowed.out)) << isa_name(isa) << window_tokens;
        EXPECT_TRUE(same_bits(dense.log_sum_exp, windowed.log_sum_exp));
      }
      step.window_tokens = 599;
      EXPECT_FALSE(same_bits(dense.out, run(step, isa, 2).out));
    }
  }
}

TEST(AttentionSoftcap, EqualsTheScalarTwin) {
  constexpr float kCap = 20.0f;
  for (const Shape& shape : {Shape{24, 2, 3, 32}, Shape{256, 1, 4, 64}}) {
    Pages pages(shape, 32);
    const std::vector<int32_t> table = pages.add(200, 24);
    for (const std::vector<int32_t>& rows : {range(0, 200), {199}, {0, 64, 130}}) {
      for (const float factor : {0.01f, 1.0f, 30.0f}) {  // scores of about that size
        for (const int32_t window_tokens : {0, 70}) {
          Step step{
              .shape = shape, .kv = pages.kv(), .window_tokens = window_tokens, .softcap = kCap};
          step.add(table, rows);
          for (float& q : step.q) q *= factor;
          const auto expected = ref::attention(step.args(), std::ssize(rows));
          const std::vector<double> received = ref::attention_received(step.args(), 200);
          // The cap shrinks a score's error; tanh adds 1e-6 of the capped score, at most of kCap.
          const double bound = std::max(1.0f, factor) * tolerance(shape, 200) + 2e-6 * kCap;
          for (const Isa isa : machine_isas()) {
            SCOPED_TRACE(::testing::Message() << isa_name(isa) << " head_dim " << shape.head_dim
                                              << ", factor " << factor);
            Result result = run(step, isa, 2);
            expect_close(result, expected, bound);
            AttentionArgs args = step.args();
            args.log_sum_exp = {result.log_sum_exp, args.n_heads};
            TestPool pool(2);
            std::vector<float> sums(200);
            attention_received({.pool = pool, .isa = isa}, args, sums);
            for (size_t j = 0; j < received.size(); ++j) {
              ASSERT_NEAR(sums[j], received[j], 2 * bound * received[j] + 1e-30) << j;
            }
          }
        }
      }
    }
  }
}

TEST(AttentionMass, EqualsTheScalarTwin) {
  for (const Shape& shape : {Shape{8, 4, 2, 16}, Shape{64, 3, 3, 64}, Shape{24, 1, 8, 32}}) {
    Pages pages(shape, 64);
    const std::vector<int32_t> table = pages.add(500, 8);
    for (const std::vector<int32_t>& rows :
         {range(400, 500), std::vector<int32_t>{0, 63, 64, 130, 131, 499},
          std::vector<int32_t>{499}}) {
      Step step{.shape = shape, .kv = pages.kv()};
      step.add(table, rows);
      for (const int64_t n_keys : {64, 391, 500}) {
        const std::vector<double> expected = ref::attention_received(step.args(), n_keys);
        for (const Isa isa : machine_isas()) {
          SCOPED_TRACE(::testing::Message()
                       << isa_name(isa) << " head_dim " << shape.head_dim << ", " << n_keys);
          Result result = run(step, isa, 1);
          AttentionArgs args = step.args();
          args.log_sum_exp = {result.log_sum_exp, args.n_heads};
          std::vector<float> first;
          for (const int n_threads : {1, 2, 5}) {
            TestPool pool(n_threads);
            Guarded<float> received(std::vector<float>(n_keys, 0.5f), kGuard);
            attention_received({.pool = pool, .isa = isa}, args,
                               std::span(received.data(), received.size()));
            received.check();
            if (first.empty()) first = received.values();
            EXPECT_TRUE(same_bits(first, received.values()));
          }
          // Each term is a probability off by `tolerance`, relative; 0.5 was there before.
          for (size_t j = 0; j < expected.size(); ++j) {
            ASSERT_NEAR(first[j], expected[j] + 0.5,
                        tolerance(shape, 500) * expected[j] * 2 + 6e-8 * (expected[j] + 0.5))
                << j;
          }
        }
      }
    }
  }
}

TEST(WriteKv, RoundsToNearestEvenAndTouchesNothingElse) {
  std::vector<Shape> shapes = {{8, 3, 1, 16}, {64, 2, 1, 32}, {24, 1, 1, 16}};
  for (const KvTypes& types : test::kv_type_pairs()) {
    shapes.push_back({test::has_blocks(types) ? 96 : 24, 2, 1, 16, types});
  }
  for (const Shape& shape : shapes) {
    for (const Isa isa : machine_isas()) {
      Pages pages(shape, 16);
      const std::vector<int32_t> a = pages.add(40, 9), b = pages.add(20, 10);
      const std::vector<int32_t> slots = {5, 6, 31, 39, 0, 15};
      const size_t row_floats = shape.n_kv_heads * shape.head_dim;
      const std::vector<float> k = random_floats(slots.size() * row_floats, 11, 100.0f);
      const std::vector<float> v = random_floats(slots.size() * row_floats, 12, 0.001f);
      Pages expected = pages;
      for (size_t r = 0; r < slots.size(); ++r) {
        const std::vector<int32_t>& table = r < 4 ? a : b;
        for (int32_t head = 0; head < shape.n_kv_heads; ++head) {
          const size_t at = r * row_floats + head * shape.head_dim;
          ref::set_kv_vector(shape.types.k, &k[at], shape.head_dim,
                             k_at(expected.kv(), table.data(), slots[r], head));
          ref::set_kv_vector(shape.types.v, &v[at], shape.head_dim,
                             v_at(expected.kv(), table.data(), slots[r], head));
        }
      }
      TestPool pool(2);
      const Context context{.pool = pool, .isa = isa};
      const std::vector<AttentionSequence> sequences = {{a.data(), 0, 4}, {b.data(), 4, 6}};
      const int64_t width = std::ssize(k) / std::ssize(slots);
      write_kv(context, pages.kv(), sequences, slots, {k, width}, {v, width});
      EXPECT_EQ(pages.bytes(), expected.bytes()) << isa_name(isa);

      // And back, as the types have them.
      const std::vector<int32_t> read = {39, 5};
      std::vector<float> k_read(2 * row_floats), v_read(2 * row_floats);
      read_kv(context, pages.kv(), a.data(), read, {k_read, width}, {v_read, width});
      for (size_t i = 0; i < 2 * row_floats; ++i) {
        const size_t of_row = i % row_floats;
        const int32_t head = of_row / shape.head_dim;
        const int64_t d = of_row % shape.head_dim;
        const int32_t slot = read[i / row_floats];
        EXPECT_EQ(k_read[i],
                  ref::kv_element(shape.types.k, k_at(pages.kv(), a.data(), slot, head), d));
        EXPECT_EQ(v_read[i],
                  ref::kv_element(shape.types.v, v_at(pages.kv(), a.data(), slot, head), d));
      }
    }
  }
}

}  // namespace
}  // namespace weft::kernels
