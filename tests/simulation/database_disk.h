// What is durable of the files that SQLite writes: FaultEnv's twin for the calls that sim_vfs.h
// sees. A file's bytes are durable after its sync, a name after its folder's. A power cut leaves
// exactly that, or by a seed any part of what came later. It never reads the real files; it
// replaces them when the power comes back.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "support/fault_env.h"

namespace weft::sim {

/// Thread-safe. Paths are absolute.
class DatabaseDisk {
 public:
  /// A file apart from its name: it lives on while it is open.
  struct File;
  using FilePtr = std::shared_ptr<File>;

  /// The file of that name as it was opened; made where it is new here. `is_empty`: it was created
  /// just now, else what is there counts as durable.
  FilePtr open(const std::string& path, bool is_empty);
  void write(const FilePtr& file, uint64_t offset, std::span<const char> bytes);
  void truncate(const FilePtr& file, uint64_t size);
  void sync(const FilePtr& file);
  uint64_t size_bytes(const FilePtr& file);
  void remove(const std::string& path);
  /// Makes creations and removals in the folder durable.
  void sync_folder(const std::string& dir);

  /// Makes the real files what a power cut leaves; all must be closed.
  Status restart(test::Survives survives, uint64_t seed);

  /// The test's own damage, or its repair: the content is this, durably.
  Status overwrite(const std::string& path, const std::string& content);
  /// The file's content; empty when there is none.
  std::string content(const std::string& path);
  /// Errors where a real file is not what it should be: a fault of the simulation.
  Status check();

 private:
  struct Change {  // of a name; null: removed
    std::string path;
    FilePtr file;
  };
  using Names = std::map<std::string, FilePtr>;

  static std::string survivor(const File& file, test::Survives survives, std::mt19937_64& random);
  static void apply(const Change& change, Names& names);

  std::mutex mutex_;
  Names names_;                  // now
  Names durable_names_;          // for ever
  std::vector<Change> changes_;  // that lead from the one to the other, oldest first
};

}  // namespace weft::sim
