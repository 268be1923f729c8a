// Perplexity by llama.cpp's protocol, beside the same sums written out plainly.
#include "eval/perplexity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gguf/random_model.h"
#include "support/files.h"
#include "support/test_model.h"

namespace weft::eval {
namespace {

using ::testing::HasSubstr;

constexpr auto go_on = [](int64_t, int64_t) { return true; };

class Perplexity : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = dir_ / "model.gguf";
    ASSERT_TRUE(
        gguf::write_random_model(posix_env(), path_, {.vocab = 300, .logit_spread = 3.0f}).is_ok());
    auto engine = engine::Engine::open(
        posix_env(),
        {.model_path = path_, .n_threads = 1, .context_tokens = 256, .compute = "f32"});
    ASSERT_TRUE(engine.is_ok()) << engine.status().message();
    engine_ = *std::move(engine);
  }

  test::TempDir dir_;
  std::string path_;
  std::unique_ptr<engine::Engine> engine_;
};

TEST_F(Perplexity, ScoresTheSecondHalfOfEachWholeWindow) {
  constexpr size_t kWindow = 16;
  const std::string text = "Not all of these words are in a window of their own, as they are many.";
  const auto result = perplexity(*engine_, text, {.window_tokens = kWindow}, go_on);
  ASSERT_TRUE(result.is_ok()) << result.status().message();

  const text::Tokenizer& tokenizer = engine_->tokenizer();
  std::vector<int32_t> ids = *tokenizer.encode(text, {.add_bos = tokenizer.wants_bos()});
  ASSERT_NE(ids.size() % kWindow, 0u) << "the text shall end with a part of a window";
  test::TestModel model(path_, {.n_threads = 1});
  double loss = 0;
  int64_t scored = 0;
  for (size_t begin = 0; begin + kWindow <= ids.size(); begin += kWindow) {
    std::vector<int32_t> window(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                ids.begin() + static_cast<std::ptrdiff_t>(begin + kWindow));
    if (tokenizer.wants_bos()) window[0] = tokenizer.bos();
    const std::vector<float> logits = model.prefill_logits(window);
    const auto width = static_cast<size_t>(model.n_vocab());
    for (size_t t = kWindow / 2 + 1; t < kWindow; ++t) {
      const float* row = logits.data() + (t - 1) * width;
      double sum = 0;
      for (size_t i = 0; i < width; ++i) sum += std::exp(static_cast<double>(row[i]));
      loss -= static_cast<double>(row[window[t]]) - std::log(sum);
      ++scored;
    }
  }
  EXPECT_EQ(result->tokens, scored);
  // Logits and their softmax are f32: 24 bits, through sums of 300.
  const double expected = std::exp(loss / static_cast<double>(scored));
  EXPECT_NEAR(result->perplexity, expected, 1e-4 * expected);
}

TEST_F(Perplexity, ALimitCutsTheTextFirst) {
  const std::string text(100, 'a');
  const auto all = perplexity(*engine_, text, {.window_tokens = 16}, go_on);
  const auto some = perplexity(*engine_, text, {.window_tokens = 16, .limit_tokens = 40}, go_on);
  ASSERT_TRUE(all.is_ok() && some.is_ok());
  EXPECT_EQ(some->tokens, 2 * 7);  // two whole windows, 7 of each
  EXPECT_GT(all->tokens, some->tokens);
}

TEST_F(Perplexity, RefusesWindowsThatAreNone) {
  const auto refused = [&](int32_t window, const std::string& text) {
    const Status status = perplexity(*engine_, text, {.window_tokens = window}, go_on).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
    return status.message();
  };
  const std::string text(64, 'a');
  EXPECT_THAT(refused(3, text), HasSubstr("--context 3: must be a window of 4 to"));
  EXPECT_THAT(refused(-1, text), HasSubstr("--context -1"));
  EXPECT_THAT(refused(1 << 30, text), HasSubstr("must be a window"));
  EXPECT_THAT(refused(128, "short"), HasSubstr("fewer than one window of 128"));
  EXPECT_EQ(perplexity(*engine_, text, {.window_tokens = 512}, go_on).status().code(),
            StatusCode::kResourceExhausted)
      << "the model has such a context, this engine's cache has not";
}

