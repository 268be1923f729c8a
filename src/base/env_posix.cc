#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/env.h"
#include "base/mapped_guard.h"

namespace weft {
namespace {

/// errno as a Status that names the path and what was tried.
Status errno_status(const char* what, const std::string& path) {
  const int error = errno;
  const std::string message =
      fmt::format("{}: cannot {}: {}", path, what, std::generic_category().message(error));
  if (error == ENOENT || error == ENOTDIR) return not_found(message);
  if (error == ENOSPC || error == EDQUOT || error == EMFILE || error == ENOMEM) {
    return resource_exhausted(message);
  }
  return io_error(message);
}

/// A file descriptor that closes itself.
class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

class PosixReadFile : public ReadFile {
 public:
  PosixReadFile(Fd fd, std::string path, uint64_t size_bytes)
      : fd_(std::move(fd)), path_(std::move(path)), size_bytes_(size_bytes) {}

  uint64_t size_bytes() const override { return size_bytes_; }

  Status read_at(uint64_t offset, std::span<std::byte> out) const override {
    while (!out.empty()) {
      const ssize_t n = ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno_status("read", path_);
      if (n == 0) {
        return corrupt(
            fmt::format("{}: ends at byte {}, {} more expected", path_, offset, out.size()));
      }
      out = out.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
    return Status::ok();
  }

 private:
  Fd fd_;
  std::string path_;
  uint64_t size_bytes_;
};

class PosixWriteFile : public WriteFile {
 public:
  PosixWriteFile(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Status append(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_.get(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno_status("write", path_);
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return Status::ok();
  }

  Status sync() override {
    return ::fdatasync(fd_.get()) == 0 ? Status::ok() : errno_status("sync", path_);
  }

  Status close() override {
    return ::close(fd_.release()) == 0 ? Status::ok() : errno_status("close", path_);
  }

 private:
  Fd fd_;
  std::string path_;
};

class PosixMappedFile : public MappedFile {
 public:
  PosixMappedFile(void* address, size_t size_bytes, const std::string& path)
      : address_(address), size_bytes_(size_bytes), guard_(address, size_bytes, path) {}
  ~PosixMappedFile() override {
    if (size_bytes_ > 0) ::munmap(address_, size_bytes_);
  }
  std::span<const std::byte> bytes() const override {
    return {static_cast<const std::byte*>(address_), size_bytes_};
  }

 private:
  void* address_;
  size_t size_bytes_;
  MappedGuard guard_;
};

class PosixFileLock : public FileLock {
 public:
  explicit PosixFileLock(Fd fd) : fd_(std::move(fd)) {}

 private:
  Fd fd_;  // closing it gives the lock back
};

DirEntry to_entry(std::string name, const struct stat& info) {
  return {std::move(name), S_ISDIR(info.st_mode), static_cast<uint64_t>(info.st_size),
          info.st_mtim.tv_sec * 1'000'000'000LL + info.st_mtim.tv_nsec};
}

class PosixEnv : public Env {
 public:
  Result<std::unique_ptr<ReadFile>> open_read(const std::string& path) override {
    WEFT_ASSIGN_OR_RETURN(auto opened, open_regular(path));
    return std::unique_ptr<ReadFile>(
        std::make_unique<PosixReadFile>(std::move(opened.first), path, opened.second));
  }

  Result<std::unique_ptr<WriteFile>> create(const std::string& path) override {
    Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (fd.get() < 0) return errno_status("create", path);
    return std::unique_ptr<WriteFile>(std::make_unique<PosixWriteFile>(std::move(fd), path));
  }

  Result<std::unique_ptr<MappedFile>> map(const std::string& path) override {
    WEFT_ASSIGN_OR_RETURN(auto opened, open_regular(path));
    const auto size = static_cast<size_t>(opened.second);
    void* address = nullptr;
    if (size > 0) {
      address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, opened.first.get(), 0);
      if (address == MAP_FAILED) return errno_status("map", path);
    }
    return std::unique_ptr<MappedFile>(std::make_unique<PosixMappedFile>(address, size, path));
  }

  bool exists(const std::string& path) override { return ::access(path.c_str(), F_OK) == 0; }

  Result<DirEntry> stat(const std::string& path) override {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) return errno_status("stat", path);
    return to_entry(path, info);
  }

  Result<std::vector<DirEntry>> list(const std::string& dir) override {
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(dir.c_str()), ::closedir);
    if (!stream) return errno_status("list", dir);
    std::vector<DirEntry> entries;
    while (const dirent* item = ::readdir(stream.get())) {  // NOLINT(concurrency-mt-unsafe)
      const std::string name = item->d_name;
      if (name == "." || name == "..") continue;
      struct stat info {};
      if (::fstatat(::dirfd(stream.get()), item->d_name, &info, 0) != 0)
        continue;  // gone meanwhile
      entries.push_back(to_entry(name, info));
    }
    std::sort(entries.begin(), entries.end(),
              [](const DirEntry& a, const DirEntry& b) { return a.name < b.name; });
    return entries;
  }

