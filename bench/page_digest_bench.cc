// What sparse decoding adds to a step, layer by layer: scoring all pages by their digests and some
// by their tokens' labels, choosing among them, and making digests of new pages; in the shapes of a
// 1B model (Llama 3.2) and of one of 7B without grouped queries. GB/s are of digests, or of K that
// digests are made of; `share` is the rate as a share of a plain read's of the same bytes, in
// turns. Times are the wall's. --benchmark_filter=avx2/ and the like choose.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "kernels/kv_codec.h"
#include "kernels/page_digest.h"
#include "kernels/page_mass.h"
#include "kernels/token_labels.h"
#include "kernels/top_pages.h"
#include "support/instruction_sets.h"
#include "support/numbers.h"
#include "support/test_pool.h"
#include "tensor/buffer.h"

namespace weft::kernels {
namespace {

using test::machine_isas;
using test::random_floats;
using test::TestPool;

constexpr int32_t kPageTokens = 16;
constexpr int32_t kPages = 2048;
// Layers that are gone through in turn, as a step does: their digests come from memory, not from
// the cache.
constexpr int32_t kLayers = 16;

struct Shape {
  const char* name;
  int32_t n_heads, n_kv_heads, head_dim;
};
constexpr Shape k1B = {"1b", 32, 8, 64};
constexpr Shape k7B = {"7b_mha", 32, 32, 128};

struct Type {
  const char* name;
  DigestKind kind;
  DigestType type;
};
constexpr Type kDigests[] = {{"minmax_int8", DigestKind::kMinMax, DigestType::kInt8},
                             {"minmax_f16", DigestKind::kMinMax, DigestType::kF16},
                             {"mean_int8", DigestKind::kMean, DigestType::kInt8}};

DigestLayout layout_of(const Shape& shape, const Type& type) {
  return {type.kind, type.type, shape.head_dim, shape.n_kv_heads};
}

KvLayout kv_layout_of(const Shape& shape) {
  return {DType::kF16, DType::kF16, shape.head_dim, shape.n_kv_heads, kPageTokens};
}

/// Pages of random keys.
std::vector<std::byte> random_pages(const Shape& shape, int32_t n_pages) {
  const int64_t n = int64_t{n_pages} * kPageTokens * 2 * shape.n_kv_heads * shape.head_dim;
  const std::vector<float> some = random_floats(4096, 1);
  std::vector<std::byte> bytes(2 * n);
  const Isa isa = best_isa();
  for (int64_t i = 0; i < n; i += 4096) {
    encode_kv(isa, DType::kF16, some, bytes.data() + 2 * i);
  }
  return bytes;
}

std::vector<int32_t> all_pages(int32_t n) {
  std::vector<int32_t> pages(n);
  std::iota(pages.begin(), pages.end(), 0);
  return pages;
}

double seconds_of(const auto& fn) {
  const auto start = std::chrono::steady_clock::now();
  fn();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Reads a word of each cache line, 32 KB a task, and does nothing with them: what the memory
/// allows. All eight words, without vectors, took as long as digests' scores.
void read_all(ThreadPool& pool, std::span<const std::byte> bytes) {
  constexpr int64_t kPieceBytes = 32768;
  std::atomic<uint64_t> all = 0;
  pool.run(std::ssize(bytes) / kPieceBytes, [&](int64_t piece, int) {
    uint64_t sums[4] = {};
    for (int64_t at = piece * kPieceBytes; at < (piece + 1) * kPieceBytes; at += 256) {
      for (int64_t i = 0; i < 4; ++i) {
        uint64_t word;
        std::memcpy(&word, bytes.data() + at + 64 * i, sizeof(word));
        sums[i] ^= word;
      }
    }
    for (const uint64_t sum : sums) all ^= sum;
  });
  benchmark::DoNotOptimize(all.load());
}

/// The time that a tenth of the runs stay below: what else the machine does adds to the others.
double low_decile(std::vector<double> seconds) {
  const auto tenth = seconds.begin() + std::ssize(seconds) / 10;
  std::nth_element(seconds.begin(), tenth, seconds.end());
  return *tenth;
}

/// The digests of kLayers layers, of random keys.
struct Layers {
  Layers(const Context& context, const Shape& shape, const Type& type)
      : layout(layout_of(shape, type)),
        layer_bytes(int64_t{kPages} * shape.n_kv_heads * digest_bytes(layout)),
        memory(AlignedBuffer<std::byte>::uninitialised(kLayers * layer_bytes)) {
    std::vector<std::byte> kv_bytes = random_pages(shape, kPages);
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      make_digests(context, make_paged_kv(kv_layout_of(shape), kv_bytes.data()), pages, at(layer));
    }
  }
  std::span<std::byte> bytes(int64_t layer) {
    return {memory.data() + layer % kLayers * layer_bytes, static_cast<size_t>(layer_bytes)};
  }
  PagedDigests at(int64_t layer) { return make_paged_digests(layout, bytes(layer).data()); }

  DigestLayout layout;
  int64_t layer_bytes;
  AlignedBuffer<std::byte> memory;
  std::vector<int32_t> pages = all_pages(kPages);
};

/// All pages of a layer for one row, layer after layer.
void run_score(benchmark::State& state, Isa isa, const Shape& shape, const Type& type,
               int n_threads) {
  const std::vector<float> q = random_floats(shape.n_heads * shape.head_dim, 2);
  std::vector<float> scores(int64_t{shape.n_heads} * kPages);
  TestPool pool(n_threads);
  const Context context{pool, isa};
  Layers layers(context, shape, type);
  const DigestQuery query = {q.data(), layers.pages, scores.data(), kPages};
  std::vector<double> scored, read;
  int64_t layer = 0;
  for (auto _ : state) {
    scored.push_back(seconds_of([&] {
      score_digests(context, layers.at(layer), shape.n_heads, 0.125f, {&query, 1});
    }));
    state.SetIterationTime(scored.back());
    read.push_back(seconds_of([&] { read_all(pool, layers.bytes(layer + kLayers / 2)); }));
    ++layer;
    benchmark::ClobberMemory();
  }
  state.counters["GB/s"] = 1e-9 * layers.layer_bytes / low_decile(scored);
  state.counters["read GB/s"] = 1e-9 * layers.layer_bytes / low_decile(read);
  state.counters["share"] = low_decile(read) / low_decile(scored);
}

void run_make(benchmark::State& state, Isa isa, const Shape& shape, const Type& type,
              int n_threads) {
  const DigestLayout layout = layout_of(shape, type);
  constexpr int32_t kNewPages = 64;
  std::vector<std::byte> digests(int64_t{kNewPages} * shape.n_kv_heads * digest_bytes(layout));
  std::vector<std::byte> kv_bytes = random_pages(shape, kNewPages);
  const std::vector<int32_t> pages = all_pages(kNewPages);
  TestPool pool(n_threads);
  for (auto _ : state) {
    make_digests({.pool = pool, .isa = isa}, make_paged_kv(kv_layout_of(shape), kv_bytes.data()),
                 pages, make_paged_digests(layout, digests.data()));
    benchmark::ClobberMemory();
  }
  state.counters["GB/s"] = benchmark::Counter(0.5e-9 * std::ssize(kv_bytes),
                                              benchmark::Counter::kIsIterationInvariantRate);
}

std::vector<uint8_t> some_channels(const Shape& shape) {
  std::vector<uint8_t> channels(shape.n_kv_heads * kLabelChannels);
  for (size_t i = 0; i < channels.size(); ++i) channels[i] = i % kLabelChannels * 3;
  return channels;
}

void run_make_labels(benchmark::State& state, Isa isa, const Shape& shape, LabelKind kind,
                     int n_threads) {
  const DigestLayout digest_layout = {DigestKind::kCuboidMean, DigestType::kInt8, shape.head_dim,
                                      shape.n_kv_heads};
  const LabelLayout layout = {kind, shape.head_dim, shape.n_kv_heads, kPageTokens};
  constexpr int32_t kNewPages = 64;
  const int64_t n = int64_t{kNewPages} * shape.n_kv_heads;
  std::vector<std::byte> digests(n * digest_bytes(digest_layout)), labels(n * label_bytes(layout));
  const std::vector<uint8_t> channels = some_channels(shape);
  std::vector<std::byte> kv_bytes = random_pages(shape, kNewPages);
  const std::vector<int32_t> pages = all_pages(kNewPages);
  TestPool pool(n_threads);
  const Context context{pool, isa};
  const PagedKv kv = make_paged_kv(kv_layout_of(shape), kv_bytes.data());
  const PagedDigests of_pages = make_paged_digests(digest_layout, digests.data());
  make_digests(context, kv, pages, of_pages);
  for (auto _ : state) {
    make_labels(context, kv, pages, of_pages,
                make_paged_labels(layout, labels.data(),
                                  kind == LabelKind::kChannels ? channels.data() : nullptr));
    benchmark::ClobberMemory();
  }
  state.counters["GB/s"] = benchmark::Counter(0.5e-9 * std::ssize(kv_bytes),
                                              benchmark::Counter::kIsIterationInvariantRate);
}

/// Labels of 512 pages of 2,048 for one row, layer after layer, each KV head others.
void run_labels(benchmark::State& state, Isa isa, const Shape& shape, LabelKind kind,
                LabelDepth depth, int n_threads) {
  constexpr int32_t kPlaces = 512;
  const DigestLayout digest_layout = {DigestKind::kCuboidMean, DigestType::kInt8, shape.head_dim,
                                      shape.n_kv_heads};
  const LabelLayout layout = {kind, shape.head_dim, shape.n_kv_heads, kPageTokens};
  const int64_t n = int64_t{kPages} * shape.n_kv_heads;
  auto digests = AlignedBuffer<std::byte>::uninitialised(kLayers * n * digest_bytes(digest_layout));
  auto labels = AlignedBuffer<std::byte>::uninitialised(kLayers * n * label_bytes(layout));
  const std::vector<uint8_t> channels = some_channels(shape);
  std::vector<std::byte> kv_bytes = random_pages(shape, kPages);
  const std::vector<int32_t> pages = all_pages(kPages);
  TestPool pool(n_threads);
  const Context context{pool, isa};
  const PagedKv kv = make_paged_kv(kv_layout_of(shape), kv_bytes.data());
  const auto digests_of = [&](int64_t layer) {
    return make_paged_digests(digest_layout,
                              digests.data() + layer * n * digest_bytes(digest_layout));
  };
  const auto labels_of = [&](int64_t layer) {
    return make_paged_labels(layout, labels.data() + layer * n * label_bytes(layout),
                             kind == LabelKind::kChannels ? channels.data() : nullptr);
  };
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    make_digests(context, kv, pages, digests_of(layer));
    make_labels(context, kv, pages, digests_of(layer), labels_of(layer));
  }
  std::mt19937 random(3);
  std::vector<std::vector<int32_t>> places(shape.n_kv_heads, std::vector<int32_t>(kPlaces));
  for (std::vector<int32_t>& of_head : places) {
    std::ranges::sample(pages, of_head.begin(), kPlaces, random);
  }
  const std::vector<std::span<const int32_t>> of_heads(places.begin(), places.end());
  const std::vector<float> q = random_floats(shape.n_heads * shape.head_dim, 2);
  std::vector<float> scores(int64_t{shape.n_heads} * kPlaces);
  int64_t layer = 0;
  for (auto _ : state) {
    const LabelQuery query = {q.data(),      pages,  of_heads, labels_of(layer).layout.page_tokens,
                              scores.data(), kPlaces};
    score_labels(context, digests_of(layer), labels_of(layer), depth, shape.n_heads, 0.125f,
                 {&query, 1});
    layer = (layer + 1) % kLayers;
    benchmark::ClobberMemory();
  }
  state.counters["pages/s"] = benchmark::Counter(1.0 * kPlaces * shape.n_heads,
                                                 benchmark::Counter::kIsIterationInvariantRate);
}

/// One KV head's choice.
void run_choose(benchmark::State& state, Isa isa, int64_t n_chosen, int64_t n_pages) {
  TestPool pool(1);
  const Context context{pool, isa};
  std::vector<std::vector<float>> scores;
  for (uint32_t i = 0; i < 16; ++i) scores.push_back(random_floats(n_pages, i, 3.0f));
  std::vector<int32_t> chosen(n_chosen);
  size_t i = 0;
  for (auto _ : state) {
    const PageChoice choice = {scores[i++ % scores.size()], chosen};
    top_pages(context, {&choice, 1});
    benchmark::ClobberMemory();
  }
}

void run_group(benchmark::State& state, Isa isa, const Shape& shape, int n_threads) {
  TestPool pool(n_threads);
  const std::vector<float> of_heads = random_floats(int64_t{shape.n_heads} * kPages, 3, 3.0f);
  std::vector<float> of_groups(int64_t{shape.n_kv_heads} * kPages);
  const PageScores row = {{of_heads, kPages}, {of_groups, kPages}};
  for (auto _ : state) {
    group_scores({.pool = pool, .isa = isa}, {&row, 1});
    benchmark::ClobberMemory();
  }
}

void run_mass(benchmark::State& state, Isa isa, const Shape& shape, int n_threads) {
  std::vector<std::byte> kv_bytes = random_pages(shape, kPages);
  const std::vector<float> q = random_floats(shape.n_heads * shape.head_dim, 2);
  const std::vector<float> scales(shape.n_heads, 0.125f);
  const std::vector<int32_t> pages = all_pages(kPages);
  std::vector<float> scores(int64_t{shape.n_heads} * kPages);
  TestPool pool(n_threads);
  const MassQuery query = {.q = q.data(),
                           .scales = scales,
                           .pages = pages,
                           .last_page_tokens = kPageTokens,
                           .scores = scores.data(),
                           .stride = kPages};
  for (auto _ : state) {
    page_mass({.pool = pool, .isa = isa}, make_paged_kv(kv_layout_of(shape), kv_bytes.data()),
              shape.n_heads, {&query, 1});
    benchmark::ClobberMemory();
  }
  state.counters["GB/s"] = benchmark::Counter(0.5e-9 * std::ssize(kv_bytes),
                                              benchmark::Counter::kIsIterationInvariantRate);
}

template <class... Args>
auto* add(const std::string& name, const Args&... args) {
  return benchmark::RegisterBenchmark(name.c_str(), args...)->MinTime(0.1);
}

void register_all() {
  for (const Isa isa : machine_isas()) {
    const std::string set = std::string(isa_name(isa)) + "/";
    for (const Shape& shape : {k1B, k7B}) {
      for (const int n_threads : {1, 2}) {
        const std::string end = "/" + std::to_string(n_threads) + "_threads";
        for (const Type& type : kDigests) {
          const std::string of = set + shape.name + "/" + type.name + "/";
          add(of + "score_2048" + end, run_score, isa, shape, type, n_threads)->UseManualTime();
          add(of + "make_64" + end, run_make, isa, shape, type, n_threads)->UseRealTime();
        }
        add(set + shape.name + "/sides/make_64" + end, run_make_labels, isa, shape,
            LabelKind::kSides, n_threads)
            ->UseRealTime();
        add(set + shape.name + "/channels/make_64" + end, run_make_labels, isa, shape,
            LabelKind::kChannels, n_threads)
            ->UseRealTime();
        add(set + shape.name + "/sides/score_512" + end, run_labels, isa, shape, LabelKind::kSides,
            LabelDepth::kSide, n_threads)
            ->UseRealTime();
        add(set + shape.name + "/sides/score_512_by_all" + end, run_labels, isa, shape,
            LabelKind::kSides, LabelDepth::kAll, n_threads)
            ->UseRealTime();
        add(set + shape.name + "/channels/score_512" + end, run_labels, isa, shape,
            LabelKind::kChannels, LabelDepth::kAll, n_threads)
            ->UseRealTime();
        add(set + shape.name + "/group" + end, run_group, isa, shape, n_threads)->UseRealTime();
        add(set + shape.name + "/mass" + end, run_mass, isa, shape, n_threads)->UseRealTime();
      }
    }
    add(set + "choose_128_of_2048", run_choose, isa, 128, 2048);
    add(set + "choose_2048_of_8192", run_choose, isa, 2048, 8192);
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
