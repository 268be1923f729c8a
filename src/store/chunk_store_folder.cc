// The chunk store's folder: who changed it, room in it, what is in it, its properties.
//
// Several processes share a folder without a server between them. What they have to agree on is
// kept where all of them see it: the folder's time of modification says that something changed, and
// each record's time of modification is its last use. A journal of uses in a file of its own would
// be one more file to lock, to sync and to repair after a crash; a time is set by one call, and a
// lost one only makes an eviction less good.
//
// The price is that all times may be wrong: a clock is set back, a file system rounds times, the
// kernel's own ones are as coarse as its timer. So the folder's time is compared for equality only,
// never for order, and gets random low digits; a time in the future is set to now when it is met; a
// folder whose time does not read back as it was set is listed every time.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <unordered_set>

#include "base/atomic_file.h"
#include "base/byte_sizes.h"
#include "base/counts_text.h"
#include "base/log.h"
#include "base/narrow.h"
#include "store/chunk_store_internal.h"

namespace weft::store {
namespace {

/// What the rooms above keep in a store's folder (docs/formats/chunk.md): the documents' index.
constexpr std::string_view kIndexFiles = "documents.sqlite";

bool is_of_a_store(const DirEntry& entry) {
  return entry.name == kPropertiesFile || entry.name == kLockFile || entry.name == kTempFolder ||
         parse_record_file_name(entry.name) || entry.name.starts_with(kIndexFiles);
}

/// Takes the rights of group and others from a file or folder; false where this process may not.
bool make_private(Env& env, const std::string& path, uint32_t mode) {
  constexpr uint32_t kOthers = 0077;
  return (mode & kOthers) == 0 || env.set_mode(path, mode & ~kOthers).is_ok();
}

/// The same for those files of a folder for which `is_ours` is true. A file with a second name (a
/// hard link) is left alone: under that name it may belong to somebody else.
bool make_files_private(Env& env, const std::string& dir, const std::vector<DirEntry>& entries,
                        FunctionRef<bool(const std::string&)> is_ours) {
  return std::all_of(entries.begin(), entries.end(), [&](const DirEntry& entry) {
    const bool is_file = entry.is_regular && !entry.is_link && entry.n_names == 1;
    return !is_file || !is_ours(entry.name) ||
           make_private(env, join_path(dir, entry.name), entry.mode);
  });
}

/// Makes an existing folder private, which protects everything in it. A folder that also holds
/// files of others, or is shared by design (sticky, as /tmp is), keeps its mode.
Status make_folder_private(Env& env, const std::string& dir, const std::vector<DirEntry>& entries) {
  constexpr uint32_t kSticky = 01000;
  WEFT_ASSIGN_OR_RETURN(const DirEntry folder, env.stat(dir));
  const bool is_ours = std::all_of(entries.begin(), entries.end(), is_of_a_store);
  if (is_ours && (folder.mode & kSticky) == 0) (void)make_private(env, dir, folder.mode);
  return Status::ok();
}

/// Creates `dir` and makes every level durable in its parent.
Status make_store_folder(Env& env, const std::string& dir) {
  namespace fs = std::filesystem;
  const bool was_there = env.exists(dir);
  std::vector<std::pair<std::string, bool>> parents;  // and whether their level is missing
  for (fs::path level = (fs::path(dir) / "").lexically_normal().parent_path();
       level.has_relative_path(); level = level.parent_path()) {
    const fs::path parent = level.parent_path();
    parents.emplace_back(parent.empty() ? "." : parent.string(), !env.exists(level.string()));
  }
  WEFT_RETURN_IF_ERROR(env.make_dirs(dir, kPrivateDirMode));
  for (const auto& [parent, is_new] : parents) {
    // An earlier run may have died after it made a level and before it synced it, so all are
    // synced. A level that was there may be unreadable for this user; only of a new one is that an
    // error.
    const Status synced = env.sync_dir(parent);
    if (is_new) WEFT_RETURN_IF_ERROR(synced);
  }
  if (!was_there) return Status::ok();
  WEFT_ASSIGN_OR_RETURN(const auto entries, env.list(dir));
  return make_folder_private(env, dir, entries);
}

/// Makes a store of an older weft, which left modes to the umask, as private as a new one. False
/// where this process may not change all of them.
Result<bool> make_old_store_private(Env& env, const std::string& dir) {
  WEFT_ASSIGN_OR_RETURN(const auto entries, env.list(dir));
  WEFT_RETURN_IF_ERROR(make_folder_private(env, dir, entries));
  const bool are_private = make_files_private(env, dir, entries, [](const std::string& name) {
    return parse_record_file_name(name) || name == kPropertiesFile || name == kLockFile ||
           name.starts_with(kIndexFiles);
  });
  if (!are_private) return false;
  const std::string temp = join_path(dir, kTempFolder);
  WEFT_ASSIGN_OR_RETURN(const DirEntry folder, env.stat_link(temp));
  if (!folder.is_directory) return false;
  WEFT_ASSIGN_OR_RETURN(const auto temp_files, env.list(temp));
  const auto any = [](const std::string&) { return true; };
  return make_private(env, temp, folder.mode) && make_files_private(env, temp, temp_files, any);
}

}  // namespace

Result<std::unique_ptr<ChunkStore>> ChunkStore::open(Env& env, StoreOptions options) {
  const std::string dir = options.dir;
  const Status there = env.stat(join_path(dir, kPropertiesFile)).status();
  const bool is_new = there.code() == StatusCode::kNotFound;
  if (!is_new) WEFT_RETURN_IF_ERROR(there);  // no right to look into it: not the same as a new one
  const auto at_path = is_new ? env.stat(dir) : not_found("");
  if (at_path.is_ok() && !at_path->is_directory) {
    return invalid_argument(fmt::format("{}: a file, and a chunk store is a folder", dir));
  }
  if (is_new && (!options.create || options.read_only)) {
    return not_found(fmt::format("{}: no chunk store there", dir));
  }
  std::unique_ptr<TempFiles> temp_files;
  if (!options.read_only) {
    if (is_new) WEFT_RETURN_IF_ERROR(make_store_folder(env, dir));
    WEFT_ASSIGN_OR_RETURN(temp_files, TempFiles::open(env, join_path(dir, kTempFolder)));
  }
  auto impl = std::make_unique<Impl>(env, std::move(options), std::move(temp_files));
  if (is_new) {
    WEFT_RETURN_IF_ERROR(impl->note_private());
  } else {
    WEFT_ASSIGN_OR_RETURN(const Properties properties, impl->read_properties());
    if (!impl->is_read_only() && !properties.contains(kModesProperty)) {
      WEFT_ASSIGN_OR_RETURN(const bool is_private, make_old_store_private(env, dir));
      if (is_private) (void)impl->note_private();  // otherwise the next opening tries again
    }
  }
  WEFT_RETURN_IF_ERROR(impl->refresh());
  if (logs_info()) {
    WEFT_ASSIGN_OR_RETURN(const StoreStats stats, impl->stat());
    log_info(fmt::format("{}: {}, {}{}", dir,
                         counted(narrow<int64_t>(stats.disk.records), "record"),
                         size_text(stats.disk.bytes), is_new ? ", a new store" : ""));
  }
  return std::unique_ptr<ChunkStore>(new ChunkStore(std::move(impl)));
}

// ------------------------------------------------------------------------------------------ times

int64_t ChunkStore::Impl::now_ns() {
  // Half of what nanoseconds in an int64_t can say (some 146 years after 1970): a slack or a step
  // added to it cannot overflow.
  constexpr int64_t kLatestMs = std::numeric_limits<int64_t>::max() / 2'000'000;
  return std::clamp<int64_t>(env_.unix_ms(), 0, kLatestMs) * 1'000'000;
}

int64_t ChunkStore::Impl::next_time_ns() {
  const int64_t now = now_ns();
  if (last_time_ns_ > now + kClockSlackNs) settle_times();  // the clock was set back
  last_time_ns_ = std::max(last_time_ns_ + 1, now);
  return last_time_ns_;
}

void ChunkStore::Impl::settle_times() {
  const int64_t now = now_ns();
  if (last_time_ns_ < now || last_time_ns_ > now + kClockSlackNs) last_time_ns_ = now;
  // When these were really used is unknown. They keep their order among each other and become the
  // newest, which evicts them late and not never.
  const std::vector<IndexPin> future = index_.used_after(now + kClockSlackNs);
  for (const IndexPin& entry : future) {
    index_.set_last_use(entry, ++last_time_ns_);
    if (!is_read_only() && entry->file_bytes > 0) {
      (void)env_.set_modified(path_of(entry->hash), last_time_ns_);
    }
  }
}

int64_t ChunkStore::Impl::folder_time_ns() {
  const auto folder = env_.stat(options_.dir);
  return folder.is_ok() ? folder->modified_ns : kUnknownTime;
}

int64_t ChunkStore::Impl::new_stamp_ns(int64_t last_ns) {
  // The digits below the clock's milliseconds are random. A clock that is set back reaches the same
  // millisecond again, and another process may remember the folder's time of then: with equal times
  // it would take a changed folder for an unchanged one.
  const int64_t now = next_time_ns();
  const int64_t stamp = now + narrow<int64_t>(random_() % 1'000'000);
  const bool follows = last_ns >= stamp && last_ns <= now + kClockSlackNs;
  return follows ? last_ns + 1 : stamp;
}

Status ChunkStore::Impl::refresh() {
  const std::lock_guard lock(mutex_);
  if (folder_time_ns() == seen_folder_ns_ && seen_folder_ns_ != kUnknownTime) return Status::ok();
  WEFT_RETURN_IF_ERROR(rescan());
  distrust_recent_time();
  return Status::ok();
}

void ChunkStore::Impl::distrust_recent_time() {
  if (seen_folder_ns_ > now_ns() - kCoarseTickNs) seen_folder_ns_ = kUnknownTime;
}

Status ChunkStore::Impl::rescan() {
  const int64_t folder_ns = folder_time_ns();  // before listing: a later change is seen next time
  WEFT_ASSIGN_OR_RETURN(const auto files, env_.list(options_.dir));
  const int64_t latest_ns = now_ns() + kClockSlackNs;
  std::unordered_set<const IndexEntry*> present;
  for (const DirEntry& file : files) {
    const auto hash = parse_record_file_name(file.name);
    if (!hash || !file.is_regular || file.is_link) continue;
    const IndexPin entry = index_.get(*hash);
    // A time in the future does not replace a known one: the file may be one whose time this
    // process cannot set, and then it would stay the newest for ever.
    if (entry->last_use_ns == 0 || file.modified_ns <= latest_ns) {
      index_.set_last_use(entry, std::max(entry->last_use_ns, file.modified_ns));
    }
    // At least 1: to the index 0 bytes means that there is no file, and an empty one is there.
    index_.set_file(entry, std::max<uint64_t>(file.size_bytes, 1));
    present.insert(entry.get());
  }
  for (const IndexPin& entry : index_.by_last_use()) {
    if (!present.contains(entry.get())) index_.set_file(entry, 0);
  }
  settle_times();
  seen_folder_ns_ = folder_times_exact_ ? folder_ns : kUnknownTime;
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
      // Another process may have used the record since the folder was listed. Then it gets its new
      // place in the order, and the loop chooses again.
      const auto file = env_.stat(path_of(victim->hash));
      if (file.is_ok() && was_used_since(victim, *file)) continue;
      WEFT_RETURN_IF_ERROR(remove_file(victim->hash).status());
      ++disk_evictions_;
    }
  }
}

