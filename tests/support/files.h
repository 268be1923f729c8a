// Folders and files of tests: a folder of their own that goes away again, whole files as text.
#pragma once

#include <string>
#include <string_view>

namespace weft::test {

/// A fresh folder below the system's temporary one, removed with everything in it at the end. Its
/// path has no links.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  /// The path of an entry; the program ends where the folder could not be made.
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  /// Writes a file, and the folders on its way, as if that had been some time ago: a scan of files
  /// does not trust the time of a new one.
  void write(const std::string& name, std::string_view bytes) const;

 protected:
  explicit TempDir(const std::string& parent);

 private:
  std::string path_;
};

/// The same in memory where the system offers that: for many small files whose tests prove what
/// does not depend on a real disk. Nothing large: such a file system may be small.
class MemoryTempDir : public TempDir {
 public:
  MemoryTempDir();
};

/// The whole file; empty when it cannot be read.
std::string read_text(const std::string& path);

/// Replaces the file.
void write_text(const std::string& path, std::string_view text);

}  // namespace weft::test
