// The chunk store's folder: who changed it, room in it, what is in it, its properties.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <unordered_set>

#include "base/log.h"
#include "store/chunk_store_internal.h"

namespace weft::store {
namespace {

constexpr const char* kPropertiesFile = "properties";
constexpr const char* kTempFolder = "tmp";

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

}  // namespace weft::store
