// Finding, loading and storing records. The rules, and why:
//
// A hit costs one open, a read of the head and one read per layer. Nothing is mapped: a file that
// gets shorter, or whose disk fails, is then an error of a read, where a mapping would kill the
// process with SIGBUS. Each layer is checked against its checksum when it is loaded, not when the
// record is found, so that computation can begin before the last layer was read.
//
// A record goes into the memory tier while it is read anyway: load_layer() reads straight into the
// coming copy, and the copy counts only once all its layers are there. Bytes for it are reserved
// before the first read, so that threads that load at the same time stay inside the limit together.
//
// put() writes to a temporary file without a lock, because that takes long, and takes the folder's
// lock only to check again, make room and rename. The rename makes a record appear whole or not at
// all (docs/formats/chunk.md, Folder).
#include "store/chunk_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "base/narrow.h"
#include "store/chunk_store_internal.h"

namespace weft::store {
namespace {

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace

// ---------------------------------------------------------------------------------------- Handle

struct ChunkStore::Handle::State {
  /// Of a layer in `filling`. A failed read sets it back to kEmpty, so the next load tries again.
  enum LayerState : uint8_t { kEmpty, kLoading, kLoaded };

  Impl* store;
  IndexPin entry;  // keeps the record from eviction while the handle lives
  Tier tier;
  RecordInfo info;
  std::shared_ptr<const MemoryCopy> copy;  // memory tier

  // Disk tier. The open file stays readable when another process removes its name.
  std::unique_ptr<ReadFile> file;
  std::string path;
  RecordHead head;
  std::mutex filling_mutex;             // of filling_begun
  bool filling_begun = false;           // by the first load: a find alone evicts nothing
  std::shared_ptr<MemoryCopy> filling;  // the coming memory copy; null where it does not fit
  std::vector<std::atomic<uint8_t>> layer_states;  // [n_layers] LayerState; empty before filling
  std::atomic<uint32_t> n_loaded{0};               // layers of `filling` that are kLoaded

