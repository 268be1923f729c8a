// Gemma 3 (technical report, 2025): five layers with a sliding window to one that sees everything;
// the windowed ones rotate with a base of their own and without scaling. Q and K are normalised
// per head, blocks on both sides.
#include <cmath>

#include "model/architecture.h"

namespace weft::model {

Status configure_gemma3(const KeyReader& keys, ModelConfig& config) {
  constexpr int32_t kLayers27B = 62;  // this one divides by the width that a head would have
  config.activation = Activation::kGelu;
  config.has_qk_norm = true;
  config.has_post_norms = true;
  const float n_embd = config.n_embd;
  config.embedding_scale = std::sqrt(n_embd);
  const float head_width =
      config.n_layers == kLayers27B ? config.n_embd / config.n_heads : config.head_dim;
  config.attention_scale = 1.0f / std::sqrt(head_width);
  WEFT_ASSIGN_OR_RETURN(config.logit_softcap, keys.not_negative_or("final_logit_softcapping", 0));
  WEFT_RETURN_IF_ERROR(add_rope(keys, kernels::RopePairing::kNeox, config));
  WEFT_RETURN_IF_ERROR(add_windows(keys, {.period = 6}, config));
  WEFT_ASSIGN_OR_RETURN(const double window_base, keys.positive_or("rope.freq_base_swa", 10000));
  const int32_t window_rope = add_plain_rope(kernels::RopePairing::kNeox, window_base, config);
  for (LayerConfig& layer : config.layers) {
    if (layer.window_tokens != 0) layer.rope = window_rope;
  }
  return Status::ok();
}

}  // namespace weft::model
