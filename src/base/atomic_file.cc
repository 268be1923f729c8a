#include "base/atomic_file.h"

#include <fmt/format.h>

#include <new>
#include <utility>

namespace weft {
namespace {

// Names have at most 255 bytes nearly everywhere; a temporary one is the target's and this much.
constexpr size_t kMaxNameBytes = 200;

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
  return fmt::format("{}{}.{}.tmp", target.substr(0, folder_bytes), name, unguessable_hex());
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
  if (!options.replace) return already_exists(path + ": exists already");
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

Status write_file_durably(Env& env, const std::string& path, std::string_view bytes,
                          AtomicFileOptions options) {
  WEFT_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(env, path, options));
  WEFT_RETURN_IF_ERROR(file.append(std::as_bytes(std::span(bytes))));
  return file.commit();
}

}  // namespace weft
