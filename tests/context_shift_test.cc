// Tokens out of the middle of a sequence. In a model of one layer K and V depend on no other token,
// so there removing tokens must give what a sequence without them gives; that is the identity here.
#include "engine/context_shift.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "engine/generation.h"
#include "kv/invariants.h"
#include "support/kv_types.h"
#include "support/test_model.h"

namespace weft::engine {
namespace {

using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

gguf::RandomModelOptions of_one_layer(const std::string& architecture) {
  gguf::RandomModelOptions options{.architecture = architecture, .n_layers = 1, .vocab = 300};
  options.score_spread = 8;  // attention that tells positions apart
  if (architecture == "llama") {
    options.rope_yarn_factor = 4;  // cos and sin have a magnitude
    options.original_context_length = 256;
  }
  if (architecture == "gemma3") {
    options.window = 24;  // layer 0 has one, and the base that belongs to it
    options.rope_base_swa = 500;
  }
  return options;
}

std::vector<int32_t> some_tokens(int32_t n) {
  std::vector<int32_t> tokens(n);
  for (int32_t i = 0; i < n; ++i) tokens[i] = (i * 37 + i * i) % 250;
  return tokens;
}

class ContextShiftTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path_ = dir_.path() + "/model.gguf";
    ASSERT_TRUE(gguf::write_random_model(posix_env(), path_, of_one_layer(GetParam())).is_ok());
  }
  /// The logits of the last token after removals, beside those without the tokens.
  void expect_as_without(const kernels::KvTypes& types, std::vector<TokenRange> removals,
                         double tolerance) {
    test::TestModel model(path_, {.kv_types = types});
    std::vector<int32_t> tokens = some_tokens(101);
    const kv::OwnedSequence sequence(model.cache());
    model.run(sequence.id(), std::span(tokens).first(100));
    for (const TokenRange& gone : removals) {
      ASSERT_TRUE(model::remove_tokens(model.context(), model.model().config(), model.cache(),
                                       sequence.id(), gone.begin, gone.end)
                      .is_ok());
      tokens.erase(tokens.begin() + gone.begin, tokens.begin() + gone.end);
    }
    EXPECT_THAT(kv::violations(model.cache().snapshots()), IsEmpty());
    const std::vector<float> shifted = model.run(sequence.id(), std::span(tokens).last(1));
    const std::vector<float> all = model.prefill_logits(tokens);
    const std::span<const float> fresh = std::span(all).last(model.n_vocab());
    double error = 0, norm = 0;
    for (int32_t i = 0; i < model.n_vocab(); ++i) {
      error += (shifted[i] - fresh[i]) * (shifted[i] - fresh[i]);
      norm += fresh[i] * fresh[i];
    }
    EXPECT_LT(std::sqrt(error / norm), tolerance);
  }

  /// The logits of one more token after these operations on 100, beside those of a sequence that
  /// computed each token at the position that it has after them.
  void expect_at_new_positions(
      FunctionRef<void(test::TestModel& model, kv::SequenceId sequence)> operations) {
    test::TestModel model(path_, {.kv_types = {DType::kF32, DType::kF32}});
    const std::vector<int32_t> tokens = some_tokens(101);
    const kv::OwnedSequence sequence(model.cache()), fresh(model.cache());
    model.run(sequence.id(), std::span(tokens).first(100));
    operations(model, sequence.id());
    EXPECT_THAT(kv::violations(model.cache().snapshots()), IsEmpty());
    std::vector<float> expected;
    for (int32_t slot = 0; slot <= 100; ++slot) {
      // All before it move so far that the position is the next one, and back.
      const int32_t wanted = model.cache().position(sequence.id(), slot);
      const int32_t by = wanted - model.cache().position(fresh.id(), slot);
      if (slot > 0) shift(model, fresh.id(), {0, slot}, by);
      expected = model.run(fresh.id(), std::span(tokens).subspan(slot, 1));
      shift(model, fresh.id(), {0, std::max(slot, 1)}, slot == 0 ? by : -by);
    }
    const std::vector<float> got = model.run(sequence.id(), std::span(tokens).last(1));
    double error = 0, norm = 0;
    for (int32_t i = 0; i < model.n_vocab(); ++i) {
      error += (got[i] - expected[i]) * (got[i] - expected[i]);
      norm += expected[i] * expected[i];
    }
    // Two hundred roundings of f32 at most, in scores of about 8.
    EXPECT_LT(std::sqrt(error / norm), 200 * 8 * 0x1p-24);
  }
  static void shift(test::TestModel& m, kv::SequenceId sequence, const model::SlotRange& slots,
                    int32_t by) {
    EXPECT_TRUE(model::shift_tokens(m.context(), m.model().config(), m.cache(), sequence, slots, by)
                    .is_ok());
  }
  static void divide(test::TestModel& m, kv::SequenceId sequence, const model::SlotRange& slots,
                     int32_t by) {
    EXPECT_TRUE(
        model::divide_tokens(m.context(), m.model().config(), m.cache(), sequence, slots, by)
            .is_ok());
  }

