// The simulation at length: seed after seed, until the minutes are over or the seeds are through.
// Prints one line at the end, or what was found. Exit status 1: something was found; 2: usage;
// 130: stopped.
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>
#include <string_view>

#include "simulation/simulation.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kUsage =
    "simulation --minutes M [--from SEED] | --seeds A..B | --seed N [--actions 0,3,4]\n";

volatile std::sig_atomic_t stopped = 0;

extern "C" void stop(int signal) {
  stopped = 1;
  std::signal(signal, SIG_DFL);  // at once, the second time
}

struct Flags {
  double minutes = 0;
  uint64_t first = 0;
  uint64_t last = 0;
  bool is_one = false;
  std::vector<size_t> actions;
};

bool parse(std::string_view text, auto& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse_actions(std::string_view text, std::vector<size_t>& actions) {
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    if (!parse(text.substr(0, comma), actions.emplace_back())) return false;
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return true;
}

bool parse_flags(int argc, char** argv, Flags& flags) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::string_view value = argv[i + 1];
    bool ok = false;
    if (name == "--minutes") {
      ok = parse(value, flags.minutes);
      flags.last = std::numeric_limits<uint64_t>::max();
    } else if (name == "--from") {
      ok = parse(value, flags.first);
    } else if (name == "--seed") {
      ok = parse(value, flags.first);
      flags.last = flags.first;
      flags.is_one = true;
    } else if (name == "--seeds") {
      const size_t dots = value.find("..");
      ok = dots != std::string_view::npos && parse(value.substr(0, dots), flags.first) &&
           parse(value.substr(dots + 2), flags.last);
    } else if (name == "--actions") {
      ok = parse_actions(value, flags.actions);
    }
    if (!ok) return false;
  }
  return argc > 2 && argc % 2 == 1;
}

int run(weft::sim::Simulation& simulation, const Flags& flags) {
  const auto begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  uint64_t n_seeds = 0;
  for (uint64_t seed = flags.first; seed <= flags.last; ++seed) {
    if (flags.minutes > 0 && seconds() > 60 * flags.minutes) break;
    if (stopped != 0) return 130;
    auto finding = simulation.run(seed, flags.actions.empty() ? nullptr : &flags.actions);
    ++n_seeds;
    if (!finding) continue;
    if (!flags.is_one) finding = simulation.shrink(std::move(*finding));
    fmt::print("simulation: {}", describe(*finding));
    return 1;
  }
  const weft::sim::Totals& t = simulation.totals();
  fmt::print(
      "simulation: {} seeds, {} actions, {} kills, {} power cuts, {} failed calls, {} answers "
      "compared, {:.0f} s\n",
      n_seeds, t.actions, t.kills, t.power_cuts, t.failed_calls, t.answers, seconds());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  if (!parse_flags(argc, argv, flags)) {
    fmt::print(stderr, kUsage);
    return 2;
  }
  std::error_code error;
  std::string name = (std::filesystem::is_directory("/dev/shm", error)
                          ? std::filesystem::path("/dev/shm")
                          : std::filesystem::temp_directory_path(error)) /
                     "weft-simulation-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) {
    fmt::print(stderr, "{}: cannot make a folder\n", name);
    return 1;
  }
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, stop);
  int status = 1;
  const auto simulation = weft::sim::Simulation::create(name);
  if (simulation.is_ok()) {
    status = run(**simulation, flags);
  } else {
    fmt::print(stderr, "simulation: {}\n", simulation.status().message());
  }
  std::filesystem::remove_all(name, error);
  return status;
}
