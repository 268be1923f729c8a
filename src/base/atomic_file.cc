#include "base/atomic_file.h"

#include <fmt/format.h>

#include <new>
#include <utility>

namespace weft {
namespace {

// Names have at most 255 bytes nearly everywhere; a temporary one is the target's and this much.
constexpr size_t kMaxNameBytes = 200;
constexpr std::string_view kSuffix = ".tmp";

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

/// "model.gguf.0123456789abcdef.tmp" in the target's folder: a rename stays in one file system, and
/// what a kill -9 leaves says whose it was.
std::string temporary_path(const std::string& target) {
  std::string name = target.substr(target.rfind('/') + 1);
  if (name.size() > kMaxNameBytes) name = "weft";
  const size_t folder_bytes = target.rfind('/') + 1;  // 0 when there is no slash
  return fmt::format("{}{}.{}{}", target.substr(0, folder_bytes), name, unguessable_hex(), kSuffix);
}

/// Whether temporary_path() could have made `name` for a target named `target`.
bool is_temporary_of(std::string_view name, std::string_view target) {
  constexpr size_t kHexDigits = 16;  // unguessable_hex()
  if (target.size() > kMaxNameBytes || !name.starts_with(target)) return false;
  name.remove_prefix(target.size());
  if (name.size() != 1 + kHexDigits + kSuffix.size() || name[0] != '.') return false;
  return name.ends_with(kSuffix) &&
         name.substr(1, kHexDigits).find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

struct Target {
  std::string path;
  std::optional<uint32_t> mode;
};

/// Where the file is to be, and its mode.
Result<Target> find_target(Env& env, const std::string& path, const AtomicFileOptions& options) {
  auto entry = env.stat_link(path);
  if (entry.status().code() == StatusCode::kNotFound) return Target{path, options.mode};
  WEFT_RETURN_IF_ERROR(entry.status());
  if (!options.replace) {
    const bool dangles = entry->is_link && env.stat(path).status().code() == StatusCode::kNotFound;
    return already_exists(path + (dangles ? ": a symbolic link that leads nowhere; name the file "
                                            "where it is to be"
                                          : ": exists already"));
  }
  std::string resolved = path;
  if (entry->is_link) {
    if (options.links == Links::kRefuse) {
      return invalid_argument(path + ": a symbolic link, which is not followed here");
    }
    WEFT_ASSIGN_OR_RETURN(resolved, env.resolve(path));
    entry = env.stat_link(resolved);
    WEFT_RETURN_IF_ERROR(entry.status());
  }
  if (!entry->is_regular) {
    return invalid_argument(path + ": exists and is not a regular file");
  }
  if ((entry->mode & 0222) == 0) {
    return invalid_argument(path + ": is write-protected (chmod u+w allows writing)");
  }
  return Target{std::move(resolved), entry->mode & 0777};  // never setuid by a rewrite
}

}  // namespace

Result<AtomicFile> AtomicFile::create(Env& env, const std::string& path,
                                      AtomicFileOptions options) {
  WEFT_ASSIGN_OR_RETURN(Target target, find_target(env, path, options));
  AtomicFile file(env, std::move(target.path), options.replace);
  file.temporary_path_ = options.temporary_path.empty() ? temporary_path(file.target_)
                                                        : std::move(options.temporary_path);
  auto created = env.create(file.temporary_path_, {.mode = target.mode, .exclusive = true});
  if (!created.is_ok()) return file.of_target(created.status());
  file.file_ = *std::move(created);
  return file;
}

AtomicFile::~AtomicFile() {
  if (file_ == nullptr) return;
  file_.reset();
  try {
    (void)env_->remove(temporary_path_);  // it was of no use; the error that led here counts
  } catch (const std::bad_alloc&) {       // of this one's text
  }
}

/// Who asked for the target knows nothing of the temporary file.
Status AtomicFile::of_target(const Status& status) const {
  if (!status.message().starts_with(temporary_path_)) return status;
  return {status.code(), target_ + status.message().substr(temporary_path_.size())};
}

Status AtomicFile::append(std::span<const std::byte> bytes) {
  return of_target(file_->append(bytes));
}

Status AtomicFile::commit() {
  WEFT_RETURN_IF_ERROR(of_target(file_->sync()));
  WEFT_RETURN_IF_ERROR(of_target(file_->close()));
  Status named = replace_ ? env_->rename(temporary_path_, target_)
                          : env_->rename_to_new(temporary_path_, target_);
  WEFT_RETURN_IF_ERROR(of_target(named));
  file_.reset();  // nothing is left to remove
  return env_->sync_dir(folder_of(target_));
}

void remove_leftovers(Env& env, const std::string& path) {
  const auto resolved = env.resolve(path);
  const std::string target = resolved.is_ok() ? *resolved : path;
  const std::string name = target.substr(target.rfind('/') + 1);
  const std::string folder = folder_of(target);
  const auto entries = env.list(folder);
  if (!entries.is_ok()) return;
  const int64_t latest_ns = (env.unix_ms() - kLeftoverAgeMs) * 1'000'000;
  for (const DirEntry& entry : *entries) {
    if (!entry.is_regular || entry.is_link || entry.modified_ns > latest_ns) continue;
    if (is_temporary_of(entry.name, name)) (void)env.remove(join_path(folder, entry.name));
  }
}

Status write_file_durably(Env& env, const std::string& path, std::string_view bytes,
                          AtomicFileOptions options) {
  WEFT_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(env, path, options));
  WEFT_RETURN_IF_ERROR(file.append(std::as_bytes(std::span(bytes))));
  return file.commit();
}

}  // namespace weft
