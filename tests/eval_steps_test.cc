// What is measured does not depend on how many sequences share a step: evaluation, perplexity and
// texts continued together against each alone, which a small KV limit or a single one makes them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "engine/generation.h"
#include "eval/evaluate.h"
#include "eval/perplexity.h"
#include "support/test_model.h"

namespace weft {
namespace {

using fusion::ReuseMode;

class EvalSteps : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(gguf::write_random_model(posix_env(), path(),
                                         {.n_layers = 3,
                                          .n_embd = 64,
                                          .n_ff = 128,
                                          .n_heads = 4,
                                          .n_kv_heads = 2,
                                          .head_dim = 16,
                                          .vocab = 300,
                                          .recipe = "Q8_0"})
                    .is_ok());
  }
  std::string path() const { return dir_.path() + "/model.gguf"; }
  std::unique_ptr<engine::Engine> open(int32_t context_tokens, int n_contexts,
                                       uint64_t kv_limit_bytes = 0) {
    auto engine = engine::Engine::open(posix_env(), {.model_path = path(),
                                                     .n_threads = 2,
                                                     .context_tokens = context_tokens,
                                                     .kv_limit_bytes = kv_limit_bytes,
                                                     .n_contexts = n_contexts,
                                                     .compute = "int8"});
    EXPECT_TRUE(engine.is_ok()) << engine.status().message();
    return std::move(*engine);
  }

  test::TempDir dir_;
};

std::vector<eval::Example> examples() {
  std::vector<eval::Example> out;
  for (int i = 0; i < 11; ++i) {
    eval::Example& example = out.emplace_back();
    example.question = fmt::format("Which item is number {}?", i);
    example.answers = {"seven"};
    for (int passage = 0; passage < 1 + i % 3; ++passage) {
      std::string text;
      for (int word = 0; word < 5 + 3 * i; ++word) text += fmt::format("item {} ", 7 * word + i);
      example.passages.push_back({.title = fmt::format("T{}", passage), .text = text});
    }
  }
  return out;
}

TEST_F(EvalSteps, ExamplesAnsweredTogetherAreEachAlone) {
  eval::EvalOptions options;
  options.modes = fusion::kReuseModes.values();
  options.fusion.ratio = 0.2;
  options.fusion.allow_plain = false;
  options.prompt = engine::PromptForm::kFewShot;
  const std::vector<eval::Example> all = examples();
  int n_progress = 0;
  const auto go_on = [&](int64_t, int64_t) {
    ++n_progress;
    return true;
  };
  const auto evaluate = [&](engine::Engine& engine) {
    auto result = eval::evaluate(engine, all, options, go_on);
    EXPECT_TRUE(result.is_ok()) << result.status().message();
    EXPECT_EQ(engine.kv_usage().held(), 0);
    return std::move(*result);
  };
  const auto engine = open(2048, 4);
  const eval::EvalResult together = evaluate(*engine);
  const int asked_together = n_progress;
  // With a limit that holds hardly more than one prompt, each is answered before the next.
  const auto small = open(2048, 4, static_cast<uint64_t>(engine->limit_to_hold(100)));
  n_progress = 0;
  const eval::EvalResult alone = evaluate(*small);
  EXPECT_GT(n_progress, asked_together);  // more steps
  ASSERT_EQ(together.examples, std::ssize(all));
  ASSERT_EQ(alone.examples, std::ssize(all));
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(together.details[i].question, all[i].question);
    for (size_t m = 0; m < options.modes.size(); ++m) {
      const auto& one = together.details[i].modes[m];
      EXPECT_EQ(one.answer, alone.details[i].modes[m].answer) << i << " " << m;
      EXPECT_EQ(one.kl, alone.details[i].modes[m].kl) << i << " " << m;
    }
  }
  for (size_t m = 0; m < options.modes.size(); ++m) {
    EXPECT_EQ(together.modes[m].kl, alone.modes[m].kl);
    EXPECT_EQ(together.modes[m].agreement, alone.modes[m].agreement);
    EXPECT_EQ(together.modes[m].recomputed_share, alone.modes[m].recomputed_share);
  }
  EXPECT_GT(together.modes[2].kl, 0);

  // Stopped wherever it asks, it gives all back, and has the figures of the examples that are done.
  int n_partial = 0;
  int64_t n_done = 0;
  for (int stop_at = 1; n_done < std::ssize(all); stop_at += stop_at < asked_together ? 7 : 1) {
    n_progress = 0;
    n_done = 0;
    const auto stop = [&](int64_t done, int64_t) {
      n_done = done;
      return ++n_progress < stop_at;
    };
    const auto stopped = eval::evaluate(*engine, all, options, stop);
    EXPECT_EQ(engine->kv_usage().held(), 0);
    ASSERT_EQ(stopped.is_ok(), n_done > 0) << stopped.status().message();
    if (n_done == 0) {
      EXPECT_EQ(stopped.status().code(), StatusCode::kCancelled);
      continue;
    }
    n_partial += stopped->is_stopped() ? 1 : 0;
    ASSERT_EQ(stopped->is_stopped(), n_done < std::ssize(all));
    ASSERT_EQ(stopped->examples, n_done);
    double kl = 0;
    for (int64_t i = 0; i < n_done; ++i) kl += together.details[i].modes[2].kl / n_done;
    EXPECT_NEAR(stopped->modes[2].kl, kl, 1e-12 + 1e-9 * kl);
  }
  EXPECT_GT(n_partial, 0);
}

