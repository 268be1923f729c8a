// Layers with a sliding window that keep little more than it: everything that can still be computed
// has the bits that it has with all of the cache, and what has left a window is never assumed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "engine/chat_session.h"
#include "engine/generation.h"
#include "kv/invariants.h"
#include "support/identity_cases.h"
#include "support/test_model.h"

namespace weft {
namespace {

using test::random_ids;
using test::TestModel;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int32_t kPageTokens = 16;

class RollingWindows : public test::IdentityTest {
 protected:
  void SetUp() override {
    IdentityTest::SetUp();
    if (path_.empty()) return;
    auto file = gguf::File::open(posix_env(), path_);
    const auto config = model::read_config(**file);
    ASSERT_TRUE(config.is_ok()) << config.status().message();
    for (const int32_t window : config->group_windows()) window_ = std::max(window_, window);
    ASSERT_GT(window_, 0);
  }
  /// Room for one sequence whose steps have so many tokens.
  TestModel rolling(int32_t step_tokens) const {
    return TestModel(path_, {.capacity_tokens = capacity(),
                             .rolling_tokens = window_ + 2 * kPageTokens + step_tokens});
  }
  TestModel whole() const { return TestModel(path_, {.capacity_tokens = capacity()}); }
  int32_t capacity() const { return 6 * window_ + 256; }

  /// The last logits of each step: prompt rows, step_tokens at most, and then eight decoded ones.
  std::vector<float> run(TestModel& m, kv::SequenceId id, std::span<const int32_t> tokens,
                         int32_t step_tokens) {
    std::vector<float> all;
    for (int32_t n_decoded = 8; !tokens.empty();) {
      const bool decodes = std::ssize(tokens) <= n_decoded;
      const auto n_left = narrow<int32_t>(std::ssize(tokens) - (decodes ? 0 : n_decoded));
      const int32_t n = decodes ? 1 : std::min(step_tokens, n_left);
      auto reservation = m.cache().reserve(id, n);
      EXPECT_TRUE(reservation.is_ok()) << reservation.status().message();
      const int64_t last[] = {n - 1};
      const std::vector<float> logits =
          m.run_rows(model::Rows::of(id, tokens.first(n), m.cache().length(id),
                                     decodes ? model::RowKind::kDecode : model::RowKind::kPrompt),
                     last);
      reservation->commit();
      all.insert(all.end(), logits.begin(), logits.end());
      EXPECT_THAT(kv::violations(m.cache().snapshots()), IsEmpty());
      tokens = tokens.subspan(n);
      n_decoded -= decodes ? 1 : 0;
    }
    return all;
  }

