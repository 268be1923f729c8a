// A ThreadPool whose threads a test or a benchmark takes for granted.
#pragma once

#include <memory>

#include "base/check.h"
#include "base/thread_pool.h"

namespace weft::test {

class TestPool {
 public:
  explicit TestPool(int n_threads) {
    auto pool = ThreadPool::create(n_threads);
    WEFT_CHECK(pool.is_ok());
    pool_ = *std::move(pool);
  }
  operator ThreadPool&() { return *pool_; }  // NOLINT(google-explicit-constructor)
  ThreadPool* operator->() { return pool_.get(); }

 private:
  std::unique_ptr<ThreadPool> pool_;
};

}  // namespace weft::test
