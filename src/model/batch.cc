// All that a step's layers share is made here once: angles of RoPE, views of the pages, the plan of
// attention. Layers differ in their window and in their cache group only, so first slots and plans
// are made for each such group, not for each layer.
#include "model/batch.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace weft::model {
namespace {

/// 1 + factor * ln(1 + floor(position / tokens)).
float query_scale(const ModelConfig& c, int32_t position) {
  const float spans = position / c.temperature_tokens;
  return spans == 0 ? 1.0f : 1.0f + c.temperature_factor * std::log1p(spans);
}

}  // namespace

void Rows::add(kv::SequenceId sequence, std::span<const int32_t> added, int32_t first_slot,
               RowKind kind) {
  const int64_t begin = size();
  tokens.insert(tokens.end(), added.begin(), added.end());
  slots.resize(tokens.size());
  std::iota(slots.begin() + begin, slots.end(), first_slot);
  groups.push_back({sequence, kind, begin, size()});
}

Rows Rows::of(kv::SequenceId sequence, std::span<const int32_t> tokens, int32_t first_slot,
              RowKind kind) {
  Rows rows;
  rows.add(sequence, tokens, first_slot, kind);
  return rows;
}

Batch::Batch(const ModelConfig& config, kernels::Isa isa, kv::Cache& cache, Rows rows)
    : config_(&config), isa_(isa), cache_(&cache), rows_(std::move(rows)) {
  for (int32_t layer = 0; layer < config.n_layers; ++layer) {
    kv_.push_back(cache.layer(layer));
    const int32_t kv_group = cache.group_of(layer);
    const int32_t window = config.layers[layer].window_tokens;
    const auto known = std::ranges::find_if(layer_groups_, [&](const LayerGroup& group) {
      return group.kv_group == kv_group && group.window_tokens == window;
    });
    group_of_layer_.push_back(known - layer_groups_.begin());
    if (known != layer_groups_.end()) continue;
    layer_groups_.push_back({layer, kv_group, window, {}});
  }
  plan();
}

void Batch::plan() {
  std::vector<int32_t> positions;
  for (const RowGroup& group : rows_.groups) {
    for (int64_t row = group.row_begin; row < group.row_end; ++row) {
      positions.push_back(cache_->position(group.sequence, rows_.slots[row]));
    }
  }
  ropes_.clear();
  for (const kernels::RopeParams& rope : config_->ropes) {
    ropes_.push_back(kernels::make_rope_table(rope, positions));
  }
  query_scales_.clear();
  if (config_->temperature_factor != 0) {
    for (const int32_t p : positions) query_scales_.push_back(query_scale(*config_, p));
  }
  for (LayerGroup& layers : layer_groups_) {
    layers.first_slots.clear();
    if (layers.window_tokens == 0) continue;
    // A window is so many tokens, whatever their positions.
    for (const int32_t slot : rows_.slots) {
      layers.first_slots.push_back(std::max(0, slot + 1 - layers.window_tokens));
    }
  }
  blocks_.clear();
  for (const RowGroup& group : rows_.groups) {
    const kernels::KernelClass kernel = kernel_class(group.kind);
    for (int64_t row = group.row_begin; row < group.row_end;) {
      // Rows of several sequences share a block as long as one class of kernels computes them: that
      // is what makes a batch cheaper than its requests one by one.
      const bool goes_on = !blocks_.empty() && blocks_.back().kernel_class == kernel &&
                           blocks_.back().n_rows < kBlockRows;
      if (!goes_on) blocks_.push_back({.row_begin = row, .kernel_class = kernel});
      Block& block = blocks_.back();
      block.attention.resize(layer_groups_.size());
      const int64_t n = std::min(group.row_end - row, kBlockRows - block.n_rows);
      for (size_t i = 0; i < layer_groups_.size(); ++i) {
        const auto table = cache_->block_table(group.sequence, layer_groups_[i].kv_group);
        block.attention[i].sequences.push_back(
            {table.data(), block.n_rows, block.n_rows + n, kernel});
      }
      block.n_rows += n;
      row += n;
    }
  }
  for (Block& block : blocks_) {
    for (size_t i = 0; i < layer_groups_.size(); ++i) {
      const int32_t layer = layer_groups_[i].first_layer;
      block.attention[i].plan = kernels::plan_attention(isa_, attention_args(block, layer));
    }
  }
}

kernels::AttentionArgs Batch::attention_args(const Block& block, int32_t layer) const {
  const std::vector<int32_t>& first_slots = layer_groups_[group_of(layer)].first_slots;
  const auto of_block = [&](const std::vector<int32_t>& slots) {
    return std::span(slots).subspan(block.row_begin, block.n_rows);
  };
  return {.kv = kv_[layer],
          .sequences = block.attention[group_of(layer)].sequences,
          .slots = of_block(rows_.slots),
          .first_slots = first_slots.empty() ? first_slots : of_block(first_slots),
          .n_heads = config_->n_heads,
          .scale = config_->attention_scale,
          .softcap = config_->attention_softcap};
}

void Batch::selecting_rows(const Block& block, int32_t layer, MatrixView<const float> q,
                           std::vector<kv::SelectingRow>& out) const {
  out.clear();
  const int64_t block_end = block.row_begin + block.n_rows;
  for (const RowGroup& group : rows_.groups) {
    const int64_t end = std::min(group.row_end, block_end);
    for (int64_t row = std::max(group.row_begin, block.row_begin); row < end; ++row) {
      out.push_back({.sequence = group.sequence,
                     .slot = rows_.slots[row],
                     .q = q.row(row - block.row_begin).data(),
                     .block_table = cache_->layer_table(group.sequence, layer),
                     .use = group.kind == RowKind::kDense   ? kv::RowUse::kReadsAll
                            : group.kind == RowKind::kDraft ? kv::RowUse::kDraft
                                                            : kv::RowUse::kDecode});
    }
  }
}

// In place and ascending, so no row is overwritten before it has moved. Slots and positions go
// along: what is left attends as before.
void Batch::keep_rows(std::span<const int64_t> kept_rows) {
  const MatrixView<float> hidden = hidden_.first(n_rows());
  Rows kept;
  int64_t next = 0;
  for (const RowGroup& group : rows_.groups) {
    const int64_t begin = kept.size();
    for (; next < std::ssize(kept_rows) && kept_rows[next] < group.row_end; ++next) {
      const int64_t from = kept_rows[next], to = kept.size();
      if (from != to) std::ranges::copy(hidden.row(from), hidden.row(to).begin());
      kept.tokens.push_back(rows_.tokens[from]);
      kept.slots.push_back(rows_.slots[from]);
    }
    if (begin < kept.size())
      kept.groups.push_back({group.sequence, group.kind, begin, kept.size()});
  }
  WEFT_CHECK(next == std::ssize(kept_rows));
  rows_ = std::move(kept);
  plan();
}

}  // namespace weft::model
