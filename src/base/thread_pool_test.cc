#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <fstream>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/test_pool.h"

namespace weft {
namespace {

using test::TestPool;

/// What workers spin with: as long on every machine as their waits are.
void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  asm volatile("");
#endif
}

class ThreadPoolTest : public ::testing::Test {
 protected:
  // A wake-up that is lost shows as a region that never ends.
  void SetUp() override { alarm(300); }
  void TearDown() override { alarm(0); }

  /// A region in which every worker has exactly one task: none ends before all have begun.
  template <class F>
  static void run_on_all(ThreadPool& pool, F fn) {
    std::barrier all_here(pool.size());
    pool.run(pool.size(), [&](int task, int worker) {
      all_here.arrive_and_wait();
      fn(task, worker);
    });
  }

  static std::vector<pid_t> thread_ids(ThreadPool& pool) {
    std::vector<pid_t> ids(static_cast<size_t>(pool.size()));
    run_on_all(pool, [&](int, int worker) {
      ids[static_cast<size_t>(worker)] = static_cast<pid_t>(::syscall(SYS_gettid));
    });
    return ids;
  }

  /// The thread's state as the kernel has it: 'R' running, 'S' sleeping, 0 when it has ended.
  static char state_of(pid_t thread) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string line;
    std::getline(file, line);
    const size_t name_end = line.rfind(") ");
    return name_end == std::string::npos ? '\0' : line[name_end + 2];
  }

  static void wait_until_asleep(const std::vector<pid_t>& threads) {
    for (size_t i = 1; i < threads.size(); ++i) {  // 0 is this one
      while (state_of(threads[i]) != 'S') sched_yield();
    }
  }
};

TEST_F(ThreadPoolTest, RunsEveryTaskOnce) {
  for (const int n_threads : {1, 2, 3, 8}) {
    TestPool test_pool(n_threads);
    ThreadPool& pool = test_pool;
    EXPECT_EQ(pool.size(), n_threads);
    for (const int n_tasks : {-1, 0, 1, 2, 3, 7, 8, 9, 64, 1000}) {
      const auto n = static_cast<size_t>(std::max(n_tasks, 0));
      std::vector<std::atomic<int>> calls(n);
      std::atomic<int> outside = 0;
      pool.run(n_tasks, [&](int task, int worker) {
        if (task < 0 || task >= n_tasks || worker < 0 || worker >= n_threads) {
          outside++;
        } else {
          calls[static_cast<size_t>(task)]++;
        }
      });
      EXPECT_EQ(outside.load(), 0) << n_tasks << " tasks, " << n_threads << " threads";
      for (size_t task = 0; task < n; ++task) {
        EXPECT_EQ(calls[task].load(), 1) << "task " << task << " of " << n;
      }
    }
  }
}

TEST_F(ThreadPoolTest, AllWorkersRunAtTheSameTimeEachAsItself) {
  for (const int n_threads : {1, 2, 5}) {
    TestPool pool(n_threads);
    std::vector<std::atomic<int>> calls(static_cast<size_t>(n_threads));
    run_on_all(pool, [&](int, int worker) { calls[static_cast<size_t>(worker)]++; });
    for (const auto& count : calls) EXPECT_EQ(count.load(), 1);
    const std::vector<pid_t> ids = thread_ids(pool);
    EXPECT_EQ(ids[0], static_cast<pid_t>(::syscall(SYS_gettid)));
    EXPECT_EQ(std::set<pid_t>(ids.begin(), ids.end()).size(), ids.size());
  }
}

TEST_F(ThreadPoolTest, EachWorkerBeginsWithItsShareAndHelpsWithTheOthers) {
  TestPool test_pool(3);
  ThreadPool& pool = test_pool;
  run_on_all(pool, [&](int task, int worker) { EXPECT_EQ(task, worker); });
  for (int slow = 0; slow < 30; ++slow) {
    std::atomic<int> others = 0;
    pool.run(30, [&](int task, int) {
      if (task != slow) others++;
      while (task == slow && others < 29) pause_cpu();  // ends if all of its share is done, too
    });
    EXPECT_EQ(others.load(), 29);
  }
}

// Without atomics in the tasks: ThreadSanitizer sees a hand-over that orders too little.
TEST_F(ThreadPoolTest, RegionsSeeWhatWasWrittenBefore) {
  TestPool test_pool(3);
  ThreadPool& pool = test_pool;
  std::vector<int> values(8, 0);
  int round = 0;
  for (; round < 1000; ++round) {
    pool.run(8, [&](int task, int) {
      // Another worker wrote the neighbour's value in the region before, the caller wrote `round`.
      const auto own = static_cast<size_t>(task);
      if (values[own] == round) values[own] = round + 1;
    });
    pool.run(4, [&](int task, int) {
      const auto pair = 2 * static_cast<size_t>(task);
      std::swap(values[pair], values[pair + 1]);
    });
    for (const int value : values) ASSERT_EQ(value, round + 1);
  }
}

