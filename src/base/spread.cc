#include "base/spread.h"

#include <algorithm>
#include <cstddef>

namespace weft {

/// Of an even number the median is the mean of the two in the middle. Of none all are 0.
Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back()};
}

}  // namespace weft
