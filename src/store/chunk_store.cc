#include "store/chunk_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <unordered_set>

#include "base/log.h"
#include "store/properties.h"
#include "store/record_index.h"
#include "store/temp_files.h"

namespace weft::store {
namespace {

constexpr const char* kPropertiesFile = "properties";
constexpr const char* kLockFile = "store.lock";
constexpr const char* kTempFolder = "tmp";
constexpr int64_t kUnknownTime = -1;

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

/// Creates `dir` and makes every newly made level durable in its parent.
Status make_dirs_durably(Env& env, const std::string& dir) {
  std::vector<std::string> parents;  // of the levels that are missing, deepest first
  std::filesystem::path level = std::filesystem::path(dir).lexically_normal();
  while (level.has_relative_path() && !env.exists(level.string())) {
    level = level.parent_path();
    parents.push_back(level.empty() ? "." : level.string());
  }
  WEFT_RETURN_IF_ERROR(env.make_dirs(dir));
  for (const std::string& parent : parents) WEFT_RETURN_IF_ERROR(env.sync_dir(parent));
  return Status::ok();
}

}  // namespace

const char* tier_name(Tier tier) { return tier == Tier::kMemory ? "memory" : "disk"; }

// Locks, outermost first: the folder's (across processes, taken to change the folder), then mutex_
// (the index and the counters). Records are read and written under neither.
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
  Status remove(const Hash128& hash);
  Status clear();
  Result<Properties> read_properties();
  /// A store without properties gets its file.
  Status edit_properties(FunctionRef<void(Properties&)> edit);
  const std::string& dir() const { return options_.dir; }

  /// Notices what other processes did since the last look.
  Status refresh();
  /// Takes a bad record's file away, with a warning, and counts it.
  void discard(const Hash128& hash, const Status& why);
  /// Memory for a handle to load a record into; null where the tier has no room for it.
  std::shared_ptr<MemoryCopy> begin_copy(const RecordHead& head);
  /// A handle's finished copy moves from the reserved bytes into the memory tier.
  void keep(const IndexPin& entry, std::shared_ptr<const MemoryCopy> copy);
  void release_reserved(uint64_t bytes);

 private:
  /// The folder's lock and mutex_, held to change the folder. Ends by stamping the folder's time of
  /// modification with a value that never was there before, which is how other processes notice.
  class FolderChange;

  std::string path_of(const Hash128& hash) const {
    return join_path(options_.dir, record_file_name(hash));
  }
  /// Makes the record the most recently used one.
  void use(const Hash128& hash);
  /// Null when the record is not in memory.
  std::unique_ptr<Handle::State> find_in_memory(const Key& key);
  Result<Handle> make_disk_handle(const Key& key, std::unique_ptr<ReadFile> file, RecordHead head);
  Status write_temp(const std::string& path, std::span<const std::byte> head,
                    std::span<const std::span<const std::byte>> layers);
  Status replace_file(const std::string& path, std::string_view text);
  Status verify_record(const std::string& name, uint64_t& bytes);

  // With mutex_ held.
  int64_t next_time_ns();
  int64_t folder_time_ns();
  Status rescan();
  Status make_room_on_disk(uint64_t bytes, bool evict);
  bool reserve_memory(uint64_t bytes);
  void forget_file(const Hash128& hash);
  /// Inside a FolderChange. False when there was no such file (another process was quicker).
  Result<bool> remove_file(const Hash128& hash);

  Env& env_;
  const StoreOptions options_;
  const std::unique_ptr<TempFiles> temp_files_;

  std::mutex mutex_;
  RecordIndex index_;
  uint64_t reserved_bytes_ = 0;  // of the memory tier, for copies that handles are filling
  int64_t last_time_ns_ = 0;
  int64_t seen_folder_ns_ = kUnknownTime;  // the folder's time when the index was in step with it
  bool folder_changed_ = false;            // by the FolderChange that is in progress
  uint64_t memory_hits_ = 0, disk_hits_ = 0, misses_ = 0, damaged_ = 0;
  uint64_t memory_evictions_ = 0, disk_evictions_ = 0;
};

// ---------------------------------------------------------------------------------------- Handle

struct ChunkStore::Handle::State {
  enum LayerState : uint8_t { kEmpty, kLoading, kLoaded };

