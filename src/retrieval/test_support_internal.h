// For this room's tests: a folder of their own, and documents to fill an index with.
#pragma once

#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "retrieval/index.h"

namespace weft::retrieval {

/// A fresh folder, removed with everything in it at the end. Its path has no links.
class TempDir {
 public:
  TempDir() {
    std::string name = (std::filesystem::temp_directory_path() / "weft_retrieval_XXXXXX").string();
    WEFT_CHECK(::mkdtemp(name.data()) != nullptr);
    path_ = std::filesystem::canonical(name).string();
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  /// As if it had been written some time ago: a scan does not trust the time of a new file.
  void write(const std::string& name, std::string_view bytes) const {
    std::filesystem::create_directories(std::filesystem::path(*this / name).parent_path());
    std::ofstream(*this / name, std::ios::binary) << bytes;
    std::filesystem::last_write_time(
        *this / name, std::filesystem::last_write_time(*this / name) - std::chrono::hours(1));
  }

 private:
  std::string path_;
};

/// The name of the record of these token ids, as the tests have it.
inline Hash128 record_of(std::span<const int32_t> tokens) { return hash128(std::as_bytes(tokens)); }
inline Hash128 record_of(const std::string& text) {
  return record_of(std::vector<int32_t>(text.begin(), text.end()));
}

/// Puts a document with these chunk texts in, each on a line of its own; a chunk's token ids are
/// its bytes.
inline Result<int64_t> put(Index& index, const std::string& path,
                           const std::vector<std::string>& texts, const std::string& title = "",
                           const std::string& content_hash = "") {
  std::vector<std::vector<int32_t>> ids;
  for (const std::string& text : texts) ids.emplace_back(text.begin(), text.end());
  std::vector<ChunkText> chunks;
  uint64_t begin = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    chunks.push_back(
        {begin, begin + texts[i].size(), texts[i], ids[i], record_of(ids[i]), i + 1, i + 1});
    begin += texts[i].size();
  }
  return index.replace_document(
      {.path = path,
       .title = title,
       .size_bytes = begin,
       .modified_ns = 12345,
       .content_hash = content_hash.empty() ? "hash of " + path : content_hash,
       .root = "/"},
      chunks);
}

}  // namespace weft::retrieval
