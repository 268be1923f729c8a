#include "kernels/ref/top_pages.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

namespace weft::kernels::ref {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double counted(float score) {
  if (std::isnan(score)) return -kInfinity;
  return std::min<double>(score, std::numeric_limits<float>::max());
}

}  // namespace

std::vector<double> group_scores(MatrixView<const float> of_heads, int64_t n_kv_heads) {
  const int64_t n_pages = of_heads.columns, group = of_heads.rows / n_kv_heads;
  std::vector<double> of_groups(n_kv_heads * n_pages, -kInfinity);
  for (int64_t head = 0; head < of_heads.rows; ++head) {
    double largest = -kInfinity, sum = 0;
    for (const float x : of_heads.row(head)) largest = std::max(largest, counted(x));
    if (largest == -kInfinity) continue;
    for (const float x : of_heads.row(head)) sum += std::exp(counted(x) - largest);
    for (int64_t i = 0; i < n_pages; ++i) {
      double& most = of_groups[head / group * n_pages + i];
      most = std::max(most, counted(of_heads.row(head)[i]) - largest - std::log(sum));
    }
  }
  return of_groups;
}

std::vector<double> sum_shares(MatrixView<const float> of_heads, int64_t n_kv_heads) {
  const int64_t n_pages = of_heads.columns, group = of_heads.rows / n_kv_heads;
  std::vector<double> of_groups(n_kv_heads * n_pages, 0.0);
  for (int64_t head = 0; head < of_heads.rows; ++head) {
    const MatrixView<const float> own(of_heads.row(head).data(), 1, n_pages);
    const std::vector<double> logs = group_scores(own, 1);
    for (int64_t i = 0; i < n_pages; ++i)
      of_groups[head / group * n_pages + i] += std::exp(logs[i]);
  }
  return of_groups;
}

std::vector<int32_t> top_pages(std::span<const float> scores, int64_t n_chosen) {
  const auto order_of = [&](int32_t i) {
    return std::isnan(scores[i]) ? -std::numeric_limits<float>::infinity() : scores[i];
  };
  std::vector<int32_t> pages(scores.size());
  std::iota(pages.begin(), pages.end(), 0);
  std::ranges::stable_sort(pages, std::ranges::greater{}, order_of);
  pages.resize(n_chosen);
  std::ranges::sort(pages);
  return pages;
}

// The largest first, each certain if it is as large as what those after it and itself have on
// average of what is left to be chosen; then for each point the page whose part of the line it is
// in.
Sample sample_pages(std::span<const float> scores, int64_t n_chosen, int64_t n_best) {
  std::vector<double> shares;
  for (const float score : scores) shares.push_back(score > 1e-26 ? std::min(score, 1e6f) : 0);
  Sample sample{.pages = top_pages(scores, n_chosen),
                .weights = std::vector<double>(n_chosen, 1.0),
                .least_margin = kInfinity};
  std::vector<std::pair<int32_t, double>> chosen;  // with weights
  for (const int32_t page : top_pages(scores, n_best)) {
    chosen.emplace_back(page, 1.0);
    shares[page] = 0;
  }
  const auto n_drawable = std::ranges::count_if(shares, [](double share) { return share > 0; });
  if (n_drawable <= n_chosen - n_best) return sample;
  std::vector<int32_t> sorted(scores.size());
  std::iota(sorted.begin(), sorted.end(), 0);
  std::ranges::stable_sort(sorted, std::ranges::greater{}, [&](int32_t i) { return shares[i]; });
  int64_t n_left = n_chosen - n_best;
  for (; n_left > 0; --n_left) {
    const int32_t page = sorted[n_chosen - n_best - n_left];
    const double left = std::accumulate(shares.begin(), shares.end(), 0.0);
    sample.step = left / static_cast<double>(n_left);
    const double above = shares[page] / sample.step - 1;
    sample.least_margin = std::min(sample.least_margin, std::abs(above));
    if (above < 0) break;
    chosen.emplace_back(page, 1.0);
    shares[page] = 0;
  }
  for (int64_t i = 0; i < n_left; ++i) {
    const double point = (static_cast<double>(i) + 0.5) * sample.step;
    double end = 0;
    int32_t page = 0;
    while ((end += shares[page]) <= point) ++page;
    const double within = std::min(end - point, point - (end - shares[page]));
    sample.least_margin = std::min(sample.least_margin, within / sample.step);
    chosen.emplace_back(page, 1 + kRestCounted * (sample.step / shares[page] - 1));
  }
  if (n_left == 0) sample.step = 0;
  std::ranges::sort(chosen);
  for (int64_t i = 0; i < n_chosen; ++i) {
    sample.pages[i] = chosen[i].first;
    sample.weights[i] = chosen[i].second;
  }
  return sample;
}

}  // namespace weft::kernels::ref
