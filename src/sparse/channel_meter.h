// Which dimensions of K matter to queries: what Double Sparsity (Yang et al. 2024, section 3.2)
// finds offline, by letting a text through the model.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/token_labels_layout.h"
#include "kv/page_selector.h"

namespace weft::sparse {

/// Chooses no pages, and watches the queries and keys of rows that decode. A dimension's weight is
/// the mean magnitude of K there, times that of the queries of the KV head's group.
class ChannelMeter : public kv::PageSelector {
 public:
  ChannelMeter(int32_t n_layers, int32_t n_kv_heads, int32_t head_dim);
  std::span<const std::span<const kernels::HeadPages>> select(
      const kernels::Context& context, const kv::SelectingLayer& layer) override;
  /// [n_layers][n_kv_heads][kernels::kLabelChannels], the heaviest of each, ascending; the first of
  /// layers that were not seen. Needs kLabelChannels <= head_dim.
  std::vector<uint8_t> channels() const;

 private:
  int32_t n_kv_heads_;
  int32_t head_dim_;
  std::vector<double> q_;  // [n_layers][n_kv_heads][head_dim], sums of magnitudes
  std::vector<double> k_;
  std::vector<std::span<const kernels::HeadPages>> dense_;  // [rows] of none
};

}  // namespace weft::sparse
