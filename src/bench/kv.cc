// As an engine does it: a bounded step of giving memory back after each operation, whether there is
// something to do or not. Only those steps are timed, not the work between them.
#include "bench/kv.h"

#include <algorithm>
#include <ctime>
#include <vector>

namespace weft::bench {
namespace {

KvMoment moment_of(KvWork& work) {
  kv::Cache& cache = work.cache();
  KvMoment moment{.pages = kv::page_use(cache.snapshots()[cache.counted_group()]),
                  .sequences = work.n_sequences()};
  moment.used_bytes = moment.pages.used() * cache.page_bytes();
  moment.resident_bytes = cache.resident_bytes();
  return moment;
}

double thread_cpu_ms() {
  std::timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
}

/// Times steps and adds up what they did.
class TimedSteps {
 public:
  explicit TimedSteps(Env& env) : env_(env) {}

  kv::CompactionStep step(kv::Cache& cache) {
    const double begin_cpu_ms = thread_cpu_ms();
    const int64_t begin_ns = env_.monotonic_ns();
    const kv::CompactionStep done = cache.give_back_memory();
    ms_.push_back(env_.ms_since(begin_ns));
    sums_.cpu_ms_max = std::max(sums_.cpu_ms_max, thread_cpu_ms() - begin_cpu_ms);
    sums_.moved_pages += done.moved_pages;
    sums_.returned_pages += done.returned_pages;
    return done;
  }
  KvSteps result() {
    KvSteps steps = sums_;
    steps.steps = std::ssize(ms_);
    if (ms_.empty()) return steps;
    std::ranges::sort(ms_);
    const size_t at = 0.99 * (ms_.size() - 1) + 0.5;
    steps.ms_p99 = ms_[at];
    steps.ms_max = ms_.back();
    return steps;
  }

 private:
  Env& env_;
  std::vector<double> ms_;
  KvSteps sums_;
};

}  // namespace

Result<KvReport> bench_kv(Env& env, const KvOptions& options,
                          FunctionRef<bool(int64_t, int64_t)> progress) {
  WEFT_ASSIGN_OR_RETURN(KvWork work, KvWork::create(options.shape, options.seed));
  kv::Cache& cache = work.cache();
  KvReport report{.page_bytes = cache.page_bytes()};
  TimedSteps working(env), compacting(env);
  for (int64_t i = 0; i < options.operations; ++i) {
    WEFT_RETURN_IF_ERROR(work.step());
    working.step(cache);
    report.contents_equal &= work.looks_right();
    if (i % 1024 == 0 && !progress(i, options.operations)) return cancelled("stopped");
  }
  report.done = work.done();
  report.found_prefixes = work.n_found();
  report.without_pages = work.n_without_pages();
  report.working = working.result();
  report.worked = moment_of(work);
  work.free_half();
  report.contents_equal &= work.is_right();
  report.freed = moment_of(work);
  while (compacting.step(cache).goes_on) report.contents_equal &= work.looks_right();
  report.compacting = compacting.result();
  report.contents_equal &= work.is_right();
  report.compacted = moment_of(work);
  return report;
}

}  // namespace weft::bench
