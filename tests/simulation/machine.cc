#include "simulation/machine.h"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace weft::sim {
namespace {

constexpr int64_t kBeginNs = 1'795'000'000'000'000'000;  // in November 2026
constexpr int64_t kTickNs = 10'000;                      // what one call takes
constexpr int64_t kWaitTicks = 1000;                     // 10 ms
/// The kernel's own times of modification are as coarse as its timer.
constexpr int64_t kKernelTickNs = 4'000'000;

thread_local int turns_thread = -1;  // in Machine::Turns

}  // namespace

// --------------------------------------------------------------------------------------- Machine

Machine::Machine(uint64_t seed) : disk_(posix_env()) {
  ticks_ = static_cast<int64_t>(seed % 1000) * 37;
}

Status Machine::restart(test::Survives survives, uint64_t seed) {
  WEFT_RETURN_IF_ERROR(disk_.restart(survives, seed));
  WEFT_RETURN_IF_ERROR(database_disk_.restart(survives, seed + 1));
  limit_disk(std::nullopt);
  has_power_ = true;
  return Status::ok();
}

int64_t Machine::now_ns() { return kBeginNs + clock_offset_ms_ * 1'000'000 + ++ticks_ * kTickNs; }

int64_t Machine::monotonic_ns() { return ++ticks_ * kTickNs; }

void Machine::stamp(const std::string& path) {
  const int64_t now = now_ns();
  (void)posix_env().set_modified(path, now - now % kKernelTickNs);
}

void Machine::stamp_folder_of(const std::string& path) {
  stamp(std::filesystem::path(path).parent_path().string());
}

void Machine::limit_disk(std::optional<uint64_t> free_bytes) {
  disk_.limit_disk(free_bytes);
  const std::lock_guard lock(mutex_);
  free_bytes_ = free_bytes;
}

bool Machine::take_disk(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!free_bytes_) return true;
  if (bytes > *free_bytes_) return false;
  *free_bytes_ -= bytes;
  return true;
}

// ----------------------------------------------------------------------------------------- Turns

Machine::Turns::Turns(Machine& machine, uint64_t seed) : machine_(machine), random_(seed) {
  machine_.turns_ = this;
}

Machine::Turns::~Turns() { machine_.turns_ = nullptr; }

void Machine::Turns::begin(int thread) {
  turns_thread = thread;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return turn_ == thread || ended_[1 - thread]; });
}

void Machine::Turns::end() {
  const std::lock_guard lock(mutex_);
  ended_[turns_thread] = true;
  turns_thread = -1;
  changed_.notify_all();
}

void Machine::Turns::hand_over(std::unique_lock<std::mutex>& lock) {
  const int me = turns_thread;
  if (ended_[1 - me]) return;
  turn_ = 1 - me;
  // Mostly a few calls; sometimes as many as a whole transaction takes.
  quantum_ = random_() % (random_() % 4 == 0 ? 200 : 12);
  changed_.notify_all();
  changed_.wait(lock, [&] { return turn_ == me || ended_[1 - me]; });
}

void Machine::Turns::switch_point() {
  if (turns_thread < 0) return;
  std::unique_lock lock(mutex_);
  if (quantum_ > 0) {
    --quantum_;
    return;
  }
  hand_over(lock);
}

void Machine::Turns::wait_point() {
  if (turns_thread < 0) return;
  std::unique_lock lock(mutex_);
  hand_over(lock);
}

// --------------------------------------------------------------------------------------- Process

void Process::arm(Fault fault) {
  const std::lock_guard lock(mutex_);
  fault_ = fault;
  fault_call_ = changes_ + fault.at;
  has_failed_ = false;
}

Status Process::look(const std::string& path) {
  if (machine_.turns_ != nullptr) machine_.turns_->switch_point();
  ++machine_.ticks_;
  if (!machine_.has_power_) return io_error(path + ": the power is cut");
  return is_alive_ ? Status::ok() : io_error(path + ": the process was killed");
}