TEST_F(EvalSteps, WindowsOfOneStepGiveThePerplexityOfEachAlone) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += fmt::format("word {} ", i * 37 % 101);
  const auto go_on = [](int64_t, int64_t) { return true; };
  for (const int32_t window : {4, 16, 50, 200, 300}) {
    const auto one = open(window, 1);
    const auto of_one = static_cast<uint64_t>(one->limit_to_hold((window + 15) / 16));
    const auto many = open(window, eval::windows_at_once(window));
    const auto tight = open(window, 1, of_one);
    const auto together = eval::perplexity(*many, text, {.window_tokens = window}, go_on);
    const auto alone = eval::perplexity(*tight, text, {.window_tokens = window}, go_on);
    ASSERT_TRUE(together.is_ok() && alone.is_ok()) << alone.status().message();
    EXPECT_EQ(together->tokens, alone->tokens);
    EXPECT_EQ(together->perplexity, alone->perplexity) << window;
    EXPECT_EQ(many->kv_usage().held(), 0);
  }
}

TEST_F(EvalSteps, TextsContinuedTogetherAreEachAlone) {
  const auto engine = open(256, 8);
  engine::GenerationOptions options;
  options.max_tokens = 20;
  options.sampling.temperature = 0;
  options.n_logprobs = 3;
  std::deque<kv::OwnedSequence> sequences;
  std::vector<engine::Continued> continued;
  std::vector<engine::Generation> alone;
  const auto no_text = [](std::string_view) { return true; };
  for (uint32_t i = 0; i < 7; ++i) {
    // The last has room for three tokens.
    const auto prompt = test::random_ids(i == 6 ? 253 : static_cast<int>(5 + 13 * i), 300, i);
    const auto prefill = [&](const kv::OwnedSequence& sequence) {
      auto logits = engine->append(sequence, prompt);
      EXPECT_TRUE(logits.is_ok()) << logits.status().message();
      return std::move(*logits);
    };
    const kv::OwnedSequence by_itself = engine->create_sequence();
    auto generation = engine::generate(*engine, by_itself, prefill(by_itself), options, no_text);
    ASSERT_TRUE(generation.is_ok()) << generation.status().message();
    alone.push_back(std::move(*generation));
    const kv::OwnedSequence& own = sequences.emplace_back(engine->create_sequence());
    continued.push_back({.sequence = &own, .logits = prefill(own)});
  }
  const auto go_on = [] { return true; };
  const auto together = engine::generate_together(*engine, continued, options, go_on);
  ASSERT_TRUE(together.is_ok()) << together.status().message();
  for (size_t i = 0; i < alone.size(); ++i) {
    EXPECT_EQ((*together)[i].text, alone[i].text);
    EXPECT_EQ((*together)[i].stop_reason, alone[i].stop_reason);
    ASSERT_EQ((*together)[i].tokens.size(), alone[i].tokens.size());
    for (size_t t = 0; t < alone[i].tokens.size(); ++t) {
      EXPECT_EQ((*together)[i].tokens[t].id, alone[i].tokens[t].id);
      EXPECT_EQ((*together)[i].tokens[t].logprob, alone[i].tokens[t].logprob);
    }
  }
  // Stopped before a step, each ends with what it has.
  int asked = 0;
  const auto stop = [&] { return ++asked < 2; };
  for (size_t i = 0; i < continued.size(); ++i) {
    ASSERT_TRUE(sequences[i].truncate(i == 6 ? 253 : static_cast<int>(5 + 13 * i)).is_ok());
  }
  const auto stopped = engine::generate_together(*engine, continued, options, stop);
  ASSERT_TRUE(stopped.is_ok()) << stopped.status().message();
  for (const engine::Generation& one : *stopped) {
    EXPECT_EQ(one.tokens.size(), 1u);
    EXPECT_EQ(one.stop_reason, engine::StopReason::kCancelled);
  }
  continued.back().logits.pop_back();
  EXPECT_EQ(engine::generate_together(*engine, continued, options, go_on).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weft
