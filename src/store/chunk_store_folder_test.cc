// The store's folder as others see it: who may read it, what a folder that one may only read still
// gives, links and pipes laid in it, and waiting for whoever changes it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "base/log.h"
#include "store/properties.h"
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
using test::TestChunk;
using test::unfinished_files;
using test::write_text;
using ::testing::HasSubstr;
using ::testing::Not;

class StoreFolder : public ::testing::Test {
 protected:
  void SetUp() override { old_umask_ = ::umask(0); }  // what is private is so by itself
  void TearDown() override {
    ::umask(old_umask_);
    set_log_level(LogLevel::kWarning);
  }

  std::string in_store(const std::string& name) const { return join_path(dir_, name); }
  static uint32_t mode(const std::string& path) { return posix_env().stat(path)->mode; }
  static void set_mode(const std::string& path, uint32_t mode) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
  }
  /// Every file and folder in the store's folder is its owner's alone.
  void expect_private_files() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_)) {
      EXPECT_EQ(mode(entry.path().string()), entry.is_directory() ? 0700u : 0600u) << entry.path();
    }
  }
  /// As a weft from before private stores left it.
  void make_old_store() const {
    auto store = open_store(posix_env(), dir_);
    ASSERT_TRUE(put(*store, TestChunk(1)).is_ok());
    store.reset();
    write_text(in_store("properties"), encode_properties({}));
    write_text(in_store("documents.sqlite"), "the index's business");
    set_mode(dir_, 0755);
    set_mode(in_store("tmp"), 0755);
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_)) {
      if (!entry.is_directory()) set_mode(entry.path().string(), 0644);
    }
  }
  Result<std::unique_ptr<ChunkStore>> open_read_only(Env& env, uint64_t memory_limit_bytes = 0) {
    return ChunkStore::open(
        env, {.dir = dir_, .memory_limit_bytes = memory_limit_bytes, .read_only = true});
  }

  const MemoryTempDir temp_;
  const std::string dir_ = join_path(temp_.path(), "a/store");
  mode_t old_umask_ = 0;
};

// ------------------------------------------------------------------------------------------ modes

TEST_F(StoreFolder, ANewStoreIsPrivateToItsOwner) {
  std::filesystem::create_directories(join_path(temp_.path(), "a"));
  for (const mode_t mask : {0, 022, 0277}) {
    std::filesystem::remove_all(dir_);
    ::umask(mask);
    auto store = open_store(posix_env(), dir_);
    ASSERT_NE(store, nullptr);
    ASSERT_TRUE(put(*store, TestChunk(1)).is_ok());
    ASSERT_TRUE(store->set_property("name", "value").is_ok());
    EXPECT_EQ(mode(dir_), 0700u);
    expect_private_files();
  }
}

TEST_F(StoreFolder, AFileIsPrivateWhileItIsBeingWritten) {
  const MemoryTempDir folder;
  set_mode(folder.path(), 0755);
  write_text(join_path(folder.path(), "notes.txt"), "the user's");
  // Every file that a put creates in the meantime, looked at at the moment of its creation.
  class WatchingEnv : public FaultEnv {
   public:
    WatchingEnv() : FaultEnv(posix_env()) {}
    Result<std::unique_ptr<WriteFile>> create(const std::string& path,
                                              CreateOptions options) override {
      auto file = FaultEnv::create(path, options);
      EXPECT_EQ(posix_env().stat(path)->mode, 0600u) << path;
      EXPECT_TRUE(options.exclusive) << path << ": a name that somebody may have laid a link at";
      ++created;
      return file;
    }
    int created = 0;
  } env;
  auto store = open_store(env, folder.path());
  ASSERT_TRUE(put(*store, TestChunk(1)).is_ok());
  EXPECT_GE(env.created, 2);
}

TEST_F(StoreFolder, AFolderWithOtherThingsKeepsItsModeItsNewFilesArePrivate) {
  const MemoryTempDir folder;
  set_mode(folder.path(), 0755);
  const std::string notes = join_path(folder.path(), "notes.txt");
  write_text(notes, "the user's");
  set_mode(notes, 0644);
  for (int round = 0; round < 2; ++round) {
    auto store = open_store(posix_env(), folder.path());
    ASSERT_TRUE(put(*store, TestChunk(round)).is_ok());
    EXPECT_EQ(mode(folder.path()), 0755u);
    EXPECT_EQ(mode(notes), 0644u);
    EXPECT_EQ(mode(record_path(folder.path(), TestChunk(round))), 0600u);
    EXPECT_EQ(mode(join_path(folder.path(), "properties")), 0600u);
    EXPECT_EQ(mode(join_path(folder.path(), "store.lock")), 0600u);
    EXPECT_EQ(mode(join_path(folder.path(), "tmp")), 0700u);
  }
}

