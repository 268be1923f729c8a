#include "support/fault_env.h"

#include <algorithm>
#include <filesystem>
#include <random>

namespace weft::test {
namespace {

constexpr uint64_t kContentLimitBytes = 256u << 20;

std::string folder_of(const std::string& path) {
  return std::filesystem::path(path).lexically_normal().parent_path().string();
}

std::string normal_folder(const std::string& dir) {
  return (std::filesystem::path(dir).lexically_normal() / "").parent_path().string();
}

}  // namespace

class FaultEnv::FaultReadFile : public ReadFile {
 public:
  FaultReadFile(FaultEnv& env, std::string path, std::unique_ptr<ReadFile> file)
      : env_(env), path_(std::move(path)), file_(std::move(file)) {}
  uint64_t size_bytes() const override { return file_->size_bytes(); }
  Status read_at(uint64_t offset, std::span<std::byte> out) const override {
    WEFT_RETURN_IF_ERROR(env_.count_call(path_));
    WEFT_RETURN_IF_ERROR(file_->read_at(offset, out));
    const std::lock_guard lock(env_.mutex_);
    const auto [first, last] = env_.damages_.equal_range(path_);
    for (auto it = first; it != last; ++it) {
      const Damage& damage = it->second;
      if (damage.offset < offset || damage.offset - offset >= out.size()) continue;
      out[damage.offset - offset] ^= damage.mask;
    }
    return Status::ok();
  }

 private:
  FaultEnv& env_;
  const std::string path_;
  const std::unique_ptr<ReadFile> file_;
};

class FaultEnv::FaultWriteFile : public WriteFile {
 public:
  FaultWriteFile(FaultEnv& env, std::string path, std::unique_ptr<WriteFile> file)
      : env_(env), path_(std::move(path)), file_(std::move(file)) {}

  Status append(std::span<const std::byte> bytes) override {
    if (Status status = env_.count_call(path_); !status.is_ok()) {
      (void)write(bytes.first(bytes.size() / 2));
      return status;
    }
    {
      const std::lock_guard lock(env_.mutex_);
      if (env_.free_bytes_ && bytes.size() > *env_.free_bytes_) {
        (void)write(bytes.first(*env_.free_bytes_));
        env_.free_bytes_ = 0;
        return resource_exhausted(path_ + ": cannot write: No space left on device");
      }
      if (env_.free_bytes_) *env_.free_bytes_ -= bytes.size();
    }
    return write(bytes);
  }
  Status sync() override {
    WEFT_RETURN_IF_ERROR(env_.count_call(path_));
    const std::lock_guard lock(env_.mutex_);
    env_.synced_bytes_[path_] = written_;
    return Status::ok();
  }
  Status close() override {
    WEFT_RETURN_IF_ERROR(env_.count_call(path_));
    return file_->close();
  }

 private:
  Status write(std::span<const std::byte> bytes) {
    written_ += bytes.size();
    return file_->append(bytes);
  }

