// Two engines over one open model: each answers as if it was alone, also at the same time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "engine/generation.h"
#include "gguf/random_model.h"
#include "support/test_model.h"

namespace weft {
namespace {

using test::random_ids;

std::vector<int32_t> answer(engine::Engine& engine, uint32_t seed) {
  const kv::OwnedSequence sequence = engine.create_sequence();
  const std::vector<int32_t> prompt =
      random_ids(40 + seed, engine.model().config().vocab_size, seed);
  auto logits = engine.append(sequence, prompt);
  EXPECT_TRUE(logits.is_ok()) << logits.status().message();
  engine::GenerationOptions options{.max_tokens = 12, .ignore_end = true};
  options.sampling.seed = seed;
  const auto made = engine::generate(
      engine, sequence, *std::move(logits), options, [](std::string_view) { return true; }, prompt);
  EXPECT_TRUE(made.is_ok()) << made.status().message();
  std::vector<int32_t> ids;
  for (const engine::GeneratedToken& token : made->tokens) ids.push_back(token.id);
  return ids;
}

TEST(SharedModel, TwoEnginesAnswerAsEachDoesAlone) {
  const test::TempDir dir;
  const std::string path = dir.path() + "/model.gguf";
  ASSERT_TRUE(gguf::write_random_model(posix_env(), path,
                                       {.n_layers = 3, .n_embd = 64, .n_ff = 96, .vocab = 300})
                  .is_ok());
  engine::EngineOptions options{
      .model_path = path, .n_threads = 2, .context_tokens = 256, .compute = "f32"};
  auto first = engine::Engine::open(posix_env(), options);
  ASSERT_TRUE(first.is_ok()) << first.status().message();
  std::vector<std::vector<int32_t>> alone;
  for (uint32_t seed = 0; seed < 6; ++seed) alone.push_back(answer(**first, seed));

  options.model_path = "";
  options.model = (*first)->shared_model();
  auto second = engine::Engine::open(posix_env(), options);
  ASSERT_TRUE(second.is_ok()) << second.status().message();
  EXPECT_EQ(&(*first)->model(), &(*second)->model());
  const auto answer_all = [](engine::Engine& engine) {
    std::vector<std::vector<int32_t>> answers;
    for (uint32_t seed = 0; seed < 6; ++seed) answers.push_back(answer(engine, seed));
    return answers;
  };
  std::vector<std::vector<int32_t>> from_second;
  std::thread other([&] { from_second = answer_all(**second); });
  EXPECT_EQ(answer_all(**first), alone);
  other.join();
  EXPECT_EQ(from_second, alone);
  first->reset();  // the model stays while an engine has it
  EXPECT_EQ(answer_all(**second), alone);
}

}  // namespace
}  // namespace weft
