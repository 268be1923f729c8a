// Scalar twins of top_pages.h: by sorting, and in double.
#pragma once

#include <vector>

#include "kernels/top_pages.h"

namespace weft::kernels::ref {

/// [n_kv_heads][n_pages].
std::vector<double> group_scores(MatrixView<const float> of_heads, int64_t n_kv_heads);

std::vector<int32_t> top_pages(std::span<const float> scores, int64_t n_chosen);

}  // namespace weft::kernels::ref
