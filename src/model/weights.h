// A model's weights: views into the memory-mapped GGUF, and the small norm vectors copied to f32.
// Every tensor's shape is checked against the hyper-parameters.
#pragma once

#include <vector>

#include "base/status.h"
#include "gguf/gguf.h"
#include "kernels/matmul.h"
#include "model/config.h"
#include "tensor/buffer.h"

namespace weft::model {

using kernels::WeightMatrix;

/// Activation(gate x) * (up x), then down. Shapes are [out_features, in_features].
struct FeedForwardWeights {
  WeightMatrix gate;  // [n_ff, n_embd]
  WeightMatrix up;    // [n_ff, n_embd]
  WeightMatrix down;  // [n_embd, n_ff]
};

/// What an architecture does not have is empty.
struct LayerWeights {
  AlignedBuffer<float> attention_norm;  // [n_embd]
  WeightMatrix q;                       // [n_heads * head_dim, n_embd]
  WeightMatrix k;                       // [n_kv_heads * head_dim, n_embd]
  WeightMatrix v;                       // [n_kv_heads * head_dim, n_embd]
  WeightMatrix o;                       // [n_embd, n_heads * head_dim]
  AlignedBuffer<float> q_bias, k_bias, v_bias, o_bias;
  AlignedBuffer<float> q_norm, k_norm;       // [head_dim]
  AlignedBuffer<float> post_attention_norm;  // [n_embd]
  AlignedBuffer<float> ffn_norm;             // [n_embd]
  WeightMatrix router;                       // [n_experts, n_embd]; only with experts
  std::vector<FeedForwardWeights> experts;   // a dense layer has one
  AlignedBuffer<float> post_ffn_norm;        // [n_embd]
};

struct Weights {
  WeightMatrix token_embedding;  // [vocab_size, n_embd]
  std::vector<LayerWeights> layers;
  AlignedBuffer<float> output_norm;
  WeightMatrix output;  // [vocab_size, n_embd]; the embedding where the model ties them
};

/// kCorrupt, naming the tensor, when one is missing or of another shape; a tensor that weft does
/// not use is a warning, unless it is a bias or a norm: ignoring that would give wrong answers.
Result<Weights> read_weights(const gguf::File& file, const ModelConfig& config);

}  // namespace weft::model
