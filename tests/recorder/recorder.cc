// A library to preload (LD_PRELOAD) that writes down every change which a process makes to files
// below one folder, and every sync, with the bytes: tests/recorder/log_format.h. The calls are done
// as they were asked for, and errors are not recorded, since they change nothing.
//
// WEFT_RECORD_ROOT: the folder, an absolute path without links. WEFT_RECORD_LOG: the file that
// frames are appended to, not below it. WEFT_RECORD_KILL_AFTER=N: the process is killed (SIGKILL)
// right after its Nth change took effect.
//
// A file is known by its inode, so what dup, fcntl or a rename do to its descriptors and names
// needs no recording. One lock is held from before a change until its frame is written, so the log
// has the order of the changes.
//
// It sees calls that go through the dynamic linker, as those of weft, SQLite and libstdc++ do. It
// does not see what the C library does inside itself (fopen, mkstemp, mkdtemp, tmpfile, aio), nor
// io_uring, raw syscall() and mprotect of a mapping; owners, modes and times are not recorded. The
// replay compares its end with the real folder, so that such a change below the root fails the test
// instead of being overlooked. sync_file_range promises nothing and counts for nothing.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "log_format.h"

namespace {

using weft::test::Event;
using weft::test::FrameHeader;

constexpr int kMaxParts = 64;  // of one writev
constexpr int kOwnParts = 3;   // header, path, other

struct Recorder {
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_once_t once = PTHREAD_ONCE_INIT;
  bool on = false;
  char root[PATH_MAX] = "";
  size_t root_bytes = 0;
  int log = -1;
  long changes_left = -1;  // until the process is killed; -1: it is not
};
Recorder g;

/// A path that is long enough for every one that the kernel takes.
struct Path {
  char text[2 * PATH_MAX] = "";
  bool is_inside() const {
    return strncmp(text, g.root, g.root_bytes) == 0 &&
           (text[g.root_bytes] == '/' || text[g.root_bytes] == '\0');
  }
};

[[noreturn]] void fail(const char* what) {
  const char* parts[] = {"recorder: ", what, "\n"};
  for (const char* part : parts) (void)!syscall(SYS_write, 2, part, strlen(part));
  abort();
}

void append_frame(Event event, const char* path, const char* other, uint64_t inode, int64_t offset,
                  const iovec* data, int n_data) {
  FrameHeader header{event, 0, 0, 0, inode, offset};
  header.path_bytes = static_cast<uint32_t>(strlen(path));
  header.other_bytes = static_cast<uint32_t>(strlen(other));
  iovec parts[kOwnParts + kMaxParts];
  parts[0] = {&header, sizeof(header)};
  parts[1] = {const_cast<char*>(path), header.path_bytes};
  parts[2] = {const_cast<char*>(other), header.other_bytes};
  for (int i = 0; i < n_data; ++i) {
    parts[kOwnParts + i] = data[i];
    header.data_bytes += static_cast<uint32_t>(data[i].iov_len);
  }
  const auto bytes = static_cast<long>(sizeof(header)) + header.path_bytes + header.other_bytes +
                     header.data_bytes;
  if (syscall(SYS_writev, g.log, parts, kOwnParts + n_data) != bytes) fail("cannot write the log");
}

void record(Event event, const char* path, const char* other = "", uint64_t inode = 0,
            int64_t offset = 0, const iovec* data = nullptr, int n_data = 0) {
  append_frame(event, path, other, inode, offset, data, n_data);
  if (g.changes_left > 0 && --g.changes_left == 0) syscall(SYS_kill, getpid(), SIGKILL);
}

void record_text(Event event, const char* path, const char* text, uint64_t inode = 0) {
  const iovec data{const_cast<char*>(text), strlen(text)};
  record(event, path, "", inode, 0, &data, 1);
}

void begin() {
  const char* root = getenv("WEFT_RECORD_ROOT");
  const char* log = getenv("WEFT_RECORD_LOG");
  if (root == nullptr || log == nullptr) return;
  g.root_bytes = strlen(root);
  if (g.root_bytes >= sizeof(g.root)) fail("WEFT_RECORD_ROOT is too long");
  memcpy(g.root, root, g.root_bytes + 1);
  const int low =
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_APPEND | O_CLOEXEC));
  if (low < 0) fail("cannot open WEFT_RECORD_LOG, which must be there");
  // Away from the numbers that a program may close or take for its own.
  g.log = static_cast<int>(syscall(SYS_fcntl, low, F_DUPFD_CLOEXEC, 200));
  syscall(SYS_close, low);
  if (g.log < 0) fail("no descriptor for the log");
  struct stat info {};
  if (stat(root, &info) != 0) fail("WEFT_RECORD_ROOT is not there");
  append_frame(Event::kRoot, root, "", info.st_ino, 0, nullptr, 0);
  if (const char* changes = getenv("WEFT_RECORD_KILL_AFTER")) g.changes_left = atol(changes);
  g.on = true;
}