  FaultEnv& env_;
  const std::string path_;
  const std::unique_ptr<WriteFile> file_;
  uint64_t written_ = 0;
};

uint64_t FaultEnv::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

void FaultEnv::fail_call(uint64_t index, StatusCode code) {
  const std::lock_guard lock(mutex_);
  failing_calls_[index] = code;
}

void FaultEnv::cut_power_at(uint64_t index) {
  const std::lock_guard lock(mutex_);
  cut_at_ = index;
}

void FaultEnv::limit_disk(std::optional<uint64_t> free_bytes) {
  const std::lock_guard lock(mutex_);
  free_bytes_ = free_bytes;
}

void FaultEnv::damage_reads(const std::string& path, uint64_t offset, std::byte mask) {
  const std::lock_guard lock(mutex_);
  damages_.emplace(path, Damage{offset, mask});
}

Status FaultEnv::count_call(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const uint64_t index = calls_++;
  if (cut_at_ && index >= *cut_at_) return io_error(path + ": the power is cut");
  const auto failing = failing_calls_.find(index);
  if (failing == failing_calls_.end()) return Status::ok();
  return {failing->second, path + ": injected failure"};
}

Result<std::unique_ptr<ReadFile>> FaultEnv::open_read(const std::string& path, Links links) {
  WEFT_RETURN_IF_ERROR(count_call(path));
  WEFT_ASSIGN_OR_RETURN(auto file, base_.open_read(path, links));
  return std::unique_ptr<ReadFile>(std::make_unique<FaultReadFile>(*this, path, std::move(file)));
}

Result<std::unique_ptr<WriteFile>> FaultEnv::create(const std::string& path,
                                                    CreateOptions options) {
  WEFT_RETURN_IF_ERROR(count_call(path));
  const bool is_new = !base_.exists(path);
  WEFT_ASSIGN_OR_RETURN(auto file, base_.create(path, options));
  const std::lock_guard lock(mutex_);
  synced_bytes_[path] = 0;
  if (is_new) name_changes_.push_back({NameChange::kCreate, path, "", std::nullopt});
  return std::unique_ptr<WriteFile>(std::make_unique<FaultWriteFile>(*this, path, std::move(file)));
}

Result<std::unique_ptr<MappedFile>> FaultEnv::map(const std::string& path) {
  WEFT_RETURN_IF_ERROR(count_call(path));
  return base_.map(path);
}

bool FaultEnv::exists(const std::string& path) {
  return count_call(path).is_ok() && base_.exists(path);
}

Result<DirEntry> FaultEnv::stat(const std::string& path) {
  WEFT_RETURN_IF_ERROR(count_call(path));
  return base_.stat(path);
}

Result<DirEntry> FaultEnv::stat_link(const std::string& path) {
  WEFT_RETURN_IF_ERROR(count_call(path));
  return base_.stat_link(path);
}

Result<std::string> FaultEnv::resolve(const std::string& path) {
  WEFT_RETURN_IF_ERROR(count_call(path));
  return base_.resolve(path);
}

Result<std::vector<DirEntry>> FaultEnv::list(const std::string& dir, BrokenLinks broken) {
  WEFT_RETURN_IF_ERROR(count_call(dir));
  return base_.list(dir, broken);
}

Status FaultEnv::make_dirs(const std::string& dir, std::optional<uint32_t> mode) {
  WEFT_RETURN_IF_ERROR(count_call(dir));
  std::vector<std::string> made;  // deepest first
  for (auto level = std::filesystem::path(normal_folder(dir));
       level.has_relative_path() && !base_.exists(level.string()); level = level.parent_path()) {
    made.push_back(level.string());
  }
  WEFT_RETURN_IF_ERROR(base_.make_dirs(dir, mode));
  const std::lock_guard lock(mutex_);
  for (auto level = made.rbegin(); level != made.rend(); ++level) {
    name_changes_.push_back({NameChange::kMakeDir, *level, "", std::nullopt});
  }
  return Status::ok();
}

Result<std::string> FaultEnv::make_temporary_dir(const std::string& prefix) {
  WEFT_RETURN_IF_ERROR(count_call(prefix));
  WEFT_ASSIGN_OR_RETURN(std::string path, base_.make_temporary_dir(prefix));
  const std::lock_guard lock(mutex_);
  name_changes_.push_back({NameChange::kMakeDir, path, "", std::nullopt});
  return path;
}

Status FaultEnv::rename(const std::string& from, const std::string& to) {
  WEFT_RETURN_IF_ERROR(count_call(from));
  auto overwritten = content(to);
  WEFT_RETURN_IF_ERROR(base_.rename(from, to));
  note_rename(from, to, std::move(overwritten));
  return Status::ok();
}

Status FaultEnv::rename_to_new(const std::string& from, const std::string& to) {
  WEFT_RETURN_IF_ERROR(count_call(from));
  WEFT_RETURN_IF_ERROR(base_.rename_to_new(from, to));
  note_rename(from, to, std::nullopt);
  return Status::ok();
}

void FaultEnv::note_rename(const std::string& from, const std::string& to,
                           std::optional<Content> overwritten) {
  const std::lock_guard lock(mutex_);
  synced_bytes_.erase(to);
  if (auto node = synced_bytes_.extract(from)) {
    node.key() = to;
    synced_bytes_.insert(std::move(node));
  }
  name_changes_.push_back({NameChange::kRename, to, from, std::move(overwritten)});
}

Status FaultEnv::remove(const std::string& path) {
  WEFT_RETURN_IF_ERROR(count_call(path));
  auto old = content(path);
  WEFT_RETURN_IF_ERROR(base_.remove(path));
  const std::lock_guard lock(mutex_);
  if (free_bytes_ && old) *free_bytes_ += old->bytes.size();
  // A file that comes back from a power cut had only its synced bytes.
  if (const auto unsynced = synced_bytes_.find(path); unsynced != synced_bytes_.end()) {
    if (old) old->bytes.resize(std::min<uint64_t>(old->bytes.size(), unsynced->second));
    synced_bytes_.erase(unsynced);
  }
  name_changes_.push_back({NameChange::kRemove, path, "", std::move(old)});
  return Status::ok();
}

Status FaultEnv::set_mode(const std::string& path, uint32_t mode) {
  WEFT_RETURN_IF_ERROR(count_call(path));
  return base_.set_mode(path, mode);
}

Status FaultEnv::set_modified(const std::string& path, int64_t modified_ns) {
  WEFT_RETURN_IF_ERROR(count_call(path));
  return base_.set_modified(path, modified_ns);
}

Status FaultEnv::sync_dir(const std::string& dir) {
  WEFT_RETURN_IF_ERROR(count_call(dir));
  if (!base_.exists(dir)) return not_found(dir + ": no such folder");
  const std::lock_guard lock(mutex_);
  const std::string folder = normal_folder(dir);
  std::erase_if(name_changes_,
                [&](const NameChange& change) { return folder_of(change.path) == folder; });
  return Status::ok();
}

Result<uint64_t> FaultEnv::free_bytes(const std::string& dir) {
  WEFT_RETURN_IF_ERROR(count_call(dir));
  const std::lock_guard lock(mutex_);
  return free_bytes_ ? Result<uint64_t>(*free_bytes_) : base_.free_bytes(dir);
}

Result<std::unique_ptr<FileLock>> FaultEnv::lock(const std::string& path, bool exclusive,
                                                 const LockWait& wait) {
  WEFT_RETURN_IF_ERROR(count_call(path));
  return base_.lock(path, exclusive, wait);
}

// ------------------------------------------------------------------------------------- power cut

Status FaultEnv::restart(Survives survives, uint64_t seed) {
  const std::lock_guard lock(mutex_);
  std::mt19937_64 random(seed);
  size_t surviving_names = survives == Survives::kNothing ? 0 : name_changes_.size();
  if (survives == Survives::kSome) surviving_names = random() % (name_changes_.size() + 1);
  while (name_changes_.size() > surviving_names) {
    const NameChange change = std::move(name_changes_.back());
    name_changes_.pop_back();
    WEFT_RETURN_IF_ERROR(undo(change));
  }
  for (const auto& [path, synced_bytes] : synced_bytes_) {
    if (!base_.exists(path)) continue;
    const uint64_t fate = survives == Survives::kSome ? random() % 3 : 0;
    if (fate == 2) continue;  // written back by itself just in time
    const bool keep_size = survives == Survives::kNamesAndSizes || fate == 1;
    WEFT_RETURN_IF_ERROR(drop_unsynced(path, synced_bytes, keep_size));
  }
  synced_bytes_.clear();
  name_changes_.clear();
  failing_calls_.clear();
  damages_.clear();
  cut_at_.reset();
  free_bytes_.reset();
  return Status::ok();
}

Status FaultEnv::undo(const NameChange& change) {
  if (change.kind == NameChange::kMakeDir) {
    std::error_code error;
    std::filesystem::remove_all(change.path, error);
    return error ? io_error(change.path + ": " + error.message()) : Status::ok();
  }
  if (change.kind == NameChange::kCreate) {
    synced_bytes_.erase(change.path);
    return base_.exists(change.path) ? base_.remove(change.path) : Status::ok();
  }
  if (change.kind == NameChange::kRename && base_.exists(change.path)) {
    WEFT_RETURN_IF_ERROR(base_.rename(change.path, change.from));
    if (auto node = synced_bytes_.extract(change.path)) {
      node.key() = change.from;
      synced_bytes_.insert(std::move(node));
    }
  }
  return change.overwritten ? write_content(change.path, *change.overwritten) : Status::ok();
}

Status FaultEnv::drop_unsynced(const std::string& path, uint64_t synced_bytes, bool keep_size) {
  auto old = content(path);
  if (!old || old->bytes.size() <= synced_bytes) return Status::ok();
  const size_t size = old->bytes.size();
  old->bytes.resize(synced_bytes);
  if (keep_size) old->bytes.resize(size, '\0');
  return write_content(path, *old);
}

std::optional<FaultEnv::Content> FaultEnv::content(const std::string& path) {
  auto bytes = read_file(base_, path, kContentLimitBytes);
  const auto entry = base_.stat(path);
  if (!bytes.is_ok() || !entry.is_ok()) return std::nullopt;
  return Content{std::move(bytes).value(), entry->mode};
}

Status FaultEnv::write_content(const std::string& path, const Content& content) {
  WEFT_ASSIGN_OR_RETURN(const auto file, base_.create(path, {.mode = content.mode}));
  WEFT_RETURN_IF_ERROR(file->append(std::as_bytes(std::span(content.bytes))));
  return file->close();
}

}  // namespace weft::test