TEST_F(ThreadPoolTest, IdleWorkersSleepAndAllWakeUp) {
  TestPool pool(4);
  const std::vector<pid_t> threads = thread_ids(pool);
  for (int round = 0; round < 20; ++round) {
    wait_until_asleep(threads);
    EXPECT_EQ(thread_ids(pool).size(), threads.size());  // ends only when every worker came
  }
}

// Regions after gaps of up to twice as long as a worker spins: it is met while it spins, while it
// goes to sleep and while it sleeps.
TEST_F(ThreadPoolTest, NoWakeUpIsLost) {
  TestPool test_pool(3);
  ThreadPool& pool = test_pool;
  std::atomic<int64_t> calls = 0;
  constexpr int kRounds = 20'000;
  for (int round = 0; round < kRounds; ++round) {
    pool.run(3, [&](int, int) { calls.fetch_add(1, std::memory_order_relaxed); });
    for (int i = (round * 7919) % 4000; i > 0; --i) pause_cpu();
  }
  EXPECT_EQ(calls.load(), 3 * kRounds);
}

TEST_F(ThreadPoolTest, StartsAndEndsAgainAndAgain) {
  for (int round = 0; round < 100; ++round) {
    TestPool unused(1 + round % 6);  // ends while its workers may not have begun
    TestPool used(1 + round % 5);
    std::atomic<int> calls = 0;
    used->run(7, [&](int, int) { calls++; });
    EXPECT_EQ(calls.load(), 7);
  }
  TestPool asleep(3);
  wait_until_asleep(thread_ids(asleep));  // and ends
}

TEST_F(ThreadPoolTest, EndedPoolsLeaveNoThread) {
  std::vector<pid_t> threads;
  {
    TestPool pool(4);
    threads = thread_ids(pool);
  }
  // join() returns when the kernel has cleared the thread's id, a moment before /proc forgets it.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (size_t i = 1; i < threads.size(); ++i) {
    while (state_of(threads[i]) != '\0' && std::chrono::steady_clock::now() < deadline)
      sched_yield();
    EXPECT_EQ(state_of(threads[i]), '\0');
  }
}

TEST_F(ThreadPoolTest, WhatATaskThrowsReachesTheCaller) {
  for (const int n_threads : {1, 4}) {
    TestPool test_pool(n_threads);
    ThreadPool& pool = test_pool;
    for (int thrower = 0; thrower < n_threads; ++thrower) {  // the caller's own thread, and others
      std::atomic<int> finished = 0;
      EXPECT_THROW(run_on_all(pool,
                              [&](int, int worker) {
                                if (worker == thrower) throw std::bad_alloc();
                                finished++;
                              }),
                   std::bad_alloc);
      EXPECT_EQ(finished.load(), n_threads - 1);  // who had begun has ended when it is thrown
      std::atomic<int> calls = 0;
      pool.run(100, [&](int, int) { calls++; });  // and the pool is as good as new
      EXPECT_EQ(calls.load(), 100);
    }
  }
}

TEST_F(ThreadPoolTest, AfterAThrowTasksThatHadNotBegunAreLeftOut) {
  constexpr int kTasks = 1'000'000;
  TestPool pool(3);
  std::atomic<bool> throws = false;
  std::atomic<int> calls = 0;
  EXPECT_THROW(pool->run(kTasks,
                         [&](int task, int) {
                           calls++;
                           if (task == 1) {
                             throws = true;
                             throw std::runtime_error("no");
                           }
                           while (!throws) sched_yield();
                           sched_yield();
                         }),
               std::runtime_error);
  EXPECT_LT(calls.load(), kTasks);
}

TEST_F(ThreadPoolTest, OfSeveralThrowsOneIsKept) {
  TestPool pool(4);
  try {
    run_on_all(pool, [&](int, int worker) { throw std::runtime_error(std::to_string(worker)); });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_TRUE(std::string("0123").find(error.what()) != std::string::npos) << error.what();
  }
  pool->run(4, [](int, int) {});  // nothing is left of the others
}

TEST_F(ThreadPoolTest, ARegionInsideARegionIsABug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const int n_threads : {1, 2}) {
    EXPECT_DEATH(
        {
          TestPool pool(n_threads);
          pool->run(2, [&](int, int) { pool->run(2, [](int, int) {}); });
        },
        "internal error");
  }
}

TEST_F(ThreadPoolTest, RefusesNumbersThatMakeNoSense) {
  for (const int n_threads : {-1, 0, kMaxThreads + 1, 1'000'000'000}) {
    const auto pool = ThreadPool::create(n_threads);
    ASSERT_FALSE(pool.is_ok());
    EXPECT_EQ(pool.status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), kMaxThreads);
}

}  // namespace
}  // namespace weft
