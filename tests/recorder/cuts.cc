#include "recorder/cuts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <sstream>

#include "base/check.h"

namespace weft::test {
namespace {

constexpr int kMaxFailures = 5;  // of one recording: the first ones tell
constexpr const char* kEvicts = "evicts";

/// A way in which the disk could look.
struct Outlook {
  const char* name;
  Survival survival;
  bool random = false;  // another one at every cut
};
using Names = Survival::Names;
using Bytes = Survival::Bytes;
constexpr Outlook kOutlooks[] = {
    {"what was synced and no more", {Names::kSynced, Bytes::kSynced}},
    {"everything, as after kill -9", {Names::kAll, Bytes::kAll}},
    {"all names, no bytes that were not synced", {Names::kAll, Bytes::kSynced}},
    {"all names, zeros for what was not synced", {Names::kAll, Bytes::kZeros}},
    {"some names, some bytes", {Names::kSome, Bytes::kAnything}, true},
    {"some names, some bytes (2)", {Names::kSome, Bytes::kAnything}, true},
};

std::string mark_text(const std::string& label, const Facts& facts) {
  std::string text = label + "\n";
  for (const auto& [name, value] : facts) text += fmt::format("{}={}\n", name, value);
  return text;
}

/// A tree as real files, for as long as this lives.
class Scratch {
 public:
  explicit Scratch(const Tree& tree) { write_tree(tree, dir_.path()); }
  const std::string& path() const { return dir_.path(); }

 private:
  test::MemoryTempDir dir_;
};

std::string value_of(const Facts& facts, const std::string& name) {
  const auto it = facts.find(name);
  return it == facts.end() ? "" : it->second;
}

class Checker {
 public:
  Checker(const Recording& recording, const Observe& observe, const CutOptions& options)
      : recording_(recording),
        observe_(observe),
        options_(options),
        frames_(read_log(recording.log())) {}

  std::vector<Step> run() {
    find_steps();
    if (::testing::Test::HasFailure()) return steps_;
    Disk disk(recording_.root());
    size_t n_marks = 0;
    for (size_t cut = 0; cut <= frames_.size() && n_failures_ < kMaxFailures; ++cut) {
      const bool after_mark = cut > 0 && frames_[cut - 1].event == Event::kMark;
      n_marks += after_mark;
      if (after_mark || !options_.only_at_marks) check_cut(disk, cut, n_marks);
      if (cut < frames_.size()) (void)disk.apply(frames_[cut]);
    }
    return steps_;
  }

 private:
  /// Replays once, finds what there is at each mark, and compares the end with the real folder.
  void find_steps() {
    Disk disk(recording_.root());
    for (size_t i = 0; i < frames_.size(); ++i) {
      const Frame& frame = frames_[i];
      const std::string wrong = disk.apply(frame);
      ASSERT_EQ(wrong, "") << "frame " << i << ": " << describe(frame, recording_.root())
                           << "; was the file made past the recorder?";
      if (frame.event == Event::kMark) add_step(i, frame.data, disk.now());
    }
    EXPECT_FALSE(steps_.empty()) << "nothing was promised";
    EXPECT_EQ(difference(disk.now(), read_tree(recording_.root())), "")
        << "between the replay and the real folder: something changed it past the recorder";
  }

  void add_step(size_t frame, const std::string& text, const Tree& tree) {
    std::istringstream lines(text);
    Step step{frame, {}, {}};
    std::getline(lines, step.label);
    step.facts = observe_(Scratch(tree).path());
    for (std::string line; std::getline(lines, line);) {
      const size_t equals = line.find('=');
      EXPECT_EQ(value_of(step.facts, line.substr(0, equals)), line.substr(equals + 1))
          << line.substr(0, equals) << ", promised by '" << step.label << "'";
    }
    EXPECT_EQ(value_of(step.facts, kError), "") << "after '" << step.label << "'";
    steps_.push_back(std::move(step));
  }

  void check_cut(const Disk& disk, size_t cut, size_t n_marks) {
    for (size_t i = 0; i < std::size(kOutlooks); ++i) {
      Survival survival = kOutlooks[i].survival;
      if (kOutlooks[i].random) survival.seed = cut * std::size(kOutlooks) + i + 1;
      const Tree tree = disk.after_power_cut(survival);
      // The same files are another case after another promise.
      if (seen_.emplace(n_marks, hash_of(tree)).second) {
        check_state(tree, cut, n_marks, kOutlooks[i].name);
      }
      const size_t stride = frames_.size() / static_cast<size_t>(options_.samples + 1) + 1;
      if (i == 0 && options_.samples > 0 && cut % stride == stride - 1) {
        SCOPED_TRACE(place(cut, n_marks, kOutlooks[i].name));
        options_.on_sample(Scratch(tree).path());
      }
    }
  }

