// A fixed set of workers for the parallel regions of a forward pass: short, frequent, equal parts.
// Between regions a worker spins for a few microseconds and then sleeps, so that an idle engine
// takes no CPU. What a task computes must not depend on which worker runs it, nor on how many
// there are: that is what keeps tokens equal at any thread count.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "base/function_ref.h"

namespace weft {

/// Cores that this process may run on: at least 1.
int usable_cores();

class ThreadPool {
 public:
  /// n_threads >= 1, the caller's own thread counted.
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls fn(task, worker) once for every task in [0, n_tasks), in no particular order, worker in
  /// [0, size()); returns when all are done. The caller is worker 0. Not reentrant: one region at
  /// a time, from one thread at a time; fn must not throw.
  void run(int n_tasks, FunctionRef<void(int task, int worker)> fn);

 private:
  void work(int worker);
  void take_tasks(int worker);

  std::vector<std::thread> workers_;
  const FunctionRef<void(int, int)>* fn_ = nullptr;
  int n_tasks_ = 0;
  alignas(64) std::atomic<int> next_task_{0};
  alignas(64) std::atomic<uint64_t> region_{0};  // grows by one a region; workers wait for it
  alignas(64) std::atomic<int> busy_workers_{0};
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace weft
