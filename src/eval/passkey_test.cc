// The pass key test's run: each trial against its prompt run by itself, and what counts as found.
#include "eval/passkey.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/generation.h"
#include "gguf/random_model.h"
#include "support/files.h"

namespace weft::eval {
namespace {

using ::testing::HasSubstr;

constexpr auto go_on = [](int64_t, int64_t) { return true; };

TEST(HoldsValue, TheWholeNumberAndNoLongerOne) {
  for (const char* answer : {"12345", " 12345.", "It is 12345, remember.", "123456 or 12345",
                             "key:12345\n", "(12345)", "1.\n12345", "12345."}) {
    EXPECT_TRUE(holds_value(answer, "12345")) << answer;
  }
  for (const char* answer :
       {"", "1234", "123456", "012345", "1.12345", "12345.5", "12,345", "12345,678", "1 2 3 4 5"}) {
    EXPECT_FALSE(holds_value(answer, "12345")) << answer;
  }
}

TEST(HoldsValue, TheWholeUuid) {
  const std::string uuid = "1f0a3b5c-0000-4a4b-9c9d-0123456789ab";
  for (const std::string& answer : {uuid, " " + uuid + ".", "is \"" + uuid + "\"", uuid + ". 5"}) {
    EXPECT_TRUE(holds_value(answer, uuid)) << answer;
  }
  for (const std::string& answer : {uuid + "0", "a" + uuid, uuid + "-1", uuid.substr(1)}) {
    EXPECT_FALSE(holds_value(answer, uuid)) << answer;
  }
}

TEST(PasskeyResult, CountsByDepth) {
  PasskeyResult result;
  for (const auto& [depth, is_correct] :
       {std::pair(0.75, true), {0.25, false}, {0.75, false}, {0.25, false}, {0.75, true}}) {
    result.trials.emplace_back().depth = depth;
    result.trials.back().is_correct = is_correct;
  }
  EXPECT_EQ(result.correct(), 2);
  const auto by_depth = result.by_depth();
  ASSERT_EQ(by_depth.size(), 2u);
  EXPECT_EQ(by_depth[0].depth, 0.25);
  EXPECT_EQ(by_depth[0].correct, 0);
  EXPECT_EQ(by_depth[0].trials, 2);
  EXPECT_EQ(by_depth[1].correct, 2);
  EXPECT_EQ(by_depth[1].trials, 3);
}

class PasskeyRun : public ::testing::TestWithParam<kv::SelfExtend> {
 protected:
  void SetUp() override {
    path_ = dir_ / "model.gguf";
    ASSERT_TRUE(gguf::write_random_model(
                    posix_env(), path_,
                    {.vocab = 300, .context_length = 512, .logit_spread = 3.0f, .score_spread = 4})
                    .is_ok());
  }
  std::unique_ptr<engine::Engine> open(int32_t context_tokens = 0, uint64_t kv_limit_bytes = 0) {
    auto engine = engine::Engine::open(posix_env(), {.model_path = path_,
                                                     .n_threads = 1,
                                                     .context_tokens = context_tokens,
                                                     .self_extend = GetParam(),
                                                     .beyond_context = true,
                                                     .kv_limit_bytes = kv_limit_bytes,
                                                     .n_contexts = 2,
                                                     .compute = "f32"});
    EXPECT_TRUE(engine.is_ok()) << engine.status().message();
    return *std::move(engine);
  }
  PasskeyPrompts prompts(const engine::Engine& engine, const PasskeyOptions& options) {
    auto prompts = PasskeyPrompts::create(engine, std::nullopt, options);
    EXPECT_TRUE(prompts.is_ok()) << prompts.status().message();
    return *std::move(prompts);
  }