/// Held around a change and its frame. Keeps errno as the change left it.
class Turn {
 public:
  Turn() {
    pthread_once(&g.once, begin);
    pthread_mutex_lock(&g.mutex);
  }
  ~Turn() {
    const int error = errno;
    pthread_mutex_unlock(&g.mutex);
    errno = error;
  }
};

/// Where a descriptor's file is; of one that was removed, where it was.
Path path_of(int fd) {
  Path path;
  char link[64];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const long n = syscall(SYS_readlinkat, AT_FDCWD, link, path.text, sizeof(path.text) - 1);
  path.text[n > 0 ? n : 0] = '\0';
  return path;
}

bool is_inside(int fd) {
  const int error = errno;
  const bool inside = g.on && path_of(fd).is_inside();
  errno = error;
  return inside;
}

/// The absolute path of a name, its folder's links resolved and its own not; empty where the folder
/// is not there.
Path path_of(int folder_fd, const char* name) {
  const int error = errno;
  Path given;
  Path full;
  size_t n = strnlen(name, PATH_MAX - 1);
  while (n > 1 && name[n - 1] == '/') --n;
  memcpy(given.text, name, n);
  given.text[n] = '\0';
  char* const slash = strrchr(given.text, '/');
  const char* last = slash == nullptr ? given.text : slash + 1;
  const char* folder = slash == nullptr ? "." : slash == given.text ? "/" : given.text;
  if (slash != nullptr) *slash = '\0';
  const int fd = static_cast<int>(
      syscall(SYS_openat, folder_fd, folder[0] == '\0' ? "/" : folder, O_PATH | O_CLOEXEC));
  if (fd >= 0) {
    full = path_of(fd);
    const size_t used = strlen(full.text);
    snprintf(full.text + used, sizeof(full.text) - used, "%s%s", used > 1 ? "/" : "", last);
    syscall(SYS_close, fd);
  }
  errno = error;
  return full;
}

uint64_t inode_of(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 ? info.st_ino : 0;
}

uint64_t inode_at(const char* path) {
  struct stat info {};
  return lstat(path, &info) == 0 ? info.st_ino : 0;
}

int do_open(int folder_fd, const char* name, int flags, mode_t mode) {
  const auto call = [&] {
    return static_cast<int>(syscall(SYS_openat, folder_fd, name, flags, mode));
  };
  if ((flags & (O_CREAT | O_TRUNC)) == 0 && (flags & O_TMPFILE) != O_TMPFILE) return call();
  const Turn turn;
  if (!g.on) return call();
  const int error = errno;
  struct stat before {};
  const bool was_there = fstatat(folder_fd, name, &before, 0) == 0;
  errno = error;
  const int fd = call();
  if (fd < 0) return fd;
  const Path path = path_of(fd);
  if (!path.is_inside()) return fd;
  if ((flags & O_TMPFILE) == O_TMPFILE) {
    record_text(Event::kUnrecorded, path.text, "O_TMPFILE");
  } else if (!was_there) {
    record(Event::kCreate, path.text, "", inode_of(fd));
  } else if ((flags & O_TRUNC) != 0) {
    record(Event::kTruncate, path.text, "", inode_of(fd), 0);
  }
  return fd;
}

/// `offset` below 0: where the descriptor is.
template <class Call>
ssize_t do_write(int fd, const iovec* parts, int n_parts, off_t offset, Call call) {
  const Turn turn;
  if (!is_inside(fd)) return call();
  struct stat info {};
  fstat(fd, &info);
  const bool appends = (syscall(SYS_fcntl, fd, F_GETFL) & O_APPEND) != 0;
  const off_t at = appends ? info.st_size : offset >= 0 ? offset : lseek(fd, 0, SEEK_CUR);
  const ssize_t written = call();
  if (written <= 0) return written;
  const Path path = path_of(fd);
  if (n_parts > kMaxParts) {
    record_text(Event::kUnrecorded, path.text, "writev of many parts");
    return written;
  }
  iovec data[kMaxParts];
  int n = 0;
  for (auto left = static_cast<size_t>(written); left > 0; ++n) {
    data[n] = {parts[n].iov_base, left < parts[n].iov_len ? left : parts[n].iov_len};
    left -= data[n].iov_len;
  }
  record(Event::kWrite, path.text, "", info.st_ino, at, data, n);
  return written;
}

