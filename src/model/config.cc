#include "model/config.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <span>

namespace weft::model {
namespace {

// Bounds far above any model that exists, low enough that no product of two of them overflows.
constexpr uint64_t kMaxLayers = 1024;
constexpr uint64_t kMaxWidth = 1 << 20;
constexpr uint64_t kMaxHeads = 4096;
constexpr uint64_t kMaxHeadDim = 256;
constexpr uint64_t kMaxVocab = 1 << 22;
constexpr uint64_t kMaxContext = 1 << 28;

/// Reads `{architecture}.{name}` keys with bounds.
class KeyReader {
 public:
  KeyReader(const gguf::File& file, std::string prefix) : file_(file), prefix_(std::move(prefix)) {}

  Result<int32_t> integer(const char* name, uint64_t low, uint64_t high) const {
    WEFT_ASSIGN_OR_RETURN(const uint64_t value, file_.get_uint(prefix_ + name));
    return bounded(name, value, low, high);
  }

  Result<int32_t> integer_or(const char* name, int32_t fallback, uint64_t low,
                             uint64_t high) const {
    WEFT_ASSIGN_OR_RETURN(const uint64_t value,
                          file_.get_uint_or(prefix_ + name, static_cast<uint64_t>(fallback)));
    return bounded(name, value, low, high);
  }

  Result<double> positive_or(const char* name, double fallback) const {
    WEFT_ASSIGN_OR_RETURN(const double value, file_.get_float_or(prefix_ + name, fallback));
    if (!std::isfinite(value) || value <= 0 || value > 1e12) {
      return corrupt(fmt::format("{}: key '{}{}' is {}, must be positive and finite", file_.path(),
                                 prefix_, name, value));
    }
    return value;
  }

 private:
  Result<int32_t> bounded(const char* name, uint64_t value, uint64_t low, uint64_t high) const {
    if (value < low || value > high) {
      return corrupt(fmt::format("{}: key '{}{}' is {}, must be {} to {}", file_.path(), prefix_,
                                 name, value, low, high));
    }
    return static_cast<int32_t>(value);
  }

