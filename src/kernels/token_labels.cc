// Shapes are checked here and lists are divided into tasks; token_labels_cpu.cc does the
// arithmetic.
#include "kernels/token_labels.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/kv_codec_internal.h"
#include "kernels/token_labels_internal.h"

namespace weft::kernels {
namespace {

const uint8_t* channels_of(const PagedLabels& labels, int32_t kv_head) {
  if (labels.channels == nullptr) return nullptr;
  return labels.channels + kv_head * n_label_channels(labels.layout);
}

/// The sides are those of digests of two vectors in bytes.
void check_same_heads(const PagedDigests& digests, const PagedLabels& labels) {
  const DigestLayout& layout = digests.layout;
  WEFT_CHECK(layout.type == DigestType::kInt8 && layout.kind != DigestKind::kMean);
  WEFT_CHECK(layout.head_dim == labels.layout.head_dim);
  WEFT_CHECK(layout.n_kv_heads == labels.layout.n_kv_heads);
  const bool is_sides = labels.layout.kind == LabelKind::kSides;
  WEFT_CHECK(digests.order == (is_sides ? labels.channels : nullptr));
}

}  // namespace

int32_t label_bytes(const LabelLayout& layout) {
  const bool is_sides = layout.kind == LabelKind::kSides;
  if (is_sides) return 2 * side_bytes(layout) + first_side_bytes(layout);
  return 4 + layout.page_tokens * kLabelChannels;
}

PagedLabels make_paged_labels(const LabelLayout& layout, std::byte* labels,
                              const uint8_t* channels) {
  WEFT_CHECK(layout.head_dim > 0 && layout.head_dim <= kMaxHeadDim && layout.head_dim % 8 == 0);
  WEFT_CHECK(layout.n_kv_heads > 0 && layout.page_tokens > 0 && layout.page_tokens % 16 == 0);
  WEFT_CHECK(layout.page_tokens <= kMostLabelledTokens);
  WEFT_CHECK(labels != nullptr && reinterpret_cast<uintptr_t>(labels) % 4 == 0);
  WEFT_CHECK(channels != nullptr || layout.kind == LabelKind::kSides);
  return {layout, reinterpret_cast<uint8_t*>(labels), label_bytes(layout), channels};
}

void make_labels(const Context& context, const PagedKv& kv, std::span<const int32_t> pages,
                 const PagedDigests& digests, const PagedLabels& labels) {
  const LabelLayout& layout = labels.layout;
  WEFT_CHECK(kv.layout.head_dim == layout.head_dim && kv.layout.n_kv_heads == layout.n_kv_heads);
  WEFT_CHECK(kv.layout.page_tokens == layout.page_tokens);
  check_same_heads(digests, labels);
  const TokenLabelsFns& fns = pick_token_labels_fns(context.isa);
  const KvCodecFns& codec = kv_codec(context.isa, kv.layout.k_type);
  context.pool.run(std::ssize(pages), [&](int64_t i, int) {
    for (int32_t head = 0; head < layout.n_kv_heads; ++head) {
      fns.make(codec, kv, k_at(kv, &pages[i], 0, head), digest_at(digests, pages[i], head), layout,
               channels_of(labels, head), label_at(labels, pages[i], head));
    }
  });
}

void score_labels(const Context& context, const PagedDigests& digests, const PagedLabels& labels,
                  LabelDepth depth, int32_t n_heads, float scale,
                  std::span<const LabelQuery> queries) {
  const LabelLayout& layout = labels.layout;
  check_same_heads(digests, labels);
  const int32_t n_kv_heads = layout.n_kv_heads, group = n_heads / n_kv_heads;
  WEFT_CHECK(n_heads > 0 && n_heads % n_kv_heads == 0);
  int64_t most_pages = 0;
  for (const LabelQuery& query : queries) {
    WEFT_CHECK(std::ssize(query.places) == n_kv_heads);
    const int64_t n_pages = std::ssize(query.places[0]);
    for (const auto& places : query.places) WEFT_CHECK(std::ssize(places) == n_pages);
    WEFT_CHECK(query.part_tokens == layout.page_tokens || query.part_tokens == kRunTokens);
    WEFT_CHECK(query.stride >= n_pages * (layout.page_tokens / query.part_tokens));
    most_pages = std::max(most_pages, n_pages);
  }
  if (most_pages == 0) return;
  const TokenLabelsFns& fns = pick_token_labels_fns(context.isa);
  const int64_t n_queries = std::ssize(queries), n_elements = n_label_channels(layout);
  auto* const elements =
      context.workspace->of_op<int16_t>(Use::kActivations, n_queries * n_heads * n_elements);
  auto* const factors = context.workspace->of_op<float>(Use::kActivationScale, n_queries * n_heads);
  const auto packed_at = [&](int64_t i) {
    return PackedLabelQuery{elements + i * n_heads * n_elements, factors + i * n_heads};
  };
  context.pool.run(n_queries * n_heads, [&](int64_t task, int) {
    const int64_t i = task / n_heads;
    const auto head = static_cast<int32_t>(task % n_heads);
    fns.pack(layout, queries[i].q + int64_t{head} * layout.head_dim, scale,
             channels_of(labels, head / group), head, packed_at(i));
  });
  const int64_t n_blocks = (most_pages + kLabelBlockPages - 1) / kLabelBlockPages;
  context.pool.run(n_blocks * n_queries * n_kv_heads, [&](int64_t task, int) {
    const int64_t i = task / n_kv_heads % n_queries;
    const auto kv_head = static_cast<int32_t>(task % n_kv_heads);
    const LabelQuery& query = queries[i];
    const int64_t n_pages = std::ssize(query.places[kv_head]);
    const int64_t begin = task / n_kv_heads / n_queries * kLabelBlockPages;
    if (begin >= n_pages) return;
    const LabelRows rows = {.digests = digests,
                            .labels = labels,
                            .depth = depth,
                            .query = packed_at(i),
                            .kv_head = kv_head,
                            .group = group,
                            .pages = query.pages.data(),
                            .places = query.places[kv_head].data(),
                            .part_tokens = query.part_tokens,
                            .scores = query.scores + kv_head * group * query.stride,
                            .stride = query.stride};
    fns.score(rows, begin, std::min(n_pages, begin + kLabelBlockPages));
  });
}

void count_score_labels(const LabelLayout& layout, int32_t n_heads, int64_t n_queries,
                        WorkspaceSize& size) {
  const int64_t n = n_queries * n_heads;
  size.of_op(Use::kActivations, n * n_label_channels(layout) * int64_t{sizeof(int16_t)});
  size.of_op(Use::kActivationScale, n * int64_t{sizeof(float)});
}

}  // namespace weft::kernels
