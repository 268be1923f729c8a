#include "kernels/ref/page_mass.h"

#include <algorithm>
#include <cmath>

#include "kernels/ref/kv_codec.h"

namespace weft::kernels::ref {

std::vector<double> token_scores(const PagedKv& kv, int32_t n_heads, const MassQuery& query) {
  const int32_t head_dim = kv.layout.head_dim;
  const int32_t group = n_heads / kv.layout.n_kv_heads;
  std::vector<double> scores;
  for (int32_t head = 0; head < n_heads; ++head) {
    for (const int32_t& page : query.pages) {
      const bool is_last = &page == &query.pages.back();
      const int32_t n_tokens = is_last ? query.last_page_tokens : kv.layout.page_tokens;
      for (int32_t token = 0; token < n_tokens; ++token) {
        const uint8_t* k = k_at(kv, &page, token, head / group);
        double product = 0;
        for (int32_t d = 0; d < head_dim; ++d) {
          product += double{query.q[head * head_dim + d]} * kv_element(kv.layout.k_type, k, d);
        }
        scores.push_back(query.scales[head] * product);
      }
    }
  }
  return scores;
}

std::vector<double> page_mass(const PagedKv& kv, int32_t n_heads, const MassQuery& query) {
  const std::vector<double> tokens = token_scores(kv, n_heads, query);
  std::vector<double> masses;
  auto next = tokens.begin();
  for (int32_t head = 0; head < n_heads; ++head) {
    for (const int32_t& page : query.pages) {
      const bool is_last = &page == &query.pages.back();
      const auto page_end = next + (is_last ? query.last_page_tokens : kv.layout.page_tokens);
      while (next < page_end) {
        const int64_t n = query.part_tokens == 0 ? kv.layout.page_tokens : query.part_tokens;
        const auto end = next + std::min(n, static_cast<int64_t>(page_end - next));
        const double largest = *std::max_element(next, end);
        double sum = 0;
        for (; next < end; ++next) sum += std::exp(*next - largest);
        masses.push_back(largest + std::log(sum));
      }
    }
  }
  return masses;
}

}  // namespace weft::kernels::ref
