#include "model/forward.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/dequantize.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"

namespace weft::model {

using kernels::KernelClass;
using kernels::MatmulOutput;

namespace {

/// What a caller may get wrong in a step.
Status check_rows(const Rows& rows, int32_t vocab_size) {
  if (rows.tokens.empty()) return invalid_argument("no tokens to run: at least 1 is needed");
  for (size_t row = 0; row < rows.tokens.size(); ++row) {
    if (rows.tokens[row] < 0 || rows.tokens[row] >= vocab_size) {
      return invalid_argument(fmt::format("token {} of {} is {}: the vocabulary has 0 to {}",
                                          row + 1, rows.tokens.size(), rows.tokens[row],
                                          vocab_size - 1));
    }
  }
  int64_t covered = 0;
  bool any_empty = false;
  for (const RowGroup& group : rows.groups) {
    any_empty |= group.row_end <= group.row_begin;
    if (group.row_begin != covered || any_empty) break;
    covered = group.row_end;
  }
  if (any_empty) return invalid_argument("no tokens to run of one of several sequences");
  if (rows.positions.size() != rows.tokens.size() || rows.slots.size() != rows.tokens.size() ||
      covered != rows.size()) {
    return invalid_argument(
        fmt::format("a step of {} tokens, {} slots and {} positions, {} of them in groups",
                    rows.tokens.size(), rows.slots.size(), rows.positions.size(), covered));
  }
  return Status::ok();
}

}  // namespace

ForwardPass::ForwardPass(const Model& model, const kernels::Context& context)
    : model_(model), context_(context) {}

/// Scratch for so many rows at once.
void ForwardPass::reserve(int64_t n_rows) {
  const ModelConfig& c = model_.config();
  const auto rows = static_cast<size_t>(n_rows);
  const auto n_embd = static_cast<size_t>(c.n_embd);
  normed_.reserve_discard(rows * n_embd);
  projected_.reserve_discard(rows * n_embd);
  q_.reserve_discard(rows * static_cast<size_t>(c.q_width()));
  attended_.reserve_discard(rows * static_cast<size_t>(c.q_width()));
  k_.reserve_discard(rows * static_cast<size_t>(c.kv_width()));
  v_.reserve_discard(rows * static_cast<size_t>(c.kv_width()));
  gate_.reserve_discard(rows * static_cast<size_t>(c.n_ff));
  up_.reserve_discard(rows * static_cast<size_t>(c.n_ff));
  log_sum_exp_.reserve_discard(rows * static_cast<size_t>(c.n_heads));
  if (c.n_experts == 0) return;
  expert_in_.reserve_discard(rows * n_embd);
  expert_out_.reserve_discard(rows * n_embd);
  router_scores_.reserve_discard(rows * static_cast<size_t>(c.n_experts));
  router_.reserve(n_rows, c.n_experts, c.n_experts_used);
}

Result<Batch> ForwardPass::start(kv::Cache& cache, Rows rows) {
  const ModelConfig& c = model_.config();
  WEFT_RETURN_IF_ERROR(check_rows(rows, c.vocab_size));
  Batch batch(c, context_.isa, cache, std::move(rows));
  for (const Block& block : batch.blocks_) reserve(block.n_rows);

  const auto n_embd = static_cast<size_t>(c.n_embd);
  const std::vector<int32_t>& tokens = batch.rows().tokens;
  batch.hidden_ = AlignedBuffer<float>::uninitialised(tokens.size() * n_embd);
  const WeightMatrix& embedding = model_.weights().token_embedding;
  const int64_t bytes = row_bytes(embedding.dtype, embedding.in_features);
  for (size_t row = 0; row < tokens.size(); ++row) {
    kernels::dequantize(context_.isa, embedding.dtype,
                        static_cast<const std::byte*>(embedding.data) + tokens[row] * bytes,
                        batch.hidden_.data() + row * n_embd, c.n_embd);
  }
  if (c.embedding_scale != 1.0f) {
    kernels::scale_in_place(context_, batch.hidden_.data(), c.embedding_scale,
                            batch.n_rows() * c.n_embd);
  }
  return batch;
}

void ForwardPass::run_layer(Batch& batch, int32_t layer, const LayerHooks& hooks) {
  if (hooks.sink_first && batch.blocks_.size() > 1) {
    see_keys_and_values(batch, layer, *hooks.kv_sink);
    return run_layer(batch, layer, {.mass = hooks.mass});
  }
  for (const Block& block : batch.blocks_) {
    project(batch, layer, block, Projection::kAll);
    place_keys_and_values(batch, layer, block, hooks);
    attention_part(batch, layer, block, hooks);
    feed_forward_part(batch, layer, block);
  }
}

void ForwardPass::run_last_layer(Batch& batch, std::span<const int64_t> rows,
                                 const LayerHooks& hooks) {
  const int32_t layer = model_.config().n_layers - 1;
  if (std::ssize(rows) == batch.n_rows()) return run_layer(batch, layer, hooks);  // as in decode
  if (hooks.sink_first && batch.blocks_.size() > 1) {
    see_keys_and_values(batch, layer, *hooks.kv_sink);
    return run_last_layer(batch, rows, {.mass = hooks.mass});
  }
  for (const Block& block : batch.blocks_) {
    project(batch, layer, block, Projection::kKeysAndValues);
    place_keys_and_values(batch, layer, block, hooks);
  }
  batch.keep_rows(rows);
  for (const Block& block : batch.blocks_) {
    project(batch, layer, block, Projection::kQueries);
    attention_part(batch, layer, block, hooks);
    feed_forward_part(batch, layer, block);
  }
}

void ForwardPass::look(Batch& batch, int32_t layer, std::span<float> mass) {
  for (const Block& block : batch.blocks_) {
    project(batch, layer, block, Projection::kAll);
    place_keys_and_values(batch, layer, block, {});
    attend(batch, layer, block, {.mass = mass});
  }
}

/// q, k, v = W norm(x), or some of them, with biases and norms of their own where the model has
/// them.
void ForwardPass::project(const Batch& batch, int32_t layer, const Block& block, Projection what) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.weights().layers[static_cast<size_t>(layer)];
  const int64_t n = block.n_rows;
  const float* x = batch.hidden_.data() + block.row_begin * c.n_embd;

