// A step as a value: which tokens run, where, and of what kind, with all that its layers share
// (RoPE tables, views of the K and V, the plan of attention) and the hidden states on their way. It
// holds no weights and computes nothing; ForwardPass does (forward.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "kernels/attention.h"
#include "kernels/kernel_class.h"
#include "kernels/rope.h"
#include "kv/cache.h"
#include "kv/page_selector.h"
#include "model/config.h"
#include "tensor/matrix_buffer.h"

namespace weft::model {

/// Rows that go through a layer together: enough that expanding a weight panel costs little beside
/// the product (1/512 of it), few enough that a wide model's scratch stays at some tens of MB.
inline constexpr int64_t kBlockRows = 512;

/// What a row is, which alone decides the arithmetic that it gets: the bits of its result are the
/// same whatever shares its step.
enum class RowKind : uint8_t {
  kPrompt,  // given text: prefill's kernels, however few rows
  kDecode,  // a token that was generated: decode's kernels, however many rows
  kVerify,  // a drafted token, which decode's rows must equal: the same kernels
  kDraft,   // a token of the model's own draft, run to guess the next one: the same kernels
  kDense,   // a generated token that reads all pages, whatever a selector says: the same kernels
};
inline constexpr kernels::KernelClass kernel_class(RowKind kind) {
  return kind == RowKind::kPrompt ? kernels::KernelClass::kPrefill : kernels::KernelClass::kDecode;
}

inline constexpr kv::SlotKind slot_kind(RowKind kind) {
  return kind == RowKind::kPrompt ? kv::SlotKind::kPrompt : kv::SlotKind::kDecode;
}

/// The rows [row_begin, row_end) of a step that belong to `sequence` and are of one kind.
struct RowGroup {
  kv::SequenceId sequence{};
  RowKind kind = RowKind::kPrompt;
  int64_t row_begin = 0;
  int64_t row_end = 0;
};

/// The rows of a step. A slot is where a row's K and V lie, and what the mask counts by; the cache
/// knows the position that RoPE takes for it. Slots ascend within a group, need not be consecutive,
/// and are writable. A sequence's groups are in the order of their slots.
struct Rows {
  std::vector<int32_t> tokens;
  std::vector<int32_t> slots;
  std::vector<RowGroup> groups;  // cover the rows in order, none empty

  int64_t size() const { return std::ssize(tokens); }
  /// Adds a group in consecutive slots from `first_slot`.
  void add(kv::SequenceId sequence, std::span<const int32_t> tokens, int32_t first_slot,
           RowKind kind = RowKind::kPrompt);
  /// The rows of one such group.
  static Rows of(kv::SequenceId sequence, std::span<const int32_t> tokens, int32_t first_slot,
                 RowKind kind = RowKind::kPrompt);
};

/// Movable. Refers to the block tables of its sequences, which must not change while it is used.
class Batch {
 public:
  const Rows& rows() const { return rows_; }
  int64_t n_rows() const { return rows_.size(); }

 private:
  friend class ForwardPass;

  /// What the layers of a group have in common.
  struct Attention {
    std::vector<kernels::AttentionSequence> sequences;  // rows counted from the block's first
    kernels::AttentionPlan plan;
  };
  /// Consecutive rows of one kernel class, few enough for the scratch of a pass.
  struct Block {
    int64_t row_begin = 0;
    int64_t n_rows = 0;
    kernels::KernelClass kernel_class = kernels::KernelClass::kPrefill;
    std::vector<Attention> attention;  // one for each of layer_groups_
  };
  /// Layers with the same block tables and the same window.
  struct LayerGroup {
    int32_t first_layer = 0;
    int32_t kv_group = 0;              // of the cache
    int32_t window_tokens = 0;         // 0: none
    std::vector<int32_t> first_slots;  // [n_rows], where there is a window
  };

  Batch(const ModelConfig& config, kernels::Isa isa, kv::Cache& cache, Rows rows);
  /// Makes what depends on which rows there are.
  void plan();
  const kernels::RopeTable& rope_of(int32_t layer) const {
    return ropes_[config_->layers[layer].rope];
  }
  int64_t group_of(int32_t layer) const { return group_of_layer_[layer]; }
  const kernels::AttentionPlan& plan_of(const Block& block, int32_t layer) const {
    return block.attention[group_of(layer)].plan;
  }
  /// The block's hidden states.
  MatrixView<float> hidden(const Block& block) {
    return hidden_.first(n_rows()).row_range(block.row_begin, block.n_rows);
  }
  MatrixView<const float> hidden(const Block& block) const {
    return hidden_.first(n_rows()).row_range(block.row_begin, block.n_rows);
  }
  /// What attention is told of a layer, but for its inputs and outputs.
  kernels::AttentionArgs attention_args(const Block& block, int32_t layer) const;
  /// The block's rows as a selector of pages sees them: out [block.n_rows]; q [n_rows, n_heads *
  /// head_dim].
  void selecting_rows(const Block& block, int32_t layer, MatrixView<const float> q,
                      std::vector<kv::SelectingRow>& out) const;
  /// Drops every row that is not listed; `rows` ascend.
  void keep_rows(std::span<const int64_t> rows);

  const ModelConfig* config_;
  kernels::Isa isa_;
  kv::Cache* cache_;
  Rows rows_;
  std::vector<kernels::PagedKv> kv_;     // [n_layers]
  std::vector<int64_t> group_of_layer_;  // [n_layers], of layer_groups_
  std::vector<LayerGroup> layer_groups_;
  std::vector<kernels::RopeTable> ropes_;  // of the rows' positions, for each of the model's
  std::vector<float> query_scales_;        // [n_rows], where the model scales q by position
  std::vector<Block> blocks_;
  MatrixBuffer<float> hidden_;  // [n_rows, n_embd]
};

}  // namespace weft::model
