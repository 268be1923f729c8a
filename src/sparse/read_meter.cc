#include "sparse/read_meter.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace weft::sparse {

void ReadMeter::mark_read(std::span<const int32_t> pages, const kernels::HeadPages& list,
                          int32_t page_tokens) {
  is_read_.assign(pages.size(), false);
  const int32_t* next = list.block_table;
  const int32_t* const end = next + list.last_slot / page_tokens + 1;
  for (size_t i = 0; i < pages.size() && next != end; ++i) {  // both in the order of their slots
    if (pages[i] != *next) continue;
    is_read_[i] = true;
    ++next;
  }
}

double ReadMeter::mass_share(std::span<const float> scores, int32_t page_tokens) const {
  const float most = *std::ranges::max_element(scores);
  double all = 0, read = 0;
  for (int64_t t = 0; t < std::ssize(scores); ++t) {
    const double weight = std::exp(double{scores[t]} - most);
    all += weight;
    if (is_read_[t / page_tokens]) read += weight;
  }
  return read / all;
}

double ReadMeter::top10_share(std::span<const float> scores, int32_t page_tokens) {
  const int64_t n = std::min<int64_t>(10, std::ssize(scores));
  largest_.resize(scores.size());
  std::iota(largest_.begin(), largest_.end(), 0);
  std::ranges::partial_sort(largest_, largest_.begin() + n, [&](int32_t a, int32_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  });
  const auto is_read = [&](int32_t t) { return is_read_[t / page_tokens]; };
  return 1.0 * std::count_if(largest_.begin(), largest_.begin() + n, is_read) / n;
}

void ReadMeter::measure(const kernels::Context& context, const kv::SelectingLayer& layer,
                        const kv::SelectingRow& row, std::span<const kernels::HeadPages> lists,
                        ReadQuality& quality) {
  const int32_t page_tokens = layer.cache.page_tokens();
  const int64_t n_tokens = int64_t{row.slot} + 1;
  const auto pages = row.block_table.first(row.slot / page_tokens + 1);
  scores_.resize(layer.n_heads * n_tokens);
  scales_.assign(layer.n_heads, layer.scale);
  const kernels::MassQuery query[] = {{.q = row.q,
                                       .scales = scales_,
                                       .pages = pages,
                                       .last_page_tokens = row.slot % page_tokens + 1,
                                       .scores = scores_.data(),
                                       .stride = n_tokens}};
  kernels::token_scores(context, layer.cache.layer(layer.layer), layer.n_heads, query);
  // K that is not finite gives no shares.
  if (!std::ranges::all_of(scores_, [](float score) { return std::isfinite(score); })) return;
  const int64_t group = layer.n_heads / std::ssize(lists);
  double mass = 0, top10 = 0;
  for (int64_t head = 0; head < layer.n_heads; ++head) {
    if (head % group == 0) mark_read(pages, lists[head / group], page_tokens);
    const std::span<const float> scores(scores_.data() + head * n_tokens, n_tokens);
    mass += mass_share(scores, page_tokens);
    top10 += top10_share(scores, page_tokens);
  }
  ++quality.reads;
  quality.mass += mass / layer.n_heads;
  quality.top10 += top10 / layer.n_heads;
}

}  // namespace weft::sparse
