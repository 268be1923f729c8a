#include "kernels/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/ref/elementwise.h"
#include "support/instruction_sets.h"
#include "support/numbers.h"
#include "support/test_pool.h"
#include "tensor/half.h"

namespace weft::kernels {
namespace {

using test::Guarded;
using test::machine_isas;
using test::random_floats;
using test::same_bits;
using test::TestPool;

constexpr float kGuard = -12345.0f;
constexpr double kEpsilon = std::numeric_limits<float>::epsilon() / 2;  // one rounding

/// All of it as one row.
MatrixView<float> row_of(Guarded<float>& elements) {
  return {elements.data(), 1, std::ssize(elements)};
}

TEST(RmsNorm, EqualsTheScalarTwin) {
  for (const Isa isa : machine_isas()) {
    for (const int64_t n : {1, 2, 7, 15, 16, 17, 63, 64, 65, 130, 576, 2048}) {
      SCOPED_TRACE(::testing::Message() << isa_name(isa) << " n " << n);
      constexpr int64_t kRows = 5;
      const std::vector<float> x = random_floats(kRows * n, 1);
      const std::vector<float> weight = random_floats(n, 2);
      std::vector<double> expected(x.size());
      ref::rms_norm(x.data(), weight.data(), 1e-5f, kRows, n, expected.data());
      TestPool pool(2);
      const Context context{.pool = pool, .isa = isa};
      Guarded<float> y(x.size(), kGuard);
      rms_norm(context, {x, n}, weight, 1e-5f, {y.data(), kRows, n});
      y.check();
      // The sum of squares has only positive terms: relative error at most the additions that one
      // of them goes through; the root halves it; some five roundings follow.
      const double bound = (n / 8.0 + 16) * kEpsilon;
      const std::vector<float> all = y.values();
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_NEAR(all[i], expected[i], bound * std::abs(expected[i])) << i;
      }
      // In place, and each row alone: the same bits.
      Guarded<float> in_place(x, kGuard);
      const MatrixView<float> z(in_place.data(), kRows, n);
      rms_norm(context, z, weight, 1e-5f, z);
      in_place.check();
      EXPECT_TRUE(same_bits(in_place.values(), all));
      std::vector<float> row(n);
      rms_norm(context, MatrixView<const float>(x, n).row_range(3, 1), weight, 1e-5f, {row, n});
      EXPECT_TRUE(same_bits(row, {all.begin() + 3 * n, all.begin() + 4 * n}));
    }
  }
}

// A norm of each head of q or k: thousands of rows as short as a head, some of no whole number of
// registers.
TEST(RmsNorm, ManyShortRowsEqualTheScalarTwinWithAnyThreads) {
  for (const Isa isa : machine_isas()) {
    for (const int64_t n : {8, 24, 64, 80, 96, 256}) {
      SCOPED_TRACE(::testing::Message() << isa_name(isa) << " n " << n);
      const int64_t n_rows = 100'003 / n;
      const std::vector<float> x = random_floats(n_rows * n, 11);
      const std::vector<float> weight = random_floats(n, 12);
      std::vector<double> expected(x.size());
      ref::rms_norm(x.data(), weight.data(), 1e-6f, n_rows, n, expected.data());
      std::vector<float> first;
      for (const int n_threads : {1, 3}) {
        TestPool pool(n_threads);
        Guarded<float> y(x, kGuard);
        const MatrixView<float> rows(y.data(), n_rows, n);
        rms_norm({.pool = pool, .isa = isa}, rows, weight, 1e-6f, rows);
        y.check();
        const std::vector<float> values = y.values();
        const double bound = (n / 8.0 + 16) * kEpsilon;
        for (size_t i = 0; i < x.size(); ++i) {
          ASSERT_NEAR(values[i], expected[i], bound * std::abs(expected[i])) << i;
        }
        if (first.empty()) first = values;
        EXPECT_TRUE(same_bits(first, values));
      }
    }
  }
}

TEST(SiluMultiply, EqualsTheScalarTwin) {
  std::vector<float> gate = random_floats(3001, 3, 5.0f);
  for (float x = -110.0f; x < 110.0f; x += 0.25f) gate.push_back(x);
  for (const float x : {0.0f, -0.0f, 1e-30f, -1e-30f, 1e4f, -1e4f, 3e38f, -3e38f})
    gate.push_back(x);
  const std::vector<float> up = random_floats(gate.size(), 4);
  std::vector<double> expected(gate.size());
  ref::silu_multiply(gate.data(), up.data(), std::ssize(gate), expected.data());
  for (const Isa isa : machine_isas()) {
    Guarded<float> first(0, kGuard);
    for (const int n_threads : {1, 2, 5}) {
      TestPool pool(n_threads);
      Guarded<float> out(gate, kGuard);
      silu_multiply({.pool = pool, .isa = isa}, row_of(out), {up, std::ssize(up)});
      out.check();
      const std::vector<float> values = out.values();
      for (size_t i = 0; i < gate.size(); ++i) {
        // exp is within 4e-7, and the sum, quotient and product round; e^-x overflows from 88 on,
        // where silu is below 1e-36.
        ASSERT_NEAR(values[i], expected[i], 6e-7 * std::abs(expected[i]) + 1e-35)
            << isa_name(isa) << " " << gate[i];
      }
      if (n_threads == 1) first = out;
      EXPECT_TRUE(same_bits(first.values(), out.values())) << isa_name(isa);
    }
  }
}

TEST(SiluMultiply, NanStaysNan) {
  for (const Isa isa : machine_isas()) {
    TestPool pool(1);
    std::vector<float> gate(37, 1.0f);
    const std::vector<float> up(37, 1.0f);
    gate[5] = gate[36] = std::numeric_limits<float>::quiet_NaN();
    silu_multiply({.pool = pool, .isa = isa}, {gate, 37}, {up, 37});
    for (size_t i = 0; i < gate.size(); ++i) EXPECT_EQ(std::isnan(gate[i]), i == 5 || i == 36);
  }
}

TEST(GeluMultiply, EqualsTheScalarTwin) {
  std::vector<float> gate = random_floats(3001, 13, 3.0f);
  for (float x = -15.0f; x < 15.0f; x += 0.03125f) gate.push_back(x);
  for (const float x : {0.0f, -0.0f, 1e-30f, -1e-30f, 1e4f, -1e4f, 3e38f, -3e38f})
    gate.push_back(x);
  const std::vector<float> up = random_floats(gate.size(), 14);
  std::vector<double> expected(gate.size());
  ref::gelu_multiply(gate.data(), up.data(), std::ssize(gate), expected.data());
  for (const Isa isa : machine_isas()) {
    std::vector<float> first;
    for (const int n_threads : {1, 2, 5}) {
      TestPool pool(n_threads);
      Guarded<float> out(gate, kGuard);
      gelu_multiply({.pool = pool, .isa = isa}, row_of(out), {up, std::ssize(up)});
      out.check();
      const std::vector<float> values = out.values();
      for (size_t i = 0; i < gate.size(); ++i) {
        // As silu's; and the exponent of e^-2u, some 5 roundings of up to 87 where the result is
        // not below 1e-35, is off absolutely what the result is off relatively.
        const double g = gate[i], exponent = std::min(87.0, 1.6 * std::abs(g + 0.045 * g * g * g));
        const double bound = 6e-7 + (g < 0 ? 5 * kEpsilon * exponent : 0);
        ASSERT_NEAR(values[i], expected[i], bound * std::abs(expected[i]) + 1e-35)
            << isa_name(isa) << " " << gate[i];
      }
      if (n_threads == 1) first = values;
      EXPECT_TRUE(same_bits(first, values)) << isa_name(isa);
    }
  }
}

TEST(SoftcapInPlace, EqualsTheScalarTwin) {
  std::vector<float> x = random_floats(3001, 15, 30.0f);
  for (float exponent = -40.0f; exponent < 30.0f; exponent += 0.125f) {
    x.push_back(std::exp2(exponent));
    x.push_back(-std::exp2(exponent));
  }
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float value : {0.0f, 3e38f, -3e38f, infinity, -infinity}) x.push_back(value);
  const auto n = std::ssize(x);
  for (const float cap : {1.0f, 30.0f, 50.0f}) {
    std::vector<double> expected(x.size());
    ref::softcap(x.data(), cap, n, expected.data());
    for (const Isa isa : machine_isas()) {
      std::vector<float> first;
      for (const int n_threads : {1, 3}) {
        TestPool pool(n_threads);
        Guarded<float> out(x, kGuard);
        softcap_in_place({.pool = pool, .isa = isa}, row_of(out), cap);
        out.check();
        const std::vector<float> values = out.values();
        for (size_t i = 0; i < x.size(); ++i) {
          // tanh is within 1e-6; the quotient and the product round.
          ASSERT_NEAR(values[i], expected[i], (1e-6 + 2 * kEpsilon) * std::abs(expected[i]))
              << isa_name(isa) << " " << x[i];
          ASSERT_LE(std::abs(values[i]), cap);
        }
        if (first.empty()) first = values;
        EXPECT_TRUE(same_bits(first, values)) << isa_name(isa);
      }
    }
  }
}

