// sequence_lives --minutes M [--from SEED]: lives, seed after seed, until the minutes are over.
// Prints one line at the end, or what was found. Exit status 1: something was found, or memory
// grew; 2: usage.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/parse_number.h"
#include "sequence_lives/sequence_lives.h"
#include "support/files.h"

namespace {

using Clock = std::chrono::steady_clock;

/// Of this process, in MB.
int64_t resident_mb() {
  std::ifstream status("/proc/self/statm");
  int64_t all = 0, resident = 0;
  status >> all >> resident;
  return resident * 4096 >> 20;
}

/// More than that beside what the first lives took is a leak.
constexpr int64_t kMostGrowthMb = 64;

}  // namespace

int main(int argc, char** argv) {
  double minutes = 0;
  uint64_t seed = 0;
  bool is_ok = argc % 2 == 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    is_ok = is_ok && (name == "--minutes" ? weft::parse_number(argv[i + 1], minutes)
                      : name == "--from"  ? weft::parse_number(argv[i + 1], seed)
                                          : false);
  }
  if (!is_ok || !(minutes > 0)) {
    fmt::print(stderr, "sequence_lives --minutes M [--from SEED]\n");
    return 2;
  }
  const weft::test::TempDir dir;
  const auto lives = weft::lives::SequenceLives::create(dir.path());
  if (!lives.is_ok()) {
    fmt::print(stderr, "sequence_lives: {}\n", lives.status().message());
    return 1;
  }
  const auto begin = Clock::now();
  int64_t n_seeds = 0, first_mb = 0;
  while (std::chrono::duration<double>(Clock::now() - begin).count() < 60 * minutes) {
    if (const auto found = (*lives)->run(seed++)) {
      fmt::print("sequence_lives: {}\n", *found);
      return 1;
    }
    if (++n_seeds == 40) first_mb = resident_mb();  // each setting was there
  }
  const weft::lives::Totals& t = (*lives)->totals();
  fmt::print(
      "sequence_lives: {} seeds, {} actions, {} sequences compared, {} of {} drafted tokens "
      "kept, {} locks, {} MB\n",
      n_seeds, t.actions, t.compared, t.accepted, t.drafted, t.locks, resident_mb());
  if (first_mb == 0 || resident_mb() < first_mb + kMostGrowthMb) return 0;
  fmt::print("sequence_lives: {} MB after 40 seeds, {} MB now\n", first_mb, resident_mb());
  return 1;
}
