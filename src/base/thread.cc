#include "base/thread.h"

#include <fmt/format.h>
#include <pthread.h>

#include <system_error>

namespace weft {

/// pthreads instead of std::thread: the latter reports a refused thread by an exception that looks
/// like any other system_error, and terminates the process when it is dropped unjoined.
struct Thread::Running {
  std::function<void()> body;
  pthread_t id{};
};

Result<Thread> Thread::start(std::string_view what_for, std::function<void()> body) {
  auto running = std::make_unique<Running>(Running{std::move(body), {}});
  pthread_attr_t attributes;
  ::pthread_attr_init(&attributes);
  ::pthread_attr_setstacksize(&attributes, kStackBytes);
  const int error = ::pthread_create(
      &running->id, &attributes,
      [](void* self) -> void* {
        static_cast<Running*>(self)->body();
        return nullptr;
      },
      running.get());
  ::pthread_attr_destroy(&attributes);
  if (error != 0) {
    return resource_exhausted(fmt::format(
        "{}: the machine refuses another thread ({}); take fewer (-t), or raise the limit of "
        "processes (ulimit -u) or of memory (ulimit -v)",
        what_for, std::generic_category().message(error)));
  }
  return Thread(std::move(running));
}

Thread::Thread(std::unique_ptr<Running> running) : running_(std::move(running)) {}

Thread::~Thread() {
  if (running_ != nullptr) ::pthread_join(running_->id, nullptr);
}

Thread::Thread(Thread&& other) noexcept = default;

Thread& Thread::operator=(Thread&& other) noexcept {
  Thread ended(std::move(*this));
  running_ = std::move(other.running_);
  return *this;
}

}  // namespace weft