TEST(GeluMultiplyAndSoftcap, NanStaysNan) {
  for (const Isa isa : machine_isas()) {
    TestPool pool(1);
    const Context context{.pool = pool, .isa = isa};
    std::vector<float> x(37, 1.0f);
    const std::vector<float> up(37, 1.0f);
    x[5] = x[36] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> y = x;
    gelu_multiply(context, {x, 37}, {up, 37});
    softcap_in_place(context, {y, 37}, 30.0f);
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(std::isnan(x[i]), i == 5 || i == 36);
      EXPECT_EQ(std::isnan(y[i]), i == 5 || i == 36);
    }
  }
}

TEST(ScaleInPlace, ScalesEachElementOnce) {
  for (const Isa isa : machine_isas()) {
    TestPool pool(3);
    for (const int64_t n : {0, 1, 15, 16, 17, 640, 40001}) {
      const std::vector<float> x = random_floats(n, 16);
      Guarded<float> scaled(x, kGuard);
      scale_in_place({.pool = pool, .isa = isa}, row_of(scaled), 25.298f);
      scaled.check();
      const std::vector<float> values = scaled.values();
      for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(values[i], x[i] * 25.298f);
    }
  }
}

TEST(AddBias, AddsItToEveryRow) {
  for (const Isa isa : machine_isas()) {
    TestPool pool(3);
    for (const int64_t n : {1, 7, 16, 17, 130, 896, 20000}) {
      for (const int64_t n_rows : {0, 1, 2, 37}) {
        const std::vector<float> x = random_floats(n_rows * n, 17);
        const std::vector<float> bias = random_floats(n, 18);
        Guarded<float> sum(x, kGuard);
        add_bias({.pool = pool, .isa = isa}, {sum.data(), n_rows, n}, bias);
        sum.check();
        const std::vector<float> values = sum.values();
        for (size_t i = 0; i < x.size(); ++i) {
          ASSERT_EQ(values[i], x[i] + bias[i % n]) << i;
        }
      }
    }
  }
}

