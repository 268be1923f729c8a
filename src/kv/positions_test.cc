// Positions of slots against a plain list of numbers.
#include "kv/positions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "base/narrow.h"

namespace weft::kv {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

std::vector<int32_t> positions_of(const PositionMap& map, int32_t length) {
  std::vector<int32_t> all;
  for (int32_t slot = 0; slot < length; ++slot) all.push_back(map.at(slot));
  return all;
}

TEST(PositionMap, GoesOnFromTheLastToken) {
  PositionMap map;
  EXPECT_TRUE(map.is_plain());
  map.divide(0, 8, 4, 8);
  EXPECT_THAT(positions_of(map, 11), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2, 3, 4));
  map.cut(6);
  EXPECT_THAT(positions_of(map, 8), ElementsAre(0, 0, 0, 0, 1, 1, 2, 3));
  map.cut(0);
  EXPECT_TRUE(map.is_plain());
}

TEST(PositionMap, ShiftingByAThenByBIsShiftingByBoth) {
  PositionMap twice, once;
  twice.shift(3, 9, 5, 9);
  twice.shift(3, 9, -2, 9);
  once.shift(3, 9, 3, 9);
  EXPECT_EQ(twice, once);
  once.shift(3, 9, -3, 9);
  EXPECT_TRUE(once.is_plain());
}

TEST(PositionMap, RemovingFromPlainPositionsLeavesThemPlain) {
  PositionMap map;
  map.remove(3, 6, 20);
  EXPECT_TRUE(map.is_plain());
}

// llama.cpp's steps of Self-Extend for a group of 4 and a window of 8, after 12 tokens:
// positions 0..7 are divided, and what comes after follows them.
TEST(PositionMap, SelfExtendsStepsLeaveTheWindowAfterTheGroups) {
  PositionMap map;
  map.divide(0, 8, 4, 12);
  map.shift(8, 12, -6, 12);
  EXPECT_THAT(positions_of(map, 13), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1, 2, 3, 4, 5, 6));
}

TEST(PositionMap, RefusesWhatWouldDescendOrBeNegative) {
  PositionMap map;
  EXPECT_TRUE(map.can_shift(4, 8, -1, 8));  // onto slot 3's position, as in a group
  EXPECT_FALSE(map.can_shift(4, 8, -2, 8));
  EXPECT_FALSE(map.can_shift(0, 8, -1, 8));
  EXPECT_FALSE(map.can_shift(0, 4, 2, 8));
  EXPECT_FALSE(map.can_shift(0, 8, INT32_MAX, 8));
  EXPECT_FALSE(map.can_shift(0, 8, INT64_MAX, 8));
  EXPECT_FALSE(map.can_divide(4, 8, 2, 8));
  EXPECT_FALSE(map.can_divide(0, 8, 0, 8));
  EXPECT_FALSE(map.can_divide(0, 8, -3, 8));
  EXPECT_FALSE(map.can_divide(0, 8, int64_t{1} << 40, 8));
  EXPECT_TRUE(map.can_shift(4, 8, INT32_MAX - 7, 8));
}

TEST(PositionMap, AgreesWithAListUnderRandomOperations) {
  std::mt19937 random(7);
  const auto pick = [&](int32_t n) {
    return std::uniform_int_distribution<int32_t>(0, n - 1)(random);
  };
  int n_refused = 0, n_divided = 0, n_removed = 0;
  for (int round = 0; round < 300; ++round) {
    PositionMap map;
    std::vector<int32_t> list(1 + pick(60));
    std::iota(list.begin(), list.end(), 0);
    for (int step = 0; step < 40; ++step) {
      const auto length = narrow<int32_t>(list.size());
      const int32_t begin = pick(length + 1), end = begin + pick(length - begin + 1);
      std::vector<int32_t> wanted = list;
      const int what = pick(5);
      bool done = true;
      if (what == 0) {
        const int32_t delta = pick(9) - 4;
        for (int32_t i = begin; i < end; ++i) wanted[i] += delta;
        done = map.can_shift(begin, end, delta, length);
        if (done) map.shift(begin, end, delta, length);
      } else if (what == 1) {
        const int32_t divisor = 1 + pick(4);
        for (int32_t i = begin; i < end; ++i) wanted[i] /= divisor;
        done = map.can_divide(begin, end, divisor, length);
        if (done) map.divide(begin, end, divisor, length), ++n_divided;
      } else if (what == 2) {
        for (int32_t i = pick(5); i > 0; --i) {
          wanted.push_back(wanted.empty() ? 0 : wanted.back() + 1);
        }
      } else if (what == 3) {
        wanted.resize(begin);
        map.cut(begin);
      } else if (pick(3) == 0) {
        const int32_t by = end < length ? wanted[begin] - wanted[end] : 0;
        for (int32_t i = end; i < length; ++i) wanted[i] += by;
        wanted.erase(wanted.begin() + begin, wanted.begin() + end);
        map.remove(begin, end, length);
        ++n_removed;
      }
      const bool ordered =
          std::ranges::is_sorted(wanted) && (wanted.empty() || wanted.front() >= 0);
      ASSERT_EQ(done, ordered) << "round " << round << ", step " << step;
      n_refused += !done;
      if (done) list = wanted;
      const int32_t next = list.empty() ? 0 : list.back() + 1;
      ASSERT_THAT(positions_of(map, narrow<int32_t>(list.size())), ElementsAreArray(list));
      ASSERT_EQ(map.at(narrow<int32_t>(list.size())), next);
      ASSERT_EQ(map.at(narrow<int32_t>(list.size()) + 3), next + 3);
    }
  }
  EXPECT_GT(n_refused, 500);
  EXPECT_GT(n_divided, 500);
  EXPECT_GT(n_removed, 100);
}

}  // namespace
}  // namespace weft::kv
