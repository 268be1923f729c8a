#include "gguf/random_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>

#include "gguf/quantise.h"
#include "gguf/writer.h"

namespace weft::gguf {
namespace {

struct Recipe {
  std::string_view name;
  DType base;
  bool more_bits;      // Q6_K for attn_v and ffn_down of some layers ("_M")
  uint32_t file_type;  // general.file_type
};
constexpr std::array kRecipes{
    Recipe{"F32", DType::kF32, false, 0},     Recipe{"F16", DType::kF16, false, 1},
    Recipe{"BF16", DType::kBF16, false, 32},  Recipe{"Q8_0", DType::kQ8_0, false, 7},
    Recipe{"Q4_0", DType::kQ4_0, false, 2},   Recipe{"Q4_1", DType::kQ4_1, false, 3},
    Recipe{"Q5_0", DType::kQ5_0, false, 8},   Recipe{"Q5_1", DType::kQ5_1, false, 9},
    Recipe{"Q4_K_M", DType::kQ4_K, true, 15}, Recipe{"Q5_K_M", DType::kQ5_K, true, 17},
    Recipe{"Q6_K", DType::kQ6_K, false, 18},
};

/// SplitMix64 (Steele, Lea, Flood 2014), with normal numbers by Box and Muller.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  /// Uniform in [0, n).
  size_t below(size_t n) {
    return static_cast<size_t>((static_cast<unsigned __int128>(next()) * n) >> 64);
  }

  void fill_normal(std::span<float> out, float mean, float deviation) {
    for (size_t i = 0; i < out.size(); i += 2) {
      const uint64_t bits = next();
      const float u = (static_cast<float>(bits >> 40) + 1.0f) * 0x1p-24f;  // (0, 1]
      const float v = static_cast<float>(bits & 0xffffffu) * 0x1p-24f;
      const float radius = deviation * std::sqrt(-2.0f * std::log(u));
      const float angle = 2.0f * std::numbers::pi_v<float> * v;
      out[i] = mean + radius * std::cos(angle);
      if (i + 1 < out.size()) out[i + 1] = mean + radius * std::sin(angle);
    }
  }

 private:
  uint64_t state_;
};

/// One tensor to write.
struct Plan {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;
  float mean = 0.0f;
  float deviation = 0.0f;
  std::span<const float> values;  // not random: these
};

DType fallback(DType dtype, int64_t row) {
  if (row % dtype_info(dtype).block_elements == 0) return dtype;
  const DType narrow = dtype == DType::kQ4_K   ? DType::kQ5_0
                       : dtype == DType::kQ5_K ? DType::kQ5_1
                       : dtype == DType::kQ6_K ? DType::kQ8_0
                                               : DType::kF16;
  return row % dtype_info(narrow).block_elements == 0 ? narrow : DType::kF16;
}

/// The layers whose attn_v and ffn_down an "_M" recipe keeps in Q6_K: the first and last eighths
/// and every third between.
bool more_bits_in(int64_t layer, int64_t n_layers) {
  return layer < n_layers / 8 || layer >= 7 * n_layers / 8 || (layer - n_layers / 8) % 3 == 2;
}

DType output_dtype(const Recipe& recipe, int64_t row) {
  if (!is_quantised(recipe.base)) return recipe.base;
  if (recipe.base == DType::kQ8_0 || row % dtype_info(recipe.base).block_elements != 0) {
    return fallback(DType::kQ8_0, row);
  }
  return fallback(DType::kQ6_K, row);
}

std::vector<Plan> plan_tensors(const RandomLlamaOptions& o, const Recipe& recipe) {
  std::vector<Plan> plans;
  const auto matrix = [&](std::string name, DType dtype, int64_t row, int64_t n_rows) {
    const float deviation = 1.0f / std::sqrt(static_cast<float>(row));
    plans.push_back({std::move(name), dtype, {row, n_rows}, 0.0f, deviation, {}});
  };
  const auto norm = [&](std::string name) {
    plans.push_back({std::move(name), DType::kF32, {o.n_embd}, 1.0f, 0.1f, {}});
  };
  const DType output = output_dtype(recipe, o.n_embd);
  const DType embedding = o.tied ? output : fallback(recipe.base, o.n_embd);
  const int64_t q_width = o.n_heads * o.head_dim;
  const int64_t kv_width = o.n_kv_heads * o.head_dim;
  matrix("token_embd.weight", embedding, o.n_embd, o.vocab);
  if (!o.rope_freqs.empty()) {
    plans.push_back({"rope_freqs.weight", DType::kF32, {o.head_dim / 2}, 0.0f, 0.0f, o.rope_freqs});
  }
  for (int64_t layer = 0; layer < o.n_layers; ++layer) {
    const DType base_embd = fallback(recipe.base, o.n_embd);
    const bool more = recipe.more_bits && more_bits_in(layer, o.n_layers);
    const DType wide = more ? DType::kQ6_K : recipe.base;
    const std::string prefix = fmt::format("blk.{}.", layer);
    norm(prefix + "attn_norm.weight");
    matrix(prefix + "attn_q.weight", base_embd, o.n_embd, q_width);
    matrix(prefix + "attn_k.weight", base_embd, o.n_embd, kv_width);
    matrix(prefix + "attn_v.weight", fallback(wide, o.n_embd), o.n_embd, kv_width);
    matrix(prefix + "attn_output.weight", fallback(recipe.base, q_width), q_width, o.n_embd);
    norm(prefix + "ffn_norm.weight");
    matrix(prefix + "ffn_gate.weight", base_embd, o.n_embd, o.n_ff);
    matrix(prefix + "ffn_up.weight", base_embd, o.n_embd, o.n_ff);
    matrix(prefix + "ffn_down.weight", fallback(wide, o.n_ff), o.n_ff, o.n_embd);
  }
  norm("output_norm.weight");
  if (!o.tied) matrix("output.weight", output, o.n_embd, o.vocab);
  return plans;
}

/// Byte-level BPE's letter for a byte (GPT-2): printable Latin-1 is itself, the others follow from
/// U+0100 in order.
std::vector<std::string> byte_letters() {
  std::vector<std::string> letters;
  uint32_t others = 0;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable_byte = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    const uint32_t c = printable_byte ? byte : 0x100 + others++;
    if (c < 0x80) {
      letters.emplace_back(1, static_cast<char>(c));
    } else {
      letters.push_back({static_cast<char>(0xc0 | (c >> 6)), static_cast<char>(0x80 | (c & 0x3f))});
    }
  }
  return letters;
}

