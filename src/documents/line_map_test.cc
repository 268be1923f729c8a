#include "documents/line_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace weft::documents {
namespace {

TEST(LineMap, CountsATextsLinesAsGrepDoes) {
  const LineMap map = LineMap::of_lines("a\nbc\r\n\nd");
  for (const auto& [offset, line] : std::vector<std::pair<uint64_t, uint64_t>>{
           {0, 1}, {1, 1}, {2, 2}, {5, 2}, {6, 3}, {7, 4}, {8, 4}, {1000, 4}}) {
    EXPECT_EQ(map.line_of(offset), line) << offset;
  }
  EXPECT_EQ(LineMap::of_lines("").line_of(0), 1u);
  EXPECT_EQ(LineMap::of_lines("a\nb", 7).line_of(0), 7u);
  EXPECT_EQ(LineMap::of_lines("a\nb", 7).line_of(2), 8u);
  EXPECT_EQ(LineMap().line_of(5), 1u);
}

TEST(LineMap, LineOfMatchesWhatWasAddedAtEveryOffset) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    LineMap map;
    std::vector<std::pair<uint64_t, uint64_t>> added{{0, 1}};
    for (uint32_t n = random() % 400; n > 0; --n) {
      const auto [offset, line] = added.back();
      added.emplace_back(offset + random() % (n % 7 == 0 ? 100'000 : 5),
                         line + random() % (n % 11 == 0 ? 1'000'000 : 3));
      map.add(added.back().first, added.back().second);
    }
    for (int i = 0; i < 400; ++i) {
      const uint64_t at = i % 2 == 0 ? added[random() % added.size()].first + random() % 3
                                     : random() % (added.back().first + 10);
      uint64_t expected = 1;
      for (const auto& [offset, line] : added) {
        if (offset <= at) expected = line;
      }
      ASSERT_EQ(map.line_of(at), expected) << at;
    }
  }
}

}  // namespace
}  // namespace weft::documents
