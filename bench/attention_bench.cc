// Attention in the shapes of SmolLM2-135M and of a 1B model (Llama 3.2): prefill of whole prompts,
// fusion's scattered rows, decode at a depth, attention received; with Gemma 3's sliding window and
// with a soft cap; and rotating cached chunks into pages. GFLOP/s count 2 a multiply-add of visible
// keys, GB/s what is read and written; both are one core's, by the CPU time of all threads.
// --benchmark_filter=avx2/ and the like choose.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/attention.h"
#include "kernels/kv_codec.h"
#include "kernels/rope.h"
#include "kv/page_memory.h"
#include "support/instruction_sets.h"
#include "support/kv_types.h"
#include "support/test_pool.h"

namespace weft::kernels {
namespace {

using test::machine_isas;
using test::TestPool;

constexpr int kThreads = 1;
constexpr int32_t kPageTokens = 64;
constexpr DType kF16 = DType::kF16;

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

/// n elements of the type.
std::vector<std::byte> random_kv(DType type, size_t n) {
  std::vector<std::byte> bytes(row_bytes(type, n));
  encode_kv(best_isa(), type, random_floats(n), bytes.data());
  return bytes;
}

KvLayout layout_of(const Shape& shape, DType type) {
  return {type, type, shape.head_dim, shape.n_kv_heads, kPageTokens};
}

/// As the cache has it.
kv::PageMemory layer_memory(const KvLayout& layout, int64_t n_pages) {
  return *kv::PageMemory::create(
      {.n_layers = 1, .n_pages = static_cast<int32_t>(n_pages), .layout = layout});
}

/// One sequence of n_keys tokens and the rows of one step.
struct Setup {
  Setup(const Shape& shape, int32_t n_keys, std::vector<int32_t> rows, int32_t window_tokens = 0,
        float softcap = 0, DType type = DType::kF16)
      : slots(std::move(rows)),
        table(static_cast<size_t>(n_keys / kPageTokens + 1)),
        memory(layer_memory(layout_of(shape, type), std::ssize(table))) {
    std::iota(table.begin(), table.end(), 0);
    const size_t n = table.size() * static_cast<size_t>(kPageTokens) *
                     static_cast<size_t>(shape.n_kv_heads * shape.head_dim);
    const PagedKv kv = memory.layer(0);
    const std::vector<std::byte> bytes = random_kv(type, 2 * n);
    pages = {reinterpret_cast<std::byte*>(kv.pages), bytes.size()};
    std::ranges::copy(bytes, pages.begin());
    q = random_floats(slots.size() * static_cast<size_t>(shape.n_heads * shape.head_dim));
    out.resize(q.size());
    log_sum_exp.resize(slots.size() * static_cast<size_t>(shape.n_heads));
    sequence = {table.data(), 0, static_cast<int64_t>(slots.size()),
                slots.size() == 1 ? KernelClass::kDecode : KernelClass::kPrefill};
    for (const int32_t slot : slots) first_slots.push_back(std::max(0, slot + 1 - window_tokens));
    args = {.kv = kv,
            .sequences = {&sequence, 1},
            .slots = slots,
            .first_slots = window_tokens == 0 ? std::span<int32_t>() : first_slots,
            .n_heads = shape.n_heads,
            .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
            .softcap = softcap,
            .q = {q, shape.n_heads * shape.head_dim},
            .out = {out, shape.n_heads * shape.head_dim},
            .log_sum_exp = {log_sum_exp, shape.n_heads}};
    for (const int32_t slot : slots) {
      const int32_t n_visible = slot + 1;
      products += 1.0 * (window_tokens > 0 ? std::min(n_visible, window_tokens) : n_visible) *
                  shape.n_heads * shape.head_dim;
    }
  }
  std::vector<int32_t> slots, first_slots, table;
  kv::PageMemory memory;
  std::span<std::byte> pages;  // the same
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
                   const std::vector<int32_t>& rows, int32_t window_tokens, float softcap,
                   DType type) {
  Setup setup(shape, n_keys, rows, window_tokens, softcap, type);
  TestPool pool(kThreads);
  const Context context{pool, isa};
  const AttentionPlan plan = plan_attention(isa, setup.args);
  for (auto _ : state) {
    attention(context, setup.args, plan);
    benchmark::ClobberMemory();
  }
  set_rate(state, "GFLOP/s", 4e-9 * setup.products);
  if (rows.size() == 1) {
    const int32_t n_read = window_tokens > 0 ? std::min(n_keys, window_tokens) : n_keys;
    set_rate(
        state, "GB/s",
        2e-9 * n_read * shape.n_kv_heads * static_cast<double>(row_bytes(type, shape.head_dim)));
  }
}

/// Reads all bytes, 64 KB a task, and does nothing with them: what the memory allows.
uint64_t read_all(ThreadPool& pool, std::span<const std::byte> bytes) {
  constexpr int64_t kPieceBytes = 65536;
  std::atomic<uint64_t> all = 0;
  const auto n_bytes = static_cast<int64_t>(bytes.size());
  pool.run((n_bytes + kPieceBytes - 1) / kPieceBytes, [&](int64_t piece, int) {
    uint64_t sums[8] = {};
    const int64_t end = std::min(n_bytes, (piece + 1) * kPieceBytes);
    for (int64_t at = piece * kPieceBytes; at + 64 <= end; at += 64) {
      uint64_t words[8];
      std::memcpy(words, bytes.data() + at, sizeof(words));
      for (int i = 0; i < 8; ++i) sums[i] ^= words[i];
    }
    for (const uint64_t sum : sums) all ^= sum;
  });
  return all;
}

/// The time that a tenth of the runs stay below: what else the machine does adds to the others.
double low_decile(std::vector<double> seconds) {
  const auto tenth = seconds.begin() + std::ssize(seconds) / 10;
  std::nth_element(seconds.begin(), tenth, seconds.end());
  return *tenth;
}

/// Decode at a depth and a plain read of the same K and V, in turns, by the clock on the wall:
/// `share` is the rate at which decode reads as a share of the plain read's.
void run_share(benchmark::State& state, Isa isa, const Shape& shape, int32_t depth, DType type,
               int threads) {
  Setup setup(shape, depth, {depth - 1}, 0, 0, type);
  TestPool pool(threads);
  const Context context{pool, isa};
  const AttentionPlan plan = plan_attention(isa, setup.args);
  const auto seconds_of = [](const auto& fn) {
    const auto start = std::chrono::steady_clock::now();
    fn();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  std::vector<double> decode, read;
  for (auto _ : state) {
    decode.push_back(seconds_of([&] { attention(context, setup.args, plan); }));
    state.SetIterationTime(decode.back());
    benchmark::ClobberMemory();
    read.push_back(seconds_of([&] { benchmark::DoNotOptimize(read_all(pool, setup.pages)); }));
  }
  const double decoded_bytes =
      2.0 * depth * shape.n_kv_heads * static_cast<double>(row_bytes(type, shape.head_dim));
  const double read_bytes = static_cast<double>(setup.pages.size());
  const double decode_rate = decoded_bytes / low_decile(decode),
               read_rate = read_bytes / low_decile(read);
  state.counters["decode GB/s"] = 1e-9 * decode_rate;
  state.counters["read GB/s"] = 1e-9 * read_rate;
  state.counters["share"] = decode_rate / read_rate;
}

void run_received(benchmark::State& state, Isa isa, const Shape& shape, int32_t n_keys,
                  const std::vector<int32_t>& rows) {
  Setup setup(shape, n_keys, rows);
  TestPool pool(kThreads);
  const Context context{pool, isa};
  attention(context, setup.args, plan_attention(isa, setup.args));
  std::vector<float> received(static_cast<size_t>(n_keys));
  for (auto _ : state) {
    attention_received(context, setup.args, received);
    benchmark::ClobberMemory();
  }
  set_rate(state, "GFLOP/s", 2e-9 * setup.products);
}

void run_rotate(benchmark::State& state, Isa isa, const Shape& shape, RopePairing pairing,
                DType record_type) {
  constexpr int32_t kTokens = 3840;  // 8 chunks of 480, as the layers of one question have them
  constexpr int kLayers = 8;
  const size_t layer_bytes =
      2 * static_cast<size_t>(kTokens) * static_cast<size_t>(shape.n_kv_heads * shape.head_dim);
  const auto record_bytes = static_cast<size_t>(
      row_bytes(record_type, int64_t{kTokens} * shape.n_kv_heads * shape.head_dim));
  const std::vector<std::byte> k = random_kv(record_type, kLayers * layer_bytes / 2), v = k;
  std::vector<std::byte> pages(2 * kLayers * layer_bytes);
  std::vector<int32_t> table(kTokens / kPageTokens), positions(kTokens);
  std::iota(table.begin(), table.end(), 0);
  std::iota(positions.begin(), positions.end(), 0);
  RopeParams params{.pairing = pairing, .n_dims = shape.head_dim, .inverse_frequencies = {}};
  for (int i = 0; i < shape.head_dim / 2; ++i) {
    params.inverse_frequencies.push_back(std::pow(1e5, -2.0 * i / shape.head_dim));
  }
  const RopeTable rope = make_rope_table(params, positions);
  TestPool pool(kThreads);
  const Context context{pool, isa};
  for (auto _ : state) {
    for (size_t layer = 0; layer < kLayers; ++layer) {
      const size_t at = layer * layer_bytes;
      const size_t from = layer * record_bytes;
      rotate_into_pages(context, rope, 0, {record_type, k.data() + from, v.data() + from}, kTokens,
                        0, table.data(),
                        make_paged_kv(layout_of(shape, DType::kF16), pages.data() + 2 * at));
    }
    benchmark::ClobberMemory();
  }
  set_rate(state, "GB/s", 4e-9 * static_cast<double>(kLayers * layer_bytes));
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
  for (const Isa isa : machine_isas()) {
    for (const Shape& shape : {kSmol, k1B}) {
      const std::string name = std::string(isa_name(isa)) + "/" + shape.name + "/";
      add(name + "prefill_512", run_attention, isa, shape, 512, range(0, 512), 0, 0.0f, kF16);
      add(name + "prefill_4096", run_attention, isa, shape, 4096, range(0, 4096), 0, 0.0f, kF16);
      add(name + "fusion_200_of_4096", run_attention, isa, shape, 4096, range(3, 4096, 20), 0, 0.0f,
          kF16);
      for (const int32_t depth : {512, 4096, 16384}) {
        for (const DType type : test::kv_types()) {
          add(name + "decode_at_" + std::to_string(depth) + "/" +
                  std::string(dtype_info(type).name),
              run_attention, isa, shape, depth, range(depth - 1, depth), 0, 0.0f, type);
        }
      }
      for (const int32_t depth : {4096, 16384}) {
        for (const DType type : test::kv_types()) {
          for (const int threads : {1, 2}) {
            const std::string what = "share_at_" + std::to_string(depth) + "/" +
                                     std::string(dtype_info(type).name) + "/" +
                                     std::to_string(threads) + "_threads";
            benchmark::RegisterBenchmark((name + what).c_str(), run_share, isa, shape, depth, type,
                                         threads)
                ->UseManualTime()
                ->MinTime(0.2);
          }
        }
      }
      add(name + "received_100_of_4096", run_received, isa, shape, 4096, range(3996, 4096));
      for (const DType type : {kF16, DType::kQ8_0}) {
        const std::string of(dtype_info(type).name);
        add(name + "rotate_norm/" + of, run_rotate, isa, shape, RopePairing::kNorm, type);
        add(name + "rotate_neox/" + of, run_rotate, isa, shape, RopePairing::kNeox, type);
      }
    }
    for (const Shape& shape : {kGemma, kSmol}) {
      for (const auto& [kind, window, cap] :
           {std::tuple{"dense", 0, 0.0f}, {"window_512", 512, 0.0f}, {"softcap", 0, 50.0f}}) {
        const std::string name = std::string(isa_name(isa)) + "/" + shape.name + "/" + kind + "/";
        add(name + "prefill_4096", run_attention, isa, shape, 4096, range(0, 4096), window, cap,
            kF16);
        add(name + "fusion_200_of_4096", run_attention, isa, shape, 4096, range(3, 4096, 20),
            window, cap, kF16);
        add(name + "decode_at_4096", run_attention, isa, shape, 4096, range(4095, 4096), window,
            cap, kF16);
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
