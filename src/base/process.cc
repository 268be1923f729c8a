#include "base/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/thread.h"

namespace weft {

void open_standard_streams() {
  // In this order each takes the lowest free number, its own. Input is opened for writing only, and
  // output for reading only: using them fails.
  constexpr int kFlags[] = {O_WRONLY, O_RDONLY, O_RDWR};
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", kFlags[fd]);
  }
}

void ignore_file_size_signal() { ::signal(SIGXFSZ, SIG_IGN); }

Result<int> run_with_whole_stack(const std::function<int()>& body) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kStackBytes) return body();
  int status = 0;
  {
    WEFT_ASSIGN_OR_RETURN(
        const Thread thread,
        Thread::start("a stack of 8 MiB (ulimit -s is below that)", [&] { status = body(); }));
    // A signal must interrupt what works, not this thread, which waits.
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  }
  return status;
}

}  // namespace weft
