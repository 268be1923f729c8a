// Power cuts at every moment of a program's run. A Recording runs programs with the recorder
// preloaded; check_every_cut replays what they did and asks, for each place in the log where the
// power could have gone and for several ways in which the disk could look then, whether the real
// code still finds what was promised. What the code finds is a set of facts; a fact is promised
// from the mark that follows the operation, and between two marks it may be as at the one or the
// other. Tests only; for one thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "recorder/replay.h"
#include "support/files.h"
#include "support/store_chunks.h"

namespace weft::test {

/// What is in a folder: "record/3" is "whole". What is not there has no fact. "error" is never
/// right: something is half, damaged or does not open.
using Facts = std::map<std::string, std::string>;
/// Opens what is below the root with the real code, which may change it, and uses it.
using Observe = std::function<Facts(const std::string& root)>;

constexpr const char* kError = "error";

class Recording {
 public:
  Recording();

  /// Empty at first, in memory where the system has that; what is recorded is below it.
  const std::string& root() const { return root_; }
  /// Beside the root, for what is not recorded.
  std::string path(const std::string& name) const { return dir_.path() + "/" + name; }
  const std::string& log() const { return log_; }

  /// Runs a program to its end; its exit status, or 1000 + the signal. What it says goes to
  /// path("output"). `kill_after`: it is killed after so many changes; 0: it is not.
  int run(std::vector<std::string> arguments, int kill_after = 0) const;
  /// The same without a recorder.
  int run_unrecorded(std::vector<std::string> arguments) const;
  /// Replaces this process by the program, recorded.
  [[noreturn]] void become(std::vector<std::string> arguments, int kill_after = 0) const;

  /// From now on everything is promised that is found in the root. The facts given must be among
  /// it, those with an empty value must not.
  void mark(const std::string& label, const Facts& facts = {}) const;

 private:
  int run_child(const std::function<void()>& become) const;
  [[noreturn]] void execute(std::vector<std::string> arguments) const;

  test::MemoryTempDir dir_;
  std::string root_;
  std::string log_;
};

/// The same for a workload inside a recorded process, which says it at the moment of the promise.
void mark_in_workload(const std::string& label, const Facts& facts = {});

/// A mark, and what was found then.
struct Step {
  size_t frame = 0;  // of the mark in the log
  std::string label;
  Facts facts;
};

struct CutOptions {
  /// Only right after each mark, where the log is a long one whose changes are known from others.
  bool only_at_marks = false;
  /// Each operation is one change: all facts are as before it, or all as after it.
  bool all_at_once = false;
  /// Called for about so many cuts on what was synced and no more, after `observe`'s turn, on a
  /// fresh copy.
  int samples = 0;
  std::function<void(const std::string& root)> on_sample;
};

/// Also fails where the log does not explain what is really in the root. Labels that begin with
/// "evicts" are operations that may drop records, durably or not: those need not stay away.
std::vector<Step> check_every_cut(const Recording& recording, const Observe& observe,
                                  const CutOptions& options = {});

}  // namespace weft::test
