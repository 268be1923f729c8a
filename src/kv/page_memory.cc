#include "kv/page_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace weft::kv {
namespace {

constexpr uint16_t kPoison = 0x7e00;  // f16 quiet NaN

Status check_shape(const PageMemory::Shape& s) {
  if (s.n_layers <= 0 || s.n_pages <= 0 || s.n_kv_heads <= 0) {
    return invalid_argument(
        fmt::format("KV cache: {} layers, {} pages, {} KV heads: all must be at "
                    "least 1",
                    s.n_layers, s.n_pages, s.n_kv_heads));
  }
  if (s.page_tokens < 16 || s.page_tokens > 256 ||
      !std::has_single_bit(static_cast<uint32_t>(s.page_tokens))) {
    return unsupported(fmt::format(
        "KV cache: pages of {} tokens; a power of two from 16 to 256 is needed", s.page_tokens));
  }
  if (s.head_dim < 8 || s.head_dim > kernels::kMaxHeadDim || s.head_dim % 8 != 0) {
    return unsupported(fmt::format("KV cache: head size {}; a multiple of 8 up to {} is needed",
                                   s.head_dim, kernels::kMaxHeadDim));
  }
  return Status::ok();
}

}  // namespace

Result<PageMemory> PageMemory::create(const Shape& shape) {
  WEFT_RETURN_IF_ERROR(check_shape(shape));
  size_t n_elements = 2;  // K and V
  bool overflows = false;
  for (const int32_t factor :
       {shape.n_layers, shape.n_pages, shape.n_kv_heads, shape.page_tokens, shape.head_dim}) {
    overflows |= __builtin_mul_overflow(n_elements, static_cast<size_t>(factor), &n_elements);
  }
  if (overflows) {
    return resource_exhausted(fmt::format(
        "KV cache: {} layers x {} pages x {} KV heads x {} x {} is more than memory can address",
        shape.n_layers, shape.n_pages, shape.n_kv_heads, shape.page_tokens, shape.head_dim));
  }
  WEFT_ASSIGN_OR_RETURN(auto memory, LazyBuffer<uint16_t>::create(n_elements, "KV cache"));
  return PageMemory(shape, std::move(memory));
}

PageMemory::PageMemory(const Shape& shape, LazyBuffer<uint16_t> memory)
    : shape_(shape),
      page_elements_(static_cast<size_t>(shape.n_kv_heads) *
                     static_cast<size_t>(shape.page_tokens) * static_cast<size_t>(shape.head_dim)),
      memory_(std::move(memory)) {}

uint16_t* PageMemory::page(int32_t index, int32_t page) {
  const size_t n_pages = static_cast<size_t>(shape_.n_pages);
  return memory_.data() +
         (static_cast<size_t>(index) * n_pages + static_cast<size_t>(page)) * page_elements_;
}

kernels::PagedKv PageMemory::layer(int index) {
  WEFT_CHECK(index >= 0 && index < shape_.n_layers);
  return {.k = page(2 * index, 0),
          .v = page(2 * index + 1, 0),
          .page_tokens = shape_.page_tokens,
          .n_kv_heads = shape_.n_kv_heads,
          .head_dim = shape_.head_dim};
}

void PageMemory::copy_page(int32_t from, int32_t to) {
  for (int32_t i = 0; i < 2 * shape_.n_layers; ++i) {
    std::memcpy(page(i, to), page(i, from), page_elements_ * sizeof(uint16_t));
  }
}

void PageMemory::page_freed(int32_t freed) {
  if (!kDebugChecks) return;
  for (int32_t i = 0; i < 2 * shape_.n_layers; ++i) {
    std::fill_n(page(i, freed), page_elements_, kPoison);
  }
}

}  // namespace weft::kv
