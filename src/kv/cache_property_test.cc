// A million random operations on a cache (support/cache_simulation.h): what it promises of sharing,
// copies, reservations, positions, tenants and compaction holds after each of them.
#include <gtest/gtest.h>

#include <random>

#include "support/cache_simulation.h"

namespace weft::kv {
namespace {

// 20 seeds of 50,000 operations, the seed in the test's name.
class CacheProperty : public ::testing::TestWithParam<uint32_t> {};

TEST_P(CacheProperty, AgreesWithTheNaiveModel) {
  test::CacheSimulation simulation(
      [random = std::mt19937(GetParam())]() mutable { return random(); },
      10 + narrow<int32_t>(GetParam() % 5) * 6);
  for (int step = 0; step < 50'000; ++step) {
    ASSERT_TRUE(simulation.step()) << "step " << step << ": " << simulation.error();
  }
  simulation.finish();
  EXPECT_EQ(simulation.error(), "");
  // The walk went where it should: each of these was done many times.
  for (const char* what :
       {"attached", "grew", "grew together", "wait", "shrink", "give up", "removed", "shifted",
        "divided", "overwritten", "restored", "moved", "moved beside a reservation", "returned"}) {
    EXPECT_GT(simulation.did[what], 20) << what;
  }
  EXPECT_GT(simulation.did["no page to move to"], 0);
  EXPECT_GT(simulation.did["went for others"], 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, CacheProperty, ::testing::Range(1u, 21u));

}  // namespace
}  // namespace weft::kv
