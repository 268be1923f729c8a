// One transformer layer for all architectures (pre-norm, Vaswani et al. 2017 with RMSNorm, RoPE,
// grouped-query attention and a gated feed-forward network): run_layer is its text, in blocks of up
// to 512 rows that share the scratch. What an architecture lacks is an empty buffer or a neutral
// number in ModelConfig and LayerWeights, and is skipped where it would be used. A row's result
// depends on its own history and its kernel class alone: whatever shares the step, the bits are the
// same.
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
  if (rows.slots.size() != rows.tokens.size() || covered != rows.size()) {
    return invalid_argument(fmt::format("a step of {} tokens and {} slots, {} of them in groups",
                                        rows.tokens.size(), rows.slots.size(), covered));
  }
  return Status::ok();
}

}  // namespace

ForwardPass::ForwardPass(const Model& model, const kernels::Context& context)
    : model_(model), context_(context) {}

void ForwardPass::time_attention(Env& env) {
  clock_ = &env;
  attention_times_.assign(model_.config().n_layers, {});
}

void ForwardPass::reserve(int64_t n_rows) {
  const ModelConfig& c = model_.config();
  normed_.reserve_discard(n_rows, c.n_embd);
  projected_.reserve_discard(n_rows, c.n_embd);
  q_.reserve_discard(n_rows, c.q_width());
  attended_.reserve_discard(n_rows, c.q_width());
  k_.reserve_discard(n_rows, c.kv_width());
  v_.reserve_discard(n_rows, c.kv_width());
  gate_.reserve_discard(n_rows, c.n_ff);
  up_.reserve_discard(n_rows, c.n_ff);
  log_sum_exp_.reserve_discard(n_rows, c.n_heads);
  if (c.n_experts == 0) return;
  expert_in_.reserve_discard(n_rows, c.n_embd);
  expert_out_.reserve_discard(n_rows, c.n_embd);
  router_scores_.reserve_discard(n_rows, c.n_experts);
  router_.reserve(n_rows, c.n_experts, c.n_experts_used);
}

Result<Batch> ForwardPass::start(kv::Cache& cache, Rows rows) {
  const ModelConfig& c = model_.config();
  WEFT_RETURN_IF_ERROR(check_rows(rows, c.vocab_size));
  Batch batch(c, context_.isa, cache, std::move(rows));
  for (const Block& block : batch.blocks_) reserve(block.n_rows);

  batch.hidden_ = MatrixBuffer<float>::uninitialised(batch.n_rows(), c.n_embd);
  const MatrixView<float> hidden = batch.hidden_.first(batch.n_rows());
  const WeightMatrix& embedding = model_.weights().token_embedding;
  for (int64_t row = 0; row < hidden.rows; ++row) {
    kernels::dequantize(context_.isa, embedding.dtype, embedding.row(batch.rows().tokens[row]),
                        hidden.row(row).data(), c.n_embd);
  }
  if (c.embedding_scale != 1.0f) kernels::scale_in_place(context_, hidden, c.embedding_scale);
  return batch;
}

void ForwardPass::run_layer(Batch& batch, int32_t layer, const LayerHooks& hooks) {
  if (hooks.sink_first && batch.blocks_.size() > 1) {
    see_keys_and_values(batch, layer, *hooks.kv_sink);
    return run_layer(batch, layer, {.received = hooks.received});
  }
  for (const Block& block : batch.blocks_) {
    project(batch, layer, block, Projection::kAll);
    place_keys_and_values(batch, layer, block, hooks);
    attention_part(batch, layer, block, hooks);
    feed_forward_part(batch, layer, block);
  }
}

