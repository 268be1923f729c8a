#include "base/thread_pool.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace weft {
namespace {

// Some 50 us on current cores: longer than the gap between two regions of a layer, short enough
// that a waiting engine does not hold a core.
constexpr int kSpins = 2000;

void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::clamp(CPU_COUNT(&set), 1, kMaxThreads);
}

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(int n_threads) {
  if (n_threads < 1 || n_threads > kMaxThreads) {
    return invalid_argument(fmt::format("{} threads: must be 1 to {}", n_threads, kMaxThreads));
  }
  std::unique_ptr<ThreadPool> pool(new ThreadPool);
  pool->workers_.reserve(n_threads - 1);
  pool->shares_ = std::vector<Share>(n_threads);
  for (int worker = 1; worker < n_threads; ++worker) {
    WEFT_ASSIGN_OR_RETURN(Thread thread,
                          Thread::start(fmt::format("thread {} of {}", worker + 1, n_threads),
                                        [self = pool.get(), worker] { self->work(worker); }));
    pool->workers_.push_back(std::move(thread));
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex_);
    stop_.store(true);
    region_.fetch_add(1);
  }
  wake_.notify_all();
  workers_.clear();  // joins, while what they use still lives
}

void ThreadPool::run(int64_t n_tasks, FunctionRef<void(int64_t, int)> fn) {
  if (n_tasks <= 0) return;
  WEFT_CHECK(n_tasks <= UINT32_MAX);
  WEFT_CHECK(!running_.exchange(true, std::memory_order_acquire));
  struct Ended {
    std::atomic<bool>& running;
    ~Ended() { running.store(false, std::memory_order_release); }
  } const ended{running_};
  if (n_tasks == 1 || workers_.empty()) {
    for (int64_t task = 0; task < n_tasks; ++task) fn(task, 0);
    return;
  }
  run_region(n_tasks, fn);
  if (thrown_ != nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

/// The caller takes tasks, too, and then spins until the workers are done: tasks are short and
/// about equal, so that is soon.
void ThreadPool::run_region(int64_t n_tasks, FunctionRef<void(int64_t, int)> fn) {
  fn_ = &fn;
  n_tasks_ = n_tasks;
  has_thrown_.store(false, std::memory_order_relaxed);
  busy_workers_.store(size() - 1, std::memory_order_relaxed);
  const uint32_t region = region_.fetch_add(1) + 1;
  if (sleepers_.load() > 0) {
    { std::lock_guard lock(mutex_); }  // a worker between its check and its wait sees the region
    wake_.notify_all();
  }
  take_tasks(0, region);
  for (int spins = 0; busy_workers_.load(std::memory_order_acquire) > 0; ++spins) {
    if (spins < kSpins) {
      pause_cpu();
    } else {
      std::this_thread::yield();  // the cores are shared with something else
    }
  }
}

/// The next task of a worker's share, -1 after the last.
int64_t ThreadPool::take(int owner, uint32_t region) {
  std::atomic<uint64_t>& taken = shares_[owner].taken;
  const uint64_t none = uint64_t{region} << 32;
  uint64_t seen = taken.load(std::memory_order_relaxed);
  for (;;) {
    const uint64_t now = seen >> 32 == region ? seen : none;
    const int64_t task = owner + static_cast<int64_t>(now - none) * size();
    if (task >= n_tasks_) return -1;
    if (taken.compare_exchange_weak(seen, now + 1, std::memory_order_relaxed)) return task;
  }
}

/// Its own share first, then what is left of the others': cores are not equally fast beside other
/// work.
void ThreadPool::take_tasks(int worker, uint32_t region) {
  try {
    for (int i = 0; i < size(); ++i) {
      const int owner = (worker + i) % size();
      for (int64_t task; (task = take(owner, region)) >= 0;) {
        if (has_thrown_.load(std::memory_order_relaxed)) return;
        (*fn_)(task, worker);
      }
    }
  } catch (...) {
    has_thrown_.store(true, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    if (thrown_ == nullptr) thrown_ = std::current_exception();
  }
}

void ThreadPool::work(int worker) {
  uint32_t seen = 0;
  for (;;) {
    for (int spins = 0; region_.load(std::memory_order_acquire) == seen && spins < kSpins;
         ++spins) {
      pause_cpu();
    }
    if (region_.load(std::memory_order_acquire) == seen) {
      std::unique_lock lock(mutex_);
      sleepers_.fetch_add(1);
      wake_.wait(lock, [&] { return region_.load() != seen; });
      sleepers_.fetch_sub(1);
    }
    if (stop_.load()) return;
    ++seen;
    take_tasks(worker, seen);
    busy_workers_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace weft
