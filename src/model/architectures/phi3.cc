// Phi 3, 3.5 and 4: the projections to Q, K and V lie in one tensor, gate and up in another; long
// contexts by LongRoPE; where the file states a window, every layer has it.
#include "model/architecture.h"

namespace weft::model {

Status configure_phi3(const KeyReader& keys, ModelConfig& config) {
  config.has_fused_projections = true;
  WEFT_RETURN_IF_ERROR(add_rope(keys, kernels::RopePairing::kNeox, config));
  return add_windows(keys, {}, config);
}

}  // namespace weft::model
