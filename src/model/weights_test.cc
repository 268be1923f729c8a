#include "model/weights.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/log.h"
#include "model/model.h"
#include "support/gguf_builder.h"

namespace weft::model {
namespace {

using test::BrokenGguf;
using test::BuiltGguf;
using test::expect_one_line;
using test::GgufBuilder;

Result<Weights> weights_of(const BuiltGguf& file) {
  const auto config = read_config(*file);
  EXPECT_TRUE(config.is_ok()) << config.status().message();
  return read_weights(*file, *config);
}

class BadWeights : public ::testing::TestWithParam<BrokenGguf> {};

TEST_P(BadWeights, AreRefusedByOneLine) {
  GgufBuilder builder = GgufBuilder::small_llama();
  GetParam().break_it(builder);
  const BuiltGguf file(builder);
  expect_one_line(weights_of(file).status(), GetParam());
  expect_one_line(Model::open(file.shared()).status(), GetParam());
}

const BrokenGguf kBadWeights[] = {
    {"no_output_norm", [](GgufBuilder& b) { b.remove_tensor("output_norm.weight"); },
     "'output_norm.weight'", "missing"},
    {"no_attention_norm", [](GgufBuilder& b) { b.remove_tensor("blk.0.attn_norm.weight"); },
     "'blk.0.attn_norm.weight'", "missing"},
    {"no_q", [](GgufBuilder& b) { b.remove_tensor("blk.1.attn_q.weight"); },
     "'blk.1.attn_q.weight'", "missing"},
    {"no_down", [](GgufBuilder& b) { b.remove_tensor("blk.1.ffn_down.weight"); },
     "'blk.1.ffn_down.weight'", "missing"},
    {"fewer_layers_than_said", [](GgufBuilder& b) { b.keys["llama.block_count"] = 3u; }, "'blk.2.",
     "missing"},
    {"embedding_narrower",
     [](GgufBuilder& b) {
       b.tensor("token_embd.weight").dims = {16, 48};
     },
     "'token_embd.weight'", "[16, 48]"},
    {"q_transposed_sizes",
     [](GgufBuilder& b) {
       b.tensor("blk.0.attn_q.weight").dims = {32, 64};
     },
     "'blk.0.attn_q.weight'", "[32, 32]"},
    {"k_of_all_heads",
     [](GgufBuilder& b) {
       b.tensor("blk.0.attn_k.weight").dims = {32, 32};
     },
     "'blk.0.attn_k.weight'", "[32, 16]"},
    {"v_as_one_row", [](GgufBuilder& b) { b.tensor("blk.1.attn_v.weight").dims = {512}; },
     "'blk.1.attn_v.weight'", "[512]"},
    {"v_with_a_third_dimension",
     [](GgufBuilder& b) {
       b.tensor("blk.1.attn_v.weight").dims = {32, 16, 2};
     },
     "'blk.1.attn_v.weight'", "[32, 16, 2]"},
    {"up_transposed",
     [](GgufBuilder& b) {
       b.tensor("blk.0.ffn_up.weight").dims = {64, 32};
     },
     "'blk.0.ffn_up.weight'", "[32, 64]"},
    {"norm_too_short", [](GgufBuilder& b) { b.tensor("blk.1.ffn_norm.weight").dims = {16}; },
     "'blk.1.ffn_norm.weight'", "[32]"},
    {"norm_as_a_matrix",
     [](GgufBuilder& b) {
       b.tensor("output_norm.weight").dims = {32, 2};
     },
     "'output_norm.weight'", "[32, 2]"},
    {"output_of_another_vocabulary",
     [](GgufBuilder& b) {
       b.tensors.push_back({"output.weight", {32, 47}});
     },
     "'output.weight'", "[32, 48]"},
    {"bias",
     [](GgufBuilder& b) {
       b.tensors.push_back({"blk.0.ffn_up.bias", {64}});
     },
     "'blk.0.ffn_up.bias'", "does not know", StatusCode::kUnsupported},
    {"bias_too_short",
     [](GgufBuilder& b) {
       b.tensors.push_back({"blk.0.attn_k.bias", {8}});
     },
     "'blk.0.attn_k.bias'", "[16]"},
    {"norm_of_another_architecture",
     [](GgufBuilder& b) {
       b.tensors.push_back({"blk.1.attn_q_norm.weight", {8}});
     },
     "'blk.1.attn_q_norm.weight'", "does not know", StatusCode::kUnsupported},
    {"bias_named_in_two_lines",
     [](GgufBuilder& b) {
       b.tensors.push_back({"blk.0\nattn.bias", {32}});
     },
     "attn.bias'", "does not know", StatusCode::kUnsupported},
    {"wider_than_the_tensors", [](GgufBuilder& b) { b.keys["llama.feed_forward_length"] = 96u; },
     "'blk.0.ffn_gate.weight'", "[32, 96]"},
};

INSTANTIATE_TEST_SUITE_P(Table, BadWeights, ::testing::ValuesIn(kBadWeights),
                         [](const auto& bad) { return bad.param.name; });

TEST(WeightsTest, WithoutAnOutputTheEmbeddingServesAsIt) {
  const BuiltGguf file(GgufBuilder::small_llama());
  const auto weights = weights_of(file);
  ASSERT_TRUE(weights.is_ok()) << weights.status().message();
  EXPECT_EQ(weights->output.data, weights->token_embedding.data);
  EXPECT_EQ(weights->output.out_features, 48);
  EXPECT_EQ(weights->output.in_features, 32);
}

TEST(WeightsTest, ASeparateOutputIsTheFiles) {
  GgufBuilder builder = GgufBuilder::small_llama();
  builder.tensors.push_back({"output.weight", {32, 48}});
  const BuiltGguf file(builder);
  const auto weights = weights_of(file);
  ASSERT_TRUE(weights.is_ok()) << weights.status().message();
  EXPECT_EQ(weights->output.data, (*file).find_tensor("output.weight")->data);
  EXPECT_NE(weights->output.data, weights->token_embedding.data);
}

TEST(WeightsTest, EveryMatrixIsTheFilesBytes) {
  const BuiltGguf file(GgufBuilder::small_llama());
  const auto weights = weights_of(file);
  ASSERT_TRUE(weights.is_ok()) << weights.status().message();
  ASSERT_EQ(weights->layers.size(), 2u);
  const LayerWeights& w = weights->layers[1];
  const auto data = [&](const char* name) { return (*file).find_tensor(name)->data; };
  EXPECT_EQ(w.q.data, data("blk.1.attn_q.weight"));
  EXPECT_EQ(w.k.data, data("blk.1.attn_k.weight"));
  EXPECT_EQ(w.v.data, data("blk.1.attn_v.weight"));
  EXPECT_EQ(w.o.data, data("blk.1.attn_output.weight"));
  EXPECT_EQ(w.experts.front().gate.data, data("blk.1.ffn_gate.weight"));
  EXPECT_EQ(w.experts.front().up.data, data("blk.1.ffn_up.weight"));
  EXPECT_EQ(w.experts.front().down.data, data("blk.1.ffn_down.weight"));
}

TEST(WeightsTest, NormsAreWidenedFromHalves) {
  GgufBuilder builder = GgufBuilder::small_llama();
  GgufBuilder::Tensor& norm = builder.tensor("blk.0.attn_norm.weight");
  norm.dtype = DType::kF16;
  norm.values.assign(16, 0.0f);  // the bits of 32 halves, each 1.5
  const uint32_t two_halves = 0x3e003e00u;
  for (float& value : norm.values) std::memcpy(&value, &two_halves, sizeof(value));
  const BuiltGguf file(builder);
  const auto weights = weights_of(file);
  ASSERT_TRUE(weights.is_ok()) << weights.status().message();
  for (const float value : weights->layers[0].attention_norm.span()) EXPECT_EQ(value, 1.5f);
}

TEST(WeightsTest, ATensorThatNobodyUsesIsNoError) {
  set_log_level(LogLevel::kQuiet);
  GgufBuilder builder = GgufBuilder::small_llama();
  builder.tensors.push_back({"blk.0.attn_rot_embd.weight", {4}});
  const BuiltGguf file(builder);
  EXPECT_TRUE(weights_of(file).is_ok());
  set_log_level(LogLevel::kWarning);
}

}  // namespace
}  // namespace weft::model
