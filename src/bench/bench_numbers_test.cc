// Numbers that a caller of the benchmarks may get wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <vector>

#include "bench/batch.h"
#include "bench/speed.h"
#include "bench/ttft.h"
#include "gguf/random_model.h"
#include "support/files.h"

namespace weft::bench {
namespace {

constexpr int32_t kMin = std::numeric_limits<int32_t>::min();
constexpr int32_t kMax = std::numeric_limits<int32_t>::max();

class BenchNumbers : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string model = folder_ / "model.gguf";
    ASSERT_TRUE(gguf::write_random_model(posix_env(), model, {.vocab = 300}).is_ok());
    auto opened = engine::Engine::open(
        posix_env(),
        {.model_path = model, .n_threads = 1, .context_tokens = 256, .compute = "f32"});
    ASSERT_TRUE(opened.is_ok()) << opened.status().message();
    engine_ = *std::move(opened);
  }

  void expect_refused(const TtftOptions& options) {
    const auto report = bench_ttft(*engine_, options, go_on);
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument) << report.status().message();
  }
  void expect_refused(const SpeedOptions& options) {
    const auto report = bench_speed(*engine_, options, go_on);
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument) << report.status().message();
  }

  void expect_refused(const BatchOptions& options) {
    const auto report = bench_batch(*engine_, options, go_on);
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument) << report.status().message();
  }

  static constexpr auto go_on = [](int64_t, int64_t) { return true; };

  test::TempDir folder_;
  std::unique_ptr<engine::Engine> engine_;
};

TEST_F(BenchNumbers, TtftRefusesThemBeforeItMakesThePrompt) {
  for (const int32_t n : {kMin, -1, 0, kMax}) {
    TtftOptions options;
    options.store_dir = folder_ / "store";
    options.chunk_tokens = n;
    expect_refused(options);
    options.chunk_tokens = 1;
    options.n_chunks = n;
    expect_refused(options);
    options.n_chunks = 1;
    options.question_tokens = n;
    expect_refused(options);
  }
}

TEST_F(BenchNumbers, SpeedRefusesThem) {
  for (const int32_t n : {kMin, -1, kMax}) {
    SpeedOptions options;
    options.prefill_tokens = {8};
    options.decode_tokens = n;
    options.depth_tokens = kMax;
    expect_refused(options);
    options.decode_tokens = 1;
    options.depth_tokens = n;
    expect_refused(options);
    options.depth_tokens = 0;
    options.prefill_tokens = {n};
    expect_refused(options);
  }
}

TEST_F(BenchNumbers, SpeedTellsAttentionOfLayersThatChooseFromThatOfOthers) {
  const SpeedOptions options{.prefill_tokens = {},
                             .decode_tokens = 8,
                             .depth_tokens = 200,
                             .fills_random = true,
                             .repeat = 2};
  const auto dense = bench_speed(*engine_, options, go_on);
  ASSERT_TRUE(dense.is_ok()) << dense.status().message();
  const int32_t n_layers = engine_->model().config().n_layers;
  EXPECT_EQ(dense->dense.n_layers, n_layers);
  EXPECT_GT(dense->dense.ms.min, 0);
  EXPECT_EQ(dense->selecting.n_layers, 0);
  sparse::SparseOptions sparse{.policy = sparse::Policy::kOracle, .budget_tokens = 64};
  sparse.dense_layers = 1;
  ASSERT_TRUE(engine_->use_sparse(sparse).is_ok());
  const auto report = bench_speed(*engine_, options, go_on);
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  EXPECT_EQ(report->dense.n_layers, 1);
  EXPECT_EQ(report->selecting.n_layers, n_layers - 1);
  // An oracle reads all of K to choose.
  EXPECT_GT(report->selecting.select_ms.min, report->dense.select_ms.max);
  EXPECT_GT(report->selecting.ms.min, report->selecting.select_ms.min);
  // Of a step, which has more to do.
  EXPECT_LT(report->dense.ms.median + (n_layers - 1) * report->selecting.ms.median,
            1e3 / report->decode_tokens_per_s.min);
}

TEST_F(BenchNumbers, BatchRefusesThem) {
  for (const int32_t n : {kMin, -1, 0, kMax}) {
    expect_refused(BatchOptions{.batches = {1}, .prompt_tokens = n});
    expect_refused(BatchOptions{.batches = {1}, .prompt_tokens = 8, .new_tokens = n});
  }
  expect_refused(BatchOptions{.batches = {1}, .prompt_tokens = 8, .new_tokens = 1});
  for (const int32_t n : {kMin, -1, 250, kMax}) {
    expect_refused(
        BatchOptions{.batches = {1}, .prompt_tokens = 8, .new_tokens = 4, .shared_tokens = n});
  }
  for (const int32_t n : {120, kMax}) {  // up to twice as many
    expect_refused(
        BatchOptions{.batches = {1}, .prompt_tokens = n, .new_tokens = 12, .mixed = true});
  }
  expect_refused(BatchOptions{.batches = {1, kMax}, .prompt_tokens = 8, .new_tokens = 8});
}