TEST_F(Perplexity, CanBeStopped) {
  EXPECT_EQ(perplexity(*engine_, std::string(64, 'a'), {.window_tokens = 16},
                       [](int64_t, int64_t) { return false; })
                .status()
                .code(),
            StatusCode::kCancelled);
}

// After the first step, which is of some windows.
TEST_F(Perplexity, StoppedLaterTellsOfTheWindowsUntilThen) {
  std::string text;
  for (int i = 0; i < 4000; ++i) text += static_cast<char>('a' + i % 7);
  const auto some = perplexity(*engine_, text, {.window_tokens = 16},
                               [](int64_t done, int64_t) { return done == 0; });
  ASSERT_TRUE(some.is_ok()) << some.status().message();
  EXPECT_TRUE(some->is_stopped());
  EXPECT_GT(some->windows, 0);
  EXPECT_EQ(some->tokens, 7 * some->windows);
  const auto cut =
      perplexity(*engine_, text, {.window_tokens = 16, .limit_tokens = 16 * some->windows}, go_on);
  ASSERT_TRUE(cut.is_ok());
  EXPECT_FALSE(cut->is_stopped());
  EXPECT_EQ(some->perplexity, cut->perplexity);
}

TEST(PerplexityWindows, FillAStepOf512Rows) {
  EXPECT_EQ(windows_at_once(512), 1);
  EXPECT_EQ(windows_at_once(513), 1);
  EXPECT_EQ(windows_at_once(100), 5);
  EXPECT_EQ(windows_at_once(0), 512);
}

TEST_F(Perplexity, OfATextWithinTheContextIsThatOfOnePrefill) {
  const std::string text(120, 'a');
  for (const auto policy : {engine::ShiftPolicy::kHalf, engine::ShiftPolicy::kSinks}) {
    const auto result = endless_perplexity(*engine_, text, {.shift = {policy, 4}}, go_on);
    ASSERT_TRUE(result.is_ok()) << result.status().message();
    EXPECT_EQ(result->dropped_tokens, 0);
    const text::Tokenizer& tokenizer = engine_->tokenizer();
    const auto ids = *tokenizer.encode(text, {.add_bos = tokenizer.wants_bos()});
    test::TestModel model(path_, {.n_threads = 1});
    const std::vector<float> logits = model.prefill_logits(ids);
    double loss = 0;
    for (size_t t = ids.size() / 2; t < ids.size(); ++t) {
      const float* row = logits.data() + (t - 1) * model.n_vocab();
      double sum = 0;
      for (int32_t i = 0; i < model.n_vocab(); ++i) sum += std::exp(double{row[i]});
      loss += std::log(sum) - row[ids[t]];
    }
    EXPECT_EQ(result->tokens, std::ssize(ids) - std::ssize(ids) / 2);
    EXPECT_NEAR(result->perplexity, std::exp(loss / result->tokens), 1e-4 * result->perplexity);
  }
}

TEST_F(Perplexity, OfAnEndlessTextScoresAllOfItsSecondHalf) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += std::to_string(i * i % 97) + " ";
  for (const auto policy : {engine::ShiftPolicy::kHalf, engine::ShiftPolicy::kSinks}) {
    const auto result = endless_perplexity(*engine_, text, {.shift = {policy, 4}}, go_on);
    ASSERT_TRUE(result.is_ok()) << result.status().message();
    const int64_t n = std::ssize(
        *engine_->tokenizer().encode(text, {.add_bos = engine_->tokenizer().wants_bos()}));
    ASSERT_GT(n, 512);
    EXPECT_EQ(result->tokens, n - n / 2);
    EXPECT_GT(result->dropped_tokens, n - 2 * 256);
    EXPECT_LT(result->dropped_tokens, n);
    EXPECT_TRUE(std::isfinite(result->perplexity));
    EXPECT_EQ(engine_->kv_usage().held(), 0);
  }
  EXPECT_EQ(endless_perplexity(*engine_, "", {.shift = {engine::ShiftPolicy::kHalf, 0}}, go_on)
                .status()
                .code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weft::eval
