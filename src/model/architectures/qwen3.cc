// Qwen 3: Q and K are normalised per head, and heads need not be n_embd / n_heads wide.
#include "model/architecture.h"

namespace weft::model {

Status configure_qwen3(const KeyReader& keys, ModelConfig& config) {
  config.has_qk_norm = true;
  return add_rope(keys, kernels::RopePairing::kNeox, config);
}

}  // namespace weft::model