  Status make_dirs(const std::string& dir) override {
    std::error_code error;
    std::filesystem::create_directories(dir, error);
    if (error)
      return io_error(fmt::format("{}: cannot create the folder: {}", dir, error.message()));
    return Status::ok();
  }

  Status rename(const std::string& from, const std::string& to) override {
    return ::rename(from.c_str(), to.c_str()) == 0 ? Status::ok() : errno_status("rename", from);
  }

  Status remove(const std::string& path) override {
    return ::unlink(path.c_str()) == 0 ? Status::ok() : errno_status("remove", path);
  }

  Status set_modified(const std::string& path, int64_t modified_ns) override {
    timespec times[2] = {};
    times[0].tv_nsec = UTIME_OMIT;
    times[1].tv_sec = modified_ns / 1'000'000'000;
    times[1].tv_nsec = modified_ns % 1'000'000'000;
    return ::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0
               ? Status::ok()
               : errno_status("set the time of", path);
  }

  Status sync_dir(const std::string& dir) override {
    const Fd fd(::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd.get() < 0) return errno_status("open", dir);
    return ::fsync(fd.get()) == 0 ? Status::ok() : errno_status("sync", dir);
  }

  Status drop_page_cache(const std::string& path) override {
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (fd.get() < 0) return errno_status("open", path);
    const bool dropped =
        ::fdatasync(fd.get()) == 0 && ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED) == 0;
    return dropped ? Status::ok() : errno_status("drop from the page cache", path);
  }

  Result<uint64_t> free_bytes(const std::string& dir) override {
    struct statvfs info {};
    if (::statvfs(dir.c_str(), &info) != 0) return errno_status("look at the free space of", dir);
    return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
  }

  Result<std::unique_ptr<FileLock>> lock(const std::string& path, bool exclusive,
                                         bool wait) override {
    Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (fd.get() < 0) return errno_status("open", path);
    const int operation = (exclusive ? LOCK_EX : LOCK_SH) | (wait ? 0 : LOCK_NB);
    while (::flock(fd.get(), operation) != 0) {
      if (errno == EINTR) continue;
      if (errno == EWOULDBLOCK) return resource_exhausted(path + ": locked by another process");
      return errno_status("lock", path);
    }
    return std::unique_ptr<FileLock>(std::make_unique<PosixFileLock>(std::move(fd)));
  }

  int64_t monotonic_ns() override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  int64_t unix_ms() override {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }

 private:
  static Result<std::pair<Fd, uint64_t>> open_regular(const std::string& path) {
    Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a FIFO must not block us
    if (fd.get() < 0) return errno_status("open", path);
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) return errno_status("stat", path);
    if (!S_ISREG(info.st_mode)) return io_error(path + ": not a regular file");
    return std::pair{std::move(fd), static_cast<uint64_t>(info.st_size)};
  }
};

}  // namespace

Env& posix_env() {
  static PosixEnv env;
  return env;
}

Result<std::string> read_file(Env& env, const std::string& path, uint64_t limit_bytes) {
  WEFT_ASSIGN_OR_RETURN(const auto file, env.open_read(path));
  if (file->size_bytes() > limit_bytes) {
    return resource_exhausted(fmt::format("{}: {} bytes, over the limit of {} bytes", path,
                                          file->size_bytes(), limit_bytes));
  }
  std::string text(static_cast<size_t>(file->size_bytes()), '\0');
  WEFT_RETURN_IF_ERROR(file->read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

std::string join_path(const std::string& a, const std::string& b) {
  if (a.empty() || a.back() == '/') return a + b;
  return a + "/" + b;
}

}  // namespace weft
