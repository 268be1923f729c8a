#include "sparse/read_meter.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace weft::sparse {

namespace {

/// Of the row's pages, or their runs, which are in the list; both are in the order of their slots.
std::vector<bool> entries_read(std::span<const int32_t> pages, const kernels::HeadPages& list,
                               int32_t page_tokens) {
  const int32_t n_parts = page_tokens / list.entry_tokens;
  std::vector<bool> is_read(pages.size() * n_parts, false);
  const int32_t* next = list.table;
  const int32_t* const end = next + list.last_slot / list.entry_tokens + 1;
  for (size_t i = 0; i < is_read.size() && next != end; ++i) {
    if (pages[i / n_parts] * n_parts + static_cast<int32_t>(i % n_parts) != *next) continue;
    is_read[i] = true;
    ++next;
  }
  return is_read;
}

double mass_share(std::span<const float> scores, const std::vector<bool>& is_read,
                  int32_t entry_tokens) {
  const float most = *std::ranges::max_element(scores);
  double all = 0, read = 0;
  for (int64_t t = 0; t < std::ssize(scores); ++t) {
    const double weight = std::exp(scores[t] - most);
    all += weight;
    if (is_read[t / entry_tokens]) read += weight;
  }
  return read / all;
}

/// Of the ten largest, ties to the earlier token.
double top10_share(std::span<const float> scores, const std::vector<bool>& is_read,
                   int32_t entry_tokens) {
  const int64_t n = std::min<int64_t>(10, std::ssize(scores));
  std::vector<int32_t> largest(scores.size());
  std::iota(largest.begin(), largest.end(), 0);
  std::ranges::partial_sort(largest, largest.begin() + n, [&](int32_t a, int32_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  });
  const auto lies_in_one = [&](int32_t t) { return is_read[t / entry_tokens]; };
  return 1.0 * std::count_if(largest.begin(), largest.begin() + n, lies_in_one) / n;
}

}  // namespace

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
  if (layer.softcap > 0) {
    for (float& score : scores_) score = layer.softcap * std::tanh(score / layer.softcap);
  }
  const int64_t group = layer.n_heads / std::ssize(lists);
  shares_.resize(layer.n_heads);
  context.pool.run(std::ssize(lists), [&](int64_t kv_head, int) {
    const std::vector<bool> is_read = entries_read(pages, lists[kv_head], page_tokens);
    const int32_t entry_tokens = lists[kv_head].entry_tokens;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      const std::span<const float> scores(scores_.data() + head * n_tokens, n_tokens);
      shares_[head] = {mass_share(scores, is_read, entry_tokens),
                       top10_share(scores, is_read, entry_tokens)};
    }
  });
  ++quality.reads;
  double all_mass = 0, all_top10 = 0;
  for (const auto& [mass, top10] : shares_) {
    all_mass += mass;
    all_top10 += top10;
  }
  quality.mass += all_mass / layer.n_heads;
  quality.top10 += all_top10 / layer.n_heads;  // divided last, so that all of it is 1 and no more
}

}  // namespace weft::sparse