  kernels::rms_norm(context_, x, w.attention_norm.data(), c.rms_eps, n, c.n_embd, normed_.data());
  const MatmulOutput qkv[] = {{&w.q, q_.data(), c.q_width()},
                              {&w.k, k_.data(), c.kv_width()},
                              {&w.v, v_.data(), c.kv_width()}};
  const auto wanted = what == Projection::kAll       ? std::span(qkv)
                      : what == Projection::kQueries ? std::span(qkv).first(1)
                                                     : std::span(qkv).last(2);
  kernels::matmul(context_, normed_.data(), c.n_embd, n, wanted, block.kernel_class);
  if (what != Projection::kKeysAndValues) {
    add_bias(w.q_bias, n, c.q_width(), q_.data());
    if (c.has_qk_norm) {
      kernels::rms_norm(context_, q_.data(), w.q_norm.data(), c.rms_eps, n * c.n_heads, c.head_dim,
                        q_.data());
    }
  }
  if (what != Projection::kQueries) {
    add_bias(w.k_bias, n, c.kv_width(), k_.data());
    add_bias(w.v_bias, n, c.kv_width(), v_.data());
    if (c.has_qk_norm) {
      kernels::rms_norm(context_, k_.data(), w.k_norm.data(), c.rms_eps, n * c.n_kv_heads,
                        c.head_dim, k_.data());
    }
  }
}

/// Into the pages; K rotated.
void ForwardPass::place_keys_and_values(const Batch& batch, int32_t layer, const Block& block,
                                        const LayerHooks& hooks) {
  const ModelConfig& c = model_.config();
  if (hooks.kv_sink != nullptr) {
    (*hooks.kv_sink)(block.row_begin, block.n_rows, k_.data(), v_.data());
  }
  kernels::apply_rope(context_, batch.rope_of(layer), block.row_begin, k_.data(), block.n_rows,
                      c.n_kv_heads, c.head_dim);
  const kernels::AttentionArgs args = batch.attention_args(block, layer);
  kernels::write_kv(context_, args.kv, args.sequences, args.slots, k_.data(), v_.data());
}

