#include "store/chunk_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

#include "base/log.h"
#include "support/fault_env.h"
#include "support/files.h"
#include "support/store_chunks.h"

namespace weft::store {
namespace {

using test::FaultEnv;
using test::loads_right;
using test::MemoryTempDir;
using test::open_store;
using test::read_text;
using test::record_path;
using test::TestChunk;
using test::unfinished_files;
using test::write_text;
using ::testing::HasSubstr;

constexpr StatusCode kNotFound = StatusCode::kNotFound;
constexpr StatusCode kExhausted = StatusCode::kResourceExhausted;

TEST(ChunkStore, StoredRecordsAreFoundAfterReopening) {
  const MemoryTempDir dir;
  auto store = open_store(posix_env(), dir.path());
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(put(*store, TestChunk(i)).is_ok());
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 20; ++i) {
      EXPECT_TRUE(store->contains(TestChunk(i).key()));
      EXPECT_TRUE(load(*store, TestChunk(i)).is_ok());
    }
    EXPECT_EQ(load(*store, TestChunk(99)).code(), kNotFound);
    EXPECT_FALSE(store->contains(TestChunk(99).key()));
    EXPECT_EQ(store->stat()->disk.records, 20u);
    store.reset();
    store = open_store(posix_env(), dir.path());
  }
}

TEST(ChunkStore, AFolderWithoutAStoreIsRefusedUnlessCreateIsSet) {
  const MemoryTempDir dir;
  const std::string path = join_path(dir.path(), "a/b/c");
  EXPECT_EQ(ChunkStore::open(posix_env(), {.dir = path}).status().code(), kNotFound);
  EXPECT_FALSE(posix_env().exists(path));
  ASSERT_NE(open_store(posix_env(), path), nullptr);
  EXPECT_TRUE(ChunkStore::open(posix_env(), {.dir = path}).is_ok());
}

TEST(ChunkStore, PuttingAnExistingKeyDoesNothing) {
  const MemoryTempDir dir;
  auto store = open_store(posix_env(), dir.path());
  const TestChunk chunk(1);
  TestChunk other = chunk;
  other.layers[0][0] ^= std::byte{1};
  ASSERT_TRUE(put(*store, chunk).is_ok());
  EXPECT_TRUE(store->put(chunk.key(), other.n_tokens, other.spans()).is_ok());
  EXPECT_TRUE(load(*store, chunk).is_ok());
}