bool ChunkStore::Impl::was_used_since(const IndexPin& entry, const DirEntry& file) {
  if (file.modified_ns <= entry->last_use_ns) return false;
  int64_t used_ns = file.modified_ns;
  if (used_ns > now_ns() + kClockSlackNs) {
    used_ns = next_time_ns();
    // If its time cannot be set, the file would count as just used at every eviction.
    if (!env_.set_modified(path_of(entry->hash), used_ns).is_ok()) return false;
  }
  index_.set_last_use(entry, used_ns);
  return true;
}

void ChunkStore::Impl::count_damaged(const Hash128& hash) {
  ++damaged_;
  if (const IndexPin entry = index_.find(hash); entry && entry->copy) {
    index_.set_copy(entry, nullptr);
  }
}

void ChunkStore::Impl::discard(const Hash128& hash, const Status& why) {
  // Nothing is removed from a store that is only read; the copy in memory is still dropped.
  if (is_read_only()) {
    log_warning(why.message() + "; it counts as missing");
    const std::lock_guard lock(mutex_);
    return count_damaged(hash);
  }
  log_warning(why.message() + "; the record is removed and counts as missing");
  const auto change = FolderChange::begin(*this, /*refresh=*/false);
  if (!change.is_ok()) return log_warning(change.status().message());
  count_damaged(hash);
  const auto removed = remove_file(hash);
  if (!removed.is_ok()) log_warning(removed.status().message());
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
  // The heads are read without the lock: with many records that takes long, and others go on.
  std::vector<RecordSummary> found;
  for (size_t i = 0; i < records.size(); ++i) {
    RecordSummary& record = records[i];
    const std::string path = path_of(record.hash);
    const auto take = [&](std::span<const std::byte> identity, const RecordInfo& info) {
      auto type = type_of(path, identity, info);
      record.status = type.status();
      if (!type.is_ok()) return;
      record.info = info;
      record.type = std::move(*type);
    };
    if (copies[i]) {
      take(copies[i]->identity, copies[i]->info);
    } else {
      const auto file = env_.open_read(path, Links::kRefuse);
      record.status = file.status();
      if (record.status.code() == StatusCode::kNotFound) continue;  // removed meanwhile
      if (file.is_ok()) {
        auto head = read_head(**file, path);
        record.status = head.status();
        if (head.is_ok()) take(head->identity, head->info);
      }
    }
    found.push_back(std::move(record));
  }
  return found;
}

