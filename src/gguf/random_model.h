// Writes GGUF files with random weights: every architecture that weft runs, any shape, any of
// weft's types, for tests and for measuring speed without anybody's weights. Keys and tensors are
// named as llama.cpp's converter names them. Weights are near normal with variance 1 / fan-in, so
// activations keep their size through the layers; the text they produce means nothing. The
// tokenizer is a small real one (byte-level BPE), padded to the vocabulary's size. It is no
// converter: nothing is read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/status.h"

namespace weft::gguf {

/// Numbers that are 0 and lists that are empty write no key or tensor, where nothing else is said.
struct RandomModelOptions {
  /// llama (with n_experts: Mixtral), qwen2, qwen3, gemma2, gemma3, phi3, smollm3, mistral3 or
  /// qwen3moe. It decides which norms, biases and fused matrices there are.
  std::string architecture = "llama";
  int64_t n_layers = 2;
  int64_t n_embd = 64;
  int64_t n_ff = 128;   // of one expert, where there are experts
  int64_t n_heads = 4;  // a multiple of n_kv_heads
  int64_t n_kv_heads = 2;
  int64_t head_dim = 16;   // even; need not be n_embd / n_heads, but for phi3
  int64_t vocab = 512;     // at least 270
  int64_t spare_rows = 0;  // of `vocab`, that no token has, as of files that are padded
  bool tied = true;        // false: a separate output.weight
  int64_t context_length = 2048;
  float rope_base = 10000.0f;
  float rope_linear_factor = 1.0f;  // other than 1: rope.scaling.type = linear with this factor
  std::vector<float> rope_freqs;    // rope_freqs.weight, rope_dims / 2 divisors

  int64_t rope_dims = 0;       // elements of a head that turn, even; 0: all
  float rope_base_swa = 0;     // of windowed layers
  float rope_yarn_factor = 0;  // rope.scaling.type = yarn with this factor
  float yarn_beta_fast = 0;
  float yarn_beta_slow = 0;
  float yarn_log_multiplier = 0;
  int64_t original_context_length = 0;
  float rope_attn_factor = 0;
  std::vector<float> rope_factors_long;   // rope_factors_long.weight, rope_dims / 2 divisors
  std::vector<float> rope_factors_short;  // the same number
  float temperature_scale = 0;
  int64_t window = 0;         // attention.sliding_window
  int64_t window_period = 0;  // attention.sliding_window_pattern
  float attention_softcap = 0;
  float final_softcap = 0;
  bool biases = false;  // of attn_q, attn_k and attn_v, which qwen2 has always; and attn_output
  int64_t n_experts = 0;
  int64_t n_experts_used = 0;

  /// Mean of the last norm's weights, which is about the logits' deviation.
  float logit_spread = 1.0f;
  /// What attention's scores are multiplied with: larger is more peaked.
  float score_spread = 1.0f;
  /// Types of the matrices, mixed as llama.cpp's quantiser mixes them for llama: F32, F16, BF16,
  /// Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K_M, Q5_K_M, Q6_K (output and tied embeddings in Q6_K or
  /// Q8_0; a row that is no whole number of blocks falls back to a type it fits; a router is F32).
  std::string recipe = "F32";
  std::string chat_template;  // tokenizer.chat_template
  uint64_t seed = 1;
};

/// kInvalidArgument names the option that is out of bounds, and nothing is written then. Streams:
/// memory stays at a few MB. The same options give the same bytes on every machine.
Status write_random_model(Env& env, const std::string& path, const RandomModelOptions& options);

}  // namespace weft::gguf