Status Process::change(const std::string& path, bool* torn) {
  WEFT_RETURN_IF_ERROR(look(path));
  if (is_read_only_) return io_error(path + ": Read-only file system");
  ++machine_.calls_;
  const std::lock_guard lock(mutex_);
  const uint64_t call = changes_++;
  if (fault_.kind == Fault::kNone || call != fault_call_) return Status::ok();
  has_failed_ = true;
  switch (fault_.kind) {
    case Fault::kFailCall:
      return io_error(path + ": injected failure");
    case Fault::kFullCall:
      return resource_exhausted(path + ": injected: no space left on device");
    case Fault::kKill:
      is_alive_ = false;
      break;
    default:
      machine_.has_power_ = false;
  }
  if (torn != nullptr) *torn = true;
  return io_error(path + ": the process ends here");
}

void Process::wait() {
  machine_.ticks_ += kWaitTicks;
  if (machine_.turns_ != nullptr) machine_.turns_->wait_point();
}

class Process::SimReadFile : public ReadFile {
 public:
  SimReadFile(Process& process, std::string path, std::unique_ptr<ReadFile> file)
      : process_(process), path_(std::move(path)), file_(std::move(file)) {}
  uint64_t size_bytes() const override { return file_->size_bytes(); }
  Status read_at(uint64_t offset, std::span<std::byte> out) const override {
    WEFT_RETURN_IF_ERROR(process_.look(path_));
    return file_->read_at(offset, out);
  }

 private:
  Process& process_;
  const std::string path_;
  const std::unique_ptr<ReadFile> file_;
};

class Process::SimWriteFile : public WriteFile {
 public:
  SimWriteFile(Process& process, std::string path, std::unique_ptr<WriteFile> file)
      : process_(process), path_(std::move(path)), file_(std::move(file)) {}

  Status append(std::span<const std::byte> bytes) override {
    bool torn = false;
    const Status status = process_.change(path_, &torn);
    if (torn) (void)file_->append(bytes.first(bytes.size() / 2));
    WEFT_RETURN_IF_ERROR(status);
    return file_->append(bytes);
  }
  Status sync() override {
    WEFT_RETURN_IF_ERROR(process_.change(path_));
    return process_.machine_.syncs_lie_ ? Status::ok() : file_->sync();
  }
  Status close() override {
    WEFT_RETURN_IF_ERROR(process_.look(path_));
    const Status closed = file_->close();
    process_.machine_.stamp(path_);
    return closed;
  }

 private:
  Process& process_;
  const std::string path_;
  const std::unique_ptr<WriteFile> file_;
};

Result<std::unique_ptr<ReadFile>> Process::open_read(const std::string& path, Links links) {
  WEFT_RETURN_IF_ERROR(look(path));
  WEFT_ASSIGN_OR_RETURN(auto file, machine_.disk_.open_read(path, links));
  return std::unique_ptr<ReadFile>(std::make_unique<SimReadFile>(*this, path, std::move(file)));
}

Result<std::unique_ptr<WriteFile>> Process::create(const std::string& path, CreateOptions options) {
  WEFT_RETURN_IF_ERROR(change(path));
  note_own_change();
  WEFT_ASSIGN_OR_RETURN(auto file, machine_.disk_.create(path, options));
  machine_.stamp_folder_of(path);
  return std::unique_ptr<WriteFile>(std::make_unique<SimWriteFile>(*this, path, std::move(file)));
}

Result<std::unique_ptr<MappedFile>> Process::map(const std::string& path) {
  WEFT_RETURN_IF_ERROR(look(path));
  return machine_.disk_.map(path);
}

bool Process::exists(const std::string& path) {
  return look(path).is_ok() && machine_.disk_.exists(path);
}

Result<DirEntry> Process::stat(const std::string& path) {
  WEFT_RETURN_IF_ERROR(look(path));
  return machine_.disk_.stat(path);
}

Result<DirEntry> Process::stat_link(const std::string& path) {
  WEFT_RETURN_IF_ERROR(look(path));
  return machine_.disk_.stat_link(path);
}

Result<std::string> Process::resolve(const std::string& path) {
  WEFT_RETURN_IF_ERROR(look(path));
  return machine_.disk_.resolve(path);
}

