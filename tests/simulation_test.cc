// Some seeds of the simulation of ingest, ask, delete, evict, crash, clock jumps and a second
// process (simulation/, make soak), and that it does find faults.
#include "simulation/simulation.h"

#include <gtest/gtest.h>

#include "test_model.h"

namespace weft::sim {
namespace {

constexpr uint64_t kSeeds = 60;

TEST(Simulation, NothingPromisedIsLostAndNothingDeletedComesBack) {
  const test::TempDir dir;
  const auto simulation = Simulation::create(dir.path());
  ASSERT_TRUE(simulation.is_ok()) << simulation.status().message();
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto finding = (*simulation)->run(seed);
    ASSERT_FALSE(finding) << describe((*simulation)->shrink(*finding));
  }
  const Totals& totals = (*simulation)->totals();
  EXPECT_GT(totals.kills, 0u);
  EXPECT_GT(totals.power_cuts, kSeeds);
  EXPECT_GT(totals.failed_calls, 0u);
  EXPECT_GT(totals.answers, kSeeds);
}

}  // namespace
}  // namespace weft::sim
