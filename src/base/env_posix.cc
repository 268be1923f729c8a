// The rules of all of it: a call that a signal came into is made again, since that must not look
// like a disk's error; a file is opened O_NONBLOCK, as a path from outside may be a FIFO that
// nobody writes to, and O_CLOEXEC, as a child (pip) must not inherit a lock; an error names the
// path and what was tried.
#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>
#include <thread>

#include "base/env.h"
#include "base/lock_holder.h"
#include "base/mapped_guard.h"

namespace weft {
namespace {

/// errno as a Status that names the path and what was tried.
Status errno_status(const char* what, const std::string& path) {
  const int error = errno;
  const std::string message =
      fmt::format("{}: cannot {}: {}", path, what, std::generic_category().message(error));
  if (error == ENOENT || error == ENOTDIR) return not_found(message);
  if (error == EEXIST) return already_exists(message);
  if (error == EFBIG) {
    return resource_exhausted(
        message + "; a limit on the size of files (ulimit -f), or that of the file system");
  }
  if (error == ENOSPC || error == EDQUOT || error == EMFILE || error == ENOMEM) {
    return resource_exhausted(message);
  }
  return io_error(message);
}

Status not_regular(const std::string& path) {
  return invalid_argument(path + ": not a regular file");
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
      const ssize_t n = ::pread(fd_.get(), out.data(), out.size(), offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno_status("read", path_);
      if (n == 0) {
        return corrupt(
            fmt::format("{}: ends at byte {}, {} more expected", path_, offset, out.size()));
      }
      out = out.subspan(n);
      offset += n;
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
      bytes = bytes.subspan(n);
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
  Fd fd_;  // closing it releases the lock
};

/// A file's times may be any: those outside the years 1970 to 2262 become the nearest.
int64_t to_ns(const timespec& time) {
  constexpr int64_t kSecond = 1'000'000'000;
  if (time.tv_sec < 0) return 0;
  if (time.tv_sec >= std::numeric_limits<int64_t>::max() / kSecond) {
    return std::numeric_limits<int64_t>::max();
  }
  return time.tv_sec * kSecond + time.tv_nsec;
}

DirEntry to_entry(std::string name, const struct stat& info) {
  return {.name = std::move(name),
          .is_directory = S_ISDIR(info.st_mode),
          .is_regular = S_ISREG(info.st_mode),
          .is_link = S_ISLNK(info.st_mode),
          .n_names = info.st_nlink,
          .mode = info.st_mode & 07777,
          .size_bytes = static_cast<uint64_t>(info.st_size),
          .modified_ns = to_ns(info.st_mtim)};
}

bool is_link(const dirent& item, int folder_fd) {
  if (item.d_type != DT_UNKNOWN) return item.d_type == DT_LNK;
  struct stat info {};
  return ::fstatat(folder_fd, item.d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISLNK(info.st_mode);
}

class PosixEnv : public Env {
 public:
  using Env::create;
  using Env::list;
  using Env::make_dirs;
  using Env::open_read;

  Result<std::unique_ptr<ReadFile>> open_read(const std::string& path, Links links) override {
    WEFT_ASSIGN_OR_RETURN(auto opened, open_regular(path, links));
    return std::unique_ptr<ReadFile>(
        std::make_unique<PosixReadFile>(std::move(opened.first), path, opened.second));
  }

  Result<std::unique_ptr<WriteFile>> create(const std::string& path,
                                            CreateOptions options) override {
    const mode_t mode = options.mode.value_or(0644);  // never wider, also before fchmod
    const bool is_new = options.mode && (options.exclusive || !exists(path));
    // A FIFO must not block us, a terminal not become ours, and nothing is lost of what is refused.
    Fd fd(::open(path.c_str(),
                 O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW |
                     (options.exclusive ? O_EXCL : 0),
                 mode));
    if (fd.get() < 0 && errno == ELOOP) {
      return invalid_argument(path + ": a symbolic link, which is not followed here");
    }
    if (fd.get() < 0 && errno == ENXIO) return not_regular(path);  // a FIFO that nobody reads
    if (fd.get() < 0) return errno_status("create", path);
    if (!options.exclusive) {
      struct stat info {};
      if (::fstat(fd.get(), &info) != 0) return errno_status("stat", path);
      if (!S_ISREG(info.st_mode)) return not_regular(path);
      if (::ftruncate(fd.get(), 0) != 0) return errno_status("empty", path);
    }
    if (is_new && ::fchmod(fd.get(), mode) != 0 && errno != EPERM) {
      return errno_status("set the mode of", path);  // EPERM: a file system without modes
    }
    return std::unique_ptr<WriteFile>(std::make_unique<PosixWriteFile>(std::move(fd), path));
  }

  Result<std::unique_ptr<MappedFile>> map(const std::string& path) override {
    WEFT_ASSIGN_OR_RETURN(auto opened, open_regular(path, Links::kFollow));
    const size_t size = opened.second;
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

  Result<DirEntry> stat_link(const std::string& path) override {
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0) return errno_status("stat", path);
    return to_entry(path, info);
  }

  Result<std::string> resolve(const std::string& path) override {
    // The kernel's own walk first: it refuses links that others laid in a folder like /tmp.
    WEFT_RETURN_IF_ERROR(stat(path).status());
    std::error_code error;
    std::string resolved = std::filesystem::canonical(path, error).string();
    if (error) return io_error(fmt::format("{}: cannot resolve: {}", path, error.message()));
    return resolved;
  }

  Result<std::vector<DirEntry>> list(const std::string& dir, BrokenLinks broken) override {
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(dir.c_str()), ::closedir);
    if (!stream) return errno_status("list", dir);
    std::vector<DirEntry> entries;
    while (const dirent* item = ::readdir(stream.get())) {  // NOLINT(concurrency-mt-unsafe)
      const std::string name = item->d_name;
      if (name == "." || name == "..") continue;
      struct stat info {};
      const bool leads_somewhere = ::fstatat(::dirfd(stream.get()), item->d_name, &info, 0) == 0;
      const bool is_broken = !leads_somewhere && (errno == ENOENT || errno == ELOOP) &&
                             is_link(*item, ::dirfd(stream.get()));
      if (is_broken && broken == BrokenLinks::kList)
        entries.push_back({.name = name, .is_link = true});
      if (!leads_somewhere) continue;  // or gone meanwhile
      entries.push_back(to_entry(name, info));
      entries.back().is_link = is_link(*item, ::dirfd(stream.get()));
    }
    std::sort(entries.begin(), entries.end(),
              [](const DirEntry& a, const DirEntry& b) { return a.name < b.name; });
    return entries;
  }

  Status make_dirs(const std::string& dir, std::optional<uint32_t> mode) override {
    const auto path = (std::filesystem::path(dir) / "").parent_path();  // "a/b/" is "a/b"
    std::error_code error;
    if (mode && path.has_parent_path()) {
      std::filesystem::create_directories(path.parent_path(), error);
    } else if (!mode) {
      std::filesystem::create_directories(path, error);
    }
    if (error) {
      return io_error(fmt::format("{}: cannot create the folder: {}", dir, error.message()));
    }
    if (!mode) return Status::ok();
    if (::mkdir(path.c_str(), *mode) == 0) return undo_umask(path.string(), *mode);
    if (errno == EEXIST && std::filesystem::is_directory(path, error)) return Status::ok();
    return errno_status("create the folder", dir);
  }

  Result<std::string> make_temporary_dir(const std::string& prefix) override {
    std::string path = prefix + "XXXXXX";
    if (::mkdtemp(path.data()) == nullptr) return errno_status("create the folder", path);
    WEFT_RETURN_IF_ERROR(undo_umask(path, kPrivateDirMode));
    return path;
  }

  Status rename(const std::string& from, const std::string& to) override {
    return ::rename(from.c_str(), to.c_str()) == 0 ? Status::ok() : errno_status("rename", from);
  }

  Status rename_to_new(const std::string& from, const std::string& to) override {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) {
      return Status::ok();
    }
    if (errno != EINVAL && errno != ENOSYS) return errno_status("create", to);
    // A file system without it: a second name is never given over an existing one.
    if (::link(from.c_str(), to.c_str()) != 0) return errno_status("create", to);
    return remove(from);
  }

  Status remove(const std::string& path) override {
    return ::unlink(path.c_str()) == 0 ? Status::ok() : errno_status("remove", path);
  }

  Status set_mode(const std::string& path, uint32_t mode) override {
    return ::chmod(path.c_str(), mode) == 0 ? Status::ok() : errno_status("set the mode of", path);
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
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (fd.get() < 0) return errno_status("open", path);
    const bool dropped =
        ::fdatasync(fd.get()) == 0 && ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED) == 0;
    return dropped ? Status::ok() : errno_status("drop from the page cache", path);
  }

