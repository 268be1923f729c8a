// A name such as Q4_K_M promises that the file is the one that everybody means by it, of the same
// size and quality; so this follows llama.cpp's src/llama-quant.cpp, oddities included. Which
// tensors get more bits (attn_v and ffn_down in some layers, the output matrix always) is
// experience, not theory, and nothing is improved on here.
//
// For Q4_K_M over eight layers attn_v and ffn_down are (6 for Q6_K): 6 4 4 6 4 4 6 6.
#include "gguf/recipe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

#include "base/ascii.h"
#include "base/narrow.h"

namespace weft::gguf {
namespace {

constexpr std::array kRecipes{
    Recipe{"F32", DType::kF32, 0},      Recipe{"F16", DType::kF16, 1},
    Recipe{"BF16", DType::kBF16, 32},   Recipe{"Q8_0", DType::kQ8_0, 7},
    Recipe{"Q4_0", DType::kQ4_0, 2},    Recipe{"Q4_1", DType::kQ4_1, 3},
    Recipe{"Q5_0", DType::kQ5_0, 8},    Recipe{"Q5_1", DType::kQ5_1, 9},
    Recipe{"Q4_K_S", DType::kQ4_K, 14}, Recipe{"Q4_K_M", DType::kQ4_K, 15},
    Recipe{"Q5_K_S", DType::kQ5_K, 16}, Recipe{"Q5_K_M", DType::kQ5_K, 17},
    Recipe{"Q6_K", DType::kQ6_K, 18},
};

/// What a tensor is for, as far as the mixes distinguish it.
enum class Part {
  kOutput,
  kEmbedding,
  kAttentionV,
  kAttentionK,
  kAttentionOutput,
  kFfnDown,
  kOther
};

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// By parts of the name, since the experts' and other architectures' names have more around them:
/// "blk.3.ffn_down_exps.weight" is kFfnDown.
Part part_of(std::string_view name) {
  if (name == "output.weight") return Part::kOutput;
  if (name == "token_embd.weight" || name == "per_layer_token_embd.weight") return Part::kEmbedding;
  for (const std::string_view v : {"attn_qkv.weight", "attn_kv_b.weight", "attn_v.weight"}) {
    if (contains(name, v)) return Part::kAttentionV;
  }
  if (contains(name, "attn_k.weight")) return Part::kAttentionK;
  if (contains(name, "attn_output.weight")) return Part::kAttentionOutput;
  if (contains(name, "ffn_down")) return Part::kFfnDown;
  return Part::kOther;
}

/// Matrices, but none that is small and sensitive.
bool is_quantisable(const TensorInfo& tensor) {
  static constexpr std::array<std::string_view, 6> kKept{
      "_norm.weight", "ffn_gate_inp.weight",  "altup",
      "laurel",       "per_layer_model_proj", "ssm_conv1d"};
  if (tensor.n_rows() == 1 || !tensor.name.ends_with("weight")) return false;
  return std::none_of(kKept.begin(), kKept.end(),
                      [&](std::string_view kept) { return contains(tensor.name, kept); });
}

/// N of "blk.N.…"; a large number for names of another form.
int64_t layer_of(std::string_view name) {
  constexpr int64_t kNone = int64_t{1} << 40;
  if (!name.starts_with("blk.")) return kNone;
  uint32_t layer = 0;
  const auto [end, error] = std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  return error == std::errc() && end != name.data() + name.size() && *end == '.' ? layer : kNone;
}

/// The layers to which an "_M" mix gives more bits: the first and last eighths and every third
/// between.
bool wants_more_bits(int64_t i, int64_t n) {
  return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

bool fits(DType dtype, int64_t row) { return row % dtype_info(dtype).block_elements == 0; }

/// For rows that are no multiple of 256 (SmolLM2's 576): a type in blocks of 32 with at least as
/// many bits. It makes such files larger than their name says.
DType smaller_block(DType dtype) {
  switch (dtype) {
    case DType::kQ4_K:
      return DType::kQ5_0;
    case DType::kQ5_K:
      return DType::kQ5_1;
    case DType::kQ6_K:
      return DType::kQ8_0;
    default:
      return DType::kF16;
  }
}

/// What the mixes look at besides a tensor's name.
struct Shape {
  int64_t n_layers = 0;
  int64_t n_experts = 0;
  int64_t n_attention_v = 0;
  bool tied = true;                    // the embeddings are the output matrix as well
  bool has_small_attention_v = false;  // 70B models: an eighth of attn_q, so more bits cost little
};

Result<Shape> shape_of(const File& file) {
  WEFT_ASSIGN_OR_RETURN(const std::string_view architecture,
                        file.get_string_or("general.architecture", ""));
  const std::string prefix = std::string(architecture) + ".";
  Shape shape;
  WEFT_ASSIGN_OR_RETURN(const uint64_t n_layers, file.get_uint_or(prefix + "block_count", 0));
  WEFT_ASSIGN_OR_RETURN(const uint64_t n_experts, file.get_uint_or(prefix + "expert_count", 0));
  // Hostile counts are cut, not refused: opening the model is where they are an error.
  shape.n_layers = narrow<int64_t>(std::min<uint64_t>(n_layers, 1u << 20));
  shape.n_experts = narrow<int64_t>(std::min<uint64_t>(n_experts, 1u << 20));
  shape.tied = file.find_tensor("output.weight") == nullptr;
  shape.has_small_attention_v =
      n_layers == 80 && (architecture == "llama" || architecture == "qwen2");
  for (const TensorInfo& tensor : file.tensors()) {
    shape.n_attention_v += part_of(tensor.name) == Part::kAttentionV ? 1 : 0;
  }
  return shape;
}

/// Chooses for one tensor after another, in the order of layers: the mixes go by how many of a kind
/// came before.
class Chooser {
 public:
  Chooser(const Recipe& recipe, const Shape& shape) : recipe_(recipe), shape_(shape) {}

  DType choose(const TensorInfo& tensor) {
    const Part part = part_of(tensor.name);
    if (part == Part::kOutput || (part == Part::kEmbedding && shape_.tied)) {
      return fits(recipe_.base, tensor.dims[0]) && recipe_.base != DType::kQ8_0 ? DType::kQ6_K
                                                                                : DType::kQ8_0;
    }
    if (part == Part::kAttentionV) return attention_v();
    if (part == Part::kFfnDown) return ffn_down(tensor);
    if (shape_.n_experts == 8) {
      if (part == Part::kAttentionK) return DType::kQ8_0;
      if (part == Part::kAttentionOutput && recipe_.base == DType::kQ4_K) return DType::kQ5_K;
    }
    return recipe_.base;
  }

 private:
  bool is(std::string_view name) const { return recipe_.name == name; }
  bool is_medium() const { return recipe_.name.ends_with("_K_M"); }

  /// Eight experts (Mixtral) first: beside them attn_v is small, and Q8_0 costs little.
  DType attention_v() {
    const int64_t i = n_attention_v_++;
    if (shape_.n_experts == 8) return DType::kQ8_0;
    if (is_medium() && wants_more_bits(i, shape_.n_attention_v)) return DType::kQ6_K;
    if (is("Q4_K_S") && i < 4) return DType::kQ5_K;
    return shape_.has_small_attention_v && recipe_.base == DType::kQ4_K ? DType::kQ5_K
                                                                        : recipe_.base;
  }

  /// With experts by the layer's number in the name, else by how many came before, as llama.cpp
  /// does: old files of Mixtral have a matrix for each expert, and not in the order of layers.
  DType ffn_down(const TensorInfo& tensor) {
    const int64_t nth = n_ffn_down_++;
    const int64_t i = shape_.n_experts > 1 ? layer_of(tensor.name) : nth;
    if (is_medium() && wants_more_bits(i, shape_.n_layers)) return DType::kQ6_K;
    if (is("Q4_K_S") && i < shape_.n_layers / 8) return DType::kQ5_K;
    return recipe_.base;
  }

  const Recipe& recipe_;
  const Shape& shape_;
  int64_t n_attention_v_ = 0, n_ffn_down_ = 0;
};

}  // namespace

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const Recipe& recipe : kRecipes) names.emplace_back(recipe.name);
  return names;
}