  const gguf::File& file_;
  std::string prefix_;
};

/// llama-3 scaling comes as a tensor of divisors, one for each pair of dimensions.
Status apply_rope_factors(const gguf::File& file, kernels::RopeParams& rope) {
  const gguf::TensorInfo* factors = file.find_tensor("rope_freqs.weight");
  if (factors == nullptr) return Status::ok();
  const size_t n = rope.inverse_frequencies.size();
  if (factors->dtype != DType::kF32 || factors->size_bytes != n * sizeof(float)) {
    return corrupt(
        fmt::format("{}: tensor 'rope_freqs.weight' must be F32 with {} elements", file.path(), n));
  }
  for (size_t i = 0; i < n; ++i) {
    float factor = 0;
    std::memcpy(&factor, factors->data + i * sizeof(float), sizeof(float));
    if (!std::isfinite(factor) || factor <= 0) {
      return corrupt(
          fmt::format("{}: tensor 'rope_freqs.weight' element {} is {}, must be positive",
                      file.path(), i, factor));
    }
    rope.inverse_frequencies[i] /= static_cast<double>(factor);
  }
  return Status::ok();
}

Result<double> linear_scaling_factor(const gguf::File& file, const std::string& prefix,
                                     const KeyReader& keys) {
  WEFT_ASSIGN_OR_RETURN(const std::string_view type,
                        file.get_string_or(prefix + "rope.scaling.type", "linear"));
  if (type == "none") return 1.0;
  if (type != "linear") {
    return unsupported(
        fmt::format("{}: key '{}rope.scaling.type' is '{}'; weft reads none and linear",
                    file.path(), prefix, gguf::printable(type)));
  }
  WEFT_ASSIGN_OR_RETURN(const double legacy, keys.positive_or("rope.scale_linear", 1.0));
  return keys.positive_or("rope.scaling.factor", legacy);
}

Status read_rope(const gguf::File& file, const std::string& prefix, const KeyReader& keys,
                 ModelConfig& config) {
  WEFT_ASSIGN_OR_RETURN(const int32_t n_dims,
                        keys.integer_or("rope.dimension_count", config.head_dim, 2,
                                        static_cast<uint64_t>(config.head_dim)));
  if (n_dims % 2 != 0) {
    return corrupt(fmt::format("{}: key '{}rope.dimension_count' is {}, must be even", file.path(),
                               prefix, n_dims));
  }
  WEFT_ASSIGN_OR_RETURN(const double base, keys.positive_or("rope.freq_base", 10000.0));
  WEFT_ASSIGN_OR_RETURN(const double factor, linear_scaling_factor(file, prefix, keys));
  config.rope.pairing = kernels::RopePairing::kNorm;
  config.rope.n_dims = n_dims;
  config.rope.inverse_frequencies.resize(static_cast<size_t>(n_dims / 2));
  for (int32_t i = 0; i < n_dims / 2; ++i) {
    config.rope.inverse_frequencies[static_cast<size_t>(i)] =
        std::pow(base, -2.0 * i / n_dims) / factor;
  }
  return apply_rope_factors(file, config.rope);
}

}  // namespace

Result<ModelConfig> read_config(const gguf::File& file) {
  ModelConfig config;
  WEFT_ASSIGN_OR_RETURN(config.architecture, file.get_string("general.architecture"));
  if (config.architecture != "llama") {
    return unsupported(fmt::format("{}: key 'general.architecture' is '{}'; weft runs llama",
                                   file.path(), gguf::printable(config.architecture)));
  }
  WEFT_ASSIGN_OR_RETURN(config.name, file.get_string_or("general.name", file.path()));

  const std::string prefix = config.architecture + ".";
  const KeyReader keys(file, prefix);
  WEFT_ASSIGN_OR_RETURN(config.n_layers, keys.integer("block_count", 1, kMaxLayers));
  WEFT_ASSIGN_OR_RETURN(config.n_embd, keys.integer("embedding_length", 1, kMaxWidth));
  WEFT_ASSIGN_OR_RETURN(config.n_ff, keys.integer("feed_forward_length", 1, kMaxWidth));
  WEFT_ASSIGN_OR_RETURN(config.n_heads, keys.integer("attention.head_count", 1, kMaxHeads));
  WEFT_ASSIGN_OR_RETURN(config.n_kv_heads,
                        keys.integer_or("attention.head_count_kv", config.n_heads, 1, kMaxHeads));
  if (config.n_heads % config.n_kv_heads != 0) {
    return corrupt(
        fmt::format("{}: key '{}attention.head_count_kv' is {}, must divide the {} heads",
                    file.path(), prefix, config.n_kv_heads, config.n_heads));
  }
  WEFT_ASSIGN_OR_RETURN(
      config.head_dim,
      keys.integer_or("attention.key_length", config.n_embd / config.n_heads, 1, kMaxHeadDim));
  WEFT_ASSIGN_OR_RETURN(const int32_t value_dim,
                        keys.integer_or("attention.value_length", config.head_dim, 1, kMaxHeadDim));
  if (config.head_dim % 8 != 0) {
    return unsupported(
        fmt::format("{}: key '{}attention.key_length' is {}; weft needs a multiple of 8",
                    file.path(), prefix, config.head_dim));
  }
  if (value_dim != config.head_dim) {
    return unsupported(
        fmt::format("{}: key '{}attention.value_length' is {}; weft needs the size of the keys, {}",
                    file.path(), prefix, value_dim, config.head_dim));
  }
  WEFT_ASSIGN_OR_RETURN(config.context_length, keys.integer("context_length", 1, kMaxContext));
  WEFT_ASSIGN_OR_RETURN(const double eps,
                        keys.positive_or("attention.layer_norm_rms_epsilon", 1e-5));
  config.rms_eps = static_cast<float>(eps);
  WEFT_ASSIGN_OR_RETURN(const uint64_t n_experts, file.get_uint_or(prefix + "expert_count", 0));
  if (n_experts != 0) {
    return unsupported(
        fmt::format("{}: key '{}expert_count' is {}: a mixture of experts; weft runs dense models",
                    file.path(), prefix, n_experts));
  }

  const gguf::TensorInfo* embedding = file.find_tensor("token_embd.weight");
  if (embedding == nullptr) {
    return corrupt(fmt::format("{}: tensor 'token_embd.weight' is missing", file.path()));
  }
  const auto rows = static_cast<uint64_t>(embedding->dims[1]);
  if (embedding->n_dims != 2 || rows < 1 || rows > kMaxVocab) {
    return corrupt(fmt::format("{}: tensor 'token_embd.weight' has {} rows, must be 1 to {}",
                               file.path(), rows, kMaxVocab));
  }
  config.vocab_size = static_cast<int32_t>(rows);
  WEFT_RETURN_IF_ERROR(read_rope(file, prefix, keys, config));
  return config;
}

}  // namespace weft::model
