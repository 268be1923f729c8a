#include "model/forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "kernels/dequantize.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "model/experts.h"

namespace weft::model {

using kernels::MatmulOutput;

namespace {

// Rows that go through a layer together: enough that expanding a weight panel costs little beside
// the product (1/512 of it), few enough that a wide model's scratch stays at some tens of MB.
constexpr int64_t kBlockRows = 512;

/// q [n_rows][n_heads * head_dim] *= 1 + factor * ln(1 + floor(position / tokens)).
void sharpen_queries(const ModelConfig& c, const int32_t* positions, int64_t n_rows, float* q) {
  for (int64_t row = 0; row < n_rows; ++row) {
    const int32_t spans = positions[row] / c.temperature_tokens;
    if (spans == 0) continue;
    const float factor = 1.0f + c.temperature_factor * std::log1p(static_cast<float>(spans));
    float* x = q + row * c.q_width();
    for (int64_t i = 0; i < c.q_width(); ++i) x[i] *= factor;
  }
}

/// What a caller may get wrong in a step.
Status check_step(const Step& step, int32_t vocab_size) {
  if (step.tokens.empty()) return invalid_argument("no tokens to run: at least 1 is needed");
  for (size_t row = 0; row < step.tokens.size(); ++row) {
    if (step.tokens[row] < 0 || step.tokens[row] >= vocab_size) {
      return invalid_argument(fmt::format("token {} of {} is {}: the vocabulary has 0 to {}",
                                          row + 1, step.tokens.size(), step.tokens[row],
                                          vocab_size - 1));
    }
  }
  int64_t covered = 0;
  for (const StepSequence& s : step.sequences) {
    if (s.row_begin != covered || s.row_end <= s.row_begin) break;
    covered = s.row_end;
  }
  if (step.positions.size() != step.tokens.size() || covered != step.n_rows()) {
    return invalid_argument(
        fmt::format("a step of {} tokens and {} positions, {} of them in sequences",
                    step.tokens.size(), step.positions.size(), covered));
  }
  return Status::ok();
}

}  // namespace

struct ForwardPass::Block {
  int64_t row_begin = 0;
  int64_t n_rows = 0;
  std::vector<kernels::AttentionSequence> sequences;  // rows counted from row_begin
};

Step Step::consecutive(kv::SequenceId sequence, std::span<const int32_t> tokens,
                       int32_t first_position) {
  Step step;
  step.tokens.assign(tokens.begin(), tokens.end());
  step.positions.resize(tokens.size());
  std::iota(step.positions.begin(), step.positions.end(), first_position);
  step.sequences = {{sequence, 0, static_cast<int64_t>(tokens.size())}};
  return step;
}

Step Step::prompt(kv::SequenceId sequence, std::span<const int32_t> tokens,
                  int32_t first_position) {
  Step step = consecutive(sequence, tokens, first_position);
  step.is_prompt = true;
  return step;
}

ForwardPass::ForwardPass(const Model& model, const kernels::Context& context, kv::Cache& cache)
    : model_(model), context_(context), cache_(cache) {}

Status ForwardPass::begin(Step step) {
  const ModelConfig& config = model_.config();
  WEFT_RETURN_IF_ERROR(check_step(step, config.vocab_size));
  step_ = std::move(step);
  const auto n_embd = static_cast<size_t>(config.n_embd);
  const auto n_rows = static_cast<size_t>(step_.n_rows());
  const size_t rows = std::min<size_t>(n_rows, kBlockRows);
  hidden_.reserve_discard(n_rows * n_embd);
  normed_.reserve_discard(rows * n_embd);
  projected_.reserve_discard(rows * n_embd);
  q_.reserve_discard(rows * static_cast<size_t>(config.q_width()));
  attended_.reserve_discard(rows * static_cast<size_t>(config.q_width()));
  k_.reserve_discard(rows * static_cast<size_t>(config.kv_width()));
  v_.reserve_discard(rows * static_cast<size_t>(config.kv_width()));
  gate_.reserve_discard(rows * static_cast<size_t>(config.n_ff));
  up_.reserve_discard(rows * static_cast<size_t>(config.n_ff));
  log_sum_exp_.reserve_discard(rows * static_cast<size_t>(config.n_heads));
  if (config.n_experts > 0) {
    expert_in_.reserve_discard(rows * n_embd);
    expert_out_.reserve_discard(rows * n_embd);
    router_.reserve_discard(rows * static_cast<size_t>(config.n_experts));
  }

  const WeightMatrix& embedding = model_.weights().token_embedding;
  const int64_t bytes = row_bytes(embedding.dtype, embedding.in_features);
  for (size_t row = 0; row < n_rows; ++row) {
    const int32_t token = step_.tokens[row];
    kernels::dequantize(context_.isa, embedding.dtype,
                        static_cast<const std::byte*>(embedding.data) + token * bytes,
                        hidden_.data() + row * n_embd, config.n_embd);
  }
  if (config.embedding_scale != 1.0f) {
    kernels::scale_in_place(context_, hidden_.data(), config.embedding_scale,
                            step_.n_rows() * config.n_embd);
  }
  refresh_rope();
  return Status::ok();
}

void ForwardPass::refresh_rope() {
  ropes_.clear();
  for (const kernels::RopeParams& rope : model_.config().ropes) {
    ropes_.push_back(kernels::make_rope_table(rope, step_.positions));
  }
}

ForwardPass::Block ForwardPass::block_at(int64_t row_begin) const {
  Block block{row_begin, std::min(kBlockRows, step_.n_rows() - row_begin), {}};
  const int64_t row_end = row_begin + block.n_rows;
  for (const StepSequence& s : step_.sequences) {
    const int64_t begin = std::max(s.row_begin, row_begin);
    const int64_t end = std::min(s.row_end, row_end);
    if (begin >= end) continue;
    block.sequences.push_back(
        {cache_.block_table(s.sequence).data(), begin - row_begin, end - row_begin});
  }
  return block;
}

/// What the kernels for a block of n_rows are chosen by.
kernels::RowsLike ForwardPass::like(int64_t n_rows) const {
  return {step_.is_prompt ? std::max(n_rows, kernels::kDecodeRows + 1) : n_rows};
}

void ForwardPass::run_layer(int32_t layer, const LayerTap& tap) {
  if (tap.sink_first && step_.n_rows() > kBlockRows) {
    sink_keys_and_values(layer, *tap.kv_sink);
    return run_layer(layer, {.mass = tap.mass});
  }
  for (int64_t row = 0; row < step_.n_rows(); row += kBlockRows) {
    const Block block = block_at(row);
    attention_part(layer, block, tap);
    feed_forward_part(layer, block);
  }
}

/// x += Wo attention(rope(Wq norm(x)), rope(Wk norm(x)), Wv norm(x))
void ForwardPass::attention_part(int32_t layer, const Block& block, const LayerTap& tap) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.weights().layers[static_cast<size_t>(layer)];
  const kernels::RopeTable& rope =
      ropes_[static_cast<size_t>(c.layers[static_cast<size_t>(layer)].rope)];
  const int64_t n = block.n_rows;
  const int32_t* positions = step_.positions.data() + block.row_begin;

