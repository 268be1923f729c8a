// RoPE's frequencies from a model's keys: base, partial rotary, and the scalings by which models
// were stretched to longer contexts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/narrow.h"
#include "model/architecture.h"

namespace weft::model {
namespace {

/// base^(-2i/n) for the n/2 pairs (Su et al. 2021).
std::vector<double> plain_frequencies(double base, int32_t n_dims) {
  std::vector<double> frequencies;
  for (int32_t i = 0; i < n_dims / 2; ++i) {
    frequencies.push_back(std::pow(base, -2.0 * i / n_dims));
  }
  return frequencies;
}

/// Divides each pair's frequency by the tensor's number for it, where the file has that tensor.
Status divide_by_tensor(const gguf::File& file, const std::string& name,
                        std::vector<double>& frequencies) {
  const gguf::TensorInfo* factors = file.find_tensor(name);
  if (factors == nullptr) return Status::ok();
  const size_t n = frequencies.size();
  if (factors->dtype != DType::kF32 || factors->size_bytes != n * sizeof(float)) {
    return corrupt(
        fmt::format("{}: tensor '{}' must be F32 with {} elements", file.path(), name, n));
  }
  for (size_t i = 0; i < n; ++i) {
    float factor = 0;
    std::memcpy(&factor, factors->data + i * sizeof(float), sizeof(float));
    if (!std::isfinite(factor) || factor <= 0) {
      return corrupt(fmt::format("{}: tensor '{}' element {} is {}, must be positive", file.path(),
                                 name, i, factor));
    }
    frequencies[i] /= factor;
  }
  return Status::ok();
}

/// Its index, as layers have it.
int32_t add(kernels::RopeParams rope, ModelConfig& config) {
  config.ropes.push_back(std::move(rope));
  return narrow<int32_t>(config.ropes.size()) - 1;
}

/// rope.scaling.factor, or the key that older files have for it.
Result<float> scaling_factor(const KeyReader& keys) {
  WEFT_ASSIGN_OR_RETURN(const float legacy, keys.positive_or("rope.scale_linear", 1));
  return keys.positive_or("rope.scaling.factor", legacy);
}

Result<int32_t> original_context(const KeyReader& keys, const ModelConfig& config) {
  return keys.integer_or("rope.scaling.original_context_length", config.context_length, 1, 1 << 28);
}

/// YaRN (Peng et al. 2023, section 3.2): pairs that turn often keep their frequency, slow ones are
/// interpolated, those between are blended; attention is tempered by a magnitude on cos and sin.
Status apply_yarn(const KeyReader& keys, const ModelConfig& config, double base, double factor,
                  kernels::RopeParams& rope) {
  WEFT_ASSIGN_OR_RETURN(const int32_t original, original_context(keys, config));
  WEFT_ASSIGN_OR_RETURN(const double beta_fast,
                        keys.positive_or("rope.scaling.yarn_beta_fast", 32));
  WEFT_ASSIGN_OR_RETURN(const double beta_slow, keys.positive_or("rope.scaling.yarn_beta_slow", 1));
  WEFT_ASSIGN_OR_RETURN(const double log_multiplier,
                        keys.not_negative_or("rope.scaling.yarn_log_multiplier", 0));
  const int32_t n = rope.n_dims;
  // The pair that turns `turns` times within the original context.
  const auto pair_of = [&](double turns) {
    return n * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
  };
  const double low = std::max(0.0, std::floor(pair_of(beta_fast)));
  const double high = std::min(n - 1.0, std::ceil(pair_of(beta_slow)));
  for (size_t i = 0; i < rope.inverse_frequencies.size(); ++i) {
    const double along = (i - low) / std::max(0.001, high - low);
    const double kept = 1 - std::clamp(along, 0.0, 1.0);
    rope.inverse_frequencies[i] *= kept + (1 - kept) / factor;
  }
  if (factor > 1) {
    const double log_factor = 0.1 * std::log(factor);
    rope.magnitude *= static_cast<float>((1 + log_factor) / (1 + log_factor * log_multiplier));
  }
  return Status::ok();
}

/// Phi-3's LongRoPE: one list of divisors for contexts up to the original length, one for longer.
Status apply_longrope(const KeyReader& keys, const ModelConfig& config, kernels::RopeParams& rope) {
  constexpr const char* kLong = "rope_factors_long.weight";
  constexpr const char* kShort = "rope_factors_short.weight";
  WEFT_ASSIGN_OR_RETURN(const std::string_view type, keys.string_or("rope.scaling.type", ""));
  const bool has_factors =
      keys.file().find_tensor(kLong) != nullptr || keys.file().find_tensor(kShort) != nullptr;
  if (!has_factors && type != "longrope") return Status::ok();
  WEFT_ASSIGN_OR_RETURN(const int32_t original, original_context(keys, config));
  const char* wanted = config.context_tokens > original ? kLong : kShort;
  if (keys.file().find_tensor(wanted) == nullptr) {
    return corrupt(fmt::format("{}: tensor '{}' is missing, which a context of {} tokens needs",
                               keys.file().path(), wanted, config.context_tokens));
  }
  return divide_by_tensor(keys.file(), wanted, rope.inverse_frequencies);
}

}  // namespace

Status add_rope(const KeyReader& keys, kernels::RopePairing pairing, ModelConfig& config) {
  kernels::RopeParams rope;
  rope.pairing = pairing;
  WEFT_ASSIGN_OR_RETURN(rope.n_dims, keys.integer_or("rope.dimension_count", config.head_dim, 2,
                                                     narrow<uint64_t>(config.head_dim)));
  if (rope.n_dims % 2 != 0) {
    return keys.bad("rope.dimension_count", fmt::format("is {}, must be even", rope.n_dims));
  }
  WEFT_ASSIGN_OR_RETURN(const double base, keys.positive_or("rope.freq_base", 10000));
  rope.inverse_frequencies = plain_frequencies(base, rope.n_dims);
  WEFT_ASSIGN_OR_RETURN(rope.magnitude, keys.positive_or("rope.scaling.attn_factor", 1));

  WEFT_ASSIGN_OR_RETURN(const double factor, scaling_factor(keys));
  WEFT_ASSIGN_OR_RETURN(const std::string_view type, keys.string_or("rope.scaling.type", "linear"));
  if (type == "linear") {
    for (double& frequency : rope.inverse_frequencies) frequency /= factor;
  } else if (type == "yarn") {
    if (base <= 1) {
      return keys.bad("rope.freq_base", fmt::format("is {}, YaRN needs more than 1", base));
    }
    WEFT_RETURN_IF_ERROR(apply_yarn(keys, config, base, factor, rope));
  } else if (type != "none" && type != "longrope") {
    return keys.not_supported(
        "rope.scaling.type",
        fmt::format("is '{}'; weft reads none, linear, yarn and longrope", gguf::printable(type)));
  }
  WEFT_RETURN_IF_ERROR(apply_longrope(keys, config, rope));
  WEFT_RETURN_IF_ERROR(
      divide_by_tensor(keys.file(), "rope_freqs.weight", rope.inverse_frequencies));
  const int32_t index = add(std::move(rope), config);
  for (LayerConfig& layer : config.layers) layer.rope = index;
  return Status::ok();
}

int32_t add_plain_rope(kernels::RopePairing pairing, double base, ModelConfig& config) {
  kernels::RopeParams rope;
  rope.pairing = pairing;
  rope.n_dims = config.ropes.empty() ? config.head_dim : config.ropes.front().n_dims;
  rope.inverse_frequencies = plain_frequencies(base, rope.n_dims);
  return add(std::move(rope), config);
}

}  // namespace weft::model
