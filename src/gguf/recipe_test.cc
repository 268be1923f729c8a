#include "gguf/recipe.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/narrow.h"
#include "gguf/writer.h"

namespace weft::gguf {
namespace {

using ::testing::HasSubstr;

struct Model {
  std::string architecture = "llama";
  int layers = 8;
  int64_t row = 256;
  bool tied = true;
  uint32_t experts = 0;
};

/// Which type the recipe gives each tensor of a model in the order of names, not of layers.
std::map<std::string, std::string> plan(const Model& model, std::string_view recipe_name) {
  HeaderBuilder header;
  header.add_string("general.architecture", model.architecture);
  header.add<uint32_t>(model.architecture + ".block_count", narrow<uint32_t>(model.layers));
  if (model.experts > 0) {
    header.add<uint32_t>(model.architecture + ".expert_count", model.experts);
  }
  const auto matrix = [&](const std::string& name) {
    header.add_tensor(name, DType::kF32, std::array<int64_t, 2>{model.row, 2});
  };
  matrix("token_embd.weight");
  if (!model.tied) matrix("output.weight");
  for (int layer = model.layers - 1; layer >= 0; --layer) {
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down"}) {
      matrix(fmt::format("blk.{}.{}.weight", layer, name));
    }
    matrix(fmt::format("blk.{}.ffn_gate_inp.weight", layer));
    header.add_tensor(fmt::format("blk.{}.attn_norm.weight", layer), DType::kF32,
                      std::array<int64_t, 1>{model.row});
    header.add_tensor(fmt::format("blk.{}.attn_q.bias", layer), DType::kF32,
                      std::array<int64_t, 1>{model.row});
  }
  std::string bytes = header.bytes();
  for (const uint64_t size : header.tensor_bytes()) bytes.append((size + 31) / 32 * 32, 0);
  const auto file = File::parse(std::as_bytes(std::span(bytes)), "m.gguf");
  EXPECT_TRUE(file.is_ok()) << file.status().message();
  const auto recipe = find_recipe(recipe_name);
  EXPECT_TRUE(recipe.is_ok()) << recipe.status().message();
  const auto plans = plan_tensors(**file, *recipe);
  EXPECT_TRUE(plans.is_ok()) << plans.status().message();
  std::map<std::string, std::string> types;
  for (size_t i = 0; i < plans->size(); ++i) {
    types[std::string((*file)->tensors()[i].name)] = dtype_info((*plans)[i].dtype).name;
  }
  return types;
}

/// The types of one kind of tensor, layer by layer.
std::string by_layer(const std::map<std::string, std::string>& types, const char* kind) {
  std::string line;
  for (int layer = 0; types.contains(fmt::format("blk.{}.{}.weight", layer, kind)); ++layer) {
    line += (layer == 0 ? "" : " ") + types.at(fmt::format("blk.{}.{}.weight", layer, kind));
  }
  return line;
}

TEST(Recipe, MediumMixesGiveSomeLayersSixBits) {
  const auto types = plan({}, "q4_k_m");
  EXPECT_EQ(types.at("token_embd.weight"), "Q6_K");
  EXPECT_EQ(by_layer(types, "attn_q"), "Q4_K Q4_K Q4_K Q4_K Q4_K Q4_K Q4_K Q4_K");
  // The first and last eighths and every third between.
  EXPECT_EQ(by_layer(types, "attn_v"), "Q6_K Q4_K Q4_K Q6_K Q4_K Q4_K Q6_K Q6_K");
  EXPECT_EQ(by_layer(types, "ffn_down"), "Q6_K Q4_K Q4_K Q6_K Q4_K Q4_K Q6_K Q6_K");
  EXPECT_EQ(by_layer(plan({}, "Q5_K"), "ffn_down"), "Q6_K Q5_K Q5_K Q6_K Q5_K Q5_K Q6_K Q6_K");
  EXPECT_EQ(by_layer(plan({}, "Q5_K_S"), "ffn_down"), "Q5_K Q5_K Q5_K Q5_K Q5_K Q5_K Q5_K Q5_K");
}

TEST(Recipe, SmallMixGivesTheFirstLayersFiveBits) {
  const auto types = plan({}, "Q4_K_S");
  EXPECT_EQ(by_layer(types, "attn_v"), "Q5_K Q5_K Q5_K Q5_K Q4_K Q4_K Q4_K Q4_K");
  EXPECT_EQ(by_layer(types, "ffn_down"), "Q5_K Q4_K Q4_K Q4_K Q4_K Q4_K Q4_K Q4_K");
}

TEST(Recipe, TheOutputMatrixAndTiedEmbeddingsGetSixBitsOrMore) {
  for (const char* name : {"Q4_0", "Q5_1", "Q4_K_M", "Q6_K"}) {
    EXPECT_EQ(plan({}, name).at("token_embd.weight"), "Q6_K") << name;
    const auto untied = plan({.tied = false}, name);
    EXPECT_EQ(untied.at("output.weight"), "Q6_K") << name;
    EXPECT_EQ(untied.at("token_embd.weight"), std::string(name).substr(0, 4)) << name;
  }
  EXPECT_EQ(plan({}, "Q8_0").at("token_embd.weight"), "Q8_0");
  EXPECT_EQ(plan({}, "F16").at("token_embd.weight"), "F16");
}

TEST(Recipe, RowsThatAreNoWholeBlocksGetALargerType) {
  const auto types = plan({.row = 576}, "Q4_K_M");
  EXPECT_EQ(types.at("token_embd.weight"), "Q8_0");
  EXPECT_EQ(types.at("blk.0.attn_q.weight"), "Q5_0");
  EXPECT_EQ(types.at("blk.0.attn_v.weight"), "Q8_0");
  EXPECT_EQ(plan({.row = 576}, "Q5_K_M").at("blk.1.attn_q.weight"), "Q5_1");
  EXPECT_EQ(plan({.row = 576}, "Q6_K").at("blk.1.attn_q.weight"), "Q8_0");
  EXPECT_EQ(plan({.row = 24}, "Q4_0").at("blk.1.attn_q.weight"), "F16");
  EXPECT_EQ(plan({.row = 24}, "Q4_K_M").at("blk.1.attn_q.weight"), "F16");
}

TEST(Recipe, NormsBiasesAndRoutersKeepTheirType) {
  const auto types = plan({}, "Q8_0");
  EXPECT_EQ(types.at("blk.0.attn_norm.weight"), "F32");
  EXPECT_EQ(types.at("blk.0.attn_q.bias"), "F32");
  EXPECT_EQ(types.at("blk.0.ffn_gate_inp.weight"), "F32");
}

TEST(Recipe, EightExpertsAndEightyLayersGiveAttentionMoreBits) {
  const auto experts = plan({.experts = 8}, "Q4_K_M");
  EXPECT_EQ(experts.at("blk.4.attn_k.weight"), "Q8_0");
  EXPECT_EQ(experts.at("blk.4.attn_v.weight"), "Q8_0");
  EXPECT_EQ(experts.at("blk.4.attn_output.weight"), "Q5_K");
  const auto large = plan({.layers = 80}, "Q4_K_M");
  EXPECT_EQ(large.at("blk.10.attn_v.weight"), "Q5_K");
  EXPECT_EQ(large.at("blk.12.attn_v.weight"), "Q6_K");
}

TEST(Recipe, AnUnknownNameListsThoseThereAre) {
  const auto recipe = find_recipe("Q3\n_K");
  ASSERT_FALSE(recipe.is_ok());
  EXPECT_EQ(recipe.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(recipe.status().message(), HasSubstr("Q3\\x0a_K"));
  EXPECT_THAT(recipe.status().message(), HasSubstr("Q4_K_M"));
}

}  // namespace
}  // namespace weft::gguf
