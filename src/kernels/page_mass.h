// What pages are really worth to a query: scores from all of their keys, at the price of reading
// them. For selectors that look at keys (SparQ, H2O, TOVA) and for the oracle that the others are
// measured by; page_digest.h estimates the same from a few bytes a page.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/paged_kv.h"
#include "kernels/workspace_size.h"

namespace weft::kernels {

/// One row's query over a list of pages.
struct MassQuery {
  const float* q = nullptr;        // [n_heads * head_dim], rotated, not scaled
  std::span<const float> scales;   // [n_heads]
  std::span<const int32_t> pages;  // full, but for the last
  int32_t last_page_tokens = 0;    // of the last page, 1 to page_tokens
  int32_t part_tokens = 0;         // page_mass: that have a score, kRunTokens; 0: whole pages
  float* scores = nullptr;
  int64_t stride = 0;
  // page_mass: [n_kv_heads] lists of pages or runs, each full and with a score, in place of pages,
  // last_page_tokens and part_tokens. Weights do not count.
  std::span<const HeadPages> heads = {};
};

/// scores[h * stride + i] = log of the sum over page pages[i]'s tokens of exp(scales[h] * q_h . k):
/// less the log of their sum over all pages, the page's share of the head's attention. With
/// part_tokens i counts the parts of all pages that have a token, with lists the entries of the
/// head's. stride is at least their number.
/// Products are decode attention's: where that rounds queries to integers (K in blocks, with VNNI)
/// this does too. NaN where a token's product is NaN or +inf. Scores depend on their page, query
/// and head alone.
void page_mass(const Context& context, const PagedKv& kv, int32_t n_heads,
               std::span<const MassQuery> queries);

/// scores[h * stride + i * page_tokens + t] = scales[h] * q_h . k of token t of page pages[i]. What
/// comes after the last page's last token is not written. stride is at least the number of tokens.
void token_scores(const Context& context, const PagedKv& kv, int32_t n_heads,
                  std::span<const MassQuery> queries);

/// What either takes of the workspace.
void count_page_mass(Isa isa, const KvLayout& layout, int32_t n_heads, WorkspaceSize& size);

}  // namespace weft::kernels
