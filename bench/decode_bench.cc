// Decode products on the shapes of a 1B model (2048 wide, FFN 8192, vocabulary 128256) and of
// SmolLM2-135M, weights streamed from memory: `weight_GB/s` counts weight bytes. `read` is what
// plain reading of as many bytes takes on the same threads: the roof.
//   make bench; build/release/decode_bench --benchmark_filter=1b
// WEFT_BENCH_THREADS sets the threads (default 2), WEFT_BENCH_ISA the instruction set.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/matmul_decode.h"
#include "support/random_weights.h"
#include "support/test_pool.h"
#include "tensor/buffer.h"

namespace weft::kernels {
namespace {

using test::kAllTypes;
using test::random_weights;
using test::TestPool;

/// The products of one layer, grouped as the forward pass groups them.
struct Shape {
  const char* name;
  int64_t width, kv_width, ffn;
};

constexpr Shape kOneB{"1b", 2048, 512, 8192};
constexpr Shape kSmol{"smol", 576, 192, 1536};

int threads() {
  const char* value = std::getenv("WEFT_BENCH_THREADS");
  return value == nullptr ? 2 : std::atoi(value);
}

Isa isa() {
  const char* value = std::getenv("WEFT_BENCH_ISA");
  if (value == nullptr) return best_isa();
  const Result<Isa> parsed = parse_isa(value);
  if (!parsed.is_ok()) {
    fmt::print(stderr, "{}\n", parsed.status().message());
    std::exit(1);
  }
  return *parsed;
}

/// Layers until the caches are well exceeded, so that every pass reads memory.
class Layers {
 public:
  Layers(DType dtype, const Shape& shape) {
    const int64_t sizes[][2] = {{shape.width, shape.width},    {shape.kv_width, shape.width},
                                {shape.kv_width, shape.width}, {shape.width, shape.width},
                                {shape.ffn, shape.width},      {shape.ffn, shape.width},
                                {shape.width, shape.ffn}};
    int64_t layer_bytes = 0;
    for (const auto& [out, in] : sizes) layer_bytes += out * row_bytes(dtype, padded(dtype, in));
    n_layers_ = std::max<int64_t>(1, kTotalBytes / layer_bytes);
    bytes_ = n_layers_ * layer_bytes;
    data_ = AlignedBuffer<uint8_t>(bytes_);
    fill(dtype);
    const uint8_t* next = data_.data();
    for (int64_t layer = 0; layer < n_layers_; ++layer) {
      for (const auto& [out, in] : sizes) {
        matrices_.push_back({next, dtype, out, padded(dtype, in)});
        next += out * row_bytes(dtype, padded(dtype, in));
      }
    }
  }

  int64_t bytes() const { return bytes_; }
  std::span<const uint8_t> data() const { return data_.span(); }

  void run(const Context& context, const float* x, int64_t n_rows, float* y) const {
    constexpr int64_t kStride = 8192 + 64;
    for (size_t m = 0; m < matrices_.size(); m += 7) {
      std::vector<MatmulOutput> outputs(7);
      for (size_t i = 0; i < 7; ++i) {
        const WeightMatrix& weight = matrices_[m + i];
        outputs[i] = {&weight, {y + i * 8192, n_rows, weight.out_features, 8 * 8192}};
      }
      const std::span<const MatmulOutput> all(outputs);
      const auto multiply = [&](std::span<const MatmulOutput> some) {
        matmul_decode(context, {x, n_rows, some.front().weight->in_features, kStride}, some);
      };
      multiply(all.subspan(0, 3));  // q, k, v
      multiply(all.subspan(3, 1));  // attention's output
      multiply(all.subspan(4, 2));  // gate, up
      multiply(all.subspan(6, 1));  // down
    }
  }

 private:
  static constexpr int64_t kTotalBytes = int64_t{400} << 20;

  /// SmolLM2's 576 is no multiple of 256.
  static int64_t padded(DType dtype, int64_t n) {
    const int64_t block = dtype_info(dtype).block_elements;
    return (n + block - 1) / block * block;
  }

