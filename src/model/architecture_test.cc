// What each architecture's file makes of the keys: windows, RoPEs, scales. That the numbers are
// right is shown by the reference logits in tests/architectures_test.cc.
#include "model/architecture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "model/model.h"
#include "support/gguf_builder.h"

namespace weft::model {
namespace {

using kernels::RopePairing;
using test::BuiltGguf;
using test::GgufBuilder;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;

/// The small llama under another architecture's name, with `n_layers` layers said.
GgufBuilder builder_of(const std::string& architecture, uint32_t n_layers) {
  GgufBuilder builder = GgufBuilder::small_llama();
  std::map<std::string, GgufBuilder::Scalar> keys;
  for (const auto& [key, value] : builder.keys) {
    constexpr std::string_view kOld = "llama.";
    keys[key.starts_with(kOld) ? architecture + "." + key.substr(kOld.size()) : key] = value;
  }
  keys["general.architecture"] = architecture;
  keys[architecture + ".block_count"] = n_layers;
  if (architecture == "qwen3moe") {
    keys[architecture + ".expert_count"] = 4u;
    keys[architecture + ".expert_used_count"] = 2u;
  }
  builder.keys = std::move(keys);
  return builder;
}

ModelConfig config_of(const GgufBuilder& builder, int32_t context_tokens = 0) {
  const BuiltGguf file(builder);
  const auto config = read_config(*file, context_tokens);
  EXPECT_TRUE(config.is_ok()) << config.status().message();
  return *config;
}

std::vector<int32_t> windows(const ModelConfig& config) {
  std::vector<int32_t> windows;
  for (const LayerConfig& layer : config.layers) windows.push_back(layer.window_tokens);
  return windows;
}

std::vector<int32_t> ropes(const ModelConfig& config) {
  std::vector<int32_t> ropes;
  for (const LayerConfig& layer : config.layers) ropes.push_back(layer.rope);
  return ropes;
}

TEST(Architectures, PairTheDimensionsAsTheirWeightsWereTrained) {
  const std::map<std::string, RopePairing> pairings = {
      {"llama", RopePairing::kNorm},    {"smollm3", RopePairing::kNorm},
      {"mistral3", RopePairing::kNorm}, {"qwen2", RopePairing::kNeox},
      {"qwen3", RopePairing::kNeox},    {"gemma2", RopePairing::kNeox},
      {"gemma3", RopePairing::kNeox},   {"phi3", RopePairing::kNeox},
      {"qwen3moe", RopePairing::kNeox}};
  for (const std::string& name : architecture_names()) {
    ASSERT_TRUE(pairings.contains(name)) << name;
    EXPECT_EQ(config_of(builder_of(name, 2)).ropes[0].pairing, pairings.at(name)) << name;
  }
}

TEST(Architectures, AreAllNamedWhenOneIsUnknown) {
  GgufBuilder builder = builder_of("mamba", 2);
  const BuiltGguf file(builder);
  const Status status = read_config(*file).status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("'mamba'"));
  EXPECT_THAT(status.message(), HasSubstr("llama, qwen2, qwen3"));
}

TEST(Gemma2, EveryOtherLayerHasTheWindow) {
  GgufBuilder builder = builder_of("gemma2", 5);
  builder.keys["gemma2.attention.sliding_window"] = 24u;
  const ModelConfig config = config_of(builder);
  EXPECT_THAT(windows(config), ElementsAre(24, 0, 24, 0, 24));
  EXPECT_EQ(config.activation, Activation::kGelu);
  EXPECT_THAT(config.embedding_scale, FloatEq(std::sqrt(32.0f)));
  EXPECT_EQ(config.attention_softcap, 50.0f);
  EXPECT_EQ(config.logit_softcap, 30.0f);
}

TEST(Gemma2, TheLargestScalesByTheWidth) {
  GgufBuilder builder = builder_of("gemma2", 46);
  builder.keys["gemma2.attention.key_length"] = 16u;  // embedding 32 over 4 heads would be 8
  EXPECT_THAT(config_of(builder).attention_scale, FloatEq(1 / std::sqrt(8.0f)));
  builder.keys["gemma2.block_count"] = 26u;
  EXPECT_THAT(config_of(builder).attention_scale, FloatEq(0.25f));
}

TEST(Gemma3, WindowedLayersHaveARopeOfTheirOwn) {
  GgufBuilder builder = builder_of("gemma3", 8);
  builder.keys["gemma3.attention.sliding_window"] = 512u;
  builder.keys["gemma3.rope.freq_base"] = 1e6f;
  builder.keys["gemma3.rope.scaling.factor"] = 8.0f;
  const ModelConfig config = config_of(builder);
  EXPECT_THAT(windows(config), ElementsAre(512, 512, 512, 512, 512, 0, 512, 512));
  EXPECT_THAT(ropes(config), ElementsAre(1, 1, 1, 1, 1, 0, 1, 1));
  EXPECT_DOUBLE_EQ(config.ropes[0].inverse_frequencies[1], std::pow(1e6, -0.25) / 8);
  EXPECT_DOUBLE_EQ(config.ropes[1].inverse_frequencies[1], std::pow(1e4, -0.25));
  EXPECT_EQ(config.attention_softcap, 0);
}

TEST(Gemma3, WithoutAWindowAllLayersAreAlike) {
  const ModelConfig config = config_of(builder_of("gemma3", 8));
  EXPECT_THAT(windows(config), Each(0));
  EXPECT_THAT(ropes(config), Each(0));
}

TEST(Windows, FollowAPeriodOrFlagsOfTheFile) {
  GgufBuilder builder = builder_of("gemma3", 4);
  builder.keys["gemma3.attention.sliding_window"] = 16u;
  builder.keys["gemma3.attention.sliding_window_pattern"] = 3u;
  EXPECT_THAT(windows(config_of(builder)), ElementsAre(16, 16, 0, 16));
  builder.keys["gemma3.attention.sliding_window_pattern"] = std::vector<int32_t>{0, 1, 1, 0};
  EXPECT_THAT(windows(config_of(builder)), ElementsAre(0, 16, 16, 0));
}

TEST(Windows, OfPhi3AndMistralAreOnAllLayers) {
  for (const std::string name : {"phi3", "llama", "mistral3"}) {
    GgufBuilder builder = builder_of(name, 3);
    EXPECT_THAT(windows(config_of(builder)), Each(0)) << name;
    builder.keys[name + ".attention.sliding_window"] = 16u;
    EXPECT_THAT(windows(config_of(builder)), Each(16)) << name;
  }
}

TEST(SmolLm3, EveryFourthLayerHasNoRope) {
  const ModelConfig config = config_of(builder_of("smollm3", 9));
  EXPECT_THAT(ropes(config), ElementsAre(0, 0, 0, 1, 0, 0, 0, 1, 0));
  EXPECT_EQ(config.ropes[1].n_dims, 0);
}

TEST(Mistral3, SharpensQueriesByTheOriginalContext) {
  GgufBuilder builder = builder_of("mistral3", 2);
  builder.keys["mistral3.attention.temperature_scale"] = 0.125f;
  builder.keys["mistral3.rope.scaling.original_context_length"] = 32u;
  const ModelConfig config = config_of(builder);
  EXPECT_EQ(config.temperature_factor, 0.125f);
  EXPECT_EQ(config.temperature_tokens, 32);
}

TEST(Yarn, KeepsFastPairsAndStretchesSlowOnes) {
  GgufBuilder builder = builder_of("llama", 2);
  builder.keys["llama.attention.key_length"] = 64u;
  builder.keys["llama.rope.scaling.type"] = "yarn";
  builder.keys["llama.rope.scaling.factor"] = 4.0f;
  builder.keys["llama.rope.scaling.original_context_length"] = 64u;
  const kernels::RopeParams rope = config_of(builder).ropes[0];
  const auto plain = [](int i) { return std::pow(1e4, -2.0 * i / 64); };
  EXPECT_DOUBLE_EQ(rope.inverse_frequencies[0], plain(0));        // ten turns in 64 tokens
  EXPECT_DOUBLE_EQ(rope.inverse_frequencies[31], plain(31) / 4);  // a hundredth of one
  for (int i = 1; i < 32; ++i) {
    EXPECT_LE(rope.inverse_frequencies[i], plain(i));
    EXPECT_GE(rope.inverse_frequencies[i], plain(i) / 4);
  }
  EXPECT_THAT(rope.magnitude, FloatEq(1 + 0.1f * std::log(4.0f)));
  builder.keys["llama.rope.scaling.yarn_log_multiplier"] = 1.0f;
  EXPECT_THAT(config_of(builder).ropes[0].magnitude, FloatEq(1));
}

TEST(LongRope, TakesTheLongDivisorsBeyondTheOriginalContext) {
  GgufBuilder builder = builder_of("phi3", 2);
  builder.keys["phi3.rope.scaling.original_context_length"] = 64u;
  builder.keys["phi3.rope.scaling.attn_factor"] = 1.25f;
  builder.tensors.push_back({"rope_factors_short.weight", {4}, {1, 1, 1, 1}});
  builder.tensors.push_back({"rope_factors_long.weight", {4}, {2, 4, 8, 16}});
  const kernels::RopeParams at_limit = config_of(builder, 64).ropes[0];
  const kernels::RopeParams beyond = config_of(builder, 65).ropes[0];
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(beyond.inverse_frequencies[i],
                     at_limit.inverse_frequencies[i] / std::pow(2.0, i + 1.0));
  }
  EXPECT_EQ(at_limit.magnitude, 1.25f);
  EXPECT_EQ(beyond.magnitude, 1.25f);
}

