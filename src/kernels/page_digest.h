// Digests of KV pages and the scores of pages by them, the first step of sparse decoding: which
// pages a query may find its keys in, at a fraction of the bytes of K. Which of them are taken is
// top_pages.h's; exact scores, to measure this with, are page_mass.h's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/page_digest_layout.h"
#include "kernels/paged_kv.h"
#include "kernels/workspace_size.h"
#include "tensor/matrix_view.h"

namespace weft::kernels {

/// Of one page and KV head: 132 of minima and maxima in int8 at head size 64.
int32_t digest_bytes(const DigestLayout& layout);

/// A layer whose digests begin there, at a multiple of 4 bytes. order as PagedDigests has it, each
/// below head_dim and once for a head; scores are the same in any.
PagedDigests make_paged_digests(const DigestLayout& layout, std::byte* digests,
                                const uint8_t* order = nullptr);

/// Makes the digests of these pages, all KV heads, from the K that lies there, of any type. The
/// pages must be full: every token counts. kMinMax rounds maxima up and minima down, the other
/// kinds round to nearest (even); in f16 what is beyond its range becomes the largest or the least
/// f16. Where a K of a page and head is not finite, all of its digest is NaN. The same bytes on
/// every instruction set.
void make_digests(const Context& context, const PagedKv& kv, std::span<const int32_t> pages,
                  const PagedDigests& digests);

/// One row's query and the pages to score for it.
struct DigestQuery {
  const float* q = nullptr;        // [n_heads * head_dim], rotated, not scaled
  std::span<const int32_t> pages;  // fastest ascending
  float* scores = nullptr;         // [n_heads][stride]
  int64_t stride = 0;              // at least pages.size()
};

/// scores[h * stride + i] of page pages[i] = scale * sum over d of max(q_d M_d, q_d m_d), M and m
/// the digest's two vectors; with kMean scale * q . mean. scale > 0.
///
/// Of int8 digests q is rounded to 7 bits and a sign as a share of the head's largest: sums are
/// integers, and scores have the same bits on every instruction set. With kMinMax a score is never
/// less than scale * q . k of any of the page's keys by more than rounding takes away: of q half a
/// 127th of its largest in each dimension, of f16 digests that of sums of floats.
///
/// A score is NaN where the digest or the head's query is not finite. A score depends on its query,
/// head and page alone.
void score_digests(const Context& context, const PagedDigests& digests, int32_t n_heads,
                   float scale, std::span<const DigestQuery> queries);

/// One row's query, the pages to score for it, and room for what its heads make of them.
struct GroupQuery {
  const float* q = nullptr;        // [n_heads * head_dim], rotated, not scaled
  std::span<const int32_t> pages;  // fastest ascending
  float* of_heads = nullptr;       // [group_query_floats]: anything
  MatrixView<float> of_groups;     // [n_kv_heads, pages.size()]
};

/// Floats of GroupQuery::of_heads: some more than one of each page and head.
int64_t group_query_floats(int32_t n_heads, int64_t n_pages);

/// of_groups = what group_scores (top_pages.h) makes of score_digests' scores, but for rounding: of
/// how far a score lies below the largest of its block to f16 (-inf beyond its range). A row's
/// depend on it alone.
void score_groups(const Context& context, const PagedDigests& digests, int32_t n_heads, float scale,
                  std::span<const GroupQuery> queries);

/// What score_digests or score_groups takes of the workspace for so many queries.
void count_score_digests(const DigestLayout& layout, int32_t n_heads, int64_t n_queries,
                         WorkspaceSize& size);

}  // namespace weft::kernels