  test::TempDir dir_;
  std::string path_;
};

TEST_P(PasskeyRun, EachTrialAnswersWhatItsPromptByItselfDoes) {
  const auto engine = open(900);
  for (const PasskeyOptions& options : {PasskeyOptions{.length_tokens = 800, .n_trials = 12},
                                        {.length_tokens = 800, .depth = 0.3, .n_trials = 2},
                                        {.length_tokens = 850, .n_trials = 4, .n_needles = 3}}) {
    const PasskeyPrompts all = prompts(*engine, options);
    const auto result = passkey(*engine, all, go_on);
    ASSERT_TRUE(result.is_ok()) << result.status().message();
    EXPECT_EQ(engine->kv_usage().held(), 0);
    ASSERT_EQ(std::ssize(result->trials), options.n_trials);
    std::set<std::vector<int32_t>> answers;
    size_t i = 0;
    for (int64_t g = 0; g < all.n_groups(); ++g) {
      for (const PasskeyPrompt& prompt : all.group(g)) {
        const kv::OwnedSequence fresh = engine->create_sequence();
        auto logits = engine->append(fresh, prompt.tokens);
        ASSERT_TRUE(logits.is_ok()) << logits.status().message();
        const auto generation =
            engine::generate(*engine, fresh, *std::move(logits),
                             {.max_tokens = passkey_answer_tokens(options.n_needles)},
                             [](std::string_view) { return true; });
        ASSERT_TRUE(generation.is_ok()) << generation.status().message();
        std::vector<int32_t> expected;
        for (const auto& token : generation->tokens) expected.push_back(token.id);
        EXPECT_EQ(result->trials[i].answer_tokens, expected) << g << " " << i;
        EXPECT_EQ(result->trials[i].depth, prompt.depth);
        EXPECT_EQ(result->trials[i].value, prompt.value);
        answers.insert(expected);
        ++i;
      }
    }
    EXPECT_GT(answers.size(), 1u) << "answers that are all the same would tell nothing";
  }
}

TEST_P(PasskeyRun, WhereTheCacheHoldsNoTwoEachIsRunByItself) {
  const PasskeyOptions options{.length_tokens = 800, .n_trials = 3};
  const auto large = open(816);
  const auto expected = passkey(*large, prompts(*large, options), go_on);
  ASSERT_TRUE(expected.is_ok()) << expected.status().message();
  const auto small = open(816, static_cast<uint64_t>(large->limit_to_hold(816 / 16)));
  ASSERT_LT(small->kv_usage().pages, large->kv_usage().pages);
  const auto got = passkey(*small, prompts(*small, options), go_on);
  ASSERT_TRUE(got.is_ok()) << got.status().message();
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(got->trials[i].answer_tokens, expected->trials[i].answer_tokens);
  }
}

TEST_P(PasskeyRun, IsRefusedWhereThePromptAndItsAnswerDoNotFit) {
  const auto engine = open(815);
  const auto result =
      passkey(*engine, prompts(*engine, {.length_tokens = 800, .n_trials = 1}), go_on);
  EXPECT_EQ(result.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(result.status().message(), HasSubstr("--length 800: "));
  EXPECT_THAT(result.status().message(), HasSubstr("-c 816 holds them"));
}

TEST_P(PasskeyRun, StopsWhenItIsToldTo) {
  const auto engine = open(600);
  const PasskeyPrompts all = prompts(*engine, {.length_tokens = 500, .n_trials = 5});
  int n_asked = 0;
  const auto whole = passkey(*engine, all, [&](int64_t, int64_t) { return ++n_asked > 0; });
  ASSERT_TRUE(whole.is_ok());
  EXPECT_FALSE(whole->is_stopped());
  for (const int after : {0, 3, n_asked / 2, n_asked - 2, n_asked - 1}) {
    SCOPED_TRACE(after);
    int n = 0, n_done = 0;
    const auto stopped = passkey(*engine, all, [&](int64_t done, int64_t) {
      n_done = static_cast<int>(done);
      return n++ < after;
    });
    EXPECT_EQ(n, after + 1);
    EXPECT_EQ(engine->kv_usage().held(), 0);
    EXPECT_EQ(n_done > 0, after > 3);
    if (n_done == 0) {
      EXPECT_EQ(stopped.status().code(), StatusCode::kCancelled);
      continue;
    }
    ASSERT_TRUE(stopped.is_ok()) << stopped.status().message();
    EXPECT_EQ(stopped->is_stopped(), after < n_asked - 1);
    ASSERT_EQ(stopped->trials.size(), n_done);
    for (int i = 0; i < n_done; ++i) {
      EXPECT_EQ(stopped->trials[i].answer_tokens, whole->trials[i].answer_tokens);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Positions, PasskeyRun,
                         ::testing::Values(kv::SelfExtend{}, kv::SelfExtend{4, 64},
                                           kv::SelfExtend{4, 0}));

}  // namespace
}  // namespace weft::eval
