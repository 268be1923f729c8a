#include "kernels/ref/token_labels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/ref/kv_codec.h"
#include "kernels/ref/page_digest.h"

namespace weft::kernels::ref {
namespace {

/// What 0 to 7 of a kSides label stand for, furthest below the middle first, at place i of it. Past
/// the first half of the places the lowest bit is none.
double value_of_sides(int code, LabelDepth depth, int32_t head_dim, int32_t i, double high,
                      double low) {
  const double middle = (high + low) / 2, deviation = (high - low) / 2;
  const bool is_first = i / kSideBlockDims < n_first_side_blocks(head_dim);
  if (depth == LabelDepth::kSide) return !is_first ? middle : code >= 4 ? high : low;
  if (is_first) return middle + (code - 3.5) / 2 * deviation;
  constexpr double kPlaces[] = {-1.75, -0.5, 0.5, 1.75};
  return middle + kPlaces[code / 2] * deviation;
}

/// K's dimension at place i of a kSides label.
int32_t dimension_at(const PagedLabels& labels, int32_t kv_head, int32_t i) {
  if (labels.channels == nullptr) return i;
  return labels.channels[kv_head * labels.layout.head_dim + i];
}

}  // namespace

std::vector<double> label_values(const PagedDigests& digests, const PagedLabels& labels,
                                 LabelDepth depth, int32_t page, int32_t kv_head, int32_t token) {
  const int32_t head_dim = labels.layout.head_dim;
  const uint8_t* const bytes = label_at(labels, page, kv_head);
  const int32_t block = token / 16, lane = token % 16;
  std::vector<double> values(head_dim, 0.0);
  if (labels.layout.kind == LabelKind::kSides) {
    const std::vector<double> both = digest_values(digests, page, kv_head);
    const int32_t n_sixteens = labels.layout.page_tokens / 16, n_dims = (head_dim + 31) / 32;
    const int32_t n_first = (n_dims + 1) / 2;
    const auto bit_of = [&](int32_t plane, int32_t i) {
      const int32_t n_in_row = plane < 2 ? n_dims : n_first;
      if (i / 32 >= n_in_row) return 0;
      const int32_t row = plane * n_sixteens * n_dims + block * n_in_row;
      return bytes[(row + i / 32) * 64 + lane * 4 + i % 4] >> (i % 32 / 4) & 1;
    };
    for (int32_t i = 0; i < head_dim; ++i) {
      const int32_t d = dimension_at(labels, kv_head, i);
      values[d] = value_of_sides(4 * bit_of(0, i) + 2 * bit_of(1, i) + bit_of(2, i), depth,
                                 head_dim, i, both[d], both[head_dim + d]);
    }
    return values;
  }
  float step;
  std::memcpy(&step, bytes, sizeof(step));
  for (int32_t c = 0; c < kLabelChannels; ++c) {
    int8_t code;
    std::memcpy(
        &code,
        bytes + sizeof(step) + ((block * (kLabelChannels / 2) + c / 2) * 16 + lane) * 2 + c % 2,
        sizeof(code));
    values[labels.channels[kv_head * kLabelChannels + c]] = double{step} * code;
  }
  return values;
}

std::vector<double> label_of_key(const PagedKv& kv, const PagedDigests& digests,
                                 const PagedLabels& labels, LabelDepth depth, int32_t page,
                                 int32_t kv_head, int32_t token) {
  const int32_t head_dim = labels.layout.head_dim;
  const auto* const k = k_at(kv, &page, token, kv_head);
  std::vector<double> values(head_dim, 0.0);
  if (labels.layout.kind == LabelKind::kSides) {
    const std::vector<double> both = digest_values(digests, page, kv_head);
    for (int32_t i = 0; i < head_dim; ++i) {
      const int32_t d = dimension_at(labels, kv_head, i);
      const double high = both[d], low = both[head_dim + d];
      const double x = kv_element(kv.layout.k_type, k, d);
      const bool is_above = x >= (high + low) / 2;
      // The bounds as floats: what the kernels compare with.
      const bool is_upper = is_above ? x > static_cast<float>(high) : x >= static_cast<float>(low);
      const double half = (high - low) / 4;
      const double within = is_above == is_upper ? 3 * half : half;
      const bool is_lowest = x >= (high + low) / 2 + (is_above ? within : -within);
      values[d] =
          value_of_sides(4 * (is_above ? 1 : 0) + 2 * (is_upper ? 1 : 0) + (is_lowest ? 1 : 0),
                         depth, head_dim, i, high, low);
    }
    return values;
  }
  for (int32_t c = 0; c < kLabelChannels; ++c) {
    const int32_t d = labels.channels[kv_head * kLabelChannels + c];
    values[d] = kv_element(kv.layout.k_type, k, d);
  }
  return values;
}

std::vector<double> score_labels(const PagedDigests& digests, const PagedLabels& labels,
                                 LabelDepth depth, int32_t n_heads, double scale,
                                 const LabelQuery& query) {
  const LabelLayout& layout = labels.layout;
  const int32_t group = n_heads / layout.n_kv_heads;
  std::vector<double> scores;
  for (int32_t head = 0; head < n_heads; ++head) {
    for (const int32_t place : query.places[head / group]) {
      std::vector<double> of_tokens;
      for (int32_t token = 0; token < layout.page_tokens; ++token) {
        const std::vector<double> k =
            label_values(digests, labels, depth, query.pages[place], head / group, token);
        double sum = 0;
        for (int32_t d = 0; d < layout.head_dim; ++d) {
          sum += double{query.q[head * layout.head_dim + d]} * k[d];
        }
        of_tokens.push_back(scale * sum);
        if ((token + 1) % query.part_tokens != 0) continue;
        const double top = *std::ranges::max_element(of_tokens);
        double share = 0;
        for (const double x : of_tokens) share += std::exp(x - top);
        scores.push_back(top + std::log(share));
        of_tokens.clear();
      }
    }
  }
  return scores;
}

}  // namespace weft::kernels::ref
