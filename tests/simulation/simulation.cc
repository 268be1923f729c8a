#include "simulation/simulation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <numeric>

#include "base/log.h"

namespace weft::sim {
namespace {

// What is to be said when the program under test aborts.
char running[128];

extern "C" void say_what_ran(int signal) {
  for (const char* c = running; *c != '\0'; ++c) (void)!write(STDERR_FILENO, c, 1);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void add(const Totals& from, Totals& to) {
  to.actions += from.actions;
  to.operations += from.operations;
  to.kills += from.kills;
  to.power_cuts += from.power_cuts;
  to.failed_calls += from.failed_calls;
  to.answers += from.answers;
  to.checks += from.checks;
}

}  // namespace

std::string describe(const Finding& finding) {
  std::string text = fmt::format("seed {}: {}\n", finding.seed, finding.what);
  for (size_t i = 0; i < finding.told.size(); ++i) {
    text += fmt::format("  {:>3}  {}\n", finding.actions[i], finding.told[i]);
  }
  return text + fmt::format("again: simulation --seed {} --actions {}\n", finding.seed,
                            fmt::join(finding.actions, ","));
}

Result<std::unique_ptr<Simulation>> Simulation::create(const std::string& dir) {
  set_log_level(LogLevel::kQuiet);
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS}) std::signal(signal, say_what_ran);
  WEFT_ASSIGN_OR_RETURN(auto engines, Engines::create(dir));
  return std::unique_ptr<Simulation>(new Simulation(dir, std::move(engines)));
}

std::optional<Finding> Simulation::run(uint64_t seed, const std::vector<size_t>* only) {
  const std::string dir = join_path(dir_, fmt::format("world-{}", n_worlds_++));
  std::filesystem::create_directories(dir);
  std::optional<Finding> finding;
  {
    World world(*engines_, dir, seed);
    if (syncs_lie_) world.machine().let_syncs_lie();
    std::vector<size_t> numbers(world.actions().size());
    std::iota(numbers.begin(), numbers.end(), 0);
    if (only != nullptr) numbers = *only;
    Finding found{.seed = seed};
    Status status;
    for (const size_t i : numbers) {
      if (i >= world.actions().size()) continue;
      found.actions.push_back(i);
      found.told.push_back(describe(world.actions()[i]));
      std::snprintf(running, sizeof running, "simulation: aborted at seed %llu, action %zu\n",
                    static_cast<unsigned long long>(seed), i);
      status = world.perform(world.actions()[i]);
      if (!status.is_ok()) break;
    }
    if (status.is_ok()) status = world.finish();
    add(world.totals(), totals_);
    if (!status.is_ok()) {
      found.what = status.message();
      finding = std::move(found);
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(dir, ignored);
  return finding;
}

Finding Simulation::shrink(Finding finding) {
  const Totals before = totals_;
  for (size_t piece = finding.actions.size() / 2; piece > 0;) {
    bool is_shorter = false;
    for (size_t begin = 0; begin < finding.actions.size();) {
      std::vector<size_t> fewer = finding.actions;
      const auto from = fewer.begin() + static_cast<std::ptrdiff_t>(begin);
      fewer.erase(from, from + static_cast<std::ptrdiff_t>(std::min(piece, fewer.size() - begin)));
      if (auto again = run(finding.seed, &fewer)) {
        finding = std::move(*again);
        is_shorter = true;
      } else {
        begin += piece;
      }
    }
    if (!is_shorter || piece > finding.actions.size()) piece /= 2;
  }
  totals_ = before;
  return finding;
}

}  // namespace weft::sim
