// The system's own Env where it is more than one call of it: modes, names that others laid, locks.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "base/env.h"
#include "support/files.h"

namespace weft {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr StatusCode kInvalid = StatusCode::kInvalidArgument;
constexpr StatusCode kTaken = StatusCode::kAlreadyExists;

class PosixEnvTest : public ::testing::Test {
 protected:
  void SetUp() override { old_umask_ = ::umask(022); }
  void TearDown() override { ::umask(old_umask_); }
  std::string path(const std::string& name) const { return dir_ / name; }
  void put(const std::string& name, const std::string& text) { std::ofstream(path(name)) << text; }
  uint32_t mode(const std::string& name) { return env_.stat(path(name))->mode; }

  Env& env_ = posix_env();
  test::TempDir dir_;
  mode_t old_umask_ = 0;
};

TEST_F(PosixEnvTest, WhatIsCreatedHasExactlyTheModeAskedFor) {
  for (const mode_t mask : {0, 022, 0777}) {
    ::umask(mask);
    const std::string n = std::to_string(mask);
    ASSERT_TRUE(env_.create(path("file" + n), {.mode = kPrivateFileMode}).is_ok());
    ASSERT_TRUE(env_.make_dirs(path("dir" + n), kPrivateDirMode).is_ok());
    const auto temporary = env_.make_temporary_dir(path("t"));
    ASSERT_TRUE(temporary.is_ok());
    ASSERT_TRUE(env_.lock(path("lock" + n), true, LockWait{}).is_ok());
    EXPECT_EQ(mode("file" + n), 0600u);
    EXPECT_EQ(mode("dir" + n), 0700u);
    EXPECT_EQ(env_.stat(*temporary)->mode, 0700u);
    EXPECT_EQ(mode("lock" + n), 0600u);
  }
  ::umask(022);
  ASSERT_TRUE(env_.create(path("plain")).is_ok());
  EXPECT_EQ(mode("plain"), 0644u);
  ASSERT_TRUE(env_.create(path("plain"), {.mode = 0600}).is_ok());
  EXPECT_EQ(mode("plain"), 0644u) << "one that is there keeps its own";
  ASSERT_TRUE(env_.make_dirs(path("a/b/c/"), kPrivateDirMode).is_ok());
  EXPECT_EQ(mode("a"), 0755u);
  EXPECT_EQ(mode("a/b"), 0755u);
  EXPECT_EQ(mode("a/b/c"), 0700u);
  ASSERT_TRUE(env_.make_dirs(path("a"), kPrivateDirMode).is_ok());
  EXPECT_EQ(mode("a"), 0755u);
  EXPECT_FALSE(env_.make_dirs(path("plain"), kPrivateDirMode).is_ok());
}

TEST_F(PosixEnvTest, CreatingTakesRegularFilesOnlyAndNeverWaits) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  ASSERT_EQ(::symlink(path("nowhere").c_str(), path("dangling").c_str()), 0);
  put("victim", "precious");
  ASSERT_EQ(::symlink(path("victim").c_str(), path("link").c_str()), 0);
  ::alarm(60);  // waiting for the FIFO's reader would be for ever
  for (const std::string& name :
       {path("fifo"), path("dangling"), path("link"), dir_.path(), std::string("/dev/null")}) {
    const Status refused = env_.create(name).status();
    EXPECT_THAT(refused.code(), AnyOf(kInvalid, StatusCode::kIoError)) << name;  // EISDIR
    EXPECT_THAT(refused.message(), HasSubstr(name));
  }
  const int reader = ::open(path("fifo").c_str(), O_RDONLY | O_NONBLOCK);
  EXPECT_EQ(env_.create(path("fifo")).status().code(), kInvalid);
  ::close(reader);
  ::alarm(0);
  EXPECT_FALSE(env_.exists(path("nowhere")));
  EXPECT_EQ(*read_file(env_, path("victim"), 100), "precious");
  ASSERT_TRUE(env_.create(path("victim")).is_ok());
  EXPECT_EQ(*read_file(env_, path("victim"), 100), "");
}

