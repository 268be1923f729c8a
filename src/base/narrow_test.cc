#include "base/narrow.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace weft {
namespace {

TEST(Narrow, KeepsWhatFits) {
  EXPECT_EQ(narrow<int32_t>(size_t{7}), 7);
  EXPECT_EQ(narrow<int32_t>(int64_t{std::numeric_limits<int32_t>::min()}),
            std::numeric_limits<int32_t>::min());
  EXPECT_EQ(narrow<uint64_t>(int64_t{9}), 9u);
  EXPECT_EQ(narrow<int64_t>(uint64_t{std::numeric_limits<int64_t>::max()}),
            std::numeric_limits<int64_t>::max());
}

TEST(NarrowDeathTest, AbortsForWhatDoesNot) {
  EXPECT_DEATH((void)narrow<int32_t>(int64_t{1} << 31), "in_range");
  EXPECT_DEATH((void)narrow<uint32_t>(-1), "in_range");
  EXPECT_DEATH((void)narrow<int64_t>(std::numeric_limits<uint64_t>::max()), "in_range");
}

TEST(ToUnderlying, IsTheEnumeratorsNumber) {
  enum class Small : uint8_t { kTwo = 2 };
  EXPECT_EQ(to_underlying(Small::kTwo), 2);
  static_assert(std::is_same_v<decltype(to_underlying(Small::kTwo)), uint8_t>);
}

}  // namespace
}  // namespace weft
