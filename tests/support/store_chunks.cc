#include "support/store_chunks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "store/record.h"

namespace weft::test {

using store::ChunkStore;

TestChunk::TestChunk(int number, size_t layer_bytes) {
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

uint64_t TestChunk::file_bytes() const {
  return store::RecordInfo{.n_layers = static_cast<uint32_t>(layers.size()),
                           .layer_bytes = layers[0].size()}
      .file_bytes(identity.size());
}

uint64_t TestChunk::copy_bytes() const {
  return layers.size() * ((layers[0].size() + 4095) / 4096 * 4096);
}

Status put(ChunkStore& store, const TestChunk& chunk, store::PutOptions options) {
  return store.put(chunk.key(), chunk.n_tokens, chunk.spans(), options);
}

bool loads_right(ChunkStore::Handle& handle, const TestChunk& chunk, Status* status) {
  *status = Status::ok();
  if (handle.info().n_layers != chunk.layers.size() || handle.info().n_tokens != chunk.n_tokens) {
    return false;
  }
  store::AlignedBytes scratch;
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

Status load(ChunkStore& store, const TestChunk& chunk) {
  auto handle = store.find(chunk.key());
  if (!handle.is_ok()) return handle.status();
  Status status;
  EXPECT_TRUE(loads_right(*handle, chunk, &status)) << "wrong bytes served";
  return status;
}

std::unique_ptr<ChunkStore> open_store(Env& env, const std::string& dir, uint64_t disk_limit_bytes,
                                       uint64_t memory_limit_bytes) {
  auto store = ChunkStore::open(env, {.dir = dir,
                                      .memory_limit_bytes = memory_limit_bytes,
                                      .disk_limit_bytes = disk_limit_bytes,
                                      .create = true});
  EXPECT_TRUE(store.is_ok()) << store.status().message();
  return store.is_ok() ? std::move(store).value() : nullptr;
}

std::string record_path(const std::string& dir, const TestChunk& chunk) {
  return join_path(dir, store::record_file_name(chunk.key().hash));
}

size_t unfinished_files(const std::string& dir) {
  size_t n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(join_path(dir, "tmp"))) {
    n += entry.path().extension() != ".lock";
  }
  return n;
}

Status MemoryFile::read_at(uint64_t offset, std::span<std::byte> out) const {
  if (offset > bytes_.size() || out.size() > bytes_.size() - offset) {
    return corrupt("memory: read past the end");
  }
  std::memcpy(out.data(), bytes_.data() + offset, out.size());
  return Status::ok();
}

}  // namespace weft::test