void add_tokenizer(HeaderBuilder& header, int64_t vocab) {
  constexpr int32_t kNormal = 1, kControl = 3;
  std::vector<std::string> tokens{"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  std::vector<int32_t> types(tokens.size(), kControl);
  for (std::string& letter : byte_letters()) tokens.push_back(std::move(letter));
  const std::string space = "\xc4\xa0";
  const std::vector<std::array<std::string, 2>> pairs{
      {space, "t"}, {"h", "e"}, {space + "t", "he"}, {"i", "n"},  {space, "a"},
      {"e", "r"},   {"o", "n"}, {space + "a", "n"},  {"in", "g"}, {"r", "e"}};
  std::vector<std::string> merges;
  for (const auto& [left, right] : pairs) {
    tokens.push_back(left + right);
    merges.push_back(left + " " + right);
  }
  for (auto i = static_cast<int64_t>(tokens.size()); i < vocab; ++i) {
    tokens.push_back(fmt::format("[{}]", i));
  }
  types.resize(tokens.size(), kNormal);
  header.add_string("tokenizer.ggml.model", "gpt2");
  header.add_string("tokenizer.ggml.pre", "smollm");
  header.add_strings("tokenizer.ggml.tokens", tokens);
  header.add_array<int32_t>("tokenizer.ggml.token_type", types);
  header.add_strings("tokenizer.ggml.merges", merges);
  header.add<uint32_t>("tokenizer.ggml.bos_token_id", 1);
  header.add<uint32_t>("tokenizer.ggml.eos_token_id", 2);
  header.add<bool>("tokenizer.ggml.add_bos_token", false);
  header.add<bool>("tokenizer.ggml.add_space_prefix", false);
}

void add_hyperparameters(HeaderBuilder& header, const RandomLlamaOptions& o, const Recipe& recipe) {
  const auto add = [&](std::string_view key, int64_t value) {
    header.add<uint32_t>(fmt::format("llama.{}", key), static_cast<uint32_t>(value));
  };
  header.add_string("general.architecture", "llama");
  header.add_string("general.name", fmt::format("random {}", recipe.name));
  header.add<uint32_t>("general.file_type", recipe.file_type);
  if (is_quantised(recipe.base)) header.add<uint32_t>("general.quantization_version", 2);
  add("block_count", o.n_layers);
  add("context_length", o.context_length);
  add("embedding_length", o.n_embd);
  add("feed_forward_length", o.n_ff);
  add("attention.head_count", o.n_heads);
  add("attention.head_count_kv", o.n_kv_heads);
  add("attention.key_length", o.head_dim);
  add("attention.value_length", o.head_dim);
  add("rope.dimension_count", o.head_dim);
  add("vocab_size", o.vocab);
  header.add<float>("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  header.add<float>("llama.rope.freq_base", o.rope_base);
  if (o.rope_linear_factor != 1.0f) {
    header.add_string("llama.rope.scaling.type", "linear");
    header.add<float>("llama.rope.scaling.factor", o.rope_linear_factor);
  }
}

/// Random units (a K-quant's block, or 32 elements) are made up to a pool's size; a longer tensor
/// goes on with units drawn from its pool, which is as fast as the disk.
Status write_tensor(Writer& writer, const Plan& plan, Random& random) {
  if (!plan.values.empty()) return writer.append(std::as_bytes(plan.values));
  constexpr size_t kPoolElements = 1u << 17;
  constexpr size_t kBufferBytes = 1u << 20;
  const auto unit = static_cast<size_t>(std::max(32, dtype_info(plan.dtype).block_elements));
  const auto unit_bytes = static_cast<size_t>(row_bytes(plan.dtype, static_cast<int64_t>(unit)));
  uint64_t left = static_cast<uint64_t>(row_bytes(plan.dtype, plan.dims[0]));
  for (size_t d = 1; d < plan.dims.size(); ++d) left *= static_cast<uint64_t>(plan.dims[d]);

  const size_t n_units = static_cast<size_t>((left + unit_bytes - 1) / unit_bytes);
  const size_t n_pool = std::min(n_units, kPoolElements / unit);
  std::vector<float> values(n_pool * unit);
  random.fill_normal(values, plan.mean, plan.deviation);
  std::vector<std::byte> pool(n_pool * unit_bytes);
  quantise(plan.dtype, values, pool.data());

  const auto first = static_cast<size_t>(std::min<uint64_t>(left, pool.size()));
  WEFT_RETURN_IF_ERROR(writer.append(std::span(pool).first(first)));
  left -= first;
  std::vector<std::byte> buffer(kBufferBytes / unit_bytes * unit_bytes);
  while (left > 0) {
    for (size_t at = 0; at < buffer.size(); at += unit_bytes) {
      std::memcpy(buffer.data() + at, pool.data() + random.below(n_pool) * unit_bytes, unit_bytes);
    }
    const auto n = static_cast<size_t>(std::min<uint64_t>(left, buffer.size()));
    WEFT_RETURN_IF_ERROR(writer.append(std::span(buffer).first(n)));
    left -= n;
  }
  return Status::ok();
}

Status check(const RandomLlamaOptions& o) {
  struct Bound {
    const char* name;
    int64_t value, low, high;
  };
  for (const Bound& b : {Bound{"n_layers", o.n_layers, 1, 1000},
                         {"n_embd", o.n_embd, 1, 1 << 17},
                         {"n_ff", o.n_ff, 1, 1 << 20},
                         {"n_heads", o.n_heads, 1, 1024},
                         {"n_kv_heads", o.n_kv_heads, 1, 1024},
                         {"head_dim", o.head_dim, 2, 1024},
                         {"vocab", o.vocab, 270, 1 << 20},
                         {"context_length", o.context_length, 1, 1 << 30}}) {
    if (b.value < b.low || b.value > b.high) {
      return invalid_argument(fmt::format("random model: {} is {}, must be from {} to {}", b.name,
                                          b.value, b.low, b.high));
    }
  }
  if (o.n_heads % o.n_kv_heads != 0) {
    return invalid_argument(fmt::format("random model: n_heads {} is no multiple of n_kv_heads {}",
                                        o.n_heads, o.n_kv_heads));
  }
  if (o.head_dim % 2 != 0) {
    return invalid_argument(fmt::format("random model: head_dim {} is odd", o.head_dim));
  }
  if (!o.rope_freqs.empty() && static_cast<int64_t>(o.rope_freqs.size()) != o.head_dim / 2) {
    return invalid_argument(fmt::format("random model: rope_freqs has {} numbers, must be {}",
                                        o.rope_freqs.size(), o.head_dim / 2));
  }
  return Status::ok();
}

}  // namespace

Status write_random_llama(Env& env, const std::string& path, const RandomLlamaOptions& options) {
  WEFT_RETURN_IF_ERROR(check(options));
  const auto recipe = std::find_if(kRecipes.begin(), kRecipes.end(),
                                   [&](const Recipe& r) { return r.name == options.recipe; });
  if (recipe == kRecipes.end()) {
    std::string names;
    for (const Recipe& r : kRecipes) names += fmt::format(" {}", r.name);
    return invalid_argument(
        fmt::format("random model: no recipe '{}'; there are{}", options.recipe, names));
  }
  HeaderBuilder header;
  add_hyperparameters(header, options, *recipe);
  add_tokenizer(header, options.vocab);
  const std::vector<Plan> plans = plan_tensors(options, *recipe);
  for (const Plan& plan : plans) header.add_tensor(plan.name, plan.dtype, plan.dims);
  WEFT_ASSIGN_OR_RETURN(Writer writer, Writer::create(env, path, header));
  Random random(options.seed);
  for (const Plan& plan : plans) WEFT_RETURN_IF_ERROR(write_tensor(writer, plan, random));
  return writer.finish();
}

}  // namespace weft::gguf
