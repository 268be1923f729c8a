// What --ratio auto predicts with: measured once, kept in a file that anyone may have written to.
#include "engine/prefill_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/thread_pool.h"
#include "engine/kept_measurements.h"
#include "support/fault_env.h"
#include "support/test_model.h"

namespace weft::engine {
namespace {

class PrefillRatesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = dir_.path() + "/random.gguf";
    const Status written = gguf::write_random_model(
        posix_env(), path,
        {.n_layers = 2, .n_embd = 64, .n_ff = 96, .n_heads = 4, .n_kv_heads = 2, .head_dim = 16});
    ASSERT_TRUE(written.is_ok()) << written.message();
    model_ = std::make_unique<test::TestModel>(path);
    cache_ = cache_of(model_->model(), 4096, {});
  }

  static std::unique_ptr<kv::Cache> cache_of(const model::Model& model, int32_t tokens,
                                             kernels::KvTypes types) {
    const model::ModelConfig& config = model.config();
    auto cache = kv::Cache::create({.n_layers = config.n_layers,
                                    .layer_groups = config.layer_groups(),
                                    .layout = config.kv_layout(types),
                                    .capacity_tokens = tokens});
    EXPECT_TRUE(cache.is_ok()) << cache.status().message();
    return *std::move(cache);
  }

  fusion::PrefillRates rates(const std::string& file) {
    auto rates = prefill_rates(posix_env(), model_->model(), model_->context(), *cache_, file);
    EXPECT_TRUE(rates.is_ok()) << rates.status().message();
    return *rates;
  }

  std::string contents() {
    std::ifstream in(file_);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  test::TempDir dir_;
  std::string file_ = dir_.path() + "/cache/prefill-rates";
  std::unique_ptr<test::TestModel> model_;
  std::unique_ptr<kv::Cache> cache_;
};

bool is_usable(const fusion::PrefillRates& r) {
  const auto good = [](double ms) { return ms >= 0 && ms < 1e9; };
  return r.row_ms > 0 && good(r.row_ms) && good(r.block_ms) && good(r.key_ms) &&
         good(r.kv_byte_ms) && good(r.logits_ms);
}

TEST_F(PrefillRatesTest, AreMeasuredOnceAndKept) {
  const fusion::PrefillRates first = rates(file_);
  EXPECT_TRUE(is_usable(first));
  const std::string kept = contents();
  EXPECT_THAT(kept, ::testing::HasSubstr("/ f32 / " + model_->model().fingerprint().to_hex()));
  const fusion::PrefillRates second = rates(file_);
  EXPECT_EQ(contents(), kept);
  EXPECT_EQ(second.row_ms, first.row_ms);  // to the last digit
  EXPECT_EQ(second.key_ms, first.key_ms);
  EXPECT_EQ(second.kv_byte_ms, first.kv_byte_ms);
}

/// A clock that goes on by `times` milliseconds whenever it is read, of which all but one were
/// spent waiting for cores. Waits are those up to the reading that they are asked for beside: the
/// one just made, or the one to come.
class WaitingEnv : public test::FaultEnv {
 public:
  explicit WaitingEnv(int64_t times) : FaultEnv(posix_env()), times_(times) {}
  int64_t monotonic_ns() override {
    was_read_ = true;
    return times_ * 1'000'000 * ++n_read_;
  }
  int64_t core_wait_ns() override {
    const int64_t n = std::exchange(was_read_, false) ? n_read_ : n_read_ + 1;
    return usable_cores() * (times_ - 1) * 1'000'000 * n;
  }

