// A fixed set of workers for the parallel regions of a forward pass: short, frequent, equal parts.
// Between regions a worker spins for a few microseconds and then sleeps, so that an idle engine
// takes no CPU. What a task computes must not depend on which worker runs it, nor on how many
// there are: that is what keeps tokens equal at any thread count.
//
// Each worker has a share of a region's tasks, task t is of worker t % size(), and helps others
// when it has done its own. So it seldom writes what another core reads, and what it has written
// for task t of one region is in its own cache when it gets task t of the next. A counter that all
// drew from went from core to core for each task, some 0.1 us.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "base/thread.h"

namespace weft {

/// Cores that this process may run on: 1 to kMaxThreads.
int usable_cores();

/// More than any machine's cores. Within it a thread too many is the machine's error, not a crash.
inline constexpr int kMaxThreads = 512;

class ThreadPool {
 public:
  /// n_threads counts the caller's own. kInvalidArgument outside 1 to kMaxThreads;
  /// kResourceExhausted when the machine refuses a thread: those started before it have ended then.
  static Result<std::unique_ptr<ThreadPool>> create(int n_threads);
  /// No region may be running.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls fn(task, worker) once for every task in [0, n_tasks), n_tasks < 2^32, worker in [0,
  /// size()): where all are equally fast that of worker task % size(), in ascending order; returns
  /// when all are done, and their writes are seen. The caller is worker 0. Not reentrant: one
  /// region at a time, from one thread at a time (checked). When a task throws (a machine out of
  /// memory), tasks that have not begun are left out, the others finish, and the first exception is
  /// thrown again here.
  void run(int64_t n_tasks, FunctionRef<void(int64_t task, int worker)> fn);

 private:
  ThreadPool() = default;
  void work(int worker);
  void take_tasks(int worker, uint32_t region);
  int64_t take(int owner, uint32_t region);
  void run_region(int64_t n_tasks, FunctionRef<void(int64_t, int)> fn);

  std::vector<Thread> workers_;
  const FunctionRef<void(int64_t, int)>* fn_ = nullptr;
  int64_t n_tasks_ = 0;
  /// Of one worker's share: the region, 32 bits, and how many of its tasks were taken in it. What
  /// is of another region counts as none, so that nobody resets it between two.
  struct alignas(64) Share {
    std::atomic<uint64_t> taken{0};
  };
  std::vector<Share> shares_;
  std::atomic<bool> has_thrown_{false};          // the region: no task of it begins any more
  alignas(64) std::atomic<uint32_t> region_{0};  // grows by one a region; workers wait for it
  alignas(64) std::atomic<int> busy_workers_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> running_{false};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::exception_ptr thrown_;  // the region's first; under mutex_ while the region runs
};

}  // namespace weft
