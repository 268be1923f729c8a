// Policies beside each other: a budget that covers everything gives dense decoding's figures, a
// smaller one reads less, and rows come in the order that is promised.
#include "eval/sparse_eval.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gguf/random_model.h"
#include "support/files.h"

namespace weft::eval {
namespace {

using sparse::Policy;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto go_on = [](int64_t, int64_t) { return true; };

std::string words(int32_t n) {
  std::string text;
  for (int32_t i = 0; i < n; ++i) {
    text += i % 9 == 8 ? "and so on. " : std::to_string(i * i % 97) + " things ";
  }
  return text;
}

class SparseEval : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = dir_ / "model.gguf";
    ASSERT_TRUE(gguf::write_random_model(posix_env(), path,
                                         {.head_dim = 32,
                                          .vocab = 300,
                                          .context_length = 2048,
                                          .logit_spread = 3.0f,
                                          .score_spread = 4})
                    .is_ok());
    auto engine = engine::Engine::open(
        posix_env(), {.model_path = path, .n_threads = 1, .n_contexts = 2, .compute = "f32"});
    ASSERT_TRUE(engine.is_ok()) << engine.status().message();
    engine_ = *std::move(engine);
  }
  std::vector<SparseRow> run(const SparseEvalOptions& options) {
    auto results = sparse_eval(*engine_, options, go_on);
    EXPECT_TRUE(results.is_ok()) << results.status().message();
    EXPECT_EQ(results->n_left_out, 0);
    EXPECT_EQ(engine_->selector(), nullptr);
    EXPECT_EQ(engine_->kv_usage().held(), 0);
    return std::move(results->rows);
  }
  static std::vector<sparse::SparseOptions> settings(std::vector<Policy> policies,
                                                     std::vector<int32_t> budgets) {
    std::vector<sparse::SparseOptions> all(1);  // dense
    for (const Policy policy : policies) {
      for (const int32_t budget : budgets) {
        all.push_back({.policy = policy, .budget_tokens = budget, .dense_layers = 0});
      }
    }
    return all;
  }

  test::TempDir dir_;
  std::unique_ptr<engine::Engine> engine_;
};

TEST_F(SparseEval, ABudgetThatCoversTheTextGivesDensesFigures) {
  for (const SparseTask task :
       {SparseTask::kPasskey, SparseTask::kNeedles, SparseTask::kPerplexity}) {
    SparseEvalOptions options{.task = task,
                              .settings = settings({Policy::kQuest, Policy::kH2o}, {64, 2048}),
                              .lengths = {1600},
                              .cases = {.n_trials = 3, .text = PasskeyText{"text", words(3000)}}};
    const std::vector<SparseRow> rows = run(options);
    ASSERT_EQ(rows.size(), 5u);
    for (const size_t whole : {2u, 4u}) {
      EXPECT_EQ(rows[whole].accuracy, rows[0].accuracy);
      EXPECT_EQ(rows[whole].perplexity, rows[0].perplexity);
      EXPECT_EQ(rows[whole].bytes_read_share, 1.0);
      EXPECT_EQ(rows[whole].mass_kept, std::nullopt);
    }
    for (const size_t small : {1u, 3u}) {
      EXPECT_LT(*rows[small].bytes_read_share, 0.6);  // H2O's with K, by which it scores
      EXPECT_GT(*rows[small].mass_kept, 0);
      EXPECT_LT(*rows[small].mass_kept, 1);
      EXPECT_FALSE(rows[small].mass_by_layer.empty());
    }
    EXPECT_EQ(rows[0].policy, "dense");
    EXPECT_EQ(rows[0].budget_tokens, std::nullopt);
    EXPECT_EQ(rows[1].budget_tokens, 64);
    EXPECT_EQ(rows[0].accuracy.has_value(), task != SparseTask::kPerplexity);
    EXPECT_EQ(rows[0].perplexity.has_value(), task == SparseTask::kPerplexity);
    EXPECT_EQ(rows[1].kl.has_value(), task == SparseTask::kPerplexity);
    EXPECT_EQ(rows[0].kl, std::nullopt);
    if (task == SparseTask::kPerplexity) {
      EXPECT_NE(rows[1].perplexity, rows[0].perplexity);
      EXPECT_GT(rows[1].kl, 0);
      EXPECT_EQ(rows[2].kl, 0);
    }
    for (const SparseRow& row : rows) EXPECT_GT(*row.tokens_per_s, 0);
  }
}

TEST_F(SparseEval, DepthsComeAfterAllOthersAndAddUp) {
  const std::vector<SparseRow> rows = run({.settings = settings({Policy::kStreaming}, {128}),
                                           .lengths = {400, 700},
                                           .cases = {.n_trials = 10},
                                           .by_depth = true});
  ASSERT_EQ(rows.size(), 2 * 2 + 2 * 2 * 10u);
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i].depth.has_value(), i >= 4) << i;
  for (size_t i = 0; i < 4; ++i) {
    double correct = 0;
    int64_t trials = 0;
    for (size_t j = 4; j < rows.size(); ++j) {
      if (rows[j].policy != rows[i].policy || rows[j].length_tokens != rows[i].length_tokens) {
        continue;
      }
      correct += *rows[j].accuracy * rows[j].trials;
      trials += rows[j].trials;
    }
    EXPECT_EQ(trials, rows[i].trials);
    EXPECT_NEAR(correct, *rows[i].accuracy * rows[i].trials, 1e-9);
  }
}

