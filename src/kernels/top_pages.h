// From scores of pages to the pages that are attended to. Scores come from page_digest.h or
// page_mass.h; how many pages a budget buys, and which are always attended to, is the caller's.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/workspace_size.h"
#include "tensor/matrix_view.h"

namespace weft::kernels {

/// One row's.
struct PageScores {
  MatrixView<const float> of_heads;  // [n_heads, n_pages]
  MatrixView<float> of_groups;       // [n_kv_heads, n_pages]
};

/// of_groups = of each KV head's query heads the largest log softmax over the pages: heads whose
/// scores differ in size become comparable, and a page that one head needs is not averaged away. A
/// score that is NaN counts as -inf, +inf as the largest float.
void group_scores(const Context& context, std::span<const PageScores> rows);

/// of_groups = the sum of each KV head's query heads' shares (softmax) of the pages: those with the
/// largest keep most of what the heads attend to, all heads together. Scores count as above; a
/// share below what a float holds is 0.
void sum_shares(const Context& context, std::span<const PageScores> rows);

/// One KV head's of a row.
struct PageChoice {
  std::span<const float> scores;  // of n pages
  std::span<int32_t> chosen;      // at most n
  // Of a sample (sample_pages.h):
  std::span<float> weights = {};  // [chosen]
  int64_t n_best = 0;             // that are not drawn, at most chosen.size()
};

/// chosen = the indices of the chosen.size() largest scores, ascending. Of equal scores the lower
/// index is taken first; NaN counts as -inf. Exact, and the same on every instruction set.
void top_pages(const Context& context, std::span<const PageChoice> choices);

/// What top_pages takes of the workspace for choices among up to so many pages.
void count_top_pages(int64_t n_pages, WorkspaceSize& size);

}  // namespace weft::kernels
