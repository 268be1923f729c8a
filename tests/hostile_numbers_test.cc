// Numbers that nobody should pass: what a caller of the public API may get wrong, and what a GGUF's
// keys may say, is an error of one line or runs; it never aborts and never reads outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "base/log.h"
#include "engine/chat_session.h"
#include "engine/engine.h"
#include "engine/generation.h"
#include "eval/dataset.h"
#include "eval/perplexity.h"
#include "model/architecture.h"
#include "support/test_model.h"
#include "text/detokenizer.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kMin = std::numeric_limits<int32_t>::min();
constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
constexpr int32_t kVocab = 300;

class HostileNumbers : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<test::TempDir>();
    ASSERT_TRUE(gguf::write_random_model(posix_env(), model(),
                                         {.n_layers = 3, .n_embd = 32, .n_ff = 64, .vocab = kVocab})
                    .is_ok());
    auto opened = engine::Engine::open(posix_env(), options());
    ASSERT_TRUE(opened.is_ok()) << opened.status().message();
    engine_ = *std::move(opened);
  }
  static void TearDownTestSuite() {
    engine_.reset();
    folder_.reset();
  }

  static std::string model() { return folder_->path() + "/model.gguf"; }
  static engine::EngineOptions options() {
    return {.model_path = model(), .n_threads = 2, .context_tokens = 256, .compute = "f32"};
  }

  template <class T>
  static void expect_refused(const Result<T>& result, const std::string& part) {
    expect_refused(result.status(), part);
  }
  static void expect_refused(const Status& status, const std::string& part) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(part));
    EXPECT_THAT(status.message(), ::testing::Not(HasSubstr("\n")));
  }

  static const std::vector<std::vector<int32_t>>& bad_tokens() {
    static const std::vector<std::vector<int32_t>> bad{{-1},   {kMin},     {kVocab},
                                                       {kMax}, {1, 2, -1}, {1, kVocab, 2}};
    return bad;
  }

  static inline std::unique_ptr<test::TempDir> folder_;
  static inline std::unique_ptr<engine::Engine> engine_;
};

TEST_F(HostileNumbers, EngineOptions) {
  for (const int n : {-1, kMin, kMaxThreads + 1, kMax}) {
    engine::EngineOptions o = options();
    o.n_threads = n;
    expect_refused(engine::Engine::open(posix_env(), o), "threads: must be 1 to");
  }
  for (const int32_t n : {-1, kMin, kMax, 2049}) {
    engine::EngineOptions o = options();
    o.context_tokens = n;
    expect_refused(engine::Engine::open(posix_env(), o), "the model's context is 1 to 2048");
  }
}

