// Every type on every path and instruction set against sums in double; rows, columns and threads
// that must not change a row's bits; memory around the outputs that must not be touched.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "kernels/ref/matmul.h"
#include "support/instruction_sets.h"
#include "support/random_weights.h"
#include "support/test_pool.h"

namespace weft::kernels {
namespace {

using test::kAllTypes;
using test::machine_isas;
using test::random_weights;
using test::TestPool;

constexpr float kGuard = -12345.0f;
constexpr double kF32Epsilon = 0x1p-24;
constexpr double kBf16Epsilon = 0x1p-9;

/// Weights and activations, which have outliers.
struct Problem {
  Problem(DType dtype, int64_t rows, int64_t out_features, int64_t in_features, uint32_t seed = 1)
      : n_rows(rows), n(out_features), k(in_features) {
    std::mt19937 random(seed);
    bytes = random_weights(random, dtype, n, k);
    weight = {bytes.data(), dtype, n, k};
    x.resize(n_rows * k);
    std::normal_distribution<float> normal;
    for (float& value : x) value = random() % 100 == 0 ? 12 * normal(random) : normal(random);
  }

  int64_t n_rows, n, k;
  std::vector<uint8_t> bytes;
  std::vector<float> x;
  WeightMatrix weight;
};

std::vector<float> run(Problem& problem, MatmulPath path, Isa isa, int threads, int64_t n_rows,
                       const float* x) {
  TestPool pool(threads);
  const Context context{pool, isa, path};
  std::vector<float> y(n_rows * problem.n, kGuard);
  const MatmulOutput output{&problem.weight, {y, problem.n}};
  matmul(context, {x, n_rows, problem.k}, {&output, 1}, KernelClass::kPrefill);
  return y;
}

/// Checks y against sums in double. Each of a product's k rounded additions and each rounded factor
/// adds at most one epsilon of the sum of magnitudes.
void expect_close(const Problem& problem, MatmulPath path, const std::vector<float>& y) {
  const double relative =
      (problem.k + 8) * kF32Epsilon + (path == MatmulPath::kBf16 ? 2.01 * kBf16Epsilon : 0.0);
  const bool integers = path == MatmulPath::kInt8 && is_quantised(problem.weight.dtype);
  for (int64_t r = 0; r < problem.n_rows; ++r) {
    const std::span<const float> x = MatrixView<const float>(problem.x, problem.k).row(r);
    for (int64_t c = 0; c < problem.n; ++c) {
      const ref::Product expected =
          integers ? ref::dot_quantised(problem.weight, c, x, SecondBytes::kOutliers)
                   : ref::dot(problem.weight, c, x);
      const double got = y[r * problem.n + c];
      ASSERT_NEAR(got, expected.y, relative * expected.magnitude) << "row " << r << " column " << c;
    }
  }
}

const char* path_name(MatmulPath path) {
  return path == MatmulPath::kF32 ? "f32" : path == MatmulPath::kBf16 ? "bf16" : "int8";
}

struct Case {
  Isa isa;
  MatmulPath path;
  DType dtype;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Isa isa : machine_isas()) {
    for (const MatmulPath path : test::machine_matmul_paths()) {
      for (const DType dtype : kAllTypes) cases.push_back({isa, path, dtype});
    }
  }
  return cases;
}

class MatmulPrefill : public testing::TestWithParam<Case> {};

TEST_P(MatmulPrefill, EqualsSumsInDouble) {
  const auto [isa, path, dtype] = GetParam();
  const int64_t block = dtype_info(dtype).block_elements;
  // in_features of whole blocks that are no multiple of any kernel's chunk; odd out_features.
  for (const auto& [n_rows, n, blocks] :
       {std::array<int64_t, 3>{5, 64, 4}, {6, 33, 1}, {17, 7, 3}, {100, 65, 2}, {129, 31, 1}}) {
    const int64_t k = block == 256 ? blocks * 256 : blocks * 160 + 32;
    Problem problem(dtype, n_rows, n, k);
    SCOPED_TRACE(fmt::format("{} rows, {} x {}", n_rows, n, k));
    expect_close(problem, path, run(problem, path, isa, 2, n_rows, problem.x.data()));
  }
}

TEST_P(MatmulPrefill, RowDoesNotDependOnOthersNorOnThreads) {
  const auto [isa, path, dtype] = GetParam();
  Problem problem(dtype, 70, 70, 512);
  const std::vector<float> all = run(problem, path, isa, 2, 70, problem.x.data());
  for (const int threads : {1, 5}) {
    EXPECT_EQ(run(problem, path, isa, threads, 70, problem.x.data()), all) << threads;
  }
  // Some of the rows, from other places of their tiles.
  for (const auto& [begin, rows] : {std::pair<int64_t, int64_t>{0, 5}, {13, 6}, {3, 40}, {65, 5}}) {
    const std::vector<float> some =
        run(problem, path, isa, 2, rows, problem.x.data() + begin * problem.k);
    const auto* same = all.data() + begin * problem.n;
    EXPECT_EQ(std::memcmp(some.data(), same, some.size() * sizeof(float)), 0)
        << "rows " << begin << " to " << begin + rows;
  }
}

INSTANTIATE_TEST_SUITE_P(All, MatmulPrefill, testing::ValuesIn(all_cases()),
                         [](const testing::TestParamInfo<Case>& test) {
                           return fmt::format("{}_{}_{}", isa_name(test.param.isa),
                                              path_name(test.param.path),
                                              dtype_info(test.param.dtype).name);
                         });

class MatmulPrefillPath : public testing::TestWithParam<MatmulPath> {};

TEST_P(MatmulPrefillPath, OutputsShareAnInputAndKeepToTheirColumns) {
  const int64_t n_rows = 19, k = 256, x_stride = 300, y_stride = 53;
  Problem first(DType::kQ4_K, n_rows, 37, k, 1), second(DType::kQ6_K, n_rows, 12, k, 2);
  Problem third(DType::kF16, n_rows, 1, k, 3);
  std::vector<float> x(n_rows * x_stride, std::nanf(""));
  for (int64_t r = 0; r < n_rows; ++r) {
    std::copy_n(first.x.data() + r * k, k, x.data() + r * x_stride);
  }
  TestPool pool(2);
  const Context context{pool, best_isa(), GetParam()};
  std::vector<float> y((n_rows + 2) * y_stride, kGuard);
  float* start = y.data() + y_stride;
  const MatmulOutput outputs[] = {{&first.weight, {start, n_rows, 37, y_stride}},
                                  {&second.weight, {start + 37, n_rows, 12, y_stride}},
                                  {&third.weight, {start + 49, n_rows, 1, y_stride}}};
  matmul(context, {x.data(), n_rows, k, x_stride}, outputs, KernelClass::kPrefill);
  for (Problem* problem : {&second, &third}) problem->x = first.x;
  int64_t column = 0;
  for (Problem* problem : {&first, &second, &third}) {
    const std::vector<float> alone =
        run(*problem, GetParam(), best_isa(), 1, n_rows, first.x.data());
    for (int64_t r = 0; r < n_rows; ++r) {
      for (int64_t c = 0; c < problem->n; ++c) {
        EXPECT_EQ(start[r * y_stride + column + c], alone[r * problem->n + c]);
      }
    }
    column += problem->n;
  }
  for (int64_t r = 0; r < n_rows; ++r) {
    for (int64_t c = column; c < y_stride; ++c) EXPECT_EQ(start[r * y_stride + c], kGuard);
  }
  EXPECT_TRUE(std::all_of(y.begin(), y.begin() + y_stride, [](float f) { return f == kGuard; }));
  EXPECT_TRUE(std::all_of(y.end() - y_stride, y.end(), [](float f) { return f == kGuard; }));
}

TEST_P(MatmulPrefillPath, MoreRowsThanAPassAreRightAtAnyAddressOfTheWeights) {
  // More rows than one pass packs; weights at an odd address, as a GGUF may have them.
  Problem problem(DType::kQ5_K, 1031, 3, 256);
  const std::vector<float> aligned =
      run(problem, GetParam(), best_isa(), 2, problem.n_rows, problem.x.data());
  expect_close(problem, GetParam(), aligned);
  std::vector<uint8_t> shifted(problem.bytes.size() + 1);
  std::copy(problem.bytes.begin(), problem.bytes.end(), shifted.begin() + 1);
  problem.weight.data = shifted.data() + 1;
  EXPECT_EQ(run(problem, GetParam(), best_isa(), 2, problem.n_rows, problem.x.data()), aligned);
}

INSTANTIATE_TEST_SUITE_P(All, MatmulPrefillPath, testing::ValuesIn(test::machine_matmul_paths()),
                         [](const testing::TestParamInfo<MatmulPath>& test) {
                           return path_name(test.param);
                         });

}  // namespace
}  // namespace weft::kernels
