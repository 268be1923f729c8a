// How many pages a row may read, and which of them it reads whatever their scores. Integers.
#pragma once

#include <cstdint>

#include "sparse/options.h"

namespace weft::sparse {

/// Of a row's pages [0, n_pages): the pages [first, end) are chosen from, n_chosen of them, or with
/// SparseOptions::retain n_least to n_chosen; all others are read. Of the chosen ones n_best are
/// those with the best scores, and the others a sample of the rest.
struct PageBudget {
  int32_t n_pages = 0;
  int32_t first = 0;
  int32_t end = 0;
  int32_t n_chosen = 0;
  int32_t n_least = 0;
  int32_t n_best = 0;

  int32_t n_candidates() const { return end - first; }
  int32_t n_fixed() const { return n_pages - n_candidates(); }
  int32_t n_read() const { return n_fixed() + n_chosen; }
  bool samples() const { return n_best < n_chosen; }
  bool reads_all() const { return n_chosen == n_candidates(); }
  bool operator==(const PageBudget&) const = default;
};

/// For a row in slot `slot`. Fixed are, as far as the budget goes: the row's own page, from three
/// pages on the first one (attention sink, Xiao et al. 2023), from four the newest full one. It is
/// the slot alone that decides, not what is committed: a row that verifies a draft, or that is run
/// again after others took its pages, chooses as it does when it comes by itself.
PageBudget page_budget(const SparseOptions& options, int32_t slot, int32_t page_tokens);

}  // namespace weft::sparse
