#include "fusion/load_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>

#include "base/log.h"
#include "base/narrow.h"
#include "support/fault_env.h"
#include "support/files.h"

namespace weft::fusion {
namespace {

using test::FaultEnv;

constexpr int32_t kLayers = 12;
constexpr int32_t kTokens = 3;
constexpr size_t kBytes = 80;  // of a layer

/// What a chunk's layer holds tells chunk and layer apart.
std::byte value_of(int chunk, int32_t layer) {
  return static_cast<std::byte>(20 * (chunk + 1) + layer);
}

ChunkKv chunk_of(int chunk) {
  ChunkKv kv{.n_tokens = kTokens, .layers = {}};
  for (int32_t layer = 0; layer < kLayers; ++layer) {
    kv.layers.emplace_back(kBytes, value_of(chunk, layer));
  }
  return kv;
}

/// An Env whose record files count their reads, and hold them back on demand.
class WatchedEnv : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;

  Result<std::unique_ptr<ReadFile>> open_read(const std::string& path, Links links) override {
    WEFT_ASSIGN_OR_RETURN(auto file, FaultEnv::open_read(path, links));
    return std::unique_ptr<ReadFile>(std::make_unique<WatchedFile>(std::move(file), *this));
  }

  std::atomic<int> layer_reads = 0;

 private:
  class WatchedFile : public ReadFile {
   public:
    WatchedFile(std::unique_ptr<ReadFile> file, WatchedEnv& env)
        : file_(std::move(file)), env_(env) {}
    uint64_t size_bytes() const override { return file_->size_bytes(); }
    Status read_at(uint64_t offset, std::span<std::byte> out) const override {
      if (offset >= store::kRecordAlignment) ++env_.layer_reads;  // after the head
      return file_->read_at(offset, out);
    }

   private:
    std::unique_ptr<ReadFile> file_;
    WatchedEnv& env_;
  };
};

class LoadPipelineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = store::ChunkStore::open(env_, {.dir = dir_ / "store", .create = true});
    ASSERT_TRUE(opened.is_ok()) << opened.status().message();
    store_ = std::move(*opened);
  }
  void TearDown() override {
    set_log_level(LogLevel::kWarning);
    store_.reset();
  }

  /// A chunk that is read from disk.
  ChunkSource stored(int chunk) {
    const ChunkKv kv = chunk_of(chunk);
    std::vector<std::span<const std::byte>> layers;
    for (const auto& layer : kv.layers) layers.push_back(std::as_bytes(std::span(layer)));
    const Status put = store_->put(key_of(chunk), kTokens, layers);
    EXPECT_TRUE(put.is_ok()) << put.message();
    auto handle = store_->find(key_of(chunk));
    EXPECT_TRUE(handle.is_ok()) << handle.status().message();
    return {std::move(*handle), kUsualRecordType};
  }

  /// Damages the first byte of one layer of a stored chunk.
  void damage(int chunk, int32_t layer) {
    const std::string path = join_path(dir_ / "store", store::record_file_name(key_of(chunk).hash));
    const uint64_t head = std::filesystem::file_size(path) - kLayers * store::kRecordAlignment;
    env_.damage_reads(path, head + layer * store::kRecordAlignment, std::byte{0x10});
  }

  store::Key key_of(int chunk) {
    identities_[chunk] = {static_cast<std::byte>(chunk), std::byte{77}};
    return store::Key::of(identities_[chunk]);
  }

  test::TempDir dir_;
  WatchedEnv env_{posix_env()};
  std::unique_ptr<store::ChunkStore> store_;
  std::array<std::vector<std::byte>, 4> identities_;
};

void expect_layer(std::span<const std::span<const std::byte>> chunks, size_t n_chunks,
                  int32_t layer) {
  ASSERT_EQ(chunks.size(), n_chunks) << "layer " << layer;
  for (size_t chunk = 0; chunk < n_chunks; ++chunk) {
    ASSERT_EQ(chunks[chunk].size(), kBytes);
    EXPECT_THAT(chunks[chunk], ::testing::Each(value_of(narrow<int>(chunk), layer)));
  }
}

