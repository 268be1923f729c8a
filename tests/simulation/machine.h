// A simulated computer for processes that share a store: one disk, one clock and one supply of
// power, under the Env that each process is given (Process) and under SQLite (sim_vfs.h). It counts
// the calls that could change something and ends a process, the power or a single call at the one
// that the test chose. It works on real files, never waits, and knows nothing of what they mean.
#pragma once

#include <signal.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "simulation/database_disk.h"
#include "support/fault_env.h"

namespace weft::sim {

class Process;

/// What a process is to suffer, at its changing call number `at`, counted from when it is armed.
struct Fault {
  enum Kind {
    kNone,
    kKill,      // kill -9: what it wrote stays, it makes no call more, its locks are free
    kPowerCut,  // of the machine: all processes end, and Machine::restart says what is left
    kFailCall,  // this call fails as a device does, others do not
    kFullCall,  // this call fails as a full disk does
  };
  Kind kind = kNone;
  uint64_t at = 0;
};

/// Thread-safe, but restart().
class Machine {
 public:
  explicit Machine(uint64_t seed);

  test::FaultEnv& disk() { return disk_; }
  DatabaseDisk& database_disk() { return database_disk_; }

  bool has_power() const { return has_power_; }
  void cut_power() { has_power_ = false; }
  /// After a power cut: drops what was not durable, and the power is on again. Processes from
  /// before must have been ended. Its errors are the test's own disk's.
  Status restart(test::Survives survives, uint64_t seed);

  /// From now on syncs do nothing and say that they did: what a simulation must notice.
  void let_syncs_lie() { syncs_lie_ = true; }
  bool syncs_lie() const { return syncs_lie_; }

  /// Nanoseconds since the Unix epoch, as the clock is set; each look is a little later.
  int64_t now_ns();
  int64_t monotonic_ns();
  void jump_clock_ms(int64_t by_ms) { clock_offset_ms_ += by_ms; }
  /// What the kernel does by itself: the folder of a changed name gets the machine's time.
  void stamp_folder_of(const std::string& path);
  void stamp(const std::string& path);

  /// Bytes that SQLite's files may still grow by; nothing: no limit.
  void limit_disk(std::optional<uint64_t> free_bytes);
  bool take_disk(uint64_t bytes);

  uint64_t calls() const { return calls_; }

  /// Two threads run in turns, from one call of a process to another; `seed` says where they
  /// change. Everything else is refused while this lives.
  class Turns;

 private:
  friend class Process;

  test::FaultEnv disk_;
  DatabaseDisk database_disk_;
  std::atomic<bool> has_power_ = true;
  std::atomic<bool> syncs_lie_ = false;
  std::atomic<int64_t> clock_offset_ms_ = 0;
  std::atomic<int64_t> ticks_ = 0;
  std::atomic<uint64_t> calls_ = 0;
  std::mutex mutex_;
  std::optional<uint64_t> free_bytes_;
  Turns* turns_ = nullptr;
};

/// Takes turns between the threads 0 and 1. A thread holds the turn from begin() to end(), but for
/// the calls of switch_point() and wait_point(). Threads that never began (a pipeline's reader) are
/// let through.
class Machine::Turns {
 public:
  Turns(Machine& machine, uint64_t seed);
  ~Turns();
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  void begin(int thread);
  void end();
  /// Perhaps the other's turn now.
  void switch_point();
  /// This thread waits for something: the other's turn for a while, if it still runs.
  void wait_point();

 private:
  void hand_over(std::unique_lock<std::mutex>& lock);

  Machine& machine_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937_64 random_;
  int turn_ = 0;
  int running_ = 2;
  bool ended_[2] = {false, false};
  uint64_t quantum_ = 0;  // switch points until the next change
};

/// One process: its view of the machine as an Env. It is killed by its fault or by kill(); from
/// then on each call fails. Its objects (stores, indexes) must be destroyed before it is.
class Process : public Env {
 public:
  explicit Process(Machine& machine) : machine_(machine) {}

  Machine& machine() { return machine_; }
  bool is_alive() const { return is_alive_ && machine_.has_power(); }
  void kill() { is_alive_ = false; }
  /// Replaces the fault that was armed before.
  void arm(Fault fault);
  void disarm() { arm({}); }
  /// What it sees is a file system that may only be read.
  void make_read_only() { is_read_only_ = true; }
  bool is_read_only() const { return is_read_only_; }
  /// Until it changes something itself its syncs of folders do nothing: looking makes nothing
  /// durable.
  void make_observer() { is_observer_ = true; }
  void note_own_change() { is_observer_ = false; }
  bool is_observer() const { return is_observer_; }
  /// Whether the armed fault has come about.
  bool has_failed() const { return has_failed_; }
  /// Calls that could change something.
  uint64_t changes() const { return changes_; }

  /// A call that changes nothing: an error where this process makes no calls any longer.
  Status look(const std::string& path);
  /// A call that could change something. `torn`: set where the call is the one at which the process
  /// or the power ends, and half of it may still be done.
  Status change(const std::string& path, bool* torn = nullptr);
  /// This process waits for something that another one holds.
  void wait();

  using Env::create;
  using Env::list;
  using Env::make_dirs;
  using Env::open_read;
  Result<std::unique_ptr<ReadFile>> open_read(const std::string& path, Links links) override;
  Result<std::unique_ptr<WriteFile>> create(const std::string& path,
                                            CreateOptions options) override;
  Result<std::unique_ptr<MappedFile>> map(const std::string& path) override;
  bool exists(const std::string& path) override;
  Result<DirEntry> stat(const std::string& path) override;
  Result<DirEntry> stat_link(const std::string& path) override;
  Result<std::string> resolve(const std::string& path) override;
  Result<std::vector<DirEntry>> list(const std::string& dir, BrokenLinks broken) override;
  Status make_dirs(const std::string& dir, std::optional<uint32_t> mode) override;
  Result<std::string> make_temporary_dir(const std::string& prefix) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status rename_to_new(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status set_mode(const std::string& path, uint32_t mode) override;
  Status set_modified(const std::string& path, int64_t modified_ns) override;
  Status sync_dir(const std::string& dir) override;
  Status drop_page_cache(const std::string& path) override;
  Result<uint64_t> free_bytes(const std::string& dir) override;
  Result<std::unique_ptr<FileLock>> lock(const std::string& path, bool exclusive,
                                         const LockWait& wait) override;
  int64_t monotonic_ns() override { return machine_.monotonic_ns(); }
  int64_t core_wait_ns() override { return 0; }
  int64_t unix_ms() override { return machine_.now_ns() / 1'000'000; }

 private:
  class SimReadFile;
  class SimWriteFile;

  Machine& machine_;
  std::atomic<bool> is_alive_ = true;
  std::atomic<bool> is_read_only_ = false;
  std::atomic<bool> is_observer_ = false;
  std::atomic<bool> has_failed_ = false;
  std::atomic<uint64_t> changes_ = 0;
  std::mutex mutex_;
  Fault fault_;
  uint64_t fault_call_ = 0;  // value of changes_ at which fault_ comes about
};

}  // namespace weft::sim
