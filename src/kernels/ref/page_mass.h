// Scalar twins of page_mass.h, in double.
#pragma once

#include <vector>

#include "kernels/page_mass.h"

namespace weft::kernels::ref {

/// [n_heads][pages.size()]; query.scores is not used.
std::vector<double> page_mass(const PagedKv& kv, int32_t n_heads, const MassQuery& query);

/// [n_heads][tokens of the pages].
std::vector<double> token_scores(const PagedKv& kv, int32_t n_heads, const MassQuery& query);

}  // namespace weft::kernels::ref
