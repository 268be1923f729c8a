// Attention in the shapes of SmolLM2-135M and of a 1B model (Llama 3.2): prefill of whole prompts,
// fusion's scattered rows, decode at a depth, attention mass; with Gemma 3's sliding window and
// with a soft cap; and rotating cached chunks into pages. GFLOP/s count 2 a multiply-add of visible
// keys, GB/s what is read and written; both are one core's, by the CPU time of all threads.
// --benchmark_filter=avx2/ and the like choose.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "base/test_pool_internal.h"
#include "kernels/attention.h"
#include "kernels/rope.h"
#include "tensor/half.h"

namespace weft::kernels {
namespace {

constexpr int kThreads = 1;
constexpr int32_t kPageTokens = 64;

struct Shape {
  const char* name;
  int32_t n_heads, n_kv_heads, head_dim;
};
constexpr Shape kSmol = {"smollm2", 9, 3, 64};
constexpr Shape k1B = {"1b", 32, 8, 64};
constexpr Shape kGemma = {"gemma3_270m", 4, 1, 256};

std::vector<float> random_floats(size_t n) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& value : values) value = normal(generator);
  return values;
}

std::vector<uint16_t> random_halves(size_t n) {
  std::vector<uint16_t> halves(n);
  const std::vector<float> values = random_floats(n);
  for (size_t i = 0; i < n; ++i) halves[i] = f16_from_f32(values[i]);
  return halves;
}

/// One sequence of n_keys tokens and the rows of one step.
struct Setup {
  Setup(const Shape& shape, int32_t n_keys, std::vector<int32_t> rows, int32_t window_tokens = 0,
        float softcap = 0)
      : positions(std::move(rows)), table(static_cast<size_t>(n_keys / kPageTokens + 1)) {
    std::iota(table.begin(), table.end(), 0);
    const size_t halves = table.size() * static_cast<size_t>(kPageTokens) *
                          static_cast<size_t>(shape.n_kv_heads * shape.head_dim);
    k = random_halves(halves);
    v = random_halves(halves);
    q = random_floats(positions.size() * static_cast<size_t>(shape.n_heads * shape.head_dim));
    out.resize(q.size());
    log_sum_exp.resize(positions.size() * static_cast<size_t>(shape.n_heads));
    sequence = {table.data(), 0, static_cast<int64_t>(positions.size())};
    args = {.kv = {k.data(), v.data(), kPageTokens, shape.n_kv_heads, shape.head_dim},
            .sequences = {&sequence, 1},
            .positions = positions.data(),
            .n_heads = shape.n_heads,
            .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
            .softcap = softcap,
            .window_tokens = window_tokens,
            .q = q.data(),
            .out = out.data(),
            .log_sum_exp = log_sum_exp.data()};
    for (const int32_t position : positions) {
      const int32_t n_visible = position + 1;
      products += 1.0 * (window_tokens > 0 ? std::min(n_visible, window_tokens) : n_visible) *
                  shape.n_heads * shape.head_dim;
    }
  }
  std::vector<int32_t> positions, table;
  std::vector<uint16_t> k, v;
  std::vector<float> q, out, log_sum_exp;
  AttentionSequence sequence;
  AttentionArgs args;
  double products = 0;  // multiply-adds of q k
};

void set_rate(benchmark::State& state, const char* name, double per_iteration) {
  state.counters[name] =
      benchmark::Counter(per_iteration, benchmark::Counter::kIsIterationInvariantRate);
}

void run_attention(benchmark::State& state, Isa isa, const Shape& shape, int32_t n_keys,
                   const std::vector<int32_t>& rows, int32_t window_tokens, float softcap) {
  Setup setup(shape, n_keys, rows, window_tokens, softcap);
  TestPool pool(kThreads);
  for (auto _ : state) {
    attention({pool, isa}, setup.args);
    benchmark::ClobberMemory();
  }
  set_rate(state, "GFLOP/s", 4e-9 * setup.products);
  if (rows.size() == 1) {
    const int32_t n_read = window_tokens > 0 ? std::min(n_keys, window_tokens) : n_keys;
    set_rate(state, "GB/s", 4e-9 * n_read * shape.n_kv_heads * shape.head_dim);
  }
}

