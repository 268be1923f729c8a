// Files that are never seen half written. A new content is written to a temporary file beside the
// target (unguessable name, created exclusively, no wider than the target), synced, given the
// target's name in one step, and the folder is synced: after a crash the target is the old file or
// the new one. Never writes into an existing file, and never replaces what is no regular file.
// Errors name the target. For one thread at a time; several processes may replace the same file,
// and the last one wins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/env.h"
#include "base/status.h"

namespace weft {

struct AtomicFileOptions {
  /// False: kAlreadyExists when anything has the name, when writing begins or when it ends.
  bool replace = true;
  /// A target that is a symbolic link: kFollow replaces the file where it leads and leaves the link
  /// (one that leads nowhere is kNotFound); kRefuse is kInvalidArgument.
  Links links = Links::kFollow;
  /// Exact permission bits of a new file; nothing: 0644, less the umask. A file that is replaced
  /// passes its own on.
  std::optional<uint32_t> mode;
  /// Instead of a name beside the target: in the same file system, and a name that nothing has.
  std::string temporary_path;
};

class AtomicFile {
 public:
  /// Creates the temporary file; `env` must outlive this. kInvalidArgument: the target is a folder,
  /// a device, a pipe, write-protected or (by choice) a link.
  static Result<AtomicFile> create(Env& env, const std::string& path, AtomicFileOptions options);
  AtomicFile(AtomicFile&&) = default;
  AtomicFile& operator=(AtomicFile&&) = delete;
  /// Without a commit nothing is left of it, and the target is as it was.
  ~AtomicFile();

  Status append(std::span<const std::byte> bytes);
  /// Nothing may be appended afterwards. When it is ok the new content is durable. An error leaves
  /// the target as it was, but that of the folder's sync: then the target is new, perhaps not yet
  /// durably.
  Status commit();

 private:
  AtomicFile(Env& env, std::string target, bool replace)
      : env_(&env), target_(std::move(target)), replace_(replace) {}
  Status of_target(const Status& status) const;

  Env* env_;
  std::string target_;  // links resolved
  bool replace_;
  std::string temporary_path_;
  std::unique_ptr<WriteFile> file_;  // null: committed, failed for good or moved from
};

/// How long nothing has been written to a temporary file whose process is gone for certain.
inline constexpr int64_t kLeftoverAgeMs = 60 * 60 * 1000;
/// Removes what processes that were killed left of `path` (of a link: beside where it leads): files
/// with the names of create()'s temporary ones, last written kLeftoverAgeMs ago or earlier. Those
/// of a target whose name is longer than 200 bytes are not known as its own and stay. No error of
/// it matters, so it has none.
void remove_leftovers(Env& env, const std::string& path);

/// All of it at once: `bytes` become the file's content, durably.
Status write_file_durably(Env& env, const std::string& path, std::string_view bytes,
                          AtomicFileOptions options);

}  // namespace weft