  Impl* store;
  IndexPin entry;
  Tier tier;
  RecordInfo info;
  std::shared_ptr<const MemoryCopy> copy;  // memory tier

  // Disk tier.
  std::unique_ptr<ReadFile> file;
  std::string path;
  RecordHead head;
  std::once_flag filling_begun;         // by the first load: a find alone evicts nothing
  std::shared_ptr<MemoryCopy> filling;  // the coming memory copy; null where it does not fit
  std::vector<std::atomic<uint8_t>> layer_states;
  std::atomic<uint32_t> n_loaded{0};

  ~State() {
    if (filling && n_loaded < info.n_layers) store->release_reserved(filling->bytes.size());
  }

  Status read_into(uint32_t layer, std::span<std::byte> out) {
    const Status status = read_layer(*file, head, layer, out, path);
    if (status.code() == StatusCode::kCorrupt) store->discard(entry->hash, status);
    return status;
  }
};

ChunkStore::Handle::Handle(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChunkStore::Handle::Handle(Handle&&) noexcept = default;
ChunkStore::Handle& ChunkStore::Handle::operator=(Handle&&) noexcept = default;
ChunkStore::Handle::~Handle() = default;

Tier ChunkStore::Handle::tier() const { return state_->tier; }
const RecordInfo& ChunkStore::Handle::info() const { return state_->info; }

Result<std::span<const std::byte>> ChunkStore::Handle::load_layer(uint32_t layer,
                                                                  AlignedBytes& scratch) {
  State& s = *state_;
  WEFT_CHECK(layer < s.info.n_layers);
  if (s.copy) return s.copy->layer(layer);
  std::call_once(s.filling_begun, [&] {
    s.filling = s.store->begin_copy(s.head);
    if (s.filling) s.layer_states = std::vector<std::atomic<uint8_t>>(s.info.n_layers);
  });
  if (s.filling) {
    std::atomic<uint8_t>& layer_state = s.layer_states[layer];
    uint8_t found = State::kEmpty;
    if (layer_state.compare_exchange_strong(found, State::kLoading)) {
      const Status status = s.read_into(layer, s.filling->layer(layer));
      layer_state = status.is_ok() ? State::kLoaded : State::kEmpty;
      if (!status.is_ok()) return status;
      if (++s.n_loaded == s.info.n_layers) s.store->keep(s.entry, s.filling);
      found = State::kLoaded;
    }
    if (found == State::kLoaded) return std::as_const(*s.filling).layer(layer);
    // Another thread is reading this layer just now: read it here, too.
  }
  if (!scratch.reserve_discard(s.info.layer_bytes)) {
    return resource_exhausted(
        fmt::format("{}: no memory for a layer of {} bytes", s.path, s.info.layer_bytes));
  }
  const auto out = scratch.span().first(s.info.layer_bytes);
  WEFT_RETURN_IF_ERROR(s.read_into(layer, out));
  return std::span<const std::byte>(out);
}

// ----------------------------------------------------------------------------------- the folder

class ChunkStore::Impl::FolderChange {
 public:
  /// `refresh` brings the index in step with the folder first, where others changed it.
  static Result<FolderChange> begin(Impl& store, bool refresh) {
    WEFT_ASSIGN_OR_RETURN(auto file_lock,
                          store.env_.lock(join_path(store.options_.dir, kLockFile), true, true));
    FolderChange change(store, std::move(file_lock));
    if (change.start_ns_ != store.seen_folder_ns_ || change.start_ns_ == kUnknownTime) {
      store.seen_folder_ns_ = kUnknownTime;
      if (refresh) WEFT_RETURN_IF_ERROR(store.rescan());
    }
    return change;
  }
  FolderChange(FolderChange&&) noexcept = default;
  FolderChange& operator=(FolderChange&&) = delete;
  ~FolderChange() {
    if (!mutex_lock_.owns_lock() || !store_->folder_changed_) return;
    const int64_t stamp = std::max(store_->next_time_ns(), start_ns_ + 1);
    const bool in_step = store_->seen_folder_ns_ != kUnknownTime;
    const bool stamped = store_->env_.set_modified(store_->options_.dir, stamp).is_ok();
    store_->seen_folder_ns_ = in_step && stamped ? store_->folder_time_ns() : kUnknownTime;
    store_->folder_changed_ = false;
  }

 private:
  FolderChange(Impl& store, std::unique_ptr<FileLock> file_lock)
      : store_(&store),
        file_lock_(std::move(file_lock)),
        mutex_lock_(store.mutex_),
        start_ns_(store.folder_time_ns()) {}

  Impl* store_;
  std::unique_ptr<FileLock> file_lock_;
  std::unique_lock<std::mutex> mutex_lock_;
  int64_t start_ns_;
};

int64_t ChunkStore::Impl::next_time_ns() {
  last_time_ns_ = std::max(last_time_ns_ + 1, env_.unix_ms() * 1'000'000);
  return last_time_ns_;
}

int64_t ChunkStore::Impl::folder_time_ns() {
  const auto folder = env_.stat(options_.dir);
  return folder.is_ok() ? folder->modified_ns : kUnknownTime;
}

Status ChunkStore::Impl::refresh() {
  const std::lock_guard lock(mutex_);
  return folder_time_ns() == seen_folder_ns_ && seen_folder_ns_ != kUnknownTime ? Status::ok()
                                                                                : rescan();
}

Status ChunkStore::Impl::rescan() {
  const int64_t folder_ns = folder_time_ns();  // before listing: a later change is seen next time
  WEFT_ASSIGN_OR_RETURN(const auto files, env_.list(options_.dir));
  std::unordered_set<const IndexEntry*> present;
  for (const DirEntry& file : files) {
    const auto hash = parse_record_file_name(file.name);
    if (!hash || file.is_directory) continue;
    const IndexPin entry = index_.get(*hash);
    index_.set_last_use(entry, std::max(entry->last_use_ns, file.modified_ns));
    index_.set_file(entry, std::max<uint64_t>(file.size_bytes, 1));  // an empty file is one, too
    present.insert(entry.get());
  }
  for (const IndexPin& entry : index_.by_last_use()) {
    if (!present.contains(entry.get())) index_.set_file(entry, 0);
  }
  seen_folder_ns_ = folder_ns;
  return Status::ok();
}

void ChunkStore::Impl::forget_file(const Hash128& hash) {
  if (const IndexPin entry = index_.find(hash)) index_.set_file(entry, 0);
}

Result<bool> ChunkStore::Impl::remove_file(const Hash128& hash) {
  folder_changed_ = true;
  const Status removed = env_.remove(path_of(hash));
  if (!removed.is_ok() && removed.code() != StatusCode::kNotFound) return removed;
  forget_file(hash);
  return removed.is_ok();
}

Status ChunkStore::Impl::make_room_on_disk(uint64_t bytes, bool evict) {
  const uint64_t limit = options_.disk_limit_bytes;
  if (limit == 0) return Status::ok();
  while (true) {
    const uint64_t used = index_.disk().bytes;
    if (used + bytes <= limit) return Status::ok();
    const auto full = [&](const char* why) {
      return resource_exhausted(fmt::format(
          "{}: the store's disk limit is {} bytes, {} are used, a record needs {} more: "
          "{}",
          options_.dir, limit, used, bytes, why));
    };
    if (bytes > limit) return full("larger than the limit");
    if (!evict) return full("raise the limit or remove records");
    const auto victims = index_.disk_victims(used + bytes - limit);
    if (victims.empty()) return full("the records there are in use");
    for (const IndexPin& victim : victims) {
      const auto file = env_.stat(path_of(victim->hash));
      if (file.is_ok() && file->modified_ns > victim->last_use_ns) {  // used by another process
        index_.set_last_use(victim, file->modified_ns);
        continue;
      }
      WEFT_RETURN_IF_ERROR(remove_file(victim->hash).status());
      ++disk_evictions_;
    }
  }
}

void ChunkStore::Impl::discard(const Hash128& hash, const Status& why) {
  log_warning(why.message() + "; the record is removed and counts as missing");
  const auto change = FolderChange::begin(*this, /*refresh=*/false);
  if (!change.is_ok()) return log_warning(change.status().message());
  ++damaged_;
  const auto removed = remove_file(hash);
  if (!removed.is_ok()) log_warning(removed.status().message());
}

// -------------------------------------------------------------------------------- the memory tier

bool ChunkStore::Impl::reserve_memory(uint64_t bytes) {
  const uint64_t limit = options_.memory_limit_bytes;
  if (bytes > limit) return false;
  const uint64_t used = index_.memory().bytes + reserved_bytes_;
  if (used + bytes > limit) {
    const auto victims = index_.memory_victims(used + bytes - limit);
    if (victims.empty()) return false;
    for (const IndexPin& victim : victims) index_.set_copy(victim, nullptr);
    memory_evictions_ += victims.size();
  }
  reserved_bytes_ += bytes;
  return true;
}

std::shared_ptr<MemoryCopy> ChunkStore::Impl::begin_copy(const RecordHead& head) {
  const uint64_t bytes = head.info.n_layers * head.layer_stride;
  {
    const std::lock_guard lock(mutex_);
    if (!reserve_memory(bytes)) return nullptr;
  }
  auto copy = std::make_shared<MemoryCopy>(
      MemoryCopy{head.info, head.identity, AlignedBytes(bytes), head.layer_stride});
  if (copy->bytes.size() == bytes) return copy;
  release_reserved(bytes);  // the system has no memory left: then without
  return nullptr;
}

void ChunkStore::Impl::release_reserved(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  reserved_bytes_ -= bytes;
}

void ChunkStore::Impl::keep(const IndexPin& entry, std::shared_ptr<const MemoryCopy> copy) {
  const std::lock_guard lock(mutex_);
  reserved_bytes_ -= copy->bytes.size();
  // Another handle may have been quicker, or the record was removed meanwhile.
  if (index_.holds(entry) && !entry->copy) index_.set_copy(entry, std::move(copy));
}

// ------------------------------------------------------------------------------------------ find

void ChunkStore::Impl::use(const Hash128& hash) {
  int64_t now_ns = 0;
  {
    const std::lock_guard lock(mutex_);
    now_ns = next_time_ns();
    if (const IndexPin entry = index_.find(hash)) index_.set_last_use(entry, now_ns);
  }
  // The order of eviction after a restart and in other processes; a file that is gone is fine.
  (void)env_.set_modified(path_of(hash), now_ns);
}

std::unique_ptr<ChunkStore::Handle::State> ChunkStore::Impl::find_in_memory(const Key& key) {
  const std::lock_guard lock(mutex_);
  IndexPin entry = index_.find(key.hash);
  if (!entry || !entry->copy || !same_bytes(entry->copy->identity, key.identity)) return nullptr;
  ++memory_hits_;
  auto state = std::make_unique<Handle::State>();
  state->store = this;
  state->tier = Tier::kMemory;
  state->info = entry->copy->info;
  state->copy = entry->copy;
  state->entry = std::move(entry);
  return state;
}

Result<ChunkStore::Handle> ChunkStore::Impl::make_disk_handle(const Key& key,
                                                              std::unique_ptr<ReadFile> file,
                                                              RecordHead head) {
  auto state = std::make_unique<Handle::State>();
  state->store = this;
  state->tier = Tier::kDisk;
  state->info = head.info;
  state->path = path_of(key.hash);
  {
    const std::lock_guard lock(mutex_);
    state->entry = index_.get(key.hash);
    index_.set_file(state->entry, file->size_bytes());
    ++disk_hits_;
  }
  state->file = std::move(file);
  state->head = std::move(head);
  use(key.hash);
  return Handle(std::move(state));
}

Result<ChunkStore::Handle> ChunkStore::Impl::find(const Key& key) {
  const std::string path = path_of(key.hash);
  const auto miss = [&](std::string message) {
    const std::lock_guard lock(mutex_);
    ++misses_;
    return not_found(std::move(message));
  };
  if (auto in_memory = find_in_memory(key)) {
    use(key.hash);
    return Handle(std::move(in_memory));
  }
  auto file = env_.open_read(path);
  if (!file.is_ok()) {
    if (file.status().code() != StatusCode::kNotFound) return file.status();
    {
      const std::lock_guard lock(mutex_);
      forget_file(key.hash);
    }
    return miss(path + ": no such record");
  }
  auto head = read_head(**file, path);
  if (!head.is_ok()) {
    const StatusCode code = head.status().code();
    if (code != StatusCode::kCorrupt && code != StatusCode::kUnsupported) return head.status();
    discard(key.hash, head.status());
    return miss(head.status().message());
  }
  if (!same_bytes(head->identity, key.identity)) {
    if (hash128(head->identity) != key.hash) {
      const Status why = corrupt(path + ": holds another chunk's record than its name says");
      discard(key.hash, why);
      return miss(why.message());
    }
    log_warning(path + ": another chunk with the same hash; counts as missing");
    return miss(path + ": same hash, another chunk");
  }
  return make_disk_handle(key, std::move(file).value(), std::move(head).value());
}

bool ChunkStore::Impl::contains(const Key& key) {
  {
    const std::lock_guard lock(mutex_);
    const IndexPin entry = index_.find(key.hash);
    if (entry && entry->copy) return true;
  }
  return env_.exists(path_of(key.hash));
}

// ------------------------------------------------------------------------------------------- put

Status ChunkStore::Impl::write_temp(const std::string& path, std::span<const std::byte> head,
                                    std::span<const std::span<const std::byte>> layers) {
  WEFT_ASSIGN_OR_RETURN(const auto file, env_.create(path));
  WEFT_RETURN_IF_ERROR(write_record(*file, head, layers));
  WEFT_RETURN_IF_ERROR(file->sync());
  return file->close();
}

Status ChunkStore::Impl::put(const Key& key, uint32_t n_tokens,
                             std::span<const std::span<const std::byte>> layers,
                             PutOptions options) {
  if (hash128(key.identity) != key.hash) {
    return invalid_argument("chunk record to write: the key's hash is not that of its identity");
  }
  const std::string path = path_of(key.hash);
  if (env_.exists(path)) {
    use(key.hash);
    return Status::ok();
  }
  WEFT_ASSIGN_OR_RETURN(const auto head,
                        encode_head(key.identity, n_tokens, env_.unix_ms(), layers));
  const RecordInfo info{.n_layers = static_cast<uint32_t>(layers.size()),
                        .layer_bytes = layers[0].size()};
  const uint64_t bytes = info.file_bytes(key.identity.size());
  {
    WEFT_ASSIGN_OR_RETURN(const auto change, FolderChange::begin(*this, /*refresh=*/true));
    WEFT_RETURN_IF_ERROR(make_room_on_disk(bytes, options.evict));
  }
  const std::string temp = temp_files_->next_path();
  Status status = write_temp(temp, head, layers);
  if (status.is_ok()) {
    auto change = FolderChange::begin(*this, /*refresh=*/true);
    status = change.status();
    if (status.is_ok() && env_.exists(path)) return env_.remove(temp);  // another was quicker
    if (status.is_ok()) status = make_room_on_disk(bytes, options.evict);
    if (status.is_ok()) {
      folder_changed_ = true;
      status = env_.rename(temp, path);
    }
    if (status.is_ok()) {
      const IndexPin entry = index_.get(key.hash);
      index_.set_last_use(entry, next_time_ns());
      index_.set_file(entry, bytes);
      (void)env_.set_modified(path, entry->last_use_ns);
    }
  }
  if (!status.is_ok()) {
    (void)env_.remove(temp);  // else swept up by whoever opens the store after this process
    return status;
  }
  return env_.sync_dir(options_.dir);
}

// ----------------------------------------------------------------------- looking at and clearing

Result<std::vector<RecordSummary>> ChunkStore::Impl::ls() {
  WEFT_RETURN_IF_ERROR(refresh());
  std::vector<RecordSummary> records;
  std::vector<std::shared_ptr<const MemoryCopy>> copies;
  {
    const std::lock_guard lock(mutex_);
    for (const IndexPin& entry : index_.by_last_use()) {
      records.push_back({.hash = entry->hash,
                         .file_bytes = entry->file_bytes,
                         .last_use_unix_ms = entry->last_use_ns / 1'000'000,
                         .in_memory = entry->copy != nullptr});
      copies.push_back(entry->copy);
    }
  }
  std::vector<RecordSummary> found;
  for (size_t i = 0; i < records.size(); ++i) {
    RecordSummary& record = records[i];
    if (copies[i]) {
      record.info = copies[i]->info;
    } else {
      const std::string path = path_of(record.hash);
      const auto file = env_.open_read(path);
      record.status = file.status();
      if (record.status.code() == StatusCode::kNotFound) continue;  // removed meanwhile
      if (file.is_ok()) {
        auto head = read_head(**file, path);
        record.status = head.status();
        if (head.is_ok()) record.info = head->info;
      }
    }
    found.push_back(std::move(record));
  }
  return found;
}

Result<StoreStats> ChunkStore::Impl::stat() {
  WEFT_RETURN_IF_ERROR(refresh());
  const std::lock_guard lock(mutex_);
  const auto memory = index_.memory();
  const auto disk = index_.disk();
  return StoreStats{
      .memory = {memory.records, memory.bytes, options_.memory_limit_bytes, memory_hits_,
                 memory_evictions_},
      .disk = {disk.records, disk.bytes, options_.disk_limit_bytes, disk_hits_, disk_evictions_},
      .misses = misses_,
      .damaged = damaged_};
}

Status ChunkStore::Impl::verify_record(const std::string& name, uint64_t& bytes) {
  const std::string path = join_path(options_.dir, name);
  WEFT_ASSIGN_OR_RETURN(const auto file, env_.open_read(path));
  bytes = file->size_bytes();
  WEFT_ASSIGN_OR_RETURN(const RecordHead head, read_head(*file, path));
  if (record_file_name(hash128(head.identity)) != name) {
    return corrupt(path + ": holds another chunk's record than its name says");
  }
  AlignedBytes scratch(head.info.layer_bytes);
  if (scratch.size() < head.info.layer_bytes) {
    return resource_exhausted(
        fmt::format("{}: no memory for a layer of {} bytes", path, head.info.layer_bytes));
  }
  for (uint32_t layer = 0; layer < head.info.n_layers; ++layer) {
    WEFT_RETURN_IF_ERROR(read_layer(*file, head, layer, scratch.span(), path));
  }
  return Status::ok();
}

Result<VerifyReport> ChunkStore::Impl::verify(FunctionRef<bool(uint64_t, uint64_t)> progress) {
  WEFT_ASSIGN_OR_RETURN(auto files, env_.list(options_.dir));
  std::erase_if(files, [](const DirEntry& file) {
    return file.is_directory || !parse_record_file_name(file.name);
  });
  VerifyReport report;
  for (size_t i = 0; i < files.size(); ++i) {
    uint64_t bytes = 0;
    Status status = verify_record(files[i].name, bytes);
    if (status.code() != StatusCode::kNotFound) {  // else removed meanwhile
      ++report.records;
      report.bytes += bytes;
      if (!status.is_ok()) report.bad.push_back({files[i].name, std::move(status)});
    }
    if (!progress(i + 1, files.size())) return cancelled("verification was stopped");
  }
  return report;
}

Status ChunkStore::Impl::remove(const Hash128& hash) {
  {
    WEFT_ASSIGN_OR_RETURN(const auto change, FolderChange::begin(*this, /*refresh=*/false));
    const IndexPin entry = index_.find(hash);
    const bool was_in_memory = entry && entry->copy;
    if (was_in_memory) index_.set_copy(entry, nullptr);
    WEFT_ASSIGN_OR_RETURN(const bool was_on_disk, remove_file(hash));
    if (!was_on_disk && !was_in_memory) {
      return not_found(fmt::format("{}: no record {}", options_.dir, hash.to_hex()));
    }
  }
  return env_.sync_dir(options_.dir);
}

Status ChunkStore::Impl::clear() {
  {
    WEFT_ASSIGN_OR_RETURN(const auto change, FolderChange::begin(*this, /*refresh=*/true));
    for (const IndexPin& entry : index_.by_last_use()) {
      if (entry->copy) index_.set_copy(entry, nullptr);
      WEFT_RETURN_IF_ERROR(remove_file(entry->hash).status());
    }
  }
  return env_.sync_dir(options_.dir);
}

// ------------------------------------------------------------------------------------ properties

Result<Properties> ChunkStore::Impl::read_properties() {
  const std::string path = join_path(options_.dir, kPropertiesFile);
  WEFT_ASSIGN_OR_RETURN(const std::string text, read_file(env_, path, kMaxPropertiesBytes));
  return decode_properties(text, path);
}

Status ChunkStore::Impl::replace_file(const std::string& path, std::string_view text) {
  const std::string temp = temp_files_->next_path();
  WEFT_ASSIGN_OR_RETURN(const auto file, env_.create(temp));
  Status status = file->append(std::as_bytes(std::span(text)));
  if (status.is_ok()) status = file->sync();
  if (status.is_ok()) status = file->close();
  if (status.is_ok()) status = env_.rename(temp, path);
  if (!status.is_ok()) {
    (void)env_.remove(temp);
    return status;
  }
  return env_.sync_dir(options_.dir);
}

Status ChunkStore::Impl::edit_properties(FunctionRef<void(Properties&)> edit) {
  WEFT_ASSIGN_OR_RETURN(const auto change, FolderChange::begin(*this, /*refresh=*/false));
  auto properties = read_properties();
  if (properties.status().code() == StatusCode::kNotFound) properties = Properties();
  WEFT_RETURN_IF_ERROR(properties.status());
  edit(*properties);
  const std::string text = encode_properties(*properties);
  if (text.size() > kMaxPropertiesBytes) {
    return resource_exhausted(fmt::format("{}: {} bytes of properties, the limit is {}",
                                          options_.dir, text.size(), kMaxPropertiesBytes));
  }
  folder_changed_ = true;
  return replace_file(join_path(options_.dir, kPropertiesFile), text);
}

// ------------------------------------------------------------------------------------ ChunkStore

ChunkStore::ChunkStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChunkStore::~ChunkStore() = default;

Result<std::unique_ptr<ChunkStore>> ChunkStore::open(Env& env, StoreOptions options) {
  const std::string dir = options.dir;
  const std::string properties_path = join_path(dir, kPropertiesFile);
  const bool is_new = !env.exists(properties_path);
  if (is_new && !options.create) {
    return not_found(fmt::format("{}: no chunk store there", dir));
  }
  if (is_new) WEFT_RETURN_IF_ERROR(make_dirs_durably(env, dir));
  WEFT_ASSIGN_OR_RETURN(auto temp_files, TempFiles::open(env, join_path(dir, kTempFolder)));
  auto impl = std::make_unique<Impl>(env, std::move(options), std::move(temp_files));
  if (is_new) {
    WEFT_RETURN_IF_ERROR(impl->edit_properties([](Properties&) {}));
  } else {
    WEFT_RETURN_IF_ERROR(impl->read_properties().status());
  }
  WEFT_RETURN_IF_ERROR(impl->refresh());
  return std::unique_ptr<ChunkStore>(new ChunkStore(std::move(impl)));
}

Result<ChunkStore::Handle> ChunkStore::find(const Key& key) { return impl_->find(key); }
Status ChunkStore::put(const Key& key, uint32_t n_tokens,
                       std::span<const std::span<const std::byte>> layers, PutOptions options) {
  return impl_->put(key, n_tokens, layers, options);
}
bool ChunkStore::contains(const Key& key) { return impl_->contains(key); }
Result<std::vector<RecordSummary>> ChunkStore::ls() { return impl_->ls(); }
Result<StoreStats> ChunkStore::stat() { return impl_->stat(); }
Result<VerifyReport> ChunkStore::verify(FunctionRef<bool(uint64_t, uint64_t)> progress) {
  return impl_->verify(progress);
}
Status ChunkStore::remove(const Hash128& hash) { return impl_->remove(hash); }
Status ChunkStore::clear() { return impl_->clear(); }
Status ChunkStore::set_property(const std::string& name, const std::string& value) {
  WEFT_RETURN_IF_ERROR(check_property_name(name));
  return impl_->edit_properties([&](Properties& properties) { properties[name] = value; });
}
Result<std::string> ChunkStore::property(const std::string& name) {
  WEFT_RETURN_IF_ERROR(check_property_name(name));
  WEFT_ASSIGN_OR_RETURN(const Properties properties, impl_->read_properties());
  const auto it = properties.find(name);
  if (it == properties.end()) return not_found(fmt::format("{}: no property {}", dir(), name));
  return it->second;
}
const std::string& ChunkStore::dir() const { return impl_->dir(); }

}  // namespace weft::store
