// The chunk store's inside, shared by chunk_store.cc (finding, putting, the two tiers) and
// chunk_store_folder.cc (the folder: changes, room, listing, properties). Not for other rooms.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "store/chunk_store.h"
#include "store/properties.h"
#include "store/record_index.h"
#include "store/temp_files.h"

namespace weft::store {

constexpr int64_t kUnknownTime = -1;
/// 60 s. A time of use that is at most this far in the future may come from another machine's clock
/// and is left as it is. A later one comes from a wrong clock and is set to now.
constexpr int64_t kClockSlackNs = 60'000'000'000;

/// 20 ms. The times that the kernel itself gives files advance only with its timer tick: 10 ms at
/// 100 Hz, the slowest in use. Two changes within one tick can leave the same time.
constexpr int64_t kCoarseTickNs = 20'000'000;

constexpr const char* kPropertiesFile = "properties";
constexpr const char* kLockFile = "store.lock";
constexpr const char* kTempFolder = "tmp";
/// This property says that a store's files were made private once. If their modes are wider now,
/// the owner wanted that, and they are left alone.
constexpr const char* kModesProperty = "modes";
constexpr const char* kModesPrivate = "private";

// Locks, outermost first: the folder's (across processes, taken to change the folder), then mutex_
// (the index and the counters). Records are read and written under neither, but for the one that
// remove_damaged() reads.
class ChunkStore::Impl {
 public:
  Impl(Env& env, StoreOptions options, std::unique_ptr<TempFiles> temp_files)
      : env_(env), options_(std::move(options)), temp_files_(std::move(temp_files)) {}

  Result<Handle> find(const Key& key);
  Status put(const Key& key, uint32_t n_tokens, std::span<const std::span<const std::byte>> layers,
             PutOptions options);
  bool contains(const Key& key);
  Result<std::vector<RecordSummary>> ls();
  Result<StoreStats> stat();
  Result<VerifyReport> verify(FunctionRef<bool(uint64_t, uint64_t)> progress);
  Status remove(const Hash128& hash, Durable durable);
  Result<bool> remove_damaged(const Hash128& hash);
  Status sync() { return env_.sync_dir(options_.dir); }
  Status clear();
  Result<Properties> read_properties();
  /// Reads, changes and durably rewrites the properties; a store without the file gets one.
  Status edit_properties(FunctionRef<void(Properties&)> edit);
  /// Sets kModesProperty, so that later openings leave the files' modes alone.
  Status note_private();
  const std::string& dir() const { return options_.dir; }
  bool is_read_only() const { return options_.read_only; }

  /// Lists the folder again if other processes changed it since this one last did.
  Status refresh();
  /// Removes a bad record, its file and its copy in memory, with a warning, and counts it.
  void discard(const Hash128& hash, const Status& why);
  void reject(const Key& key, std::string_view why) {
    discard(key.hash, corrupt(fmt::format("{}: {}", path_of(key.hash), why)));
  }
  /// Memory for a handle to load a record into; null where the tier has no room for it.
  std::shared_ptr<MemoryCopy> begin_copy(const RecordHead& head);
  /// A handle's finished copy moves from the reserved bytes into the memory tier.
  void keep(const IndexPin& entry, std::shared_ptr<const MemoryCopy> copy);
  void release_reserved(uint64_t bytes);

 private:
  class FolderChange;

  std::string path_of(const Hash128& hash) const {
    return join_path(options_.dir, record_file_name(hash));
  }
  /// Makes the record the most recently used one.
  void use(const Hash128& hash);
  /// Null when the record is not in memory.
  std::unique_ptr<Handle::State> find_in_memory(const Key& key);
  Result<Handle> make_disk_handle(const Key& key, std::unique_ptr<ReadFile> file, RecordHead head);
  /// kInvalidArgument when the store is read-only; `what` was to be done.
  Status check_writable(const char* what) const;
  Status write_temp(const std::string& path, std::span<const std::byte> head,
                    std::span<const std::span<const std::byte>> layers);
  /// Ok when a record is there that need not be put again: of this shape, or of another identity
  /// with the same hash. kNotFound when none is; kCorrupt or kUnsupported for one to be replaced.
  Status judge_record(const Key& key, const RecordInfo& info);
  /// Whether a record's file is there; kInvalidArgument where something else has its name.
  Result<bool> has_file(const std::string& path);
  Status verify_record(const std::string& name, uint64_t& bytes);
  /// StoreOptions::type_of of the record in the file; "" without one.
  Result<std::string> type_of(const std::string& path, std::span<const std::byte> identity,
                              const RecordInfo& info) const;

