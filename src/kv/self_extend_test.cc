#include "kv/self_extend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace weft::kv {
namespace {

using ::testing::HasSubstr;

constexpr SelfExtend kExtends[] = {{2, 2}, {2, 16}, {3, 12}, {4, 64}, {4, 4}, {8, 24}, {7, 49}};

TEST(SelfExtend, OffItLeavesPositionsAlone) {
  for (const SelfExtend& off : {SelfExtend{}, SelfExtend{1, 64}}) {
    EXPECT_FALSE(off.is_on());
    EXPECT_TRUE(off.check().is_ok());
    EXPECT_TRUE(off.is_plain(1000));
    EXPECT_EQ(off.grouped(1000), 0);
    EXPECT_EQ(off.next_change(1000), std::numeric_limits<int32_t>::max());
    EXPECT_TRUE(off.positions(0, 1000).is_plain());
    EXPECT_EQ(off.last_position(1000), 999);
    EXPECT_EQ(off.turned_tokens(), 0);
  }
}

TEST(SelfExtend, TheNewestTokensAreInNoGroup) {
  for (const SelfExtend& extend : kExtends) {
    SCOPED_TRACE(::testing::Message() << extend.group_tokens << " " << extend.neighbour_tokens);
    ASSERT_TRUE(extend.check().is_ok());
    int32_t before = 0;
    for (int32_t slot = 0; slot < 600; ++slot) {
      const int32_t grouped = extend.grouped(slot);
      EXPECT_EQ(grouped % extend.group_tokens, 0);
      EXPECT_GE(grouped, before);
      before = grouped;
      // The rows's neighbours, itself among them: as many as asked for, but for a text's beginning.
      const int32_t near = slot + 1 - grouped;
      EXPECT_GT(near, std::min(slot, extend.neighbour_tokens));
      EXPECT_LE(near, extend.neighbour_tokens +
                          std::max(extend.group_tokens, extend.neighbour_tokens / 2));
      EXPECT_EQ(extend.is_plain(slot), grouped == 0);
    }
  }
}

// What the paper's attention over grouped positions gives a query at distance: floor(q / N) + W -
// floor(W / N) - floor(k / N), where W is how many tokens are nearer than that key's block; and the
// true distance to the others (Jin et al. 2024, section 3.2 and its algorithm).
TEST(SelfExtend, DistancesAreThePapers) {
  for (const SelfExtend& extend : kExtends) {
    const int32_t n = extend.group_tokens;
    for (int32_t query = 0; query < 400; ++query) {
      const PositionMap map = extend.positions(query, query + 1);
      const int32_t grouped = extend.grouped(query);
      const int32_t window = query - grouped;
      for (int32_t key = 0; key <= query; ++key) {
        const int32_t distance = map.at(query) - map.at(key);
        if (key >= grouped) {
          ASSERT_EQ(distance, query - key);
        } else {
          ASSERT_EQ(distance, query / n + window - window / n - key / n);
        }
      }
    }
  }
}

TEST(SelfExtend, AStepsRowsHaveTheSamePositionsAsEachAlone) {
  for (const SelfExtend& extend : kExtends) {
    for (int32_t begin = 0; begin < 300;) {
      const int32_t end = extend.next_change(begin);
      ASSERT_GT(end, begin);
      EXPECT_NE(extend.grouped(end), extend.grouped(begin));
      const PositionMap together = extend.positions(begin, end);
      for (int32_t slot = begin; slot < end; ++slot) {
        ASSERT_EQ(extend.grouped(slot), extend.grouped(begin));
        const PositionMap alone = extend.positions(slot, slot + 1);
        for (int32_t key = 0; key <= slot; ++key) ASSERT_EQ(together.at(key), alone.at(key));
      }
      begin = end;
    }
  }
}

TEST(SelfExtend, LastPositionIsTheLargestOfAnyRow) {
  for (const SelfExtend& extend : kExtends) {
    int32_t most = 0;
    for (int32_t n_tokens = 1; n_tokens < 600; ++n_tokens) {
      most = std::max(most, extend.positions(n_tokens - 1, n_tokens).at(n_tokens - 1));
      ASSERT_EQ(extend.last_position(n_tokens), most) << n_tokens;
    }
  }
}

TEST(SelfExtend, AMoveTurnsNoMoreThanItSays) {
  for (const SelfExtend& extend : kExtends) {
    for (int32_t slot = 1; slot < 400; ++slot) {
      const PositionMap before = extend.positions(slot - 1, slot);
      const PositionMap now = extend.positions(slot, slot + 1);
      int32_t n_turned = 0;
      for (int32_t key = 0; key < slot; ++key) n_turned += before.at(key) != now.at(key);
      ASSERT_LE(n_turned, extend.turned_tokens());
    }
  }
}

TEST(SelfExtend, WithoutNeighboursAllAreGrouped) {
  const SelfExtend extend{4, 0};
  ASSERT_TRUE(extend.check().is_ok());
  EXPECT_FALSE(extend.is_plain(0));
  EXPECT_EQ(extend.next_change(0), std::numeric_limits<int32_t>::max());
  const PositionMap map = extend.positions(10, 50);
  for (int32_t slot = 0; slot < 50; ++slot) EXPECT_EQ(map.at(slot), slot / 4);
  EXPECT_EQ(extend.last_position(50), 49 / 4);
}

TEST(SelfExtend, CheckNamesTheFlag) {
  const auto message = [](const SelfExtend& extend) { return extend.check().message(); };
  EXPECT_THAT(message({0, 8}), HasSubstr("--grp-attn-n 0: must be from 1 to 256"));
  EXPECT_THAT(message({257, 257}), HasSubstr("--grp-attn-n 257"));
  EXPECT_THAT(message({4, 510}),
              HasSubstr("--grp-attn-w 510: must be a multiple of --grp-attn-n 4, as 508"));
  EXPECT_THAT(message({4, 3}), HasSubstr("as 4"));
  EXPECT_THAT(message({4, -4}), HasSubstr("--grp-attn-w -4"));
}

}  // namespace
}  // namespace weft::kv
