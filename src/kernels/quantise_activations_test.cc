#include "kernels/quantise_activations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/test_weights_internal.h"

namespace weft::kernels {
namespace {

struct Quantised {
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int32_t> sum;
};

Quantised quantise(Isa isa, const std::vector<float>& x, int64_t x_stride, int64_t n_rows,
                   int64_t n) {
  Quantised out{std::vector<int8_t>(static_cast<size_t>(n_rows * n), 77),
                std::vector<float>(static_cast<size_t>(n_rows * n / 32), -7.0f),
                std::vector<int32_t>(static_cast<size_t>(n_rows * n / 32), -7)};
  quantise_activations(isa, x.data(), x_stride, n_rows, n,
                       {out.q.data(), out.scale.data(), out.sum.data()});
  return out;
}

/// The definition, in scalar code and the C library's rounding.
Quantised reference(const std::vector<float>& x, int64_t x_stride, int64_t n_rows, int64_t n) {
  Quantised out;
  for (int64_t r = 0; r < n_rows; ++r) {
    for (int64_t b = 0; b < n / 32; ++b) {
      const float* block = x.data() + r * x_stride + 32 * b;
      float largest = 0;
      for (int i = 0; i < 32; ++i) largest = std::fmax(largest, std::fabs(block[i]));
      int32_t sum = 0;
      for (int i = 0; i < 32; ++i) {
        const float q = largest == 0 ? 0 : std::nearbyint(block[i] * (127.0f / largest));
        out.q.push_back(static_cast<int8_t>(q));
        sum += out.q.back();
      }
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
    std::vector<float> x(static_cast<size_t>(n_rows * stride));
    for (float& value : x) value = normal(random);
    for (int i = 0; i < 32; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i) - 15.5f;  // ties
    x[1] = 127.0f;
    for (int i = 0; i < 32; ++i) x[static_cast<size_t>(stride + i)] = 0.0f;
    const Quantised want = reference(x, stride, n_rows, n);
    for (const Isa isa : available_isas()) {
      const Quantised got = quantise(isa, x, stride, n_rows, n);
      EXPECT_EQ(got.q, want.q) << isa_name(isa) << " " << n;
      EXPECT_EQ(got.scale, want.scale) << isa_name(isa) << " " << n;
      EXPECT_EQ(got.sum, want.sum) << isa_name(isa) << " " << n;
    }
  }
}

TEST(QuantiseActivations, ExtremesStayWithinEightBits) {
  for (const float largest : {1e-29f, 1e-10f, 1.0f, 1.1754944e-38f, 3.4028235e38f}) {
    std::vector<float> x(32, largest);
    x[3] = -largest;
    x[4] = largest / 3;
    for (const Isa isa : available_isas()) {
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
    for (const Isa isa : available_isas()) {
      const Quantised got = quantise(isa, x, 64, 1, 64);
      EXPECT_EQ(got.scale[0], 1.0f / 127.0f) << isa_name(isa);
      EXPECT_TRUE(std::isnan(got.scale[1])) << isa_name(isa);
      EXPECT_EQ(got.sum[1], 0) << isa_name(isa);
    }
  }
}

}  // namespace
}  // namespace weft::kernels
