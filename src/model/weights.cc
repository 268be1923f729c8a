// Tensors by their names in GGUF (ggml's docs/gguf.md, Standardized tensor names), each with the
// shape that the keys say. Matrices stay in the mapped file in their own type; vectors, which are
// small, become floats. A tensor that nobody asked for is a warning, or an error where it would
// change the result: running a model without its biases gives fluent nonsense.
#include "model/weights.h"

#include <fmt/format.h>

#include <set>
#include <string>

#include "base/log.h"
#include "kernels/dequantize.h"

namespace weft::model {
namespace {

/// Finds tensors, checks their shapes and remembers which were asked for.
class TensorReader {
 public:
  explicit TensorReader(const gguf::File& file) : file_(file) {}

  /// [out_features, in_features], rows one after another in the file's type; refers to the mapping.
  Result<WeightMatrix> matrix(const std::string& name, int64_t out_features, int64_t in_features) {
    WEFT_ASSIGN_OR_RETURN(const gguf::TensorInfo* info, find(name));
    if (info->n_dims != 2 || info->dims[0] != in_features || info->dims[1] != out_features) {
      return wrong_shape(*info, fmt::format("[{}, {}]", in_features, out_features));
    }
    return WeightMatrix{info->data, info->dtype, out_features, in_features};
  }

  /// The matrices [n][out_features, in_features] of one tensor.
  Result<std::vector<WeightMatrix>> stack(const std::string& name, int64_t n, int64_t out_features,
                                          int64_t in_features) {
    WEFT_ASSIGN_OR_RETURN(const gguf::TensorInfo* info, find(name));
    if (info->dims[0] != in_features || info->dims[1] != out_features || info->dims[2] != n ||
        info->dims[3] != 1) {
      return wrong_shape(*info, fmt::format("[{}, {}, {}]", in_features, out_features, n));
    }
    std::vector<WeightMatrix> matrices;
    const int64_t bytes = out_features * row_bytes(info->dtype, in_features);
    for (int64_t i = 0; i < n; ++i) {
      matrices.push_back({info->data + i * bytes, info->dtype, out_features, in_features});
    }
    return matrices;
  }

  /// A norm's or a bias's n values as floats. By the baseline kernels: the same on every machine.
  Result<AlignedBuffer<float>> vector(const std::string& name, int64_t n) {
    WEFT_ASSIGN_OR_RETURN(const gguf::TensorInfo* info, find(name));
    if (info->n_dims != 1 || info->dims[0] != n) return wrong_shape(*info, fmt::format("[{}]", n));
    AlignedBuffer<float> values(n);
    kernels::dequantize(kernels::Isa::kBaseline, info->dtype, info->data, values.data(), n);
    return values;
  }

  /// Empty where the file has no such tensor.
  Result<AlignedBuffer<float>> optional_vector(const std::string& name, int64_t n) {
    if (file_.find_tensor(name) == nullptr) return AlignedBuffer<float>();
    return vector(name, n);
  }

