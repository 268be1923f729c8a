// Gemma 2 (technical report, 2024): norms on both sides of each block, soft caps on scores and
// logits, every other layer with a sliding window.
#include <cmath>

#include "model/architecture.h"

namespace weft::model {

Status configure_gemma2(const KeyReader& keys, ModelConfig& config) {
  constexpr int32_t kLayers27B = 46;  // this one divides by the width that a head would have
  config.activation = Activation::kGelu;
  config.has_post_norms = true;
  const float n_embd = config.n_embd;
  config.embedding_scale = std::sqrt(n_embd);
  const float head_width =
      config.n_layers == kLayers27B ? config.n_embd / config.n_heads : config.head_dim;
  config.attention_scale = 1.0f / std::sqrt(head_width);
  WEFT_ASSIGN_OR_RETURN(config.attention_softcap,
                        keys.not_negative_or("attn_logit_softcapping", 50));
  WEFT_ASSIGN_OR_RETURN(config.logit_softcap, keys.not_negative_or("final_logit_softcapping", 30));
  WEFT_RETURN_IF_ERROR(add_rope(keys, kernels::RopePairing::kNeox, config));
  return add_windows(keys, {.default_window_tokens = 4096, .period = 2}, config);
}

}  // namespace weft::model
