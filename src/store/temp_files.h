// Names for unfinished files, and the sweeping up of those that dead processes left. A writer owns
// a numbered slot for as long as it holds the slot's lock file; the system releases the lock when
// the process dies, however it dies. So a slot that can be locked has no writer, and its files are
// leftovers. Never touches a file of a living writer.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/env.h"
#include "base/status.h"

namespace weft::store {

class TempFiles {
 public:
  /// Creates `dir`, private, when missing (kInvalidArgument where it is a link), takes a free slot,
  /// removes what dead writers left.
  static Result<std::unique_ptr<TempFiles>> open(Env& env, const std::string& dir);

  /// A path that no one else uses and that cannot be guessed. Thread-safe.
  std::string next_path();

 private:
  TempFiles(std::string prefix, std::unique_ptr<FileLock> lock)
      : prefix_(std::move(prefix)), lock_(std::move(lock)) {}

  const std::string prefix_;  // dir/<slot>.<16 hex digits>.
  const std::unique_ptr<FileLock> lock_;
  std::atomic<uint64_t> counter_{0};
};

/// How many hold a slot in such a folder: as many as have the store open to write, this process
/// included.
Result<int> count_writers(Env& env, const std::string& dir);

}  // namespace weft::store