// Not only between runs, of which one may take minutes.
TEST_F(BenchNumbers, AllStopWithinARun) {
  int n_asked = 0;
  const auto stop = [&](int64_t done, int64_t) {
    EXPECT_EQ(done, 0);
    return ++n_asked < 3;
  };
  const auto expect_stopped = [&](const Status& status) {
    EXPECT_EQ(status.code(), StatusCode::kCancelled);
    EXPECT_EQ(status.message(), "stopped");
    EXPECT_EQ(n_asked, 3);
    n_asked = 0;
  };
  const SpeedOptions prefill{.prefill_tokens = {64}, .decode_tokens = 0},
      decode{.prefill_tokens = {}, .decode_tokens = 64};
  expect_stopped(bench_speed(*engine_, prefill, stop).status());
  expect_stopped(bench_speed(*engine_, decode, stop).status());
  expect_stopped(
      bench_batch(*engine_, {.batches = {1}, .prompt_tokens = 8, .new_tokens = 40}, stop).status());
}

TEST_F(BenchNumbers, BatchReportsEachSizeInItsOrder) {
  std::vector<int64_t> done;
  const auto report =
      bench_batch(*engine_, {.batches = {2, 1}, .prompt_tokens = 8, .new_tokens = 4, .repeat = 2},
                  [&](int64_t n, int64_t total) {
                    EXPECT_EQ(total, 2 * 3);  // a round to warm up
                    if (done.empty() || done.back() != n) done.push_back(n);  // at each layer
                    return true;
                  });
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  EXPECT_THAT(done, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6));
  ASSERT_EQ(report->speeds.size(), 2u);
  EXPECT_EQ(report->speeds[0].batch, 2);
  EXPECT_EQ(report->speeds[1].batch, 1);
  for (const BatchSpeed& speed : report->speeds) {
    EXPECT_GT(speed.prefill_tokens_per_s.min, 0);
    EXPECT_GT(speed.decode_tokens_per_s.min, 0);
    EXPECT_LE(speed.itl_ms_p50, speed.itl_ms_p95);
  }
}

// The numbers of pages of 16 that such prompts take.
TEST_F(BenchNumbers, BatchTellsWhatTheCacheHeld) {
  const auto report = bench_batch(
      *engine_,
      {.batches = {1, 4}, .prompt_tokens = 16, .new_tokens = 16, .shared_tokens = 64, .repeat = 1},
      go_on);
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  EXPECT_TRUE(report->same_answers);
  ASSERT_EQ(report->speeds.size(), 4u);
  const auto expect = [&](int i, int32_t batch, bool shares, int32_t pages, int32_t shared) {
    const BatchSpeed& speed = report->speeds[i];
    EXPECT_EQ(speed.batch, batch);
    EXPECT_EQ(speed.shares_prompt, shares);
    EXPECT_EQ(speed.kv.pages_peak, pages);
    EXPECT_EQ(speed.kv.bytes_peak, pages * engine_->page_bytes());
    EXPECT_DOUBLE_EQ(speed.kv.shared_share, 1.0 * shared / pages);
    EXPECT_GT(speed.kv.wasted_share, 0);
  };
  expect(0, 1, false, 6, 0);
  expect(1, 1, true, 6, 0);
  expect(2, 4, false, 24, 0);
  expect(3, 4, true, 4 + 4 * 2, 4);
  // A page more for each whose last page is a whole one, else up to 15 slots of 16.
  EXPECT_LT(report->speeds[2].kv.wasted_share, 15.0 / 96);
}

TEST_F(BenchNumbers, BatchMixesLengths) {
  const auto report = bench_batch(
      *engine_,
      {.batches = {16}, .prompt_tokens = 60, .new_tokens = 20, .mixed = true, .repeat = 1}, go_on);
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  const BatchKv& kv = report->speeds[0].kv;
  // Last pages are half empty on average, whatever the lengths.
  EXPECT_GT(kv.wasted_share, 0.03);
  EXPECT_LT(kv.wasted_share, 0.25);
  EXPECT_EQ(kv.shared_share, 0);
}

}  // namespace
}  // namespace weft::bench