TEST(Rows, AreScaledGatheredAndAdded) {
  for (const Isa isa : machine_isas()) {
    TestPool pool(3);
    const Context context{.pool = pool, .isa = isa};
    for (const int64_t n : {1, 17, 576, 20000}) {
      const size_t width = n;
      const std::vector<int64_t> rows = {5, 0, 3};
      const std::vector<float> factors = {0.5f, 1.0f, -3.0f};
      const std::vector<float> x = random_floats(6 * width, 19);
      Guarded<float> gathered(3 * width, kGuard);
      const MatrixView<float> three(gathered.data(), 3, n);
      gather_rows(context, {x, n}, rows, three);
      gathered.check();
      const std::vector<float> taken = gathered.values();
      scale_rows(context, three, factors);
      gathered.check();
      const std::vector<float> scaled = gathered.values();
      Guarded<float> sum(x, kGuard);
      add_scaled_rows(context, {sum.data(), 6, n}, rows, factors, {taken, n});
      sum.check();
      std::vector<float> expected = x;
      for (size_t i = 0; i < 3; ++i) {
        for (size_t j = 0; j < width; ++j) {
          const size_t from = rows[i] * width + j;
          ASSERT_EQ(taken[i * width + j], x[from]);
          ASSERT_EQ(scaled[i * width + j], factors[i] * x[from]);
          expected[from] += factors[i] * x[from];
        }
      }
      const std::vector<float> values = sum.values();
      for (size_t j = 0; j < values.size(); ++j) {
        ASSERT_NEAR(values[j], expected[j], 5e-7f * std::abs(x[j])) << j;  // one rounding or two
      }
    }
  }
}

