// How good a choice of pages is: the attention that it keeps, by reading all of K.
#pragma once

#include <vector>

#include "kernels/page_mass.h"
#include "kv/page_selector.h"
#include "sparse/selector.h"

namespace weft::sparse {

/// One thread.
class ReadMeter {
 public:
  /// Adds the row's read, of the pages in `lists` ([n_kv_heads]).
  void measure(const kernels::Context& context, const kv::SelectingLayer& layer,
               const kv::SelectingRow& row, std::span<const kernels::HeadPages> lists,
               ReadQuality& quality);

 private:
  void mark_read(std::span<const int32_t> pages, const kernels::HeadPages& list,
                 int32_t page_tokens);
  /// Of one head's scores the share of mass, and of the ten largest, in pages that are read.
  double mass_share(std::span<const float> scores, int32_t page_tokens) const;
  double top10_share(std::span<const float> scores, int32_t page_tokens);

  std::vector<float> scores_;     // [n_heads][tokens]
  std::vector<float> scales_;     // [n_heads]
  std::vector<bool> is_read_;     // [pages of the row], of the head at hand
  std::vector<int32_t> largest_;  // tokens
};

}  // namespace weft::sparse
