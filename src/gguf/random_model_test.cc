#include "gguf/random_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "gguf/gguf.h"
#include "support/files.h"

namespace weft::gguf {
namespace {

using ::testing::HasSubstr;

class RandomModelTest : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const DirEntry& left : *posix_env().list(folder_.path())) {
      EXPECT_EQ(folder_ / left.name, path_);
    }
  }

  std::shared_ptr<const File> make(const RandomModelOptions& options) {
    const Status written = write_random_model(posix_env(), path_, options);
    EXPECT_TRUE(written.is_ok()) << written.message();
    auto file = File::open(posix_env(), path_);
    EXPECT_TRUE(file.is_ok()) << file.status().message();
    return *file;
  }

  test::TempDir folder_;
  std::string path_ = folder_ / "model.gguf";
};

TEST_F(RandomModelTest, HasTheShapeAskedFor) {
  RandomModelOptions options;
  options.head_dim = 20;
  options.tied = false;
  options.rope_freqs.assign(10, 2.0f);
  options.rope_linear_factor = 4.0f;
  const auto file = make(options);
  EXPECT_EQ(*file->get_string("general.architecture"), "llama");
  EXPECT_EQ(*file->get_uint("llama.attention.key_length"), 20u);
  EXPECT_EQ(*file->get_string("llama.rope.scaling.type"), "linear");
  EXPECT_EQ(*file->get_float("llama.rope.scaling.factor"), 4.0f);
  EXPECT_EQ(file->tensors().size(), 4u + 2u * 9u);
  const auto expect_dims = [&](const char* name, int64_t row, int64_t rows) {
    const TensorInfo* tensor = file->find_tensor(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(tensor->dims[0], row) << name;
    EXPECT_EQ(tensor->n_rows(), rows) << name;
  };
  expect_dims("token_embd.weight", 64, 512);
  expect_dims("output.weight", 64, 512);
  expect_dims("output_norm.weight", 64, 1);
  expect_dims("rope_freqs.weight", 10, 1);
  expect_dims("blk.1.attn_q.weight", 64, 80);
  expect_dims("blk.1.attn_k.weight", 64, 40);
  expect_dims("blk.1.attn_output.weight", 80, 64);
  expect_dims("blk.1.ffn_down.weight", 128, 64);
}

TEST_F(RandomModelTest, HasTheTensorsOfItsArchitecture) {
  const auto names = [&](const RandomModelOptions& options) {
    const auto file = make(options);
    std::string out;
    for (const TensorInfo& tensor : file->tensors()) {
      if (tensor.name.starts_with("blk.0.")) {
        out += tensor.name.substr(6, tensor.name.rfind('.') - 6);
        out += tensor.name.ends_with(".bias") ? ".b " : " ";
      }
    }
    return out;
  };
  const std::string attention = "attn_norm attn_q attn_k attn_v ";
  const std::string feed_forward = "ffn_norm ffn_gate ffn_up ffn_down ";
  const std::string experts = "ffn_norm ffn_gate_inp ffn_gate_exps ffn_up_exps ffn_down_exps ";
  for (const char* plain : {"llama", "smollm3", "mistral3"}) {
    EXPECT_EQ(names({.architecture = plain}), attention + "attn_output " + feed_forward) << plain;
  }
  EXPECT_EQ(names({.n_experts = 4, .n_experts_used = 2}), attention + "attn_output " + experts);
  EXPECT_EQ(names({.biases = true}),
            attention + "attn_q.b attn_k.b attn_v.b attn_output attn_output.b " + feed_forward);
  EXPECT_EQ(names({.architecture = "qwen2"}),
            attention + "attn_q.b attn_k.b attn_v.b attn_output " + feed_forward);
  EXPECT_EQ(names({.architecture = "qwen3"}),
            attention + "attn_q_norm attn_k_norm attn_output " + feed_forward);
  EXPECT_EQ(names({.architecture = "qwen3moe", .n_experts = 4, .n_experts_used = 2}),
            attention + "attn_q_norm attn_k_norm attn_output " + experts);
  EXPECT_EQ(names({.architecture = "gemma2"}),
            attention + "attn_output post_attention_norm " + feed_forward + "post_ffw_norm ");
  EXPECT_EQ(names({.architecture = "gemma3"}),
            attention + "attn_q_norm attn_k_norm attn_output post_attention_norm " + feed_forward +
                "post_ffw_norm ");
  EXPECT_EQ(names({.architecture = "phi3"}),
            "attn_norm attn_qkv attn_output ffn_norm ffn_up ffn_down ");
}

TEST_F(RandomModelTest, ExpertsAreStackedAndTheirRouterIsF32) {
  const auto file = make({.n_experts = 6, .n_experts_used = 2, .recipe = "Q8_0"});
  const TensorInfo& down = *file->find_tensor("blk.1.ffn_down_exps.weight");
  EXPECT_EQ(down.dims[0], 128);
  EXPECT_EQ(down.dims[1], 64);
  EXPECT_EQ(down.dims[2], 6);
  EXPECT_EQ(down.dtype, DType::kQ8_0);
  const TensorInfo& router = *file->find_tensor("blk.1.ffn_gate_inp.weight");
  EXPECT_EQ(router.n_rows(), 6);
  EXPECT_EQ(router.dtype, DType::kF32);
}

TEST_F(RandomModelTest, WritesTheKeysAskedForAndNoOthers) {
  auto file = make({.architecture = "mistral3",
                    .rope_yarn_factor = 4.0f,
                    .yarn_log_multiplier = 1.0f,
                    .original_context_length = 64,
                    .temperature_scale = 0.5f});
  EXPECT_EQ(*file->get_string("mistral3.rope.scaling.type"), "yarn");
  EXPECT_EQ(*file->get_float("mistral3.rope.scaling.factor"), 4.0f);
  EXPECT_EQ(*file->get_float("mistral3.rope.scaling.yarn_log_multiplier"), 1.0f);
  EXPECT_EQ(*file->get_uint("mistral3.rope.scaling.original_context_length"), 64u);
  EXPECT_EQ(*file->get_float("mistral3.attention.temperature_scale"), 0.5f);
  EXPECT_FALSE(file->get_float("mistral3.rope.scaling.yarn_beta_fast").is_ok());
  EXPECT_FALSE(file->get_uint("mistral3.attention.sliding_window").is_ok());
  file =
      make({.architecture = "gemma3", .rope_base_swa = 500.0f, .window = 24, .window_period = 2});
  EXPECT_EQ(*file->get_float("gemma3.rope.freq_base_swa"), 500.0f);
  EXPECT_EQ(*file->get_uint("gemma3.attention.sliding_window"), 24u);
  EXPECT_EQ(*file->get_uint("gemma3.attention.sliding_window_pattern"), 2u);
  EXPECT_FALSE(file->get_string("gemma3.rope.scaling.type").is_ok());
}

TEST_F(RandomModelTest, TokenizerArraysFitAndTokensAreDistinct) {
  const auto file = make({});
  const auto tokens = file->get_string_array("tokenizer.ggml.tokens");
  ASSERT_TRUE(tokens.is_ok());
  EXPECT_EQ(tokens->size(), 512u);
  EXPECT_EQ(file->get_int_array("tokenizer.ggml.token_type")->size(), 512u);
  const std::set<std::string_view> distinct(tokens->begin(), tokens->end());
  EXPECT_EQ(distinct.size(), 512u);
  const auto merges = file->get_string_array("tokenizer.ggml.merges");
  ASSERT_TRUE(merges.is_ok());
  for (const std::string_view merge : *merges) {
    const size_t gap = merge.find(' ');
    std::string joined(merge.substr(0, gap));
    EXPECT_TRUE(distinct.contains(joined)) << joined;
    EXPECT_TRUE(distinct.contains(merge.substr(gap + 1))) << merge;
    joined += merge.substr(gap + 1);
    EXPECT_TRUE(distinct.contains(joined)) << joined;
  }
}

TEST_F(RandomModelTest, WeightsAreNormalWithVarianceOneOverFanIn) {
  RandomModelOptions options;
  options.vocab = 8192;  // more elements than the pool holds
  const auto file = make(options);
  const TensorInfo& tensor = *file->find_tensor("token_embd.weight");
  double sum = 0.0, squares = 0.0;
  for (int64_t i = 0; i < tensor.n_elements(); ++i) {
    float value;
    std::memcpy(&value, tensor.data + 4 * i, 4);
    sum += value;
    squares += double{value} * value;
  }
  const double n = tensor.n_elements();
  // Five standard errors over the pool's 131072 distinct numbers, each drawn up to some ten times.
  EXPECT_NEAR(sum / n * 8.0, 0.0, 5.0 * 2.0 / std::sqrt(131072.0));
  EXPECT_NEAR(squares / n * 64.0, 1.0, 5.0 * 2.0 * std::sqrt(2.0 / 131072.0));
}

TEST_F(RandomModelTest, SeedsDecideTheBytes) {
  RandomModelOptions options;
  const auto bytes_of = [&](uint64_t seed) {
    options.seed = seed;
    const auto file = make(options);
    const TensorInfo& tensor = *file->find_tensor("blk.0.ffn_up.weight");
    return std::vector<std::byte>(tensor.data, tensor.data + tensor.size_bytes);
  };
  EXPECT_EQ(bytes_of(1), bytes_of(1));
  EXPECT_NE(bytes_of(1), bytes_of(2));
}

TEST_F(RandomModelTest, RecipesMixTypesAsLlamaCppDoes) {
  RandomModelOptions options;
  options.n_layers = 8;
  options.n_embd = 256;
  options.n_ff = 512;
  options.n_heads = 8;
  options.n_kv_heads = 4;
  options.head_dim = 32;
  const auto types = [&](const char* recipe, std::initializer_list<const char*> names) {
    options.recipe = recipe;
    const auto file = make(options);
    std::string out;
    for (const char* name : names) {
      const TensorInfo* tensor = file->find_tensor(std::string(name) + ".weight");
      out += tensor == nullptr ? "- " : std::string(dtype_info(tensor->dtype).name) + " ";
    }
    return out;
  };
  const auto kTensors = {"token_embd", "blk.0.attn_q", "blk.0.attn_v", "blk.1.ffn_down",
                         "blk.3.ffn_down"};
  EXPECT_EQ(types("BF16", kTensors), "BF16 BF16 BF16 BF16 BF16 ");
  EXPECT_EQ(types("Q8_0", kTensors), "Q8_0 Q8_0 Q8_0 Q8_0 Q8_0 ");
  EXPECT_EQ(types("Q4_0", kTensors), "Q6_K Q4_0 Q4_0 Q4_0 Q4_0 ");
  EXPECT_EQ(types("Q4_K_M", kTensors), "Q6_K Q4_K Q6_K Q4_K Q6_K ");
  EXPECT_EQ(types("Q5_K_M", kTensors), "Q6_K Q5_K Q6_K Q5_K Q6_K ");
  options.n_embd = 320;  // not a multiple of 256
  EXPECT_EQ(types("Q4_K_M", kTensors), "Q8_0 Q5_0 Q8_0 Q4_K Q6_K ");
  EXPECT_EQ(types("Q4_0", kTensors), "Q8_0 Q4_0 Q4_0 Q4_0 Q4_0 ");
  options.n_embd = 100;  // not a multiple of 32
  EXPECT_EQ(types("Q4_0", kTensors), "F16 F16 F16 Q4_0 Q4_0 ");
}

TEST_F(RandomModelTest, RefusesShapesThatMakeNoModel) {
  const auto expect_refused = [&](const RandomModelOptions& options, const char* what) {
    const Status status = write_random_model(posix_env(), path_, options);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(what));
    EXPECT_FALSE(posix_env().exists(path_));
  };
  RandomModelOptions options;
  expect_refused({.n_layers = 0}, "n_layers is 0");
  expect_refused({.n_heads = 3}, "n_heads 3");
  expect_refused({.head_dim = 15}, "head_dim 15");
  expect_refused({.vocab = 100}, "vocab is 100");
  options.rope_freqs.assign(3, 1.0f);
  expect_refused(options, "rope_freqs has 3");
  expect_refused({.recipe = "Q9"}, "no recipe 'Q9'");
  expect_refused({.architecture = "gpt2"}, "no architecture 'gpt2'; there are llama qwen2");
  expect_refused({.architecture = "phi3", .head_dim = 32}, "phi3 needs n_embd 64");
  expect_refused({.architecture = "qwen3moe"}, "0 experts");
  expect_refused({.architecture = "qwen2", .n_experts = 4, .n_experts_used = 2}, "4 experts");
  expect_refused({.n_experts = 4, .n_experts_used = 5}, "n_experts_used is 5");
  expect_refused({.rope_dims = 8}, "only phi3");
  expect_refused({.architecture = "phi3", .rope_factors_long = std::vector<float>(8, 1.0f)},
                 "go together");
  expect_refused({.rope_linear_factor = 2.0f, .rope_yarn_factor = 2.0f}, "more than one");
}

}  // namespace
}  // namespace weft::gguf
