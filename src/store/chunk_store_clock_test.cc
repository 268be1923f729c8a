// The store when the clock is set forth and back under it: what was used last is evicted last, no
// record stays the newest for ever, and processes still see each other's changes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <limits>
#include <random>

#include "support/fault_env.h"
#include "support/files.h"
#include "support/store_chunks.h"

namespace weft::store {
namespace {

using test::FaultEnv;
using test::MemoryTempDir;
using test::open_store;
using test::record_path;
using test::TestChunk;

constexpr int64_t kHourMs = 3'600'000;
constexpr int64_t kYearMs = 365 * 24 * kHourMs;

/// Chunks of one size, so that a limit is a number of them.
TestChunk chunk(int number) {
  TestChunk result(number, 3000);
  result.identity.resize(40);
  result.layers.resize(1);
  return result;
}
uint64_t room_for(uint64_t n) { return n * chunk(0).file_bytes(); }

class StoreClock : public ::testing::Test {
 protected:
  std::unique_ptr<ChunkStore> open(uint64_t n) {
    return open_store(env_, dir_.path(), room_for(n));
  }
  void use(ChunkStore& store, int number) {
    env_.jump_clock_ms(1);
    EXPECT_TRUE(load(store, chunk(number)).is_ok()) << number;
  }
  void put_one(ChunkStore& store, int number) {
    env_.jump_clock_ms(1);
    EXPECT_TRUE(put(store, chunk(number)).is_ok()) << number;
  }
  int64_t latest_use_ns() {
    int64_t latest = 0;
    for (const DirEntry& file : *posix_env().list(dir_.path())) {
      if (parse_record_file_name(file.name)) latest = std::max(latest, file.modified_ns);
    }
    return latest;
  }
  void expect_no_use_in_the_future() {
    EXPECT_LE(latest_use_ns(), env_.unix_ms() * 1'000'000 + kHourMs * 1'000'000);
  }

