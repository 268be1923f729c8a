#include "model/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/gguf_builder.h"

namespace weft::model {
namespace {

using test::BrokenGguf;
using test::BuiltGguf;
using test::expect_one_line;
using test::GgufBuilder;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class BadConfig : public ::testing::TestWithParam<BrokenGguf> {};

TEST_P(BadConfig, IsRefusedByOneLine) {
  GgufBuilder builder = GgufBuilder::small_llama();
  GetParam().break_it(builder);
  const BuiltGguf file(builder);
  expect_one_line(read_config(*file).status(), GetParam());
}

const BrokenGguf kBadConfigs[] = {
    {"no_architecture", [](GgufBuilder& b) { b.keys.erase("general.architecture"); },
     "'general.architecture'", "", StatusCode::kNotFound},
    {"unknown_architecture", [](GgufBuilder& b) { b.keys["general.architecture"] = "mamba"; },
     "'general.architecture'", "mamba", StatusCode::kUnsupported},
    {"architecture_of_two_lines",
     [](GgufBuilder& b) { b.keys["general.architecture"] = "ma\nmba"; }, "'general.architecture'",
     "mba", StatusCode::kUnsupported},
    {"architecture_of_another_type", [](GgufBuilder& b) { b.keys["general.architecture"] = 7u; },
     "'general.architecture'", "string"},
    {"no_layer_count", [](GgufBuilder& b) { b.keys.erase("llama.block_count"); },
     "'llama.block_count'", "", StatusCode::kNotFound},
    {"no_layers", [](GgufBuilder& b) { b.keys["llama.block_count"] = 0u; }, "'llama.block_count'",
     "1 to 1024"},
    {"too_many_layers", [](GgufBuilder& b) { b.keys["llama.block_count"] = 0xffffffffu; },
     "'llama.block_count'", "4294967295"},
    {"layers_below_zero", [](GgufBuilder& b) { b.keys["llama.block_count"] = int32_t{-2}; },
     "'llama.block_count'", "-2"},
    {"layers_as_text", [](GgufBuilder& b) { b.keys["llama.block_count"] = "two"; },
     "'llama.block_count'", "string"},
    {"no_width", [](GgufBuilder& b) { b.keys["llama.embedding_length"] = 0u; },
     "'llama.embedding_length'", "is 0"},
    {"too_wide", [](GgufBuilder& b) { b.keys["llama.embedding_length"] = (1u << 20) + 1; },
     "'llama.embedding_length'", "1048577"},
    {"no_feed_forward", [](GgufBuilder& b) { b.keys["llama.feed_forward_length"] = 0u; },
     "'llama.feed_forward_length'", "is 0"},
    {"feed_forward_by_layer",
     [](GgufBuilder& b) {
       b.keys["llama.feed_forward_length"] = std::vector<int32_t>{64, 64};
     },
     "'llama.feed_forward_length'", "array"},
    {"no_heads", [](GgufBuilder& b) { b.keys["llama.attention.head_count"] = 0u; },
     "'llama.attention.head_count'", "is 0"},
    {"too_many_heads", [](GgufBuilder& b) { b.keys["llama.attention.head_count"] = 1u << 20; },
     "'llama.attention.head_count'", "1048576"},
    {"no_kv_heads", [](GgufBuilder& b) { b.keys["llama.attention.head_count_kv"] = 0u; },
     "'llama.attention.head_count_kv'", "is 0"},
    {"heads_not_shared_evenly",
     [](GgufBuilder& b) { b.keys["llama.attention.head_count_kv"] = 3u; },
     "'llama.attention.head_count_kv'", "3"},
    {"more_kv_heads_than_heads",
     [](GgufBuilder& b) { b.keys["llama.attention.head_count_kv"] = 8u; },
     "'llama.attention.head_count_kv'", "8"},
    {"kv_heads_by_layer",
     [](GgufBuilder& b) {
       b.keys["llama.attention.head_count_kv"] = std::vector<int32_t>{2, 1};
     },
     "'llama.attention.head_count_kv'", "array"},
    {"odd_head", [](GgufBuilder& b) { b.keys["llama.attention.key_length"] = 9u; },
     "'llama.attention.key_length'", "9", StatusCode::kUnsupported},
    {"head_not_a_multiple_of_8", [](GgufBuilder& b) { b.keys["llama.attention.key_length"] = 12u; },
     "'llama.attention.key_length'", "12", StatusCode::kUnsupported},
    {"head_too_large", [](GgufBuilder& b) { b.keys["llama.attention.key_length"] = 264u; },
     "'llama.attention.key_length'", "1 to 256"},
    {"values_of_another_size", [](GgufBuilder& b) { b.keys["llama.attention.value_length"] = 16u; },
     "'llama.attention.value_length'", "16", StatusCode::kUnsupported},
    {"more_heads_than_width", [](GgufBuilder& b) { b.keys["llama.attention.head_count"] = 64u; },
     "'llama.attention.key_length'", "is 0"},
    {"no_context", [](GgufBuilder& b) { b.keys["llama.context_length"] = 0u; },
     "'llama.context_length'", "is 0"},
    {"eps_zero", [](GgufBuilder& b) { b.keys["llama.attention.layer_norm_rms_epsilon"] = 0.0f; },
     "'llama.attention.layer_norm_rms_epsilon'", "is 0"},
    {"eps_negative",
     [](GgufBuilder& b) { b.keys["llama.attention.layer_norm_rms_epsilon"] = -1e-5f; },
     "'llama.attention.layer_norm_rms_epsilon'", "-"},
    {"eps_nan", [](GgufBuilder& b) { b.keys["llama.attention.layer_norm_rms_epsilon"] = kNan; },
     "'llama.attention.layer_norm_rms_epsilon'", "nan"},
    {"base_infinite", [](GgufBuilder& b) { b.keys["llama.rope.freq_base"] = kInf; },
     "'llama.rope.freq_base'", "inf"},
    {"base_negative", [](GgufBuilder& b) { b.keys["llama.rope.freq_base"] = -1.0f; },
     "'llama.rope.freq_base'", "-1"},
    {"rope_odd", [](GgufBuilder& b) { b.keys["llama.rope.dimension_count"] = 5u; },
     "'llama.rope.dimension_count'", "even"},
    {"rope_none", [](GgufBuilder& b) { b.keys["llama.rope.dimension_count"] = 0u; },
     "'llama.rope.dimension_count'", "2 to 8"},
    {"rope_beyond_the_head", [](GgufBuilder& b) { b.keys["llama.rope.dimension_count"] = 10u; },
     "'llama.rope.dimension_count'", "2 to 8"},
    {"rope_scaling_unknown", [](GgufBuilder& b) { b.keys["llama.rope.scaling.type"] = "ntk"; },
     "'llama.rope.scaling.type'", "ntk", StatusCode::kUnsupported},
    {"rope_scaling_of_two_lines",
     [](GgufBuilder& b) { b.keys["llama.rope.scaling.type"] = "ya\nrn"; },
     "'llama.rope.scaling.type'", "rn", StatusCode::kUnsupported},
    {"rope_scaling_zero", [](GgufBuilder& b) { b.keys["llama.rope.scaling.factor"] = 0.0f; },
     "'llama.rope.scaling.factor'", "is 0"},
    {"rope_scaling_nan", [](GgufBuilder& b) { b.keys["llama.rope.scale_linear"] = kNan; },
     "'llama.rope.scale_linear'", "nan"},
    {"rope_freqs_too_short",
     [](GgufBuilder& b) {
       b.tensors.push_back({"rope_freqs.weight", {3}, {1, 1, 1}});
     },
     "'rope_freqs.weight'", "4"},
    {"rope_freqs_zero",
     [](GgufBuilder& b) {
       b.tensors.push_back({"rope_freqs.weight", {4}, {1, 0, 1, 1}});
     },
     "'rope_freqs.weight'", "element 1"},
    {"rope_freqs_nan",
     [](GgufBuilder& b) {
       b.tensors.push_back({"rope_freqs.weight", {4}, {1, 1, 1, kNan}});
     },
     "'rope_freqs.weight'", "element 3"},
    {"rope_freqs_of_another_type",
     [](GgufBuilder& b) {
       b.tensors.push_back({"rope_freqs.weight", {8}, {}, DType::kF16});
     },
     "'rope_freqs.weight'", "F32"},
    {"experts_of_which_none_is_used",
     [](GgufBuilder& b) {
       b.keys["llama.expert_count"] = 8u;
       b.keys["llama.expert_used_count"] = 0u;
     },
     "'llama.expert_used_count'", "1 to 8"},
    {"more_experts_used_than_there_are",
     [](GgufBuilder& b) {
       b.keys["llama.expert_count"] = 8u;
       b.keys["llama.expert_used_count"] = 9u;
     },
     "'llama.expert_used_count'", "1 to 8"},
    {"experts_without_number_used", [](GgufBuilder& b) { b.keys["llama.expert_count"] = 8u; },
     "'llama.expert_used_count'", "missing", StatusCode::kNotFound},
    {"too_many_experts", [](GgufBuilder& b) { b.keys["llama.expert_count"] = 5000u; },
     "'llama.expert_count'", "4096"},
    {"window_beyond_bounds",
     [](GgufBuilder& b) { b.keys["llama.attention.sliding_window"] = 0xffffffffu; },
     "'llama.attention.sliding_window'", "4294967295"},
    {"window_flags_for_other_layers",
     [](GgufBuilder& b) {
       b.keys["llama.attention.sliding_window"] = 16u;
       b.keys["llama.attention.sliding_window_pattern"] = std::vector<int32_t>{1, 0, 1};
     },
     "'llama.attention.sliding_window_pattern'", "2 layers"},
    {"yarn_without_a_base",
     [](GgufBuilder& b) {
       b.keys["llama.rope.scaling.type"] = "yarn";
       b.keys["llama.rope.freq_base"] = 0.5f;
     },
     "'llama.rope.freq_base'", "0.5"},
    {"yarn_beta_nan",
     [](GgufBuilder& b) {
       b.keys["llama.rope.scaling.type"] = "yarn";
       b.keys["llama.rope.scaling.yarn_beta_fast"] = kNan;
     },
     "'llama.rope.scaling.yarn_beta_fast'", "nan"},
    {"yarn_multiplier_negative",
     [](GgufBuilder& b) {
       b.keys["llama.rope.scaling.type"] = "yarn";
       b.keys["llama.rope.scaling.yarn_log_multiplier"] = -1.0f;
     },
     "'llama.rope.scaling.yarn_log_multiplier'", "-1"},
    {"original_context_zero",
     [](GgufBuilder& b) {
       b.keys["llama.rope.scaling.type"] = "longrope";
       b.keys["llama.rope.scaling.original_context_length"] = 0u;
     },
     "'llama.rope.scaling.original_context_length'", "is 0"},
    {"longrope_without_its_tensor",
     [](GgufBuilder& b) { b.keys["llama.rope.scaling.type"] = "longrope"; },
     "'rope_factors_short.weight'", "missing"},
    {"longrope_without_the_long_one",
     [](GgufBuilder& b) {
       b.keys["llama.rope.scaling.original_context_length"] = 64u;
       b.tensors.push_back({"rope_factors_short.weight", {4}, {1, 1, 1, 1}});
     },
     "'rope_factors_long.weight'", "missing"},
    {"longrope_factor_negative",
     [](GgufBuilder& b) {
       b.tensors.push_back({"rope_factors_short.weight", {4}, {1, 1, -2, 1}});
     },
     "'rope_factors_short.weight'", "element 2"},
    {"magnitude_infinite", [](GgufBuilder& b) { b.keys["llama.rope.scaling.attn_factor"] = kInf; },
     "'llama.rope.scaling.attn_factor'", "inf"},
    {"no_embedding", [](GgufBuilder& b) { b.remove_tensor("token_embd.weight"); },
     "'token_embd.weight'", "missing"},
    {"embedding_of_three_dimensions",
     [](GgufBuilder& b) {
       b.tensor("token_embd.weight").dims = {32, 24, 2};
     },
     "'token_embd.weight'", ""},
    {"embedding_of_one_dimension",
     [](GgufBuilder& b) { b.tensor("token_embd.weight").dims = {32}; }, "'token_embd.weight'", ""},
};

INSTANTIATE_TEST_SUITE_P(Table, BadConfig, ::testing::ValuesIn(kBadConfigs),
                         [](const auto& bad) { return bad.param.name; });

ModelConfig config_of(const GgufBuilder& builder) {
  const BuiltGguf file(builder);
  auto config = read_config(*file);
  EXPECT_TRUE(config.is_ok()) << config.status().message();
  return *config;
}

TEST(Config, ReadsWhatTheFileSays) {
  const ModelConfig config = config_of(GgufBuilder::small_llama());
  EXPECT_EQ(config.architecture, "llama");
  EXPECT_EQ(config.name, GgufBuilder::kName);
  EXPECT_EQ(config.n_layers, 2);
  EXPECT_EQ(config.n_embd, 32);
  EXPECT_EQ(config.n_ff, 64);
  EXPECT_EQ(config.n_heads, 4);
  EXPECT_EQ(config.n_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.vocab_size, 48);
  EXPECT_EQ(config.context_length, 128);
  EXPECT_EQ(config.rms_eps, 1e-5f);
  EXPECT_EQ(config.ropes[0].pairing, kernels::RopePairing::kNorm);
  EXPECT_EQ(kernels::kv_token_bytes(config.kv_layout()), 16 * 2 * 2);
}

TEST(Config, AHeadMayBeAsLargeAsTheFileSays) {
  GgufBuilder builder = GgufBuilder::small_llama();
  builder.keys["llama.attention.key_length"] = 16u;
  builder.keys["llama.attention.value_length"] = 16u;
  const ModelConfig config = config_of(builder);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.q_width(), 64);
  EXPECT_EQ(config.ropes[0].n_dims, 16);
}

TEST(Config, WithoutKvHeadsEveryHeadHasItsOwn) {
  GgufBuilder builder = GgufBuilder::small_llama();
  builder.keys.erase("llama.attention.head_count_kv");
  EXPECT_EQ(config_of(builder).n_kv_heads, 4);
}

TEST(Config, PlainFrequenciesArePowersOfTheBase) {
  const ModelConfig config = config_of(GgufBuilder::small_llama());
  ASSERT_EQ(config.ropes[0].inverse_frequencies.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(config.ropes[0].inverse_frequencies[i],
                     std::pow(10.0, -1.0 * i));  // 10000^(-2i/8)
  }
}

TEST(Config, APartOfTheHeadHasFrequenciesOfItsOwnWidth) {
  GgufBuilder builder = GgufBuilder::small_llama();
  builder.keys["llama.rope.dimension_count"] = 4u;
  const ModelConfig config = config_of(builder);
  EXPECT_EQ(config.ropes[0].n_dims, 4);
  ASSERT_EQ(config.ropes[0].inverse_frequencies.size(), 2u);
  EXPECT_DOUBLE_EQ(config.ropes[0].inverse_frequencies[1], 0.01);  // 10000^(-2/4)
}

/// The same frequencies, each divided by its divisor.
void expect_divided(const GgufBuilder& builder, const std::vector<double>& divisors) {
  const std::vector<double> plain =
      config_of(GgufBuilder::small_llama()).ropes[0].inverse_frequencies;
  const std::vector<double> scaled = config_of(builder).ropes[0].inverse_frequencies;
  ASSERT_EQ(scaled.size(), plain.size());
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_DOUBLE_EQ(scaled[i], plain[i] / divisors[i]);
}

TEST(Config, LinearScalingDividesEveryFrequency) {
  GgufBuilder builder = GgufBuilder::small_llama();
  builder.keys["llama.rope.scaling.type"] = "linear";
  builder.keys["llama.rope.scaling.factor"] = 4.0f;
  expect_divided(builder, {4, 4, 4, 4});
}

TEST(Config, LinearScalingUnderItsOldKey) {
  GgufBuilder builder = GgufBuilder::small_llama();
  builder.keys["llama.rope.scale_linear"] = 2.0f;
  expect_divided(builder, {2, 2, 2, 2});
}

TEST(Config, ScalingNoneIgnoresTheFactor) {
  GgufBuilder builder = GgufBuilder::small_llama();
  builder.keys["llama.rope.scaling.type"] = "none";
  builder.keys["llama.rope.scaling.factor"] = 4.0f;
  expect_divided(builder, {1, 1, 1, 1});
}

TEST(Config, RopeFreqsDivideEachFrequency) {
  GgufBuilder builder = GgufBuilder::small_llama();
  builder.tensors.push_back({"rope_freqs.weight", {4}, {1, 2, 8, 32}});
  expect_divided(builder, {1, 2, 8, 32});
}

}  // namespace
}  // namespace weft::model