template <class Call>
int do_sync(int fd, Call call) {
  const Turn turn;
  const int result = static_cast<int>(call());
  if (result == 0 && is_inside(fd)) record(Event::kSync, path_of(fd).text, "", inode_of(fd));
  return result;
}

int do_truncate(int fd, off_t size) {
  const Turn turn;
  const int result = static_cast<int>(syscall(SYS_ftruncate, fd, size));
  if (result == 0 && is_inside(fd)) {
    record(Event::kTruncate, path_of(fd).text, "", inode_of(fd), size);
  }
  return result;
}

int do_allocate(int fd, int mode, off_t offset, off_t bytes) {
  const Turn turn;
  const int result = static_cast<int>(syscall(SYS_fallocate, fd, mode, offset, bytes));
  if (result != 0 || !is_inside(fd) || mode == FALLOC_FL_KEEP_SIZE) return result;
  if (mode != 0) {
    record_text(Event::kUnrecorded, path_of(fd).text, "fallocate with a mode");
    return result;
  }
  struct stat info {};
  fstat(fd, &info);  // it never shrinks a file
  record(Event::kTruncate, path_of(fd).text, "", info.st_ino, info.st_size);
  return result;
}

int do_rename(int from_fd, const char* from, int to_fd, const char* to, unsigned flags) {
  const Turn turn;
  const Path old_path = path_of(from_fd, from);
  const Path new_path = path_of(to_fd, to);
  struct stat old_info {};
  struct stat new_info {};
  const bool same = lstat(old_path.text, &old_info) == 0 && lstat(new_path.text, &new_info) == 0 &&
                    old_info.st_ino == new_info.st_ino;  // then nothing happens
  const int result = static_cast<int>(syscall(SYS_renameat2, from_fd, from, to_fd, to, flags));
  if (result != 0 || !g.on || same) return result;
  const bool was_inside = old_path.is_inside();
  if (!was_inside && !new_path.is_inside()) return result;
  if (was_inside != new_path.is_inside() || (flags & ~RENAME_NOREPLACE) != 0) {
    record_text(Event::kUnrecorded, new_path.text, "rename over the root's border, or an exchange");
  } else {
    record(Event::kRename, old_path.text, new_path.text);
  }
  return result;
}

int do_remove(int folder_fd, const char* name, int flags) {
  const Turn turn;
  const Path path = path_of(folder_fd, name);
  const int result = static_cast<int>(syscall(SYS_unlinkat, folder_fd, name, flags));
  if (result == 0 && g.on && path.is_inside()) record(Event::kRemove, path.text);
  return result;
}

int do_make_dir(int folder_fd, const char* name, mode_t mode) {
  const Turn turn;
  const int result = static_cast<int>(syscall(SYS_mkdirat, folder_fd, name, mode));
  if (result != 0 || !g.on) return result;
  const Path path = path_of(folder_fd, name);
  if (path.is_inside()) record(Event::kMakeDir, path.text, "", inode_at(path.text));
  return result;
}

int do_make_node(int folder_fd, const char* name, mode_t mode, dev_t device) {
  const Turn turn;
  const int result = static_cast<int>(syscall(SYS_mknodat, folder_fd, name, mode, device));
  if (result != 0 || !g.on) return result;
  const Path path = path_of(folder_fd, name);
  if (!path.is_inside()) return result;
  if (S_ISREG(mode) || (mode & S_IFMT) == 0) {
    record(Event::kCreate, path.text, "", inode_at(path.text));
  } else {
    record_text(Event::kUnrecorded, path.text, "mknod of no regular file");
  }
  return result;
}

int do_link(int from_fd, const char* from, int to_fd, const char* to, int flags) {
  const Turn turn;
  const int result = static_cast<int>(syscall(SYS_linkat, from_fd, from, to_fd, to, flags));
  if (result != 0 || !g.on) return result;
  const Path old_path = path_of(from_fd, from);
  const Path new_path = path_of(to_fd, to);
  if (!new_path.is_inside()) return result;
  if (flags != 0 || !old_path.is_inside()) {
    record_text(Event::kUnrecorded, new_path.text, "a link over the root's border, or of a link");
  } else {
    record(Event::kLink, old_path.text, new_path.text);
  }
  return result;
}

