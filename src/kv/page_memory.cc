#include "kv/page_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "tensor/dtype.h"

namespace weft::kv {
namespace {

// NaN as a float of 32 and of both kinds of 16 bits.
constexpr int kPoison = 0xff;

/// What a layer's K and V take in small memory pages before huge ones come, which are taken whole:
/// so no layer takes more than a half above what it uses. Decode at depth waits for page tables
/// where pages are of 4 KB: at 16,384 keys of a 1B model's shape f16 took 7 % longer, and q8_0 10 %
/// (Sapphire Rapids, one thread). In huge pages from the start, every layer of a short prompt would
/// take 2 MB.
constexpr int64_t kSmallPagesBytes = 4 << 20;

}  // namespace

Result<PageMemory> PageMemory::create(const Shape& shape) {
  if (shape.n_layers < 0 || shape.n_pages <= 0) {
    return invalid_argument(fmt::format("KV cache: {} layers, {} pages: at least 1 page is needed",
                                        shape.n_layers, shape.n_pages));
  }
  WEFT_RETURN_IF_ERROR(kernels::check_kv_layout(shape.layout));
  int64_t n_bytes = kernels::kv_token_bytes(shape.layout);
  bool overflows = false;
  for (const int32_t factor : {shape.n_layers, shape.n_pages, shape.layout.page_tokens}) {
    overflows |= __builtin_mul_overflow(n_bytes, factor, &n_bytes);
  }
  if (overflows) {
    return resource_exhausted(fmt::format(
        "KV cache: {} layers x {} pages x {} KV heads x {} x {} is more than memory can address",
        shape.n_layers, shape.n_pages, shape.layout.n_kv_heads, shape.layout.page_tokens,
        shape.layout.head_dim));
  }
  WEFT_ASSIGN_OR_RETURN(auto memory,
                        LazyBuffer<std::byte>::create(std::max<int64_t>(n_bytes, 1), "KV cache"));
  return PageMemory(shape, std::move(memory));
}

PageMemory::PageMemory(const Shape& shape, LazyBuffer<std::byte> memory)
    : shape_(shape), memory_(std::move(memory)) {
  advise_pages(MemoryPages::kSmall, memory_.data(), memory_.size());
  const int64_t huge_bytes = shape_.n_pages * layer_page_bytes() - kSmallPagesBytes;
  if (huge_bytes <= 0) return;
  for (int32_t i = 0; i < shape_.n_layers; ++i) {
    advise_pages(MemoryPages::kHuge, page(i, 0) + kSmallPagesBytes, huge_bytes);
  }
}

int64_t PageMemory::layer_page_bytes() const {
  return kernels::kv_token_bytes(shape_.layout) * shape_.layout.page_tokens;
}

std::byte* PageMemory::page(int32_t layer, int32_t page) {
  return memory_.data() + (int64_t{layer} * shape_.n_pages + page) * layer_page_bytes();
}

kernels::PagedKv PageMemory::layer(int index) {
  WEFT_CHECK(index >= 0 && index < shape_.n_layers);
  return kernels::make_paged_kv(shape_.layout, page(index, 0));
}

void PageMemory::copy_page(int32_t from, int32_t to) {
  for (int32_t i = 0; i < shape_.n_layers; ++i) {
    std::memcpy(page(i, to), page(i, from), layer_page_bytes());
  }
}

void PageMemory::page_freed(int32_t freed) {
  if (!kDebugChecks) return;
  for (int32_t i = 0; i < shape_.n_layers; ++i) {
    std::memset(page(i, freed), kPoison, layer_page_bytes());
  }
}

// Memory pages begin where the address says; the layer need not begin at one.
int64_t PageMemory::piece_end(int32_t layer, int64_t byte) {
  const auto base = reinterpret_cast<intptr_t>(page(layer, 0));
  const auto up = [&](int64_t from, int64_t piece) {
    return (base + from + piece - 1) / piece * piece - base;
  };
  const int64_t layer_bytes = shape_.n_pages * layer_page_bytes();
  const int64_t huge_begin = up(kSmallPagesBytes, kHugePageBytes);
  const int64_t huge_end = up(layer_bytes - kHugePageBytes + 1, kHugePageBytes);
  const bool is_huge = byte > huge_begin && byte < huge_end;
  return up(byte, is_huge ? kHugePageBytes : memory_page_bytes());
}

// The piece in which the range begins stays, as a used page may be in it; the one in which it ends
// goes, as nothing after it has memory.
void PageMemory::give_back(int32_t begin, int32_t end) {
  const int64_t layer_bytes = shape_.n_pages * layer_page_bytes();
  for (int32_t i = 0; i < shape_.n_layers; ++i) {
    const int64_t from = piece_end(i, begin * layer_page_bytes());
    const int64_t to = std::min(piece_end(i, end * layer_page_bytes()), layer_bytes);
    if (from < to) give_back_memory(page(i, 0) + from, to - from);
  }
}

int64_t PageMemory::resident_bytes() {
  return weft::resident_bytes(memory_.data(), memory_.size());
}

}  // namespace weft::kv
