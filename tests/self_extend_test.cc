// Self-Extend in an engine: nothing changes before the first group, a text gets the same bits
// however it comes in, and in a model of one layer, where K and V depend on no other token, it is
// the text whose every token was computed where it is.
#include "kv/self_extend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/batcher.h"
#include "engine/context_shift.h"
#include "engine/generation.h"
#include "kv/invariants.h"
#include "support/kv_types.h"
#include "support/test_model.h"

namespace weft::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr kv::SelfExtend kExtend{.group_tokens = 4, .neighbour_tokens = 32};
constexpr int32_t kFirstGrouped = 32 + 16;  // the first row for which some are

gguf::RandomModelOptions random_model(const std::string& architecture, int32_t n_layers) {
  gguf::RandomModelOptions options{
      .architecture = architecture, .n_layers = n_layers, .vocab = 300};
  options.context_length = 128;
  options.score_spread = 8;  // attention that tells positions apart
  if (architecture == "gemma3") {
    options.window = 24;
    options.rope_base_swa = 500;
  }
  return options;
}

std::vector<int32_t> some_tokens(int32_t n) {
  std::vector<int32_t> tokens(n);
  for (int32_t i = 0; i < n; ++i) tokens[i] = (i * 37 + i * i) % 250;
  return tokens;
}

class SelfExtendTest : public ::testing::TestWithParam<const char*> {
 protected:
  void write(int32_t n_layers) {
    path_ = dir_.path() + "/model.gguf";
    const auto options = random_model(GetParam(), n_layers);
    ASSERT_TRUE(gguf::write_random_model(posix_env(), path_, options).is_ok());
  }
  std::unique_ptr<Engine> open(EngineOptions options) const {
    options.model_path = path_;
    options.n_threads = 2;
    options.compute = "f32";
    auto engine = Engine::open(posix_env(), options);
    EXPECT_TRUE(engine.is_ok()) << engine.status().message();
    return *std::move(engine);
  }
  std::unique_ptr<Engine> extended(const kernels::KvTypes& types = {DType::kF32, DType::kF32}) {
    return open({.context_tokens = 4 * 128, .self_extend = kExtend, .kv_types = types});
  }

  test::TempDir dir_;
  std::string path_;
};

/// The last logits of each step, prompt rows of `step_tokens` and then n_decoded single ones.
std::vector<float> run(Engine& engine, const kv::OwnedSequence& sequence,
                       std::span<const int32_t> tokens, int64_t step_tokens, int64_t n_decoded) {
  std::vector<float> last;
  while (!tokens.empty()) {
    const bool decodes = std::ssize(tokens) <= n_decoded;
    const int64_t n = decodes ? 1 : std::min(step_tokens, std::ssize(tokens) - n_decoded);
    const auto kind = decodes ? model::RowKind::kDecode : model::RowKind::kPrompt;
    auto logits = engine.append(sequence, tokens.first(n), {.kind = kind});
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    EXPECT_THAT(kv::violations(engine.kv_snapshots()), IsEmpty());
    last = *std::move(logits);
    tokens = tokens.subspan(n);
  }
  return last;
}

