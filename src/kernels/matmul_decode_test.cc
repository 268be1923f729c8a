#include "kernels/matmul_decode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/ref/dequantize.h"
#include "kernels/ref/matmul.h"
#include "support/instruction_sets.h"
#include "support/random_weights.h"
#include "support/test_pool.h"

namespace weft::kernels {
namespace {

using test::kAllTypes;
using test::machine_isas;
using test::random_weights;
using test::set_scales;
using test::TestPool;

constexpr float kGuard = -12345.0f;

/// Weights at an odd address in a buffer of exactly their size, so that the address sanitiser sees
/// any byte read beyond them.
struct Weights {
  Weights(std::mt19937& random, DType dtype, int64_t out_features, int64_t in_features) {
    const std::vector<uint8_t> aligned = random_weights(random, dtype, out_features, in_features);
    bytes.resize(aligned.size() + 1);
    std::copy(aligned.begin(), aligned.end(), bytes.begin() + 1);
    matrix = {bytes.data() + 1, dtype, out_features, in_features};
  }
  std::vector<uint8_t> bytes;
  WeightMatrix matrix;
};

/// With outliers, as activations have.
std::vector<float> random_rows(std::mt19937& random, int64_t n) {
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> x(n);
  for (float& value : x) value = random() % 100 == 0 ? 12 * normal(random) : normal(random);
  return x;
}

/// Every way in which activations are rounded, and the path that asks for it.
struct Rounding {
  MatmulPath path;
  SecondBytes second_bytes;
};
constexpr Rounding kRoundings[] = {{MatmulPath::kInt8, SecondBytes::kOutliers},
                                   {MatmulPath::kF32, SecondBytes::kAll}};

/// [n_rows][out_features], checking that nothing else was written.
std::vector<float> run(const Context& context, const WeightMatrix& weight,
                       const std::vector<float>& x, int64_t x_stride, int64_t n_rows) {
  const int64_t stride = weight.out_features + 3;
  std::vector<float> y(n_rows * stride + 2, kGuard);
  const MatmulOutput output{&weight, {y.data() + 2, n_rows, weight.out_features, stride}};
  matmul_decode(context, {x.data(), n_rows, weight.in_features, x_stride}, {&output, 1});
  std::vector<float> inner;
  for (int64_t i = 0; i < std::ssize(y); ++i) {
    const int64_t place = i - 2;
    if (place >= 0 && place % stride < weight.out_features) {
      inner.push_back(y[i]);
    } else {
      EXPECT_EQ(y[i], kGuard) << "written outside at " << place;
    }
  }
  return inner;
}

std::vector<int64_t> lengths(DType dtype) {
  if (dtype_info(dtype).block_elements == 256) return {256, 512, 1280};
  if (dtype_info(dtype).block_elements == 32) return {32, 64, 96, 128, 160, 576, 2048};
  return {1, 7, 15, 16, 17, 33, 576, 2048};
}

std::string label(Isa isa, DType dtype, int64_t out, int64_t in, int64_t rows) {
  return std::string(isa_name(isa)) + " " + std::string(dtype_info(dtype).name) + " " +
         std::to_string(out) + "x" + std::to_string(in) + " rows " + std::to_string(rows);
}

/// Every float operation errs by at most 2^-24 of its result. A row's sum is a chain of at most
/// n / 16 multiply-adds a lane and some ten operations around it. An error is relative to a partial
/// sum, which the sum of magnitudes bounds.
double float_tolerance(int64_t n, double magnitude) {
  const double operations = n / 16.0 + 16;
  return operations * 0x1p-24 * magnitude + 1e-30;
}

/// y [out_features] = x [in_features] times the weights, rounded as said.
void expect_row(const WeightMatrix& weight, std::span<const float> x, SecondBytes second_bytes,
                std::span<const float> y) {
  const bool quantised = is_quantised(weight.dtype);
  // The kernel adds scale * q and min, which cancel in the weight, apart.
  const double scale = quantised ? 3 : 1;
  for (int64_t i = 0; i < weight.out_features; ++i) {
    const ref::Product want =
        quantised ? ref::dot_quantised(weight, i, x, second_bytes) : ref::dot(weight, i, x);
    ASSERT_NEAR(y[i], want.y, scale * float_tolerance(weight.in_features, want.magnitude))
        << "output " << i;
  }
}

TEST(MatmulDecode, EqualsItsTwinOnEverySet) {
  constexpr int64_t kMostRows = 6;
  std::mt19937 random(17);
  TestPool pool(2);
  for (const DType dtype : kAllTypes) {
    for (const int64_t in : lengths(dtype)) {
      for (const int64_t out : {1, 3, 4, 9}) {
        const Weights weights(random, dtype, out, in);
        const int64_t x_stride = in + 5;
        const std::vector<float> x = random_rows(random, kMostRows * x_stride);
        for (int64_t rows = 1; rows <= kMostRows; ++rows) {
          for (const Isa isa : machine_isas()) {
            SCOPED_TRACE(label(isa, dtype, out, in, rows));
            for (const Rounding& rounding : kRoundings) {
              const auto y = run({pool, isa, rounding.path}, weights.matrix, x, x_stride, rows);
              for (int64_t r = 0; r < rows; ++r) {
                const MatrixView<const float> all(x.data(), rows, in, x_stride);
                expect_row(weights.matrix, all.row(r), rounding.second_bytes,
                           MatrixView<const float>(y, out).row(r));
              }
            }
          }
        }
      }
    }
  }
}

TEST(MatmulDecode, RoundingActivationsCostsWhatItsBitsCost) {
  // Each x errs by at most half a step of its block, and evenly in between (variance step^2 / 12).
  std::mt19937 random(23);
  TestPool pool(1);
  const int64_t in = 2048, out = 64;
  for (const DType dtype : kAllTypes) {
    if (!is_quantised(dtype)) continue;
    const Weights weights(random, dtype, out, in);
    const std::vector<float> x = random_rows(random, in);
    std::vector<float> largest(in / 32);
    for (size_t k = 0; k < x.size(); ++k) {
      largest[k / 32] = std::max(largest[k / 32], std::abs(x[k]));
    }
    double mean = 0;
    for (const float l : largest) mean += double{l} * double{l} / (in / 32);
    std::vector<double> scale;
    for (const float l : largest) {
      scale.push_back(l / (double{l} * double{l} > 2.5 * mean ? 127.0 * 128.0 : 127.0));
    }
    std::vector<float> w(out * in);
    ref::dequantize(dtype, weights.matrix.data, w.data(), out * in);
    for (const Isa isa : machine_isas()) {
      SCOPED_TRACE(label(isa, dtype, out, in, 1));
      const auto y = run({pool, isa, MatmulPath::kInt8}, weights.matrix, x, in, 1);
      double squares = 0, variance = 0;
      for (int64_t i = 0; i < out; ++i) {
        const ref::Product want = ref::dot(weights.matrix, i, x);
        double bound = 3 * float_tolerance(in, want.magnitude);
        for (int64_t k = 0; k < in; ++k) {
          const double step = double{w[i * in + k]} * scale[k / 32];
          bound += std::abs(step) / 2;
          variance += step * step / 12;
        }
        const double error = y[i] - want.y;
        EXPECT_LE(std::abs(error), bound);
        squares += error * error;
      }
      EXPECT_LT(squares, 2 * variance);
    }
  }
}

TEST(MatmulDecode, ARowIsTheSameBitsForAnyRowsThreadsAndGroup) {
  constexpr int64_t kMostRows = 64;
  std::mt19937 random(29);
  TestPool one(1), three(3);
  const int64_t out = 517, stride = 2048 + 64;
  const std::vector<float> x = random_rows(random, kMostRows * stride);
  for (const DType dtype : kAllTypes) {
    const int64_t in = dtype_info(dtype).block_elements == 256 ? 2048 : 2048 - 96;
    const Weights weights(random, dtype, out, in), others(random, DType::kQ8_0, 40, 2048);
    for (const Isa isa : machine_isas()) {
      SCOPED_TRACE(label(isa, dtype, out, in, 4));
      const auto all = run({three, isa, MatmulPath::kInt8}, weights.matrix, x, stride, kMostRows);
      for (const int64_t rows : {1, 2, 3, 4, 5, 8, 15, 16, 17, 33}) {
        const auto alone = run({one, isa, MatmulPath::kInt8}, weights.matrix, x, stride, rows);
        for (size_t i = 0; i < alone.size(); ++i) ASSERT_EQ(alone[i], all[i]) << rows << " " << i;
      }
      // The other paths' rounding, where every block has a second byte.
      const auto some = run({three, isa, MatmulPath::kF32}, weights.matrix, x, stride, 7);
      for (const int64_t rows : {1, 2, 3, 4}) {
        const auto alone = run({one, isa, MatmulPath::kF32}, weights.matrix, x, stride, rows);
        for (size_t i = 0; i < alone.size(); ++i) ASSERT_EQ(alone[i], some[i]) << rows << " " << i;
      }
      // Outputs in another tile of weight rows: from row 1 on.
      const WeightMatrix shifted = weights.matrix.row_range(1, out - 1);
      const auto from_one = run({one, isa, MatmulPath::kInt8}, shifted, x, stride, 1);
      for (size_t i = 0; i < from_one.size(); ++i) ASSERT_EQ(from_one[i], all[i + 1]) << i;
      if (in != 2048) continue;
      std::vector<float> y(out), other(40);
      const std::vector<MatmulOutput> group = {{&others.matrix, {other, 40}},
                                               {&weights.matrix, {y, out}}};
      matmul_decode({three, isa, MatmulPath::kInt8}, {x.data(), 1, in}, group);
      for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(y[i], all[i]) << i;
      const auto other_alone = run({one, isa, MatmulPath::kInt8}, others.matrix, x, stride, 1);
      EXPECT_EQ(other, other_alone);
    }
  }
}

TEST(MatmulDecode, ALongRowIsTheSameBitsAloneAndAmongOthers) {
  constexpr int64_t kIn = 6144, kOut = 70, kRows = 17;  // eight parts of a panel
  std::mt19937 random(31);
  TestPool one(1), three(3);
  const std::vector<float> x = random_rows(random, kRows * kIn);
  for (const DType dtype : kAllTypes) {
    const Weights weights(random, dtype, kOut, kIn);
    for (const Isa isa : machine_isas()) {
      SCOPED_TRACE(label(isa, dtype, kOut, kIn, 1));
      for (const MatmulPath path : {MatmulPath::kInt8, MatmulPath::kF32}) {
        const auto all = run({three, isa, path}, weights.matrix, x, kIn, kRows);
        for (const int64_t rows : {1, 2, 3, 5}) {
          const auto alone = run({one, isa, path}, weights.matrix, x, kIn, rows);
          for (size_t i = 0; i < alone.size(); ++i) ASSERT_EQ(alone[i], all[i]) << rows << " " << i;
        }
      }
    }
  }
}

TEST(MatmulDecode, ExtremeIntegersDoNotSaturate) {
  // All weights at the end of their range and all activations at theirs: the largest integer sums.
  TestPool pool(1);
  for (const DType dtype : kAllTypes) {
    if (!is_quantised(dtype)) continue;
    const DTypeInfo& info = dtype_info(dtype);
    for (const uint8_t byte : {uint8_t{0x00}, uint8_t{0x80}, uint8_t{0x7f}, uint8_t{0xff}}) {
      const int64_t in = 512;
      std::vector<uint8_t> bytes(row_bytes(dtype, in), byte);
      for (size_t b = 0; b < bytes.size(); b += info.block_bytes) {
        set_scales(dtype, bytes.data() + b, 0x2000);  // 2^-7
      }
      const WeightMatrix weight{bytes.data(), dtype, 1, in};
      for (const float sign : {1.0f, -1.0f}) {
        const std::vector<float> x(in, sign);
        for (const Isa isa : machine_isas()) {
          SCOPED_TRACE(label(isa, dtype, 1, in, 1) + " byte " + std::to_string(byte));
          for (const Rounding& rounding : kRoundings) {
            const auto y = run({pool, isa, rounding.path}, weight, x, in, 1);
            expect_row(weight, x, rounding.second_bytes, y);
          }
        }
      }
    }
  }
}

TEST(MatmulDecode, NonFiniteActivationsShow) {
  std::mt19937 random(31);
  TestPool pool(1);
  for (const DType dtype : kAllTypes) {
    const Weights weights(random, dtype, 5, 512);
    std::vector<float> x = random_rows(random, 512);
    x[300] = std::numeric_limits<float>::quiet_NaN();
    for (const Isa isa : machine_isas()) {
      const auto y = run({pool, isa}, weights.matrix, x, 512, 1);
      for (const float value : y) {
        EXPECT_TRUE(std::isnan(value)) << isa_name(isa) << " " << dtype_info(dtype).name;
      }
    }
  }
}

}  // namespace
}  // namespace weft::kernels