  int32_t window_ = 0;
};

std::vector<test::IdentityCase> windowed_cases(bool real_too) {
  std::vector<test::IdentityCase> cases;
  for (test::IdentityCase& c : test::identity_cases()) {
    for (const char* name :
         {"gemma2_q8_0", "gemma3_q8_0", "gemma3_base_swa", "phi3_window_key", "gemma3_270m"}) {
      if (c.name == name && (real_too || c.file.empty())) cases.push_back(std::move(c));
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Models, RollingWindows, ::testing::ValuesIn(windowed_cases(true)),
                         [](const auto& one) { return one.param.name; });
/// Of small models alone.
class RollingEdges : public RollingWindows {};
INSTANTIATE_TEST_SUITE_P(Models, RollingEdges, ::testing::ValuesIn(windowed_cases(false)),
                         [](const auto& one) { return one.param.name; });

TEST_P(RollingWindows, LogitsAtFourWindowsAreThoseOfTheWholeCacheInMemoryAsComputed) {
  constexpr int32_t kStep = 48;
  TestModel m = rolling(kStep), unbounded = whole();
  const std::vector<int32_t> tokens = random_ids(4 * window_ + 37, m.n_vocab(), 3);
  const kv::OwnedSequence some(m.cache()), all(unbounded.cache());
  EXPECT_THAT(run(m, some.id(), tokens, kStep),
              ElementsAreArray(run(unbounded, all.id(), tokens, kStep)));
  EXPECT_FALSE(some.is_whole());
  EXPECT_TRUE(all.is_whole());

  const model::ModelConfig& config = m.model().config();
  const int64_t layer_page_bytes = m.cache().page_bytes() / config.n_layers;
  const auto pages = [](int64_t n_tokens) { return (n_tokens + kPageTokens - 1) / kPageTokens; };
  int64_t expected = 0;
  for (const model::LayerConfig& layer : config.layers) {
    expected +=
        layer_page_bytes *
        pages(layer.window_tokens > 0 ? layer.window_tokens + 2 * kPageTokens + kStep : capacity());
  }
  EXPECT_EQ(m.cache().memory_bytes(), expected);
  EXPECT_LT(m.cache().memory_bytes(), unbounded.cache().memory_bytes());
}

// Cut back to where the window is still there, a sequence goes on as one that was never longer;
// further back it can only begin anew.
TEST_P(RollingEdges, AreCutBackAsFarAsTheirPagesGo) {
  TestModel m = rolling(16), unbounded = whole();
  const std::vector<int32_t> tokens = random_ids(4 * window_ + 60, m.n_vocab(), 4);
  const std::vector<int32_t> others = random_ids(30, m.n_vocab(), 5);
  kv::OwnedSequence some(m.cache()), all(unbounded.cache());
  run(m, some.id(), tokens, 16);
  run(unbounded, all.id(), tokens, 16);
  int32_t least = some.length();
  while (least > 1 && some.longest_cut(least - 1) == least - 1) --least;
  EXPECT_GE(least, window_);
  EXPECT_LT(least, some.length() - 8);
  for (int32_t n = 1; n < least; ++n) ASSERT_EQ(some.longest_cut(n), 0) << n;
  EXPECT_THAT(some.truncate(least - 1).message(), HasSubstr("left its window"));
  EXPECT_EQ(some.length(), std::ssize(tokens));

  ASSERT_TRUE(some.truncate(least).is_ok());
  ASSERT_TRUE(all.truncate(least).is_ok());
  EXPECT_THAT(run(m, some.id(), others, 16),
              ElementsAreArray(run(unbounded, all.id(), others, 16)));
  ASSERT_TRUE(some.truncate(0).is_ok());
  ASSERT_TRUE(all.truncate(0).is_ok());
  EXPECT_THAT(run(m, some.id(), others, 16),
              ElementsAreArray(run(unbounded, all.id(), others, 16)));
}

TEST_P(RollingEdges, APrefixIsFoundWholeOrNotAtAll) {
  TestModel m = rolling(16);
  const std::vector<int32_t> tokens = random_ids(4 * window_ + 60, m.n_vocab(), 6);
  const auto prefix = std::span(tokens).first(std::min(window_, 48));
  {
    const kv::OwnedSequence fits(m.cache());
    run(m, fits.id(), prefix, 16);
    m.cache().publish(fits.id(), prefix.first(prefix.size() - 8));  // what was not decoded
    EXPECT_GT(m.cache().match_prefix(prefix), 0);
  }
  {
    const kv::OwnedSequence rolled(m.cache());
    run(m, rolled.id(), tokens, 16);  // takes the prefix's pages, which nobody holds
    ASSERT_FALSE(rolled.is_whole());
    m.cache().publish(rolled.id(), tokens);
  }
  const int32_t found = m.cache().match_prefix(tokens);
  EXPECT_LE(found, window_);  // nothing of what rolled
  TestModel unbounded = whole();
  const kv::OwnedSequence all(unbounded.cache()), again(m.cache());
  ASSERT_EQ(*m.cache().attach_prefix(again.id(), std::span(tokens).first(found)), found);
  const std::vector<float> fresh = run(unbounded, all.id(), tokens, 16);
  const std::vector<float> got = run(m, again.id(), std::span(tokens).subspan(found), 16);
  EXPECT_THAT(std::span(got).last(m.n_vocab()),
              ElementsAreArray(std::span(fresh).last(m.n_vocab())));
}

// Room for a copy would be made by letting go what leaves the window, of this very sequence.
TEST_P(RollingEdges, RefuseToChangeTokensAlsoOfASequenceThatIsWhole) {
  TestModel m = rolling(16);
  const kv::OwnedSequence sequence(m.cache());
  run(m, sequence.id(), random_ids(window_, m.n_vocab(), 7), 16);
  ASSERT_TRUE(m.cache().is_whole(sequence.id()));
  const auto no_turn = [](auto) { FAIL() << "nothing is to be turned"; };
  for (const Status& status : {m.cache().make_writable(sequence.id(), 0, window_),
                               m.cache().remove(sequence.id(), 0, window_ / 2, no_turn),
                               m.cache().shift(sequence.id(), 0, window_, 1, no_turn),
                               m.cache().divide(sequence.id(), 0, window_, 2, no_turn)}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
  }
  EXPECT_EQ(sequence.length(), window_);
}

TEST_P(RollingEdges, RefuseWhatNeedsTheWholeSequence) {
  TestModel m = rolling(16);
  const std::vector<int32_t> tokens = random_ids(4 * window_ + 60, m.n_vocab(), 7);
  const kv::OwnedSequence sequence(m.cache());
  run(m, sequence.id(), tokens, 16);
  bool moved = false;
  const Status removed = m.cache().remove(sequence.id(), 8, 16, [&](auto) { moved = true; });
  EXPECT_EQ(removed.code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(moved);
  const Status saved = m.cache().save(sequence.id(), 16, [](auto) { return Status::ok(); });
  EXPECT_EQ(saved.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(sequence.length(), std::ssize(tokens));
}

class RollingEngines : public ::testing::Test {
 protected:
  RollingEngines() {
    EXPECT_TRUE(gguf::write_random_model(posix_env(), path_,
                                         {.architecture = "gemma3",
                                          .n_layers = 6,
                                          .vocab = 300,
                                          .context_length = 8192,
                                          .window = 200})
                    .is_ok());
  }
  std::unique_ptr<engine::Engine> open(bool rolls, uint64_t kv_limit_bytes = 0) const {
    auto engine = engine::Engine::open(posix_env(), {.model_path = path_,
                                                     .n_threads = 2,
                                                     .context_tokens = 8192,
                                                     .kv_limit_bytes = kv_limit_bytes,
                                                     .rolls_windows = rolls,
                                                     .compute = "f32"});
    EXPECT_TRUE(engine.is_ok()) << engine.status().message();
    return std::move(*engine);
  }
  test::TempDir dir_;
  const std::string path_ = dir_.path() + "/model.gguf";
};

// 5,000 tokens are three steps where windows roll, one where they do not.
TEST_F(RollingEngines, GiveTheAnswersOfWholeWindows) {
  const auto rolls = open(true), keeps = open(false);
  const std::vector<int32_t> prompt = random_ids(5000, 300, 8);
  std::vector<std::vector<int32_t>> answers;
  for (engine::Engine* engine : {rolls.get(), keeps.get()}) {
    kv::OwnedSequence sequence = engine->create_sequence();
    auto logits = engine->append(sequence, prompt);
    ASSERT_TRUE(logits.is_ok()) << logits.status().message();
    engine::GenerationOptions options;
    options.max_tokens = 40;
    options.ignore_end = true;
    auto answer = engine::generate(
        *engine, sequence, std::move(*logits), options, [](std::string_view) { return true; },
        prompt);
    ASSERT_TRUE(answer.is_ok()) << answer.status().message();
    answers.emplace_back();
    for (const engine::GeneratedToken& token : answer->tokens) answers.back().push_back(token.id);
  }
  EXPECT_EQ(answers[0], answers[1]);
}

// Of a prompt in several steps that ends early nothing stays that could not be cut back.
TEST_F(RollingEngines, APromptThatIsStoppedLeavesTheSequenceAsItWasOrEmpty) {
  const auto engine = open(true);
  const std::vector<int32_t> tokens = random_ids(8192, 300, 9);
  const kv::OwnedSequence sequence = engine->create_sequence();
  ASSERT_TRUE(engine->append(sequence, std::span(tokens).first(300)).is_ok());
  int calls = 0;
  const auto after_two_steps = [&] { return ++calls > 2 * 6 + 3; };
  const FunctionRef<bool()> stop = after_two_steps;
  const Status stopped =
      engine->append(sequence, std::span(tokens).first(7000), {.cancelled = &stop}).status();
  EXPECT_EQ(stopped.code(), StatusCode::kCancelled);
  EXPECT_EQ(sequence.length(), 0);
  EXPECT_TRUE(engine->append(sequence, tokens).is_ok());
  EXPECT_EQ(engine->append(sequence, std::span(tokens).first(1)).status().code(),
            StatusCode::kResourceExhausted);
}

TEST_F(RollingEngines, AKvLimitHoldsMoreOfAContextWhereWindowsRoll) {
  const auto all = open(false);
  const auto limit = narrow<uint64_t>(all->limit_to_hold(4096 / kPageTokens));
  EXPECT_EQ(open(false, limit)->context_tokens(), 4096);
  EXPECT_GT(open(true, limit)->context_tokens(), 6000);
}

}  // namespace
}  // namespace weft
