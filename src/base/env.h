// The one seam to the operating system: files, folders, mappings, locks and clocks. Everything that
// weft reads or writes goes through an Env, so that a fault-injecting twin (base/fault_env.h,
// tests) can drop unsynced writes, fail any call and fill the disk. Every error names the path.
// Thread-safe; the file objects are for one thread unless said otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace weft {

/// A file opened for reading. read_at may be called from several threads at once.
class ReadFile {
 public:
  virtual ~ReadFile() = default;
  virtual uint64_t size_bytes() const = 0;
  /// Fills `out` from `offset`; a file that ends before is kCorrupt.
  virtual Status read_at(uint64_t offset, std::span<std::byte> out) const = 0;
};

/// A file being written, from its start. Nothing is durable before sync().
class WriteFile {
 public:
  virtual ~WriteFile() = default;
  virtual Status append(std::span<const std::byte> bytes) = 0;
  virtual Status sync() = 0;
  virtual Status close() = 0;
};

/// A read-only mapping of a whole file; the bytes live as long as this object.
class MappedFile {
 public:
  virtual ~MappedFile() = default;
  virtual std::span<const std::byte> bytes() const = 0;
};

/// An advisory lock on a file, held until destroyed.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

struct DirEntry {
  std::string name;
  bool is_directory = false;
  uint64_t size_bytes = 0;
  int64_t modified_ns = 0;  // since the Unix epoch
};

class Env {
 public:
  virtual ~Env() = default;

  virtual Result<std::unique_ptr<ReadFile>> open_read(const std::string& path) = 0;
  /// Creates or truncates.
  virtual Result<std::unique_ptr<WriteFile>> create(const std::string& path) = 0;
  virtual Result<std::unique_ptr<MappedFile>> map(const std::string& path) = 0;

  virtual bool exists(const std::string& path) = 0;
  virtual Result<DirEntry> stat(const std::string& path) = 0;
  /// The folder's entries sorted by name, without "." and "..".
  virtual Result<std::vector<DirEntry>> list(const std::string& dir) = 0;
  virtual Status make_dirs(const std::string& dir) = 0;
  /// Atomically replaces `to`.
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  virtual Status remove(const std::string& path) = 0;
  /// Sets a file's or folder's time of modification (nanoseconds since the Unix epoch).
  virtual Status set_modified(const std::string& path, int64_t modified_ns) = 0;
  /// Makes creations, renames and removals in `dir` durable.
  virtual Status sync_dir(const std::string& dir) = 0;
  /// Drops what the system caches of the file, so that the next read comes from the device.
  virtual Status drop_page_cache(const std::string& path) = 0;
  virtual Result<uint64_t> free_bytes(const std::string& dir) = 0;
  /// Locks `path` (created when missing); waits for the lock, or with `wait` false returns
  /// kResourceExhausted when somebody else holds it.
  virtual Result<std::unique_ptr<FileLock>> lock(const std::string& path, bool exclusive,
                                                 bool wait) = 0;

  virtual int64_t monotonic_ns() = 0;
  virtual int64_t unix_ms() = 0;
};

/// The process's own operating system.
Env& posix_env();

/// The whole file; a file larger than `limit_bytes` is kResourceExhausted.
Result<std::string> read_file(Env& env, const std::string& path, uint64_t limit_bytes);

/// `a/b`, whether or not `a` ends with a slash.
std::string join_path(const std::string& a, const std::string& b);

}  // namespace weft
