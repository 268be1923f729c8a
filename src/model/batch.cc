#include "model/batch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace weft::model {
namespace {

// Rows that go through a layer together: enough that expanding a weight panel costs little beside
// the product (1/512 of it), few enough that a wide model's scratch stays at some tens of MB.
constexpr int64_t kBlockRows = 512;

/// 1 + factor * ln(1 + floor(position / tokens)).
float query_scale(const ModelConfig& c, int32_t position) {
  const int32_t spans = position / c.temperature_tokens;
  return spans == 0 ? 1.0f : 1.0f + c.temperature_factor * std::log1p(static_cast<float>(spans));
}

}  // namespace

void Rows::add(kv::SequenceId sequence, std::span<const int32_t> added, int32_t first_position,
               RowKind kind) {
  const int64_t begin = size();
  tokens.insert(tokens.end(), added.begin(), added.end());
  slots.resize(tokens.size());
  std::iota(slots.begin() + begin, slots.end(), first_position);
  positions.insert(positions.end(), slots.begin() + begin, slots.end());
  groups.push_back({sequence, kind, begin, size()});
}

Rows Rows::of(kv::SequenceId sequence, std::span<const int32_t> tokens, int32_t first_position,
              RowKind kind) {
  Rows rows;
  rows.add(sequence, tokens, first_position, kind);
  return rows;
}

Batch::Batch(const ModelConfig& config, kernels::Isa isa, kv::Cache& cache, Rows rows)
    : config_(&config), isa_(isa), cache_(&cache), rows_(std::move(rows)) {
  for (int32_t layer = 0; layer < config.n_layers; ++layer) {
    kv_.push_back(cache.layer(layer));
    const int32_t window = config.layers[static_cast<size_t>(layer)].window_tokens;
    if (std::ranges::find(windows_, window, &Window::window_tokens) == windows_.end()) {
      windows_.push_back({.window_tokens = window, .first_slots = {}});
    }
  }
  plan();
}

void Batch::plan() {
  ropes_.clear();
  for (const kernels::RopeParams& rope : config_->ropes) {
    ropes_.push_back(kernels::make_rope_table(rope, rows_.positions));
  }
  query_scales_.clear();
  if (config_->temperature_factor != 0) {
    for (const int32_t p : rows_.positions) query_scales_.push_back(query_scale(*config_, p));
  }
  for (Window& window : windows_) {
    window.first_slots.clear();
    if (window.window_tokens == 0) continue;
    for (size_t row = 0; row < rows_.slots.size(); ++row) {
      // As many slots back as positions: the positions of a sequence ascend by one.
      const int32_t hidden = rows_.positions[row] + 1 - window.window_tokens;
      window.first_slots.push_back(std::max(0, hidden + rows_.slots[row] - rows_.positions[row]));
    }
  }
  blocks_.clear();
  for (const RowGroup& group : rows_.groups) {
    const kernels::KernelClass kernel = kernel_class(group.kind);
    for (int64_t row = group.row_begin; row < group.row_end;) {
      const bool goes_on = !blocks_.empty() && blocks_.back().kernel_class == kernel &&
                           blocks_.back().n_rows < kBlockRows;
      if (!goes_on) blocks_.push_back({.row_begin = row, .kernel_class = kernel});
      Block& block = blocks_.back();
      const int64_t n = std::min(group.row_end - row, kBlockRows - block.n_rows);
      block.sequences.push_back(
          {cache_->block_table(group.sequence).data(), block.n_rows, block.n_rows + n, kernel});
      block.n_rows += n;
      row += n;
    }
  }
  for (Block& block : blocks_) {
    for (const Window& window : windows_) {
      block.plans.push_back(kernels::plan_attention(isa_, attention_args(block, 0, window)));
    }
  }
}

size_t Batch::window_of(int32_t layer) const {
  const int32_t window = config_->layers[static_cast<size_t>(layer)].window_tokens;
  const auto found = std::ranges::find(windows_, window, &Window::window_tokens);
  return static_cast<size_t>(found - windows_.begin());
}

kernels::AttentionArgs Batch::attention_args(const Block& block, int32_t layer) const {
  return attention_args(block, layer, windows_[window_of(layer)]);
}

kernels::AttentionArgs Batch::attention_args(const Block& block, int32_t layer,
                                             const Window& window) const {
  return {.kv = kv_[static_cast<size_t>(layer)],
          .sequences = block.sequences,
          .slots = rows_.slots.data() + block.row_begin,
          .first_slots =
              window.first_slots.empty() ? nullptr : window.first_slots.data() + block.row_begin,
          .n_heads = config_->n_heads,
          .scale = config_->attention_scale,
          .softcap = config_->attention_softcap};
}

void Batch::keep_rows(std::span<const int64_t> kept_rows) {
  const auto n_embd = static_cast<size_t>(config_->n_embd);
  Rows kept;
  size_t next = 0;
  for (const RowGroup& group : rows_.groups) {
    const int64_t begin = kept.size();
    for (; next < kept_rows.size() && kept_rows[next] < group.row_end; ++next) {
      const auto from = static_cast<size_t>(kept_rows[next]);
      const size_t to = kept.tokens.size();
      if (from != to) {
        std::memcpy(hidden_.data() + to * n_embd, hidden_.data() + from * n_embd,
                    n_embd * sizeof(float));
      }
      kept.tokens.push_back(rows_.tokens[from]);
      kept.slots.push_back(rows_.slots[from]);
      kept.positions.push_back(rows_.positions[from]);
    }
    if (begin < kept.size())
      kept.groups.push_back({group.sequence, group.kind, begin, kept.size()});
  }
  WEFT_CHECK(next == kept_rows.size());
  rows_ = std::move(kept);
  plan();
}

}  // namespace weft::model
