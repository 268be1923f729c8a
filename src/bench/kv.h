// What the KV cache's pages take of the machine's memory under random work, and what of it comes
// back when half of the sequences are freed.
#pragma once

#include <array>
#include <cstdint>

#include "base/env.h"
#include "base/function_ref.h"
#include "base/status.h"
#include "bench/kv_work.h"
#include "kv/usage.h"

namespace weft::bench {

struct KvOptions {
  KvShape shape;
  int64_t operations = 1'000'000;
  uint64_t seed = 1;
};

/// The cache at one moment.
struct KvMoment {
  kv::PageUse pages;
  int64_t sequences = 0;
  int64_t used_bytes = 0;      // K and V of the used pages
  int64_t resident_bytes = 0;  // that the system has taken for all pages
};

/// Of giving memory back, once after each operation, or once a step after the last.
struct KvSteps {
  int64_t steps = 0;
  int64_t moved_pages = 0;
  int64_t returned_pages = 0;
  double ms_p99 = 0;
  double ms_max = 0;
  double cpu_ms_max = 0;  // without what the machine did for others meanwhile
};

struct KvReport {
  int64_t page_bytes = 0;
  std::array<int64_t, KvWork::kOperations.size()> done{};  // of each kind
  int64_t found_prefixes = 0;
  int64_t without_pages = 0;
  KvMoment worked;     // after all operations
  KvMoment freed;      // half of the sequences less
  KvMoment compacted;  // after the steps that follow
  KvSteps working;
  KvSteps compacting;
  /// Every byte of K and V that was looked at: one token after each operation, and all of them
  /// before and after the steps.
  bool contents_equal = true;
};

/// KvWork::create's errors; kCancelled where `progress` says no.
Result<KvReport> bench_kv(Env& env, const KvOptions& options,
                          FunctionRef<bool(int64_t done, int64_t total)> progress);

}  // namespace weft::bench
