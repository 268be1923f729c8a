#include "simulation/database_disk.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

namespace weft::sim {
namespace {

constexpr uint64_t kSectorBytes = 512;

std::string folder_of(const std::string& path) {
  return std::filesystem::path(path).lexically_normal().parent_path().string();
}

std::string normal_folder(const std::string& dir) {
  return (std::filesystem::path(dir).lexically_normal() / "").parent_path().string();
}

Status write_real(const std::string& path, const std::string& content) {
  // A new file, as SQLite's locks belong to the old one.
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
  WEFT_ASSIGN_OR_RETURN(const auto file, posix_env().create(path, {.mode = kPrivateFileMode}));
  WEFT_RETURN_IF_ERROR(file->append(std::as_bytes(std::span(content))));
  return file->close();
}

std::string read_real(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

struct DatabaseDisk::File {
  struct Write {  // since the last sync; a truncation where `is_cut`
    uint64_t offset = 0;
    std::string bytes;
    bool is_cut = false;
  };

  std::string now;
  std::string durable;
  std::vector<Write> writes;

  static void apply(const Write& write, std::string& content) {
    if (write.is_cut) {
      content.resize(write.offset);
      return;
    }
    content.resize(std::max<size_t>(content.size(), write.offset + write.bytes.size()));
    content.replace(write.offset, write.bytes.size(), write.bytes);
  }
  void add(Write write) {
    apply(write, now);
    writes.push_back(std::move(write));
  }
  void settle(std::string content) {
    now = content;
    durable = std::move(content);
    writes.clear();
  }
};

DatabaseDisk::FilePtr DatabaseDisk::open(const std::string& path, bool is_empty) {
  const std::lock_guard lock(mutex_);
  if (const auto known = names_.find(path); known != names_.end()) return known->second;
  auto file = std::make_shared<File>();
  if (!is_empty) file->settle(read_real(path));
  names_[path] = file;
  if (is_empty) {
    changes_.push_back({path, file});
  } else {
    durable_names_[path] = file;
  }
  return file;
}

void DatabaseDisk::write(const FilePtr& file, uint64_t offset, std::span<const char> bytes) {
  const std::lock_guard lock(mutex_);
  file->add({offset, std::string(bytes.begin(), bytes.end()), false});
}

void DatabaseDisk::truncate(const FilePtr& file, uint64_t size) {
  const std::lock_guard lock(mutex_);
  file->add({size, "", true});
}

void DatabaseDisk::sync(const FilePtr& file) {
  const std::lock_guard lock(mutex_);
  for (const File::Write& write : file->writes) File::apply(write, file->durable);
  file->writes.clear();
}

uint64_t DatabaseDisk::size_bytes(const FilePtr& file) {
  const std::lock_guard lock(mutex_);
  return file->now.size();
}

void DatabaseDisk::remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (names_.erase(path) > 0) changes_.push_back({path, nullptr});
}

void DatabaseDisk::apply(const Change& change, Names& names) {
  if (change.file) {
    names[change.path] = change.file;
  } else {
    names.erase(change.path);
  }
}

void DatabaseDisk::sync_folder(const std::string& dir) {
  const std::lock_guard lock(mutex_);
  const std::string folder = normal_folder(dir);
  std::erase_if(changes_, [&](const Change& change) {
    if (folder_of(change.path) != folder) return false;
    apply(change, durable_names_);
    return true;
  });
}

std::string DatabaseDisk::survivor(const File& file, test::Survives survives,
                                   std::mt19937_64& random) {
  std::string content = file.durable;
  if (survives == test::Survives::kNamesAndSizes) {
    content.resize(std::max(content.size(), file.now.size()));
  }
  if (survives != test::Survives::kSome) return content;
  const uint64_t mood = random() % 3;  // all of it, any of it, mostly nothing
  for (const File::Write& write : file.writes) {
    File::Write part = write;
    const uint64_t fate = random() % 8;
    if (mood == 1 && fate < 3) continue;
    if (mood == 2 && fate < 7) continue;
    if (mood == 1 && fate == 3 && !write.is_cut) {  // torn between two sectors
      const uint64_t n_sectors = part.bytes.size() / kSectorBytes + 1;
      part.bytes.resize(std::min<size_t>(part.bytes.size(), random() % n_sectors * kSectorBytes));
    }
    if (mood == 1 && fate == 4 && write.offset >= content.size()) {  // grown before it was written
      for (char& c : part.bytes) c = static_cast<char>(random());
    }
    File::apply(part, content);
  }
  return content;
}

Status DatabaseDisk::restart(test::Survives survives, uint64_t seed) {
  const std::lock_guard lock(mutex_);
  std::mt19937_64 random(seed);
  size_t n_names = survives == test::Survives::kNothing ? 0 : changes_.size();
  if (survives == test::Survives::kSome) n_names = random() % (changes_.size() + 1);
  for (size_t i = 0; i < n_names; ++i) apply(changes_[i], durable_names_);
  changes_.clear();
  for (const auto& [path, file] : names_) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
  // A folder that did not survive took its files along.
  std::erase_if(durable_names_,
                [](const auto& name) { return !posix_env().exists(folder_of(name.first)); });
  for (const auto& [path, file] : durable_names_) {
    file->settle(survivor(*file, survives, random));
    WEFT_RETURN_IF_ERROR(write_real(path, file->now));
  }
  names_ = durable_names_;
  return Status::ok();
}

Status DatabaseDisk::overwrite(const std::string& path, const std::string& content) {
  const std::lock_guard lock(mutex_);
  const auto known = names_.find(path);
  if (known == names_.end()) return not_found(path + ": no such file of SQLite's");
  known->second->settle(content);
  return write_real(path, content);
}

std::string DatabaseDisk::content(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto known = names_.find(path);
  return known == names_.end() ? std::string() : known->second->now;
}

Status DatabaseDisk::check() {
  const std::lock_guard lock(mutex_);
  for (const auto& [path, file] : names_) {
    if (read_real(path) != file->now) return corrupt(path + ": the simulation lost track of it");
  }
  return Status::ok();
}

}  // namespace weft::sim