  // With mutex_ held.
  int64_t now_ns();
  int64_t next_time_ns();
  /// Sets all times of use that are too far in the future to now: the clock was wrong when they
  /// were taken, or is wrong now. Otherwise those records would never be evicted.
  void settle_times();
  int64_t folder_time_ns();
  /// A time of modification that the folder never had before; `last_ns` is the one that it has.
  int64_t new_stamp_ns(int64_t last_ns);
  /// Lists the folder and brings the index in step with it.
  Status rescan();
  /// Forgets the folder's time if it is so recent that another change in the same tick of the
  /// kernel would leave it as it is: the next refresh() then lists again.
  void distrust_recent_time();
  /// Inside a FolderChange. As PutOptions::evict says.
  Status make_room_on_disk(uint64_t bytes, bool evict);
  /// Evicts from the memory tier until `bytes` fit; false, with nothing evicted, where they cannot.
  bool reserve_memory(uint64_t bytes);
  void forget_file(const Hash128& hash);
  /// Counts a bad record and drops its copy in memory.
  void count_damaged(const Hash128& hash);
  /// Whether another process has used the record since its time was last read here. If so, the
  /// index gets the new time.
  bool was_used_since(const IndexPin& entry, const DirEntry& file);
  /// Inside a FolderChange. False when there was no such file (another process has removed it).
  Result<bool> remove_file(const Hash128& hash);

  Env& env_;
  const StoreOptions options_;
  const std::unique_ptr<TempFiles> temp_files_;  // null: read-only

  std::mutex mutex_;
  RecordIndex index_;
  uint64_t reserved_bytes_ = 0;  // of the memory tier, for copies that handles are filling
  int64_t last_time_ns_ = 0;     // the last that next_time_ns() gave; each is later than it
  std::mt19937_64 random_{std::random_device{}()};
  int64_t seen_folder_ns_ = kUnknownTime;  // the folder's time when the index was in step with it
  bool folder_times_exact_ = true;         // false: the file system rounds them, so list each time
  bool folder_changed_ = false;            // by the FolderChange that is in progress
  uint64_t memory_hits_ = 0, disk_hits_ = 0, misses_ = 0, damaged_ = 0;
  uint64_t memory_evictions_ = 0, disk_evictions_ = 0;
};

/// The folder's lock and mutex_, held to change the folder. Ends by stamping the folder's time of
/// modification with a value that never was there before, which is how other processes notice.
class ChunkStore::Impl::FolderChange {
 public:
  /// `refresh` brings the index in step with the folder first, where others changed it.
  static Result<FolderChange> begin(Impl& store, bool refresh) {
    WEFT_ASSIGN_OR_RETURN(auto file_lock,
                          store.env_.lock(join_path(store.options_.dir, kLockFile),
                                          /*exclusive=*/true,
                                          {.limit_ms = store.options_.lock_wait_s * 1000,
                                           .cancelled = store.options_.cancelled}));
    FolderChange change(store, std::move(file_lock));
    if (change.start_ns_ != store.seen_folder_ns_ || change.start_ns_ == kUnknownTime) {
      store.seen_folder_ns_ = kUnknownTime;
      if (refresh) {
        WEFT_RETURN_IF_ERROR(store.rescan());
        change.is_rescanned_ = true;
      }
    }
    return change;
  }
  FolderChange(FolderChange&&) noexcept = default;
  FolderChange& operator=(FolderChange&&) = delete;
  ~FolderChange() {
    if (!mutex_lock_.owns_lock()) return;
    if (!store_->folder_changed_) {
      if (is_rescanned_) store_->distrust_recent_time();
      return;
    }
    // Memory ran out halfway: the index may lack what the folder has.
    if (std::uncaught_exceptions() > exceptions_) store_->seen_folder_ns_ = kUnknownTime;
    try {
      stamp_folder();
    } catch (const std::bad_alloc&) {  // then the index is brought in step again next time
      store_->seen_folder_ns_ = kUnknownTime;
    }
    store_->folder_changed_ = false;
  }

 private:
  void stamp_folder() {
    const int64_t stamp = store_->new_stamp_ns(start_ns_);
    const bool in_step = store_->seen_folder_ns_ != kUnknownTime;
    (void)store_->env_.set_modified(store_->options_.dir, stamp);
    if (store_->folder_time_ns() != stamp) store_->folder_times_exact_ = false;
    store_->seen_folder_ns_ = in_step && store_->folder_times_exact_ ? stamp : kUnknownTime;
  }

  FolderChange(Impl& store, std::unique_ptr<FileLock> file_lock)
      : store_(&store),
        file_lock_(std::move(file_lock)),
        mutex_lock_(store.mutex_),
        start_ns_(store.folder_time_ns()) {}

  Impl* store_;
  std::unique_ptr<FileLock> file_lock_;
  std::unique_lock<std::mutex> mutex_lock_;
  int64_t start_ns_;
  int exceptions_ = std::uncaught_exceptions();
  bool is_rescanned_ = false;
};

}  // namespace weft::store
