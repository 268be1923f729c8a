// A file that shrinks, or whose disk fails, while it is mapped makes reads raise SIGBUS. While a
// MappedGuard lives, such a read inside its range gives a kept terminal mode back
// (base/terminal_mode.h), prints one line that names the file and ends the process with status 1.
// At any other SIGBUS the previous handler is put back, for good. The handler is installed when the
// first guard is made. Thread-safe.
#pragma once

#include <cstddef>
#include <string_view>

namespace weft {

class MappedGuard {
 public:
  /// `path` is what the line names; its first 1000 bytes are kept, made harmless where stderr is a
  /// terminal.
  MappedGuard(const void* address, size_t size_bytes, std::string_view path);
  ~MappedGuard();
  MappedGuard(const MappedGuard&) = delete;
  MappedGuard& operator=(const MappedGuard&) = delete;

 private:
  struct Range* range_;
};

}  // namespace weft