  test::TempDir dir_;
  std::string path_;
};

TEST_P(ContextShiftTest, ShiftedAndDividedItIsASequenceComputedThere) {
  expect_at_new_positions([](test::TestModel& model, kv::SequenceId id) {
    shift(model, id, {40, 100}, 13);
    shift(model, id, {40, 100}, -5);
    shift(model, id, {0, 100}, 50);
  });
  expect_at_new_positions([](test::TestModel& model, kv::SequenceId id) {
    shift(model, id, {0, 100}, 5);
    divide(model, id, {0, 64}, 4);
    shift(model, id, {64, 100}, -51);
    divide(model, id, {0, 20}, 2);
    shift(model, id, {0, 100}, 50);
  });
}

TEST_P(ContextShiftTest, AForkKeepsItsOwnPositionsAndRefusedOnesChangeNothing) {
  test::TestModel model(path_);
  const std::vector<int32_t> tokens = some_tokens(61);
  const std::vector<float> expected = model.prefill_logits(tokens);
  const kv::OwnedSequence sequence(model.cache());
  model.run(sequence.id(), std::span(tokens).first(60));
  const kv::OwnedSequence fork(model.cache(), *model.cache().fork(sequence.id()));
  divide(model, fork.id(), {0, 40}, 4);
  EXPECT_EQ(model.cache().position(fork.id(), 39), 9);
  EXPECT_EQ(model.cache().position(sequence.id(), 39), 39);
  const auto refused = [&](const model::SlotRange& slots, int32_t by) {
    return model::shift_tokens(model.context(), model.model().config(), model.cache(),
                               sequence.id(), slots, by)
               .code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused({0, 60}, -1));
  EXPECT_TRUE(refused({0, 30}, 2));
  EXPECT_TRUE(refused({30, 61}, 2));
  EXPECT_TRUE(refused({0, 60}, INT32_MAX));
  const std::vector<float> got = model.run(sequence.id(), std::span(tokens).last(1));
  EXPECT_THAT(got, ElementsAreArray(std::span(expected).last(model.n_vocab())));
}