TEST_F(StoreFolder, AnEmptyFolderBecomesPrivateASharedOneKeepsItsMode) {
  const MemoryTempDir empty, shared;
  set_mode(empty.path(), 0755);
  set_mode(shared.path(), 01777);
  ASSERT_NE(open_store(posix_env(), empty.path()), nullptr);
  ASSERT_NE(open_store(posix_env(), shared.path()), nullptr);
  EXPECT_EQ(mode(empty.path()), 0700u);
  EXPECT_EQ(mode(shared.path()), 01777u);
}

TEST_F(StoreFolder, AnOlderStoreBecomesPrivateWhenOpenedForWriting) {
  make_old_store();
  ASSERT_TRUE(open_read_only(posix_env()).is_ok());
  EXPECT_EQ(mode(dir_), 0755u) << "opened for reading only";
  ASSERT_NE(open_store(posix_env(), dir_), nullptr);
  EXPECT_EQ(mode(dir_), 0700u);
  expect_private_files();
}

TEST_F(StoreFolder, AStoreThatItsOwnerSharedStaysShared) {
  make_old_store();
  ASSERT_NE(open_store(posix_env(), dir_), nullptr);  // made private once
  const std::string new_dir = join_path(temp_.path(), "new");
  ASSERT_NE(open_store(posix_env(), new_dir), nullptr);
  for (const std::string& dir : {dir_, new_dir}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(dir)) {
      set_mode(entry.path().string(), entry.is_directory() ? 0750 : 0640);  // chmod -R g+rX
    }
    set_mode(dir, 0750);
    auto store = open_store(posix_env(), dir);
    ASSERT_TRUE(put(*store, TestChunk(2)).is_ok());
    ASSERT_TRUE(store->set_property("name", "value").is_ok());
    EXPECT_EQ(mode(dir), 0750u);
    for (const char* name : {"properties", "store.lock", "tmp/0.lock"}) {
      EXPECT_EQ(mode(join_path(dir, name)), 0640u) << name;
    }
    EXPECT_EQ(mode(join_path(dir, "tmp")), 0750u);
    EXPECT_EQ(mode(record_path(dir, TestChunk(2))), 0600u) << "what is new is private";
  }
  EXPECT_EQ(mode(in_store("documents.sqlite")), 0640u);
  EXPECT_EQ(mode(record_path(dir_, TestChunk(1))), 0640u);
}

TEST_F(StoreFolder, AHardLinkedFileKeepsItsMode) {
  make_old_store();
  const auto script_of = [&](const std::string& name) {
    return join_path(temp_.path(), "script of " + name.substr(name.rfind('/') + 1));
  };
  // Three files: two locks that are one file would wait for each other.
  const std::vector<std::string> names = {"documents.sqlite", "store.lock", "tmp/0.lock"};
  for (const std::string& name : names) {
    write_text(script_of(name), "echo hello");
    set_mode(script_of(name), 0755);
    std::filesystem::remove(in_store(name));
    std::filesystem::create_hard_link(script_of(name), in_store(name));
  }
  ASSERT_NE(open_store(posix_env(), dir_), nullptr);
  for (const std::string& name : names) EXPECT_EQ(mode(script_of(name)), 0755u) << name;
  EXPECT_EQ(mode(in_store("properties")), 0600u);
}

TEST_F(StoreFolder, AnOlderStoreInAMixedFolderGetsPrivateFiles) {
  make_old_store();
  write_text(in_store("notes.txt"), "the user's");
  set_mode(in_store("notes.txt"), 0644);
  ASSERT_NE(open_store(posix_env(), dir_), nullptr);
  EXPECT_EQ(mode(dir_), 0755u);
  EXPECT_EQ(mode(in_store("documents.sqlite")), 0600u);
  EXPECT_EQ(mode(in_store("notes.txt")), 0644u);
  EXPECT_EQ(mode(in_store("properties")), 0600u);
  EXPECT_EQ(mode(record_path(dir_, TestChunk(1))), 0600u);
}

// -------------------------------------------------------------------------------------- read-only