  /// A copy that was never completed returns its bytes to the memory tier; a complete one went to
  /// keep(), which did that.
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
  {
    // Not std::call_once: memory may run out in here, and an exception that passes through libc's
    // own frames makes it load libgcc_s anew, or abort where there is no memory for that.
    const std::lock_guard lock(s.filling_mutex);
    if (!s.filling_begun) {
      s.layer_states = std::vector<std::atomic<uint8_t>>(s.info.n_layers);
      s.filling = s.store->begin_copy(s.head);
      s.filling_begun = true;
    }
  }
  if (s.filling) {
    // Exactly one thread moves a layer from kEmpty to kLoading and writes its bytes; the others see
    // kLoaded and read them, or kLoading and read the file themselves.
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
    // Another thread is reading this layer. Waiting for it could mean waiting for a slow disk
    // twice, so this thread reads the layer into its own scratch.
  }
  if (!scratch.reserve_discard(s.info.layer_bytes)) {
    return resource_exhausted(
        fmt::format("{}: no memory for a layer of {} bytes", s.path, s.info.layer_bytes));
  }
  const auto out = scratch.span().first(s.info.layer_bytes);
  WEFT_RETURN_IF_ERROR(s.read_into(layer, out));
  return std::span<const std::byte>(out);
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
  // What may throw comes before the reservation.
  auto copy = std::make_shared<MemoryCopy>(
      MemoryCopy{head.info, head.identity, AlignedBytes(), head.layer_stride});
  {
    const std::lock_guard lock(mutex_);
    if (!reserve_memory(bytes)) return nullptr;
  }
  copy->bytes = AlignedBytes(bytes);
  if (copy->bytes.size() == bytes) return copy;
  release_reserved(bytes);  // the system has no memory left: load without a copy
  return nullptr;
}

void ChunkStore::Impl::release_reserved(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  reserved_bytes_ -= bytes;
}

void ChunkStore::Impl::keep(const IndexPin& entry, std::shared_ptr<const MemoryCopy> copy) {
  const std::lock_guard lock(mutex_);
  reserved_bytes_ -= copy->bytes.size();
  // Another handle may have completed its copy first, or the record was removed meanwhile.
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
  if (is_read_only()) return;
  // The file's time of modification carries the order of eviction over a restart and to other
  // processes. A file that is gone needs no time, so the result is ignored.
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
    // Another process stored this record after the folder was last listed, and may have removed it
    // again: list the folder before bytes are next counted against the limit.
    if (state->entry->file_bytes == 0) seen_folder_ns_ = kUnknownTime;
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
  auto file = env_.open_read(path, Links::kRefuse);
  if (file.status().code() == StatusCode::kInvalidArgument) {  // a link, a pipe, a folder
    discard(key.hash, file.status());
    return miss(file.status().message());
  }
  if (!file.is_ok()) {
    if (file.status().code() != StatusCode::kNotFound) return file.status();
    {
      const std::lock_guard lock(mutex_);
      forget_file(key.hash);
    }
    return miss(path + ": no such record");
  }
  // Only what is wrong with the bytes removes a record. An error of the disk or of rights is passed
  // on: the record may be whole.
  auto head = read_head(**file, path);
  if (!head.is_ok()) {
    const StatusCode code = head.status().code();
    if (code != StatusCode::kCorrupt && code != StatusCode::kUnsupported) return head.status();
    discard(key.hash, head.status());
    return miss(head.status().message());
  }
  // The name is only a hash. Two identities with one hash are possible, if unlikely, and then KV of
  // the wrong chunk would be served; so the whole identity is compared.
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

Status ChunkStore::Impl::check_writable(const char* what) const {
  if (!is_read_only()) return Status::ok();
  return invalid_argument(
      fmt::format("{}: opened for reading only: cannot {}", options_.dir, what));
}

Result<bool> ChunkStore::Impl::has_file(const std::string& path) {
  const auto entry = env_.stat_link(path);
  if (entry.status().code() == StatusCode::kNotFound) return false;
  WEFT_RETURN_IF_ERROR(entry.status());
  if (entry->is_regular) return true;
  return invalid_argument(path + ": in a record's place, but no regular file: remove it");
}

Status ChunkStore::Impl::judge_record(const Key& key, const RecordInfo& info) {
  const std::string path = path_of(key.hash);
  WEFT_ASSIGN_OR_RETURN(const bool is_there, has_file(path));
  if (!is_there) return not_found(path);
  WEFT_ASSIGN_OR_RETURN(const auto file, env_.open_read(path, Links::kRefuse));
  WEFT_ASSIGN_OR_RETURN(const RecordHead head, read_head(*file, path));
  if (!same_bytes(head.identity, key.identity)) {
    if (hash128(head.identity) == key.hash) return Status::ok();
    return corrupt(path + ": holds another chunk's record than its name says");
  }
  if (head.info.n_layers == info.n_layers && head.info.layer_bytes == info.layer_bytes &&
      head.info.n_tokens == info.n_tokens) {
    return Status::ok();
  }
  return corrupt(path + ": its head says another shape than its chunk has: damaged");
}

bool ChunkStore::Impl::contains(const Key& key) {
  const auto is_there = has_file(path_of(key.hash));
  return is_there.is_ok() && *is_there;
}

// ------------------------------------------------------------------------------------------- put

Status ChunkStore::Impl::write_temp(const std::string& path, std::span<const std::byte> head,
                                    std::span<const std::span<const std::byte>> layers) {
  WEFT_ASSIGN_OR_RETURN(const auto file,
                        env_.create(path, {.mode = kPrivateFileMode, .exclusive = true}));
  WEFT_RETURN_IF_ERROR(write_record(*file, head, layers));
  WEFT_RETURN_IF_ERROR(file->sync());
  return file->close();
}

Status ChunkStore::Impl::put(const Key& key, uint32_t n_tokens,
                             std::span<const std::span<const std::byte>> layers,
                             PutOptions options) {
  WEFT_RETURN_IF_ERROR(check_writable("store a record"));
  if (hash128(key.identity) != key.hash) {
    return invalid_argument("chunk record to write: the key's hash is not that of its identity");
  }
  WEFT_ASSIGN_OR_RETURN(const auto head,
                        encode_head(key.identity, n_tokens, env_.unix_ms(), layers));
  const RecordInfo info{.n_layers = narrow<uint32_t>(layers.size()),
                        .layer_bytes = layers[0].size(),
                        .n_tokens = n_tokens};
  const auto must_be_written = [](const Status& there) {
    const StatusCode code = there.code();
    return code == StatusCode::kNotFound || code == StatusCode::kCorrupt ||
           code == StatusCode::kUnsupported;
  };
  Status there = judge_record(key, info);
  if (there.is_ok()) {
    use(key.hash);
    return env_.sync_dir(options_.dir);  // whoever wrote it may have died before this
  }
  if (!must_be_written(there)) return there;
  const std::string path = path_of(key.hash);
  const uint64_t bytes = info.file_bytes(key.identity.size());
  {
    // Room is made before writing, so that a full store says so without a write, and again under
    // the lock of the rename, since others may have stored something in between.
    WEFT_ASSIGN_OR_RETURN(const auto change,
                          FolderChange::begin(*this, options_.disk_limit_bytes > 0));
    WEFT_RETURN_IF_ERROR(make_room_on_disk(bytes, options.evict));
  }
  const std::string temp = temp_files_->next_path();
  Status status = write_temp(temp, head, layers);
  if (status.is_ok()) {
    auto change = FolderChange::begin(*this, options_.disk_limit_bytes > 0);
    status = change.status();
    if (status.is_ok()) {
      there = judge_record(key, info);  // again: another process may have stored it meanwhile
      if (there.is_ok()) {
        (void)env_.remove(temp);
        return env_.sync_dir(options_.dir);
      }
      if (!must_be_written(there)) status = there;
    }
    if (status.is_ok() && there.code() != StatusCode::kNotFound) {
      log_warning(there.message() + "; the record is replaced");
      count_damaged(key.hash);
    }
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
    (void)env_.remove(temp);  // if that fails, the next process to open the store removes it
    return status;
  }
  return env_.sync_dir(options_.dir);
}

// ------------------------------------------------------------------------------------ ChunkStore

ChunkStore::ChunkStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChunkStore::~ChunkStore() = default;

Result<ChunkStore::Handle> ChunkStore::find(const Key& key) { return impl_->find(key); }
Status ChunkStore::put(const Key& key, uint32_t n_tokens,
                       std::span<const std::span<const std::byte>> layers, PutOptions options) {
  return impl_->put(key, n_tokens, layers, options);
}
bool ChunkStore::contains(const Key& key) { return impl_->contains(key); }
void ChunkStore::reject(const Key& key, std::string_view why) { impl_->reject(key, why); }
Result<std::vector<RecordSummary>> ChunkStore::ls() { return impl_->ls(); }
Result<StoreStats> ChunkStore::stat() { return impl_->stat(); }
Result<VerifyReport> ChunkStore::verify(FunctionRef<bool(uint64_t, uint64_t)> progress) {
  return impl_->verify(progress);
}
Result<bool> ChunkStore::remove_damaged(const Hash128& hash) { return impl_->remove_damaged(hash); }
Status ChunkStore::remove(const Hash128& hash, Durable durable) {
  return impl_->remove(hash, durable);
}
Status ChunkStore::sync() { return impl_->sync(); }
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
bool ChunkStore::is_read_only() const { return impl_->is_read_only(); }

}  // namespace weft::store
