// SmolLM 3: llama without RoPE on every fourth layer (NoPE, Yang et al. 2025).
#include "base/narrow.h"
#include "model/architecture.h"

namespace weft::model {

Status configure_smollm3(const KeyReader& keys, ModelConfig& config) {
  constexpr int32_t kPeriod = 4;
  WEFT_RETURN_IF_ERROR(add_rope(keys, kernels::RopePairing::kNorm, config));
  const auto no_rope = narrow<int32_t>(config.ropes.size());
  config.ropes.emplace_back();
  for (size_t layer = kPeriod - 1; layer < config.layers.size(); layer += kPeriod) {
    config.layers[layer].rope = no_rope;
  }
  return Status::ok();
}

}  // namespace weft::model
