#include "simulation/sim_vfs.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <new>
#include <string>

#include "base/check.h"

namespace weft::sim {
namespace {

thread_local Process* current_process = nullptr;

sqlite3_vfs* real_vfs() {
  static sqlite3_vfs* const vfs = sqlite3_vfs_find("unix");
  return vfs;
}

/// What SQLite allocates for a file: this, and after it the real VFS's own. Without a process it
/// passes everything on.
struct SimFile {
  sqlite3_file base;  // first: SQLite knows no more
  Process* process;
  std::string path;
  DatabaseDisk::FilePtr file;
  bool folder_is_unsynced;  // a new journal's: its first sync is its folder's, too

  sqlite3_file* real() { return reinterpret_cast<sqlite3_file*>(this + 1); }
  DatabaseDisk& disk() { return process->machine().database_disk(); }
};
static_assert(sizeof(SimFile) % 8 == 0 && alignof(SimFile) <= 8);  // as SQLite aligns it

SimFile& as_sim(sqlite3_file* file) { return *reinterpret_cast<SimFile*>(file); }

int code_of(const Status& status, int otherwise) {
  if (status.is_ok()) return SQLITE_OK;
  return status.code() == StatusCode::kResourceExhausted ? SQLITE_FULL : otherwise;
}

int look(SimFile& f, int otherwise) {
  return f.process == nullptr ? SQLITE_OK : code_of(f.process->look(f.path), otherwise);
}

std::string folder_of(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}

int sync_folder(Process& process, const std::string& path) {
  const std::string folder = folder_of(path);
  const int code = code_of(process.change(folder), SQLITE_IOERR_DIR_FSYNC);
  if (code == SQLITE_FULL) return SQLITE_IOERR_DIR_FSYNC;  // no sync says so
  if (code != SQLITE_OK || process.machine().syncs_lie()) return code;
  process.machine().database_disk().sync_folder(folder);
  (void)process.machine().disk().sync_dir(folder);  // the names of the store's files, too
  return SQLITE_OK;
}

// ------------------------------------------------------------------------------------------ files

int file_close(sqlite3_file* file) {
  SimFile& f = as_sim(file);
  const int code = f.real()->pMethods->xClose(f.real());  // also of a dead process: the system does
  f.~SimFile();
  return code;
}

int file_read(sqlite3_file* file, void* out, int n_bytes, sqlite3_int64 offset) {
  SimFile& f = as_sim(file);
  if (const int code = look(f, SQLITE_IOERR_READ); code != SQLITE_OK) return code;
  return f.real()->pMethods->xRead(f.real(), out, n_bytes, offset);
}

int write_through(SimFile& f, const void* bytes, int n_bytes, sqlite3_int64 offset) {
  if (f.process != nullptr) f.process->note_own_change();
  const int code = f.real()->pMethods->xWrite(f.real(), bytes, n_bytes, offset);
  if (code == SQLITE_OK && f.process != nullptr) {
    f.disk().write(f.file, static_cast<uint64_t>(offset),
                   {static_cast<const char*>(bytes), static_cast<size_t>(n_bytes)});
  }
  return code;
}

int file_write(sqlite3_file* file, const void* bytes, int n_bytes, sqlite3_int64 offset) {
  SimFile& f = as_sim(file);
  if (f.process != nullptr) {
    bool torn = false;
    const int code = code_of(f.process->change(f.path, &torn), SQLITE_IOERR_WRITE);
    if (torn) (void)write_through(f, bytes, n_bytes / 2, offset);
    if (code != SQLITE_OK) return code;
    const auto end = static_cast<uint64_t>(offset + n_bytes);
    const uint64_t size = f.disk().size_bytes(f.file);
    if (end > size && !f.process->machine().take_disk(end - size)) return SQLITE_FULL;
  }
  return write_through(f, bytes, n_bytes, offset);
}

int file_truncate(sqlite3_file* file, sqlite3_int64 size) {
  SimFile& f = as_sim(file);
  if (f.process != nullptr) {
    const int code = code_of(f.process->change(f.path), SQLITE_IOERR_TRUNCATE);
    if (code != SQLITE_OK) return code;
  }
  const int code = f.real()->pMethods->xTruncate(f.real(), size);
  if (code == SQLITE_OK && f.process != nullptr) {
    f.disk().truncate(f.file, static_cast<uint64_t>(size));
  }
  return code;
}

int file_sync(sqlite3_file* file, int flags) {
  SimFile& f = as_sim(file);
  if (f.process == nullptr) return f.real()->pMethods->xSync(f.real(), flags);
  const int code = code_of(f.process->change(f.path), SQLITE_IOERR_FSYNC);
  if (code != SQLITE_OK) return code == SQLITE_FULL ? SQLITE_IOERR_FSYNC : code;
  if (f.process->machine().syncs_lie()) return SQLITE_OK;
  f.disk().sync(f.file);
  if (!f.folder_is_unsynced) return SQLITE_OK;
  // As the system's VFS does. It would take no notice if this failed, and a power cut soon after
  // could then damage the database: SQLite's own gap, so it fails here only with the process.
  if (sync_folder(*f.process, f.path) != SQLITE_OK && f.process->is_alive()) {
    (void)sync_folder(*f.process, f.path);
  }
  f.folder_is_unsynced = false;
  return SQLITE_OK;
}

int file_size(sqlite3_file* file, sqlite3_int64* size) {
  SimFile& f = as_sim(file);
  if (const int code = look(f, SQLITE_IOERR_FSTAT); code != SQLITE_OK) return code;
  return f.real()->pMethods->xFileSize(f.real(), size);
}

int file_lock(sqlite3_file* file, int level) {
  SimFile& f = as_sim(file);
  if (const int code = look(f, SQLITE_IOERR_LOCK); code != SQLITE_OK) return code;
  return f.real()->pMethods->xLock(f.real(), level);
}

int file_unlock(sqlite3_file* file, int level) {
  SimFile& f = as_sim(file);
  return f.real()->pMethods->xUnlock(f.real(), level);  // also of a dead process: the system does
}

int file_check_reserved(sqlite3_file* file, int* is_reserved) {
  SimFile& f = as_sim(file);
  if (const int code = look(f, SQLITE_IOERR_CHECKRESERVEDLOCK); code != SQLITE_OK) return code;
  return f.real()->pMethods->xCheckReservedLock(f.real(), is_reserved);
}

int file_control(sqlite3_file* file, int operation, void* argument) {
  SimFile& f = as_sim(file);
  return f.real()->pMethods->xFileControl(f.real(), operation, argument);
}

int file_sector_size(sqlite3_file* file) {
  SimFile& f = as_sim(file);
  return f.real()->pMethods->xSectorSize(f.real());
}

int file_characteristics(sqlite3_file* file) {
  SimFile& f = as_sim(file);
  return f.real()->pMethods->xDeviceCharacteristics(f.real());
}

/// Version 1: neither shared memory (so no WAL) nor mappings.
const sqlite3_io_methods kFileMethods = {1,
                                         file_close,
                                         file_read,
                                         file_write,
                                         file_truncate,
                                         file_sync,
                                         file_size,
                                         file_lock,
                                         file_unlock,
                                         file_check_reserved,
                                         file_control,
                                         file_sector_size,
                                         file_characteristics,
                                         nullptr,
                                         nullptr,
                                         nullptr,
                                         nullptr,
                                         nullptr,
                                         nullptr};

// -------------------------------------------------------------------------------------------- VFS

/// Whether the file is the process's, and not a temporary one that nobody finds after a crash.
bool is_tracked(const char* path, int flags) {
  return current_process != nullptr && path != nullptr &&
         (flags & (SQLITE_OPEN_MAIN_DB | SQLITE_OPEN_MAIN_JOURNAL)) != 0;
}

int vfs_open(sqlite3_vfs* /*vfs*/, const char* path, sqlite3_file* file, int flags,
             int* out_flags) {
  file->pMethods = nullptr;  // nothing to close yet
  const bool tracked = is_tracked(path, flags);
  struct stat before {};
  const bool is_new = !tracked || ::stat(path, &before) != 0;
  if (tracked) {
    const Status status = is_new ? current_process->change(path) : current_process->look(path);
    if (!status.is_ok()) {
      errno = ENOENT;  // as of a folder that is gone: not to be taken for a row that is
      return code_of(status, SQLITE_CANTOPEN);
    }
  }
  if (tracked && current_process->is_read_only()) {
    flags = (flags & ~(SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)) | SQLITE_OPEN_READONLY;
  }
  auto* f = new (file) SimFile{};
  const int code = real_vfs()->xOpen(real_vfs(), path, f->real(), flags, out_flags);
  if (code != SQLITE_OK) {
    // SQLite closes no file that was not opened; the real one sets its methods even so.
    if (f->real()->pMethods != nullptr) (void)f->real()->pMethods->xClose(f->real());
    f->~SimFile();
    file->pMethods = nullptr;
    return code;
  }
  if (tracked) {
    f->process = current_process;
    f->path = path;
    // One that is there and empty: somebody made the name just before (mknod).
    f->file = f->disk().open(path, is_new || before.st_size == 0);
    f->folder_is_unsynced = is_new && (flags & SQLITE_OPEN_MAIN_JOURNAL) != 0;
    if (is_new) f->process->machine().stamp_folder_of(path);
  }
  f->base.pMethods = &kFileMethods;
  return SQLITE_OK;
}

int vfs_delete(sqlite3_vfs* /*vfs*/, const char* path, int sync_dir) {
  Process* const process = current_process;
  if (process == nullptr) return real_vfs()->xDelete(real_vfs(), path, sync_dir);
  if (const int code = code_of(process->change(path), SQLITE_IOERR_DELETE); code != SQLITE_OK) {
    return code == SQLITE_FULL ? SQLITE_IOERR_DELETE : code;
  }
  process->note_own_change();
  const int code = real_vfs()->xDelete(real_vfs(), path, 0);
  if (code != SQLITE_OK) return code;
  process->machine().database_disk().remove(path);
  process->machine().stamp_folder_of(path);
  return sync_dir == 0 ? SQLITE_OK : sync_folder(*process, path);
}

int vfs_access(sqlite3_vfs* /*vfs*/, const char* path, int flags, int* result) {
  if (current_process != nullptr && !current_process->look(path).is_ok()) {
    return SQLITE_IOERR_ACCESS;
  }
  if (current_process != nullptr && current_process->is_read_only() &&
      flags == SQLITE_ACCESS_READWRITE) {
    *result = 0;
    return SQLITE_OK;
  }
  return real_vfs()->xAccess(real_vfs(), path, flags, result);
}

int vfs_sleep(sqlite3_vfs* /*vfs*/, int microseconds) {
  if (current_process == nullptr) return real_vfs()->xSleep(real_vfs(), microseconds);
  current_process->wait();
  return microseconds;
}

}  // namespace

void install_sim_vfs() {
  static sqlite3_vfs vfs = [] {
    WEFT_CHECK(real_vfs() != nullptr);
    sqlite3_vfs made = *real_vfs();  // what is not replaced below has nothing to do with files
    made.zName = "weft-simulation";
    made.pNext = nullptr;
    made.szOsFile += static_cast<int>(sizeof(SimFile));
    made.xOpen = vfs_open;
    made.xDelete = vfs_delete;
    made.xAccess = vfs_access;
    made.xSleep = vfs_sleep;
    return made;
  }();
  static const int registered = sqlite3_vfs_register(&vfs, /*makeDflt=*/1);
  WEFT_CHECK(registered == SQLITE_OK);
}

AsProcess::AsProcess(Process& process) : previous_(current_process) { current_process = &process; }
AsProcess::~AsProcess() { current_process = previous_; }

}  // namespace weft::sim