  std::string place(size_t cut, size_t n_marks, const char* outlook) const {
    return fmt::format("power cut after change {} of {} ({}), after '{}'; on the disk: {}", cut,
                       frames_.size(),
                       cut == 0 ? "none" : describe(frames_[cut - 1], recording_.root()),
                       n_marks == 0 ? "the beginning" : steps_[n_marks - 1].label, outlook);
  }

  void check_state(const Tree& tree, size_t cut, size_t n_marks, const char* outlook) {
    const Facts found = observe_(Scratch(tree).path());
    const Facts before = n_marks == 0 ? Facts() : steps_[n_marks - 1].facts;
    // Right after a mark the next operation has not begun.
    const bool under_way = cut > 0 && frames_[cut - 1].event != Event::kMark;
    const Facts& after = under_way && n_marks < steps_.size() ? steps_[n_marks].facts : before;
    std::set<std::string> names;
    for (const Facts* facts : {&found, &before, &after}) {
      for (const auto& [name, value] : *facts) names.insert(name);
    }
    for (const std::string& name : names) {
      const std::string value = value_of(found, name);
      if (value == value_of(before, name) || value == value_of(after, name)) continue;
      if (n_marks > 0 && may_be_back(n_marks - 1, name, value)) continue;
      const std::string old_value = value_of(before, name);
      const std::string new_value = value_of(after, name);
      ADD_FAILURE() << place(cut, n_marks, outlook) << ":\n  " << name << " is '" << value
                    << "', promised was '" << old_value << "'"
                    << (new_value == old_value ? "" : " or '" + new_value + "'");
      if (++n_failures_ >= kMaxFailures) return;
    }
    if (!options_.all_at_once || n_failures_ > 0 || found == before || found == after) return;
    ++n_failures_;
    ADD_FAILURE() << place(cut, n_marks, outlook) << ": only a part of the operation is there";
  }

  /// Whether the operation of that step may have dropped the record, which nobody has to sync.
  bool may_be_back(size_t step, const std::string& name, const std::string& value) const {
    return step > 0 && steps_[step].label.starts_with(kEvicts) && name.starts_with("record/") &&
           value == value_of(steps_[step - 1].facts, name);
  }

  const Recording& recording_;
  const Observe& observe_;
  const CutOptions& options_;
  const std::vector<Frame> frames_;
  std::vector<Step> steps_;
  std::set<std::pair<size_t, Hash128>> seen_;
  int n_failures_ = 0;
};

}  // namespace

Recording::Recording()
    : root_(std::filesystem::canonical(dir_.path()).string() + "/root"), log_(path("log")) {
  WEFT_CHECK(::mkdir(root_.c_str(), 0700) == 0);
  test::write_text(log_, "");
}

int Recording::run_child(const std::function<void()>& become) const {
  const pid_t child = ::fork();
  WEFT_CHECK(child >= 0);
  if (child == 0) {
    const int input = ::open("/dev/null", O_RDONLY);
    const int output = ::open(path("output").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(input, STDIN_FILENO);
    ::dup2(output, STDOUT_FILENO);
    ::dup2(output, STDERR_FILENO);
    become();
  }
  int status = 0;
  WEFT_CHECK(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

int Recording::run(std::vector<std::string> arguments, int kill_after) const {
  return run_child([&] { become(std::move(arguments), kill_after); });
}

int Recording::run_unrecorded(std::vector<std::string> arguments) const {
  return run_child([&] { execute(std::move(arguments)); });
}

void Recording::become(std::vector<std::string> arguments, int kill_after) const {
  ::setenv("WEFT_RECORD_ROOT", root_.c_str(), 1);
  ::setenv("WEFT_RECORD_LOG", log_.c_str(), 1);
  if (kill_after > 0) ::setenv("WEFT_RECORD_KILL_AFTER", std::to_string(kill_after).c_str(), 1);
  // The recorder is loaded before the sanitizer's own library, which would refuse to go on.
  const char* set = std::getenv("ASAN_OPTIONS");
  const std::string asan = std::string(set == nullptr ? "" : set) + ":verify_asan_link_order=0";
  ::setenv("ASAN_OPTIONS", asan.c_str(), 1);
  ::setenv("LD_PRELOAD", WEFT_RECORDER, 1);
  execute(std::move(arguments));
}

void Recording::execute(std::vector<std::string> arguments) const {
  // What weft keeps beside its stores goes where nothing is recorded.
  for (const char* name : {"XDG_CACHE_HOME", "XDG_STATE_HOME", "WEFT_MODELS"}) {
    ::setenv(name, dir_.path().c_str(), 1);
  }
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

void Recording::mark(const std::string& label, const Facts& facts) const {
  append_mark(log_, mark_text(label, facts));
}

void mark_in_workload(const std::string& label, const Facts& facts) {
  const char* log = std::getenv("WEFT_RECORD_LOG");
  WEFT_CHECK(log != nullptr);
  append_mark(log, mark_text(label, facts));
}

std::vector<Step> check_every_cut(const Recording& recording, const Observe& observe,
                                  const CutOptions& options) {
  return Checker(recording, observe, options).run();
}

}  // namespace weft::test