int do_symlink(const char* target, int folder_fd, const char* name) {
  const Turn turn;
  const int result = static_cast<int>(syscall(SYS_symlinkat, target, folder_fd, name));
  if (result != 0 || !g.on) return result;
  const Path path = path_of(folder_fd, name);
  if (path.is_inside()) record_text(Event::kSymlink, path.text, target, inode_at(path.text));
  return result;
}

void* do_map(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  const bool writes = (flags & MAP_TYPE) != MAP_PRIVATE && (protection & PROT_WRITE) != 0;
  if (fd >= 0 && writes) {
    const Turn turn;
    if (is_inside(fd))
      record_text(Event::kUnrecorded, path_of(fd).text, "a shared writable mapping");
  }
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, fd, offset));
}

template <class Call>
ssize_t do_copy(int to_fd, Call call) {
  const Turn turn;
  const auto copied = static_cast<ssize_t>(call());
  if (copied > 0 && is_inside(to_fd)) {
    record_text(Event::kUnrecorded, path_of(to_fd).text, "a copy inside the kernel");
  }
  return copied;
}

mode_t mode_argument(int flags, va_list arguments) {
  const bool has_mode = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return has_mode ? static_cast<mode_t>(va_arg(arguments, unsigned)) : 0;
}

}  // namespace

// What programs call. The numbers of some names are those of a file's size in old interfaces;
// on 64-bit systems they are the same.
extern "C" {

#define WEFT_OPEN(name)                                  \
  int name(const char* path, int flags, ...) {           \
    va_list arguments;                                   \
    va_start(arguments, flags);                          \
    const mode_t mode = mode_argument(flags, arguments); \
    va_end(arguments);                                   \
    return do_open(AT_FDCWD, path, flags, mode);         \
  }
WEFT_OPEN(open)
WEFT_OPEN(open64)
#define WEFT_OPENAT(name)                                     \
  int name(int folder_fd, const char* path, int flags, ...) { \
    va_list arguments;                                        \
    va_start(arguments, flags);                               \
    const mode_t mode = mode_argument(flags, arguments);      \
    va_end(arguments);                                        \
    return do_open(folder_fd, path, flags, mode);             \
  }
WEFT_OPENAT(openat)
WEFT_OPENAT(openat64)
// With _FORTIFY_SOURCE, where no mode is given.
int __open_2(const char* path, int flags) { return do_open(AT_FDCWD, path, flags, 0); }
int __open64_2(const char* path, int flags) { return do_open(AT_FDCWD, path, flags, 0); }
int __openat_2(int fd, const char* path, int flags) { return do_open(fd, path, flags, 0); }
int __openat64_2(int fd, const char* path, int flags) { return do_open(fd, path, flags, 0); }
int creat(const char* path, mode_t mode) {
  return do_open(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}
int creat64(const char* path, mode_t mode) { return creat(path, mode); }

ssize_t write(int fd, const void* bytes, size_t n) {
  const iovec part{const_cast<void*>(bytes), n};
  return do_write(fd, &part, 1, -1, [&] { return syscall(SYS_write, fd, bytes, n); });
}
ssize_t writev(int fd, const iovec* parts, int n) {
  return do_write(fd, parts, n, -1, [&] { return syscall(SYS_writev, fd, parts, n); });
}
#define WEFT_PWRITE(name)                                                         \
  ssize_t name(int fd, const void* bytes, size_t n, off_t offset) {               \
    const iovec part{const_cast<void*>(bytes), n};                                \
    return do_write(fd, &part, 1, offset,                                         \
                    [&] { return syscall(SYS_pwrite64, fd, bytes, n, offset); }); \
  }
WEFT_PWRITE(pwrite)
WEFT_PWRITE(pwrite64)
#define WEFT_PWRITEV(name)                                                           \
  ssize_t name(int fd, const iovec* parts, int n, off_t offset) {                    \
    return do_write(fd, parts, n, offset,                                            \
                    [&] { return syscall(SYS_pwritev, fd, parts, n, offset, 0L); }); \
  }
WEFT_PWRITEV(pwritev)
WEFT_PWRITEV(pwritev64)
#define WEFT_PWRITEV2(name)                                                                  \
  ssize_t name(int fd, const iovec* parts, int n, off_t offset, int flags) {                 \
    return do_write(fd, parts, n, offset,                                                    \
                    [&] { return syscall(SYS_pwritev2, fd, parts, n, offset, 0L, flags); }); \
  }
WEFT_PWRITEV2(pwritev2)
WEFT_PWRITEV2(pwritev64v2)
ssize_t sendfile(int to, int from, off_t* offset, size_t n) noexcept {
  return do_copy(to, [&] { return syscall(SYS_sendfile, to, from, offset, n); });
}
ssize_t sendfile64(int to, int from, off64_t* offset, size_t n) noexcept {
  return sendfile(to, from, offset, n);
}
ssize_t copy_file_range(int from, off64_t* from_offset, int to, off64_t* to_offset, size_t n,
                        unsigned flags) {
  return do_copy(
      to, [&] { return syscall(SYS_copy_file_range, from, from_offset, to, to_offset, n, flags); });
}

int ftruncate(int fd, off_t size) noexcept { return do_truncate(fd, size); }
int ftruncate64(int fd, off64_t size) noexcept { return do_truncate(fd, size); }
int truncate(const char* path, off_t size) noexcept {
  const int fd = static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC));
  if (fd < 0) return -1;
  const int result = do_truncate(fd, size);
  const int error = errno;
  syscall(SYS_close, fd);
  errno = error;
  return result;
}
int truncate64(const char* path, off64_t size) noexcept { return truncate(path, size); }
int fallocate(int fd, int mode, off_t offset, off_t n) { return do_allocate(fd, mode, offset, n); }
int fallocate64(int fd, int mode, off64_t offset, off64_t n) {
  return do_allocate(fd, mode, offset, n);
}
int posix_fallocate(int fd, off_t offset, off_t n) {
  const int before = errno;
  const int error = do_allocate(fd, 0, offset, n) == 0 ? 0 : errno;
  errno = before;
  return error;
}
int posix_fallocate64(int fd, off64_t offset, off64_t n) { return posix_fallocate(fd, offset, n); }

