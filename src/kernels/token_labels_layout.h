// Labels of the tokens in KV pages: a few bytes of each key, by which pages that their digests let
// through are told apart once more. Plain data only: kernels compiled per instruction set include
// this file.
#pragma once

#include <stdint.h>

namespace weft::kernels {

/// What a label holds of a key k.
enum class LabelKind : uint8_t {
  kSides,  // of each dimension two bits: on which side of the middle of the page's digest k lies,
           // and whether further from it than the digest's two vectors; the dimensions that matter
           // most to queries first, and of half of them a third bit
  kChannels,  // the dimensions that matter most to queries, in int8 (Double Sparsity, Yang et al.
              // 2024, section 3.2)
};

/// How much of kSides labels is looked at: the sides of the first half of the dimensions, or all
/// bits of all. kChannels have one depth.
enum class LabelDepth : uint8_t { kSide, kAll };

/// Dimensions of a kChannels label, and its bytes: 1/4 of a head of 64, as Double Sparsity has it.
inline constexpr int32_t kLabelChannels = 16;

/// Of a page at most.
inline constexpr int32_t kMostLabelledTokens = 256;

/// Of kSides: so many dimensions of sixteen tokens are a block of so many bytes.
inline constexpr int32_t kSideBlockDims = 32;
inline constexpr int32_t kSideBlockBytes = 64;

struct LabelLayout {
  LabelKind kind = LabelKind::kSides;
  int32_t head_dim = 0;  // a multiple of 8, at least kLabelChannels of kChannels
  int32_t n_kv_heads = 0;
  int32_t page_tokens = 0;  // a multiple of 16, at most kMostLabelledTokens
  bool operator==(const LabelLayout&) const = default;
};

/// Blocks of a head's dimensions, the last filled up with 0.
static inline int32_t n_side_blocks(int32_t head_dim) {
  return (head_dim + kSideBlockDims - 1) / kSideBlockDims;
}
/// Of these the first half, rounded up: what LabelDepth::kSide looks at.
static inline int32_t n_first_side_blocks(int32_t head_dim) {
  return (n_side_blocks(head_dim) + 1) / 2;
}
/// A bit of each dimension of a page and KV head, and of each of the first half.
static inline int32_t side_bytes(const LabelLayout& layout) {
  return layout.page_tokens / 16 * n_side_blocks(layout.head_dim) * kSideBlockBytes;
}
static inline int32_t first_side_bytes(const LabelLayout& layout) {
  return layout.page_tokens / 16 * n_first_side_blocks(layout.head_dim) * kSideBlockBytes;
}

/// Of a head.
static inline int32_t n_label_channels(const LabelLayout& layout) {
  return layout.kind == LabelKind::kSides ? layout.head_dim : kLabelChannels;
}

/// One layer's labels: [n_pages][n_kv_heads] of `bytes` each. Sixteen tokens lie side by side, so
/// that registers hold one thing of all of them. kSides: uint8_t [3][page_tokens / 16][blocks][16]
/// [4], of whose bit j of [t][i] token t's and dimension 4 j + i's of 32: of a number from 0,
/// furthest below the middle, to 7, furthest above it, first the upper bit, the side, of all
/// tokens, then the next one, both of n_side_blocks, and then the lowest, of n_first_side_blocks.
/// kChannels: the step in f32, value = step * byte, then int8_t [page_tokens / 16][kLabelChannels /
/// 2][16][2]. make_paged_labels (token_labels.h) makes one.
struct PagedLabels {
  LabelLayout layout;
  uint8_t* labels = nullptr;
  int32_t bytes = 0;
  // Of kChannels: [n_kv_heads][kLabelChannels], ascending. Of kSides the digests' order:
  // dimension d of a label is K's channels[d]; null: K's d.
  const uint8_t* channels = nullptr;
};

static inline uint8_t* label_at(const PagedLabels& labels, int64_t page, int32_t kv_head) {
  return labels.labels + (page * labels.layout.n_kv_heads + kv_head) * labels.bytes;
}

}  // namespace weft::kernels