// All rows' K and V go into the pages, but only the rows whose logits are wanted go on: of a prompt
// of 512 tokens the last layer's attention and feed-forward network run for one.
void ForwardPass::run_last_layer(Batch& batch, std::span<const int64_t> rows,
                                 const LayerHooks& hooks) {
  const int32_t layer = model_.config().n_layers - 1;
  if (std::ssize(rows) == batch.n_rows()) return run_layer(batch, layer, hooks);  // as in decode
  if (hooks.sink_first && batch.blocks_.size() > 1) {
    see_keys_and_values(batch, layer, *hooks.kv_sink);
    return run_last_layer(batch, rows, {.received = hooks.received});
  }
  if (must_see_every_row(batch, rows)) {
    run_layer(batch, layer, hooks);
    return batch.keep_rows(rows);
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

/// Where the selector remembers what rows got and decode's are not all wanted: a request that was
/// preempted computes its answer again.
bool ForwardPass::must_see_every_row(const Batch& batch, std::span<const int64_t> wanted) const {
  if (selector_ == nullptr || !selector_->remembers()) return false;
  return std::ranges::any_of(batch.blocks_, [&](const Block& block) {
    const auto first = std::ranges::lower_bound(wanted, block.row_begin);
    const auto end = std::ranges::lower_bound(wanted, block.row_begin + block.n_rows);
    return block.kernel_class == KernelClass::kDecode && end - first < block.n_rows;
  });
}

// Attention without what follows it: the rows' hidden states stay as they were.
void ForwardPass::look(Batch& batch, int32_t layer, std::span<float> received) {
  for (const Block& block : batch.blocks_) {
    project(batch, layer, block, Projection::kAll);
    place_keys_and_values(batch, layer, block, {});
    attend(batch, layer, block, {.received = received});
  }
}

/// q, k, v = W norm(x), or some of them, with biases and norms of their own where the model has
/// them.
void ForwardPass::project(const Batch& batch, int32_t layer, const Block& block, Projection what) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.weights().layers[layer];
  const int64_t n = block.n_rows;
  const MatrixView<float> normed = normed_.first(n), q = q_.first(n), k = k_.first(n),
                          v = v_.first(n);

  kernels::rms_norm(context_, batch.hidden(block), w.attention_norm.span(), c.rms_eps, normed);
  const MatmulOutput qkv[] = {{&w.q, q}, {&w.k, k}, {&w.v, v}};
  const auto wanted = what == Projection::kAll             ? std::span(qkv)
                      : what == Projection::kQueries       ? std::span(qkv).first(1)
                      : what == Projection::kKeysAndValues ? std::span(qkv).last(2)
                                                           : std::span(qkv).last(1);
  kernels::matmul(context_, normed, wanted, block.kernel_class);
  if (what == Projection::kAll || what == Projection::kQueries) {
    add_bias(w.q_bias, q);
    if (c.has_qk_norm) {
      const MatrixView<float> heads = q.in_rows_of(c.head_dim);
      kernels::rms_norm(context_, heads, w.q_norm.span(), c.rms_eps, heads);
    }
  }
  if (what != Projection::kQueries) add_bias(w.v_bias, v);
  if (what == Projection::kAll || what == Projection::kKeysAndValues) {
    add_bias(w.k_bias, k);
    if (c.has_qk_norm) {
      const MatrixView<float> heads = k.in_rows_of(c.head_dim);
      kernels::rms_norm(context_, heads, w.k_norm.span(), c.rms_eps, heads);
    }
  }
}

/// Into the pages; K rotated.
void ForwardPass::place_keys_and_values(const Batch& batch, int32_t layer, const Block& block,
                                        const LayerHooks& hooks) {
  const MatrixView<float> k = k_.first(block.n_rows), v = v_.first(block.n_rows);
  if (hooks.kv_sink != nullptr) (*hooks.kv_sink)(block.row_begin, k, v);
  // K is kept rotated: decode reads it thousands of times. What reuse rotates is the difference to
  // its new position (kernels/rope.h); the sink above sees K before rotation, which is what records
  // hold.
  kernels::apply_rope(context_, batch.rope_of(layer), block.row_begin, k, model_.config().head_dim);
  const kernels::AttentionArgs args = batch.attention_args(block, layer);
  kernels::write_kv(context_, args.kv, args.sequences, args.slots, k, v);
  tell_of_prompts(batch, layer, block);
}

/// Decode's rows come to the selector by themselves.
void ForwardPass::tell_of_prompts(const Batch& batch, int32_t layer, const Block& block) {
  if (selector_ == nullptr || !selector_->remembers()) return;
  if (block.kernel_class == KernelClass::kDecode) return;
  const int64_t block_end = block.row_begin + block.n_rows;
  for (const RowGroup& group : batch.rows().groups) {
    const int64_t first = std::max(group.row_begin, block.row_begin);
    if (first >= std::min(group.row_end, block_end)) continue;
    selector_->written(group.sequence, batch.rows().slots[first], layer);
  }
}

/// x += Wo attention(q, K, V)
void ForwardPass::attention_part(Batch& batch, int32_t layer, const Block& block,
                                 const LayerHooks& hooks) {
  const LayerWeights& w = model_.weights().layers[layer];
  attend(batch, layer, block, hooks);

  const MatrixView<float> projected = projected_.first(block.n_rows);
  const MatmulOutput o[] = {{&w.o, projected}};
  kernels::matmul(context_, attended_.first(block.n_rows), o, block.kernel_class);
  add_bias(w.o_bias, projected);
  add_output(batch, w.post_attention_norm, block);
}

/// A row's K and V do not depend on the rows beside it, so these are the ones that it attends with.
void ForwardPass::see_keys_and_values(const Batch& batch, int32_t layer,
                                      const LayerHooks::KvSink& sink) {
  for (const Block& block : batch.blocks_) {
    project(batch, layer, block, Projection::kKeysAndValues);
    sink(block.row_begin, k_.first(block.n_rows), v_.first(block.n_rows));
  }
}

/// attended = attention(rope(q), K, V)
void ForwardPass::attend(const Batch& batch, int32_t layer, const Block& block,
                         const LayerHooks& hooks) {
  const int64_t n = block.n_rows;
  const MatrixView<float> q = q_.first(n);
  kernels::apply_rope(context_, batch.rope_of(layer), block.row_begin, q, model_.config().head_dim);
  if (!batch.query_scales_.empty()) {
    kernels::scale_rows(context_, q, std::span(batch.query_scales_).subspan(block.row_begin, n));
  }
  kernels::AttentionArgs args = batch.attention_args(block, layer);
  args.q = q;
  args.out = attended_.first(n);
  if (!hooks.received.empty()) args.log_sum_exp = log_sum_exp_.first(n);
  const bool is_timed = clock_ != nullptr && block.kernel_class == KernelClass::kDecode;
  const int64_t begin_ns = is_timed ? clock_->monotonic_ns() : 0;
  const bool selected = select_pages(batch, layer, block, args);
  const int64_t selected_ns = is_timed ? clock_->monotonic_ns() : 0;
  if (selected) {
    kernels::attention(context_, args, kernels::plan_attention(context_.isa, args));
  } else {
    kernels::attention(context_, args, batch.plan_of(block, layer));
  }
  const int64_t attended_ns = is_timed ? clock_->monotonic_ns() : 0;
  if (!page_sums_of_rows_.empty()) {
    selector_->attended(context_, selecting_layer(batch, layer, args), page_sums_of_rows_);
  }
  if (is_timed) {
    attention_times_[layer].attend_ns += attended_ns - selected_ns;
    attention_times_[layer].select_ns +=
        selected_ns - begin_ns + clock_->monotonic_ns() - attended_ns;
  }
  if (!hooks.received.empty()) kernels::attention_received(context_, args, hooks.received);
}

kv::SelectingLayer ForwardPass::selecting_layer(const Batch& batch, int32_t layer,
                                                const kernels::AttentionArgs& args) const {
  return {.cache = *batch.cache_,
          .layer = layer,
          .n_heads = args.n_heads,
          .scale = args.scale,
          .softcap = args.softcap,
          .rows = selecting_rows_};
}

/// Lists of pages in place of the rows' block tables, where the selector has some for a row: each
/// row is a sequence of its own then, which changes none of its bits. False: all read all pages,
/// and nobody wants to know what they attend to.
bool ForwardPass::select_pages(const Batch& batch, int32_t layer, const Block& block,
                               kernels::AttentionArgs& args) {
  page_sums_of_rows_.clear();
  const bool may_select = selector_ != nullptr && block.kernel_class == KernelClass::kDecode &&
                          model_.config().layers[layer].window_tokens == 0;
  if (!may_select) return false;
  batch.selecting_rows(block, layer, args.q, selecting_rows_);
  const auto lists = selector_->select(context_, selecting_layer(batch, layer, args));
  selected_.clear();
  bool any = false;
  for (int64_t row = 0; row < block.n_rows; ++row) {
    selected_.push_back({.block_table = selecting_rows_[row].block_table.data(),
                         .row_begin = row,
                         .row_end = row + 1,
                         .kernel_class = block.kernel_class,
                         .heads = lists[row]});
    any |= !lists[row].empty();
  }
  any |= ask_for_page_sums(batch.cache_->page_tokens(), args.n_heads);
  if (any) args.sequences = selected_;
  return any;
}

/// Of the rows in selected_ that read all pages, where the selector wants to see what they attend
/// to; whether there are any.
bool ForwardPass::ask_for_page_sums(int32_t page_tokens, int32_t n_heads) {
  if (!selector_->sees_attention()) return false;
  const auto n_pages = [&](const kv::SelectingRow& row) -> int64_t {
    return row.use == kv::RowUse::kReadsAll ? row.slot / page_tokens + 1 : 0;
  };
  int64_t n_floats = 0;
  for (const kv::SelectingRow& row : selecting_rows_) n_floats += n_heads * n_pages(row);
  if (n_floats == 0) return false;
  page_log_sums_.resize(n_floats);
  float* sums = page_log_sums_.data();
  for (size_t i = 0; i < selecting_rows_.size(); ++i) {
    const int64_t n = n_pages(selecting_rows_[i]);
    if (n > 0) selected_[i].page_log_sums = sums;
    page_sums_of_rows_.push_back({sums, n > 0 ? n_heads : 0, n});
    sums += n_heads * n;
  }
  return true;
}

/// x += Wdown (activation(Wgate norm(x)) * Wup norm(x)), or a mixture of such.
void ForwardPass::feed_forward_part(Batch& batch, int32_t layer, const Block& block) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.weights().layers[layer];
  const MatrixView<float> normed = normed_.first(block.n_rows);
  kernels::rms_norm(context_, batch.hidden(block), w.ffn_norm.span(), c.rms_eps, normed);
  if (c.n_experts > 0) {
    mixture_of_experts(w, block);
  } else {
    feed_forward(w.experts.front(), normed, block.kernel_class, projected_.first(block.n_rows));
  }
  add_output(batch, w.post_ffn_norm, block);
}

