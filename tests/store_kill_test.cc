// The store among processes: kill -9 at random moments of ingesting and evicting, and two processes
// at work on one folder. Whatever is served afterwards is right, byte for byte.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "store/chunk_store.h"
#include "support/files.h"
#include "support/store_chunks.h"

namespace weft::store {
namespace {

using test::loads_right;
using test::MemoryTempDir;
using test::open_store;
using test::TestChunk;
using test::unfinished_files;

constexpr int kChunks = 30;
constexpr int kRounds = 200;

// A process is let down by its exit code: 0 fine, else what went wrong.
enum Exit { kFine = 0, kCannotOpen = 2, kWrongByte = 3, kPutFailed = 4, kLoadFailed = 5 };

std::vector<TestChunk> all_chunks() {
  std::vector<TestChunk> chunks;
  for (int i = 0; i < kChunks; ++i) chunks.emplace_back(i);
  return chunks;
}

uint64_t limit_for(const std::vector<TestChunk>& chunks) {
  uint64_t total = 0;
  for (const TestChunk& chunk : chunks) total += chunk.file_bytes();
  return total / 2;
}

/// Puts, finds, loads and now and then removes, `steps` times or for ever (-1); each finished put's
/// number is written to `acknowledged`.
[[noreturn]] void work(const std::string& dir, const std::vector<TestChunk>& chunks, unsigned seed,
                       int steps, int acknowledged) {
  auto opened = ChunkStore::open(posix_env(), {.dir = dir,
                                               .memory_limit_bytes = 100'000,
                                               .disk_limit_bytes = limit_for(chunks),
                                               .create = true});
  if (!opened.is_ok()) ::_exit(kCannotOpen);
  ChunkStore& store = **opened;
  std::mt19937 random(seed);
  for (int step = 0; step != steps; ++step) {
    const size_t number = random() % kChunks;
    const TestChunk& chunk = chunks[number];
    auto handle = store.find(chunk.key());
    if (handle.is_ok()) {
      Status status;
      if (!loads_right(*handle, chunk, &status)) ::_exit(kWrongByte);
      if (!status.is_ok()) ::_exit(kLoadFailed);
      continue;
    }
    if (handle.status().code() != StatusCode::kNotFound) ::_exit(kLoadFailed);
    if (!put(store, chunk).is_ok()) ::_exit(kPutFailed);
    const char byte = static_cast<char>(number);
    if (acknowledged >= 0 && ::write(acknowledged, &byte, 1) != 1) ::_exit(kPutFailed);
  }
  ::_exit(kFine);
}

int exit_of(pid_t process) {
  int status = 0;
  EXPECT_EQ(::waitpid(process, &status, 0), process);
  return status;
}

void check_folder(const std::string& dir, const std::vector<TestChunk>& chunks,
                  int last_acknowledged) {
  auto store = open_store(posix_env(), dir, limit_for(chunks));
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(unfinished_files(dir), 0u);
  const auto report = store->verify([](uint64_t, uint64_t) { return true; });
  ASSERT_TRUE(report.is_ok());
  EXPECT_TRUE(report->bad.empty()) << report->bad[0].status.message();
  EXPECT_EQ(report->records, store->stat()->disk.records);
  EXPECT_LE(store->stat()->disk.bytes, limit_for(chunks));
  for (int i = 0; i < kChunks; ++i) {
    const Status status = load(*store, chunks[static_cast<size_t>(i)]);
    if (i == last_acknowledged) {
      EXPECT_TRUE(status.is_ok()) << "the newest acknowledged record is lost: " << status.message();
    } else if (!status.is_ok()) {
      EXPECT_EQ(status.code(), StatusCode::kNotFound) << status.message();
    }
  }
}

TEST(StoreKill, KillNineAtAnyMomentLosesNothingThatWasPromised) {
  const MemoryTempDir dir;
  const std::string store_dir = join_path(dir.path(), "store");
  const auto chunks = all_chunks();
  std::mt19937 random(20);
  int killed_with_rubbish = 0;
  for (int round = 0; round < kRounds && !HasFailure(); ++round) {
    SCOPED_TRACE(testing::Message() << "round " << round);
    // Odd rounds: two processes, whose records push each other out, so nothing is promised to last.
    const int n_processes = 1 + round % 2;
    int pipe_ends[2];
    ASSERT_EQ(::pipe(pipe_ends), 0);
    std::vector<pid_t> processes;
    for (int p = 0; p < n_processes; ++p) {
      const pid_t process = ::fork();
      ASSERT_GE(process, 0);
      const auto seed = static_cast<unsigned>(round * 2 + p);
      if (process == 0) work(store_dir, chunks, seed, -1, pipe_ends[1]);
      processes.push_back(process);
    }
    ::close(pipe_ends[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 40'000));
    for (const pid_t process : processes) ::kill(process, SIGKILL);
    for (const pid_t process : processes) {
      const int status = exit_of(process);
      EXPECT_TRUE(WIFSIGNALED(status)) << "ended by itself, exit code " << WEXITSTATUS(status);
    }
    int last = -1;
    char byte = 0;
    while (::read(pipe_ends[0], &byte, 1) == 1) last = byte;
    ::close(pipe_ends[0]);
    std::error_code none_yet;
    if (std::filesystem::exists(join_path(store_dir, "tmp"), none_yet)) {
      killed_with_rubbish += unfinished_files(store_dir) > 0;
    }
    check_folder(store_dir, chunks, n_processes == 1 ? last : -1);
    if (round % 25 == 24) std::filesystem::remove_all(store_dir);  // creation is killed, too
  }
  EXPECT_GT(killed_with_rubbish, 0) << "no round hit a record being written: useless timing";
}

TEST(StoreKill, TwoProcessesShareAFolder) {
  const MemoryTempDir dir;
  const auto chunks = all_chunks();
  std::vector<pid_t> processes;
  for (unsigned seed = 1; seed <= 2; ++seed) {
    const pid_t process = ::fork();
    ASSERT_GE(process, 0);
    if (process == 0) work(dir.path(), chunks, seed, 400, -1);
    processes.push_back(process);
  }
  for (const pid_t process : processes) {
    const int status = exit_of(process);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == kFine) << WEXITSTATUS(status);
  }
  check_folder(dir.path(), chunks, -1);
}

}  // namespace
}  // namespace weft::store
