// Some seeds of the simulation of ingest, ask, delete, evict, crash, clock jumps and a second
// process (simulation/, make soak), and that it does find faults.
#include "simulation/simulation.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>

#include "support/test_model.h"

namespace weft::sim {
namespace {

constexpr uint64_t kSeeds = 40;

std::unique_ptr<Simulation> make(const test::TempDir& dir) {
  auto simulation = Simulation::create(dir.path());
  EXPECT_TRUE(simulation.is_ok()) << simulation.status().message();
  return simulation.is_ok() ? std::move(simulation).value() : nullptr;
}

TEST(Simulation, NothingPromisedIsLostAndNothingDeletedComesBack) {
  const test::TempDir dir;
  const auto simulation = make(dir);
  ASSERT_NE(simulation, nullptr);
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto finding = simulation->run(seed);
    ASSERT_FALSE(finding) << describe(simulation->shrink(*finding));
  }
  const Totals& totals = simulation->totals();
  EXPECT_GT(totals.kills, 0u);
  EXPECT_GT(totals.power_cuts, kSeeds);
  EXPECT_GT(totals.failed_calls, 0u);
  EXPECT_GT(totals.answers, kSeeds);
}

// Found by `make soak`: a store's limit ends an ingest between a changed document, whose old record
// goes, and a new document with the old text, whose record does not fit any more. Nothing that a
// stored document needs is lost by it.
TEST(Simulation, AnOldTextThatIsNewElsewhereMayWaitForRoom) {
  const test::TempDir dir;
  const auto simulation = make(dir);
  ASSERT_NE(simulation, nullptr);
  const std::vector<size_t> actions = {0, 1, 5, 9, 10, 11, 12};
  const auto finding = simulation->run(1795902997116, &actions);
  EXPECT_FALSE(finding) << describe(*finding);
}

TEST(Simulation, ADiskThatLiesIsNoticedAndToldInFewActions) {
  const test::TempDir dir;
  const auto simulation = make(dir);
  ASSERT_NE(simulation, nullptr);
  simulation->let_syncs_lie();
  std::optional<Finding> finding;
  for (uint64_t seed = 0; seed < 10 && !finding; ++seed) finding = simulation->run(seed);
  ASSERT_TRUE(finding);
  const Finding shortest = simulation->shrink(*finding);
  EXPECT_LE(shortest.actions.size(), 3u) << describe(shortest);
  const auto again = simulation->run(shortest.seed, &shortest.actions);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->actions, shortest.actions);
}

}  // namespace
}  // namespace weft::sim
