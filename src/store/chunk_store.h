// The chunk store: a memory tier over a disk tier, for opaque records found by Key. It serves only
// bytes whose checksum was verified, survives kill -9 and power cuts with every completed record,
// and stays inside its byte limits. It never interprets a layer, never waits for another request,
// and never lets a damaged file fail one: that is a miss and a warning.
//
// Thread-safe. Several processes may share a folder, each through a ChunkStore of its own. What a
// process opens after fork() is its own; a ChunkStore is not to be used across fork().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/function_ref.h"
#include "base/status.h"
#include "store/aligned_bytes.h"
#include "store/record.h"

namespace weft::store {

enum class Tier { kMemory, kDisk };

struct StoreOptions {
  std::string dir;
  uint64_t memory_limit_bytes = 0;  // of the memory tier; 0 = no memory tier
  uint64_t disk_limit_bytes = 0;    // of all finished records on disk; 0 = no limit
  bool create = false;              // make the folder a store when it is none yet
  /// Nothing is created, written or locked: for folders that one may only read. Uses are not noted,
  /// damaged records are misses and stay; what would change the folder is kInvalidArgument.
  bool read_only = false;
  /// Names what the layers of a record hold, from its head ("f16"); an error where that says
  /// nothing known, and then the record is damaged. The store cannot tell; ls() and verify() ask.
  /// May be empty, and is called from the threads that call these.
  std::function<Result<std::string>(std::span<const std::byte> identity, const RecordInfo& info)>
      type_of;
  /// Whoever changes the folder waits for others that do so just then: at most so long, and until
  /// `cancelled` (asked often, from any thread) says true.
  int64_t lock_wait_s = 60;
  std::function<bool()> cancelled;
};

struct PutOptions {
  /// Over the disk limit: true evicts the least recently used records, false fails at once
  /// (ingest, which must not push out what it has just written).
  bool evict = true;
};

struct TierStats {
  uint64_t records = 0;
  uint64_t bytes = 0;
  uint64_t limit_bytes = 0;  // as in StoreOptions
  uint64_t hits = 0;         // since opening
  uint64_t evictions = 0;    // since opening
};

struct StoreStats {
  TierStats memory;
  TierStats disk;
  uint64_t misses = 0;   // since opening
  uint64_t damaged = 0;  // bad records met since opening; each was removed, if that was allowed
};

struct RecordSummary {
  Hash128 hash;
  uint64_t file_bytes = 0;
  int64_t last_use_unix_ms = 0;
  bool in_memory = false;
  Status status;     // not ok: the head is damaged, and `info` is empty
  RecordInfo info;   // shape, tokens, creation time
  std::string type;  // StoreOptions::type_of
};

struct VerifyReport {
  struct Bad {
    std::string file;
    Status status;
    /// The record itself is bad, or is a link, pipe or device. Else it could not be read (rights, a
    /// disk's error, no memory, an unknown version), and may be whole.
    bool is_damaged() const;
  };
  uint64_t records = 0;
  uint64_t bytes = 0;
  std::vector<Bad> bad;
};

class ChunkStore {
 public:
  /// A pinned record: it is neither evicted nor unmapped while this lives, and what load_layer
  /// returned from it stays valid. Movable; must not outlive its store.
  class Handle {
   public:
    Handle(Handle&&) noexcept;
    Handle& operator=(Handle&&) noexcept;
    ~Handle();

    /// Where find() found it.
    Tier tier() const;
    const RecordInfo& info() const;

    /// The verified bytes of one layer, layer_bytes long. Memory tier: the store's own, no copy.
    /// Disk: one read; into the memory tier's future copy where the record fits there (the record
    /// is kept once all its layers have been loaded), else into `scratch`, which grows as needed.
    /// The span lives as long as both this handle and the scratch, until the scratch's next use.
    /// kCorrupt: the layer is damaged; the record was removed and the chunk has to be planned as a
    /// miss. kIoError: the file could not be read. Thread-safe, also for the same layer, with a
    /// scratch per thread.
    Result<std::span<const std::byte>> load_layer(uint32_t layer, AlignedBytes& scratch);

   private:
    friend class ChunkStore;
    struct State;
    explicit Handle(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
  };

  /// Lists the folder, reads no record. kNotFound when the folder is no store and `create` is
  /// false. A folder made here is private (0700), as every file in it (0600), whatever the umask;
  /// docs/formats/chunk.md has what happens to one that was there. `env` must outlive the store.
  static Result<std::unique_ptr<ChunkStore>> open(Env& env, StoreOptions options);
  ~ChunkStore();

  /// kNotFound: a miss, also for a damaged, truncated, foreign or misnamed record, which is removed
  /// with a warning (of a read-only store: not removed). kIoError: the file could not be opened or
  /// read; kResourceExhausted: no memory or file descriptor is left. Treat both as a miss. A hit
  /// makes the record the most recently used one.
  Result<Handle> find(const Key& key);

  /// All that change the folder (put, remove, clear, set_property): kInvalidArgument when the store
  /// is read-only; kResourceExhausted or kCancelled when another process held the folder's lock for
  /// too long, as StoreOptions say.

  /// Stores a record durably; where one of that key and shape is there already, nothing happens
  /// (its layers are not looked at), and a bad one is replaced. Layers are layer 0..L-1, equally
  /// long. kResourceExhausted: the limit (naming it and what is used) or the disk is full; what was
  /// stored before stays usable, nothing half-written is left. kInvalidArgument: no layers, unequal
  /// ones, an oversized identity.
  Status put(const Key& key, uint32_t n_tokens, std::span<const std::span<const std::byte>> layers,
             PutOptions options = {});

  /// Whether a record of that hash is in the folder; its bytes are not looked at. A copy in memory
  /// alone does not count: it is gone with this process.
  bool contains(const Key& key);

  /// For a caller that cannot use what find() gave, `why` saying the reason (its KV has another
  /// shape than the model's, for example). The record is removed as a damaged one is, with a
  /// warning that names the file; in a read-only store it stays.
  void reject(const Key& key, std::string_view why);

  /// All records by last use, oldest first; reads each one's head.
  Result<std::vector<RecordSummary>> ls();
  Result<StoreStats> stat();
  /// Reads every record and checks every checksum; changes nothing. `progress` is called after
  /// each record; when it returns false the result is kCancelled.
  Result<VerifyReport> verify(FunctionRef<bool(uint64_t done, uint64_t total)> progress);
  /// kNotFound when there is no such record. Readers that hold it keep it. After ok and after
  /// kNotFound no power cut brings it back; with kAtSync that is so after the next sync().
  enum class Durable { kNow, kAtSync };
  Status remove(const Hash128& hash, Durable durable = Durable::kNow);
  /// Reads a record once more, while nobody can replace it, and removes it if it is damaged
  /// (VerifyReport::Bad); false where it is not, or is gone. No power cut brings it back after the
  /// next sync().
  Result<bool> remove_damaged(const Hash128& hash);
  Status sync();
  /// Removes all records; properties stay.
  Status clear();

  /// Small facts that belong to the folder (the anchor's kind and id): names of [a-z0-9_.-], values
  /// of any bytes, 64 KiB together. Durable when set_property returns. For tests: only stores of an
  /// older weft have any.
  Status set_property(const std::string& name, const std::string& value);
  /// kNotFound when it was never set.
  Result<std::string> property(const std::string& name);

  const std::string& dir() const;
  bool is_read_only() const;

 private:
  class Impl;
  explicit ChunkStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::store
