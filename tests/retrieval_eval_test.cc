// How bench retrieval measures: what it can be stopped in, and what it has figures for.
#include "eval/retrieval_eval.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "gguf/gguf.h"
#include "support/test_model.h"

namespace weft::eval {
namespace {

class RetrievalEval : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = dir_.path() + "/model.gguf";
    ASSERT_TRUE(gguf::write_random_model(posix_env(), path, {.vocab = 600}).is_ok());
    auto file = gguf::File::open(posix_env(), path);
    ASSERT_TRUE(file.is_ok()) << file.status().message();
    auto tokenizer = text::Tokenizer::open(**file);
    ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
    tokenizer_ = std::make_unique<text::Tokenizer>(std::move(*tokenizer));
  }
  /// Ends when `progress` was asked `calls` times.
  Result<std::vector<RetrievalResult>> run(const std::vector<RetrievalSet>& sets, int calls) {
    const RetrievalOptions options{.folder = dir_.path()};
    return evaluate_retrieval(posix_env(), *tokenizer_, sets, options,
                              [&](int64_t, int64_t) { return ++asked_ < calls; });
  }

  test::TempDir dir_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  int asked_ = 0;
};

/// One question, and passages in as many documents.
RetrievalSet one_question(int n_passages) {
  Example example{.question = "Who keeps the weir?", .answers = {"Ann"}, .passages = {}};
  for (int i = 0; i < n_passages; ++i) {
    example.passages.push_back(
        {fmt::format("Weir {}", i), fmt::format("Ann keeps weir {}.", i), i == 0});
  }
  return {.name = "weirs", .examples = {example}};
}

TEST_F(RetrievalEval, StopsWhileItBuildsTheIndex) {
  EXPECT_EQ(run({one_question(40)}, 20).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(asked_, 20);
}

TEST_F(RetrievalEval, WhatWasNotAskedHasNoFigures) {
  const auto results = run({one_question(3)}, 1000);
  ASSERT_TRUE(results.is_ok()) << results.status().message();
  ASSERT_EQ(results->size(), 4u);  // even and all, of the set and of all sets
  for (const RetrievalResult& result : *results) {
    EXPECT_EQ(result.chosen.questions, 1);
    EXPECT_NE(result.half, Half::kOdd);
    EXPECT_FALSE(result.foreign.has_value());
  }
}

TEST_F(RetrievalEval, ASetWithoutGoldIsRefusedBeforeItsIndexIsBuilt) {
  RetrievalSet set = one_question(40);
  set.examples.front().passages.front().is_gold = false;
  EXPECT_EQ(run({set}, 2).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(asked_, 0);
}

}  // namespace
}  // namespace weft::eval
