#include "kv/page_digests.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace weft::kv {
namespace {

uint64_t mark(int32_t page, const PagePool& pool) { return uint64_t{pool.generation(page)} + 1; }

}  // namespace

kernels::DigestLayout digest_layout(const DigestFormat& format, const kernels::KvLayout& layout) {
  return {.kind = format.kind,
          .type = format.type,
          .head_dim = layout.head_dim,
          .n_kv_heads = layout.n_kv_heads};
}

kernels::LabelLayout label_layout(const DigestFormat& format, const kernels::KvLayout& layout) {
  return {.kind = format.labels.value(),
          .head_dim = layout.head_dim,
          .n_kv_heads = layout.n_kv_heads,
          .page_tokens = layout.page_tokens};
}

int64_t page_digest_bytes(const DigestFormat& format, const kernels::KvLayout& layout) {
  return int64_t{layout.n_kv_heads} * kernels::digest_bytes(digest_layout(format, layout));
}

int64_t page_label_bytes(const DigestFormat& format, const kernels::KvLayout& layout) {
  if (!format.labels) return 0;
  return int64_t{layout.n_kv_heads} * kernels::label_bytes(label_layout(format, layout));
}

Result<PageDigests> PageDigests::create(const DigestFormat& format, const kernels::KvLayout& layout,
                                        int32_t n_layers, int32_t n_pages) {
  const int64_t n = int64_t{n_layers} * n_pages;
  WEFT_ASSIGN_OR_RETURN(
      auto digests,
      LazyBuffer<std::byte>::create(n * page_digest_bytes(format, layout), "digests of KV pages"));
  WEFT_ASSIGN_OR_RETURN(auto labels, LazyBuffer<std::byte>::create(
                                         std::max<int64_t>(1, n * page_label_bytes(format, layout)),
                                         "labels of the tokens in KV pages"));
  WEFT_ASSIGN_OR_RETURN(auto made,
                        LazyBuffer<uint64_t>::create(n, "marks of KV pages with digests"));
  return PageDigests(format, layout, n_layers, n_pages, std::move(digests), std::move(labels),
                     std::move(made));
}

PageDigests::PageDigests(const DigestFormat& format, const kernels::KvLayout& layout,
                         int32_t n_layers, int32_t n_pages, LazyBuffer<std::byte> digests,
                         LazyBuffer<std::byte> labels, LazyBuffer<uint64_t> made)
    : layout_(digest_layout(format, layout)),
      n_layers_(n_layers),
      n_pages_(n_pages),
      digests_(std::move(digests)),
      labels_(std::move(labels)),
      made_(std::move(made)) {
  // A list's pages lie anywhere in them: in small memory pages scoring 512 of 2,048 by labels took
  // 1.2 to 1.4 times as long (Zen 2). Where only a part of the context is used, what a huge one
  // takes too much is at most a few percent of what K and V of all of it would take.
  advise_pages(MemoryPages::kHuge, digests_.data(), digests_.size());
  advise_pages(MemoryPages::kHuge, labels_.data(), labels_.size());
  if (format.labels) label_layout_ = label_layout(format, layout);
}

LayerDigests PageDigests::layer(int32_t layer, const uint8_t* channels) {
  WEFT_CHECK(layer >= 0 && layer < n_layers_);
  const int64_t n_before = int64_t{layer} * n_pages_ * layout_.n_kv_heads;
  const bool has_sides = label_layout_ && label_layout_->kind == kernels::LabelKind::kSides;
  LayerDigests found{.digests = kernels::make_paged_digests(
                         layout_, digests_.data() + n_before * kernels::digest_bytes(layout_),
                         has_sides ? channels : nullptr)};
  if (label_layout_) {
    found.labels = kernels::make_paged_labels(
        *label_layout_, labels_.data() + n_before * kernels::label_bytes(*label_layout_), channels);
  }
  return found;
}

std::span<const int32_t> PageDigests::missing(int32_t layer, std::span<const int32_t> pages,
                                              const PagePool& pool) {
  missing_.clear();
  const uint64_t* const made = made_.data() + int64_t{layer} * n_pages_;
  for (const int32_t page : pages) {
    if (made[page] != mark(page, pool)) missing_.push_back(page);
  }
  return missing_;
}

void PageDigests::set_made(int32_t layer, std::span<const int32_t> pages,
                           const PagePool& pool) noexcept {
  uint64_t* const made = made_.data() + int64_t{layer} * n_pages_;
  for (const int32_t page : pages) made[page] = mark(page, pool);
}

void PageDigests::forget(int32_t page) noexcept {
  for (int32_t layer = 0; layer < n_layers_; ++layer) {
    made_.data()[int64_t{layer} * n_pages_ + page] = 0;
  }
}

namespace {

/// Of each layer's [n_pages] records of so many bytes those of [begin, end).
void give_back_records(LazyBuffer<std::byte>& memory, int64_t record_bytes, int32_t n_layers,
                       int32_t n_pages, int32_t begin, int32_t end) noexcept {
  // The memory page in which the range ends goes as a whole: what comes after has none.
  const int64_t end_byte = end * record_bytes + memory_page_bytes();
  for (int32_t layer = 0; layer < n_layers; ++layer) {
    std::byte* const first = memory.data() + layer * n_pages * record_bytes;
    const int64_t to = std::min(end_byte, n_pages * record_bytes);
    give_back_memory(first + begin * record_bytes, to - begin * record_bytes);
  }
}

}  // namespace

void PageDigests::give_back(int32_t begin, int32_t end) noexcept {
  const int64_t n_heads = layout_.n_kv_heads;
  give_back_records(digests_, n_heads * kernels::digest_bytes(layout_), n_layers_, n_pages_, begin,
                    end);
  if (!label_layout_) return;
  give_back_records(labels_, n_heads * kernels::label_bytes(*label_layout_), n_layers_, n_pages_,
                    begin, end);
}

int64_t PageDigests::resident_bytes() {
  return weft::resident_bytes(digests_.data(), digests_.size()) +
         weft::resident_bytes(labels_.data(), labels_.size()) +
         weft::resident_bytes(made_.data(), made_.size() * sizeof(uint64_t));
}

}  // namespace weft::kv