TEST_F(PosixEnvTest, ANewFileNeverGoesWhereALinkLeads) {
  put("victim", "precious");
  ASSERT_EQ(::symlink(path("victim").c_str(), path("link").c_str()), 0);
  ASSERT_EQ(::symlink(path("nowhere").c_str(), path("dangling").c_str()), 0);
  for (const char* name : {"victim", "link", "dangling"}) {
    EXPECT_EQ(env_.create(path(name), {.exclusive = true}).status().code(), kTaken) << name;
    EXPECT_EQ(env_.rename_to_new(path("victim"), path(name)).code(), kTaken) << name;
  }
  EXPECT_EQ(*read_file(env_, path("victim"), 100), "precious");
  EXPECT_FALSE(env_.exists(path("nowhere")));
  EXPECT_TRUE(env_.rename_to_new(path("victim"), path("new name")).is_ok());
  EXPECT_EQ(*read_file(env_, path("new name"), 100), "precious");
}

TEST_F(PosixEnvTest, ReadingNeverWaitsAndFollowsLinksByChoice) {
  put("file", "text");
  ASSERT_EQ(::symlink("file", path("link").c_str()), 0);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  ASSERT_EQ(::mkdir(path("folder").c_str(), 0700), 0);
  EXPECT_EQ(*read_file(env_, path("link"), 100), "text");
  EXPECT_EQ(read_file(env_, path("link"), 100, Links::kRefuse).status().code(), kInvalid);
  EXPECT_EQ(*read_file(env_, path("file"), 100, Links::kRefuse), "text");
  for (const char* name : {"pipe", "folder"}) {
    for (const Links links : {Links::kFollow, Links::kRefuse}) {
      const Status status = env_.open_read(path(name), links).status();
      EXPECT_EQ(status.code(), kInvalid);
      EXPECT_THAT(status.message(), HasSubstr(path(name)));
    }
    EXPECT_EQ(env_.lock(path(name), true, LockWait{}).is_ok(), false);
  }
  EXPECT_EQ(env_.lock(path("link"), true, LockWait{}).status().code(), kInvalid);

  EXPECT_TRUE(env_.stat_link(path("link"))->is_link);
  EXPECT_TRUE(env_.stat(path("link"))->is_regular);
  EXPECT_EQ(*env_.resolve(path("link")), std::filesystem::canonical(path("file")).string());
  const auto entries = env_.list(dir_.path());
  ASSERT_EQ(entries->size(), 4u);  // file, folder, link, pipe
  EXPECT_EQ((*entries)[2].name, "link");
  EXPECT_TRUE((*entries)[2].is_link && (*entries)[2].is_regular);
  EXPECT_FALSE((*entries)[0].is_link);
  EXPECT_FALSE((*entries)[3].is_regular);
  std::filesystem::create_symlink("nowhere", path("broken"));
  std::filesystem::create_symlink("loop", path("loop"));
  EXPECT_EQ(env_.list(dir_.path())->size(), 4u);
  const auto all = env_.list(dir_.path(), BrokenLinks::kList);
  ASSERT_EQ(all->size(), 6u);
  EXPECT_EQ((*all)[0].name, "broken");
  EXPECT_TRUE((*all)[0].is_link && !(*all)[0].is_regular && !(*all)[0].is_directory);
  EXPECT_EQ((*all)[4].name, "loop");
}

TEST_F(PosixEnvTest, TimesBeyondWhatIsCountedBecomeTheNearest) {
  put("file", "text");
  for (const int64_t seconds : {int64_t{-5}, int64_t{9'300'000'000}, int64_t{15'000'000'000}}) {
    const timespec times[2] = {{0, UTIME_OMIT}, {seconds, 7}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path("file").c_str(), times, 0), 0);
    const int64_t read_ns = env_.stat(path("file"))->modified_ns;
    if (seconds < 0) {
      EXPECT_EQ(read_ns, 0);
    } else {
      EXPECT_GT(read_ns, int64_t{4'000'000'000} * 1'000'000'000);  // a file system may end sooner
    }
  }
}