double relative_error(std::span<const float> got, std::span<const float> expected) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += (got[i] - expected[i]) * (got[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(error / norm);
}

/// The logits of the last token, computed with all tokens at the positions that it sees.
std::vector<float> computed_there(const std::string& path, std::span<const int32_t> tokens,
                                  const kernels::KvTypes& types) {
  test::TestModel model(path, {.kv_types = types});
  const kv::OwnedSequence sequence(model.cache());
  const auto n_tokens = static_cast<int32_t>(tokens.size());
  EXPECT_TRUE(model::set_positions(model.context(), model.model().config(), model.cache(),
                                   sequence.id(), kExtend.positions(n_tokens - 1, n_tokens))
                  .is_ok());
  const std::vector<float> all = model.run(sequence.id(), tokens);
  return {all.end() - model.n_vocab(), all.end()};
}

TEST_P(SelfExtendTest, WithinTheNeighboursItIsPlain) {
  write(3);
  const auto plain = open({});
  const std::vector<int32_t> tokens = some_tokens(kFirstGrouped);
  const kv::OwnedSequence expected = plain->create_sequence();
  const std::vector<float> logits = run(*plain, expected, tokens, 100, 10);
  for (const kv::SelfExtend& extend : {kExtend, kv::SelfExtend{4, 128}, kv::SelfExtend{1, 32}}) {
    const auto engine = open({.self_extend = extend});
    const kv::OwnedSequence sequence = engine->create_sequence();
    EXPECT_THAT(run(*engine, sequence, tokens, 100, 10), ElementsAreArray(logits));
  }
  // The next row is another one's.
  const auto engine = extended({});
  const kv::OwnedSequence sequence = engine->create_sequence();
  run(*engine, sequence, tokens, 100, 10);
  const std::vector<int32_t> next = {7};
  EXPECT_NE(*engine->append(sequence, next), *plain->append(expected, next));
}

TEST_P(SelfExtendTest, AGroupOfOneIsPlainUpToTheEndOfTheContext) {
  write(2);
  const auto plain = open({});
  const auto one = open({.self_extend = {1, 32}});
  EXPECT_EQ(one->context_tokens(), plain->context_tokens());
  const std::vector<int32_t> tokens = some_tokens(128);
  const kv::OwnedSequence a = plain->create_sequence(), b = one->create_sequence();
  EXPECT_THAT(run(*one, b, tokens, 50, 20), ElementsAreArray(run(*plain, a, tokens, 50, 20)));
}

TEST_P(SelfExtendTest, StepsOfAnyLengthGiveTheSameBits) {
  write(3);
  const std::vector<int32_t> tokens = some_tokens(300);
  const auto engine = extended({});
  const kv::OwnedSequence whole = engine->create_sequence();
  const std::vector<float> expected = run(*engine, whole, tokens, 300, 0);
  for (const int64_t step_tokens : {1, 7, 16, 64, 250}) {
    const kv::OwnedSequence sequence = engine->create_sequence();
    EXPECT_THAT(run(*engine, sequence, tokens, step_tokens, 0), ElementsAreArray(expected));
  }
  // All but the first token, whose position stays 0, depends on more than its ids, so that no
  // other text's prefix is made of it.
  for (const kv::Snapshot& group : engine->kv_snapshots()) {
    for (const auto& one : group.sequences) {
      EXPECT_THAT(one.sequence.kinds,
                  ElementsAre(kv::SlotRun{.end = 1, .kind = kv::SlotKind::kPrompt},
                              kv::SlotRun{.end = 300, .kind = kv::SlotKind::kFused}));
    }
  }
  // And scored.
  const kv::OwnedSequence scored = engine->create_sequence();
  const Appended all[] = {{&scored, tokens}};
  std::vector<int64_t> rows = {0, 40, 150, 299}, got_rows;
  std::vector<float> got;
  ASSERT_TRUE(engine
                  ->score(all, rows,
                          [&](int64_t row, std::span<const float> logits) {
                            got_rows.push_back(row);
                            got.assign(logits.begin(), logits.end());
                          })
                  .is_ok());
  EXPECT_EQ(got_rows, rows);
  // Prefill's kernels here, decode's there: sums in another order.
  EXPECT_LT(relative_error(got, expected), 1e-5);
}

// Each key is turned three times, K in f32: roundings in scores of about 8.
TEST_P(SelfExtendTest, InOneLayerItIsATextComputedThere) {
  write(1);
  const auto engine = extended();
  for (const int32_t n_tokens : {50, 64, 65, 200, 301, 400}) {
    const std::vector<int32_t> tokens = some_tokens(n_tokens);
    const kv::OwnedSequence sequence = engine->create_sequence();
    const std::vector<float> got = run(*engine, sequence, tokens, 90, 30);
    const std::vector<float> expected = computed_there(path_, tokens, {DType::kF32, DType::kF32});
    EXPECT_LT(relative_error(got, expected), 3 * 8 * 0x1p-22) << n_tokens;
  }
  // As near with K of 16 bits as its rounding allows.
  const kernels::KvTypes half{DType::kF16, DType::kF16};
  const auto of_half = extended(half);
  const kv::OwnedSequence sequence = of_half->create_sequence();
  const std::vector<int32_t> tokens = some_tokens(400);
  EXPECT_LT(
      relative_error(run(*of_half, sequence, tokens, 90, 30), computed_there(path_, tokens, half)),
      2 * 3 * 8 * test::kv_error(DType::kF16));
}

TEST_P(SelfExtendTest, WhatIsCutGoesOnAsIfItHadNeverBeenThere) {
  write(1);
  const auto engine = extended();
  const std::vector<int32_t> tokens = some_tokens(400);
  kv::OwnedSequence sequence = engine->create_sequence();
  run(*engine, sequence, tokens, 128, 0);
  for (const int32_t kept : {330, 170, 40, 0}) {
    ASSERT_TRUE(sequence.truncate(kept).is_ok());
    const auto rest = std::span(tokens).subspan(kept, 20);
    const std::vector<float> got = run(*engine, sequence, rest, 7, 3);
    const std::vector<float> expected =
        computed_there(path_, std::span(tokens).first(kept + 20), {DType::kF32, DType::kF32});
    EXPECT_LT(relative_error(got, expected), 6 * 8 * 0x1p-22) << kept;
  }
}

TEST_P(SelfExtendTest, AForkIsNotDisturbed) {
  write(2);
  const auto engine = extended({});
  const std::vector<int32_t> tokens = some_tokens(300);
  const kv::OwnedSequence alone = engine->create_sequence();
  const std::vector<float> expected = run(*engine, alone, tokens, 64, 0);
  const kv::OwnedSequence sequence = engine->create_sequence();
  run(*engine, sequence, std::span(tokens).first(100), 64, 0);
  const auto fork = sequence.fork();
  ASSERT_TRUE(fork.is_ok());
  run(*engine, *fork, std::span(tokens).subspan(3, 150), 64, 0);
  EXPECT_THAT(run(*engine, sequence, std::span(tokens).subspan(100), 64, 0),
              ElementsAreArray(expected));
}

TEST_P(SelfExtendTest, AContextShiftLeavesTheTextAtItsPositions) {
  write(1);
  const auto engine = extended();
  ASSERT_EQ(engine->context_tokens(), 4 * 128);
  std::vector<int32_t> held = some_tokens(512);
  const kv::OwnedSequence sequence = engine->create_sequence();
  run(*engine, sequence, held, 128, 0);
  ASSERT_TRUE(make_room(*engine, sequence, {ShiftPolicy::kHalf, 8}, &held).is_ok());
  ASSERT_LT(held.size(), 300u);
  const std::vector<int32_t> more = some_tokens(40);
  const std::vector<float> got = run(*engine, sequence, more, 7, 3);
  held.insert(held.end(), more.begin(), more.end());
  EXPECT_LT(relative_error(got, computed_there(path_, held, {DType::kF32, DType::kF32})),
            8 * 8 * 0x1p-22);
}

TEST_P(SelfExtendTest, AFusedPromptIsAtThePositionsOfItsLength) {
  write(1);
  const auto engine = extended();
  fusion::Prompt prompt;
  prompt.prefix = some_tokens(20);
  for (int32_t i = 0; i < 4; ++i) prompt.chunks.push_back(some_tokens(50 + i));
  prompt.suffix = some_tokens(17);
  // Records are f32, so that nothing but the turning rounds.
  const auto fusor = engine->make_fusor(nullptr, {}, DType::kF32);
  for (const auto mode : {fusion::ReuseMode::kNone, fusion::ReuseMode::kFull,
                          fusion::ReuseMode::kBlend, fusion::ReuseMode::kPrefix}) {
    auto fused = fusor->prefill(prompt, {.mode = mode,
                                         .ratio = 0.2,
                                         .selector = fusion::SelectorKind::kQueryAttention,
                                         .propagate = 1,
                                         .allow_plain = false});
    ASSERT_TRUE(fused.is_ok()) << fused.status().message();
    const std::vector<int32_t> tokens = prompt.tokens();
    EXPECT_LT(
        relative_error(fused->logits, computed_there(path_, tokens, {DType::kF32, DType::kF32})),
        8 * 8 * 0x1p-22)
        << fusion::kReuseModes.name(mode);
    // And goes on there.
    const std::vector<int32_t> more = some_tokens(60);
    const std::vector<float> got = run(*engine, fused->sequence, more, 7, 3);
    std::vector<int32_t> all = tokens;
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_LT(relative_error(got, computed_there(path_, all, {DType::kF32, DType::kF32})),
              8 * 8 * 0x1p-22)
        << fusion::kReuseModes.name(mode);
  }
}

TEST_P(SelfExtendTest, PlainPrefillOfAFusorIsTheEngines) {
  write(3);
  const auto engine = extended({});
  fusion::Prompt prompt{
      .prefix = some_tokens(20), .chunks = {some_tokens(150)}, .suffix = some_tokens(30)};
  const kv::OwnedSequence sequence = engine->create_sequence();
  const std::vector<float> expected = run(*engine, sequence, prompt.tokens(), 1000, 0);
  const auto fusor = engine->make_fusor(nullptr, {});
  const auto none = fusor->prefill(prompt, {.mode = fusion::ReuseMode::kNone});
  ASSERT_TRUE(none.is_ok()) << none.status().message();
  EXPECT_THAT(none->logits, ElementsAreArray(expected));
  // What was grouped is no prefix: asked again, it is found up to there at most.
  for (int i = 0; i < 2; ++i) {
    const auto prefix = fusor->prefill(prompt, {.mode = fusion::ReuseMode::kPrefix});
    ASSERT_TRUE(prefix.is_ok()) << prefix.status().message();
    EXPECT_THAT(prefix->logits, ElementsAreArray(expected));
    EXPECT_EQ(prefix->report.reused_tokens, 0);
  }
}

TEST_P(SelfExtendTest, TextsLongerThanTheModelAreGenerated) {
  write(2);
  const auto engine = extended({});
  EXPECT_EQ(engine->context_tokens(), 512);
  EXPECT_EQ(engine->longest_context(), 512);
  EXPECT_EQ(engine->model().config().context_tokens, 128);
  const std::vector<int32_t> prompt = some_tokens(200);
  const kv::OwnedSequence sequence = engine->create_sequence();
  const auto text = generate(
      *engine, sequence, *engine->append(sequence, prompt),
      {.max_tokens = kNoTokenLimit, .ignore_end = true}, [](std::string_view) { return true; },
      prompt);
  ASSERT_TRUE(text.is_ok()) << text.status().message();
  EXPECT_EQ(text->stop_reason, StopReason::kContextFull);
  EXPECT_EQ(sequence.length(), 512);
  const auto too_long = engine->append(engine->create_sequence(), some_tokens(513));
  EXPECT_EQ(too_long.status().code(), StatusCode::kResourceExhausted);
}

TEST_P(SelfExtendTest, AnErrorLeavesTheTextAsItWas) {
  write(2);
  const auto engine = extended({});
  const std::vector<int32_t> tokens = some_tokens(300);
  const kv::OwnedSequence alone = engine->create_sequence(), sequence = engine->create_sequence();
  const std::vector<float> expected = run(*engine, alone, tokens, 300, 0);
  run(*engine, sequence, std::span(tokens).first(45), 45, 0);
  int n_asked = 0;
  const auto later = [&] { return ++n_asked > 7; };  // in front of a layer of the fourth step
  const FunctionRef<bool()> cancelled = later;
  const auto stopped =
      engine->append(sequence, std::span(tokens).subspan(45), {.cancelled = &cancelled});
  EXPECT_EQ(stopped.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(sequence.length(), 45);
  EXPECT_THAT(kv::violations(engine->kv_snapshots()), IsEmpty());
  // K of the first 45 was turned and is turned back, in f16.
  EXPECT_LT(relative_error(run(*engine, sequence, std::span(tokens).subspan(45), 300, 0), expected),
            0.05);
}

INSTANTIATE_TEST_SUITE_P(Architectures, SelfExtendTest,
                         ::testing::Values("llama", "qwen3", "gemma3", "phi3"));

TEST(SelfExtendEngine, RefusesSeveralRequestsByName) {
  const test::TempDir dir;
  const std::string path = dir.path() + "/model.gguf";
  ASSERT_TRUE(gguf::write_random_model(posix_env(), path, random_model("llama", 1)).is_ok());
  const auto engine = Engine::open(posix_env(), {.model_path = path, .self_extend = kExtend});
  ASSERT_TRUE(engine.is_ok()) << engine.status().message();
  const auto batcher = Batcher::create(**engine, {});
  EXPECT_EQ(batcher.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(batcher.status().message(), HasSubstr("--grp-attn-n"));
  const auto wrong = Engine::open(posix_env(), {.model_path = path, .self_extend = {4, 30}});
  EXPECT_THAT(wrong.status().message(), HasSubstr("--grp-attn-w 30"));
}

TEST(SelfExtendEngine, WindowsKeepWhatMayBeTurned) {
  const test::TempDir dir;
  const std::string path = dir.path() + "/model.gguf";
  gguf::RandomModelOptions options = random_model("gemma3", 2);
  options.context_length = 1024;  // some windows and steps
  ASSERT_TRUE(gguf::write_random_model(posix_env(), path, options).is_ok());
  const auto engine = Engine::open(
      posix_env(),
      {.model_path = path, .context_tokens = 4096, .self_extend = kExtend, .rolls_windows = true});
  ASSERT_TRUE(engine.is_ok()) << engine.status().message();
  kv::OwnedSequence sequence = (*engine)->create_sequence();
  for (int i = 0; i < 8; ++i) {
    const auto logits = (*engine)->append(sequence, some_tokens(500));
    ASSERT_TRUE(logits.is_ok()) << logits.status().message();
  }
  EXPECT_TRUE(sequence.is_whole());
  ASSERT_TRUE(sequence.truncate(sequence.longest_cut(700)).is_ok());
  EXPECT_EQ(sequence.length(), 700);
  EXPECT_TRUE((*engine)->append(sequence, some_tokens(10)).is_ok());
}

TEST(SelfExtendEngine, BeyondItsContextAModelGoesOnWithoutGroups) {
  const test::TempDir dir;
  const std::string path = dir.path() + "/model.gguf";
  ASSERT_TRUE(gguf::write_random_model(posix_env(), path, random_model("llama", 1)).is_ok());
  EXPECT_FALSE(Engine::open(posix_env(), {.model_path = path, .context_tokens = 129}).is_ok());
  const auto engine = Engine::open(
      posix_env(), {.model_path = path, .context_tokens = 300, .beyond_context = true});
  ASSERT_TRUE(engine.is_ok()) << engine.status().message();
  const kv::OwnedSequence sequence = (*engine)->create_sequence();
  EXPECT_TRUE((*engine)->append(sequence, some_tokens(300)).is_ok());
}

}  // namespace
}  // namespace weft::engine