  Result<uint64_t> free_bytes(const std::string& dir) override {
    struct statvfs info {};
    if (::statvfs(dir.c_str(), &info) != 0) return errno_status("look at the free space of", dir);
    return uint64_t{info.f_bavail} * info.f_frsize;
  }

  Result<std::unique_ptr<FileLock>> lock(const std::string& path, bool exclusive,
                                         const LockWait& wait) override {
    // Asking again and again, not sleeping in flock: a signal would not end that (SA_RESTART).
    const int64_t end_ns = monotonic_ns() + wait.limit_ms * 1'000'000;
    std::chrono::microseconds pause(100);
    constexpr std::chrono::microseconds kLongestPause(20'000);
    while (true) {
      WEFT_ASSIGN_OR_RETURN(Fd fd, open_lock_file(path));
      if (::flock(fd.get(), (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0) {
        // A file that was removed meanwhile locks nothing: others lock the one that has the name.
        if (is_at(fd, path)) {
          return std::unique_ptr<FileLock>(std::make_unique<PosixFileLock>(std::move(fd)));
        }
      } else if (errno != EWOULDBLOCK && errno != EINTR) {
        return errno_status("lock", path);
      }
      if (wait.cancelled && wait.cancelled()) {
        return cancelled(
            fmt::format("{}: stopped waiting for {}, which holds this lock", path, holder_of(fd)));
      }
      if (monotonic_ns() >= end_ns) return still_locked(path, fd, wait);
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, kLongestPause);
    }
  }

  int64_t monotonic_ns() override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  int64_t core_wait_ns() override {
    // A line of each thread: ns on a core, ns waiting for one, how often (proc(5), schedstat).
    int64_t sum_ns = 0;
    std::error_code error;
    for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task", error)) {
      std::ifstream file(thread.path() / "schedstat");
      int64_t ran_ns = 0;
      int64_t waited_ns = 0;
      if (file >> ran_ns >> waited_ns) sum_ns += waited_ns;
    }
    return sum_ns;
  }

  int64_t unix_ms() override {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }

 private:
  /// Of what was just created; a file system without modes (EPERM) has done what it can.
  static Status undo_umask(const std::string& path, uint32_t mode) {
    if (::chmod(path.c_str(), mode) == 0 || errno == EPERM) return Status::ok();
    return errno_status("set the mode of", path);
  }

  /// Modes are set only of what is created here: any other file may be somebody's under another
  /// name (a hard link).
  static Result<Fd> open_lock_file(const std::string& path) {
    constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW;
    while (true) {
      Fd made(::open(path.c_str(), kFlags | O_CREAT | O_EXCL, kPrivateFileMode));
      if (made.get() >= 0) {
        (void)::fchmod(made.get(), kPrivateFileMode);  // whatever the umask
        return made;
      }
      if (errno != EEXIST) return errno_status("open", path);
      Fd fd(::open(path.c_str(), kFlags));
      if (fd.get() < 0 && errno == ENOENT) continue;  // removed meanwhile
      if (fd.get() < 0 && errno == ELOOP) {
        return invalid_argument(path + ": a symbolic link, not the file to lock");
      }
      if (fd.get() < 0) return errno_status("open", path);
      struct stat info {};
      if (::fstat(fd.get(), &info) != 0) return errno_status("stat", path);
      if (!S_ISREG(info.st_mode)) return not_regular(path);
      return fd;
    }
  }

  static bool is_at(const Fd& fd, const std::string& path) {
    struct stat opened {
    }, named{};
    return ::fstat(fd.get(), &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
           opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
  }

  static std::string holder_of(const Fd& fd) {
    struct stat info {};
    return ::fstat(fd.get(), &info) == 0 ? lock_holder(info.st_dev, info.st_ino)
                                         : "another process";
  }

  static Status still_locked(const std::string& path, const Fd& fd, const LockWait& wait) {
    if (wait.limit_ms == 0) {
      return resource_exhausted(fmt::format("{}: {} holds this lock", path, holder_of(fd)));
    }
    return resource_exhausted(
        fmt::format("{}: {} holds this lock, waited {:.3g} s; let it end, or end it, and try again",
                    path, holder_of(fd), wait.limit_ms * 1e-3));
  }

  static Result<std::pair<Fd, uint64_t>> open_regular(const std::string& path, Links links) {
    const int no_follow = links == Links::kRefuse ? O_NOFOLLOW : 0;
    // A FIFO must not block us, a terminal not become ours.
    Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | no_follow));
    if (fd.get() < 0 && errno == ELOOP && no_follow != 0) {
      return invalid_argument(path + ": a symbolic link, which is not followed here");
    }
    if (fd.get() < 0) return errno_status("open", path);
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) return errno_status("stat", path);
    if (!S_ISREG(info.st_mode)) return not_regular(path);
    return std::pair<Fd, uint64_t>(std::move(fd), info.st_size);
  }
};

}  // namespace

Env& posix_env() {
  static PosixEnv env;
  return env;
}

Result<std::string> read_file(Env& env, const std::string& path, uint64_t limit_bytes,
                              Links links) {
  WEFT_ASSIGN_OR_RETURN(const auto file, env.open_read(path, links));
  if (file->size_bytes() > limit_bytes) {
    return resource_exhausted(fmt::format("{}: {} bytes, over the limit of {} bytes", path,
                                          file->size_bytes(), limit_bytes));
  }
  std::string text(file->size_bytes(), '\0');
  WEFT_RETURN_IF_ERROR(file->read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

std::string unguessable_hex() {
  uint64_t number = 0;
  while (::getrandom(&number, sizeof(number), 0) != sizeof(number)) {
    WEFT_CHECK(errno == EINTR);  // eight bytes of an initialised pool: the call cannot fail else
  }
  return fmt::format("{:016x}", number);
}

std::string join_path(const std::string& a, const std::string& b) {
  if (a.empty() || a.back() == '/') return a + b;
  return a + "/" + b;
}

}  // namespace weft