void run_mass(benchmark::State& state, Isa isa, const Shape& shape, int32_t n_keys,
              const std::vector<int32_t>& rows) {
  Setup setup(shape, n_keys, rows);
  TestPool pool(kThreads);
  attention({pool, isa}, setup.args);
  std::vector<float> mass(static_cast<size_t>(n_keys));
  for (auto _ : state) {
    attention_mass({pool, isa}, setup.args, n_keys, mass.data());
    benchmark::ClobberMemory();
  }
  set_rate(state, "GFLOP/s", 2e-9 * setup.products);
}

void run_rotate(benchmark::State& state, Isa isa, const Shape& shape, RopePairing pairing) {
  constexpr int32_t kTokens = 3840;  // 8 chunks of 480, as the layers of one question have them
  constexpr int kLayers = 8;
  const size_t layer_halves =
      static_cast<size_t>(kTokens) * static_cast<size_t>(shape.n_kv_heads * shape.head_dim);
  const std::vector<uint16_t> k = random_halves(kLayers * layer_halves), v = k;
  std::vector<uint16_t> k_pages(k.size()), v_pages(k.size());
  std::vector<int32_t> table(kTokens / kPageTokens), positions(kTokens);
  std::iota(table.begin(), table.end(), 0);
  std::iota(positions.begin(), positions.end(), 0);
  RopeParams params{.pairing = pairing, .n_dims = shape.head_dim, .inverse_frequencies = {}};
  for (int i = 0; i < shape.head_dim / 2; ++i) {
    params.inverse_frequencies.push_back(std::pow(1e5, -2.0 * i / shape.head_dim));
  }
  const RopeTable rope = make_rope_table(params, positions);
  TestPool pool(kThreads);
  for (auto _ : state) {
    for (size_t layer = 0; layer < kLayers; ++layer) {
      const size_t at = layer * layer_halves;
      rotate_into_pages({pool, isa}, rope, 0, k.data() + at, v.data() + at, kTokens, 0,
                        table.data(),
                        {k_pages.data() + at, v_pages.data() + at, kPageTokens, shape.n_kv_heads,
                         shape.head_dim});
    }
    benchmark::ClobberMemory();
  }
  set_rate(state, "GB/s", 8e-9 * static_cast<double>(kLayers * layer_halves));
}

std::vector<int32_t> range(int32_t begin, int32_t end, int32_t step = 1) {
  std::vector<int32_t> values;
  for (int32_t i = begin; i < end; i += step) values.push_back(i);
  return values;
}

template <class Fn, class... Args>
void add(const std::string& name, Fn fn, const Args&... args) {
  benchmark::RegisterBenchmark(name.c_str(), fn, args...)->MeasureProcessCPUTime()->MinTime(0.2);
}

void register_all() {
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16}) {
    if (!cpu_has(isa)) continue;
    for (const Shape& shape : {kSmol, k1B}) {
      const std::string name = std::string(isa_name(isa)) + "/" + shape.name + "/";
      add(name + "prefill_512", run_attention, isa, shape, 512, range(0, 512), 0, 0.0f);
      add(name + "prefill_4096", run_attention, isa, shape, 4096, range(0, 4096), 0, 0.0f);
      add(name + "fusion_200_of_4096", run_attention, isa, shape, 4096, range(3, 4096, 20), 0,
          0.0f);
      add(name + "decode_at_4096", run_attention, isa, shape, 4096, range(4095, 4096), 0, 0.0f);
      add(name + "mass_100_of_4096", run_mass, isa, shape, 4096, range(3996, 4096));
      add(name + "rotate_norm", run_rotate, isa, shape, RopePairing::kNorm);
      add(name + "rotate_neox", run_rotate, isa, shape, RopePairing::kNeox);
    }
    for (const Shape& shape : {kGemma, kSmol}) {
      for (const auto& [kind, window, cap] :
           {std::tuple{"dense", 0, 0.0f}, {"window_512", 512, 0.0f}, {"softcap", 0, 50.0f}}) {
        const std::string name = std::string(isa_name(isa)) + "/" + shape.name + "/" + kind + "/";
        add(name + "prefill_4096", run_attention, isa, shape, 4096, range(0, 4096), window, cap);
        add(name + "fusion_200_of_4096", run_attention, isa, shape, 4096, range(3, 4096, 20),
            window, cap);
        add(name + "decode_at_4096", run_attention, isa, shape, 4096, range(4095, 4096), window,
            cap);
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
