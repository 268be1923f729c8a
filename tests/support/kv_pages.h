// Pages of K and V for tests of kernels that look at whole pages.
#pragma once

#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "kernels/kv_codec.h"
#include "kernels/ref/kv_codec.h"
#include "support/numbers.h"

namespace weft::test {

/// n_pages full of random keys; each dimension has a centre and a deviation of its own, as the keys
/// of models do. V is whatever the bytes are.
class KvPages {
 public:
  KvPages(const kernels::KvLayout& layout, int32_t n_pages, uint32_t seed)
      : n_pages_(n_pages),
        layout_(layout),
        bytes_(n_pages * layout.page_tokens * kernels::kv_token_bytes(layout), 0xff) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<float> centre(layout.head_dim), deviation(layout.head_dim), k(layout.head_dim);
    for (int32_t d = 0; d < layout.head_dim; ++d) {
      centre[d] = 2 * normal(generator);
      deviation[d] = 0.1f + std::abs(normal(generator));
    }
    for (int32_t page = 0; page < n_pages; ++page) {
      for (int32_t head = 0; head < layout.n_kv_heads; ++head) {
        for (int32_t token = 0; token < layout.page_tokens; ++token) {
          for (int32_t d = 0; d < layout.head_dim; ++d) {
            k[d] = centre[d] + deviation[d] * normal(generator);
          }
          set_key(page, head, token, k);
        }
      }
    }
  }
  kernels::PagedKv kv() {
    return kernels::make_paged_kv(layout_, reinterpret_cast<std::byte*>(bytes_.data()));
  }
  uint8_t* key(int32_t page, int32_t head, int32_t token) {
    return kernels::k_at(kv(), &page, token, head);
  }
  void set_key(int32_t page, int32_t head, int32_t token, const std::vector<float>& k) {
    kernels::ref::set_kv_vector(layout_.k_type, k.data(), layout_.head_dim, key(page, head, token));
  }
  /// In any order: each page once.
  std::vector<int32_t> shuffled(uint32_t seed) const {
    std::vector<int32_t> pages(n_pages_);
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), std::mt19937(seed));
    return pages;
  }

 private:
  int32_t n_pages_;
  kernels::KvLayout layout_;
  std::vector<uint8_t> bytes_;
};

}  // namespace weft::test
