#include "support/architecture_cases.h"

#include <utility>

namespace weft::test {
namespace {

/// Divisors as llama-3's are: 1 for fast pairs, `factor` for slow ones, smooth between.
std::vector<float> llama3_divisors(size_t n_pairs, float factor) {
  std::vector<float> divisors(n_pairs, 1.0f);
  for (size_t i = n_pairs / 4; i < n_pairs; ++i) {
    const float way = static_cast<float>(i - n_pairs / 4) / (static_cast<float>(n_pairs) / 4);
    divisors[i] = way < 1.0f ? 1.0f + way * (factor - 1.0f) : factor;
  }
  return divisors;
}

/// Divisors that rise evenly from `first`, as longrope's do.
std::vector<float> rising_divisors(size_t n_pairs, float first, float step) {
  std::vector<float> divisors(n_pairs);
  for (size_t i = 0; i < n_pairs; ++i) divisors[i] = first + step * static_cast<float>(i);
  return divisors;
}

using Options = gguf::RandomModelOptions;
using Cases = std::vector<ArchitectureCase>;

/// Options that all cases share: small, logits a few wide, attention that looks at some tokens
/// much more than at others.
Options shape(std::string architecture, int64_t n_layers, uint64_t seed) {
  return {.architecture = std::move(architecture),
          .n_layers = n_layers,
          .n_embd = 64,
          .n_ff = 128,
          .n_heads = 4,
          .n_kv_heads = 2,
          .head_dim = 16,
          .vocab = 288,
          .logit_spread = 3.0f,
          .score_spread = 1.5f,
          .seed = seed};
}

Options with(Options options, auto change) {
  change(options);
  return options;
}

Options mixtral(uint64_t seed) {
  return with(shape("llama", 3, seed), [](Options& o) { o.n_experts = 8, o.n_experts_used = 2; });
}

void add_llama(Cases& cases) {
  cases.push_back({"llama", shape("llama", 3, 30)});
  cases.push_back({"llama_untied_wide_heads", with(shape("llama", 3, 13), [](Options& o) {
                     o.head_dim = 32, o.tied = false;
                   })});
  cases.push_back({"llama_rope_freqs", with(shape("llama", 3, 19), [](Options& o) {
                     o.rope_base = 500000.0f, o.rope_freqs = llama3_divisors(8, 8.0f);
                   })});
  cases.push_back({"llama_linear",
                   with(shape("llama", 3, 27), [](Options& o) { o.rope_linear_factor = 4.0f; })});
  cases.push_back({"llama_yarn", with(shape("llama", 3, 4), [](Options& o) {
                     o.head_dim = 32, o.rope_yarn_factor = 4.0f, o.original_context_length = 256;
                   })});
  cases.push_back({"llama_yarn_attn_factor", with(shape("llama", 3, 2), [](Options& o) {
                     o.head_dim = 32, o.rope_yarn_factor = 8.0f, o.original_context_length = 512;
                     o.rope_attn_factor = 0.75f;
                   })});
  cases.push_back(
      {"llama_biases", with(shape("llama", 3, 22), [](Options& o) { o.biases = true; })});
  // Reference: transformers' Mistral. llama.cpp does not look at the key.
  cases.push_back(
      {"llama_window_key", with(shape("llama", 3, 3), [](Options& o) { o.window = 24; })});
  cases.push_back({"mixtral", mixtral(30)});
}

void add_qwen(Cases& cases) {
  cases.push_back({"qwen2", shape("qwen2", 3, 40)});
  cases.push_back({"qwen2_yarn", with(shape("qwen2", 3, 10), [](Options& o) {
                     o.n_heads = 2, o.n_kv_heads = 1, o.head_dim = 32, o.rope_base = 1000000.0f;
                     o.rope_yarn_factor = 4.0f, o.original_context_length = 2048;
                   })});
  cases.push_back(
      {"qwen3", with(shape("qwen3", 3, 29), [](Options& o) { o.head_dim = 32, o.tied = false; })});
  cases.push_back({"qwen3moe", with(shape("qwen3moe", 3, 12), [](Options& o) {
                     o.n_ff = 48, o.n_experts = 16, o.n_experts_used = 4, o.tied = false;
                   })});
}

Options gemma2(uint64_t seed) {
  return with(shape("gemma2", 4, seed), [](Options& o) {
    o.window = 24, o.attention_softcap = 4.0f, o.final_softcap = 8.0f;
  });
}

Options gemma3(uint64_t seed) {
  return with(shape("gemma3", 8, seed),
              [](Options& o) { o.window = 24, o.n_kv_heads = 1, o.rope_base = 1000000.0f; });
}

/// The 27B models' layer count, by which they are known to scale attention otherwise.
void slim(Options& o, int64_t n_layers) {
  o.n_layers = n_layers;
  o.n_embd = 48, o.n_ff = 32, o.n_heads = 2, o.n_kv_heads = 1;
  o.score_spread = 1.0f;
}

void add_gemma(Cases& cases) {
  cases.push_back({"gemma2", gemma2(21)});
  cases.push_back({"gemma2_default_caps", with(gemma2(39), [](Options& o) {
                     o.attention_softcap = 0, o.final_softcap = 0, o.logit_spread = 8.0f;
                     o.score_spread = 3.0f;
                   })});
  cases.push_back({"gemma2_27b_scale",
                   with(gemma2(34), [](Options& o) { slim(o, 46), o.final_softcap = 30.0f; })});
  cases.push_back({"gemma3", gemma3(6)});
  cases.push_back({"gemma3_linear", with(gemma3(12), [](Options& o) {
                     o.rope_linear_factor = 8.0f, o.rope_base_swa = 10000.0f, o.n_kv_heads = 2;
                   })});
  cases.push_back(
      {"gemma3_base_swa", with(gemma3(27), [](Options& o) { o.rope_base_swa = 500.0f; })});
  cases.push_back({"gemma3_period", with(gemma3(6), [](Options& o) { o.window_period = 3; })});
  cases.push_back({"gemma3_no_window", with(gemma3(15), [](Options& o) {
                     o.window = 0, o.rope_linear_factor = 4.0f, o.final_softcap = 8.0f;
                   })});
  cases.push_back({"gemma3_head_256", with(gemma3(27), [](Options& o) {
                     o.head_dim = 256, o.n_heads = 2, o.n_layers = 6;
                   })});
  cases.push_back({"gemma3_27b_scale", with(gemma3(29), [](Options& o) { slim(o, 62); })});
}

/// Longrope, with context allocated for fewer positions than `original` or for more.
void longrope(Options& o, int64_t original) {
  o.context_length = 131072, o.original_context_length = original;
  o.rope_attn_factor = 1.19f;
  const auto n_pairs = static_cast<size_t>(o.rope_dims == 0 ? o.head_dim : o.rope_dims) / 2;
  o.rope_factors_short = rising_divisors(n_pairs, 1.0f, 0.05f);
  o.rope_factors_long = rising_divisors(n_pairs, 1.1f, 2.0f);
}

Options phi3(uint64_t seed) {
  return with(shape("phi3", 3, seed), [](Options& o) { o.tied = false; });
}

void add_phi3(Cases& cases) {
  cases.push_back({"phi3", phi3(15)});
  cases.push_back({"phi3_longrope_short", with(phi3(18), [](Options& o) { longrope(o, 4096); })});
  cases.push_back({"phi3_longrope_long", with(phi3(15), [](Options& o) { longrope(o, 32); })});
  cases.push_back({"phi3_partial", with(phi3(6), [](Options& o) {
                     o.rope_dims = 12, o.tied = true, longrope(o, 4096);
                   })});
  // Reference: transformers. llama.cpp warns and does not look at the key.
  cases.push_back({"phi3_window_key", with(phi3(5), [](Options& o) { o.window = 24; })});
}

Options mistral3(uint64_t seed) {
  return with(shape("mistral3", 3, seed),
              [](Options& o) { o.tied = false, o.head_dim = 32, o.rope_base = 100000.0f; });
}

void yarn(Options& o, int64_t original, float log_multiplier) {
  o.rope_yarn_factor = 16.0f, o.original_context_length = original;
  o.yarn_log_multiplier = log_multiplier;
}

void add_others(Cases& cases) {
  cases.push_back({"smollm3", shape("smollm3", 5, 20)});
  cases.push_back({"mistral3", mistral3(5)});
  cases.push_back({"mistral3_yarn", with(mistral3(18), [](Options& o) { yarn(o, 1024, 1.0f); })});
  cases.push_back({"mistral3_yarn_keys", with(mistral3(17), [](Options& o) {
                     yarn(o, 512, 0.5f), o.yarn_beta_fast = 16.0f, o.yarn_beta_slow = 2.0f;
                   })});
  cases.push_back({"mistral3_temperature", with(mistral3(10), [](Options& o) {
                     yarn(o, 16, 1.0f), o.temperature_scale = 0.25f;
                   })});
}

/// Few layers and flat attention: what 8 bits in the activations change grows with both, and where
/// it makes a router choose another expert the logits are others altogether. (With experts the seed
/// is one whose routers have no such close choice.)
Options quantised(Options options, const char* recipe, int64_t n_layers) {
  options.recipe = recipe;
  options.n_layers = n_layers;
  options.score_spread = 1.0f;
  return options;
}

void add_quantised(Cases& cases) {
  // Rows of 256 elements for the K-quants.
  for (const auto& [name, recipe] : {std::pair{"llama_q8_0", "Q8_0"},
                                     {"llama_q4_0", "Q4_0"},
                                     {"llama_q4_k_m", "Q4_K_M"},
                                     {"llama_q6_k", "Q6_K"}}) {
    cases.push_back({name, with(quantised(shape("llama", 2, 1), recipe, 2),
                                [](Options& o) { o.n_embd = o.n_ff = 256, o.head_dim = 64; })});
  }
  const auto q8_0 = [&](const char* name, int64_t n_layers, Options options) {
    cases.push_back({name, quantised(std::move(options), "Q8_0", n_layers)});
  };
  q8_0("mixtral_q8_0", 2, mixtral(22));
  q8_0("qwen2_q8_0", 2, shape("qwen2", 2, 5));
  q8_0("qwen3_q8_0", 2, shape("qwen3", 2, 5));
  q8_0("qwen3moe_q8_0", 2, with(shape("qwen3moe", 2, 3), [](Options& o) {
         o.n_ff = 64, o.n_experts = 16, o.n_experts_used = 4;
       }));
  q8_0("gemma2_q8_0", 2, gemma2(4));
  // Scores and logits that the caps hold down, so that a cap 5 % off moves the logits by more than
  // 8 bits in the activations do: caps further out do not show beside them.
  cases.push_back({"gemma2_q8_0_caps", with(quantised(gemma2(13), "Q8_0", 2), [](Options& o) {
                     o.attention_softcap = 2.0f, o.score_spread = 2.0f;
                     o.logit_spread = 16.0f;
                   })});
  q8_0("gemma3_q8_0", 2, with(gemma3(8), [](Options& o) { o.window_period = 2; }));
  q8_0("phi3_q8_0", 2, phi3(2));
  q8_0("smollm3_q8_0", 4, shape("smollm3", 4, 5));
  q8_0("mistral3_q8_0", 2, with(mistral3(7), [](Options& o) { yarn(o, 1024, 1.0f); }));
}

}  // namespace

std::vector<ArchitectureCase> f32_architecture_cases() {
  std::vector<ArchitectureCase> cases;
  add_llama(cases);
  add_qwen(cases);
  add_gemma(cases);
  add_phi3(cases);
  add_others(cases);
  return cases;
}

std::vector<ArchitectureCase> quantised_architecture_cases() {
  std::vector<ArchitectureCase> cases;
  add_quantised(cases);
  return cases;
}

std::vector<ArchitectureCase> all_architecture_cases() {
  std::vector<ArchitectureCase> cases = f32_architecture_cases();
  for (ArchitectureCase& c : quantised_architecture_cases()) cases.push_back(std::move(c));
  return cases;
}

}  // namespace weft::test