// K's rounding error goes into scores, which are up to about 8 here, and from there into the
// weights: two roundings of half a unit in the last place are 2 * 8 * 2^-12 of them in f16.
TEST_P(ContextShiftTest, InOneLayerItIsASequenceWithoutTheTokens) {
  const std::vector<TokenRange> kRemovals[] = {
      {{10, 43}}, {{0, 16}}, {{16, 48}}, {{99, 100}}, {{5, 6}, {40, 80}, {3, 20}}};
  for (const std::vector<TokenRange>& removals : kRemovals) {
    SCOPED_TRACE(::testing::Message() << removals[0].begin << " " << removals[0].end);
    for (const DType type : test::kv_types()) {
      if (!is_quantised(type)) {  // this model's heads are smaller than a block
        expect_as_without({type, type}, removals, 2 * 8 * test::kv_error(type) + 1e-5);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, ContextShiftTest,
                         ::testing::Values("llama", "qwen3", "gemma3", "phi3"));

TEST(TokensToDrop, KeepsTheFirstAndTheNewest) {
  const auto dropped = [](ContextShift shift, int32_t length) {
    const TokenRange gone = tokens_to_drop(shift, length, 16);
    return std::pair{gone.begin, gone.end};
  };
  EXPECT_EQ(dropped({ShiftPolicy::kHalf, 64}, 1024), std::pair(64, 544));
  EXPECT_EQ(dropped({ShiftPolicy::kHalf, 0}, 1024), std::pair(0, 512));
  EXPECT_EQ(dropped({ShiftPolicy::kSinks, 4}, 1024), std::pair(4, 20));
  EXPECT_EQ(dropped({ShiftPolicy::kHalf}, 1024), std::pair(4, 514));
  // More than fit: two pages are left to go on with.
  EXPECT_EQ(dropped({ShiftPolicy::kHalf, 5000}, 1024), std::pair(992, 1008));
  EXPECT_EQ(dropped({ShiftPolicy::kSinks, 5000}, 1024), std::pair(992, 1008));
  EXPECT_EQ(dropped({ShiftPolicy::kSinks, 4}, 16), std::pair(0, 8));
  EXPECT_EQ(dropped({ShiftPolicy::kHalf, 4}, 1), std::pair(0, 1));
}

TEST(MakeRoom, SinksMoveKeysOfFourBitsSeldom) {
  const test::TempDir dir;
  const std::string path = dir.path() + "/model.gguf";
  const gguf::RandomModelOptions model{.head_dim = 32, .vocab = 300};
  ASSERT_TRUE(gguf::write_random_model(posix_env(), path, model).is_ok());
  for (const auto& [type, expected] : {std::pair(DType::kQ8_0, 16), std::pair(DType::kQ4_0, 64)}) {
    const auto engine = Engine::open(
        posix_env(),
        {.model_path = path, .n_threads = 1, .context_tokens = 256, .kv_types = {type, type}});
    ASSERT_TRUE(engine.is_ok()) << engine.status().message();
    const kv::OwnedSequence sequence = (*engine)->create_sequence();
    ASSERT_TRUE((*engine)->append(sequence, some_tokens(256)).is_ok());
    const auto dropped = make_room(**engine, sequence, {ShiftPolicy::kSinks, 4}, nullptr);
    ASSERT_TRUE(dropped.is_ok()) << dropped.status().message();
    EXPECT_EQ(*dropped, expected);
    EXPECT_EQ(sequence.length(), 256 - expected);
  }
}

TEST(DroppedBetween, FindsWhatIsLeftOut) {
  const std::vector<int32_t> held = some_tokens(200);
  std::vector<int32_t> wanted = held;
  wanted.erase(wanted.begin() + 20, wanted.begin() + 90);
  wanted.insert(wanted.end(), {7, 8, 9});
  const auto gap = dropped_between(held, wanted, 16);
  ASSERT_TRUE(gap);
  EXPECT_EQ(std::pair(gap->begin, gap->end), std::pair(20, 90));
  EXPECT_FALSE(dropped_between(held, held, 16));
  EXPECT_FALSE(dropped_between({}, held, 16));
  EXPECT_FALSE(dropped_between(held, {}, 16));
  // What follows is shorter than two pages: computed rather than moved.
  EXPECT_FALSE(dropped_between(std::span(held).first(121), wanted, 16));
  EXPECT_TRUE(dropped_between(std::span(held).first(122), wanted, 16));
}

class EndlessText : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = dir_.path() + "/model.gguf";
    gguf::RandomModelOptions options{.vocab = 300};
    ASSERT_TRUE(gguf::write_random_model(posix_env(), path, options).is_ok());
    auto engine = Engine::open(
        posix_env(), {.model_path = path, .n_threads = 2, .context_tokens = 96, .compute = "f32"});
    ASSERT_TRUE(engine.is_ok()) << engine.status().message();
    engine_ = *std::move(engine);
  }
  test::TempDir dir_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EndlessText, GoesOnInTheMemoryOfOneContext) {
  const std::vector<int32_t> prompt = some_tokens(40);
  for (const ShiftPolicy policy : {ShiftPolicy::kHalf, ShiftPolicy::kSinks}) {
    const kv::OwnedSequence sequence = engine_->create_sequence();
    std::vector<float> logits = *engine_->append(sequence, prompt);
    std::vector<int32_t> held = prompt;
    int32_t most_pages = 0;
    const auto on_text = [&](std::string_view) {
      most_pages = std::max(most_pages, engine_->kv_usage().held());
      EXPECT_EQ(std::ssize(held), sequence.length());
      return true;
    };
    GenerationOptions options{.max_tokens = 500, .ignore_end = true};
    options.shift = {policy, 8};
    const auto text =
        generate(*engine_, sequence, logits, options, on_text, prompt, {.held = &held});
    ASSERT_TRUE(text.is_ok()) << text.status().message();
    EXPECT_EQ(text->tokens.size(), 500u);
    EXPECT_EQ(text->stop_reason, StopReason::kMaxTokens);
    EXPECT_LE(most_pages, 96 / 16);
    EXPECT_EQ(40 + 499 - text->dropped_tokens, sequence.length());
    EXPECT_THAT(std::span(held).first(8), ElementsAreArray(std::span(prompt).first(8)));
    EXPECT_EQ(held.back(), text->tokens[498].id);  // the last was not run
    // Until the context is full it is the text of one that ends there.
    const kv::OwnedSequence other = engine_->create_sequence();
    options.shift = {};
    const auto ended = generate(
        *engine_, other, *engine_->append(other, prompt), options,
        [](std::string_view) { return true; }, prompt);
    ASSERT_TRUE(ended.is_ok());
    EXPECT_EQ(ended->stop_reason, StopReason::kContextFull);
    ASSERT_EQ(ended->tokens.size(), 57u);
    for (size_t i = 0; i < 57; ++i) EXPECT_EQ(ended->tokens[i].id, text->tokens[i].id);
  }
}

}  // namespace
}  // namespace weft::engine