  project_qkv(layer, block);
  if (tap.kv_sink != nullptr) (*tap.kv_sink)(block.row_begin, n, k_.data(), v_.data());
  kernels::apply_rope(context_, rope, block.row_begin, q_.data(), n, c.n_heads, c.head_dim);
  kernels::apply_rope(context_, rope, block.row_begin, k_.data(), n, c.n_kv_heads, c.head_dim);
  if (c.temperature_factor != 0) sharpen_queries(c, positions, n, q_.data());
  kernels::write_kv(context_, cache_.layer(layer), block.sequences, positions, k_.data(),
                    v_.data());
  attend(layer, block, tap);

  const MatmulOutput o[] = {{&w.o, projected_.data(), c.n_embd}};
  kernels::matmul(context_, attended_.data(), c.q_width(), n, o, like(n));
  add_bias(w.o_bias, n, c.n_embd, projected_.data());
  add_output(w.post_attention_norm, block);
}

/// A row's K and V do not depend on the rows beside it, so these are the ones that it attends with.
void ForwardPass::sink_keys_and_values(int32_t layer, const LayerTap::KvSink& sink) {
  for (int64_t row = 0; row < step_.n_rows(); row += kBlockRows) {
    const Block block = block_at(row);
    project_qkv(layer, block);
    sink(row, block.n_rows, k_.data(), v_.data());
  }
}

