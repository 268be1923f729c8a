// What the store does when the system fails under it: power cuts at every call, any call failing, a
// full disk, damaged reads.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <utility>

#include "base/log.h"
#include "store/chunk_store.h"
#include "support/fault_env.h"
#include "support/files.h"
#include "support/store_chunks.h"

namespace weft::store {
namespace {

using test::FaultEnv;
using test::MemoryTempDir;
using test::open_store;
using test::read_text;
using test::record_path;
using test::Survives;
using test::TestChunk;
using test::unfinished_files;

constexpr int kChunks = 7;
constexpr size_t kLayerBytes = 3000;
constexpr uint64_t kRoomForAll = 0;

uint64_t room_for_three() {
  uint64_t largest = 0;
  for (int i = 0; i < kChunks; ++i) {
    largest = std::max(largest, TestChunk(i, kLayerBytes).file_bytes());
  }
  return 3 * largest;
}

class ChunkStoreFaults : public ::testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::kQuiet); }
  void TearDown() override { set_log_level(LogLevel::kWarning); }
};

constexpr int kRemoved = 0;  // the chunk that is removed once the last one is put

/// What the store promised before the power went.
struct Promises {
  int last_put = -1;
  std::string property = "";
  bool is_removed = false;
};

/// Opens, puts with evictions, reads, sets properties, removes. Goes on after errors, as a server
/// would, and tries once more what failed.
Promises work(Env& env, const std::string& dir, uint64_t disk_limit_bytes) {
  Promises promises;
  auto opened = ChunkStore::open(env, {.dir = dir,
                                       .memory_limit_bytes = 40'000,
                                       .disk_limit_bytes = disk_limit_bytes,
                                       .create = true});
  if (!opened.is_ok()) return promises;
  ChunkStore& store = **opened;
  for (int i = 0; i < kChunks; ++i) {
    const TestChunk chunk(i, kLayerBytes);
    if (put(store, chunk).is_ok() || put(store, chunk).is_ok()) promises.last_put = i;
    if (i % 3 == 1) (void)load(store, TestChunk(i - 1, kLayerBytes));
    if (i % 3 == 2) {
      const std::string value = std::to_string(i);
      if (store.set_property("round", value).is_ok()) promises.property = value;
    }
  }
  const Hash128 removed = TestChunk(kRemoved, kLayerBytes).key().hash;
  for (int attempt = 0; attempt < 2 && !promises.is_removed; ++attempt) {
    const Status status = store.remove(removed);
    promises.is_removed = status.is_ok() || status.code() == StatusCode::kNotFound;
  }
  return promises;
}

/// The store's whole promise after a crash.
void check_after_crash(const std::string& dir, const Promises& promises, uint64_t limit) {
  FaultEnv env(posix_env());  // without faults: it spares the test the waiting for real syncs
  auto reopened = ChunkStore::open(
      env, {.dir = dir, .disk_limit_bytes = limit, .create = promises.last_put < 0});
  ASSERT_TRUE(reopened.is_ok()) << reopened.status().message();
  ChunkStore& store = **reopened;
  EXPECT_EQ(unfinished_files(dir), 0u);
  const auto report = store.verify([](uint64_t, uint64_t) { return true; });
  ASSERT_TRUE(report.is_ok());
  EXPECT_TRUE(report->bad.empty()) << report->bad[0].status.message();
  for (int i = 0; i < kChunks; ++i) {
    const Status status = load(store, TestChunk(i, kLayerBytes));
    EXPECT_TRUE(status.is_ok() || status.code() == StatusCode::kNotFound) << status.message();
    EXPECT_TRUE(i != promises.last_put || status.is_ok()) << "an acknowledged record is lost";
    EXPECT_FALSE(i == kRemoved && promises.is_removed && status.is_ok())
        << "a removed record came back";
  }
  const auto property = store.property("round");
  EXPECT_GE(property.is_ok() ? *property : "", promises.property);
  for (int i = 0; i < kChunks; ++i) EXPECT_TRUE(put(store, TestChunk(i, kLayerBytes)).is_ok());
  EXPECT_TRUE(limit == 0 || store.stat()->disk.bytes <= limit);
}

