#include "model/weights.h"

#include <fmt/format.h>

#include <set>
#include <string>

#include "base/log.h"
#include "kernels/dequantize.h"

namespace weft::model {
namespace {

class TensorReader {
 public:
  explicit TensorReader(const gguf::File& file) : file_(file) {}

  Result<WeightMatrix> matrix(const std::string& name, int64_t out_features, int64_t in_features) {
    WEFT_ASSIGN_OR_RETURN(const gguf::TensorInfo* info, find(name));
    if (info->n_dims != 2 || info->dims[0] != in_features || info->dims[1] != out_features) {
      return wrong_shape(*info, fmt::format("[{}, {}]", in_features, out_features));
    }
    return WeightMatrix{info->data, info->dtype, out_features, in_features};
  }

  Result<AlignedBuffer<float>> vector(const std::string& name, int64_t n) {
    WEFT_ASSIGN_OR_RETURN(const gguf::TensorInfo* info, find(name));
    if (info->n_dims != 1 || info->dims[0] != n) return wrong_shape(*info, fmt::format("[{}]", n));
    AlignedBuffer<float> values(static_cast<size_t>(n));
    kernels::dequantize(kernels::Isa::kBaseline, info->dtype, info->data, values.data(), n);
    return values;
  }

  /// What the file holds beyond what was asked for.
  Status check_surplus() const {
    for (const gguf::TensorInfo& info : file_.tensors()) {
      const std::string name(info.name);
      if (used_.count(name) != 0 || name == "rope_freqs.weight") continue;
      if (name.ends_with(".bias")) {
        return unsupported(fmt::format("{}: tensor '{}': this architecture has no biases",
                                       file_.path(), gguf::printable(name)));
      }
      log_warning(fmt::format("{}: tensor '{}' is not used", file_.path(), gguf::printable(name)));
    }
    return Status::ok();
  }

 private:
  Result<const gguf::TensorInfo*> find(const std::string& name) {
    const gguf::TensorInfo* info = file_.find_tensor(name);
    if (info == nullptr)
      return corrupt(fmt::format("{}: tensor '{}' is missing", file_.path(), name));
    used_.insert(name);
    return info;
  }

  Status wrong_shape(const gguf::TensorInfo& info, const std::string& wanted) const {
    std::string found;
    for (int i = 0; i < static_cast<int>(info.n_dims); ++i) {
      found += fmt::format("{}{}", i == 0 ? "" : ", ", info.dims[static_cast<size_t>(i)]);
    }
    return corrupt(fmt::format("{}: tensor '{}' has the shape [{}], the hyper-parameters say {}",
                               file_.path(), info.name, found, wanted));
  }

  const gguf::File& file_;
  std::set<std::string> used_;
};

Result<LayerWeights> read_layer(TensorReader& tensors, const ModelConfig& config, int32_t layer) {
  const auto name = [&](const char* part) { return fmt::format("blk.{}.{}.weight", layer, part); };
  const int64_t n_embd = config.n_embd;
  LayerWeights w;
  WEFT_ASSIGN_OR_RETURN(w.attention_norm, tensors.vector(name("attn_norm"), n_embd));
  WEFT_ASSIGN_OR_RETURN(w.q, tensors.matrix(name("attn_q"), config.q_width(), n_embd));
  WEFT_ASSIGN_OR_RETURN(w.k, tensors.matrix(name("attn_k"), config.kv_width(), n_embd));
  WEFT_ASSIGN_OR_RETURN(w.v, tensors.matrix(name("attn_v"), config.kv_width(), n_embd));
  WEFT_ASSIGN_OR_RETURN(w.o, tensors.matrix(name("attn_output"), n_embd, config.q_width()));
  WEFT_ASSIGN_OR_RETURN(w.ffn_norm, tensors.vector(name("ffn_norm"), n_embd));
  WEFT_ASSIGN_OR_RETURN(w.gate, tensors.matrix(name("ffn_gate"), config.n_ff, n_embd));
  WEFT_ASSIGN_OR_RETURN(w.up, tensors.matrix(name("ffn_up"), config.n_ff, n_embd));
  WEFT_ASSIGN_OR_RETURN(w.down, tensors.matrix(name("ffn_down"), n_embd, config.n_ff));
  return w;
}

}  // namespace

Result<Weights> read_weights(const gguf::File& file, const ModelConfig& config) {
  TensorReader tensors(file);
  Weights weights;
  WEFT_ASSIGN_OR_RETURN(weights.token_embedding,
                        tensors.matrix("token_embd.weight", config.vocab_size, config.n_embd));
  for (int32_t layer = 0; layer < config.n_layers; ++layer) {
    WEFT_ASSIGN_OR_RETURN(LayerWeights w, read_layer(tensors, config, layer));
    weights.layers.push_back(std::move(w));
  }
  WEFT_ASSIGN_OR_RETURN(weights.output_norm, tensors.vector("output_norm.weight", config.n_embd));
  weights.output = weights.token_embedding;
  if (file.find_tensor("output.weight") != nullptr) {
    WEFT_ASSIGN_OR_RETURN(weights.output,
                          tensors.matrix("output.weight", config.vocab_size, config.n_embd));
  }
  WEFT_RETURN_IF_ERROR(tensors.check_surplus());
  return weights;
}

}  // namespace weft::model
