#include "model/architecture.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/narrow.h"

namespace weft::model {

// A line here declares the architecture's configure function and enters it into the table. Each is
// the only public symbol of its file, so that a file left out of the build fails at link time and
// not at a user's.
#define WEFT_ARCHITECTURES(X) \
  X(llama)                    \
  X(qwen2)                    \
  X(qwen3)                    \
  X(qwen3moe)                 \
  X(gemma2)                   \
  X(gemma3)                   \
  X(phi3)                     \
  X(smollm3)                  \
  X(mistral3)

#define WEFT_DECLARE(name) Status configure_##name(const KeyReader& keys, ModelConfig& config);
WEFT_ARCHITECTURES(WEFT_DECLARE)
#undef WEFT_DECLARE

namespace {

// Of what a file may say; above all models that exist, and int32_t holds sums of a few of them.
constexpr uint64_t kMaxWindow = 1 << 30;
constexpr uint64_t kMaxExperts = 4096;
constexpr uint64_t kMaxWidth = 1 << 20;

#define WEFT_ROW(name) {#name, configure_##name},
constexpr Architecture kArchitectures[] = {WEFT_ARCHITECTURES(WEFT_ROW)};
#undef WEFT_ROW

/// Which layers have the window: by an array with a flag a layer (Gemma 3's newer files), or by a
/// period, of which the last layer sees everything (Gemma 2: every second, Gemma 3: every sixth); a
/// period of 0 windows all of them (Mistral 7B, Phi 3).
Result<std::vector<bool>> windowed_layers(const KeyReader& keys, const WindowPattern& pattern,
                                          int32_t n_layers) {
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  const gguf::Value* value = keys.file().find(keys.full_name(kPattern));
  if (value != nullptr && value->type == gguf::ValueType::kArray) {
    return keys.flags(kPattern, n_layers);
  }
  WEFT_ASSIGN_OR_RETURN(const int32_t period,
                        keys.integer_or(kPattern, pattern.period, 0, kMaxWindow));
  std::vector<bool> windowed(n_layers);
  for (int32_t layer = 0; layer < n_layers; ++layer) {
    windowed[layer] = period == 0 || layer % period != period - 1;
  }
  return windowed;
}

}  // namespace

const Architecture* find_architecture(std::string_view name) {
  const auto* found = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                   [&](const Architecture& a) { return a.name == name; });
  return found == std::end(kArchitectures) ? nullptr : found;
}

std::vector<std::string> architecture_names() {
  std::vector<std::string> names;
  for (const Architecture& a : kArchitectures) names.emplace_back(a.name);
  return names;
}

Status add_windows(const KeyReader& keys, const WindowPattern& pattern, ModelConfig& config) {
  WEFT_ASSIGN_OR_RETURN(
      const int32_t window,
      keys.integer_or("attention.sliding_window", pattern.default_window_tokens, 0, kMaxWindow));
  // Files say 0 for a window that the model was trained without.
  if (window == 0) return Status::ok();
  WEFT_ASSIGN_OR_RETURN(const std::vector<bool> windowed,
                        windowed_layers(keys, pattern, config.n_layers));
  for (size_t layer = 0; layer < windowed.size(); ++layer) {
    if (windowed[layer]) config.layers[layer].window_tokens = window;
  }
  return Status::ok();
}

Status add_experts(const KeyReader& keys, ModelConfig& config) {
  WEFT_ASSIGN_OR_RETURN(config.n_experts, keys.integer_or("expert_count", 0, 0, kMaxExperts));
  if (config.n_experts == 0) return Status::ok();
  WEFT_ASSIGN_OR_RETURN(config.n_experts_used,
                        keys.integer("expert_used_count", 1, narrow<uint64_t>(config.n_experts)));
  WEFT_ASSIGN_OR_RETURN(config.n_ff,
                        keys.integer_or("expert_feed_forward_length", config.n_ff, 1, kMaxWidth));
  return Status::ok();
}

}  // namespace weft::model