TEST_F(HostileNumbers, AppendedTokens) {
  const kv::OwnedSequence sequence = engine_->create_sequence();
  for (const model::RowKind kind : {model::RowKind::kPrompt, model::RowKind::kDecode}) {
    for (const bool every_row : {false, true}) {
      const engine::AppendOptions how{.kind = kind, .every_row = every_row};
      expect_refused(engine_->append(sequence, {}, how), "no tokens");
      for (const auto& tokens : bad_tokens()) {
        expect_refused(engine_->append(sequence, tokens, how),
                       "the vocabulary has 0 to " + std::to_string(kVocab - 1));
      }
    }
  }
  const std::vector<int32_t> one{1};
  EXPECT_EQ(engine_->append(sequence, std::vector<int32_t>(257, 1)).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(sequence.length(), 0);
  EXPECT_EQ(engine_->kv_usage().held(), 0);
  EXPECT_TRUE(engine_->append(sequence, one).is_ok());
}

TEST_F(HostileNumbers, Generation) {
  const kv::OwnedSequence sequence = engine_->create_sequence();
  const std::vector<int32_t> prompt{1, 2, 3};
  const auto logits = engine_->append(sequence, prompt);
  ASSERT_TRUE(logits.is_ok());
  const auto generate = [&](std::vector<float> first, engine::GenerationOptions how) {
    return engine::generate(*engine_, sequence, std::move(first), how,
                            [](std::string_view) { return true; });
  };
  for (const size_t n : {size_t{0}, size_t{1}, size_t{kVocab - 1}, size_t{2 * kVocab}}) {
    expect_refused(generate(std::vector<float>(n), {}), "logits");
  }
  expect_refused(generate(*logits, {.sampling = {.temperature = -1}}), "temp -1");
  for (const int32_t n : {-2, kMin}) {
    expect_refused(generate(*logits, {.max_tokens = n}), "tokens -");
  }
  const auto none = generate(*logits, {.max_tokens = 0});
  ASSERT_TRUE(none.is_ok()) << none.status().message();
  EXPECT_TRUE(none->tokens.empty());
  for (const int32_t n : {-1, kMin, 0, kMax}) {
    EXPECT_TRUE(generate(*logits, {.max_tokens = 1, .n_logprobs = n}).is_ok());
  }
  for (const float odd : {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(), -HUGE_VALF}) {
    for (const float temperature : {0.0F, 0.7F, std::numeric_limits<float>::denorm_min()}) {
      const engine::GenerationOptions how{.sampling = {.temperature = temperature, .top_k = kMax},
                                          .max_tokens = 2,
                                          .n_logprobs = 3};
      std::vector<float> scores(kVocab, odd);
      const Status refused = generate(scores, how).status();
      EXPECT_EQ(refused.code(), StatusCode::kCorrupt);
      EXPECT_THAT(refused.message(), HasSubstr("the model's scores are no numbers"));
      scores[7] = 0;
      EXPECT_TRUE(generate(scores, how).is_ok());
    }
  }
  text::StreamingDetokenizer detokenizer(engine_->tokenizer());
  for (const auto& tokens : bad_tokens()) {
    EXPECT_EQ(engine_->tokenizer().decode(std::span(tokens).last(1)), "");
    detokenizer.push(tokens.back());
  }
}

TEST_F(HostileNumbers, FusedPrompts) {
  const auto fusor = engine_->make_fusor(nullptr, {1});
  const fusion::Prompt good{.prefix = {1, 2}, .chunks = {{3, 4, 5}, {6, 7}}, .suffix = {8, 9}};
  const auto refused = [&](const fusion::Prompt& prompt, const fusion::FusionOptions& how,
                           const std::string& part) {
    expect_refused(fusor->prefill(prompt, how), part);
    EXPECT_TRUE(engine_->kv_snapshots().front().prefix_entries.empty());
  };
  for (const auto mode : fusion::kReuseModes.values()) {
    for (const auto selector : fusion::kSelectors.values()) {
      const fusion::FusionOptions how{
          .mode = mode, .ratio = 0.5, .selector = selector, .allow_plain = false};
      for (const auto& bad : bad_tokens()) {
        fusion::Prompt prompt = good;
        prompt.prefix = bad;
        refused(prompt, how, "the vocabulary has");
        prompt = good;
        prompt.chunks[1] = bad;
        refused(prompt, how, "the vocabulary has");
        prompt = good;
        prompt.suffix = bad;
        refused(prompt, how, "the vocabulary has");
      }
      fusion::Prompt prompt = good;
      prompt.suffix = {};
      refused(prompt, how, "no question");
      prompt = good;
      prompt.chunks[0] = {};
      refused(prompt, how, "empty chunk");
      for (const double ratio : {-1.0, 1.01, HUGE_VAL, std::nan("")}) {
        fusion::FusionOptions odd = how;
        odd.ratio = ratio;
        refused(good, odd, "ratio");
      }
    }
  }
  for (const int32_t layer : {kMin, -1, 0, 3, kMax}) {
    refused(good,
            {.selector = fusion::SelectorKind::kVDeviation,
             .checks = {{layer, 0.1}},
             .allow_plain = false},
            "layer");
  }
  for (const auto& bad : bad_tokens()) {
    expect_refused(fusor->ensure_stored(bad), "the vocabulary has");
    expect_refused(engine_->make_fusor(nullptr, bad)->prefill(good, {.allow_plain = false}),
                   "the vocabulary has");
  }
  expect_refused(fusor->ensure_stored({}), "no tokens");
  EXPECT_EQ(engine_->kv_usage().held(), 0);
  EXPECT_EQ(engine_->kv_usage().evictable, 1) << "the anchor's page alone";
}

TEST_F(HostileNumbers, FusionSources) {
  const auto fusor = engine_->make_fusor(nullptr, {});
  const fusion::Prompt good{.prefix = {1, 2}, .chunks = {{3, 4, 5}, {6, 7}}, .suffix = {8, 9}};
  auto sources = fusor->gather(good);
  ASSERT_TRUE(sources.is_ok()) << sources.status().message();
  fusion::Prompt other = good;
  other.chunks.push_back({1});
  expect_refused(fusor->prefill_from(other, {}, *sources), "2 sources for 3 chunks");
  other = good;
  std::swap(other.chunks[0], other.chunks[1]);
  expect_refused(fusor->prefill_from(other, {}, *sources), "source of chunk 1 has 3 tokens");
  const auto done = fusor->prefill_from(good, {}, *sources);
  ASSERT_TRUE(done.is_ok()) << done.status().message();
}

TEST_F(HostileNumbers, PerplexityWindows) {
  const auto go_on = [](int64_t, int64_t) { return true; };
  for (const int32_t n : {kMin, -1, 0, 1, kMax}) {
    expect_refused(eval::perplexity(*engine_, "Some text", {.window_tokens = n}, go_on),
                   "--context ");
  }
}

TEST_F(HostileNumbers, EvalFiles) {
  const std::string path = folder_->path() + "/eval.json";
  const std::string deep(2'000'000, '[');
  const std::string passage = R"("ctxs": [{"text": "t"}])";
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("null"), std::string("[]"), std::string("[1]"),
        std::string("[{}]"), std::string("[null]"), deep, deep + std::string(deep.size(), ']'),
        "[{" + passage + "}]", R"([{"question": 1, "answers": ["a"], )" + passage + "}]",
        R"([{"question": "q", "answers": [], )" + passage + "}]",
        R"([{"question": "q", "answers": [{}], )" + passage + "}]",
        std::string(R"([{"question": "q", "answers": ["a"], "ctxs": [1]}])"),
        std::string(R"([{"question": "q", "answers": ["a"], "ctxs": [{"title": 1}]}])"),
        std::string("[{\"question\": \"\xff\", \"answers\": [\"a\"], \"ctxs\": [{}]}]")}) {
    std::ofstream(path, std::ios::binary) << text;
    const auto read = eval::read_dataset(posix_env(), path, 0);
    ASSERT_FALSE(read.is_ok()) << text.substr(0, 80);
    EXPECT_EQ(read.status().code(), StatusCode::kCorrupt);
    EXPECT_THAT(read.status().message(), HasSubstr("eval.json"));
  }
}

