// Qwen 2 and 2.5: llama with biases on the projections to Q, K and V.
#include "model/architecture.h"

namespace weft::model {

Status configure_qwen2(const KeyReader& keys, ModelConfig& config) {
  config.needs_qkv_bias = true;
  return add_rope(keys, kernels::RopePairing::kNeox, config);
}

}  // namespace weft::model