int fsync(int fd) {
  return do_sync(fd, [&] { return syscall(SYS_fsync, fd); });
}
int fdatasync(int fd) {  // of a folder the same in Linux, and SQLite relies on it
  return do_sync(fd, [&] { return syscall(SYS_fdatasync, fd); });
}
int syncfs(int fd) noexcept {
  const Turn turn;
  const int result = static_cast<int>(syscall(SYS_syncfs, fd));
  if (result == 0 && is_inside(fd)) record(Event::kSyncAll, "");
  return result;
}
void sync() noexcept {
  const Turn turn;
  syscall(SYS_sync);
  if (g.on) record(Event::kSyncAll, "");
}

int rename(const char* from, const char* to) noexcept {
  return do_rename(AT_FDCWD, from, AT_FDCWD, to, 0);
}
int renameat(int from_fd, const char* from, int to_fd, const char* to) noexcept {
  return do_rename(from_fd, from, to_fd, to, 0);
}
int renameat2(int from_fd, const char* from, int to_fd, const char* to, unsigned flags) noexcept {
  return do_rename(from_fd, from, to_fd, to, flags);
}
int unlink(const char* path) noexcept { return do_remove(AT_FDCWD, path, 0); }
int unlinkat(int folder_fd, const char* path, int flags) noexcept {
  return do_remove(folder_fd, path, flags);
}
int rmdir(const char* path) noexcept { return do_remove(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char* path) noexcept {
  const int result = do_remove(AT_FDCWD, path, 0);
  return result != 0 && errno == EISDIR ? do_remove(AT_FDCWD, path, AT_REMOVEDIR) : result;
}
int mkdir(const char* path, mode_t mode) noexcept { return do_make_dir(AT_FDCWD, path, mode); }
int mkdirat(int folder_fd, const char* path, mode_t mode) noexcept {
  return do_make_dir(folder_fd, path, mode);
}
int mknod(const char* path, mode_t mode, dev_t device) noexcept {
  return do_make_node(AT_FDCWD, path, mode, device);
}
int mknodat(int folder_fd, const char* path, mode_t mode, dev_t device) noexcept {
  return do_make_node(folder_fd, path, mode, device);
}
int link(const char* from, const char* to) noexcept {
  return do_link(AT_FDCWD, from, AT_FDCWD, to, 0);
}
int linkat(int from_fd, const char* from, int to_fd, const char* to, int flags) noexcept {
  return do_link(from_fd, from, to_fd, to, flags);
}
int symlink(const char* target, const char* path) noexcept {
  return do_symlink(target, AT_FDCWD, path);
}
int symlinkat(const char* target, int folder_fd, const char* path) noexcept {
  return do_symlink(target, folder_fd, path);
}
void* mmap(void* address, size_t n, int protection, int flags, int fd, off_t offset) noexcept {
  return do_map(address, n, protection, flags, fd, offset);
}
void* mmap64(void* address, size_t n, int protection, int flags, int fd, off64_t offset) noexcept {
  return do_map(address, n, protection, flags, fd, offset);
}

}  // extern "C"
