// The forward pass, layer by layer, over any subset of rows at any positions. One function serves
// prefill, chunked prefill, decode and fusion: what differs is which rows a step has and what its
// sequences' pages already hold. Never allocates pages and never commits: that is the caller's
// reservation.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "kernels/attention.h"
#include "kernels/context.h"
#include "kernels/matmul.h"
#include "kernels/rope.h"
#include "kv/cache.h"
#include "model/model.h"
#include "tensor/buffer.h"

namespace weft::model {

/// The rows [row_begin, row_end) of a step that belong to `sequence`.
struct StepSequence {
  kv::SequenceId sequence{};
  int64_t row_begin = 0;
  int64_t row_end = 0;
};

/// Which tokens to run, and where they stand. positions ascend within a sequence, need not be
/// consecutive, and have writable pages in the cache.
struct Step {
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  std::vector<StepSequence> sequences;  // cover the rows in order, none empty
  /// The rows are a prompt's and take its kernels, however few they are: what of a prompt was there
  /// already then changes no bit of the rest.
  bool is_prompt = false;

  int64_t n_rows() const { return static_cast<int64_t>(tokens.size()); }

  /// The rows of one sequence at consecutive positions from `first_position`.
  static Step consecutive(kv::SequenceId sequence, std::span<const int32_t> tokens,
                          int32_t first_position);
  /// The same for rows of a prompt.
  static Step prompt(kv::SequenceId sequence, std::span<const int32_t> tokens,
                     int32_t first_position);
};

/// What a caller may look at while a layer runs. Null members cost nothing.
struct LayerTap {
  /// K before rotation and V of some rows as they are computed: [n_rows][n_kv_heads * head_dim]
  /// each.
  using KvSink =
      FunctionRef<void(int64_t row_begin, int64_t n_rows, const float* k, const float* v)>;
  const KvSink* kv_sink = nullptr;
  /// The sink has been given every row before any row attends; for a step too long to go through
  /// the layer at once its K and V are computed twice.
  bool sink_first = false;
  /// Attention that this layer's rows pay to each of the first mass.size() positions, summed over
  /// rows and heads, is added here; for steps of one sequence.
  std::span<float> mass;
};

/// Not thread-safe; one pass at a time. Keeps its scratch between steps.
class ForwardPass {
 public:
  /// All three must outlive the pass.
  ForwardPass(const Model& model, const kernels::Context& context, kv::Cache& cache);

  /// Takes the step's embeddings as hidden states, [n_rows, n_embd]. kInvalidArgument for a step
  /// without rows, with ids outside the vocabulary, or whose sequences do not cover its rows.
  Status begin(Step step);
  /// Runs one transformer layer over the step's rows, writing their K and V to their pages. Layers
  /// must be run in order from 0.
  void run_layer(int32_t layer, const LayerTap& tap = {});
  /// V of the step's rows at `layer`, from the hidden states in front of it: out [n_rows,
  /// n_kv_heads * head_dim]. Changes nothing (CacheBlend's deviation check).
  void values(int32_t layer, float* out);
  /// Drops every row that is not listed; `rows` ascend.
  void keep_rows(std::span<const int64_t> rows);
  /// Logits of the listed rows after the last layer: out [rows.size(), vocab_size].
  void logits(std::span<const int64_t> rows, float* out);

  const Step& step() const { return step_; }
  const Model& model() const { return model_; }

 private:
  struct Block;  // some consecutive rows of the step, few enough for the scratch

  void attention_part(int32_t layer, const Block& block, const LayerTap& tap);
  void feed_forward_part(int32_t layer, const Block& block);
  void project_qkv(int32_t layer, const Block& block);
  void sink_keys_and_values(int32_t layer, const LayerTap::KvSink& sink);
  void attend(int32_t layer, const Block& block, const LayerTap& tap);
  void feed_forward(const FeedForwardWeights& w, const float* x, int64_t n_rows,
                    kernels::RowsLike like, float* out);
  void mixture_of_experts(const LayerWeights& w, int64_t n_rows);
  void add_bias(const AlignedBuffer<float>& bias, int64_t n_rows, int64_t n, float* x);
  void add_output(const AlignedBuffer<float>& post_norm, const Block& block);
  Block block_at(int64_t row_begin) const;
  kernels::RowsLike like(int64_t n_rows) const;
  void refresh_rope();

  const Model& model_;
  const kernels::Context& context_;
  kv::Cache& cache_;
  Step step_;
  std::vector<kernels::RopeTable> ropes_;  // of the step's positions, for each of the model's
  AlignedBuffer<float> hidden_;            // [n_rows, n_embd]
  // Scratch for one block of rows.
  AlignedBuffer<float> normed_;       // [rows, n_embd]
  AlignedBuffer<float> q_;            // [rows, n_heads * head_dim]
  AlignedBuffer<float> k_;            // [rows, n_kv_heads * head_dim]
  AlignedBuffer<float> v_;            // [rows, n_kv_heads * head_dim]
  AlignedBuffer<float> attended_;     // [rows, n_heads * head_dim]
  AlignedBuffer<float> projected_;    // [rows, n_embd]
  AlignedBuffer<float> gate_;         // [rows, n_ff]
  AlignedBuffer<float> up_;           // [rows, n_ff]
  AlignedBuffer<float> log_sum_exp_;  // [rows, n_heads]
  AlignedBuffer<float> expert_in_;    // [rows, n_embd]; these three only with experts
  AlignedBuffer<float> expert_out_;   // [rows, n_embd]
  AlignedBuffer<float> router_;       // [rows, n_experts]
};

}  // namespace weft::model
