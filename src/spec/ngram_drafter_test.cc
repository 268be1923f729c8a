#include "spec/ngram_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace weft::spec {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int32_t> after(std::vector<int32_t> text, int32_t n) {
  NgramDrafter drafter;
  drafter.add(text);
  return *drafter.draft(n);
}

TEST(NgramDrafter, GuessesWhatFollowedTheSameTokens) {
  EXPECT_THAT(after({1, 2, 3, 4, 5, 6, 9, 1, 2}, 3), ElementsAre(3, 4, 5));
  EXPECT_THAT(after({1, 2, 3, 4, 5, 6, 9, 1, 2}, 0), IsEmpty());
  EXPECT_THAT(after({1, 2, 3, 4, 5, 6, 9, 2}, 3), IsEmpty());  // one token is no n-gram
  EXPECT_THAT(after({1}, 3), IsEmpty());
  EXPECT_THAT(after({}, 3), IsEmpty());
  EXPECT_THAT(after({1, 2, 3}, 3), IsEmpty());
}

TEST(NgramDrafter, GoesByTheLongestAndThenByTheNewest) {
  EXPECT_THAT(after({7, 1, 2, 50, 8, 1, 2, 60, 7, 1, 2}, 1), ElementsAre(50));
  EXPECT_THAT(after({1, 2, 50, 1, 2, 60, 7, 1, 2}, 1), ElementsAre(60));
}

TEST(NgramDrafter, PastTheEndItGoesOnFromTheDraft) {
  EXPECT_THAT(after({5, 6, 5, 6, 5, 6}, 5), ElementsAre(5, 6, 5, 6, 5));
  EXPECT_THAT(after({3, 3, 3}, 4), ElementsAre(3, 3, 3, 3));
}

TEST(NgramDrafter, EvidenceIsTheLengthOfWhatWasThereBefore) {
  NgramDrafter drafter;
  std::vector<int32_t> evidence;
  for (const int32_t token : {1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 9}) {
    drafter.add({&token, 1});
    evidence.push_back(drafter.evidence());
  }
  EXPECT_THAT(evidence, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 4, 4, 0));
  EXPECT_LT(4, kMostEvidence);
}

/// By going through the whole text.
std::vector<int32_t> searched(std::span<const int32_t> text, int32_t n) {
  const auto size = static_cast<int32_t>(text.size());
  for (int32_t length = std::min(NgramDrafter::kLongest, size); length >= NgramDrafter::kShortest;
       --length) {
    for (int32_t end = size - 1; end >= length; --end) {
      if (!std::ranges::equal(text.subspan(end - length, length), text.last(length))) continue;
      std::vector<int32_t> out;
      for (int32_t at = end; std::ssize(out) < n; ++at) {
        out.push_back(at < size ? text[at] : out[at - size]);
      }
      return out;
    }
  }
  return {};
}

TEST(NgramDrafter, FindsWhatASearchFinds) {
  std::mt19937 random(3);
  for (const int32_t n_words : {2, 5, 40}) {
    NgramDrafter drafter;
    std::vector<int32_t> text;
    for (int i = 0; i < 2000; ++i) {
      const std::vector<int32_t> more(random() % 3, static_cast<int32_t>(random() % n_words));
      text.insert(text.end(), more.begin(), more.end());
      drafter.add(more);
      ASSERT_EQ(*drafter.draft(6), searched(text, 6)) << i;
    }
  }
}

}  // namespace
}  // namespace weft::spec
