// The forward pass, layer by layer, over any subset of rows at any positions. One function serves
// prefill, chunked prefill, decode and fusion: what differs is which rows a step has (batch.h) and
// what its sequences' pages already hold. Never allocates pages and never commits: that is the
// caller's reservation.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/env.h"
#include "base/function_ref.h"
#include "kernels/context.h"
#include "kernels/matmul.h"
#include "kv/cache.h"
#include "kv/page_selector.h"
#include "model/batch.h"
#include "model/experts.h"
#include "model/model.h"
#include "tensor/buffer.h"
#include "tensor/matrix_buffer.h"

namespace weft::model {

/// What a caller may look at while a layer runs. Null members cost nothing.
struct LayerHooks {
  /// K before rotation and V of some rows as they are computed, from the batch's row row_begin on:
  /// [n_rows, n_kv_heads * head_dim] each.
  using KvSink =
      FunctionRef<void(int64_t row_begin, MatrixView<const float> k, MatrixView<const float> v)>;
  const KvSink* kv_sink = nullptr;
  /// The sink has been given every row before any row attends; for a step too long to go through
  /// the layer at once its K and V are computed twice.
  bool sink_first = false;
  /// Attention that this layer's rows pay to each of the first received.size() positions, summed
  /// over rows and heads, is added here; for steps of one sequence.
  std::span<float> received;
};

/// Time that decode's and verification's rows spent in a layer's attention, all steps together.
struct AttentionTime {
  int64_t select_ns = 0;  // asking which pages to read
  int64_t attend_ns = 0;  // and reading them
};

/// Holds weights and scratch, and nothing of a step: several batches may be under way, one layer of
/// one of them at a time. Not thread-safe.
class ForwardPass {
 public:
  /// Both must outlive the pass.
  ForwardPass(const Model& model, const kernels::Context& context);

  /// A batch of the rows, its hidden states their embeddings. kInvalidArgument for none, ids
  /// outside the vocabulary, or groups that do not cover the rows.
  Result<Batch> start(kv::Cache& cache, Rows rows);
  /// Runs one transformer layer over the batch's rows, writing their K and V to their pages. A
  /// batch's layers must be run in order from 0. Allocates nothing once a batch of as many rows was
  /// started and has run a layer of this kind.
  void run_layer(Batch& batch, int32_t layer, const LayerHooks& hooks = {});
  /// The same for the last layer where only the listed rows are wanted afterwards, which ascend and
  /// may be none: K and V of all rows, the rest of these, which alone remain.
  void run_last_layer(Batch& batch, std::span<const int64_t> rows, const LayerHooks& hooks = {});
  /// What the rows attend to at `layer`, and no more: their K and V are placed, and attention
  /// received is added to `received` as LayerHooks::received says. No layer can follow.
  void look(Batch& batch, int32_t layer, std::span<float> received);
  /// V of the batch's rows at `layer`, from the hidden states before it: out [n_rows, n_kv_heads *
  /// head_dim]. Changes nothing (CacheBlend's deviation check).
  void values(const Batch& batch, int32_t layer, MatrixView<float> out);
  /// Drops every row that is not listed; `rows` ascend.
  void keep_rows(Batch& batch, std::span<const int64_t> rows) { batch.keep_rows(rows); }
  /// Logits of the listed rows after the last layer: out [rows.size(), vocab_size]. The kernel is
  /// the caller's choice, not the rows': decode's for the few that are sampled from, prefill's
  /// where all of a text's are wanted.
  void logits(const Batch& batch, std::span<const int64_t> rows, MatrixView<float> out,
              kernels::KernelClass kernel_class = kernels::KernelClass::kDecode);

  const Model& model() const { return model_; }

  /// Asked which pages decode's and verification's rows read, at each layer that sees all slots;
  /// null: all. Must outlive the pass.
  void set_selector(kv::PageSelector* selector) { selector_ = selector; }