TEST(Qwen2, NeedsItsBiases) {
  const BuiltGguf file(builder_of("qwen2", 2));
  const Status status = Model::open(file.shared()).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("'blk.0.attn_q.bias' is missing"));
}

TEST(Qwen3Moe, NeedsExperts) {
  GgufBuilder builder = builder_of("qwen3moe", 2);
  builder.keys.erase("qwen3moe.expert_count");
  const BuiltGguf file(builder);
  EXPECT_THAT(read_config(*file).status().message(), HasSubstr("'qwen3moe.expert_count'"));
}

TEST(Phi3, ProjectionsAreRowsOfTheFusedTensors) {
  GgufBuilder builder = builder_of("phi3", 2);
  for (const std::string prefix : {"blk.0.", "blk.1."}) {
    for (const char* part : {"attn_q", "attn_k", "attn_v", "ffn_gate"}) {
      builder.remove_tensor(prefix + part + ".weight");
    }
    builder.tensors.push_back({prefix + "attn_qkv.weight", {32, 64}});
    builder.tensor(prefix + "ffn_up.weight").dims = {32, 128};
  }
  const BuiltGguf file(builder);
  const auto weights = read_weights(*file, config_of(builder));
  ASSERT_TRUE(weights.is_ok()) << weights.status().message();
  const LayerWeights& w = weights->layers[1];
  const std::byte* qkv = (*file).find_tensor("blk.1.attn_qkv.weight")->data;
  const std::byte* both = (*file).find_tensor("blk.1.ffn_up.weight")->data;
  constexpr int64_t kRowBytes = 32 * 4;
  EXPECT_EQ(w.q.data, qkv);
  EXPECT_EQ(w.k.data, qkv + 32 * kRowBytes);
  EXPECT_EQ(w.v.data, qkv + 48 * kRowBytes);
  EXPECT_EQ(w.experts.front().gate.data, both);
  EXPECT_EQ(w.experts.front().up.data, both + 64 * kRowBytes);
}

TEST(ContextTokens, LieWithinTheModels) {
  const BuiltGguf file(GgufBuilder::small_llama());
  EXPECT_EQ(read_config(*file)->context_tokens, 128);
  EXPECT_EQ(read_config(*file, 100)->context_tokens, 100);
  for (const int32_t bad : {-1, 129}) {
    EXPECT_EQ(read_config(*file, bad).status().code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace weft::model
