// The one seam to the operating system: files, folders, mappings, locks and clocks. Everything that
// weft reads or writes goes through an Env, so that a fault-injecting twin
// (tests/support/fault_env.h, tests) can drop unsynced writes, fail any call and fill the disk.
// Every error names the path. Thread-safe; the file objects are for one thread unless said
// otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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

/// Permission bits as chmod has them: the owner alone, and nobody else whatever the umask.
constexpr uint32_t kPrivateFileMode = 0600;
constexpr uint32_t kPrivateDirMode = 0700;

struct DirEntry {
  std::string name;
  bool is_directory = false;
  bool is_regular = false;  // a file of bytes: no folder, device, pipe or socket
  bool is_link = false;     // the name is a symbolic link; the other fields say where it leads
  uint64_t n_names = 1;     // hard links: by another one it may be anybody's file
  uint32_t mode = 0;        // permission bits
  uint64_t size_bytes = 0;
  int64_t modified_ns = 0;  // since the Unix epoch
};

struct CreateOptions {
  /// Exactly these permission bits; nothing: 0644, less the umask. A file that is there already
  /// keeps its own.
  std::optional<uint32_t> mode;
  /// kAlreadyExists when anything has the name, a dangling link too. What is temporary is created
  /// so: nobody can have laid a link or a pipe there.
  bool exclusive = false;
};

/// How long to wait for a lock that somebody else holds. No wait is for ever.
struct LockWait {
  int64_t limit_ms = 0;             // 0: not at all
  std::function<bool()> cancelled;  // asked often while waiting; true ends it (Ctrl-C)
};

inline const LockWait kUsualLockWait{.limit_ms = 20'000, .cancelled = {}};

/// Whether a symbolic link at the end of a path is followed or refused (kInvalidArgument).
enum class Links { kFollow, kRefuse };

/// Whether a folder's list has the symbolic links that lead nowhere.
enum class BrokenLinks { kLeaveOut, kList };

class Env {
 public:
  virtual ~Env() = default;

  /// kInvalidArgument when it is no regular file; never waits for a pipe's other end.
  virtual Result<std::unique_ptr<ReadFile>> open_read(const std::string& path, Links links) = 0;
  Result<std::unique_ptr<ReadFile>> open_read(const std::string& path) {
    return open_read(path, Links::kFollow);
  }
  /// Creates, or truncates the regular file that is there; kInvalidArgument for anything else,
  /// links too. Never waits for a pipe's other end. A file that a user names is written by
  /// base/atomic_file.h alone, which loses nothing of what was there.
  virtual Result<std::unique_ptr<WriteFile>> create(const std::string& path,
                                                    CreateOptions options) = 0;
  Result<std::unique_ptr<WriteFile>> create(const std::string& path) { return create(path, {}); }
  virtual Result<std::unique_ptr<MappedFile>> map(const std::string& path) = 0;

  virtual bool exists(const std::string& path) = 0;
  /// Of a link, where it leads; `is_link` is not set.
  virtual Result<DirEntry> stat(const std::string& path) = 0;
  /// Of a link, the link itself (`is_link`).
  virtual Result<DirEntry> stat_link(const std::string& path) = 0;
  /// The path of the same file or folder without any link in it.
  virtual Result<std::string> resolve(const std::string& path) = 0;
  /// The folder's entries sorted by name, without "." and "..". A link that leads nowhere, if it is
  /// asked for, is neither a folder nor regular.
  virtual Result<std::vector<DirEntry>> list(const std::string& dir, BrokenLinks broken) = 0;
  Result<std::vector<DirEntry>> list(const std::string& dir) {
    return list(dir, BrokenLinks::kLeaveOut);
  }
  /// Makes the missing folders of the path; with a `mode` the last one, if it is made here, has
  /// exactly these permission bits.
  virtual Status make_dirs(const std::string& dir, std::optional<uint32_t> mode) = 0;
  Status make_dirs(const std::string& dir) { return make_dirs(dir, std::nullopt); }
  /// A new private folder whose name begins with `prefix` and cannot be guessed; its path.
  virtual Result<std::string> make_temporary_dir(const std::string& prefix) = 0;
  /// Atomically replaces `to`.
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  /// kAlreadyExists when anything has the name `to`.
  virtual Status rename_to_new(const std::string& from, const std::string& to) = 0;
  virtual Status remove(const std::string& path) = 0;
  virtual Status set_mode(const std::string& path, uint32_t mode) = 0;
  /// Sets a file's or folder's time of modification (nanoseconds since the Unix epoch).
  virtual Status set_modified(const std::string& path, int64_t modified_ns) = 0;
  /// Makes creations, renames and removals in `dir` durable.
  virtual Status sync_dir(const std::string& dir) = 0;
  /// Drops what the system caches of the file, so that the next read comes from the device.
  virtual Status drop_page_cache(const std::string& path) = 0;
  virtual Result<uint64_t> free_bytes(const std::string& dir) = 0;
  /// Locks `path`, a file for nothing else, created when missing and then private; one that is
  /// there is neither written nor changed. kInvalidArgument when it is a link or no regular file.
  /// Where another holds it after the wait: kResourceExhausted, or kCancelled when `cancelled` said
  /// so, with a line that names the process where the system tells.
  virtual Result<std::unique_ptr<FileLock>> lock(const std::string& path, bool exclusive,
                                                 const LockWait& wait) = 0;

  virtual int64_t monotonic_ns() = 0;
  /// How long this process's living threads have waited for a core that others held, in sum; 0
  /// where the system does not tell.
  virtual int64_t core_wait_ns() = 0;
  virtual int64_t unix_ms() = 0;
  /// Since monotonic_ns() gave begin_ns.
  double ms_since(int64_t begin_ns) { return (monotonic_ns() - begin_ns) * 1e-6; }
};

/// The process's own operating system.
Env& posix_env();

/// The whole file; a file larger than `limit_bytes` is kResourceExhausted.
Result<std::string> read_file(Env& env, const std::string& path, uint64_t limit_bytes,
                              Links links = Links::kFollow);

/// 16 hexadecimal digits that nobody can guess, for names of temporary files.
std::string unguessable_hex();

/// `a/b`, whether or not `a` ends with a slash.
std::string join_path(const std::string& a, const std::string& b);

}  // namespace weft
