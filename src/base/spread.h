// How measured values lie.
#pragma once

#include <vector>

namespace weft {

struct Spread {
  double median = 0;
  double min = 0;
  double max = 0;
};
/// Zeros for an empty list.
Spread spread_of(std::vector<double> values);

}  // namespace weft