/// Refuses everything that changes a file or a folder, as a read-only file system does.
class ReadOnlyEnv : public FaultEnv {
 public:
  ReadOnlyEnv() : FaultEnv(posix_env()) {}
  Result<std::unique_ptr<WriteFile>> create(const std::string& path, CreateOptions) override {
    return refuse(path);
  }
  Status make_dirs(const std::string& dir, std::optional<uint32_t>) override { return refuse(dir); }
  Status rename(const std::string& from, const std::string&) override { return refuse(from); }
  Status remove(const std::string& path) override { return refuse(path); }
  Status set_mode(const std::string& path, uint32_t) override { return refuse(path); }
  Status set_modified(const std::string& path, int64_t) override { return refuse(path); }
  Result<std::unique_ptr<FileLock>> lock(const std::string& path, bool, const LockWait&) override {
    return refuse(path);
  }
  std::atomic<int> refused = 0;

 private:
  Status refuse(const std::string& path) {
    ++refused;
    return io_error(path + ": Read-only file system");
  }
};

/// A folder that one may not look into.
class ClosedEnv : public FaultEnv {
 public:
  ClosedEnv() : FaultEnv(posix_env()) {}
  Result<DirEntry> stat(const std::string& path) override {
    return io_error(path + ": Permission denied");
  }
  bool exists(const std::string&) override { return false; }
};

TEST_F(StoreFolder, AnUnreadableFolderIsNotTakenForANewStore) {
  ASSERT_TRUE(put(*open_store(posix_env(), dir_), TestChunk(1)).is_ok());
  ClosedEnv env;
  for (const bool create : {false, true}) {
    const Status status = ChunkStore::open(env, {.dir = dir_, .create = create}).status();
    EXPECT_EQ(status.code(), StatusCode::kIoError);
    EXPECT_THAT(status.message(), HasSubstr("Permission denied"));
  }
}

TEST_F(StoreFolder, AReadOnlyStoreServesAndChangesNothing) {
  const TestChunk chunk(1, 3000), other(2, 3000);
  {
    auto store = open_store(posix_env(), dir_);
    ASSERT_TRUE(put(*store, chunk).is_ok());
    ASSERT_TRUE(store->set_property("anchor", "neutral").is_ok());
  }
  ReadOnlyEnv env;
  auto opened = open_read_only(env, 1 << 20);
  ASSERT_TRUE(opened.is_ok()) << opened.status().message();
  ChunkStore& store = **opened;
  EXPECT_TRUE(store.is_read_only());
  EXPECT_TRUE(store.contains(chunk.key()));
  EXPECT_TRUE(load(store, chunk).is_ok());
  EXPECT_EQ(store.find(chunk.key())->tier(), Tier::kMemory);
  EXPECT_EQ(load(store, other).code(), StatusCode::kNotFound);
  EXPECT_EQ(store.ls()->size(), 1u);
  EXPECT_EQ(store.stat()->disk.records, 1u);
  EXPECT_EQ(store.verify([](uint64_t, uint64_t) { return true; })->records, 1u);
  EXPECT_EQ(*store.property("anchor"), "neutral");
  for (const Status& status : {put(store, other), put(store, chunk), store.clear(),
                               store.remove(chunk.key().hash), store.set_property("a", "b")}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("opened for reading only"));
    EXPECT_THAT(status.message(), HasSubstr(dir_));
  }
  EXPECT_EQ(env.refused, 0) << "it tried to change something";
  EXPECT_TRUE(load(store, chunk).is_ok());
}

TEST_F(StoreFolder, ADamagedRecordOfAReadOnlyStoreIsAMissAndStays) {
  set_log_level(LogLevel::kQuiet);
  const TestChunk bad_head(1, 3000), bad_layer(2, 3000);
  {
    auto store = open_store(posix_env(), dir_);
    ASSERT_TRUE(put(*store, bad_head).is_ok());
    ASSERT_TRUE(put(*store, bad_layer).is_ok());
  }
  std::string text = read_text(record_path(dir_, bad_head));
  text[20] ^= 1;
  write_text(record_path(dir_, bad_head), text);
  text = read_text(record_path(dir_, bad_layer));
  text[text.size() - 4096] ^= 1;
  write_text(record_path(dir_, bad_layer), text);
  ReadOnlyEnv env;
  auto store = open_read_only(env);
  ASSERT_TRUE(store.is_ok());
  for (uint64_t round = 1; round <= 2; ++round) {
    EXPECT_EQ(load(**store, bad_head).code(), StatusCode::kNotFound);
    EXPECT_EQ(load(**store, bad_layer).code(), StatusCode::kCorrupt);
    EXPECT_EQ((*store)->stat()->damaged, 2 * round);
  }
  EXPECT_EQ((*store)->stat()->disk.records, 2u);
  EXPECT_EQ(env.refused, 0);
}

