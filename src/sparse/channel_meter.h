// Which dimensions of K matter to queries, found by letting a text through the model: Double
// Sparsity's offline calibration (Yang et al. 2024, section 3.2), and the order of kSides labels.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/token_labels_layout.h"
#include "kv/page_selector.h"

namespace weft::sparse {

/// Chooses no pages, and watches the queries and keys of rows that decode.
class ChannelMeter : public kv::PageSelector {
 public:
  ChannelMeter(int32_t n_layers, int32_t n_kv_heads, int32_t head_dim);
  std::span<const std::span<const kernels::HeadPages>> select(
      const kernels::Context& context, const kv::SelectingLayer& layer) override;
  /// As kv::DigestFormat::channels. Of kChannels the heaviest of each head, ascending, by the mean
  /// magnitude of K times that of the queries of the KV head's group; needs kLabelChannels <=
  /// head_dim. Of kSides all, the heaviest first, by the mean square of the queries times the
  /// variance of K within a page, of pages that were full: what of its scores' differences a
  /// dimension makes. Layers that were not seen
  /// have K's order.
  std::vector<uint8_t> channels(kernels::LabelKind labels) const;

 private:
  /// Of one layer, KV head and dimension, over all rows.
  struct Sums {
    double q = 0, k = 0;  // of magnitudes
    double q_square = 0;
    double k_within = 0;                 // squares of differences from the mean of the page
    double page_k = 0, page_square = 0;  // of the page that is being filled
    void end_page(int32_t page_tokens);
  };
  static double weight(const Sums& of, kernels::LabelKind labels);

  int32_t n_kv_heads_;
  int32_t head_dim_;
  std::vector<Sums> sums_;                                  // [n_layers][n_kv_heads][head_dim]
  std::vector<int64_t> n_rows_;                             // [n_layers]
  std::vector<std::span<const kernels::HeadPages>> dense_;  // [rows] of none
};

}  // namespace weft::sparse
