// The whole file is planned first (names, types, shapes), since a GGUF's table precedes its data;
// then each tensor is written with numbers of the one generator, in the file's order. Nothing
// depends on a library's idea of a distribution: std::normal_distribution gives other numbers
// elsewhere, and tests compare logits of these models with references that were made once and are
// stored.
//
// Random weights are harder on arithmetic than trained ones: in deep random models 8-bit
// activations, llama.cpp's as weft's, move logits by more than 1e-3, and by far more where a router
// takes another expert. The tests' quantised models have two to four layers for that reason.
#include "gguf/random_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/narrow.h"
#include "gguf/quantise.h"
#include "gguf/writer.h"

namespace weft::gguf {
namespace {

/// Not recipe.h's, which plans for a file that is there; here types are chosen before there is one.
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

/// SplitMix64 (Steele, Lea, Flood 2014). Its numbers are made of integers and of operations that
/// IEEE 754 rounds, so that they are the same on every machine.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  /// Uniform in [0, n). The upper half of a 128-bit product (Lemire 2019, without the rejection:
  /// for pools of at most 2^12 units the bias is below 2^-52).
  size_t below(size_t n) { return (static_cast<unsigned __int128>(next()) * n) >> 64; }

  /// Near normal: the sum of four uniform numbers of 16 bits, whose deviation is
  /// sqrt(4 * (2^32 - 1) / 12) = 37837.2; none is farther out than 3.46 deviations.
  void fill_normal(std::span<float> out, float mean, float deviation) {
    const float scale = deviation / 37837.2f;
    for (float& x : out) {
      const uint64_t bits = next();
      const int32_t sum =
          (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
      x = mean + scale * (sum - 2 * 0xffff);
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

/// The type, or where a row of so many elements is not whole blocks of it, one with smaller blocks
/// (recipe.cc has the same rule): Q4_K for rows of 320 becomes Q5_0, for rows of 100 F16.
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

/// Of the matrix that makes the logits: Q6_K in every quantised mix but Q8_0's.
DType output_dtype(const Recipe& recipe, int64_t row) {
  if (!is_quantised(recipe.base)) return recipe.base;
  if (recipe.base == DType::kQ8_0 || row % dtype_info(recipe.base).block_elements != 0) {
    return fallback(DType::kQ8_0, row);
  }
  return fallback(DType::kQ6_K, row);
}

bool is_gemma(const RandomModelOptions& o) {
  return o.architecture == "gemma2" || o.architecture == "gemma3";
}

bool has_head_norms(const RandomModelOptions& o) {
  return o.architecture == "qwen3" || o.architecture == "qwen3moe" || o.architecture == "gemma3";
}

int64_t rope_dims(const RandomModelOptions& o) {
  return o.rope_dims == 0 ? o.head_dim : o.rope_dims;
}

/// Collects a model's tensors in the file's order.
class Planner {
 public:
  Planner(const RandomModelOptions& options, const Recipe& recipe) : o_(options), recipe_(recipe) {}

  std::vector<Plan> plan() {
    const DType output = output_dtype(recipe_, o_.n_embd);
    // gemma multiplies an embedding with sqrt(n_embd); by its tied matrix it would then find the
    // token itself the likeliest successor of every token.
    const float gain = is_gemma(o_) ? 0.25f : 1.0f;
    matrix("token_embd", o_.tied ? output : fallback(recipe_.base, o_.n_embd), o_.n_embd, o_.vocab,
           gain);
    factors("rope_freqs", o_.rope_freqs);
    factors("rope_factors_long", o_.rope_factors_long);
    factors("rope_factors_short", o_.rope_factors_short);
    for (int64_t layer = 0; layer < o_.n_layers; ++layer) {
      prefix_ = fmt::format("blk.{}.", layer);
      const bool more = recipe_.more_bits && more_bits_in(layer, o_.n_layers);
      sensitive_ = more ? DType::kQ6_K : recipe_.base;
      attention();
      feed_forward();
    }
    prefix_.clear();
    norm("output_norm", o_.n_embd, o_.tied ? o_.logit_spread / gain : o_.logit_spread);
    if (!o_.tied) matrix("output", output, o_.n_embd, o_.vocab);
    return std::move(plans_);
  }

 private:
  void random(std::string_view name, DType dtype, std::vector<int64_t> dims, float mean,
              float deviation) {
    plans_.push_back({fmt::format("{}{}", prefix_, name), dtype, std::move(dims), mean, deviation});
  }
  static float root(float width) { return std::sqrt(width); }
  void matrix(std::string_view name, DType dtype, int64_t row, int64_t n_rows, float gain = 1.0f) {
    random(fmt::format("{}.weight", name), fallback(dtype, row), {row, n_rows}, 0.0f,
           gain / root(row));
  }
  void experts(std::string_view name, DType dtype, int64_t row, int64_t n_rows) {
    random(fmt::format("{}_exps.weight", name), fallback(dtype, row), {row, n_rows, o_.n_experts},
           0.0f, 1.0f / root(row));
  }
  /// Not all equal to the mean: a norm that a pass forgets, or applies twice, changes the logits.
  void norm(std::string_view name, int64_t width, float mean = 1.0f) {
    random(fmt::format("{}.weight", name), DType::kF32, {width}, mean, 0.1f * mean);
  }
  void bias(std::string_view name, int64_t width) {
    random(fmt::format("{}.bias", name), DType::kF32, {width}, 0.0f, 0.25f);
  }
  void factors(std::string_view name, std::span<const float> values) {
    if (values.empty()) return;
    plans_.push_back(
        {fmt::format("{}.weight", name), DType::kF32, {std::ssize(values)}, 0, 0, values});
  }

  void attention() {
    const int64_t q_width = o_.n_heads * o_.head_dim;
    const int64_t kv_width = o_.n_kv_heads * o_.head_dim;
    norm("attn_norm", o_.n_embd);
    if (o_.architecture == "phi3") {
      // One matrix: the spread goes into q and k alike, and v with them.
      matrix("attn_qkv", recipe_.base, o_.n_embd, q_width + 2 * kv_width,
             std::sqrt(o_.score_spread));
    } else {
      matrix("attn_q", recipe_.base, o_.n_embd, q_width, has_head_norms(o_) ? 1 : o_.score_spread);
      matrix("attn_k", recipe_.base, o_.n_embd, kv_width);
      matrix("attn_v", sensitive_, o_.n_embd, kv_width);
    }
    const bool biases = o_.biases || o_.architecture == "qwen2";
    if (biases) {
      bias("attn_q", q_width);
      bias("attn_k", kv_width);
      bias("attn_v", kv_width);
    }
    if (has_head_norms(o_)) {
      norm("attn_q_norm", o_.head_dim, o_.score_spread);
      norm("attn_k_norm", o_.head_dim);
    }
    matrix("attn_output", recipe_.base, q_width, o_.n_embd);
    if (o_.biases) bias("attn_output", o_.n_embd);
    if (is_gemma(o_)) norm("post_attention_norm", o_.n_embd);
  }

  void feed_forward() {
    norm("ffn_norm", o_.n_embd);
    if (o_.n_experts > 0) {
      matrix("ffn_gate_inp", DType::kF32, o_.n_embd, o_.n_experts);
      experts("ffn_gate", recipe_.base, o_.n_embd, o_.n_ff);
      experts("ffn_up", recipe_.base, o_.n_embd, o_.n_ff);
      experts("ffn_down", sensitive_, o_.n_ff, o_.n_embd);
      return;
    }
    if (o_.architecture == "phi3") {
      matrix("ffn_up", recipe_.base, o_.n_embd, 2 * o_.n_ff);
    } else {
      matrix("ffn_gate", recipe_.base, o_.n_embd, o_.n_ff);
      matrix("ffn_up", recipe_.base, o_.n_embd, o_.n_ff);
    }
    matrix("ffn_down", sensitive_, o_.n_ff, o_.n_embd);
    if (is_gemma(o_)) norm("post_ffw_norm", o_.n_embd);
  }

  const RandomModelOptions& o_;
  const Recipe& recipe_;
  std::string prefix_;  // of the layer's tensors
  DType sensitive_{};   // of the layer's attn_v and ffn_down
  std::vector<Plan> plans_;
};

/// Byte-level BPE's letter for a byte (GPT-2): printable Latin-1 is itself, the others follow from
/// U+0100 in order.
std::vector<std::string> byte_letters() {
  std::vector<std::string> letters;
  uint32_t others = 0;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable_byte = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
    const uint32_t c = printable_byte ? byte : 0x100 + others++;
    std::string& letter = letters.emplace_back();  // c in UTF-8
    if (c < 0x80) {
      letter.push_back(c);
    } else {
      letter.push_back(0xc0 | (c >> 6));
      letter.push_back(0x80 | (c & 0x3f));
    }
  }
  return letters;
}

/// Three control tokens, the 256 bytes, ten merges, and "[269]", "[270]", … up to the vocabulary's
/// size: every text can be tokenised, and every id has a text of its own.
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
  for (auto i = std::ssize(tokens); i < vocab; ++i) {
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

/// Adds `<architecture>.<key>`; the optional forms write nothing for 0.
class ModelKeys {
 public:
  ModelKeys(HeaderBuilder& header, const std::string& architecture)
      : header_(header), architecture_(architecture) {}
  void add(std::string_view key, int64_t value) {
    header_.add<uint32_t>(name(key), narrow<uint32_t>(value));
  }
  void add(std::string_view key, float value) { header_.add<float>(name(key), value); }
  void add(std::string_view key, std::string_view value) { header_.add_string(name(key), value); }
  template <class T>
  void add_if_set(std::string_view key, T value) {
    if (value != T{}) add(key, value);
  }

 private:
  std::string name(std::string_view key) { return fmt::format("{}.{}", architecture_, key); }

  HeaderBuilder& header_;
  const std::string& architecture_;
};

void add_rope_keys(ModelKeys& keys, const RandomModelOptions& o) {
  // The converter writes it for these only; the default is the head's size.
  if (o.architecture == "llama" || o.architecture == "phi3" || o.architecture == "smollm3" ||
      o.architecture == "mistral3") {
    keys.add("rope.dimension_count", rope_dims(o));
  }
  keys.add("rope.freq_base", o.rope_base);
  keys.add_if_set("rope.freq_base_swa", o.rope_base_swa);
  if (o.rope_linear_factor != 1.0f) {
    keys.add("rope.scaling.type", "linear");
    keys.add("rope.scaling.factor", o.rope_linear_factor);
  } else if (o.rope_yarn_factor != 0.0f) {
    keys.add("rope.scaling.type", "yarn");
    keys.add("rope.scaling.factor", o.rope_yarn_factor);
  } else if (!o.rope_factors_long.empty()) {
    keys.add("rope.scaling.type", "longrope");
  }
  keys.add_if_set("rope.scaling.original_context_length", o.original_context_length);
  keys.add_if_set("rope.scaling.attn_factor", o.rope_attn_factor);
  keys.add_if_set("rope.scaling.yarn_beta_fast", o.yarn_beta_fast);
  keys.add_if_set("rope.scaling.yarn_beta_slow", o.yarn_beta_slow);
  keys.add_if_set("rope.scaling.yarn_log_multiplier", o.yarn_log_multiplier);
}

void add_hyperparameters(HeaderBuilder& header, const RandomModelOptions& o, const Recipe& recipe) {
  header.add_string("general.architecture", o.architecture);
  header.add_string("general.name", fmt::format("random {}", recipe.name));
  header.add<uint32_t>("general.file_type", recipe.file_type);
  if (is_quantised(recipe.base)) header.add<uint32_t>("general.quantization_version", 2);
  ModelKeys keys(header, o.architecture);
  keys.add("block_count", o.n_layers);
  keys.add("context_length", o.context_length);
  keys.add("embedding_length", o.n_embd);
  keys.add("feed_forward_length", o.n_ff);
  keys.add("attention.head_count", o.n_heads);
  keys.add("attention.head_count_kv", o.n_kv_heads);
  if (o.architecture != "phi3") {
    keys.add("attention.key_length", o.head_dim);
    keys.add("attention.value_length", o.head_dim);
  }
  keys.add("attention.layer_norm_rms_epsilon", 1e-5f);
  keys.add("vocab_size", o.vocab);
  add_rope_keys(keys, o);
  keys.add_if_set("attention.temperature_scale", o.temperature_scale);
  keys.add_if_set("attention.sliding_window", o.window);
  keys.add_if_set("attention.sliding_window_pattern", o.window_period);
  keys.add_if_set("attn_logit_softcapping", o.attention_softcap);
  keys.add_if_set("final_logit_softcapping", o.final_softcap);
  keys.add_if_set("expert_count", o.n_experts);
  keys.add_if_set("expert_used_count", o.n_experts_used);
  if (o.architecture == "qwen3moe") keys.add("expert_feed_forward_length", o.n_ff);
}

/// Random units (a K-quant's block, or 32 elements) are made up to a pool's size; a longer tensor
/// goes on with units drawn from its pool, which is as fast as the disk. A model of 1B weights is
/// written without a normal number and a search for scales for each of them; a pool of 131,072
/// elements is still more than a row has, so rows differ.
Status write_tensor(Writer& writer, const Plan& plan, Random& random) {
  if (!plan.values.empty()) return writer.append(std::as_bytes(plan.values));
  constexpr int64_t kPoolElements = 1 << 17;
  constexpr int64_t kBufferBytes = 1 << 20;
  const int64_t unit = std::max(32, dtype_info(plan.dtype).block_elements);
  const int64_t unit_bytes = row_bytes(plan.dtype, unit);
  int64_t left = row_bytes(plan.dtype, plan.dims[0]);
  for (const int64_t dim : std::span(plan.dims).subspan(1)) left *= dim;

  const int64_t n_units = (left + unit_bytes - 1) / unit_bytes;
  const int64_t n_pool = std::min(n_units, kPoolElements / unit);
  std::vector<float> values(n_pool * unit);
  random.fill_normal(values, plan.mean, plan.deviation);
  std::vector<std::byte> pool(n_pool * unit_bytes);
  quantise(plan.dtype, values, pool.data());

  const int64_t first = std::min<int64_t>(left, std::ssize(pool));
  WEFT_RETURN_IF_ERROR(writer.append(std::span(pool).first(first)));
  left -= first;
  std::vector<std::byte> buffer(kBufferBytes / unit_bytes * unit_bytes);
  while (left > 0) {
    for (int64_t at = 0; at < std::ssize(buffer); at += unit_bytes) {
      std::memcpy(buffer.data() + at, pool.data() + random.below(n_pool) * unit_bytes, unit_bytes);
    }
    const int64_t n = std::min<int64_t>(left, std::ssize(buffer));
    WEFT_RETURN_IF_ERROR(writer.append(std::span(buffer).first(n)));
    left -= n;
  }
  return Status::ok();
}

struct Bound {
  const char* name;
  int64_t value, low, high;
};

/// Bounds on every number before it is multiplied: n_embd * vocab is 2^37 at most.
Status check_bounds(std::initializer_list<Bound> bounds) {
  for (const Bound& b : bounds) {
    if (b.value < b.low || b.value > b.high) {
      return invalid_argument(fmt::format("random model: {} is {}, must be from {} to {}", b.name,
                                          b.value, b.low, b.high));
    }
  }
  return Status::ok();
}

Status check_rope(const RandomModelOptions& o) {
  if (o.head_dim % 2 != 0) {
    return invalid_argument(fmt::format("random model: head_dim {} is odd", o.head_dim));
  }
  if (o.rope_dims % 2 != 0) {
    return invalid_argument(fmt::format("random model: rope_dims {} is odd", o.rope_dims));
  }
  struct Factors {
    const char* name;
    const std::vector<float>& values;
  };
  for (const Factors& f : {Factors{"rope_freqs", o.rope_freqs},
                           {"rope_factors_long", o.rope_factors_long},
                           {"rope_factors_short", o.rope_factors_short}}) {
    if (!f.values.empty() && std::ssize(f.values) != rope_dims(o) / 2) {
      return invalid_argument(fmt::format("random model: {} has {} numbers, must be {}", f.name,
                                          f.values.size(), rope_dims(o) / 2));
    }
  }
  if (o.rope_factors_long.empty() != o.rope_factors_short.empty()) {
    return invalid_argument("random model: rope_factors_long and _short go together");
  }
  const bool linear = o.rope_linear_factor != 1.0f;
  if (linear + (o.rope_yarn_factor != 0.0f) + !o.rope_factors_long.empty() > 1) {
    return invalid_argument("random model: more than one of linear, YaRN and longrope scaling");
  }
  return Status::ok();
}

constexpr std::array<std::string_view, 9> kArchitectures{
    "llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "smollm3", "mistral3", "qwen3moe"};

Status check(const RandomModelOptions& o) {
  if (std::ranges::find(kArchitectures, o.architecture) == kArchitectures.end()) {
    std::string names;
    for (const std::string_view name : kArchitectures) names += fmt::format(" {}", name);
    return invalid_argument(
        fmt::format("random model: no architecture '{}'; there are{}", o.architecture, names));
  }
  WEFT_RETURN_IF_ERROR(check_bounds({{"n_layers", o.n_layers, 1, 1000},
                                     {"n_embd", o.n_embd, 1, 1 << 17},
                                     {"n_ff", o.n_ff, 1, 1 << 20},
                                     {"n_heads", o.n_heads, 1, 1024},
                                     {"n_kv_heads", o.n_kv_heads, 1, 1024},
                                     {"head_dim", o.head_dim, 2, 1024},
                                     {"vocab", o.vocab, 270, 1 << 20},
                                     {"spare_rows", o.spare_rows, 0, o.vocab - 270},
                                     {"context_length", o.context_length, 1, 1 << 30},
                                     {"rope_dims", o.rope_dims, 0, o.head_dim},
                                     {"window", o.window, 0, 1 << 30},
                                     {"window_period", o.window_period, 0, o.n_layers},
                                     {"n_experts", o.n_experts, 0, 1024},
                                     {"n_experts_used", o.n_experts_used, 0, o.n_experts}}));
  if (o.rope_dims != 0 && o.architecture != "phi3") {
    return invalid_argument("random model: only phi3 turns a part of each head");
  }
  if (o.n_heads % o.n_kv_heads != 0) {
    return invalid_argument(fmt::format("random model: n_heads {} is no multiple of n_kv_heads {}",
                                        o.n_heads, o.n_kv_heads));
  }
  if ((o.architecture == "phi3" || o.architecture == "qwen2") &&
      o.n_heads * o.head_dim != o.n_embd) {
    return invalid_argument(fmt::format("random model: {} needs n_embd {} to be {} heads of {}",
                                        o.architecture, o.n_embd, o.n_heads, o.head_dim));
  }
  const bool may_have_experts = o.architecture == "llama" || o.architecture == "qwen3moe";
  if ((o.n_experts > 0) != (o.n_experts_used > 0) || (o.n_experts > 0 && !may_have_experts) ||
      (o.n_experts == 0 && o.architecture == "qwen3moe")) {
    return invalid_argument(fmt::format("random model: {} experts, {} used, do not fit {}",
                                        o.n_experts, o.n_experts_used, o.architecture));
  }
  return check_rope(o);
}

}  // namespace

Status write_random_model(Env& env, const std::string& path, const RandomModelOptions& options) {
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
  add_tokenizer(header, options.vocab - options.spare_rows);
  if (!options.chat_template.empty()) {
    header.add_string("tokenizer.chat_template", options.chat_template);
  }
  const std::vector<Plan> plans = Planner(options, *recipe).plan();
  for (const Plan& plan : plans) header.add_tensor(plan.name, plan.dtype, plan.dims);
  WEFT_ASSIGN_OR_RETURN(Writer writer, Writer::create(env, path, header));
  Random random(options.seed);
  for (const Plan& plan : plans) WEFT_RETURN_IF_ERROR(write_tensor(writer, plan, random));
  return writer.finish();
}

}  // namespace weft::gguf
