// The keys that all architectures have, then the architecture's own (architectures/). Every number
// is bounded before anything is sized by it: a file is hostile.
#include "model/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/narrow.h"
#include "model/architecture.h"

namespace weft::model {
namespace {

// Bounds far above any model that exists, low enough that no product of two of them overflows.
constexpr uint64_t kMaxLayers = 1024;
constexpr uint64_t kMaxWidth = 1 << 20;
constexpr uint64_t kMaxHeads = 4096;
// Gemma's, the largest that is known.
constexpr uint64_t kMaxHeadDim = 256;
constexpr int64_t kMaxVocab = 1 << 22;
constexpr uint64_t kMaxContext = 1 << 28;

/// Heads, KV heads (grouped-query attention: a divisor; missing means as many) and their size.
Status read_heads(const KeyReader& keys, ModelConfig& config) {
  WEFT_ASSIGN_OR_RETURN(config.n_heads, keys.integer("attention.head_count", 1, kMaxHeads));
  WEFT_ASSIGN_OR_RETURN(config.n_kv_heads,
                        keys.integer_or("attention.head_count_kv", config.n_heads, 1, kMaxHeads));
  if (config.n_heads % config.n_kv_heads != 0) {
    return keys.bad("attention.head_count_kv", fmt::format("is {}, must divide the {} heads",
                                                           config.n_kv_heads, config.n_heads));
  }
  WEFT_ASSIGN_OR_RETURN(
      config.head_dim,
      keys.integer_or("attention.key_length", config.n_embd / config.n_heads, 1, kMaxHeadDim));
  WEFT_ASSIGN_OR_RETURN(const int32_t value_dim,
                        keys.integer_or("attention.value_length", config.head_dim, 1, kMaxHeadDim));
  // Rows of heads are read eight floats at a time; no model that anybody uses has another size.
  if (config.head_dim % 8 != 0) {
    return keys.not_supported("attention.key_length",
                              fmt::format("is {}; weft needs a multiple of 8", config.head_dim));
  }
  if (value_dim != config.head_dim) {
    return keys.not_supported(
        "attention.value_length",
        fmt::format("is {}; weft needs the size of the keys, {}", value_dim, config.head_dim));
  }
  return Status::ok();
}

/// What every architecture has.
Status read_common(const KeyReader& keys, ModelConfig& config) {
  WEFT_ASSIGN_OR_RETURN(config.n_layers, keys.integer("block_count", 1, kMaxLayers));
  WEFT_ASSIGN_OR_RETURN(config.n_embd, keys.integer("embedding_length", 1, kMaxWidth));
  WEFT_ASSIGN_OR_RETURN(config.n_ff, keys.integer("feed_forward_length", 1, kMaxWidth));
  WEFT_RETURN_IF_ERROR(read_heads(keys, config));
  WEFT_ASSIGN_OR_RETURN(config.context_length, keys.integer("context_length", 1, kMaxContext));
  WEFT_ASSIGN_OR_RETURN(config.rms_eps,
                        keys.positive_or("attention.layer_norm_rms_epsilon", 1e-5f));
  const float head_dim = config.head_dim;
  config.attention_scale = 1.0f / std::sqrt(head_dim);
  config.layers.resize(config.n_layers);
  return Status::ok();
}

/// From the embedding and not from a key or the tokenizer: models are padded to a multiple of 64 or
/// so, and logits have as many columns as the tensor has rows.
Status read_vocab_size(const gguf::File& file, ModelConfig& config) {
  const gguf::TensorInfo* embedding = file.find_tensor("token_embd.weight");
  if (embedding == nullptr) {
    return corrupt(fmt::format("{}: tensor 'token_embd.weight' is missing", file.path()));
  }
  const int64_t rows = embedding->dims[1];
  if (embedding->n_dims != 2 || rows < 1 || rows > kMaxVocab) {
    return corrupt(fmt::format("{}: tensor 'token_embd.weight' has {} rows, must be 1 to {}",
                               file.path(), rows, kMaxVocab));
  }
  config.vocab_size = narrow<int32_t>(rows);
  return Status::ok();
}

}  // namespace

Result<ModelConfig> read_config(const gguf::File& file, int32_t context_tokens) {
  if (file.tensors().empty()) {
    return unsupported(file.path() +
                       ": a vocabulary without weights; weft tokenize and weft inspect take it");
  }
  ModelConfig config;
  WEFT_ASSIGN_OR_RETURN(config.architecture, file.get_string("general.architecture"));
  const Architecture* architecture = find_architecture(config.architecture);
  if (architecture == nullptr) {
    return unsupported(fmt::format("{}: key 'general.architecture' is '{}'; weft runs {}",
                                   file.path(), gguf::printable(config.architecture),
                                   fmt::join(architecture_names(), ", ")));
  }
  WEFT_ASSIGN_OR_RETURN(config.name, file.get_string_or("general.name", file.path()));
  const KeyReader keys(file, architecture->name);
  WEFT_RETURN_IF_ERROR(read_common(keys, config));
  config.context_tokens =
      context_tokens != 0 ? context_tokens : std::min(config.context_length, kDefaultContextTokens);
  if (config.context_tokens < 1 || config.context_tokens > config.context_length) {
    return invalid_argument(fmt::format("-c {}: the model's context is 1 to {} tokens",
                                        config.context_tokens, config.context_length));
  }
  WEFT_RETURN_IF_ERROR(read_vocab_size(file, config));
  WEFT_RETURN_IF_ERROR(architecture->configure(keys, config));
  return config;
}

// A model has one or two windows; a search through a list of them beats a map.
std::vector<int32_t> ModelConfig::group_windows() const {
  std::vector<int32_t> windows;  // the different ones, as they come
  for (const LayerConfig& layer : layers) {
    const auto found = std::ranges::find(windows, layer.window_tokens);
    if (found == windows.end()) windows.push_back(layer.window_tokens);
  }
  return windows;
}

std::vector<int32_t> ModelConfig::layer_groups() const {
  const std::vector<int32_t> windows = group_windows();
  std::vector<int32_t> groups;
  for (const LayerConfig& layer : layers) {
    const auto found = std::ranges::find(windows, layer.window_tokens);
    groups.push_back(narrow<int32_t>(found - windows.begin()));
  }
  return groups;
}

}  // namespace weft::model
