// Gemma 2 (technical report, 2024): norms on both sides of each block, soft caps on scores and
// logits, every other layer with a sliding window.
#include <cmath>

#include "model/architecture.h"

namespace weft::model {

Status configure_gemma2(const KeyReader& keys, ModelConfig& config) {
  constexpr int32_t kLayers27B = 46;  // this one divides by the width that a head would have
  config.activation = Activation::kGelu;
  config.has_post_norms = true;
  config.embedding_scale = std::sqrt(static_cast<float>(config.n_embd));
  const int32_t head_width =
      config.n_layers == kLayers27B ? config.n_embd / config.n_heads : config.head_dim;
  config.attention_scale = 1.0f / std::sqrt(static_cast<float>(head_width));
  WEFT_ASSIGN_OR_RETURN(const double attention_cap,
                        keys.not_negative_or("attn_logit_softcapping", 50.0));
  WEFT_ASSIGN_OR_RETURN(const double logit_cap,
                        keys.not_negative_or("final_logit_softcapping", 30.0));
  config.attention_softcap = static_cast<float>(attention_cap);
  config.logit_softcap = static_cast<float>(logit_cap);
  WEFT_RETURN_IF_ERROR(add_rope(keys, kernels::RopePairing::kNeox, config));
  return add_windows(keys, {.default_window_tokens = 4096, .period = 2}, config);
}

}  // namespace weft::model