Result<std::vector<DirEntry>> Process::list(const std::string& dir, BrokenLinks) {
  WEFT_RETURN_IF_ERROR(look(dir));
  return machine_.disk_.list(dir);
}

Status Process::make_dirs(const std::string& dir, std::optional<uint32_t> mode) {
  WEFT_RETURN_IF_ERROR(change(dir));
  const bool is_new = !machine_.disk_.exists(dir);
  WEFT_RETURN_IF_ERROR(machine_.disk_.make_dirs(dir, mode));
  if (is_new) {
    machine_.stamp(dir);
    machine_.stamp_folder_of(dir);
  }
  return Status::ok();
}

Result<std::string> Process::make_temporary_dir(const std::string& prefix) {
  WEFT_RETURN_IF_ERROR(change(prefix));
  WEFT_ASSIGN_OR_RETURN(std::string path, machine_.disk_.make_temporary_dir(prefix));
  machine_.stamp_folder_of(path);
  return path;
}

Status Process::rename(const std::string& from, const std::string& to) {
  WEFT_RETURN_IF_ERROR(change(from));
  note_own_change();
  WEFT_RETURN_IF_ERROR(machine_.disk_.rename(from, to));
  machine_.stamp_folder_of(from);
  machine_.stamp_folder_of(to);
  return Status::ok();
}

Status Process::rename_to_new(const std::string& from, const std::string& to) {
  WEFT_RETURN_IF_ERROR(change(from));
  note_own_change();
  WEFT_RETURN_IF_ERROR(machine_.disk_.rename_to_new(from, to));
  machine_.stamp_folder_of(from);
  machine_.stamp_folder_of(to);
  return Status::ok();
}

Status Process::remove(const std::string& path) {
  WEFT_RETURN_IF_ERROR(change(path));
  note_own_change();
  WEFT_RETURN_IF_ERROR(machine_.disk_.remove(path));
  machine_.stamp_folder_of(path);
  return Status::ok();
}

Status Process::set_mode(const std::string& path, uint32_t mode) {
  WEFT_RETURN_IF_ERROR(change(path));
  return machine_.disk_.set_mode(path, mode);
}

Status Process::set_modified(const std::string& path, int64_t modified_ns) {
  WEFT_RETURN_IF_ERROR(change(path));
  return machine_.disk_.set_modified(path, modified_ns);
}

Status Process::sync_dir(const std::string& dir) {
  WEFT_RETURN_IF_ERROR(change(dir));
  if (machine_.syncs_lie_ || is_observer_) return Status::ok();
  WEFT_RETURN_IF_ERROR(machine_.disk_.sync_dir(dir));
  machine_.database_disk_.sync_folder(dir);
  return Status::ok();
}

Status Process::drop_page_cache(const std::string& path) {
  WEFT_RETURN_IF_ERROR(look(path));
  return machine_.disk_.drop_page_cache(path);
}

Result<uint64_t> Process::free_bytes(const std::string& dir) {
  WEFT_RETURN_IF_ERROR(look(dir));
  return machine_.disk_.free_bytes(dir);
}

Result<std::unique_ptr<FileLock>> Process::lock(const std::string& path, bool exclusive,
                                                const LockWait& wait_for) {
  constexpr int64_t kWaitMs = kWaitTicks * kTickNs / 1'000'000;
  for (int64_t waited_ms = 0;; waited_ms += kWaitMs) {
    WEFT_RETURN_IF_ERROR(change(path));
    const bool is_new = !machine_.disk_.exists(path);
    auto lock = machine_.disk_.lock(path, exclusive, {});
    if (lock.is_ok() && is_new) machine_.stamp_folder_of(path);
    const bool is_held = lock.status().code() == StatusCode::kResourceExhausted;
    if (!is_held || waited_ms >= wait_for.limit_ms) return lock;
    if (wait_for.cancelled && wait_for.cancelled()) return cancelled(path + ": stopped waiting");
    wait();
  }
}

}  // namespace weft::sim