/// out [n_rows, n_embd] from x [n_rows, n_embd].
void ForwardPass::feed_forward(const FeedForwardWeights& w, MatrixView<const float> x,
                               KernelClass kernel_class, MatrixView<float> out) {
  const MatrixView<float> gate = gate_.first(x.rows), up = up_.first(x.rows);
  const MatmulOutput gate_up[] = {{&w.gate, gate}, {&w.up, up}};
  kernels::matmul(context_, x, gate_up, kernel_class);
  if (model_.config().activation == Activation::kGelu) {
    kernels::gelu_multiply(context_, gate, up);
  } else {
    kernels::silu_multiply(context_, gate, up);
  }
  const MatmulOutput down[] = {{&w.down, out}};
  kernels::matmul(context_, gate, down, kernel_class);
}

/// Each row's experts one after another, in the experts' order, so that a row's sum does not depend
/// on the other rows.
void ForwardPass::mixture_of_experts(const LayerWeights& w, const Block& block) {
  const MatrixView<float> normed = normed_.first(block.n_rows),
                          projected = projected_.first(block.n_rows),
                          scores = router_scores_.first(block.n_rows);
  const MatmulOutput router[] = {{&w.router, scores}};
  kernels::matmul(context_, normed, router, block.kernel_class);
  const std::vector<ExpertRows>& experts = router_.route(scores, model_.config().n_experts_used);

  std::ranges::fill(projected.elements(), 0.0f);
  for (size_t e = 0; e < experts.size(); ++e) {
    const ExpertRows& expert = experts[e];
    const int64_t n = std::ssize(expert.rows);
    if (n == 0) continue;
    const MatrixView<float> in = expert_in_.first(n), out = expert_out_.first(n);
    kernels::gather_rows(context_, normed, expert.rows, in);
    feed_forward(w.experts[e], in, block.kernel_class, out);
    kernels::add_scaled_rows(context_, projected, expert.rows, expert.weights, out);
  }
}

