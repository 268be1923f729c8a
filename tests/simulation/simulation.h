// Runs of the simulation by seed: what happened, and of a run that found something the shortest
// list of actions that still finds it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "simulation/engines.h"
#include "simulation/world.h"

namespace weft::sim {

struct Finding {
  uint64_t seed = 0;
  std::string what;
  std::vector<size_t> actions;    // those that are needed for it
  std::vector<std::string> told;  // the same in words
};

/// For people, some lines.
std::string describe(const Finding& finding);

class Simulation {
 public:
  /// Its folders are made below `dir`, in memory where that is.
  static Result<std::unique_ptr<Simulation>> create(const std::string& dir);

  /// All of the seed's actions, or only those with the numbers in `only`; nothing: nothing found.
  std::optional<Finding> run(uint64_t seed, const std::vector<size_t>* only = nullptr);
  /// The same finding, or another, by fewer actions.
  Finding shrink(Finding finding);

  /// Of the worlds from now on (Machine::let_syncs_lie).
  void let_syncs_lie() { syncs_lie_ = true; }
  const Totals& totals() const { return totals_; }

 private:
  Simulation(std::string dir, std::unique_ptr<Engines> engines)
      : dir_(std::move(dir)), engines_(std::move(engines)) {}

  const std::string dir_;
  std::unique_ptr<Engines> engines_;
  bool syncs_lie_ = false;
  Totals totals_;
  uint64_t n_worlds_ = 0;
};

}  // namespace weft::sim
