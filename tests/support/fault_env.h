// Env's fault-injecting twin: fails a chosen call, fills the disk, damages a read, cuts
// the power and then forgets what was not durable. It works on real files under a base Env and
// models what POSIX leaves open: data is durable after WriteFile::sync, names after sync_dir (so it
// never really syncs, which keeps tests quick).
// It knows nothing of what the files mean.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/env.h"

namespace weft::test {

/// What a power cut leaves of the writes and names that were not yet durable. Durable ones always
/// survive.
enum class Survives {
  kNothing,        // neither data nor names
  kNames,          // names, but files are cut to what was synced
  kNamesAndSizes,  // names and lengths, but unsynced bytes read as zero
  kSome,           // by the seed: a prefix of the names, each file one of the three
};

/// Thread-safe. Paths are absolute. Calls are counted from 0; file objects' calls count too.
class FaultEnv : public Env {
 public:
  explicit FaultEnv(Env& base) : base_(base) {}

  uint64_t calls() const;
  /// Call `index` fails with `code`, once; a write is cut short first.
  void fail_call(uint64_t index, StatusCode code = StatusCode::kIoError);
  /// Call `index` and all after it fail, until restart().
  void cut_power_at(uint64_t index);
  /// Drops what was not durable and turns the power on again; no fault is armed afterwards. Files
  /// and locks from before must be gone. Its own errors are the base Env's.
  Status restart(Survives survives, uint64_t seed = 0);
  /// From now on this many bytes fit (removed files give theirs back); a write beyond is cut short
  /// and fails as a full disk does.
  void limit_disk(std::optional<uint64_t> free_bytes);
  /// XORs `mask` into byte `offset` of `path` whenever that byte is read.
  void damage_reads(const std::string& path, uint64_t offset, std::byte mask);
  /// From now on unix_ms() is so much later, as when somebody sets the clock. The times that the
  /// file system gives by itself stay the base Env's.
  void jump_clock_ms(int64_t by_ms) { clock_offset_ms_ += by_ms; }

  using Env::create;
  using Env::list;
  using Env::make_dirs;
  using Env::open_read;

  Result<std::unique_ptr<ReadFile>> open_read(const std::string& path, Links links) override;
  Result<std::unique_ptr<WriteFile>> create(const std::string& path,
                                            CreateOptions options) override;
  Result<std::unique_ptr<MappedFile>> map(const std::string& path) override;
  bool exists(const std::string& path) override;
  Result<DirEntry> stat(const std::string& path) override;
  Result<DirEntry> stat_link(const std::string& path) override;
  Result<std::string> resolve(const std::string& path) override;
  Result<std::vector<DirEntry>> list(const std::string& dir, BrokenLinks broken) override;
  Status make_dirs(const std::string& dir, std::optional<uint32_t> mode) override;
  Result<std::string> make_temporary_dir(const std::string& prefix) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status rename_to_new(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Status set_mode(const std::string& path, uint32_t mode) override;
  Status set_modified(const std::string& path, int64_t modified_ns) override;
  Status sync_dir(const std::string& dir) override;
  Result<uint64_t> free_bytes(const std::string& dir) override;
  Result<std::unique_ptr<FileLock>> lock(const std::string& path, bool exclusive,
                                         const LockWait& wait) override;
  Status drop_page_cache(const std::string& path) override { return base_.drop_page_cache(path); }
  int64_t monotonic_ns() override { return base_.monotonic_ns(); }
  int64_t core_wait_ns() override { return base_.core_wait_ns(); }
  int64_t unix_ms() override { return base_.unix_ms() + clock_offset_ms_; }

 private:
  class FaultReadFile;
  class FaultWriteFile;
  struct Damage {
    uint64_t offset;
    std::byte mask;
  };
  struct Content {
    std::string bytes;
    uint32_t mode;
  };
  /// A change of names that sync_dir(dir) has not made durable, with what undoes it.
  struct NameChange {
    enum Kind { kMakeDir, kCreate, kRename, kRemove } kind;
    std::string path;                    // of the entry that changed; its folder is the one to sync
    std::string from;                    // kRename
    std::optional<Content> overwritten;  // kRename, kRemove: what was at `path`
  };

  Status count_call(const std::string& path);
  void note_rename(const std::string& from, const std::string& to,
                   std::optional<Content> overwritten);
  std::optional<Content> content(const std::string& path);
  Status write_content(const std::string& path, const Content& content);
  Status undo(const NameChange& change);
  Status drop_unsynced(const std::string& path, uint64_t synced_bytes, bool keep_size);

  Env& base_;
  std::atomic<int64_t> clock_offset_ms_ = 0;
  mutable std::mutex mutex_;
  uint64_t calls_ = 0;
  std::map<uint64_t, StatusCode> failing_calls_;
  std::optional<uint64_t> cut_at_;
  std::optional<uint64_t> free_bytes_;
  std::multimap<std::string, Damage> damages_;
  std::map<std::string, uint64_t> synced_bytes_;  // of files with unsynced bytes, by current path
  std::vector<NameChange> name_changes_;          // oldest first
};

}  // namespace weft::test
