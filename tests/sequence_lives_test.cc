// Some seeds of the lives of sequences (sequence_lives/, make soak).
#include "sequence_lives/sequence_lives.h"

#include <gtest/gtest.h>

#include "support/files.h"

namespace weft::lives {
namespace {

TEST(SequenceLives, WhatASequenceIsFollowsFromItsOwnHistory) {
  const test::TempDir dir;
  const auto lives = SequenceLives::create(dir.path());
  ASSERT_TRUE(lives.is_ok()) << lives.status().message();
  for (uint64_t seed = 0; seed < 28; ++seed) {
    const auto found = (*lives)->run(seed);
    ASSERT_FALSE(found) << *found;
  }
  const Totals& totals = (*lives)->totals();
  EXPECT_GT(totals.compared, 28);
  EXPECT_GT(totals.drafted, totals.accepted);
  EXPECT_GT(totals.accepted, 100);
  EXPECT_GT(totals.locks, 100);
  EXPECT_GT(totals.dense_passes, 100);
  EXPECT_GT(totals.drafted_itself, 28);
}

}  // namespace
}  // namespace weft::lives