TEST(AddInPlace, AddsEachElementOnce) {
  for (const Isa isa : machine_isas()) {
    TestPool pool(3);
    for (const int64_t n : {0, 1, 15, 16, 17, 576, 40001}) {
      const std::vector<float> x = random_floats(n, 5);
      const std::vector<float> y = random_floats(n, 6);
      Guarded<float> sum(x, kGuard);
      add_in_place({.pool = pool, .isa = isa}, row_of(sum), {y.data(), 1, n});
      sum.check();
      const std::vector<float> values = sum.values();
      for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(values[i], x[i] + y[i]);
    }
  }
}

// Each op checks its shapes before it touches anything.
TEST(ElementwiseDeathTest, ShapesThatDoNotFitAbort) {
  TestPool pool(1);
  const Context context{.pool = pool};
  std::vector<float> x(12), y(12);
  const std::vector<int64_t> rows = {0, 1};
  const MatrixView<float> matrix(x, 4), narrow(y, 3), gaps(y.data(), 3, 2, 4);
  EXPECT_DEATH(rms_norm(context, matrix, std::vector<float>(3), 0, matrix), "ssize\\(weight\\)");
  EXPECT_DEATH(rms_norm(context, gaps, std::vector<float>(2), 0, gaps), "is_dense");
  EXPECT_DEATH(silu_multiply(context, matrix, narrow), "same_shape");
  EXPECT_DEATH(add_in_place(context, matrix, narrow), "same_shape");
  EXPECT_DEATH(add_bias(context, matrix, std::vector<float>(3)), "ssize\\(bias\\)");
  EXPECT_DEATH(scale_rows(context, matrix, std::vector<float>(4)), "ssize\\(factors\\)");
  EXPECT_DEATH(scale_in_place(context, gaps, 2.0f), "is_dense");
  EXPECT_DEATH(gather_rows(context, matrix, rows, narrow.first(2)), "columns");
  EXPECT_DEATH(add_scaled_rows(context, matrix, rows, std::vector<float>(1), matrix.first(2)),
               "factors.size");
}

TEST(LogSoftmax, EqualsTheScalarTwin) {
  for (const size_t n : {1u, 2u, 17u, 49152u}) {
    std::vector<float> logits = random_floats(n, 7, 10.0f);
    logits[n / 2] = 900.0f;  // exp of it is infinite
    std::vector<double> expected(n);
    ref::log_softmax(logits.data(), n, expected.data());
    Guarded<float> out(n, kGuard);
    log_softmax(logits, std::span(out.data(), n));
    out.check();
    const std::vector<float> values = out.values();
    for (size_t i = 0; i < n; ++i) {
      ASSERT_NEAR(values[i], expected[i], 2 * kEpsilon * std::abs(expected[i]));
    }
  }
}

}  // namespace
}  // namespace weft::kernels