/// The file's bytes with the four of the number at `key` replaced; empty where the file has no
/// such 32-bit number.
std::string with_number(const std::string& file, const std::string& key, uint32_t value) {
  const size_t at = file.find(key);
  if (at == std::string::npos) return {};
  uint32_t type = 0;
  std::memcpy(&type, file.data() + at + key.size(), sizeof(type));
  if (type != 4 && type != 5 && type != 6) return {};  // u32, i32, f32
  std::string changed = file;
  std::memcpy(changed.data() + at + key.size() + sizeof(type), &value, sizeof(value));
  return changed;
}

/// Opens the model, prefills, decodes and fuses: whatever the numbers say, that ends.
void use(const std::string& path) {
  auto engine = engine::Engine::open(
      posix_env(), {.model_path = path, .n_threads = 1, .context_tokens = 64, .compute = "f32"});
  if (!engine.is_ok()) {
    EXPECT_FALSE(engine.status().message().empty());
    return;
  }
  const kv::OwnedSequence sequence = (*engine)->create_sequence();
  const std::vector<int32_t> prompt{1, 2, 3, 4, 5, 6, 7};
  auto logits = (*engine)->append(sequence, prompt);
  if (!logits.is_ok()) return;
  const auto made = engine::generate(**engine, sequence, *std::move(logits), {.max_tokens = 2},
                                     [](std::string_view) { return true; });
  EXPECT_TRUE(made.is_ok()) << made.status().message();
  const auto fusor = (*engine)->make_fusor(nullptr, {1});
  const auto fused = fusor->prefill({.prefix = {1}, .chunks = {{2, 3, 4}}, .suffix = {5, 6}},
                                    {.ratio = 0.5, .allow_plain = false});
  if (!fused.is_ok()) {
    EXPECT_FALSE(fused.status().message().empty());
  }
}

