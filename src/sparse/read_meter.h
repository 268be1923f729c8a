// How good a choice of pages is: the attention that it keeps, by reading all of K.
#pragma once

#include <utility>
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
  std::vector<float> scores_;                      // [n_heads][tokens]
  std::vector<float> scales_;                      // [n_heads]
  std::vector<std::pair<double, double>> shares_;  // [n_heads], of mass and of the top ten
};

}  // namespace weft::sparse
