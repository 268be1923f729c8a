// Helpers of the store's tests: a folder that goes away, chunks whose content follows from a
// number. Tests only.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "store/chunk_store.h"

namespace weft::store {

/// In memory where the system offers that: what the tests prove does not depend on a real disk.
class TempDir {
 public:
  TempDir() : path_("/dev/shm/weft-store-XXXXXX") {
    if (::mkdtemp(path_.data()) != nullptr) return;
    path_ = (std::filesystem::temp_directory_path() / "weft-store-XXXXXX").string();
    WEFT_CHECK(::mkdtemp(path_.data()) != nullptr);
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

/// A chunk whose every byte follows from its number; shapes differ from number to number unless
/// layer_bytes is given.
struct TestChunk {
  explicit TestChunk(int number, size_t layer_bytes = 0) {
    std::mt19937_64 random(static_cast<uint64_t>(number) * 7919 + 1);
    const std::string text = "chunk " + std::to_string(number);
    identity.resize(text.size() + random() % 60);
    std::memcpy(identity.data(), text.data(), text.size());
    n_tokens = 1 + static_cast<uint32_t>(random() % 512);
    if (layer_bytes == 0) layer_bytes = 1 + random() % 9000;
    layers.resize(layer_bytes > 100'000 ? 30 : 1 + random() % 5);
    for (auto& layer : layers) {
      layer.resize(layer_bytes);
      for (std::byte& byte : layer) byte = static_cast<std::byte>(random());
    }
  }
  Key key() const { return Key::of(identity); }
  std::vector<std::span<const std::byte>> spans() const { return {layers.begin(), layers.end()}; }
  uint64_t file_bytes() const {
    return RecordInfo{.n_layers = static_cast<uint32_t>(layers.size()),
                      .layer_bytes = layers[0].size()}
        .file_bytes(identity.size());
  }
  uint64_t copy_bytes() const { return layers.size() * ((layers[0].size() + 4095) / 4096 * 4096); }

  std::vector<std::byte> identity;
  uint32_t n_tokens = 0;
  std::vector<std::vector<std::byte>> layers;
};

inline Status put(ChunkStore& store, const TestChunk& chunk, PutOptions options = {}) {
  return store.put(chunk.key(), chunk.n_tokens, chunk.spans(), options);
}

/// Loads every layer. False when a byte differs from the chunk's: the one thing that must never
/// happen; errors go to `status`.
inline bool loads_right(ChunkStore::Handle& handle, const TestChunk& chunk, Status* status) {
  *status = Status::ok();
  if (handle.info().n_layers != chunk.layers.size() || handle.info().n_tokens != chunk.n_tokens) {
    return false;
  }
  AlignedBytes scratch;
  for (uint32_t i = 0; i < chunk.layers.size(); ++i) {
    const auto bytes = handle.load_layer(i, scratch);
    if (!bytes.is_ok()) {
      *status = bytes.status();
      return true;
    }
    if (!std::equal(bytes->begin(), bytes->end(), chunk.layers[i].begin(), chunk.layers[i].end())) {
      return false;
    }
  }
  return true;
}

/// Finds and loads; the Status says whether that went well, a wrong byte fails the test.
inline Status load(ChunkStore& store, const TestChunk& chunk) {
  auto handle = store.find(chunk.key());
  if (!handle.is_ok()) return handle.status();
  Status status;
  EXPECT_TRUE(loads_right(*handle, chunk, &status)) << "wrong bytes served";
  return status;
}

inline std::unique_ptr<ChunkStore> open_store(Env& env, const std::string& dir,
                                              uint64_t disk_limit_bytes = 0,
                                              uint64_t memory_limit_bytes = 0) {
  auto store = ChunkStore::open(env, {.dir = dir,
                                      .memory_limit_bytes = memory_limit_bytes,
                                      .disk_limit_bytes = disk_limit_bytes,
                                      .create = true});
  EXPECT_TRUE(store.is_ok()) << store.status().message();
  return store.is_ok() ? std::move(store).value() : nullptr;
}

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string record_path(const std::string& dir, const TestChunk& chunk) {
  return join_path(dir, record_file_name(chunk.key().hash));
}

/// Files in the store's temporary folder that are no locks.
inline size_t unfinished_files(const std::string& dir) {
  size_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(join_path(dir, "tmp"))) {
    n += entry.path().extension() != ".lock";
  }
  return n;
}

/// A record in memory, for reading it as a file.
class MemoryFile : public ReadFile {
 public:
  explicit MemoryFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint64_t size_bytes() const override { return bytes_.size(); }
  Status read_at(uint64_t offset, std::span<std::byte> out) const override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) {
      return corrupt("memory: read past the end");
    }
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return Status::ok();
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace weft::store