/// q, k, v = W norm(x), with biases and norms of their own where the model has them.
void ForwardPass::project_qkv(int32_t layer, const Block& block) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.weights().layers[static_cast<size_t>(layer)];
  const int64_t n = block.n_rows;
  const float* x = hidden_.data() + block.row_begin * c.n_embd;

  kernels::rms_norm(context_, x, w.attention_norm.data(), c.rms_eps, n, c.n_embd, normed_.data());
  const MatmulOutput qkv[] = {{&w.q, q_.data(), c.q_width()},
                              {&w.k, k_.data(), c.kv_width()},
                              {&w.v, v_.data(), c.kv_width()}};
  kernels::matmul(context_, normed_.data(), c.n_embd, n, qkv, like(n));
  add_bias(w.q_bias, n, c.q_width(), q_.data());
  add_bias(w.k_bias, n, c.kv_width(), k_.data());
  add_bias(w.v_bias, n, c.kv_width(), v_.data());
  if (c.has_qk_norm) {
    kernels::rms_norm(context_, q_.data(), w.q_norm.data(), c.rms_eps, n * c.n_heads, c.head_dim,
                      q_.data());
    kernels::rms_norm(context_, k_.data(), w.k_norm.data(), c.rms_eps, n * c.n_kv_heads, c.head_dim,
                      k_.data());
  }
}

void ForwardPass::attend(int32_t layer, const Block& block, const LayerTap& tap) {
  const ModelConfig& c = model_.config();
  kernels::AttentionArgs args;
  args.kv = cache_.layer(layer);
  args.sequences = block.sequences;
  args.positions = step_.positions.data() + block.row_begin;
  args.n_heads = c.n_heads;
  args.scale = c.attention_scale;
  args.softcap = c.attention_softcap;
  args.window_tokens = c.layers[static_cast<size_t>(layer)].window_tokens;
  args.q = q_.data();
  args.out = attended_.data();
  args.is_prompt = step_.is_prompt;
  args.log_sum_exp = tap.mass.empty() ? nullptr : log_sum_exp_.data();
  kernels::attention(context_, args);
  if (!tap.mass.empty()) {
    kernels::attention_mass(context_, args, static_cast<int64_t>(tap.mass.size()), tap.mass.data());
  }
}

/// x += Wdown (activation(Wgate norm(x)) * Wup norm(x)), or a mixture of such.
void ForwardPass::feed_forward_part(int32_t layer, const Block& block) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.weights().layers[static_cast<size_t>(layer)];
  const float* x = hidden_.data() + block.row_begin * c.n_embd;
  kernels::rms_norm(context_, x, w.ffn_norm.data(), c.rms_eps, block.n_rows, c.n_embd,
                    normed_.data());
  if (c.n_experts > 0) {
    mixture_of_experts(w, block.n_rows);
  } else {
    feed_forward(w.experts.front(), normed_.data(), block.n_rows, like(block.n_rows),
                 projected_.data());
  }
  add_output(w.post_ffn_norm, block);
}

/// out [n_rows, n_embd] from x [n_rows, n_embd].
void ForwardPass::feed_forward(const FeedForwardWeights& w, const float* x, int64_t n_rows,
                               kernels::RowsLike like, float* out) {
  const ModelConfig& c = model_.config();
  const MatmulOutput gate_up[] = {{&w.gate, gate_.data(), c.n_ff}, {&w.up, up_.data(), c.n_ff}};
  kernels::matmul(context_, x, c.n_embd, n_rows, gate_up, like);
  if (c.activation == Activation::kGelu) {
    kernels::gelu_multiply(context_, gate_.data(), up_.data(), n_rows, c.n_ff);
  } else {
    kernels::silu_multiply(context_, gate_.data(), up_.data(), n_rows, c.n_ff);
  }
  const MatmulOutput down[] = {{&w.down, out, c.n_embd}};
  kernels::matmul(context_, gate_.data(), c.n_ff, n_rows, down, like);
}

/// Each row's experts one after another, in the experts' order, so that a row's sum does not depend
/// on the other rows; for the same reason an expert's few rows take the kernel of the whole block.
void ForwardPass::mixture_of_experts(const LayerWeights& w, int64_t n_rows) {
  const ModelConfig& c = model_.config();
  const auto n_embd = static_cast<size_t>(c.n_embd);
  const MatmulOutput router[] = {{&w.router, router_.data(), c.n_experts}};
  kernels::matmul(context_, normed_.data(), c.n_embd, n_rows, router, like(n_rows));
  const std::span<const float> scores(router_.data(), static_cast<size_t>(n_rows * c.n_experts));
  const std::vector<ExpertRows> experts = route(scores, c.n_experts, c.n_experts_used);

  std::fill_n(projected_.data(), static_cast<size_t>(n_rows) * n_embd, 0.0f);
  for (size_t e = 0; e < experts.size(); ++e) {
    const ExpertRows& expert = experts[e];
    const size_t n = expert.rows.size();
    if (n == 0) continue;
    for (size_t i = 0; i < n; ++i) {
      std::memcpy(expert_in_.data() + i * n_embd,
                  normed_.data() + static_cast<size_t>(expert.rows[i]) * n_embd,
                  n_embd * sizeof(float));
    }
    feed_forward(w.experts[e], expert_in_.data(), static_cast<int64_t>(n), like(n_rows),
                 expert_out_.data());
    for (size_t i = 0; i < n; ++i) {
      float* sum = projected_.data() + static_cast<size_t>(expert.rows[i]) * n_embd;
      const float* out = expert_out_.data() + i * n_embd;
      for (size_t d = 0; d < n_embd; ++d) sum[d] += expert.weights[i] * out[d];
    }
  }
}