/// x += Wo attention(q, K, V)
void ForwardPass::attention_part(Batch& batch, int32_t layer, const Block& block,
                                 const LayerHooks& hooks) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.weights().layers[static_cast<size_t>(layer)];
  const int64_t n = block.n_rows;
  attend(batch, layer, block, hooks);

  const MatmulOutput o[] = {{&w.o, projected_.data(), c.n_embd}};
  kernels::matmul(context_, attended_.data(), c.q_width(), n, o, block.kernel_class);
  add_bias(w.o_bias, n, c.n_embd, projected_.data());
  add_output(batch, w.post_attention_norm, block);
}

/// A row's K and V do not depend on the rows beside it, so these are the ones that it attends with.
void ForwardPass::see_keys_and_values(const Batch& batch, int32_t layer,
                                      const LayerHooks::KvSink& sink) {
  for (const Block& block : batch.blocks_) {
    project(batch, layer, block, Projection::kKeysAndValues);
    sink(block.row_begin, block.n_rows, k_.data(), v_.data());
  }
}

/// attended = attention(rope(q), K, V)
void ForwardPass::attend(const Batch& batch, int32_t layer, const Block& block,
                         const LayerHooks& hooks) {
  const ModelConfig& c = model_.config();
  const int64_t n = block.n_rows;
  kernels::apply_rope(context_, batch.rope_of(layer), block.row_begin, q_.data(), n, c.n_heads,
                      c.head_dim);
  if (!batch.query_scales_.empty()) {
    kernels::scale_rows(context_, q_.data(), batch.query_scales_.data() + block.row_begin, n,
                        c.q_width());
  }
  kernels::AttentionArgs args = batch.attention_args(block, layer);
  args.q = q_.data();
  args.out = attended_.data();
  args.log_sum_exp = hooks.mass.empty() ? nullptr : log_sum_exp_.data();
  kernels::attention(context_, args, batch.plan_of(block, layer));
  if (!hooks.mass.empty()) {
    kernels::attention_mass(context_, args, std::ssize(hooks.mass), hooks.mass.data());
  }
}

/// x += Wdown (activation(Wgate norm(x)) * Wup norm(x)), or a mixture of such.
void ForwardPass::feed_forward_part(Batch& batch, int32_t layer, const Block& block) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.weights().layers[static_cast<size_t>(layer)];
  const float* x = batch.hidden_.data() + block.row_begin * c.n_embd;
  kernels::rms_norm(context_, x, w.ffn_norm.data(), c.rms_eps, block.n_rows, c.n_embd,
                    normed_.data());
  if (c.n_experts > 0) {
    mixture_of_experts(w, block);
  } else {
    feed_forward(w.experts.front(), normed_.data(), block.n_rows, block.kernel_class,
                 projected_.data());
  }
  add_output(batch, w.post_ffn_norm, block);
}

/// out [n_rows, n_embd] from x [n_rows, n_embd].
void ForwardPass::feed_forward(const FeedForwardWeights& w, const float* x, int64_t n_rows,
                               KernelClass kernel_class, float* out) {
  const ModelConfig& c = model_.config();
  const MatmulOutput gate_up[] = {{&w.gate, gate_.data(), c.n_ff}, {&w.up, up_.data(), c.n_ff}};
  kernels::matmul(context_, x, c.n_embd, n_rows, gate_up, kernel_class);
  if (c.activation == Activation::kGelu) {
    kernels::gelu_multiply(context_, gate_.data(), up_.data(), n_rows, c.n_ff);
  } else {
    kernels::silu_multiply(context_, gate_.data(), up_.data(), n_rows, c.n_ff);
  }
  const MatmulOutput down[] = {{&w.down, out, c.n_embd}};
  kernels::matmul(context_, gate_.data(), c.n_ff, n_rows, down, kernel_class);
}

