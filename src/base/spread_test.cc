#include "base/spread.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Spread, MedianOfOddAndEvenCounts) {
  EXPECT_EQ(spread_of({3, 1, 2}).median, 2);
  EXPECT_EQ(spread_of({4, 1, 2, 3}).median, 2.5);
  EXPECT_EQ(spread_of({4, 1, 2, 3}).max, 4);
  EXPECT_EQ(spread_of({}).median, 0);
}

}  // namespace
}  // namespace weft
