// A model's hyper-parameters as its GGUF states them, every one checked against its bounds.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "gguf/gguf.h"
#include "kernels/rope.h"

namespace weft::model {

struct ModelConfig {
  std::string architecture;  // "llama"
  std::string name;          // general.name, or the file's name
  int32_t n_layers = 0;
  int32_t n_embd = 0;
  int32_t n_ff = 0;
  int32_t n_heads = 0;
  int32_t n_kv_heads = 0;  // divides n_heads
  int32_t head_dim = 0;    // a multiple of 8, at most 256
  int32_t vocab_size = 0;
  int32_t context_length = 0;  // what the model was trained for, in tokens
  float rms_eps = 0;
  kernels::RopeParams rope;

  int64_t q_width() const { return int64_t{n_heads} * head_dim; }
  int64_t kv_width() const { return int64_t{n_kv_heads} * head_dim; }
  /// K and V of one token over all layers, in f16.
  int64_t kv_bytes_per_token() const { return n_layers * kv_width() * 2 * 2; }
};

/// kUnsupported for an architecture that weft does not know, by name; kCorrupt, naming the key and
/// the bound, for a value outside its bounds (reference: gguf.md, class 7).
Result<ModelConfig> read_config(const gguf::File& file);

}  // namespace weft::model
