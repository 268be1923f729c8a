#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace weft {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (const int n_threads : {1, 2, 5}) {
    ThreadPool pool(n_threads);
    for (const int n_tasks : {0, 1, 2, 3, 64, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<size_t>(n_tasks));
      pool.run(n_tasks, [&](int task, int worker) {
        EXPECT_LT(worker, pool.size());
        calls[static_cast<size_t>(task)]++;
      });
      for (const auto& count : calls) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadPool, ManyShortRegionsSeeEachOthersWrites) {
  ThreadPool pool(3);
  std::vector<int> values(8, 0);
  for (int region = 0; region < 2000; ++region) {
    pool.run(8, [&](int task, int) { values[static_cast<size_t>(task)] += 1; });
  }
  for (const int value : values) EXPECT_EQ(value, 2000);
}

}  // namespace
}  // namespace weft
