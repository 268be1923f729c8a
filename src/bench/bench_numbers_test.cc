// Numbers that a caller of the benchmarks may get wrong.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <limits>

#include "bench/speed.h"
#include "bench/ttft.h"
#include "gguf/random_model.h"

namespace weft::bench {
namespace {

constexpr int32_t kMin = std::numeric_limits<int32_t>::min();
constexpr int32_t kMax = std::numeric_limits<int32_t>::max();

class BenchNumbers : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "weft-bench-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    const std::string model = folder_ + "/model.gguf";
    ASSERT_TRUE(gguf::write_random_model(posix_env(), model, {.vocab = 300}).is_ok());
    auto opened = engine::Engine::open(
        posix_env(),
        {.model_path = model, .n_threads = 1, .context_tokens = 256, .compute = "f32"});
    ASSERT_TRUE(opened.is_ok()) << opened.status().message();
    engine_ = *std::move(opened);
  }
  void TearDown() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  void expect_refused(const TtftOptions& options) {
    const auto report = bench_ttft(*engine_, options, go_on);
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument) << report.status().message();
  }
  void expect_refused(const SpeedOptions& options) {
    const auto report = bench_speed(*engine_, options, go_on);
    EXPECT_EQ(report.status().code(), StatusCode::kInvalidArgument) << report.status().message();
  }

  static constexpr auto go_on = [](int64_t, int64_t) { return true; };

  std::string folder_;
  std::unique_ptr<engine::Engine> engine_;
};

TEST_F(BenchNumbers, TtftRefusesThemBeforeItMakesThePrompt) {
  for (const int32_t n : {kMin, -1, 0, kMax}) {
    TtftOptions options;
    options.store_dir = folder_ + "/store";
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

}  // namespace
}  // namespace weft::bench
