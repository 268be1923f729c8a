// What attention reads for a row that chooses: of each KV head its pages, as kernels take them.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/paged_kv.h"
#include "sparse/budget.h"

namespace weft::sparse {

struct RowLists {
  PageBudget budget;                      // of the row
  int64_t moves = -1;                     // of the cache then; -1: there are no lists
  std::vector<int32_t> ids;               // [n_kv_heads][as many as each reads]
  std::vector<float> weights;             // likewise, or none
  std::vector<kernels::HeadPages> heads;  // into these

  /// Whether a row with this budget, of the same sequence and selection, reads the same pages, but
  /// for the fixed ones at the end: those before them are full, and stay what they are.
  bool fit(const PageBudget& other, int64_t moves_by_now) const {
    return moves == moves_by_now && budget == other;
  }
};

}  // namespace weft::sparse