  /// What the file holds beyond what was asked for.
  Status check_surplus() const {
    for (const gguf::TensorInfo& info : file_.tensors()) {
      const std::string name(info.name);
      if (used_.count(name) != 0 || name.starts_with("rope_f")) continue;
      if (name.ends_with(".bias") || name.ends_with("_norm.weight")) {
        return unsupported(
            fmt::format("{}: tensor '{}': weft does not know what to do with it in "
                        "this architecture",
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

  /// kCorrupt; dimensions as GGUF lists them, the innermost first.
  Status wrong_shape(const gguf::TensorInfo& info, const std::string& wanted) const {
    std::string found;
    for (int i = 0; i < info.n_dims; ++i) {
      found += fmt::format("{}{}", i == 0 ? "" : ", ", info.dims[i]);
    }
    return corrupt(fmt::format("{}: tensor '{}' has the shape [{}], the hyper-parameters say {}",
                               file_.path(), info.name, found, wanted));
  }

  const gguf::File& file_;
  std::set<std::string> used_;
};

/// Reads the tensors `blk.{layer}.*`.
class LayerReader {
 public:
  LayerReader(TensorReader& tensors, const ModelConfig& config, int32_t layer)
      : tensors_(tensors), config_(config), prefix_(fmt::format("blk.{}.", layer)) {}

  Result<LayerWeights> read() {
    LayerWeights w;
    const int64_t n_embd = config_.n_embd;
    WEFT_ASSIGN_OR_RETURN(w.attention_norm, tensors_.vector(name("attn_norm"), n_embd));
    WEFT_RETURN_IF_ERROR(read_projections(w));
    WEFT_ASSIGN_OR_RETURN(w.o, tensors_.matrix(name("attn_output"), n_embd, config_.q_width()));
    WEFT_RETURN_IF_ERROR(read_biases(w));
    if (config_.has_qk_norm) {
      WEFT_ASSIGN_OR_RETURN(w.q_norm, tensors_.vector(name("attn_q_norm"), config_.head_dim));
      WEFT_ASSIGN_OR_RETURN(w.k_norm, tensors_.vector(name("attn_k_norm"), config_.head_dim));
    }
    WEFT_ASSIGN_OR_RETURN(w.ffn_norm, tensors_.vector(name("ffn_norm"), n_embd));
    WEFT_RETURN_IF_ERROR(config_.n_experts > 0 ? read_experts(w) : read_dense(w));
    if (config_.has_post_norms) {
      WEFT_ASSIGN_OR_RETURN(w.post_attention_norm,
                            tensors_.vector(name("post_attention_norm"), n_embd));
      WEFT_ASSIGN_OR_RETURN(w.post_ffn_norm, tensors_.vector(name("post_ffw_norm"), n_embd));
    }
    return w;
  }

 private:
  std::string name(const char* part) const { return prefix_ + part + ".weight"; }
  std::string bias(const char* part) const { return prefix_ + part + ".bias"; }

  /// Q, K and V, as three tensors or, as Phi 3 has them, as the rows of one.
  Status read_projections(LayerWeights& w) {
    const int64_t q = config_.q_width(), kv = config_.kv_width();
    if (config_.has_fused_projections) {
      WEFT_ASSIGN_OR_RETURN(const WeightMatrix qkv,
                            tensors_.matrix(name("attn_qkv"), q + 2 * kv, config_.n_embd));
      w.q = qkv.row_range(0, q);
      w.k = qkv.row_range(q, kv);
      w.v = qkv.row_range(q + kv, kv);
      return Status::ok();
    }
    WEFT_ASSIGN_OR_RETURN(w.q, tensors_.matrix(name("attn_q"), q, config_.n_embd));
    WEFT_ASSIGN_OR_RETURN(w.k, tensors_.matrix(name("attn_k"), kv, config_.n_embd));
    WEFT_ASSIGN_OR_RETURN(w.v, tensors_.matrix(name("attn_v"), kv, config_.n_embd));
    return Status::ok();
  }

  /// Some files of any architecture have them; a few architectures must.
  Status read_biases(LayerWeights& w) {
    const auto read = [&](const char* part, int64_t n) {
      return config_.needs_qkv_bias ? tensors_.vector(bias(part), n)
                                    : tensors_.optional_vector(bias(part), n);
    };
    WEFT_ASSIGN_OR_RETURN(w.q_bias, read("attn_q", config_.q_width()));
    WEFT_ASSIGN_OR_RETURN(w.k_bias, read("attn_k", config_.kv_width()));
    WEFT_ASSIGN_OR_RETURN(w.v_bias, read("attn_v", config_.kv_width()));
    WEFT_ASSIGN_OR_RETURN(w.o_bias, tensors_.optional_vector(bias("attn_output"), config_.n_embd));
    return Status::ok();
  }

  /// Gate, up and down; Phi 3 has gate and up as the halves of one tensor.
  Status read_dense(LayerWeights& w) {
    FeedForwardWeights& ffn = w.experts.emplace_back();
    const int64_t n_embd = config_.n_embd, n_ff = config_.n_ff;
    if (config_.has_fused_projections) {
      WEFT_ASSIGN_OR_RETURN(const WeightMatrix both,
                            tensors_.matrix(name("ffn_up"), 2 * n_ff, n_embd));
      ffn.gate = both.row_range(0, n_ff);
      ffn.up = both.row_range(n_ff, n_ff);
    } else {
      WEFT_ASSIGN_OR_RETURN(ffn.gate, tensors_.matrix(name("ffn_gate"), n_ff, n_embd));
      WEFT_ASSIGN_OR_RETURN(ffn.up, tensors_.matrix(name("ffn_up"), n_ff, n_embd));
    }
    WEFT_ASSIGN_OR_RETURN(ffn.down, tensors_.matrix(name("ffn_down"), n_embd, n_ff));
    return Status::ok();
  }

  /// A tensor of gates, of ups and of downs has all experts' matrices one after another.
  Status read_experts(LayerWeights& w) {
    const int64_t n = config_.n_experts, n_embd = config_.n_embd, n_ff = config_.n_ff;
    WEFT_ASSIGN_OR_RETURN(w.router, tensors_.matrix(name("ffn_gate_inp"), n, n_embd));
    WEFT_ASSIGN_OR_RETURN(const auto gates, tensors_.stack(name("ffn_gate_exps"), n, n_ff, n_embd));
    WEFT_ASSIGN_OR_RETURN(const auto ups, tensors_.stack(name("ffn_up_exps"), n, n_ff, n_embd));
    WEFT_ASSIGN_OR_RETURN(const auto downs, tensors_.stack(name("ffn_down_exps"), n, n_embd, n_ff));
    for (size_t i = 0; i < gates.size(); ++i) w.experts.push_back({gates[i], ups[i], downs[i]});
    return Status::ok();
  }

  TensorReader& tensors_;
  const ModelConfig& config_;
  std::string prefix_;
};

}  // namespace

Result<Weights> read_weights(const gguf::File& file, const ModelConfig& config) {
  TensorReader tensors(file);
  Weights weights;
  WEFT_ASSIGN_OR_RETURN(weights.token_embedding,
                        tensors.matrix("token_embd.weight", config.vocab_size, config.n_embd));
  for (int32_t layer = 0; layer < config.n_layers; ++layer) {
    WEFT_ASSIGN_OR_RETURN(LayerWeights w, LayerReader(tensors, config, layer).read());
    weights.layers.push_back(std::move(w));
  }
  WEFT_ASSIGN_OR_RETURN(weights.output_norm, tensors.vector("output_norm.weight", config.n_embd));
  // Tied: SmolLM2 and Gemma have no output matrix of their own.
  weights.output = weights.token_embedding;
  if (file.find_tensor("output.weight") != nullptr) {
    WEFT_ASSIGN_OR_RETURN(weights.output,
                          tensors.matrix("output.weight", config.vocab_size, config.n_embd));
  }
  WEFT_RETURN_IF_ERROR(tensors.check_surplus());
  return weights;
}

}  // namespace weft::model
