// Prefill products of 512 rows in the layers' shapes, per weight type and path, on one thread.
// GFLOP/s count 2 a multiply-add and go by CPU time, so that what else runs on the machine disturbs
// them little. --benchmark_filter=Q8_0/int8 and the like choose.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/matmul.h"
#include "support/random_weights.h"
#include "support/test_pool.h"

namespace weft::kernels {
namespace {

using test::kAllTypes;
using test::random_weights;
using test::TestPool;

constexpr int64_t kRows = 512;

struct Shape {
  const char* name;
  int64_t out_features, in_features;
};

// A 1B model's layer (Llama 3.2) and SmolLM2-135M's.
constexpr Shape kShapes[] = {
    {"1b_q", 2048, 2048}, {"1b_kv", 512, 2048},  {"1b_up", 8192, 2048},  {"1b_down", 2048, 8192},
    {"smol_q", 576, 576}, {"smol_kv", 192, 576}, {"smol_up", 1536, 576}, {"smol_down", 576, 1536}};

struct Path {
  const char* name;
  MatmulPath path;
};
constexpr Path kPaths[] = {
    {"f32", MatmulPath::kF32}, {"bf16", MatmulPath::kBf16}, {"int8", MatmulPath::kInt8}};

void prefill(benchmark::State& state, DType dtype, MatmulPath path, const Shape& shape) {
  std::mt19937 random(1);
  const std::vector<uint8_t> bytes =
      random_weights(random, dtype, shape.out_features, shape.in_features);
  const WeightMatrix weight{bytes.data(), dtype, shape.out_features, shape.in_features};
  std::vector<float> x(static_cast<size_t>(kRows * shape.in_features));
  std::vector<float> y(static_cast<size_t>(kRows * shape.out_features));
  std::normal_distribution<float> normal;
  for (float& value : x) value = normal(random);
  TestPool pool(1);
  const MatmulOutput output{&weight, {y, shape.out_features}};
  const Context context{pool, best_isa(), path};
  for (auto _ : state) {
    matmul(context, {x, shape.in_features}, {&output, 1}, KernelClass::kPrefill);
    benchmark::ClobberMemory();
  }
  state.counters["GFLOP/s"] =
      benchmark::Counter(2e-9 * static_cast<double>(kRows * shape.out_features * shape.in_features),
                         benchmark::Counter::kIsIterationInvariantRate);
}

void register_all() {
  for (const DType dtype : kAllTypes) {
    for (const Path& path : kPaths) {
      for (const Shape& shape : kShapes) {
        if (shape.in_features % dtype_info(dtype).block_elements != 0) continue;
        const std::string name =
            std::string(dtype_info(dtype).name) + "/" + path.name + "/" + shape.name;
        benchmark::RegisterBenchmark(name.c_str(), prefill, dtype, path.path, shape)->MinTime(0.1);
      }
    }
  }
}

}  // namespace
}  // namespace weft::kernels

int main(int argc, char** argv) {
  weft::kernels::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