 private:
  const int64_t times_;
  int64_t n_read_ = 0;
  bool was_read_ = false;
};

// What is kept beside a compiler must serve when it has ended.
TEST_F(PrefillRatesTest, WaitingForCoresIsNotCounted) {
  const auto prompt_ms = [&](int64_t times) {
    WaitingEnv env(times);
    const auto r = prefill_rates(env, model_->model(), model_->context(), *cache_, "");
    EXPECT_TRUE(r.is_ok()) << r.status().message();
    return r->block_ms + 512 * r->row_ms + 512 * 256 * r->key_ms;
  };
  const double alone_ms = prompt_ms(1);
  EXPECT_GT(alone_ms, 0);
  EXPECT_NEAR(prompt_ms(10), alone_ms, 0.01 * alone_ms);
}

// Every row of such a model sees one key: rows and keys cannot be told apart.
TEST_F(PrefillRatesTest, AModelThatSeesOneKeyHasRates) {
  const std::string path = dir_.path() + "/window.gguf";
  gguf::RandomModelOptions options{
      .n_layers = 2, .n_embd = 64, .n_ff = 96, .n_heads = 4, .n_kv_heads = 2, .head_dim = 16};
  options.window = 1;
  ASSERT_TRUE(gguf::write_random_model(posix_env(), path, options).is_ok());
  const test::TestModel model(path);
  const auto cache = cache_of(model.model(), 4096, {});
  const auto rates = prefill_rates(posix_env(), model.model(), model.context(), *cache, "");
  ASSERT_TRUE(rates.is_ok()) << rates.status().message();
  EXPECT_TRUE(is_usable(*rates));
}

// A limit of the KV cache holds for the measurement, too: it takes pages of that cache, and of a
// small one a shorter prompt.
TEST_F(PrefillRatesTest, AreMeasuredInTheCachesOwnPages) {
  for (const int32_t tokens : {16, 80, 528, 2176}) {
    cache_ = cache_of(model_->model(), tokens, {});
    EXPECT_TRUE(is_usable(rates(file_))) << tokens;
    EXPECT_EQ(cache_->free_page_count(), tokens / 16);
    const std::string kept = contents();
    const std::string shorter = " / " + std::to_string(tokens) + " tokens\t";
    EXPECT_EQ(kept.find(shorter) != std::string::npos, tokens < 2176) << kept;
  }
  const std::string kept = contents();
  EXPECT_EQ(std::count(kept.begin(), kept.end(), '\n'), 4);
  // What a sequence holds stays as it is.
  cache_ = cache_of(model_->model(), 64, {});
  const kv::OwnedSequence sequence(*cache_);
  auto reservation = cache_->reserve(sequence.id(), 40);
  ASSERT_TRUE(reservation.is_ok());
  EXPECT_TRUE(is_usable(rates("")));
  const kv::OwnedSequence other(*cache_);
  const auto rest = cache_->reserve(other.id(), 16);
  ASSERT_TRUE(rest.is_ok());
  const auto full =
      prefill_rates(posix_env(), model_->model(), model_->context(), *cache_, file_ + "2");
  EXPECT_EQ(full.status().code(), StatusCode::kResourceExhausted);
}

TEST_F(PrefillRatesTest, TellThatTheyAreMeasuredOnlyWhereTheyAre) {
  int n_told = 0;
  for (int run = 0; run < 2; ++run) {
    const auto rates = prefill_rates(posix_env(), model_->model(), model_->context(), *cache_,
                                     file_, [&] { ++n_told; });
    ASSERT_TRUE(rates.is_ok()) << rates.status().message();
    EXPECT_EQ(n_told, 1);
  }
}

TEST_F(PrefillRatesTest, OfOtherTypesOfKvAreOthers) {
  rates(file_);
  cache_ = cache_of(model_->model(), 4096, {DType::kF32, DType::kBF16});
  EXPECT_TRUE(is_usable(rates(file_)));
  EXPECT_THAT(contents(), ::testing::HasSubstr(" / KV F32 BF16\t"));
}

TEST_F(PrefillRatesTest, WhatDoesNotReadAsRatesIsMeasuredAgain) {
  rates(file_);
  const std::string line = contents();
  const std::string key = line.substr(0, line.find('\t'));
  for (const char* value : {"", "nan 1 1 1 1", "1 -1 1 1 1", "1 0 1 1 1", "1 inf 1 1 1",
                            "1 1 1 1 1e300", "1 1 1 1", "1 1 1 1 1 1", "1 1 1 1 x"}) {
    std::ofstream(file_) << key << '\t' << value << '\n';
    EXPECT_TRUE(is_usable(rates(file_))) << value;
    const std::string now = contents();
    EXPECT_EQ(std::count(now.begin(), now.end(), '\n'), 2) << value;  // a new line, which counts
  }
  std::ofstream(file_) << key << "\t1 2 3 4 5\n";
  EXPECT_EQ(rates(file_).row_ms, 2);
}

TEST_F(PrefillRatesTest, AFileThatCannotBeKeptCostsNothing) {
  EXPECT_TRUE(is_usable(rates("")));
  std::ofstream(dir_.path() + "/plain") << "not a folder";
  EXPECT_TRUE(is_usable(rates(dir_.path() + "/plain/prefill-rates")));
}

TEST_F(PrefillRatesTest, AFullFileIsBegunAnew) {
  keep(posix_env(), file_, "key", "value");
  const std::string filler(100, 'x');
  {
    std::ofstream out(file_, std::ios::app);
    for (int i = 0; i < 700; ++i) out << filler << "\n";
  }
  EXPECT_EQ(find_kept(posix_env(), file_, "key"), std::nullopt);  // too large to be ours
  keep(posix_env(), file_, "key", "other");
  EXPECT_EQ(find_kept(posix_env(), file_, "key"), "other");
  EXPECT_EQ(find_kept(posix_env(), file_, "ke"), std::nullopt);
  keep(posix_env(), file_, "key", "last");
  EXPECT_EQ(find_kept(posix_env(), file_, "key"), "last");
}

}  // namespace
}  // namespace weft::engine