  void fill(DType dtype) {
    std::mt19937 random(1);
    const int64_t chunk_elements = 1 << 16;
    const std::vector<uint8_t> chunk = random_weights(random, dtype, 1, chunk_elements);
    for (int64_t at = 0; at < data_.size(); at += std::ssize(chunk)) {
      std::memcpy(data_.data() + at, chunk.data(), std::min(std::ssize(chunk), data_.size() - at));
    }
  }

  int64_t n_layers_ = 0, bytes_ = 0;
  AlignedBuffer<uint8_t> data_;
  std::vector<WeightMatrix> matrices_;
};

void report(benchmark::State& state, int64_t bytes) {
  state.counters["weight_GB/s"] = benchmark::Counter(
      static_cast<double>(bytes) * 1e-9 * static_cast<double>(state.iterations()),
      benchmark::Counter::kIsRate);
}

void decode(benchmark::State& state, DType dtype, const Shape& shape, int64_t n_rows) {
  const Layers layers(dtype, shape);
  TestPool pool(threads());
  const std::vector<float> x(static_cast<size_t>(n_rows * (8192 + 64)), 0.5f);
  std::vector<float> y(static_cast<size_t>(n_rows * 8 * 8192));
  for (auto _ : state) {
    layers.run({pool, isa()}, x.data(), n_rows, y.data());
    benchmark::ClobberMemory();
  }
  report(state, layers.bytes());
}

void read_memory(benchmark::State& state) {
  const Layers layers(DType::kBF16, kOneB);
  TestPool pool(threads());
  constexpr int64_t kPart = 1 << 16;
  for (auto _ : state) {
    pool->run(layers.bytes() / kPart, [&](int64_t task, int) {
      uint64_t sums[8] = {};
      const uint8_t* part = layers.data().data() + task * kPart;
      for (int64_t i = 0; i < kPart; i += 64) {
        uint64_t words[8];
        std::memcpy(words, part + i, sizeof words);
        __builtin_prefetch(part + i + 2048);
        for (int j = 0; j < 8; ++j) sums[j] += words[j];
      }
      for (uint64_t sum : sums) benchmark::DoNotOptimize(sum);
    });
  }
  report(state, layers.bytes());
}

/// One thread on weights that stay in its L2 cache, by CPU time: what the arithmetic alone takes.
void decode_cached(benchmark::State& state, DType dtype, int64_t n_rows) {
  const int64_t in = 2048, out = (int64_t{256} << 10) / row_bytes(dtype, in);
  std::mt19937 random(1);
  const std::vector<uint8_t> weights = random_weights(random, dtype, out, in);
  const WeightMatrix matrix{weights.data(), dtype, out, in};
  const std::vector<float> x(static_cast<size_t>(n_rows * in), 0.5f);
  std::vector<float> y(static_cast<size_t>(n_rows * out));
  TestPool pool(1);
  const Context context{pool, isa()};
  const MatmulOutput output{&matrix, {y, out}};
  for (auto _ : state) {
    matmul_decode(context, {x, in}, {&output, 1});
    benchmark::ClobberMemory();
  }
  report(state, static_cast<int64_t>(weights.size()));
}

void register_all() {
  for (const DType dtype : kAllTypes) {
    for (const int64_t rows : {1, 2, 3, 4, 16}) {
      const std::string name = fmt::format("cached/{}/rows:{}", dtype_info(dtype).name, rows);
      benchmark::RegisterBenchmark(name.c_str(), decode_cached, dtype, rows);
    }
  }
  benchmark::RegisterBenchmark("read", read_memory)->UseRealTime()->Unit(benchmark::kMillisecond);
  for (const Shape& shape : {kOneB, kSmol}) {
    for (const DType dtype : kAllTypes) {
      for (const int64_t rows : {1, 2, 3, 4, 16}) {
        const std::string name =
            fmt::format("decode/{}/{}/rows:{}", shape.name, dtype_info(dtype).name, rows);
        benchmark::RegisterBenchmark(name.c_str(), decode, dtype, shape, rows)
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
}

}  // namespace
}  // namespace weft::kernels

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  weft::kernels::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