TEST_F(StoreFolder, AFileIsNoStore) {
  const std::string file = join_path(temp_.path(), "notes.md");
  write_text(file, "notes");
  for (const bool read_only : {false, true}) {
    const auto opened =
        ChunkStore::open(posix_env(), {.dir = file, .create = !read_only, .read_only = read_only});
    EXPECT_EQ(opened.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(opened.status().message(), ::testing::HasSubstr("a chunk store is a folder"));
  }
}

TEST_F(StoreFolder, OpeningReadOnlyNeverCreatesAStore) {
  ReadOnlyEnv env;
  const auto opened = ChunkStore::open(env, {.dir = dir_, .create = true, .read_only = true});
  EXPECT_EQ(opened.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(env.refused, 0);
  EXPECT_FALSE(posix_env().exists(dir_));
}

// -------------------------------------------------------------------------- what others laid there

TEST_F(StoreFolder, ANonRegularFileIsAMissAndNeverBlocks) {
  set_log_level(LogLevel::kQuiet);
  const TestChunk chunk(1), copy(2);
  auto store = open_store(posix_env(), dir_);
  ASSERT_TRUE(put(*store, chunk).is_ok());
  const std::string path = record_path(dir_, chunk);
  const std::string elsewhere = join_path(temp_.path(), "elsewhere");
  std::filesystem::rename(path, elsewhere);

  ASSERT_EQ(::symlink(elsewhere.c_str(), path.c_str()), 0);
  const auto before = posix_env().stat(elsewhere);
  EXPECT_FALSE(store->contains(chunk.key()));
  EXPECT_EQ(store->verify([](uint64_t, uint64_t) { return true; })->bad.size(), 1u);
  EXPECT_EQ(load(*store, chunk).code(), StatusCode::kNotFound);
  EXPECT_FALSE(posix_env().stat_link(path).is_ok()) << "the link is gone";
  EXPECT_EQ(posix_env().stat(elsewhere)->modified_ns, before->modified_ns);

  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(load(*store, chunk).code(), StatusCode::kNotFound);
  ASSERT_TRUE(put(*store, chunk).is_ok());
  EXPECT_TRUE(load(*store, chunk).is_ok());

  ASSERT_EQ(::mkdir(record_path(dir_, copy).c_str(), 0700), 0);
  EXPECT_EQ(load(*store, copy).code(), StatusCode::kNotFound);
  const Status refused = put(*store, copy);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr(record_path(dir_, copy)));
  EXPECT_EQ(store->stat()->disk.records, 1u);
}

TEST_F(StoreFolder, LinksInPlaceOfItsOwnFilesAreRefused) {
  const std::string victim = join_path(temp_.path(), "victim");
  write_text(victim, "precious");
  for (const char* name : {"store.lock", "properties", "tmp/0.lock"}) {
    SCOPED_TRACE(name);
    std::filesystem::remove_all(dir_);
    open_store(posix_env(), dir_).reset();
    std::filesystem::remove(in_store(name));
    ASSERT_EQ(::symlink(victim.c_str(), in_store(name).c_str()), 0);
    auto store = ChunkStore::open(posix_env(), {.dir = dir_});
    const Status status = store.is_ok() ? put(**store, TestChunk(1)) : store.status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(in_store(name)));
    EXPECT_EQ(read_text(victim), "precious");
  }
  std::filesystem::remove_all(in_store("tmp"));
  std::filesystem::remove(in_store("tmp/0.lock"));
  std::filesystem::create_directory(join_path(temp_.path(), "theirs"));
  std::filesystem::create_directory_symlink(join_path(temp_.path(), "theirs"), in_store("tmp"));
  EXPECT_EQ(ChunkStore::open(posix_env(), {.dir = dir_}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_TRUE(std::filesystem::is_empty(join_path(temp_.path(), "theirs")));
}

TEST_F(StoreFolder, TemporaryNamesCannotBeGuessed) {
  const auto names = [&] {
    class NamesEnv : public FaultEnv {
     public:
      NamesEnv() : FaultEnv(posix_env()) {}
      Result<std::unique_ptr<WriteFile>> create(const std::string& path,
                                                CreateOptions options) override {
        names.push_back(path);
        return FaultEnv::create(path, options);
      }
      std::vector<std::string> names;
    } env;
    std::filesystem::remove_all(dir_);
    auto store = open_store(env, dir_);
    EXPECT_TRUE(put(*store, TestChunk(1)).is_ok());
    return env.names;
  };
  const auto first = names(), second = names();
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) EXPECT_NE(first[i], second[i]);
}

// ---------------------------------------------------------------------------------------- waiting

/// Another process that holds a lock until this goes.
class Holder {
 public:
  explicit Holder(const std::string& path) {
    int ready[2];
    WEFT_CHECK(::pipe(ready) == 0);
    process_ = ::fork();
    if (process_ == 0) {
      const int fd = ::open(path.c_str(), O_RDWR);
      const char byte = fd >= 0 && ::flock(fd, LOCK_EX) == 0 ? 'y' : 'n';
      if (::write(ready[1], &byte, 1) != 1) ::_exit(1);
      while (true) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    EXPECT_EQ(byte, 'y');
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Holder() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  std::string name() const { return "process " + std::to_string(process_) + " (store_test)"; }

 private:
  pid_t process_ = 0;
};

TEST_F(StoreFolder, WaitingForAnotherProcessEndsAtTheBoundAndNamesIt) {
  auto store = ChunkStore::open(posix_env(), {.dir = dir_, .create = true, .lock_wait_s = 0});
  ASSERT_TRUE(store.is_ok());
  ASSERT_TRUE(put(**store, TestChunk(1)).is_ok());
  {
    const Holder holder(in_store("store.lock"));
    for (const Status& status :
         {put(**store, TestChunk(2)), (*store)->remove(TestChunk(1).key().hash), (*store)->clear(),
          (*store)->set_property("a", "b")}) {
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
      EXPECT_THAT(status.message(), HasSubstr(holder.name()));
      EXPECT_THAT(status.message(), HasSubstr(in_store("store.lock")));
    }
    EXPECT_TRUE(load(**store, TestChunk(1)).is_ok()) << "reading waits for nobody";
  }
  EXPECT_TRUE(put(**store, TestChunk(2)).is_ok());
  EXPECT_EQ(unfinished_files(dir_), 0u);
}

TEST_F(StoreFolder, WaitingForAnotherProcessEndsWhenTheUserSaysSo) {
  std::atomic<int> asked = 0;
  auto store = ChunkStore::open(
      posix_env(),
      {.dir = dir_, .create = true, .lock_wait_s = 3600, .cancelled = [&] { return ++asked > 3; }});
  ASSERT_TRUE(store.is_ok());
  const Holder holder(in_store("store.lock"));
  const Status status = put(**store, TestChunk(1));
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_THAT(status.message(), HasSubstr(holder.name()));
  EXPECT_EQ(asked, 4);
}

TEST_F(StoreFolder, WaitingEndsWhenTheOtherProcessReleasesTheLock) {
  std::atomic<int> asked = 0;
  std::unique_ptr<Holder> holder;
  auto store = ChunkStore::open(
      posix_env(), {.dir = dir_, .create = true, .lock_wait_s = 3600, .cancelled = [&] {
                      if (++asked == 3) holder.reset();
                      return false;
                    }});
  ASSERT_TRUE(store.is_ok());
  holder = std::make_unique<Holder>(in_store("store.lock"));
  EXPECT_TRUE(put(**store, TestChunk(1)).is_ok());
  EXPECT_GE(asked, 3);
}

TEST_F(StoreFolder, ALockFileThatWasRemovedMeanwhileLocksNothing) {
  ASSERT_NE(open_store(posix_env(), dir_), nullptr);
  const std::string path = in_store("store.lock");
  const auto first = posix_env().lock(path, true, LockWait{});
  ASSERT_TRUE(first.is_ok());
  int asked = 0;
  const auto second = posix_env().lock(path, true, {.limit_ms = 3'600'000, .cancelled = [&] {
                                                      if (++asked == 2) {
                                                        std::filesystem::remove(path);
                                                      }
                                                      return false;
                                                    }});
  ASSERT_TRUE(second.is_ok());
  EXPECT_EQ(posix_env().lock(path, true, LockWait{}).status().code(),
            StatusCode::kResourceExhausted)
      << "the second holds the file that has the name";
}

}  // namespace
}  // namespace weft::store
