// Qwen 3 with a mixture of experts in every layer.
#include "model/architecture.h"

namespace weft::model {

Status configure_qwen3moe(const KeyReader& keys, ModelConfig& config) {
  config.has_qk_norm = true;
  WEFT_RETURN_IF_ERROR(add_rope(keys, kernels::RopePairing::kNeox, config));
  WEFT_RETURN_IF_ERROR(add_experts(keys, config));
  if (config.n_experts == 0) return keys.bad("expert_count", "is 0, must be 1 or more");
  return Status::ok();
}

}  // namespace weft::model