Result<std::string> ChunkStore::Impl::type_of(const std::string& path,
                                              std::span<const std::byte> identity,
                                              const RecordInfo& info) const {
  if (!options_.type_of) return std::string();
  auto type = options_.type_of(identity, info);
  if (type.is_ok()) return type;
  return Status(type.status().code(), path + ": " + type.status().message());
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

bool VerifyReport::Bad::is_damaged() const {
  return status.code() == StatusCode::kCorrupt || status.code() == StatusCode::kInvalidArgument;
}

Status ChunkStore::Impl::verify_record(const std::string& name, uint64_t& bytes) {
  const std::string path = join_path(options_.dir, name);
  WEFT_ASSIGN_OR_RETURN(const auto file, env_.open_read(path, Links::kRefuse));
  bytes = file->size_bytes();
  WEFT_ASSIGN_OR_RETURN(const RecordHead head, read_head(*file, path));
  if (record_file_name(hash128(head.identity)) != name) {
    return corrupt(path + ": holds another chunk's record than its name says");
  }
  WEFT_RETURN_IF_ERROR(type_of(path, head.identity, head.info).status());
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

Status ChunkStore::Impl::remove(const Hash128& hash, Durable durable) {
  WEFT_RETURN_IF_ERROR(check_writable("remove a record"));
  bool was_there = false;
  {
    WEFT_ASSIGN_OR_RETURN(const auto change, FolderChange::begin(*this, /*refresh=*/false));
    const IndexPin entry = index_.find(hash);
    was_there = entry && entry->copy;
    if (was_there) index_.set_copy(entry, nullptr);
    WEFT_ASSIGN_OR_RETURN(const bool was_on_disk, remove_file(hash));
    was_there = was_there || was_on_disk;
  }
  // Sync even if the record was gone already: whoever removed it (an eviction, a process that died)
  // may not have made that durable.
  if (durable == Durable::kNow) WEFT_RETURN_IF_ERROR(sync());
  if (was_there) return Status::ok();
  return not_found(fmt::format("{}: no record {}", options_.dir, hash.to_hex()));
}

Result<bool> ChunkStore::Impl::remove_damaged(const Hash128& hash) {
  WEFT_RETURN_IF_ERROR(check_writable("remove a record"));
  WEFT_ASSIGN_OR_RETURN(const auto change, FolderChange::begin(*this, /*refresh=*/false));
  const std::string name = record_file_name(hash);
  uint64_t bytes = 0;
  if (!VerifyReport::Bad{name, verify_record(name, bytes)}.is_damaged()) return false;
  if (const IndexPin entry = index_.find(hash); entry && entry->copy) {
    index_.set_copy(entry, nullptr);
  }
  return remove_file(hash);
}

Status ChunkStore::Impl::clear() {
  WEFT_RETURN_IF_ERROR(check_writable("remove records"));
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
  WEFT_ASSIGN_OR_RETURN(const std::string text,
                        read_file(env_, path, kMaxPropertiesBytes, Links::kRefuse));
  auto properties = decode_properties(text, path);
  if (properties.status().code() != StatusCode::kCorrupt) return properties;
  return corrupt(properties.status().message() +
                 "; without this file, weft ingest -m MODEL makes a new one");
}

Status ChunkStore::Impl::note_private() {
  return edit_properties(
      [](Properties& properties) { properties[kModesProperty] = kModesPrivate; });
}

Status ChunkStore::Impl::edit_properties(FunctionRef<void(Properties&)> edit) {
  WEFT_RETURN_IF_ERROR(check_writable("set a property"));
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
  return write_file_durably(env_, join_path(options_.dir, kPropertiesFile), text,
                            {.links = Links::kRefuse,
                             .mode = kPrivateFileMode,
                             .temporary_path = temp_files_->next_path()});
}

}  // namespace weft::store
