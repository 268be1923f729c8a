// llama 1 to 3, and what shares its shape: Mistral 7B, SmolLM2, TinyLlama, Yi; with experts
// Mixtral.
#include "model/architecture.h"

namespace weft::model {

Status configure_llama(const KeyReader& keys, ModelConfig& config) {
  WEFT_RETURN_IF_ERROR(add_rope(keys, kernels::RopePairing::kNorm, config));
  WEFT_RETURN_IF_ERROR(add_windows(keys, {}, config));
  return add_experts(keys, config);
}

}  // namespace weft::model
