// A fixed set of workers for the parallel regions of a forward pass: short, frequent, equal parts.
// Between regions a worker spins for a few microseconds and then sleeps, so that an idle engine
// takes no CPU. What a task computes must not depend on which worker runs it, nor on how many
// there are: that is what keeps tokens equal at any thread count.
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

  /// Calls fn(task, worker) once for every task in [0, n_tasks), in no particular order, worker in
  /// [0, size()); returns when all are done, and their writes are seen. The caller is worker 0. Not
  /// reentrant: one region at a time, from one thread at a time (checked). When a task throws (a
  /// machine out of memory), tasks that have not begun are left out, the others finish, and the
  /// first exception is thrown again here.
  void run(int64_t n_tasks, FunctionRef<void(int64_t task, int worker)> fn);

 private:
  ThreadPool() = default;
  void work(int worker);
  void take_tasks(int worker);
  void run_region(int64_t n_tasks, FunctionRef<void(int64_t, int)> fn);

  std::vector<Thread> workers_;
  const FunctionRef<void(int64_t, int)>* fn_ = nullptr;
  int64_t n_tasks_ = 0;
  alignas(64) std::atomic<int64_t> next_task_{0};
  alignas(64) std::atomic<uint64_t> region_{0};  // grows by one a region; workers wait for it
  alignas(64) std::atomic<int> busy_workers_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> running_{false};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::exception_ptr thrown_;  // the region's first; under mutex_ while the region runs
};

}  // namespace weft
