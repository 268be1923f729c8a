// Shapes are checked here and pages are divided into tasks; page_digest_cpu.cc does the arithmetic.
//
// Scoring reads all digests of a sequence in every step and does little else, so a task goes
// through pages as they lie in memory: a page's digests of all KV heads are next to each other, and
// all query heads take them while they are in registers. A KV head a task would read a little of
// every page, eight tasks the same cache lines at their borders.
#include "kernels/page_digest.h"

#include <algorithm>

#include "base/check.h"
#include "base/narrow.h"
#include "kernels/kv_codec_internal.h"
#include "kernels/page_digest_internal.h"
#include "kernels/score_groups_internal.h"

namespace weft::kernels {
namespace {

int64_t element_bytes(const DigestLayout& layout) {
  return layout.type == DigestType::kInt8 ? sizeof(int8_t) : sizeof(float);
}

/// Of a query that is packed, its factors not counted.
int64_t packed_bytes(const DigestLayout& layout, int32_t n_heads) {
  return n_heads * query_stride(layout) * element_bytes(layout);
}

int64_t n_blocks(int64_t n_pages) { return (n_pages + kBlockPages - 1) / kBlockPages; }

/// Calls fn(query, begin, n, worker, score) for each block of each query, n pages from `begin` on,
/// which calls score(scores, stride): scores[h * stride + i] = that of page begin + i.
template <class Query, class Fn>
void score_blocks(const Context& context, const PagedDigests& digests, int32_t n_heads, float scale,
                  std::span<const Query> queries, const Fn& fn) {
  const DigestLayout& layout = digests.layout;
  WEFT_CHECK(n_heads > 0 && n_heads % layout.n_kv_heads == 0);
  const int32_t group = n_heads / layout.n_kv_heads;
  int64_t most_pages = 0;
  for (const Query& query : queries) most_pages = std::max(most_pages, std::ssize(query.pages));
  if (most_pages == 0) return;
  const PageDigestFns& fns = pick_page_digest_fns(context.isa);
  const int64_t n_queries = std::ssize(queries), bytes = packed_bytes(layout, n_heads);
  auto* const elements = context.workspace->of_op<std::byte>(Use::kActivations, n_queries * bytes);
  auto* const factors = context.workspace->of_op<float>(Use::kActivationScale, n_queries * n_heads);
  const auto packed_at = [&](int64_t i) {
    return PackedQuery{elements + i * bytes, factors + i * n_heads};
  };
  context.pool.run(n_queries, [&](int64_t i, int) {
    for (int32_t head = 0; head < n_heads; ++head) {
      fns.pack(layout, queries[i].q + int64_t{head} * layout.head_dim, scale,
               digest_order(digests, head / group), head, packed_at(i));
    }
  });
  // Half of what the parts ask for is in the worker's next block, which of several queries is
  // another's. With more than two workers it was not measured.
  const int32_t parts_ahead = n_queries == 1 && context.pool.size() <= 2 ? 4 : 1;
  // A block of all queries before the next block: rows of one sequence read the same pages.
  context.pool.run(n_blocks(most_pages) * n_queries, [&](int64_t task, int worker) {
    const Query& query = queries[task % n_queries];
    const int64_t n_pages = std::ssize(query.pages), begin = task / n_queries * kBlockPages;
    if (begin >= n_pages) return;
    const int64_t end = std::min(n_pages, begin + kBlockPages);
    fn(query, begin, end - begin, worker, [&](float* scores, int64_t stride) {
      const ScoreRows rows = {.digests = digests,
                              .query = packed_at(task % n_queries),
                              .n_heads = n_heads,
                              .pages = query.pages.data(),
                              .n_pages = n_pages,
                              .scores = scores,
                              .stride = stride,
                              .is_first = task < context.pool.size(),
                              .next_begin = begin + context.pool.size() * kBlockPages,
                              .n_parts_ahead = parts_ahead};
      fns.score(rows, begin, end);
    });
  });
}

}  // namespace

int32_t digest_bytes(const DigestLayout& layout) {
  const int32_t n = digest_elements(layout);
  return layout.type == DigestType::kInt8 ? 4 + n : 2 * n;
}

PagedDigests make_paged_digests(const DigestLayout& layout, std::byte* digests,
                                const uint8_t* order) {
  WEFT_CHECK(layout.head_dim > 0 && layout.head_dim <= kMaxHeadDim && layout.head_dim % 8 == 0);
  WEFT_CHECK(layout.n_kv_heads > 0);
  WEFT_CHECK(digests != nullptr && reinterpret_cast<uintptr_t>(digests) % 4 == 0);
  return {layout, reinterpret_cast<uint8_t*>(digests), digest_bytes(layout), order};
}

void make_digests(const Context& context, const PagedKv& kv, std::span<const int32_t> pages,
                  const PagedDigests& digests) {
  WEFT_CHECK(kv.layout.head_dim == digests.layout.head_dim);
  WEFT_CHECK(kv.layout.n_kv_heads == digests.layout.n_kv_heads);
  const PageDigestFns& fns = pick_page_digest_fns(context.isa);
  const KvCodecFns& codec = kv_codec(context.isa, kv.layout.k_type);
  context.pool.run(std::ssize(pages), [&](int64_t i, int) {
    for (int32_t head = 0; head < kv.layout.n_kv_heads; ++head) {
      fns.make(codec, kv, k_at(kv, &pages[i], 0, head), digests.layout, digest_order(digests, head),
               digest_at(digests, pages[i], head));
    }
  });
}

void score_digests(const Context& context, const PagedDigests& digests, int32_t n_heads,
                   float scale, std::span<const DigestQuery> queries) {
  for (const DigestQuery& query : queries) WEFT_CHECK(query.stride >= std::ssize(query.pages));
  score_blocks(context, digests, n_heads, scale, queries,
               [](const DigestQuery& query, int64_t begin, int64_t, int, const auto& score) {
                 score(query.scores + begin, query.stride);
               });
}

int64_t group_query_floats(int32_t n_heads, int64_t n_pages) {
  return n_blocks(n_pages) * block_floats(n_heads);
}

void score_groups(const Context& context, const PagedDigests& digests, int32_t n_heads, float scale,
                  std::span<const GroupQuery> queries) {
  const int32_t n_kv_heads = digests.layout.n_kv_heads;
  for (const GroupQuery& query : queries) {
    WEFT_CHECK(query.of_groups.rows == n_kv_heads);
    WEFT_CHECK(query.of_groups.columns == std::ssize(query.pages));
  }
  const ScoreGroupsFns& fns = pick_score_groups_fns(context.isa);
  score_blocks(
      context, digests, n_heads, scale, queries,
      [&](const GroupQuery& query, int64_t begin, int64_t n, int worker, const auto& score) {
        auto* const scores =
            context.workspace->of_worker<float>(worker, Use::kScratch, block_scores(n_heads));
        score(scores, kBlockPages);
        float* const block = query.of_heads + begin / kBlockPages * block_floats(n_heads);
        fns.sum_block(scores, n_heads, n, block);
      });
  context.pool.run(std::ssize(queries) * n_kv_heads, [&](int64_t task, int) {
    const GroupQuery& query = queries[task / n_kv_heads];
    const GroupBlocks blocks = {.blocks = query.of_heads,
                                .n_pages = std::ssize(query.pages),
                                .n_heads = n_heads,
                                .group = n_heads / n_kv_heads};
    const auto kv_head = narrow<int32_t>(task % n_kv_heads);
    fns.join(blocks, kv_head, query.of_groups.row(kv_head).data());
  });
}

void count_score_digests(const DigestLayout& layout, int32_t n_heads, int64_t n_queries,
                         WorkspaceSize& size) {
  size.of_op(Use::kActivations, n_queries * packed_bytes(layout, n_heads));
  size.of_op(Use::kActivationScale, n_queries * n_heads * int64_t{sizeof(float)});
  size.of_worker(Use::kScratch, block_scores(n_heads) * int64_t{sizeof(float)});
}

}  // namespace weft::kernels