  const MemoryTempDir dir_;
  FaultEnv env_{posix_env()};
};

TEST_F(StoreClock, RecordsUsedUnderAClockThatRanAheadAreEvictedLikeOthers) {
  auto store = open(3);
  env_.jump_clock_ms(10 * kYearMs);
  put_one(*store, 0);
  put_one(*store, 1);
  store.reset();
  env_.jump_clock_ms(-10 * kYearMs);
  store = open(3);  // another run, whose clock is right
  expect_no_use_in_the_future();
  put_one(*store, 2);
  put_one(*store, 3);  // evicts the oldest of all, 0
  EXPECT_FALSE(store->contains(chunk(0).key()));
  put_one(*store, 4);
  EXPECT_FALSE(store->contains(chunk(1).key())) << "as if it were used for ever";
  for (const int kept : {2, 3, 4}) EXPECT_TRUE(store->contains(chunk(kept).key())) << kept;
}

TEST_F(StoreClock, AClockSetBackUnderARunningStoreLeavesNoUseInTheFuture) {
  env_.jump_clock_ms(10 * kYearMs);
  auto store = open(3);
  for (int i = 0; i < 3; ++i) put_one(*store, i);
  env_.jump_clock_ms(-10 * kYearMs);
  use(*store, 0);
  expect_no_use_in_the_future();
  put_one(*store, 3);
  EXPECT_FALSE(store->contains(chunk(1).key())) << "0 was used after it";
  put_one(*store, 4);
  EXPECT_FALSE(store->contains(chunk(2).key()));
  EXPECT_TRUE(store->contains(chunk(0).key()));
}

TEST_F(StoreClock, ListingAfterTheClockWasSetBackWritesNoUseInTheFuture) {
  env_.jump_clock_ms(10 * kYearMs);
  auto one = open(10);
  put_one(*one, 0);
  put_one(*one, 1);
  env_.jump_clock_ms(-10 * kYearMs);
  put_one(*open(10), 2);  // settles what it finds
  expect_no_use_in_the_future();
  EXPECT_EQ(one->stat()->disk.records, 3u);  // `one` knows uses of its own that are ahead
  expect_no_use_in_the_future();
}

TEST_F(StoreClock, AClockInThePastKeepsTheOrderOfUses) {
  auto store = open(3);
  for (int i = 0; i < 3; ++i) put_one(*store, i);
  store.reset();
  env_.jump_clock_ms(-50 * kYearMs);  // a machine without a battery
  store = open(3);
  use(*store, 0);
  put_one(*store, 3);
  EXPECT_FALSE(store->contains(chunk(1).key()));
  store.reset();
  env_.jump_clock_ms(50 * kYearMs);
  store = open(3);
  put_one(*store, 4);
  EXPECT_FALSE(store->contains(chunk(2).key()));
  EXPECT_TRUE(store->contains(chunk(0).key()));
}

TEST_F(StoreClock, AUseByAProcessWhoseClockRanAheadCountsOnce) {
  auto one = open(2);
  put_one(*one, 0);
  put_one(*one, 1);
  auto two = open(2);
  env_.jump_clock_ms(10 * kYearMs);
  use(*two, 0);
  env_.jump_clock_ms(-10 * kYearMs);
  put_one(*one, 2);
  EXPECT_TRUE(one->contains(chunk(0).key())) << "it was used";
  EXPECT_FALSE(one->contains(chunk(1).key()));
  expect_no_use_in_the_future();
  use(*one, 2);
  put_one(*one, 3);
  EXPECT_FALSE(one->contains(chunk(0).key())) << "not for ever";
}

TEST_F(StoreClock, AFarFutureFileTimeDoesNotBlockEviction) {
  auto store = open(2);
  put_one(*store, 0);
  const std::string path = record_path(dir_.path(), chunk(0));
  for (const int64_t seconds : {int64_t{9'000'000'000}, int64_t{15'000'000'000}}) {
    const timespec times[2] = {{0, UTIME_OMIT}, {seconds, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    ASSERT_EQ(::utimensat(AT_FDCWD, dir_.path().c_str(), times, 0), 0);
    EXPECT_EQ(store->stat()->disk.records, 1u);
    EXPECT_TRUE(load(*store, chunk(0)).is_ok());
  }
  put_one(*store, 1);
  put_one(*store, 2);
  EXPECT_FALSE(store->contains(chunk(0).key()));
}

TEST_F(StoreClock, AReadOnlyStoreReadsTimesInTheFutureAsNow) {
  env_.jump_clock_ms(10 * kYearMs);
  put_one(*open(3), 0);
  env_.jump_clock_ms(-10 * kYearMs);
  auto store = ChunkStore::open(env_, {.dir = dir_.path(), .read_only = true});
  ASSERT_TRUE(store.is_ok());
  const int64_t before_ns = latest_use_ns();
  const auto records = (*store)->ls();
  ASSERT_EQ(records->size(), 1u);
  EXPECT_LE((*records)[0].last_use_unix_ms, env_.unix_ms() + kHourMs);
  EXPECT_EQ(latest_use_ns(), before_ns);
}

// Each store remembers the folder's time as it last saw it; whatever the clock does, another's
// change must show.
TEST_F(StoreClock, ChangesAreSeenWhateverTheClockDoes) {
  auto one = open(1000), two = open(1000);
  std::mt19937 random(11);
  std::vector<int64_t> jumps = {0, 0, 1, -1, kHourMs, -kHourMs, kYearMs, -kYearMs, 30 * kYearMs};
  int64_t offset = 0;
  uint64_t n_records = 0;
  for (int step = 0; step < 300; ++step) {
    int64_t jump = jumps[random() % jumps.size()];
    if (random() % 4 == 0) jump = -offset;  // to the very millisecond, nearly, where it was before
    offset += jump;
    env_.jump_clock_ms(jump);
    ChunkStore& writer = random() % 2 == 0 ? *one : *two;
    ASSERT_TRUE(put(writer, chunk(step)).is_ok());
    ++n_records;
    if (random() % 3 != 0) {
      ASSERT_EQ(one->stat()->disk.records, n_records) << "step " << step;
    }
    if (random() % 3 != 0) {
      ASSERT_EQ(two->stat()->disk.records, n_records) << "step " << step;
    }
  }
}

TEST_F(StoreClock, AnExtremeClockValueOverflowsNothing) {
  auto store = open(3);
  int number = 0;
  for (const int64_t far : {std::numeric_limits<int64_t>::max() / 4, int64_t{-100} * kYearMs}) {
    env_.jump_clock_ms(far);
    put_one(*store, number);
    EXPECT_TRUE(load(*store, chunk(number)).is_ok());
    EXPECT_EQ(store->stat()->disk.records, static_cast<uint64_t>(++number));
    env_.jump_clock_ms(-far);
  }
}

}  // namespace
}  // namespace weft::store