void ForwardPass::add_bias(const AlignedBuffer<float>& bias, MatrixView<float> x) {
  if (bias.size() > 0) kernels::add_bias(context_, x, bias.span());
}

/// x += what the block of layers made, normalised first where the model does so.
void ForwardPass::add_output(Batch& batch, const AlignedBuffer<float>& post_norm,
                             const Block& block) {
  const MatrixView<float> projected = projected_.first(block.n_rows);
  if (post_norm.size() > 0) {
    kernels::rms_norm(context_, projected, post_norm.span(), model_.config().rms_eps, projected);
  }
  kernels::add_in_place(context_, batch.hidden(block), projected);
}

void ForwardPass::values(const Batch& batch, int32_t layer, MatrixView<float> out) {
  for (const Block& block : batch.blocks_) {
    project(batch, layer, block, Projection::kValues);
    const MatrixView<const float> v = v_.first(block.n_rows);
    for (int64_t row = 0; row < block.n_rows; ++row) {
      std::ranges::copy(v.row(row), out.row(block.row_begin + row).begin());
    }
  }
}

void ForwardPass::logits(const Batch& batch, std::span<const int64_t> rows, MatrixView<float> out,
                         KernelClass kernel_class) {
  // `perplexity` wants a row of logits for each token: a step's hidden rows are gathered so many at
  // a time, as the scratch has no room for more.
  constexpr int64_t kRowsAtOnce = 512;
  const ModelConfig& c = model_.config();
  const Weights& w = model_.weights();
  const int64_t n_rows = std::ssize(rows);
  for (const int64_t row : rows) WEFT_CHECK(row >= 0 && row < batch.n_rows());
  WEFT_CHECK(out.rows == n_rows && out.columns == c.vocab_size);
  normed_.reserve_discard(std::min(n_rows, kRowsAtOnce), c.n_embd);
  for (int64_t begin = 0; begin < n_rows; begin += kRowsAtOnce) {
    const int64_t n = std::min(kRowsAtOnce, n_rows - begin);
    const MatrixView<float> normed = normed_.first(n);
    kernels::gather_rows(context_, batch.hidden_.first(batch.n_rows()), rows.subspan(begin, n),
                         normed);
    kernels::rms_norm(context_, normed, w.output_norm.span(), c.rms_eps, normed);
    const MatmulOutput head[] = {{&w.output, out.row_range(begin, n)}};
    kernels::matmul(context_, normed, head, kernel_class);
  }
  if (c.logit_softcap != 0) kernels::softcap_in_place(context_, out, c.logit_softcap);
}

}  // namespace weft::model