void ForwardPass::add_bias(const AlignedBuffer<float>& bias, int64_t n_rows, int64_t n, float* x) {
  if (bias.size() > 0) kernels::add_bias(context_, x, bias.data(), n_rows, n);
}

/// x += what the block of layers made, normalised first where the model does so.
void ForwardPass::add_output(const AlignedBuffer<float>& post_norm, const Block& block) {
  const ModelConfig& c = model_.config();
  if (post_norm.size() > 0) {
    kernels::rms_norm(context_, projected_.data(), post_norm.data(), c.rms_eps, block.n_rows,
                      c.n_embd, projected_.data());
  }
  kernels::add_in_place(context_, hidden_.data() + block.row_begin * c.n_embd, projected_.data(),
                        block.n_rows * c.n_embd);
}

void ForwardPass::values(int32_t layer, float* out) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.weights().layers[static_cast<size_t>(layer)];
  for (int64_t row = 0; row < step_.n_rows(); row += kBlockRows) {
    const int64_t n = std::min(kBlockRows, step_.n_rows() - row);
    kernels::rms_norm(context_, hidden_.data() + row * c.n_embd, w.attention_norm.data(), c.rms_eps,
                      n, c.n_embd, normed_.data());
    const MatmulOutput v[] = {{&w.v, out + row * c.kv_width(), c.kv_width()}};
    kernels::matmul(context_, normed_.data(), c.n_embd, n, v, like(n));
    add_bias(w.v_bias, n, c.kv_width(), out + row * c.kv_width());
  }
}

void ForwardPass::keep_rows(std::span<const int64_t> rows) {
  const auto n_embd = static_cast<size_t>(model_.config().n_embd);
  Step kept;
  kept.is_prompt = step_.is_prompt;
  size_t next = 0;
  for (const StepSequence& s : step_.sequences) {
    const auto begin = static_cast<int64_t>(kept.tokens.size());
    for (; next < rows.size() && rows[next] < s.row_end; ++next) {
      const auto from = static_cast<size_t>(rows[next]);
      const size_t to = kept.tokens.size();
      if (from != to) {
        std::memcpy(hidden_.data() + to * n_embd, hidden_.data() + from * n_embd,
                    n_embd * sizeof(float));
      }
      kept.tokens.push_back(step_.tokens[from]);
      kept.positions.push_back(step_.positions[from]);
    }
    const auto end = static_cast<int64_t>(kept.tokens.size());
    if (begin < end) kept.sequences.push_back({s.sequence, begin, end});
  }
  WEFT_CHECK(next == rows.size());
  step_ = std::move(kept);
  refresh_rope();
}

void ForwardPass::logits(std::span<const int64_t> rows, float* out) {
  const ModelConfig& c = model_.config();
  const Weights& w = model_.weights();
  const auto n_embd = static_cast<size_t>(c.n_embd);
  for (size_t begin = 0; begin < rows.size(); begin += kBlockRows) {
    const size_t n = std::min<size_t>(kBlockRows, rows.size() - begin);
    normed_.reserve_discard(n * n_embd);
    for (size_t i = 0; i < n; ++i) {
      std::memcpy(normed_.data() + i * n_embd,
                  hidden_.data() + static_cast<size_t>(rows[begin + i]) * n_embd,
                  n_embd * sizeof(float));
    }
    const auto n_rows = static_cast<int64_t>(n);
    kernels::rms_norm(context_, normed_.data(), w.output_norm.data(), c.rms_eps, n_rows, c.n_embd,
                      normed_.data());
    const MatmulOutput head[] = {
        {&w.output, out + begin * static_cast<size_t>(c.vocab_size), c.vocab_size}};
    kernels::matmul(context_, normed_.data(), c.n_embd, n_rows, head);
  }
  if (c.logit_softcap != 0) {
    kernels::softcap_in_place(context_, out, c.logit_softcap,
                              static_cast<int64_t>(rows.size()) * c.vocab_size);
  }
}

}  // namespace weft::model
