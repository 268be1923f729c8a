#include "model/forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "kernels/dequantize.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"

namespace weft::model {

using kernels::MatmulOutput;

namespace {

// Rows that go through a layer together: enough that expanding a weight panel costs little beside
// the product (1/512 of it), few enough that a wide model's scratch stays at some tens of MB.
constexpr int64_t kBlockRows = 512;

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

ForwardPass::ForwardPass(const Model& model, const kernels::Context& context, kv::Cache& cache)
    : model_(model), context_(context), cache_(cache) {}

void ForwardPass::begin(Step step) {
  step_ = std::move(step);
  const ModelConfig& config = model_.config();
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

  const WeightMatrix& embedding = model_.weights().token_embedding;
  const int64_t bytes = row_bytes(embedding.dtype, embedding.in_features);
  for (size_t row = 0; row < n_rows; ++row) {
    const int32_t token = step_.tokens[row];
    WEFT_CHECK(token >= 0 && token < config.vocab_size);
    kernels::dequantize(context_.isa, embedding.dtype,
                        static_cast<const std::byte*>(embedding.data) + token * bytes,
                        hidden_.data() + row * n_embd, config.n_embd);
  }
  refresh_rope();
}

void ForwardPass::refresh_rope() {
  rope_ = kernels::make_rope_table(model_.config().rope, step_.positions);
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

void ForwardPass::run_layer(int32_t layer, const LayerTap& tap) {
  const LayerWeights& weights = model_.weights().layers[static_cast<size_t>(layer)];
  const kernels::PagedKv kv = cache_.layer(layer);
  for (int64_t row = 0; row < step_.n_rows(); row += kBlockRows) {
    run_block(weights, kv, block_at(row), tap);
  }
}

void ForwardPass::run_block(const LayerWeights& w, const kernels::PagedKv& kv, const Block& block,
                            const LayerTap& tap) {
  attention_part(w, kv, block, tap);
  feed_forward_part(w, block);
}

/// x += Wo attention(rope(Wq norm(x)), rope(Wk norm(x)), Wv norm(x))
void ForwardPass::attention_part(const LayerWeights& w, const kernels::PagedKv& kv,
                                 const Block& block, const LayerTap& tap) {
  const ModelConfig& c = model_.config();
  const int64_t n = block.n_rows;
  float* x = hidden_.data() + block.row_begin * c.n_embd;
  const int32_t* positions = step_.positions.data() + block.row_begin;

  kernels::rms_norm(context_, x, w.attention_norm.data(), c.rms_eps, n, c.n_embd, normed_.data());
  const MatmulOutput qkv[] = {{&w.q, q_.data(), c.q_width()},
                              {&w.k, k_.data(), c.kv_width()},
                              {&w.v, v_.data(), c.kv_width()}};
  kernels::matmul(context_, normed_.data(), c.n_embd, n, qkv);
  if (tap.kv_sink != nullptr) (*tap.kv_sink)(block.row_begin, n, k_.data(), v_.data());

  kernels::apply_rope(context_, rope_, block.row_begin, q_.data(), n, c.n_heads, c.head_dim);
  kernels::apply_rope(context_, rope_, block.row_begin, k_.data(), n, c.n_kv_heads, c.head_dim);
  kernels::write_kv(context_, kv, block.sequences, positions, k_.data(), v_.data());

  kernels::AttentionArgs args;
  args.kv = kv;
  args.sequences = block.sequences;
  args.positions = positions;
  args.n_heads = c.n_heads;
  args.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  args.q = q_.data();
  args.out = attended_.data();
  args.log_sum_exp = tap.mass.empty() ? nullptr : log_sum_exp_.data();
  kernels::attention(context_, args);
  if (!tap.mass.empty()) {
    kernels::attention_mass(context_, args, static_cast<int64_t>(tap.mass.size()), tap.mass.data());
  }

  const MatmulOutput o[] = {{&w.o, projected_.data(), c.n_embd}};
  kernels::matmul(context_, attended_.data(), c.q_width(), n, o);
  kernels::add_in_place(context_, x, projected_.data(), n * c.n_embd);
}

/// x += Wdown (silu(Wgate norm(x)) * Wup norm(x))
void ForwardPass::feed_forward_part(const LayerWeights& w, const Block& block) {
  const ModelConfig& c = model_.config();
  const int64_t n = block.n_rows;
  float* x = hidden_.data() + block.row_begin * c.n_embd;

  kernels::rms_norm(context_, x, w.ffn_norm.data(), c.rms_eps, n, c.n_embd, normed_.data());
  const MatmulOutput gate_up[] = {{&w.gate, gate_.data(), c.n_ff}, {&w.up, up_.data(), c.n_ff}};
  kernels::matmul(context_, normed_.data(), c.n_embd, n, gate_up);
  kernels::silu_multiply(context_, gate_.data(), up_.data(), n, c.n_ff);
  const MatmulOutput down[] = {{&w.down, projected_.data(), c.n_embd}};
  kernels::matmul(context_, gate_.data(), c.n_ff, n, down);
  kernels::add_in_place(context_, x, projected_.data(), n * c.n_embd);
}

void ForwardPass::values(int32_t layer, float* out) {
  const ModelConfig& c = model_.config();
  const LayerWeights& w = model_.weights().layers[static_cast<size_t>(layer)];
  for (int64_t row = 0; row < step_.n_rows(); row += kBlockRows) {
    const int64_t n = std::min(kBlockRows, step_.n_rows() - row);
    kernels::rms_norm(context_, hidden_.data() + row * c.n_embd, w.attention_norm.data(), c.rms_eps,
                      n, c.n_embd, normed_.data());
    const MatmulOutput v[] = {{&w.v, out + row * c.kv_width(), c.kv_width()}};
    kernels::matmul(context_, normed_.data(), c.n_embd, n, v);
  }
}

void ForwardPass::keep_rows(std::span<const int64_t> rows) {
  const auto n_embd = static_cast<size_t>(model_.config().n_embd);
  Step kept;
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
}

}  // namespace weft::model