/// Each row's experts one after another, in the experts' order, so that a row's sum does not depend
/// on the other rows.
void ForwardPass::mixture_of_experts(const LayerWeights& w, const Block& block) {
  const ModelConfig& c = model_.config();
  const int64_t n_rows = block.n_rows;
  const MatmulOutput router[] = {{&w.router, router_scores_.data(), c.n_experts}};
  kernels::matmul(context_, normed_.data(), c.n_embd, n_rows, router, block.kernel_class);
  const std::span<const float> scores(router_scores_.data(),
                                      static_cast<size_t>(n_rows * c.n_experts));
  const std::vector<ExpertRows>& experts = router_.route(scores, c.n_experts, c.n_experts_used);

  std::fill_n(projected_.data(), n_rows * c.n_embd, 0.0f);
  for (size_t e = 0; e < experts.size(); ++e) {
    const ExpertRows& expert = experts[e];
    const int64_t n = std::ssize(expert.rows);
    if (n == 0) continue;
    kernels::gather_rows(context_, normed_.data(), expert.rows.data(), n, c.n_embd,
                         expert_in_.data());
    feed_forward(w.experts[e], expert_in_.data(), n, block.kernel_class, expert_out_.data());
    kernels::add_scaled_rows(context_, projected_.data(), expert.rows.data(), expert.weights.data(),
                             expert_out_.data(), n, c.n_embd);
  }
}

void ForwardPass::add_bias(const AlignedBuffer<float>& bias, int64_t n_rows, int64_t n, float* x) {
  if (bias.size() > 0) kernels::add_bias(context_, x, bias.data(), n_rows, n);
}

/// x += what the block of layers made, normalised first where the model does so.
void ForwardPass::add_output(Batch& batch, const AlignedBuffer<float>& post_norm,
                             const Block& block) {
  const ModelConfig& c = model_.config();
  if (post_norm.size() > 0) {
    kernels::rms_norm(context_, projected_.data(), post_norm.data(), c.rms_eps, block.n_rows,
                      c.n_embd, projected_.data());
  }
  kernels::add_in_place(context_, batch.hidden_.data() + block.row_begin * c.n_embd,
                        projected_.data(), block.n_rows * c.n_embd);
}

void ForwardPass::values(const Batch& batch, int32_t layer, float* out) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.weights().layers[static_cast<size_t>(layer)];
  for (const Block& block : batch.blocks_) {
    const int64_t n = block.n_rows;
    float* const to = out + block.row_begin * c.kv_width();
    kernels::rms_norm(context_, batch.hidden_.data() + block.row_begin * c.n_embd,
                      w.attention_norm.data(), c.rms_eps, n, c.n_embd, normed_.data());
    const MatmulOutput v[] = {{&w.v, to, c.kv_width()}};
    kernels::matmul(context_, normed_.data(), c.n_embd, n, v, block.kernel_class);
    add_bias(w.v_bias, n, c.kv_width(), to);
  }
}

void ForwardPass::logits(const Batch& batch, std::span<const int64_t> rows, float* out,
                         KernelClass kernel_class) {
  constexpr int64_t kRowsAtOnce = 512;
  const ModelConfig& c = model_.config();
  const Weights& w = model_.weights();
  const int64_t n_rows = std::ssize(rows);
  for (const int64_t row : rows) WEFT_CHECK(row >= 0 && row < batch.n_rows());
  normed_.reserve_discard(static_cast<size_t>(std::min(n_rows, kRowsAtOnce) * c.n_embd));
  for (int64_t begin = 0; begin < n_rows; begin += kRowsAtOnce) {
    const int64_t n = std::min(kRowsAtOnce, n_rows - begin);
    kernels::gather_rows(context_, batch.hidden_.data(), rows.data() + begin, n, c.n_embd,
                         normed_.data());
    kernels::rms_norm(context_, normed_.data(), w.output_norm.data(), c.rms_eps, n, c.n_embd,
                      normed_.data());
    const MatmulOutput head[] = {{&w.output, out + begin * c.vocab_size, c.vocab_size}};
    kernels::matmul(context_, normed_.data(), c.n_embd, n, head, kernel_class);
  }
  if (c.logit_softcap != 0) {
    kernels::softcap_in_place(context_, out, c.logit_softcap, n_rows * c.vocab_size);
  }
}

}  // namespace weft::model