/// A process that runs `work` and then waits to be killed.
class Process {
 public:
  explicit Process(const std::function<void()>& work) {
    int ready[2];
    WEFT_CHECK(::pipe(ready) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ready[0]);
      work();
      if (::write(ready[1], "y", 1) != 1) ::_exit(1);
      while (true) ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
  }
  ~Process() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  std::string pid() const { return std::to_string(pid_); }

 private:
  pid_t pid_ = 0;
};

void hold(const std::string& path, int operation) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ::flock(fd, operation) != 0) ::_exit(2);
}

TEST_F(PosixEnvTest, ALockThatIsHeldNamesItsHolderCleaned) {
  for (const int operation : {LOCK_EX, LOCK_SH}) {
    const Process holder([&] {
      ::prctl(PR_SET_NAME,
              "we\033[31m\n\xc2\x9b"
              "ft");
      hold(path("lock"), operation);
    });
    const Status status = env_.lock(path("lock"), true, LockWait{}).status();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(status.message(), HasSubstr("process " + holder.pid() + " (we?[31m"));
    EXPECT_THAT(status.message(),
                Not(AnyOf(HasSubstr("\033"), HasSubstr("\n"), HasSubstr("\x9b"))));
    EXPECT_EQ(env_.lock(path("lock"), false, LockWait{}).is_ok(), operation == LOCK_SH);
  }
  EXPECT_TRUE(env_.lock(path("lock"), true, LockWait{}).is_ok()) << "its holder is dead";
  const auto own = env_.lock(path("lock"), true, LockWait{});
  EXPECT_THAT(env_.lock(path("lock"), true, LockWait{}).status().message(),
              HasSubstr("this process holds this lock"));
}

TEST_F(PosixEnvTest, LockingChangesNoFileThatIsThere) {
  put("script.sh", "echo hello");
  ASSERT_EQ(::chmod(path("script.sh").c_str(), 0755), 0);
  ASSERT_EQ(::link(path("script.sh").c_str(), path("lock").c_str()), 0);
  EXPECT_TRUE(env_.lock(path("lock"), true, LockWait{}).is_ok());
  EXPECT_EQ(mode("script.sh"), 0755u);
  EXPECT_EQ(*read_file(env_, path("script.sh"), 100), "echo hello");
  EXPECT_EQ(env_.stat(path("lock"))->n_names, 2u);
  EXPECT_EQ(env_.lock(path("no folder/lock"), true, LockWait{}).status().code(),
            StatusCode::kNotFound);
}

TEST_F(PosixEnvTest, AHolderWhoseProcessIsGoneIsNotNamed) {
  // The one that locked ends; its child has the lock still.
  const Process holder([&] {
    const int fd = ::open(path("lock").c_str(), O_RDWR | O_CREAT, 0600);
    const pid_t locker = ::fork();
    if (locker == 0) ::_exit(::flock(fd, LOCK_EX));
    int status = 0;
    ::waitpid(locker, &status, 0);
  });
  EXPECT_THAT(env_.lock(path("lock"), true, LockWait{}).status().message(),
              HasSubstr("another process holds this lock"));
}

TEST_F(PosixEnvTest, WaitingForALockEndsAtItsBoundOrWhenTold) {
  const Process holder([&] { hold(path("lock"), LOCK_EX); });
  const Status bound = env_.lock(path("lock"), true, {.limit_ms = 20}).status();
  EXPECT_EQ(bound.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(bound.message(), HasSubstr("waited 0.02 s"));
  int asked = 0;
  const Status told = env_.lock(path("lock"), true,
                                {.limit_ms = 3'600'000, .cancelled = [&] { return ++asked == 3; }})
                          .status();
  EXPECT_EQ(told.code(), StatusCode::kCancelled);
  EXPECT_EQ(asked, 3);
}

}  // namespace
}  // namespace weft