class HostileKeys : public ::testing::TestWithParam<std::string> {};

TEST_P(HostileKeys, EndInAnErrorOrAnAnswer) {
  set_log_level(LogLevel::kQuiet);
  const std::string architecture = GetParam();
  const test::TempDir folder;
  const std::string path = folder.path() + "/model.gguf";
  gguf::RandomModelOptions options{.architecture = architecture,
                                   .n_layers = 2,
                                   .n_embd = 64,
                                   .n_ff = 64,
                                   .n_heads = 4,
                                   .n_kv_heads = 2,
                                   .head_dim = 16,
                                   .vocab = 288,
                                   .window = 8};
  if (architecture == "qwen3moe" || architecture == "llama") {
    options.n_experts = 4;
    options.n_experts_used = 2;
  }
  ASSERT_TRUE(gguf::write_random_model(posix_env(), path, options).is_ok());
  const std::string file = test::read_text(path);
  int n_changed = 0;
  const auto try_with = [&](const std::string& key, uint32_t value) {
    const std::string changed = with_number(file, key, value);
    if (changed.empty()) return;
    ++n_changed;
    std::ofstream(path, std::ios::binary) << changed;
    SCOPED_TRACE(key + " = " + std::to_string(value));
    use(path);
  };
  for (const char* name :
       {"block_count", "embedding_length", "feed_forward_length", "attention.head_count",
        "attention.head_count_kv", "attention.key_length", "attention.value_length",
        "context_length", "rope.dimension_count", "attention.sliding_window", "expert_count",
        "expert_used_count", "expert_feed_forward_length", "vocab_size"}) {
    for (const uint32_t value :
         {0u,    1u,       2u,       3u,          4u,          5u,         7u,   8u,
          12u,   15u,      17u,      32u,         64u,         255u,       256u, 257u,
          4096u, 1u << 20, 1u << 28, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
      try_with(architecture + "." + name, value);
    }
  }
  for (const char* name :
       {"attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.scaling.factor",
        "attn_logit_softcapping", "final_logit_softcapping", "attention.temperature_scale"}) {
    for (const float value : {0.0F, -0.0F, -1.0F, 1e-45F, 1e-30F, 1.0F, 1e30F, 3e38F, HUGE_VALF,
                              -HUGE_VALF, std::numeric_limits<float>::quiet_NaN()}) {
      uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof(bits));
      try_with(architecture + "." + name, bits);
    }
  }
  for (const char* name : {"bos_token_id", "eos_token_id", "padding_token_id"}) {
    for (const uint32_t value : {0u, 287u, 288u, 0x7fffffffu, 0xffffffffu}) {
      try_with(std::string("tokenizer.ggml.") + name, value);
    }
  }
  EXPECT_GT(n_changed, 100);
  set_log_level(LogLevel::kWarning);
}

INSTANTIATE_TEST_SUITE_P(All, HostileKeys, ::testing::ValuesIn(model::architecture_names()));

}  // namespace
}  // namespace weft
