#include "kernels/quantise_activations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "support/instruction_sets.h"
#include "support/random_weights.h"
#include "tensor/matrix_view.h"

namespace weft::kernels {
namespace {

using test::machine_isas;

struct Quantised {
  std::vector<int8_t> q, residual;
  std::vector<uint8_t> outlier;
  std::vector<float> scale;
  std::vector<int32_t> sum;
};

Quantised quantise(Isa isa, const std::vector<float>& x, int64_t x_stride, int64_t n_rows,
                   int64_t n, SecondBytes second_bytes = SecondBytes::kOutliers) {
  const auto elements = n_rows * n, blocks = elements / 32;
  Quantised out{std::vector<int8_t>(elements, 77), std::vector<int8_t>(elements, 77),
                std::vector<uint8_t>(blocks, 77), std::vector<float>(blocks, -7.0f),
                std::vector<int32_t>(blocks, -7)};
  quantise_activations(
      isa, {x.data(), n_rows, n, x_stride}, second_bytes,
      {out.q.data(), out.residual.data(), out.outlier.data(), out.scale.data(), out.sum.data()});
  return out;
}

float largest_of_block(const float* block) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::fmax(largest, std::fabs(block[i]));
  return largest;
}

/// The definition, in scalar code and the C library's rounding.
Quantised reference(const std::vector<float>& x, int64_t x_stride, int64_t n_rows, int64_t n,
                    SecondBytes second_bytes) {
  Quantised out;
  for (int64_t r = 0; r < n_rows; ++r) {
    const float* row = x.data() + r * x_stride;
    float squares = 0;
    for (int64_t b = 0; b < n / 32; ++b) {
      squares += largest_of_block(row + 32 * b) * largest_of_block(row + 32 * b);
    }
    for (int64_t b = 0; b < n / 32; ++b) {
      const float* block = row + 32 * b;
      const float largest = largest_of_block(block);
      const bool has_second_byte =
          second_bytes == SecondBytes::kAll || largest * largest > 2.5f * squares / (n / 32);
      int32_t sum = 0;
      for (int i = 0; i < 32; ++i) {
        float units = has_second_byte ? 127.0f * 128.0f : 127.0f;
        units = largest == 0 ? 0 : std::nearbyint(block[i] * (units / largest));
        const float q = has_second_byte ? std::floor((units + 64) / 128) : units;
        out.q.push_back(static_cast<int8_t>(q));
        out.residual.push_back(static_cast<int8_t>(has_second_byte ? units - 128 * q : 0));
        sum += 128 * out.q.back() + out.residual.back();
      }
      out.outlier.push_back(has_second_byte && largest > 0);
      out.scale.push_back(largest / 127.0f);
      out.sum.push_back(sum);
    }
  }
  return out;
}

TEST(QuantiseActivations, RoundsToNearestEvenAlikeOnEverySet) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  for (const int64_t n : {32, 64, 576, 2048}) {
    const int64_t n_rows = 3, stride = n + 5;
    std::vector<float> x(n_rows * stride);
    for (float& value : x) value = random() % 100 == 0 ? 12 * normal(random) : normal(random);
    for (int i = 0; i < 32; ++i) x[i] = i - 15.5f;  // ties
    x[1] = 127.0f;
    for (int i = 0; i < 32; ++i) x[stride + i] = 0.0f;
    for (const SecondBytes second_bytes : {SecondBytes::kOutliers, SecondBytes::kAll}) {
      const Quantised want = reference(x, stride, n_rows, n, second_bytes);
      for (const Isa isa : machine_isas()) {
        const Quantised got = quantise(isa, x, stride, n_rows, n, second_bytes);
        EXPECT_EQ(got.q, want.q) << isa_name(isa) << " " << n;
        EXPECT_EQ(got.residual, want.residual) << isa_name(isa) << " " << n;
        EXPECT_EQ(got.outlier, want.outlier) << isa_name(isa) << " " << n;
        EXPECT_EQ(got.scale, want.scale) << isa_name(isa) << " " << n;
        EXPECT_EQ(got.sum, want.sum) << isa_name(isa) << " " << n;
      }
    }
  }
}

TEST(QuantiseActivations, ABlockWithAnOutlierIsWideAndKeepsItsSmallValues) {
  std::vector<float> x(128, 0.01f);
  x[40] = 100.0f;
  for (const Isa isa : machine_isas()) {
    const Quantised got = quantise(isa, x, 128, 1, 128);
    EXPECT_EQ(got.outlier, (std::vector<uint8_t>{0, 1, 0, 0})) << isa_name(isa);
    // 0.01 is 0.0127 of a scale: nothing in eight bits, 1.6 steps of fifteen.
    EXPECT_EQ(got.q[41], 0) << isa_name(isa);
    EXPECT_EQ(got.residual[41], 2) << isa_name(isa);
    EXPECT_EQ(got.q[40], 127) << isa_name(isa);
    EXPECT_EQ(got.sum[1], 127 * 128 + 31 * 2) << isa_name(isa);
  }
}

TEST(QuantiseActivations, ExtremesStayWithinEightBits) {
  for (const float largest : {1e-29f, 1e-10f, 1.0f, 1.1754944e-38f, 3.4028235e38f}) {
    std::vector<float> x(32, largest);
    x[3] = -largest;
    x[4] = largest / 3;
    for (const Isa isa : machine_isas()) {
      const Quantised got = quantise(isa, x, 32, 1, 32);
      const int top = largest < 1e-30f ? 0 : 127;
      EXPECT_EQ(got.q[0], top) << isa_name(isa) << " " << largest;
      EXPECT_EQ(got.q[3], -top) << isa_name(isa) << " " << largest;
      EXPECT_EQ(got.q[4], top == 0 ? 0 : 42) << isa_name(isa) << " " << largest;
      EXPECT_EQ(got.scale[0], top == 0 ? 0.0f : largest / 127.0f);
    }
  }
}

TEST(QuantiseActivations, NonFiniteInputShowsInTheScale) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x(64, 1.0f);
    x[40] = bad;
    for (const Isa isa : machine_isas()) {
      const Quantised got = quantise(isa, x, 64, 1, 64);
      EXPECT_EQ(got.scale[0], 1.0f / 127.0f) << isa_name(isa);
      EXPECT_TRUE(std::isnan(got.scale[1])) << isa_name(isa);
      EXPECT_EQ(got.sum[1], 0) << isa_name(isa);
    }
  }
}

}  // namespace
}  // namespace weft::kernels
