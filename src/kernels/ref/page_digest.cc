// Element by element from the definitions: the larger of two products, where the kernels multiply
// once.
#include "kernels/ref/page_digest.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/ref/kv_codec.h"
#include "tensor/half.h"

namespace weft::kernels::ref {

std::vector<double> digest_of_keys(const PagedKv& kv, int32_t page, int32_t kv_head,
                                   DigestKind kind) {
  const int32_t head_dim = kv.layout.head_dim, page_tokens = kv.layout.page_tokens;
  std::vector<double> first(head_dim), second;
  if (kind != DigestKind::kMean) second.resize(head_dim);
  for (int32_t d = 0; d < head_dim; ++d) {
    std::vector<double> keys;
    for (int32_t token = 0; token < page_tokens; ++token) {
      keys.push_back(kv_element(kv.layout.k_type, k_at(kv, &page, token, kv_head), d));
    }
    if (kind == DigestKind::kMean) {
      for (const double k : keys) first[d] += k / page_tokens;
      continue;
    }
    first[d] = *std::ranges::max_element(keys);
    second[d] = *std::ranges::min_element(keys);
    if (kind == DigestKind::kMinMax) continue;
    const double centre = (first[d] + second[d]) / 2;
    double distance = 0;
    for (const double k : keys) distance += std::abs(k - centre) / page_tokens;
    first[d] = centre + distance;
    second[d] = centre - distance;
  }
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

std::vector<double> digest_values(const PagedDigests& digests, int32_t page, int32_t kv_head) {
  const uint8_t* bytes = digest_at(digests, page, kv_head);
  const uint8_t* const order = digest_order(digests, kv_head);
  const int32_t head_dim = digests.layout.head_dim;
  std::vector<double> values(digest_elements(digests.layout));
  for (int32_t i = 0; i < std::ssize(values); ++i) {
    const int32_t d = order == nullptr ? i : i / head_dim * head_dim + order[i % head_dim];
    if (digests.layout.type == DigestType::kF16) {
      uint16_t half;
      std::memcpy(&half, bytes + 2 * i, sizeof(half));
      values[d] = f32_from_f16(half);
    } else {
      float step;
      int8_t code;
      std::memcpy(&step, bytes, sizeof(step));
      std::memcpy(&code, bytes + sizeof(step) + i, sizeof(code));
      values[d] = double{step} * code;
    }
  }
  return values;
}

std::vector<double> score_digests(const PagedDigests& digests, int32_t n_heads, double scale,
                                  const DigestQuery& query) {
  const int32_t head_dim = digests.layout.head_dim;
  const int32_t group = n_heads / digests.layout.n_kv_heads;
  const bool is_mean = digests.layout.kind == DigestKind::kMean;
  std::vector<double> scores;
  for (int32_t head = 0; head < n_heads; ++head) {
    for (const int32_t page : query.pages) {
      const std::vector<double> x = digest_values(digests, page, head / group);
      double sum = 0;
      for (int32_t d = 0; d < head_dim; ++d) {
        const double q = query.q[head * head_dim + d];
        sum += is_mean ? q * x[d] : std::max(q * x[d], q * x[head_dim + d]);
      }
      scores.push_back(scale * sum);
    }
  }
  return scores;
}

}  // namespace weft::kernels::ref
