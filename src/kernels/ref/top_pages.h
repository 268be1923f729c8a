// Scalar twins of top_pages.h and sample_pages.h: by sorting, and in double.
#pragma once

#include <vector>

#include "kernels/sample_pages.h"
#include "kernels/top_pages.h"

namespace weft::kernels::ref {

/// [n_kv_heads][n_pages].
std::vector<double> group_scores(MatrixView<const float> of_heads, int64_t n_kv_heads);
std::vector<double> sum_shares(MatrixView<const float> of_heads, int64_t n_kv_heads);

std::vector<int32_t> top_pages(std::span<const float> scores, int64_t n_chosen);

struct Sample {
  std::vector<int32_t> pages;
  std::vector<double> weights;
  double step = 0;          // 0: all are certain
  double least_margin = 0;  // by what a decision was taken, of a step: rounding may turn it
};
Sample sample_pages(std::span<const float> scores, int64_t n_chosen, int64_t n_best = 0);

}  // namespace weft::kernels::ref