TEST_F(SparseEval, QuestionsAndSummariesAreOverPassages) {
  std::vector<Example> examples(3);
  for (Example& example : examples) {
    example.question = "What is it?";
    example.answers = {"a thing"};
    for (int i = 0; i < 4; ++i) example.passages.push_back({"Title", words(40), false});
  }
  examples[1].passages.resize(40, {"Title", words(400), false});  // too long: left out
  for (const SparseTask task : {SparseTask::kQa, SparseTask::kSummary}) {
    const std::vector<SparseRow> rows = run({.task = task,
                                             .settings = settings({Policy::kQuest}, {64}),
                                             .lengths = {1800},
                                             .cases = {.examples = examples}});
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[0].trials, 2);
    EXPECT_EQ(rows[0].f1.has_value(), task == SparseTask::kQa);
    EXPECT_EQ(rows[0].rouge_l.has_value(), task == SparseTask::kSummary);
  }
}

TEST_F(SparseEval, FewshotHasFiveAnswersBeforeTheQuestion) {
  std::vector<Example> examples(7);
  for (size_t i = 0; i < examples.size(); ++i) {
    examples[i].question = fmt::format("What is {}?", i);
    examples[i].answers = {fmt::format("thing {}", i)};
    examples[i].passages = {{"Title", fmt::format("gold of {}", i), true},
                            {"Other", fmt::format("noise of {}", i), false}};
  }
  const auto cases =
      sparse_cases(*engine_, SparseTask::kFewshot, {.length_tokens = 1900, .examples = examples});
  ASSERT_TRUE(cases.is_ok()) << cases.status().message();
  ASSERT_EQ(cases->size(), 7u);
  for (size_t i = 0; i < cases->size(); ++i) {
    const std::string text = engine_->tokenizer().decode((*cases)[i].text);
    for (size_t j = 0; j < examples.size(); ++j) {
      const bool is_shot = j != i && j != (i + 6) % 7;  // the five after it
      const auto has = [&](const std::string& what) {
        return text.find(fmt::format("{} {}", what, j)) != std::string::npos;
      };
      EXPECT_EQ(has("Answer: thing"), is_shot) << i << " " << j;
      EXPECT_EQ(has("gold of"), is_shot || j == i);
      EXPECT_EQ(has("noise of"), j == i);
    }
    EXPECT_EQ((*cases)[i].answers, examples[i].answers);
  }
  const auto too_few =
      sparse_cases(*engine_, SparseTask::kFewshot,
                   {.length_tokens = 1900, .examples = {examples.begin(), examples.begin() + 5}});
  EXPECT_THAT(too_few.status().message(), HasSubstr("needs 6 examples or more, here are 5"));
}

TEST_F(SparseEval, ADialogueIsSummarizedAfterAsManyOthersAsFit) {
  std::vector<Example> examples(40);
  for (Example& example : examples) {
    example = {.question = "Summarize the dialogue.",
               .answers = {"They talk."},
               .passages = {{"Dialogue", words(5), true}},
               .is_dialogue = true};
  }
  for (const int32_t length : {900, 1800}) {
    const auto cases = sparse_cases(*engine_, SparseTask::kSummary,
                                    {.length_tokens = length, .n_trials = 3, .examples = examples});
    ASSERT_TRUE(cases.is_ok()) << cases.status().message();
    ASSERT_EQ(cases->size(), 3u);
    for (const SparseCase& one : *cases) {
      const auto n = std::ssize(one.text) + std::ssize(one.question);
      EXPECT_LE(n, length);
      EXPECT_GT(n, length - 300);
    }
  }
}

TEST_F(SparseEval, WhatIsMissingOrTooLongIsSaid) {
  const auto error = [&](const SparseEvalOptions& options) {
    const auto rows = sparse_eval(*engine_, options, go_on);
    EXPECT_FALSE(rows.is_ok());
    return rows.status().message();
  };
  const auto dense = settings({}, {});
  EXPECT_THAT(error({.task = SparseTask::kPerplexity, .settings = dense, .lengths = {500}}),
              HasSubstr("-f FILE"));
  EXPECT_THAT(error({.task = SparseTask::kQa, .settings = dense, .lengths = {500}}),
              HasSubstr("-f FILE"));
  EXPECT_THAT(error({.settings = dense, .lengths = {20}}), HasSubstr("--lengths 20"));
  EXPECT_THAT(error({.settings = dense, .lengths = {2048}}), HasSubstr("do not fit"));
  EXPECT_THAT(error({.task = SparseTask::kPerplexity,
                     .settings = dense,
                     .lengths = {500},
                     .cases = {.text = PasskeyText{"short.txt", "too short"}}}),
              HasSubstr("short.txt"));
}

TEST_F(SparseEval, WhereItIsStoppedTheRowsAreOfTheTextsThatAllSettingsHaveAnswered) {
  const SparseEvalOptions options = {
      .settings = settings({Policy::kQuest}, {64}), .lengths = {500}, .cases = {.n_trials = 5}};
  const auto stopped_after = [&](int64_t n_answers) {
    const auto stop = [&](int64_t done, int64_t) { return done < n_answers; };
    const auto results = sparse_eval(*engine_, options, stop);
    EXPECT_TRUE(results.is_ok());
    EXPECT_EQ(engine_->kv_usage().held(), 0);
    return *results;
  };
  EXPECT_THAT(stopped_after(1).rows, IsEmpty());
  for (const int64_t n_answers : {4, 5}) {  // of the third text one is missing, or both
    const SparseEvalResults results = stopped_after(n_answers);
    EXPECT_EQ(results.n_left_out, 3);
    ASSERT_EQ(results.rows.size(), 2);
    for (const SparseRow& row : results.rows) EXPECT_EQ(row.trials, 2);
  }
  EXPECT_EQ(stopped_after(10).n_left_out, 0);
}

}  // namespace
}  // namespace weft::eval
