// Chunks whose content follows from a number, and a store to put them in.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "store/chunk_store.h"

namespace weft::test {

/// A chunk whose every byte follows from its number; shapes differ from number to number unless
/// layer_bytes is given.
struct TestChunk {
  explicit TestChunk(int number, size_t layer_bytes = 0);
  store::Key key() const { return store::Key::of(identity); }
  std::vector<std::span<const std::byte>> spans() const { return {layers.begin(), layers.end()}; }
  /// Of its record on disk.
  uint64_t file_bytes() const;
  /// Of its copy in memory.
  uint64_t copy_bytes() const;

  std::vector<std::byte> identity;
  uint32_t n_tokens = 0;
  std::vector<std::vector<std::byte>> layers;
};

Status put(store::ChunkStore& store, const TestChunk& chunk, store::PutOptions options = {});

/// Loads every layer. False when a byte differs from the chunk's: the one thing that must never
/// happen; errors go to `status`.
bool loads_right(store::ChunkStore::Handle& handle, const TestChunk& chunk, Status* status);

/// Finds and loads; the Status says whether that went well, a wrong byte fails the test.
Status load(store::ChunkStore& store, const TestChunk& chunk);

/// Makes the store where there is none. Null, and the test fails, when it does not open.
std::unique_ptr<store::ChunkStore> open_store(Env& env, const std::string& dir,
                                              uint64_t disk_limit_bytes = 0,
                                              uint64_t memory_limit_bytes = 0);

std::string record_path(const std::string& dir, const TestChunk& chunk);

/// Files in the store's temporary folder that are no locks.
size_t unfinished_files(const std::string& dir);

/// A record in memory, for reading it as a file.
class MemoryFile : public ReadFile {
 public:
  explicit MemoryFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  uint64_t size_bytes() const override { return bytes_.size(); }
  Status read_at(uint64_t offset, std::span<std::byte> out) const override;

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace weft::test
