// How many pages a row may read, and which of them it reads whatever their scores. Integers.
#pragma once

#include <cstdint>

#include "sparse/options.h"

namespace weft::sparse {

/// Of a row's pages [0, n_pages): the pages [first, end) are chosen from, n_chosen of them, or with
/// SparseOptions::retain n_least to n_chosen; all others are read.
struct PageBudget {
  int32_t n_pages = 0;
  int32_t first = 0;
  int32_t end = 0;
  int32_t n_chosen = 0;
  int32_t n_least = 0;

  int32_t n_candidates() const { return end - first; }
  int32_t n_fixed() const { return n_pages - n_candidates(); }
  int32_t n_read() const { return n_fixed() + n_chosen; }
  bool reads_all() const { return n_chosen == n_candidates(); }
};

/// For a row in slot `slot`, of whose sequence `committed` tokens are committed (at most `slot`,
/// unless it is run again). Read in any case, as far as the budget goes, in this order: the pages
/// that are not full of committed tokens, the first page (attention sink, Xiao et al. 2023), the
/// newest full one. One page is chosen where there is any.
PageBudget page_budget(const SparseOptions& options, int32_t slot, int32_t committed,
                       int32_t page_tokens);

}  // namespace weft::sparse
