// A model's hyper-parameters as its GGUF states them, every one checked against its bounds, in the
// terms of the one forward pass that runs all architectures. Which keys an architecture has and
// what they mean for it is in architectures/.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "kernels/kv_codec.h"
#include "kernels/rope.h"

namespace weft::model {

enum class Activation {
  kSilu,  // SwiGLU
  kGelu,  // GeGLU with the tanh approximation
};

/// What differs from layer to layer.
struct LayerConfig {
  int32_t window_tokens = 0;  // a row at position p sees p - window_tokens + 1 … p; 0: 0 … p
  int32_t rope = 0;           // index into ModelConfig::ropes
};

struct ModelConfig {
  std::string architecture;  // "llama"
  std::string name;          // general.name, or the file's name
  int32_t n_layers = 0;
  int32_t n_embd = 0;
  int32_t n_ff = 0;  // of one expert where there are experts
  int32_t n_heads = 0;
  int32_t n_kv_heads = 0;  // divides n_heads
  int32_t head_dim = 0;    // a multiple of 8, at most 256
  int32_t vocab_size = 0;
  int32_t context_length = 0;  // what the model was trained for, in tokens
  int32_t context_tokens = 0;  // longest sequence that it was opened for
  float rms_eps = 0;

  std::vector<LayerConfig> layers;         // [n_layers]
  std::vector<kernels::RopeParams> ropes;  // n_dims 0 rotates nothing

  Activation activation = Activation::kSilu;
  float embedding_scale = 1.0f;
  float attention_scale = 0;    // on q.k
  float attention_softcap = 0;  // 0: none
  float logit_softcap = 0;      // 0: none
  // q at position p is scaled by 1 + factor * ln(1 + floor(p / tokens)); factor 0: not at all.
  float temperature_factor = 0;
  int32_t temperature_tokens = 0;

  // Mixture of experts; 0 experts: one dense feed-forward part.
  int32_t n_experts = 0;
  int32_t n_experts_used = 0;  // by each token

  // Tensors that some architectures have.
  bool needs_qkv_bias = false;         // a bias elsewhere may be there or not
  bool has_qk_norm = false;            // per head, before RoPE
  bool has_post_norms = false;         // on what attention and feed-forward add
  bool has_fused_projections = false;  // attn_qkv, and gate and up in ffn_up

  int64_t q_width() const { return int64_t{n_heads} * head_dim; }
  int64_t kv_width() const { return int64_t{n_kv_heads} * head_dim; }
  /// How a layer's K and V lie in pages of so many tokens.
  kernels::KvLayout kv_layout(kernels::KvTypes types = {}, int32_t page_tokens = 16) const {
    return {.k_type = types.k,
            .v_type = types.v,
            .head_dim = head_dim,
            .n_kv_heads = n_kv_heads,
            .page_tokens = page_tokens};
  }
  /// Of each layer: layers with the same window, which need the same slots for the same time.
  std::vector<int32_t> layer_groups() const;
  /// The window of each of these groups; 0: none.
  std::vector<int32_t> group_windows() const;
  /// Feed-forward columns that one token goes through.
  int64_t active_ff() const { return int64_t{n_ff} * (n_experts > 0 ? n_experts_used : 1); }
  const kernels::RopeParams& rope_of(int32_t layer) const { return ropes[layers[layer].rope]; }
};

inline constexpr int32_t kDefaultContextTokens = 8192;

/// kUnsupported for an architecture that weft does not know, by name; kCorrupt, naming the key and
/// the bound, for a value outside its bounds. context_tokens is the
/// longest sequence to come, which some models' RoPE depends on: 1 to the model's, or 0 for that,
/// at most kDefaultContextTokens; kInvalidArgument else.
Result<ModelConfig> read_config(const gguf::File& file, int32_t context_tokens = 0);

}  // namespace weft::model
