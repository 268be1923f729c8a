#include "kernels/ref/top_pages.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

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

}  // namespace weft::kernels::ref
