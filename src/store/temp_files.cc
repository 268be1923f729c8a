// How to tell a file that a living process is writing from one that a dead process left. A process
// id in the name would not do: ids are used again, and mean nothing in another container. Ages
// would not do either: a write may take long, and a clock may be wrong. A lock of the system
// (flock) ends with its process in every case, kill -9 included. The slot in a file's name says
// which lock to try.
#include "store/temp_files.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "base/log.h"

namespace weft::store {
namespace {

constexpr int kMaxSlots = 4096;  // processes that have the store open for writing at one time
constexpr std::string_view kSuffix = ".part";

std::string lock_path(const std::string& dir, int slot) {
  return join_path(dir, fmt::format("{}.lock", slot));
}

/// The slot of "<slot>.<16 hex digits>.<counter>.part".
std::optional<int> slot_of(const std::string& name) {
  if (!name.ends_with(kSuffix)) return std::nullopt;
  int slot = 0;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), slot);
  if (parsed.ec != std::errc() || *parsed.ptr != '.' || slot < 0 || slot >= kMaxSlots) {
    return std::nullopt;
  }
  return slot;
}

/// Removes the files of all slots that no living process holds. A failure is only a warning: the
/// leftovers take room and do no harm.
void sweep(Env& env, const std::string& dir, int own_slot) {
  const auto files = env.list(dir);
  if (!files.is_ok()) return log_warning(files.status().message());
  for (const DirEntry& file : *files) {
    const auto slot = slot_of(file.name);
    if (!slot) continue;
    std::unique_ptr<FileLock> lock;  // held while its slot's file is removed
    if (*slot != own_slot) {
      auto taken = env.lock(lock_path(dir, *slot), /*exclusive=*/true, LockWait{});
      if (!taken.is_ok()) continue;
      lock = std::move(taken).value();
    }
    const Status removed = env.remove(join_path(dir, file.name));
    if (!removed.is_ok()) log_warning(removed.message());
    // The lock file may go, too: a process that has it open, or waits for it, checks after locking
    // whether the file still has its name, and opens it anew if not.
    if (lock) (void)env.remove(lock_path(dir, *slot));
  }
}

}  // namespace

Result<std::unique_ptr<TempFiles>> TempFiles::open(Env& env, const std::string& dir) {
  WEFT_RETURN_IF_ERROR(env.make_dirs(dir, kPrivateDirMode));
  WEFT_ASSIGN_OR_RETURN(const DirEntry folder, env.stat_link(dir));
  if (!folder.is_directory) {  // files written there would land wherever the link leads
    return invalid_argument(dir + ": a symbolic link; a store's temporary folder is its own");
  }
  for (int slot = 0; slot < kMaxSlots; ++slot) {
    auto lock = env.lock(lock_path(dir, slot), /*exclusive=*/true, LockWait{});
    if (lock.is_ok()) {
      sweep(env, dir, slot);
      return std::unique_ptr<TempFiles>(new TempFiles(
          join_path(dir, fmt::format("{}.{}.", slot, unguessable_hex())), std::move(lock).value()));
    }
    if (lock.status().code() != StatusCode::kResourceExhausted) return lock.status();
  }
  return resource_exhausted(fmt::format("{}: {} processes write here already", dir, kMaxSlots));
}

Result<int> count_writers(Env& env, const std::string& dir) {
  WEFT_ASSIGN_OR_RETURN(const auto files, env.list(dir));
  int n = 0;
  for (const DirEntry& file : files) {
    if (!file.name.ends_with(".lock")) continue;
    const auto lock = env.lock(join_path(dir, file.name), /*exclusive=*/true, LockWait{});
    if (lock.is_ok()) continue;
    if (lock.status().code() != StatusCode::kResourceExhausted) return lock.status();
    ++n;
  }
  return n;
}

std::string TempFiles::next_path() {
  return fmt::format("{}{}{}", prefix_, counter_.fetch_add(1), kSuffix);
}

}  // namespace weft::store
