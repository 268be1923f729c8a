// Time as a fuzzer's oracle: what comes from outside is worked through in 2 s of CPU time for each
// MB begun, or it is refused by then. It never looks at the wall clock, so that a busy machine
// fails nothing.
//
//   extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
//     const weft::fuzz::TimeLimit limit(size);
//     …
//
// A scope that takes longer is aborted where it is, not when it ends: libFuzzer keeps the input,
// and the stack shows the loop. The bar is that of an ordinary -O2 build. ASan, UBSan and
// libFuzzer's counters together make code slower by a factor that depends on it
// (template_time_fuzz: 5 to 17), so there the bar is twenty times higher: what is quadratic is off
// by hundreds, and still noticed, if the input is large enough. A fuzzer's inputs seldom are. A
// fuzzer whose format can repeat a piece should repeat it (template_case.h does), so that a small
// input says a large one.
#pragma once

#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <ctime>

namespace weft::fuzz {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kTimesSlower = 20;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
constexpr int kTimesSlower = 20;
#else
constexpr int kTimesSlower = 1;
#endif
#else
constexpr int kTimesSlower = 1;
#endif

/// Aborts the process, with a line on stderr, when the thread that made it has used more than 2 s
/// of CPU time for each MB begun of `n_bytes` while it lives. To be destroyed on the same thread;
/// what other threads use does not count. Takes SIGRTMIN.
class TimeLimit {
 public:
  explicit TimeLimit(size_t n_bytes) {
    struct sigaction action = {};
    action.sa_handler = on_expiry;
    sigevent event = {};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGRTMIN;
    itimerspec limit = {};
    limit.it_value.tv_sec = static_cast<time_t>((n_bytes >> 20) + 1) * 2 * kTimesSlower;
    if (sigaction(SIGRTMIN, &action, nullptr) != 0 ||
        timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer_) != 0 ||
        timer_settime(timer_, 0, &limit, nullptr) != 0) {
      std::abort();  // an oracle that does not work would pass everything
    }
  }
  ~TimeLimit() { timer_delete(timer_); }
  TimeLimit(const TimeLimit&) = delete;
  TimeLimit& operator=(const TimeLimit&) = delete;

 private:
  static void on_expiry(int) {
    static constexpr char kLine[] =
        "TimeLimit: this input takes more than 2 s of CPU time a MB (twenty times that under a "
        "sanitizer)\n";
    [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, kLine, sizeof kLine - 1);
    std::abort();
  }

  timer_t timer_{};
};

}  // namespace weft::fuzz
