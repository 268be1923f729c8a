// Mistral's and Ministral's third generation: llama with YaRN and, in some, queries that grow
// sharper with their position.
#include "model/architecture.h"

namespace weft::model {

Status configure_mistral3(const KeyReader& keys, ModelConfig& config) {
  WEFT_RETURN_IF_ERROR(add_rope(keys, kernels::RopePairing::kNorm, config));
  WEFT_RETURN_IF_ERROR(add_windows(keys, {}, config));
  WEFT_ASSIGN_OR_RETURN(config.temperature_factor,
                        keys.not_negative_or("attention.temperature_scale", 0));
  WEFT_ASSIGN_OR_RETURN(
      config.temperature_tokens,
      keys.integer_or("rope.scaling.original_context_length", config.context_length, 1, 1 << 28));
  return add_experts(keys, config);
}

}  // namespace weft::model