  /// From now on; `env` (its clock) must outlive the pass.
  void time_attention(Env& env);
  /// [n_layers] sums, or none.
  std::span<const AttentionTime> attention_times() const { return attention_times_; }

  /// Called by the Executor each time a pass was committed, its sequences still there: for those
  /// who watch the cache. Empty: nobody does.
  void set_on_commit(std::function<void()> on_commit) { on_commit_ = std::move(on_commit); }
  const std::function<void()>& on_commit() const { return on_commit_; }

  /// Takes the scratch for so many rows of a block at once, where it has less.
  void reserve(int64_t n_rows);

 private:
  using Block = Batch::Block;

  enum class Projection { kAll, kQueries, kKeysAndValues, kValues };

  void project(const Batch& batch, int32_t layer, const Block& block, Projection what);
  void place_keys_and_values(const Batch& batch, int32_t layer, const Block& block,
                             const LayerHooks& hooks);
  void attention_part(Batch& batch, int32_t layer, const Block& block, const LayerHooks& hooks);
  void feed_forward_part(Batch& batch, int32_t layer, const Block& block);
  void see_keys_and_values(const Batch& batch, int32_t layer, const LayerHooks::KvSink& sink);
  void attend(const Batch& batch, int32_t layer, const Block& block, const LayerHooks& hooks);
  void tell_of_prompts(const Batch& batch, int32_t layer, const Block& block);
  bool must_see_every_row(const Batch& batch, std::span<const int64_t> wanted) const;
  bool select_pages(const Batch& batch, int32_t layer, const Block& block,
                    kernels::AttentionArgs& args);
  kv::SelectingLayer selecting_layer(const Batch& batch, int32_t layer,
                                     const kernels::AttentionArgs& args) const;
  bool ask_for_page_sums(int32_t page_tokens, int32_t n_heads);
  void feed_forward(const FeedForwardWeights& w, MatrixView<const float> x,
                    kernels::KernelClass kernel_class, MatrixView<float> out);
  void mixture_of_experts(const LayerWeights& w, const Block& block);
  void add_bias(const AlignedBuffer<float>& bias, MatrixView<float> x);
  void add_output(Batch& batch, const AlignedBuffer<float>& post_norm, const Block& block);

  const Model& model_;
  const kernels::Context& context_;
  // Scratch for one block of rows.
  MatrixBuffer<float> normed_;         // [rows, n_embd]
  MatrixBuffer<float> q_;              // [rows, n_heads * head_dim]
  MatrixBuffer<float> k_;              // [rows, n_kv_heads * head_dim]
  MatrixBuffer<float> v_;              // [rows, n_kv_heads * head_dim]
  MatrixBuffer<float> attended_;       // [rows, n_heads * head_dim]
  MatrixBuffer<float> projected_;      // [rows, n_embd]
  MatrixBuffer<float> gate_;           // [rows, n_ff]
  MatrixBuffer<float> up_;             // [rows, n_ff]
  MatrixBuffer<float> log_sum_exp_;    // [rows, n_heads]
  MatrixBuffer<float> expert_in_;      // [rows, n_embd]; these three only with experts
  MatrixBuffer<float> expert_out_;     // [rows, n_embd]
  MatrixBuffer<float> router_scores_;  // [rows, n_experts]
  Router router_;
  std::function<void()> on_commit_;
  kv::PageSelector* selector_ = nullptr;
  Env* clock_ = nullptr;                              // null: nothing is timed
  std::vector<AttentionTime> attention_times_;        // [n_layers]
  std::vector<kv::SelectingRow> selecting_rows_;      // of the block at hand; the same with pages
  std::vector<kernels::AttentionSequence> selected_;  // chosen
  std::vector<float> page_log_sums_;                  // of rows that read all, where they are
  std::vector<kv::PageLogSums> page_sums_of_rows_;    // wanted: [rows]
};

}  // namespace weft::model