TEST_F(LoadPipelineTest, GivesEveryLayerInOrderWithItsBytes) {
  std::vector<ChunkSource> sources;
  sources.push_back(stored(0));
  sources.emplace_back(chunk_of(1));  // computed just now
  sources.push_back(stored(2));
  const auto started = LoadPipeline::start(sources, 0, kLayers);
  ASSERT_TRUE(started.is_ok()) << started.status().message();
  LoadPipeline& pipeline = **started;
  for (int32_t layer = 0; layer < kLayers; ++layer) expect_layer(pipeline.next(), 3, layer);
  EXPECT_TRUE(pipeline.failure().status.is_ok());
}

TEST_F(LoadPipelineTest, BeginsAtTheFirstLayerAskedFor) {
  std::vector<ChunkSource> sources;
  sources.push_back(stored(0));
  const auto started = LoadPipeline::start(sources, 5, kLayers);
  ASSERT_TRUE(started.is_ok()) << started.status().message();
  LoadPipeline& pipeline = **started;
  for (int32_t layer = 5; layer < kLayers; ++layer) expect_layer(pipeline.next(), 1, layer);
  EXPECT_EQ(env_.layer_reads, kLayers - 5);
}

// A layer is read into a slot only when one of four is free, so however late the consumer comes,
// no more than the one in use and three ahead were read.
TEST_F(LoadPipelineTest, ReadsAtMostFourLayersThatAreNotReleased) {
  std::vector<ChunkSource> sources;
  sources.push_back(stored(0));
  const auto started = LoadPipeline::start(sources, 0, kLayers);
  ASSERT_TRUE(started.is_ok()) << started.status().message();
  LoadPipeline& pipeline = **started;
  for (int32_t layer = 0; layer < kLayers; ++layer) {
    expect_layer(pipeline.next(), 1, layer);
    for (int i = 0; i < 20; ++i) {  // gives the thread every chance to read too far
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      ASSERT_LE(env_.layer_reads, layer + 4);
    }
  }
  EXPECT_EQ(env_.layer_reads, kLayers);
}

TEST_F(LoadPipelineTest, ReportsTheChunkThatFailsInTheMiddle) {
  set_log_level(LogLevel::kQuiet);
  std::vector<ChunkSource> sources;
  sources.push_back(stored(0));
  sources.push_back(stored(1));
  sources.push_back(stored(2));
  damage(1, 6);
  const auto started = LoadPipeline::start(sources, 0, kLayers);
  ASSERT_TRUE(started.is_ok()) << started.status().message();
  LoadPipeline& pipeline = **started;
  for (int32_t layer = 0; layer < 6; ++layer) expect_layer(pipeline.next(), 3, layer);
  EXPECT_TRUE(pipeline.next().empty());
  EXPECT_EQ(pipeline.failure().chunk, 1u);
  EXPECT_EQ(pipeline.failure().status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(pipeline.failure().status.message(), ::testing::HasSubstr("layer 6"));
  EXPECT_TRUE(pipeline.next().empty());  // and stays failed
}

TEST_F(LoadPipelineTest, ReportsAFailureOfTheVeryFirstLayer) {
  set_log_level(LogLevel::kQuiet);
  std::vector<ChunkSource> sources;
  sources.push_back(stored(0));
  damage(0, 0);
  const auto started = LoadPipeline::start(sources, 0, kLayers);
  ASSERT_TRUE(started.is_ok()) << started.status().message();
  LoadPipeline& pipeline = **started;
  EXPECT_TRUE(pipeline.next().empty());
  EXPECT_EQ(pipeline.failure().chunk, 0u);
}

TEST_F(LoadPipelineTest, MayBeDestroyedWhileItLoads) {
  set_log_level(LogLevel::kQuiet);
  std::vector<ChunkSource> sources;
  sources.push_back(stored(0));
  for (int32_t taken = 0; taken <= kLayers; ++taken) {
    const auto started = LoadPipeline::start(sources, 0, kLayers);
    ASSERT_TRUE(started.is_ok()) << started.status().message();
    LoadPipeline& pipeline = **started;
    for (int32_t layer = 0; layer < taken; ++layer) expect_layer(pipeline.next(), 1, layer);
  }
  damage(0, 3);
  for (int32_t taken = 0; taken < 4; ++taken) {  // failed, or about to
    std::vector<ChunkSource> again;
    again.push_back(stored(0));
    const auto started = LoadPipeline::start(again, 0, kLayers);
    ASSERT_TRUE(started.is_ok()) << started.status().message();
    LoadPipeline& pipeline = **started;
    for (int32_t layer = 0; layer < std::min(taken, 3); ++layer) (void)pipeline.next();
  }
}

}  // namespace
}  // namespace weft::fusion
