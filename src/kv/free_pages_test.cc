#include "kv/free_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <random>
#include <set>

namespace weft::kv {
namespace {

/// -1 where `at` is the end.
int32_t value_or_none(const std::set<int32_t>& set, std::set<int32_t>::const_iterator at) {
  return at == set.end() ? -1 : *at;
}

// Sizes at the borders of a word and of a level: 64 and 64 * 64.
TEST(PageSet, FindsWhatASetFinds) {
  for (const int32_t n : {1, 2, 63, 64, 65, 100, 4095, 4096, 4097, 300'000}) {
    SCOPED_TRACE(n);
    std::mt19937 random(n);
    PageSet pages(n);
    std::set<int32_t> model;
    for (int step = 0; step < 3000; ++step) {
      const int32_t page = random() % n;
      if (model.contains(page)) {
        pages.remove(page);
        model.erase(page);
      } else if (step % 1000 < 600) {  // it is nearly empty now and then
        pages.add(page);
        model.insert(page);
      }
      if (step % 1000 == 999) {
        for (const int32_t one : model) pages.remove(one);
        model.clear();
      }
      ASSERT_EQ(pages.count(), std::ssize(model));
      ASSERT_EQ(pages.contains(page), model.contains(page));
      ASSERT_EQ(pages.first(), value_or_none(model, model.begin()));
      ASSERT_EQ(pages.last(), model.empty() ? -1 : *model.rbegin());
      const int32_t asked = random() % (n + 1);
      const auto not_below = model.lower_bound(asked);
      ASSERT_EQ(pages.last_before(asked), not_below == model.begin() ? -1 : *std::prev(not_below));
      if (asked < n) {
        ASSERT_EQ(pages.first_after(asked), value_or_none(model, model.upper_bound(asked)));
      }
      ASSERT_EQ(pages.first_after(-1), pages.first());
    }
  }
}

TEST(FreePages, TheLowestGoesFirst) {
  FreePages pages(5);
  EXPECT_EQ(pages.used_end(), 0);
  for (int32_t page = 0; page < 4; ++page) EXPECT_EQ(pages.take(), page);
  pages.give(2);
  pages.give(0);
  EXPECT_THAT(pages.list(), ::testing::ElementsAre(0, 2, 4));
  EXPECT_EQ(pages.used_end(), 4);
  EXPECT_EQ(pages.count(), 3);
  EXPECT_EQ(pages.used_count(), 2);
  EXPECT_EQ(pages.take(), 0);
  EXPECT_EQ(pages.take(), 2);
  EXPECT_EQ(pages.take(), 4);
  EXPECT_EQ(pages.used_end(), 5);
}

TEST(FreePagesDeathTest, APageIsNotTakenOrGivenTwice) {
  FreePages pages(1);
  EXPECT_DEATH(pages.give(0), "");
  pages.take();
  EXPECT_DEATH(pages.take(), "");
}

}  // namespace
}  // namespace weft::kv
