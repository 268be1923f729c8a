// The models that the identities are tried on: random ones of several architectures, shapes and
// types, stories260K, SmolLM2 and Gemma 3.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "gguf/random_model.h"
#include "support/architecture_cases.h"
#include "support/test_model.h"

namespace weft::test {

struct IdentityCase {
  friend void PrintTo(const IdentityCase& c, std::ostream* out) { *out << c.name; }
  std::string name;
  gguf::RandomModelOptions random;  // unless `file` is set
  std::string file;                 // under ../shared, or the models folder
};

inline std::vector<IdentityCase> identity_cases() {
  gguf::RandomModelOptions gqa{.n_layers = 4,
                               .n_embd = 96,
                               .n_ff = 160,
                               .n_heads = 6,
                               .n_kv_heads = 2,
                               .head_dim = 16,
                               .recipe = "F32"};
  gguf::RandomModelOptions wide{.n_layers = 3,
                                .n_embd = 64,
                                .n_ff = 128,
                                .n_heads = 4,
                                .n_kv_heads = 4,
                                .head_dim = 32,
                                .tied = false,
                                .recipe = "Q8_0"};
  gguf::RandomModelOptions llama3{.n_layers = 6,
                                  .n_embd = 256,
                                  .n_ff = 512,
                                  .n_heads = 8,
                                  .n_kv_heads = 1,
                                  .head_dim = 32,
                                  .rope_base = 500000.0f,
                                  .rope_freqs = std::vector<float>(16, 1.0f),
                                  .recipe = "Q4_K_M"};
  for (size_t i = 8; i < llama3.rope_freqs.size(); ++i) llama3.rope_freqs[i] = 8.0f;
  gguf::RandomModelOptions linear{.n_layers = 3,
                                  .n_embd = 64,
                                  .n_ff = 96,
                                  .n_heads = 4,
                                  .n_kv_heads = 2,
                                  .head_dim = 16,
                                  .rope_linear_factor = 4.0f,
                                  .recipe = "BF16"};
  std::vector<IdentityCase> cases = {
      {"gqa_f32", gqa, ""},          {"wide_q8_0", wide, ""},        {"llama3_q4_k_m", llama3, ""},
      {"linear_bf16", linear, ""},   {"stories260k", {}, "stories"}, {"smollm2", {}, "smollm2"},
      {"gemma3_270m", {}, "gemma3"},
  };
  // Windows of 24 positions, shorter than the chunks; several RoPEs; experts. Q8_0 so that decode
  // and prefill take different kernels.
  for (const ArchitectureCase& c : all_architecture_cases()) {
    for (const char* name :
         {"gemma2_q8_0", "gemma3_q8_0", "gemma3_base_swa", "phi3_window_key", "phi3_longrope_long",
          "smollm3_q8_0", "mistral3_temperature", "mixtral_q8_0", "qwen3moe", "qwen2"}) {
      if (c.name == name) cases.push_back({name, c.model, ""});
    }
  }
  return cases;
}

/// The model's file is path_.
class IdentityTest : public ::testing::TestWithParam<IdentityCase> {
 protected:
  void SetUp() override {
    const IdentityCase& c = GetParam();
    if (c.file == "stories") {
      path_ = shared_file("models/stories260K/stories260Ktok512.gguf");
    } else if (c.file == "smollm2") {
      path_ = model_file(kSmolLm2File);
    } else if (c.file == "gemma3") {
      path_ = model_file(kGemma3File);
    } else {
      path_ = dir_.path() + "/random.gguf";
      const Status written = gguf::write_random_model(posix_env(), path_, c.random);
      ASSERT_TRUE(written.is_ok()) << written.message();
    }
    WEFT_SKIP_UNLESS(!path_.empty(), c.file);
  }

  TempDir dir_;
  std::string path_;
};

}  // namespace weft::test
