// Labels of tokens and the scores of pages by them, the second step of sparse decoding: a page's
// digest (page_digest.h) says what its keys have in common, and loses the one that a query is
// after; labels say a little of each key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/context.h"
#include "kernels/page_digest.h"
#include "kernels/paged_kv.h"
#include "kernels/token_labels_layout.h"
#include "kernels/workspace_size.h"

namespace weft::kernels {

/// Of one page and KV head: 256 of kSides at head size 64 and 16 tokens.
int32_t label_bytes(const LabelLayout& layout);

/// A layer whose labels begin there, at a multiple of 4 bytes. channels as PagedLabels has them,
/// each below head_dim.
PagedLabels make_paged_labels(const LabelLayout& layout, std::byte* labels,
                              const uint8_t* channels);

/// Makes the labels of these pages, all KV heads, from the K that lies there, of any type. The
/// pages must be full, and of kSides have their digests, in int8 and of two vectors (M, m): the
/// sides are of (M + m) / 2, which itself counts as above. Where a K is not finite all kChannels
/// labels of its page and head are NaN, as its digest is. The same bytes on every instruction set.
void make_labels(const Context& context, const PagedKv& kv, std::span<const int32_t> pages,
                 const PagedDigests& digests, const PagedLabels& labels);

/// One row's query and of each KV head the pages to score, whole or in runs.
struct LabelQuery {
  const float* q = nullptr;  // [n_heads * head_dim], rotated, not scaled
  std::span<const int32_t> pages;
  std::span<const std::span<const int32_t>> places;  // [n_kv_heads], in pages; equally long
  int32_t part_tokens = 0;  // that have a score: page_tokens, or kRunTokens
  float* scores = nullptr;  // [n_heads][stride]
  int64_t stride = 0;       // at least places[].size() * page_tokens / part_tokens
};

/// scores[h * stride + i * parts + p] of part p of page pages[places[h's KV head][i]] = log of the
/// sum of exp(scale * q . k') over its tokens: of what attention it gets. kSides by the sides
/// alone: of the label's first dimensions (n_first_side_blocks of 32) k' is M where the key lies
/// above the middle c and m where it does not, of the others it is c. By all: of the first
/// dimensions c + 1/4 d, 3/4 d, 5/4 d or 7/4 d, d = M - c, where it lies above, whichever of 0, d /
/// 2, d and 3/2 d it has passed; of the others c + d / 2 or c + 7/4 d; and as far below elsewhere.
/// (Of a normal distribution, whose mean deviation is d, the two are about the means of what is
/// within d and of what is not.) kChannels: k in the label's dimensions, else 0. scale > 0. q is
/// rounded as score_digests does, q_d (M_d - m_d) to 1 / 127 of the page's largest, and the log is
/// 2e-4 off at most: the same bits on every instruction set. NaN where the digest, the label or the
/// query is not finite, or the sum of its magnitudes.
void score_labels(const Context& context, const PagedDigests& digests, const PagedLabels& labels,
                  LabelDepth depth, int32_t n_heads, float scale,
                  std::span<const LabelQuery> queries);

/// What score_labels takes of the workspace for so many queries.
void count_score_labels(const LabelLayout& layout, int32_t n_heads, int64_t n_queries,
                        WorkspaceSize& size);

}  // namespace weft::kernels