void cut_power_everywhere(uint64_t limit) {
  uint64_t total_calls = 0;
  {
    const MemoryTempDir dir;
    FaultEnv env(posix_env());
    EXPECT_EQ(work(env, join_path(dir.path(), "store"), limit).last_put, kChunks - 1);
    total_calls = env.calls();
  }
  struct Way {
    Survives survives;
    uint64_t seed;
  };
  const Way ways[] = {{Survives::kNothing, 0},
                      {Survives::kNames, 0},
                      {Survives::kNamesAndSizes, 0},
                      {Survives::kSome, 1},
                      {Survives::kSome, 2}};
  for (uint64_t at = 0; at <= total_calls; ++at) {  // the last one: after everything
    for (const Way& way : ways) {
      SCOPED_TRACE(testing::Message() << "power cut at call " << at << " of " << total_calls
                                      << ", survives " << static_cast<int>(way.survives));
      const MemoryTempDir dir;
      const std::string store_dir = join_path(dir.path(), "store");
      FaultEnv env(posix_env());
      env.cut_power_at(at);
      const Promises promises = work(env, store_dir, limit);
      ASSERT_TRUE(env.restart(way.survives, way.seed * 1000 + at).is_ok());
      check_after_crash(store_dir, promises, limit);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST_F(ChunkStoreFaults, APowerCutAtAnyCallLosesNothingThatWasPromised) {
  cut_power_everywhere(kRoomForAll);
}

TEST_F(ChunkStoreFaults, APowerCutAtAnyCallDuringEviction) {
  cut_power_everywhere(room_for_three());
}

TEST_F(ChunkStoreFaults, AnyCallMayFail) {
  const uint64_t limit = room_for_three();
  for (const StatusCode code : {StatusCode::kIoError, StatusCode::kResourceExhausted}) {
    uint64_t total_calls = 1;
    for (uint64_t at = 0; at < total_calls; ++at) {
      SCOPED_TRACE(testing::Message() << "call " << at << " fails: " << status_code_name(code));
      const MemoryTempDir dir;
      const std::string store_dir = join_path(dir.path(), "store");
      FaultEnv env(posix_env());
      env.fail_call(at, code);
      Promises promises = work(env, store_dir, limit);
      total_calls = std::max(total_calls, env.calls());
      ASSERT_LT(total_calls, 5000u);
      if (!posix_env().exists(join_path(store_dir, "properties"))) promises.last_put = -1;
      check_after_crash(store_dir, promises, limit);
      if (HasFailure()) return;
    }
  }
}

TEST_F(ChunkStoreFaults, ASuccessfulRetryAfterAFailedCallIsDurable) {
  for (const uint64_t limit : {kRoomForAll, room_for_three()}) {
    uint64_t total_calls = 1;
    for (uint64_t at = 0; at < total_calls; ++at) {
      SCOPED_TRACE(testing::Message() << "call " << at << " fails, then the power");
      const MemoryTempDir dir;
      const std::string store_dir = join_path(dir.path(), "a/store");
      FaultEnv env(posix_env());
      env.fail_call(at);
      Promises promises = work(env, store_dir, limit);
      if (promises.last_put < 0) promises = work(env, store_dir, limit);  // it failed to open
      total_calls = std::max(total_calls, env.calls());
      ASSERT_EQ(promises.last_put, kChunks - 1);
      ASSERT_TRUE(promises.is_removed);
      ASSERT_TRUE(env.restart(Survives::kNothing).is_ok());
      check_after_crash(store_dir, promises, limit);
      if (HasFailure()) return;
    }
  }
}

/// Another process stores the same record while this one waits for the lock to name its own, and is
/// killed before it has made the name durable.
class QuickerEnv : public FaultEnv {
 public:
  QuickerEnv() : FaultEnv(posix_env()) {}
  Result<std::unique_ptr<FileLock>> lock(const std::string& path, bool exclusive,
                                         const LockWait& wait) override {
    auto taken = FaultEnv::lock(path, exclusive, wait);
    if (auto quicker = std::exchange(on_lock, nullptr)) quicker();
    return taken;
  }
  std::function<void()> on_lock;
};

TEST_F(ChunkStoreFaults, PutOfARecordThatAnotherProcessStoredFirstIsDurable) {
  const MemoryTempDir dir;
  const TestChunk chunk(1);
  ASSERT_TRUE(put(*open_store(posix_env(), join_path(dir.path(), "other")), chunk).is_ok());
  const std::string record = read_text(record_path(join_path(dir.path(), "other"), chunk));
  const std::string store_dir = join_path(dir.path(), "store");
  const std::string path = record_path(store_dir, chunk);
  QuickerEnv env;
  {
    auto store = open_store(env, store_dir);
    bool was_quicker = false;
    env.on_lock = [&] {
      const auto file = env.create(path + ".other", {});
      was_quicker = file.is_ok() && (*file)->append(std::as_bytes(std::span(record))).is_ok() &&
                    (*file)->sync().is_ok() && (*file)->close().is_ok() &&
                    env.rename(path + ".other", path).is_ok();
    };
    ASSERT_TRUE(put(*store, chunk).is_ok());
    ASSERT_TRUE(was_quicker);
  }
  ASSERT_TRUE(env.restart(Survives::kNothing).is_ok());
  auto store = open_store(env, store_dir);
  EXPECT_TRUE(load(*store, chunk).is_ok());
}

TEST_F(ChunkStoreFaults, ClearedRecordsDoNotComeBackAfterAPowerCut) {
  const MemoryTempDir dir;
  FaultEnv env(posix_env());
  const std::string store_dir = join_path(dir.path(), "store");
  {
    auto store = open_store(env, store_dir);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(put(*store, TestChunk(i)).is_ok());
    ASSERT_TRUE(store->clear().is_ok());
  }
  ASSERT_TRUE(env.restart(Survives::kNothing).is_ok());
  EXPECT_EQ(open_store(env, store_dir)->stat()->disk.records, 0u);
}

TEST_F(ChunkStoreFaults, ManyRemovalsTakeOneSyncAndAreDurable) {
  class CountingEnv : public FaultEnv {
   public:
    CountingEnv() : FaultEnv(posix_env()) {}
    Status sync_dir(const std::string& dir) override {
      ++syncs;
      return FaultEnv::sync_dir(dir);
    }
    int syncs = 0;
  } env;
  const MemoryTempDir dir;
  const std::string store_dir = join_path(dir.path(), "store");
  {
    auto store = open_store(env, store_dir);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(put(*store, TestChunk(i)).is_ok());
    const int before = env.syncs;
    for (int i = 0; i < 3; ++i) {
      const Hash128 record = TestChunk(i).key().hash;
      ASSERT_TRUE(store->remove(record, ChunkStore::Durable::kAtSync).is_ok());
    }
    EXPECT_EQ(env.syncs, before);
    ASSERT_TRUE(store->sync().is_ok());
    EXPECT_EQ(env.syncs, before + 1);
  }
  ASSERT_TRUE(env.restart(Survives::kNothing).is_ok());
  EXPECT_EQ(open_store(env, store_dir)->stat()->disk.records, 0u);
}

TEST_F(ChunkStoreFaults, APropertyThatWasSetLastSurvives) {
  const MemoryTempDir dir;
  const std::string store_dir = join_path(dir.path(), "store");
  for (const Survives survives : {Survives::kNothing, Survives::kNames, Survives::kNamesAndSizes}) {
    FaultEnv env(posix_env());
    ASSERT_TRUE(open_store(env, store_dir)->set_property("model", "a model").is_ok());
    ASSERT_TRUE(env.restart(survives).is_ok());
    auto store = ChunkStore::open(env, {.dir = store_dir});
    ASSERT_TRUE(store.is_ok()) << store.status().message();
    EXPECT_EQ(*(*store)->property("model"), "a model");
    std::filesystem::remove_all(store_dir);
  }
}

TEST_F(ChunkStoreFaults, AFullDiskStopsCleanlyAndWhatWasStoredStays) {
  const TestChunk first(1, kLayerBytes), second(2, kLayerBytes);
  const MemoryTempDir dir;
  FaultEnv env(posix_env());
  auto store = open_store(env, dir.path());
  ASSERT_TRUE(put(*store, first).is_ok());
  for (uint64_t free = 0; free < second.file_bytes(); free += 500) {
    env.limit_disk(free);
    const Status status = put(*store, second);
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
    EXPECT_EQ(unfinished_files(dir.path()), 0u);
    EXPECT_TRUE(load(*store, first).is_ok());
    EXPECT_EQ(load(*store, second).code(), StatusCode::kNotFound);
  }
  env.limit_disk(second.file_bytes());
  EXPECT_TRUE(put(*store, second).is_ok());
  EXPECT_TRUE(load(*store, second).is_ok());
}

TEST_F(ChunkStoreFaults, ADamagedReadIsNeverServed) {
  const TestChunk chunk(3, 200);
  const uint64_t size = chunk.file_bytes();
  for (uint64_t offset = 0; offset < size; offset += 7) {
    const MemoryTempDir dir;
    FaultEnv env(posix_env());
    auto store = open_store(env, dir.path(), 0, 1 << 20);
    ASSERT_TRUE(put(*store, chunk).is_ok());
    env.damage_reads(record_path(dir.path(), chunk), offset, std::byte{0x04});
    const Status status = load(*store, chunk);  // fails the test when a wrong byte is served
    const bool in_padding = offset >= 4096 && (offset - 4096) % 4096 >= 200;
    EXPECT_EQ(status.is_ok(), in_padding) << offset << status.message();
  }
}

TEST_F(ChunkStoreFaults, AReadErrorIsNotTakenForDamage) {
  const TestChunk chunk(4, kLayerBytes);
  const MemoryTempDir dir;
  FaultEnv env(posix_env());
  auto store = open_store(env, dir.path());
  ASSERT_TRUE(put(*store, chunk).is_ok());
  for (uint64_t ahead = 0;; ++ahead) {
    env.fail_call(env.calls() + ahead);
    const uint64_t before = env.calls();
    const Status status = load(*store, chunk);
    EXPECT_TRUE(env.exists(record_path(dir.path(), chunk)) ||
                env.exists(record_path(dir.path(), chunk)));
    EXPECT_NE(status.code(), StatusCode::kNotFound);
    if (env.calls() - before <= ahead) break;
  }
  EXPECT_EQ(store->stat()->damaged, 0u);
  EXPECT_TRUE(load(*store, chunk).is_ok());
}

TEST_F(ChunkStoreFaults, OnlyADamagedRecordIsRemovedAsDamaged) {
  const MemoryTempDir dir;
  const TestChunk whole(1), damaged(2);
  {
    auto store = open_store(posix_env(), dir.path());
    ASSERT_TRUE(put(*store, whole).is_ok());
    ASSERT_TRUE(put(*store, damaged).is_ok());
  }
  const std::string path = record_path(dir.path(), damaged);
  std::string bytes = *read_file(posix_env(), path, 1 << 20);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  std::ofstream(path, std::ios::binary) << bytes;
  const auto all = [](uint64_t, uint64_t) { return true; };
  // Whatever call fails, and however: what is whole is never called damaged, nor removed.
  for (const StatusCode code : {StatusCode::kIoError, StatusCode::kResourceExhausted}) {
    for (uint64_t call = 0;; ++call) {
      SCOPED_TRACE(call);
      FaultEnv env(posix_env());
      auto store = ChunkStore::open(env, {.dir = dir.path()});
      ASSERT_TRUE(store.is_ok());
      const uint64_t first = env.calls();
      env.fail_call(first + call, code);
      const auto report = (*store)->verify(all);
      if (report.is_ok()) {
        for (const auto& bad : report->bad) {
          const bool is_other = bad.file != record_file_name(damaged.key().hash);
          EXPECT_FALSE(is_other && bad.is_damaged()) << bad.status.message();
        }
      }
      const bool is_over = env.calls() <= first + call;
      const auto removed = (*store)->remove_damaged(whole.key().hash);
      EXPECT_FALSE(removed.is_ok() && *removed);
      EXPECT_TRUE(posix_env().exists(record_path(dir.path(), whole)));
      if (is_over) break;
    }
  }
  auto store = open_store(posix_env(), dir.path());
  EXPECT_EQ(store->verify(all)->bad.size(), 1u);
  EXPECT_TRUE(*store->remove_damaged(damaged.key().hash));
  EXPECT_FALSE(posix_env().exists(path));
  EXPECT_FALSE(*store->remove_damaged(damaged.key().hash)) << "it is gone";
  ASSERT_TRUE(put(*store, damaged).is_ok());
  EXPECT_FALSE(*store->remove_damaged(damaged.key().hash)) << "it is whole again";
  EXPECT_TRUE(load(*store, damaged).is_ok());
}

}  // namespace
}  // namespace weft::store