Result<Recipe> find_recipe(std::string_view name) {
  std::string upper(name);
  for (char& c : upper) c = ascii_upper(c);
  if (upper == "Q4_K" || upper == "Q5_K") upper += "_M";
  for (const Recipe& recipe : kRecipes) {
    if (recipe.name == upper) return recipe;
  }
  return invalid_argument(fmt::format("type {}: must be {}, or Q4_K or Q5_K for their _M mixes",
                                      printable(name), fmt::join(recipe_names(), ", ")));
}

// In the order of layers whatever the file's (by names "blk.10" comes before "blk.2"), since the
// Chooser counts as llama.cpp does. What has no layer (embeddings, output) comes last, where no
// count depends on it.
Result<std::vector<TensorPlan>> plan_tensors(const File& file, const Recipe& recipe) {
  WEFT_ASSIGN_OR_RETURN(const Shape shape, shape_of(file));
  const std::span<const TensorInfo> tensors = file.tensors();
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return layer_of(tensors[a].name) < layer_of(tensors[b].name);
  });
  Chooser chooser(recipe, shape);
  std::vector<TensorPlan> plans(tensors.size());
  for (const size_t i : order) {
    const TensorInfo& tensor = tensors[i];
    TensorPlan& plan = plans[i];
    plan.dtype = tensor.dtype;
    if (!is_quantisable(tensor)) continue;
    plan.dtype = is_quantised(recipe.base) ? chooser.choose(tensor) : recipe.base;
    plan.fell_back = !fits(plan.dtype, tensor.dims[0]);
    if (plan.fell_back) plan.dtype = smaller_block(plan.dtype);
    if (!fits(plan.dtype, tensor.dims[0])) plan.dtype = DType::kF16;
  }
  return plans;
}

}  // namespace weft::gguf