TEST(ChunkStore, MalformedPutsAreRefusedAndLeaveNothing) {
  const MemoryTempDir dir;
  auto store = open_store(posix_env(), dir.path());
  TestChunk chunk(1);
  EXPECT_EQ(store->put(chunk.key(), 1, {}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store->put(chunk.key(), 0, chunk.spans()).code(), StatusCode::kInvalidArgument);
  const Key wrong_hash{{1, 2}, chunk.identity};
  EXPECT_EQ(store->put(wrong_hash, 1, chunk.spans()).code(), StatusCode::kInvalidArgument);
  chunk.layers.push_back({std::byte{1}});
  EXPECT_EQ(put(*store, chunk).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store->stat()->disk.records, 0u);
  EXPECT_EQ(unfinished_files(dir.path()), 0u);
}

TEST(ChunkStore, TheIdentityIsComparedNotOnlyTheHash) {
  const MemoryTempDir dir;
  auto store = open_store(posix_env(), dir.path(), 0, 1 << 20);
  const TestChunk chunk(1), other(2);
  ASSERT_TRUE(put(*store, chunk).is_ok());
  const Key same_hash{chunk.key().hash, other.identity};
  EXPECT_EQ(store->find(same_hash).status().code(), kNotFound);
  EXPECT_TRUE(load(*store, chunk).is_ok()) << "it is still there, and moves into memory";
  EXPECT_EQ(store->stat()->memory.records, 1u);
  EXPECT_EQ(store->find(same_hash).status().code(), kNotFound) << "in memory, too";
  EXPECT_TRUE(load(*store, chunk).is_ok());
}

TEST(ChunkStore, DamagedRecordsAreAMissAndRemoved) {
  const TestChunk chunk(3), other(4);
  const MemoryTempDir source;
  ASSERT_TRUE(put(*open_store(posix_env(), source.path()), other).is_ok());
  struct Case {
    const char* what;
    std::function<void(const std::string& path)> damage;
  };
  const Case cases[] = {
      {"empty", [](const auto& path) { write_text(path, ""); }},
      {"truncated",
       [](const auto& path) {
         std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
       }},
      {"longer",
       [](const auto& path) {
         std::filesystem::resize_file(path, std::filesystem::file_size(path) + 4096);
       }},
      {"identity flipped",
       [](const auto& path) {
         std::string text = read_text(path);
         text[50] ^= 1;
         write_text(path, text);
       }},
      {"version",
       [](const auto& path) {
         std::string text = read_text(path);
         text[16] = 2;
         write_text(path, text);
       }},
      {"misnamed",
       [&](const auto& path) { write_text(path, read_text(record_path(source.path(), other))); }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    const MemoryTempDir dir;
    auto store = open_store(posix_env(), dir.path());
    ASSERT_TRUE(put(*store, chunk).is_ok());
    c.damage(record_path(dir.path(), chunk));
    EXPECT_EQ(load(*store, chunk).code(), kNotFound);
    EXPECT_FALSE(posix_env().exists(record_path(dir.path(), chunk)));
    EXPECT_EQ(store->stat()->damaged, 1u);
    EXPECT_EQ(store->stat()->disk.records, 0u);
    EXPECT_TRUE(put(*store, chunk).is_ok());
    EXPECT_TRUE(load(*store, chunk).is_ok());
  }
}

TEST(ChunkStore, ADamagedLayerIsFoundWhenItIsLoadedAndNeverKept) {
  const MemoryTempDir dir;
  auto store = open_store(posix_env(), dir.path(), 0, 1 << 20);
  const TestChunk chunk(5, 1000);
  ASSERT_TRUE(put(*store, chunk).is_ok());
  const std::string path = record_path(dir.path(), chunk);
  std::string text = read_text(path);
  text[text.size() - 4096 + 999] ^= 0x10;  // last byte of the last layer
  write_text(path, text);
  EXPECT_EQ(load(*store, chunk).code(), StatusCode::kCorrupt);
  EXPECT_FALSE(posix_env().exists(path));
  EXPECT_EQ(load(*store, chunk).code(), kNotFound);
  EXPECT_EQ(store->stat()->memory.records, 0u);
}

TEST(ChunkStore, OverTheDiskLimitTheLeastRecentlyUsedIsEvicted) {
  const MemoryTempDir dir;
  const uint64_t each = TestChunk(0, 5000).file_bytes();
  std::vector<TestChunk> chunks;
  for (int i = 0; i < 5; ++i) {
    chunks.emplace_back(i, 5000);
    chunks.back().layers.resize(1, chunks.back().layers[0]);
  }
  const uint64_t one = chunks[0].file_bytes();
  ASSERT_LE(one, each);
  auto store = open_store(posix_env(), dir.path(), 3 * one);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(put(*store, chunks[static_cast<size_t>(i)]).is_ok());
  EXPECT_TRUE(load(*store, chunks[0]).is_ok());  // now 1 is the oldest
  ASSERT_TRUE(put(*store, chunks[3]).is_ok());
  EXPECT_FALSE(store->contains(chunks[1].key()));
  EXPECT_TRUE(store->contains(chunks[0].key()));
  EXPECT_EQ(store->stat()->disk.evictions, 1u);
  EXPECT_EQ(store->stat()->disk.bytes, 3 * one);

  store = open_store(posix_env(), dir.path(), 3 * one);  // the order survives
  ASSERT_TRUE(put(*store, chunks[4]).is_ok());
  EXPECT_FALSE(store->contains(chunks[2].key()));
  for (const size_t i : {0, 3, 4}) EXPECT_TRUE(load(*store, chunks[i]).is_ok());
}

TEST(ChunkStore, ARecordOverTheLimitIsRefusedNamingTheLimit) {
  const MemoryTempDir dir;
  const TestChunk big(1, 50'000), small(2, 100), other(3, 100);
  const uint64_t limit = small.file_bytes() + other.file_bytes() - 1;
  auto store = open_store(posix_env(), dir.path(), limit);
  const Status too_big = put(*store, big);
  EXPECT_EQ(too_big.code(), kExhausted);
  EXPECT_THAT(too_big.message(), HasSubstr(std::to_string(limit)));
  ASSERT_TRUE(put(*store, small).is_ok());
  EXPECT_EQ(put(*store, other, {.evict = false}).code(), kExhausted);
  EXPECT_TRUE(load(*store, small).is_ok()) << "nothing was evicted for it";
  {
    auto pin = store->find(small.key());
    ASSERT_TRUE(pin.is_ok());
    const Status in_use = put(*store, other);
    EXPECT_EQ(in_use.code(), kExhausted);
    EXPECT_THAT(in_use.message(), HasSubstr("in use"));
    Status status;
    EXPECT_TRUE(loads_right(*pin, small, &status) && status.is_ok());
  }
  EXPECT_TRUE(put(*store, other).is_ok());
  EXPECT_EQ(load(*store, small).code(), kNotFound);
  EXPECT_EQ(unfinished_files(dir.path()), 0u);
}

TEST(ChunkStore, ALoadedRecordIsKeptInMemoryWithinItsLimit) {
  const MemoryTempDir dir;
  const TestChunk a(1, 5000), b(2, 6000);
  auto store = open_store(posix_env(), dir.path(), 0, std::max(a.copy_bytes(), b.copy_bytes()));
  ASSERT_TRUE(put(*store, a).is_ok());
  ASSERT_TRUE(put(*store, b).is_ok());
  EXPECT_EQ(store->find(a.key())->tier(), Tier::kDisk);
  EXPECT_EQ(store->stat()->memory.records, 0u) << "no layer was loaded";
  EXPECT_TRUE(load(*store, a).is_ok());
  EXPECT_EQ(store->stat()->memory.records, 1u);
  EXPECT_EQ(store->stat()->memory.bytes, a.copy_bytes());
  {
    auto in_memory = store->find(a.key());
    ASSERT_TRUE(in_memory.is_ok());
    EXPECT_EQ(in_memory->tier(), Tier::kMemory);
    EXPECT_TRUE(load(*store, b).is_ok());
    EXPECT_EQ(store->find(b.key())->tier(), Tier::kDisk) << "a is pinned, b does not fit";
    Status status;
    EXPECT_TRUE(loads_right(*in_memory, a, &status) && status.is_ok());
  }
  EXPECT_TRUE(load(*store, b).is_ok());
  EXPECT_EQ(store->find(b.key())->tier(), Tier::kMemory);
  EXPECT_EQ(store->stat()->memory.evictions, 1u);
  EXPECT_EQ(store->find(a.key())->tier(), Tier::kDisk);
  std::filesystem::remove(record_path(dir.path(), b));
  EXPECT_TRUE(load(*store, b).is_ok()) << "memory needs no file";
}

TEST(ChunkStore, AHalfLoadedHandleReturnsItsReservedMemory) {
  const MemoryTempDir dir;
  const TestChunk half(2, 5000), whole(1, 5000);
  ASSERT_GT(half.layers.size(), 1u);
  auto store =
      open_store(posix_env(), dir.path(), 0, std::max(half.copy_bytes(), whole.copy_bytes()));
  ASSERT_TRUE(put(*store, half).is_ok());
  ASSERT_TRUE(put(*store, whole).is_ok());
  AlignedBytes scratch;
  for (int i = 0; i < 50; ++i) {
    auto handle = store->find(half.key());
    ASSERT_TRUE(handle.is_ok());
    ASSERT_TRUE(handle->load_layer(0, scratch).is_ok());
  }
  EXPECT_EQ(store->stat()->memory.records, 0u);
  EXPECT_TRUE(load(*store, whole).is_ok());
  EXPECT_EQ(store->stat()->memory.records, 1u) << "the tier is full of what nobody holds";
  EXPECT_EQ(store->find(whole.key())->tier(), Tier::kMemory);
}

TEST(ChunkStore, ADamagedLayerReturnsItsReservedMemory) {
  set_log_level(LogLevel::kQuiet);
  const MemoryTempDir dir;
  const TestChunk bad(2, 5000), whole(1, 5000);
  auto store =
      open_store(posix_env(), dir.path(), 0, std::max(bad.copy_bytes(), whole.copy_bytes()));
  ASSERT_TRUE(put(*store, whole).is_ok());
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(put(*store, bad).is_ok());
    std::string text = read_text(record_path(dir.path(), bad));
    text[text.size() - 4096] ^= 1;
    write_text(record_path(dir.path(), bad), text);
    EXPECT_EQ(load(*store, bad).code(), StatusCode::kCorrupt);
  }
  EXPECT_TRUE(load(*store, whole).is_ok());
  EXPECT_EQ(store->stat()->memory.records, 1u);
  set_log_level(LogLevel::kWarning);
}

TEST(ChunkStore, ARemovedRecordStaysReadableThroughOpenHandles) {
  const MemoryTempDir dir;
  auto store = open_store(posix_env(), dir.path(), 0, 1 << 20);
  const TestChunk chunk(1), other(2);
  ASSERT_TRUE(put(*store, chunk).is_ok());
  ASSERT_TRUE(put(*store, other).is_ok());
  EXPECT_TRUE(load(*store, other).is_ok());
  auto on_disk = store->find(chunk.key());
  auto in_memory = store->find(other.key());
  EXPECT_EQ(in_memory->tier(), Tier::kMemory);
  ASSERT_TRUE(store->remove(chunk.key().hash).is_ok());
  EXPECT_EQ(store->remove(chunk.key().hash).code(), kNotFound);
  ASSERT_TRUE(store->clear().is_ok());
  Status status;
  EXPECT_TRUE(loads_right(*on_disk, chunk, &status) && status.is_ok());
  EXPECT_TRUE(loads_right(*in_memory, other, &status) && status.is_ok());
  const StoreStats stats = *store->stat();
  EXPECT_EQ(stats.memory.records + stats.disk.records + stats.memory.bytes + stats.disk.bytes, 0u);
  EXPECT_FALSE(store->contains(chunk.key()));
}

TEST(ChunkStore, ListsAndVerifies) {
  const MemoryTempDir dir;
  auto store = open_store(posix_env(), dir.path(), 0, 1 << 20);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(put(*store, TestChunk(i, 2000)).is_ok());
  EXPECT_TRUE(load(*store, TestChunk(0, 2000)).is_ok());
  const TestChunk broken_head(1, 2000), broken_layer(2, 2000);
  std::string text = read_text(record_path(dir.path(), broken_head));
  text[20] ^= 1;
  write_text(record_path(dir.path(), broken_head), text);
  text = read_text(record_path(dir.path(), broken_layer));
  text[text.size() - 4096] ^= 1;
  write_text(record_path(dir.path(), broken_layer), text);

  const auto records = store->ls();
  ASSERT_TRUE(records.is_ok());
  ASSERT_EQ(records->size(), 4u);
  for (const RecordSummary& record : *records) {
    const bool is_broken = record.hash == broken_head.key().hash;
    EXPECT_EQ(record.status.is_ok(), !is_broken);
    EXPECT_EQ(record.in_memory, record.hash == TestChunk(0).key().hash);
    if (record.hash == TestChunk(3).key().hash) {
      EXPECT_EQ(record.info.n_tokens, TestChunk(3, 2000).n_tokens);
      EXPECT_EQ(record.file_bytes, TestChunk(3, 2000).file_bytes());
    }
  }
  std::vector<std::pair<uint64_t, uint64_t>> steps;
  const auto report = store->verify([&](uint64_t done, uint64_t total) {
    steps.emplace_back(done, total);
    return true;
  });
  ASSERT_TRUE(report.is_ok());
  EXPECT_EQ(report->records, 4u);
  EXPECT_EQ(report->bad.size(), 2u);
  EXPECT_EQ(steps.size(), 4u);
  EXPECT_EQ(steps.back(), std::pair(uint64_t{4}, uint64_t{4}));
  EXPECT_EQ(store->stat()->disk.records, 4u) << "verify removes nothing";
  const auto stopped = store->verify([](uint64_t, uint64_t) { return false; });
  EXPECT_EQ(stopped.status().code(), StatusCode::kCancelled);
}

TEST(ChunkStore, ARecordOfNoKnownTypeIsListedAndVerifiedAsDamaged) {
  const MemoryTempDir dir;
  const TestChunk known(1, 2000), unknown(2, 2000);
  const auto type_of = [&](std::span<const std::byte> identity,
                           const RecordInfo& info) -> Result<std::string> {
    EXPECT_EQ(info.layer_bytes, 2000u);
    if (std::ranges::equal(identity, unknown.identity)) return corrupt("its type is nothing");
    return std::string("f16");
  };
  auto store = *ChunkStore::open(
      posix_env(),
      {.dir = dir.path(), .memory_limit_bytes = 1 << 20, .create = true, .type_of = type_of});
  ASSERT_TRUE(put(*store, known).is_ok());
  ASSERT_TRUE(put(*store, unknown).is_ok());
  EXPECT_TRUE(load(*store, known).is_ok());
  const auto check = [&] {
    const auto records = *store->ls();
    ASSERT_EQ(records.size(), 2u);
    for (const RecordSummary& record : records) {
      const bool is_known = record.hash == known.key().hash;
      EXPECT_EQ(record.type, is_known ? "f16" : "");
      EXPECT_EQ(record.info.n_tokens, is_known ? known.n_tokens : 0);
      EXPECT_EQ(record.status.message(),
                is_known ? "" : record_path(dir.path(), unknown) + ": its type is nothing");
    }
  };
  check();
  EXPECT_TRUE(load(*store, unknown).is_ok()) << "whoever asks by the key knows what it is";
  check();  // in memory, too
  const auto report = store->verify([](uint64_t, uint64_t) { return true; });
  ASSERT_EQ(report->bad.size(), 1u);
  EXPECT_TRUE(report->bad[0].is_damaged());
  EXPECT_EQ(report->bad[0].file, record_file_name(unknown.key().hash));
  EXPECT_FALSE(*store->remove_damaged(known.key().hash));
  EXPECT_TRUE(*store->remove_damaged(unknown.key().hash));
}

TEST(ChunkStore, PropertiesSurviveAndAreChecked) {
  const MemoryTempDir dir;
  auto store = open_store(posix_env(), dir.path());
  EXPECT_EQ(store->property("anchor").status().code(), kNotFound);
  const std::string value = "line\nline = \\n \r\xff\x00 end";
  ASSERT_TRUE(store->set_property("anchor", value).is_ok());
  ASSERT_TRUE(store->set_property("anchor.kind", "neutral").is_ok());
  EXPECT_EQ(store->set_property("A=b", "x").code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(store->set_property("big", std::string(100'000, 'x')).code(), kExhausted);
  store = open_store(posix_env(), dir.path());
  EXPECT_EQ(*store->property("anchor"), value);
  EXPECT_EQ(*store->property("anchor.kind"), "neutral");
  ASSERT_TRUE(store->set_property("anchor", "").is_ok());
  EXPECT_EQ(*store->property("anchor"), "");
  store.reset();
  const std::string path = join_path(dir.path(), "properties");
  const std::string text = read_text(path);
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] ^= 2;
    write_text(path, damaged);
    EXPECT_FALSE(ChunkStore::open(posix_env(), {.dir = dir.path()}).is_ok()) << i;
  }
  write_text(path, text);
  EXPECT_TRUE(ChunkStore::open(posix_env(), {.dir = dir.path()}).is_ok());
}

/// Two stores order their records' uses by the clock, which counts milliseconds.
void let_the_clock_tick() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

/// The index's journal comes and goes in the same folder, and gives it the kernel's own time.
TEST(ChunkStore, AChangeWithinOneTickOfTheKernelIsSeen) {
  const MemoryTempDir dir;
  const TestChunk chunk(1, 3000);
  auto one = open_store(posix_env(), dir.path());
  auto two = open_store(posix_env(), dir.path());
  // A little ahead of the clock, so that it is recent however long this test takes.
  const int64_t tick_ns = (posix_env().unix_ms() + 10'000) * 1'000'000;
  ASSERT_TRUE(posix_env().set_modified(dir.path(), tick_ns).is_ok());
  EXPECT_EQ(one->stat()->disk.records, 0u);
  ASSERT_TRUE(put(*two, chunk).is_ok());
  ASSERT_TRUE(posix_env().set_modified(dir.path(), tick_ns).is_ok());
  EXPECT_EQ(one->stat()->disk.records, 1u);
}

TEST(ChunkStore, ARecordOnlyInMemoryIsStoredAgain) {
  const MemoryTempDir dir;
  const TestChunk chunk(1, 3000);
  auto one = open_store(posix_env(), dir.path(), /*disk_limit_bytes=*/0, 1 << 20);
  auto two = open_store(posix_env(), dir.path());
  ASSERT_TRUE(put(*one, chunk).is_ok());
  ASSERT_TRUE(load(*one, chunk).is_ok());
  ASSERT_TRUE(two->remove(chunk.key().hash).is_ok());
  EXPECT_EQ(one->find(chunk.key())->tier(), Tier::kMemory);
  EXPECT_FALSE(one->contains(chunk.key()));
  ASSERT_TRUE(put(*one, chunk).is_ok());
  EXPECT_TRUE(one->contains(chunk.key()));
  EXPECT_TRUE(load(*two, chunk).is_ok());
}

TEST(ChunkStore, TwoStoresOnOneFolderSeeEachOther) {
  const MemoryTempDir dir;
  const TestChunk a(1, 3000), b(2, 3000), c(3, 3000);
  const uint64_t limit = a.file_bytes() + b.file_bytes() + c.file_bytes() - 1;
  auto one = open_store(posix_env(), dir.path(), limit);
  auto two = open_store(posix_env(), dir.path(), limit);
  ASSERT_TRUE(put(*one, a).is_ok());
  EXPECT_TRUE(load(*two, a).is_ok());
  ASSERT_TRUE(put(*two, b).is_ok());
  EXPECT_EQ(one->stat()->disk.records, 2u);
  EXPECT_EQ(two->stat()->disk.records, 2u);
  let_the_clock_tick();
  EXPECT_TRUE(load(*one, a).is_ok());  // b is the oldest, though `two` saw a's use before b's
  ASSERT_TRUE(put(*two, c).is_ok());
  EXPECT_TRUE(two->contains(a.key()));
  EXPECT_EQ(load(*one, b).code(), kNotFound);
  EXPECT_EQ(one->stat()->disk.records, 2u);
  ASSERT_TRUE(two->clear().is_ok());
  EXPECT_EQ(one->stat()->disk.records, 0u);
  EXPECT_EQ(load(*one, a).code(), kNotFound);
}

/// A file system that keeps whole hours only, and changes nothing else.
class CoarseTimesEnv : public FaultEnv {
 public:
  CoarseTimesEnv() : FaultEnv(posix_env()) {}
  Result<DirEntry> stat(const std::string& path) override {
    WEFT_ASSIGN_OR_RETURN(DirEntry entry, FaultEnv::stat(path));
    entry.modified_ns -= entry.modified_ns % 3'600'000'000'000;
    return entry;
  }
};

TEST(ChunkStore, TheLimitHoldsWhereTimesAreTooCoarseToShowChanges) {
  const MemoryTempDir dir;
  CoarseTimesEnv env;
  const TestChunk a(1, 3000), b(2, 3000), c(3, 3000);
  const uint64_t limit = a.file_bytes() + b.file_bytes() + c.file_bytes() - 1;
  auto one = open_store(env, dir.path(), limit);
  auto two = open_store(env, dir.path(), limit);
  ASSERT_TRUE(put(*one, a).is_ok());
  let_the_clock_tick();
  ASSERT_TRUE(put(*two, b).is_ok());
  ASSERT_TRUE(put(*one, c).is_ok());
  EXPECT_EQ(one->stat()->disk.records, 2u);
  EXPECT_EQ(two->stat()->disk.records, 2u);
  EXPECT_EQ(load(*two, a).code(), kNotFound);
}

TEST(ChunkStore, PutReplacesARecordWithADamagedHead) {
  const MemoryTempDir dir;
  auto store = open_store(posix_env(), dir.path());
  const TestChunk chunk(1), other(2);
  const std::string path = record_path(dir.path(), chunk);
  ASSERT_TRUE(put(*store, chunk).is_ok());
  const std::string good = read_text(path);
  ASSERT_TRUE(put(*store, other).is_ok());
  const auto wrong_shape = [&] {
    ASSERT_TRUE(store->remove(chunk.key().hash).is_ok());
    ASSERT_TRUE(store->put(chunk.key(), chunk.n_tokens + 1, chunk.spans()).is_ok());
  };
  const std::function<void()> ways[] = {
      wrong_shape, [&] { write_text(path, good.substr(0, good.size() - 1)); },
      [&] { write_text(path, read_text(record_path(dir.path(), other))); }};
  uint64_t damaged = 0;
  for (const auto& damage : ways) {
    damage();
    ASSERT_TRUE(put(*store, chunk).is_ok());
    EXPECT_TRUE(load(*store, chunk).is_ok());
    EXPECT_EQ(store->stat()->damaged, ++damaged);
  }
  ASSERT_TRUE(put(*store, chunk).is_ok());
  EXPECT_EQ(store->stat()->damaged, damaged) << "a good one stays";
}

TEST(ChunkStore, TemporaryFilesOfDeadWritersAreRemovedThoseOfLivingOnesKept) {
  const MemoryTempDir dir;
  auto alive = open_store(posix_env(), dir.path());  // slot 0
  const std::string of_alive = join_path(dir.path(), "tmp/0.77.part");
  const std::string of_dead = join_path(dir.path(), "tmp/5.0.part");
  const std::string no_name_of_ours = join_path(dir.path(), "tmp/notes.txt");
  for (const auto& path : {of_alive, of_dead, no_name_of_ours}) write_text(path, "x");
  auto other = open_store(posix_env(), dir.path());
  EXPECT_TRUE(posix_env().exists(of_alive));
  EXPECT_FALSE(posix_env().exists(of_dead));
  EXPECT_TRUE(posix_env().exists(no_name_of_ours));
  EXPECT_FALSE(posix_env().exists(join_path(dir.path(), "tmp/5.lock")));
  alive.reset();
  other.reset();
  other = open_store(posix_env(), dir.path());
  EXPECT_FALSE(posix_env().exists(of_alive));
}

// Two stores, two threads each, one folder, room for a third of the chunks: whatever is served is
// right, and the limit holds at the end.
TEST(ChunkStore, ManyThreadsAndTwoStoresNeverServeAWrongByte) {
  const MemoryTempDir dir;
  constexpr int kChunks = 24;
  uint64_t total = 0;
  std::vector<TestChunk> chunks;
  for (int i = 0; i < kChunks; ++i) total += chunks.emplace_back(i).file_bytes();
  const uint64_t limit = total / 3;
  std::unique_ptr<ChunkStore> stores[] = {open_store(posix_env(), dir.path(), limit, limit / 4),
                                          open_store(posix_env(), dir.path(), limit, limit / 4)};
  std::atomic<int> hits = 0, unexpected = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      ChunkStore& store = *stores[t % 2];
      std::mt19937 random(static_cast<unsigned>(t));
      for (int step = 0; step < 150; ++step) {
        const TestChunk& chunk = chunks[random() % kChunks];
        const Status loaded = load(store, chunk);
        if (loaded.is_ok()) {
          ++hits;
        } else if (loaded.code() != kNotFound) {
          ++unexpected;
        } else if (const Status stored = put(store, chunk);
                   !stored.is_ok() && stored.code() != kExhausted) {
          ++unexpected;
        }
        if (step % 50 == 49) (void)store.remove(chunk.key().hash);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(unexpected, 0);
  EXPECT_GT(hits, 0);
  uint64_t on_disk = 0;
  for (const TestChunk& chunk : chunks) {
    if (posix_env().exists(record_path(dir.path(), chunk))) on_disk += chunk.file_bytes();
  }
  EXPECT_LE(on_disk, limit);
  EXPECT_EQ(stores[0]->stat()->disk.bytes, on_disk);
  EXPECT_EQ(stores[1]->stat()->disk.bytes, on_disk);
  EXPECT_EQ(stores[0]->stat()->damaged + stores[1]->stat()->damaged, 0u);
  EXPECT_LE(stores[0]->stat()->memory.bytes, limit / 4);
}

TEST(ChunkStore, OneHandleServesManyThreads) {
  const MemoryTempDir dir;
  for (const uint64_t memory_limit : {0, 1 << 20}) {
    auto store = open_store(posix_env(), dir.path(), 0, memory_limit);
    const TestChunk chunk(7, 8000);
    ASSERT_TRUE(put(*store, chunk).is_ok());
    auto handle = store->find(chunk.key());
    ASSERT_TRUE(handle.is_ok());
    std::vector<std::thread> threads;
    std::atomic<int> wrong = 0;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        Status status;
        for (int i = 0; i < 20; ++i) {
          if (!loads_right(*handle, chunk, &status) || !status.is_ok()) ++wrong;
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(store->stat()->memory.records, memory_limit > 0 ? 1u : 0u);
  }
}

}  // namespace
}  // namespace weft::store
