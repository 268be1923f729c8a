#include "base/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "support/fault_env.h"
#include "support/files.h"

namespace weft {
namespace {

using test::FaultEnv;
using test::Survives;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr AtomicFileOptions kNew{.replace = false};

class AtomicFileTest : public ::testing::Test {
 protected:
  void SetUp() override { old_umask_ = ::umask(022); }
  void TearDown() override { ::umask(old_umask_); }

  std::string path(const std::string& name) const { return dir_ / name; }
  void put(const std::string& name, const std::string& text, uint32_t mode = 0644) {
    std::ofstream(path(name)) << text;
    ASSERT_EQ(::chmod(path(name).c_str(), mode), 0);
  }
  std::string text(const std::string& name) {
    auto text = read_file(posix_env(), path(name), 1 << 20);
    return text.is_ok() ? *text : "<none>";
  }
  uint32_t mode(const std::string& name) { return posix_env().stat(path(name))->mode; }
  std::vector<std::string> names() {
    std::vector<std::string> names;
    for (const DirEntry& entry : *posix_env().list(dir_.path())) names.push_back(entry.name);
    return names;
  }
  Status write(const std::string& name, AtomicFileOptions options = {},
               Env& env = posix_env()) const {
    return write_file_durably(env, path(name), "new", options);
  }

  test::TempDir dir_;
  mode_t old_umask_ = 0;
};

TEST_F(AtomicFileTest, LeftoversAreTheTargetsOldTemporaryFilesAlone) {
  const int64_t now_ms = posix_env().unix_ms();
  const auto put_old = [&](const std::string& name, int64_t age_ms) {
    put(name, "x");
    ASSERT_TRUE(posix_env().set_modified(path(name), (now_ms - age_ms) * 1'000'000).is_ok());
  };
  const std::vector<std::string> others = {
      "s",
      "s.0123456789abcdeF.tmp",
      "s.0123456789abcde.tmp",
      "s.0123456789abcdef",
      "s.0123456789abcdef.tmp2",
      "s.0123456789abcdefa.tmp",
      "s_0123456789abcdef.tmp",
      "t.0123456789abcdef.tmp",
      "st.0123456789abcdef.tmp",
  };
  for (const std::string& name : others) put_old(name, 2 * kLeftoverAgeMs);
  put_old("s.1111111111111111.tmp", kLeftoverAgeMs / 2);
  std::filesystem::create_directory(path("s.2222222222222222.tmp"));
  std::filesystem::create_symlink(path("s"), path("s.3333333333333333.tmp"));
  std::filesystem::create_symlink(path("s"), path("link"));
  const std::vector<std::string> before = names();
  for (const char* target : {"s", "link"}) {
    put_old("s.0123456789abcdef.tmp", kLeftoverAgeMs + 1000);
    put_old("s.ffffffffffffffff.tmp", 10 * kLeftoverAgeMs);
    remove_leftovers(posix_env(), path(target));
    EXPECT_EQ(names(), before);
  }
  // A first run that was killed left no target.
  std::filesystem::remove(path("s"));
  put_old("s.0123456789abcdef.tmp", 2 * kLeftoverAgeMs);
  remove_leftovers(posix_env(), path("s"));
  EXPECT_FALSE(posix_env().exists(path("s.0123456789abcdef.tmp")));
}

TEST_F(AtomicFileTest, ANewFileWhereALinkLeadsNowhereIsRefusedAsThat) {
  std::filesystem::create_symlink(path("nowhere"), path("link"));
  const Status refused = write("link", kNew);
  EXPECT_EQ(refused.code(), StatusCode::kAlreadyExists);
  EXPECT_THAT(refused.message(), HasSubstr("a symbolic link that leads nowhere"));
  put("there", "old");
  std::filesystem::create_symlink(path("there"), path("to_there"));
  EXPECT_THAT(write("to_there", kNew).message(), HasSubstr("exists already"));
}

TEST_F(AtomicFileTest, ErrorsNameTheTargetAndNotTheTemporaryFile) {
  const Status missing = write("no/folder/file");
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), ::testing::StartsWith(path("no/folder/file") + ": cannot create"));
  FaultEnv counted(posix_env());
  ASSERT_TRUE(write("file", {}, counted).is_ok());
  for (uint64_t at = 0; at < counted.calls(); ++at) {
    FaultEnv env(posix_env());
    env.fail_call(at);
    const Status failed = write("file", {}, env);
    EXPECT_FALSE(failed.is_ok());
    EXPECT_THAT(failed.message(), ::testing::Not(HasSubstr(".tmp"))) << at;
  }
}

TEST_F(AtomicFileTest, ANewFileHasTheModeThatWasAskedForWhateverTheUmask) {
  ASSERT_TRUE(write("plain").is_ok());
  ASSERT_TRUE(write("private", {.mode = kPrivateFileMode}).is_ok());
  ::umask(0);
  ASSERT_TRUE(write("private too", {.mode = kPrivateFileMode}).is_ok());
  ::umask(0777);
  ASSERT_TRUE(write("shared", {.mode = 0664}).is_ok());
  EXPECT_EQ(mode("plain"), 0644u);
  EXPECT_EQ(mode("private"), 0600u);
  EXPECT_EQ(mode("private too"), 0600u);
  EXPECT_EQ(mode("shared"), 0664u);
  EXPECT_THAT(names(), ElementsAre("plain", "private", "private too", "shared"));
}

TEST_F(AtomicFileTest, AReplacedFilePassesItsModeOn) {
  put("private", "old", 0600);
  put("wide", "old", 0666);
  ASSERT_TRUE(write("private", {.mode = 0644}).is_ok());
  ASSERT_TRUE(write("wide", {.mode = 0600}).is_ok());
  EXPECT_EQ(text("private"), "new");
  EXPECT_EQ(mode("private"), 0600u);
  EXPECT_EQ(mode("wide"), 0666u);
}

TEST_F(AtomicFileTest, AnExistingFileIsKeptWhereNothingMayBeReplaced) {
  put("there", "old");
  ASSERT_EQ(::symlink("nowhere", path("dangling").c_str()), 0);
  EXPECT_EQ(write("there", kNew).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(write("dangling", kNew).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(text("there"), "old");
  EXPECT_TRUE(write("fresh", kNew).is_ok());
  EXPECT_EQ(text("fresh"), "new");

  auto late = AtomicFile::create(posix_env(), path("late"), kNew);
  ASSERT_TRUE(late.is_ok());
  put("late", "another's");  // after the first look
  EXPECT_EQ(late->commit().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(text("late"), "another's");
}

TEST_F(AtomicFileTest, ALinkStaysOneAndItsTargetGetsTheText) {
  ASSERT_EQ(::mkdir(path("elsewhere").c_str(), 0755), 0);
  put("elsewhere/file", "old", 0640);
  ASSERT_EQ(::symlink("elsewhere/file", path("link").c_str()), 0);
  ASSERT_EQ(::symlink("nowhere", path("dangling").c_str()), 0);
  EXPECT_EQ(write("link", {.links = Links::kRefuse}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(text("elsewhere/file"), "old");
  ASSERT_TRUE(write("link").is_ok());
  EXPECT_TRUE(posix_env().stat_link(path("link"))->is_link);
  EXPECT_EQ(text("elsewhere/file"), "new");
  EXPECT_EQ(mode("elsewhere/file"), 0640u);
  EXPECT_EQ(write("dangling").code(), StatusCode::kNotFound);
  EXPECT_EQ(text("nowhere"), "<none>");
}

TEST_F(AtomicFileTest, WhatIsNoRegularFileOrIsWriteProtectedIsLeftAlone) {
  ASSERT_EQ(::mkdir(path("folder").c_str(), 0755), 0);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0644), 0);
  ASSERT_EQ(::symlink("/dev/null", path("null").c_str()), 0);
  put("protected", "old", 0444);
  for (const char* name : {"folder", "pipe", "null", "protected"}) {
    const Status status = write(name);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(status.message(), HasSubstr(path(name)));
  }
  EXPECT_EQ(write_file_durably(posix_env(), "/dev/null", "x", {}).code(),
            StatusCode::kInvalidArgument);
  EXPECT_THAT(names(), ElementsAre("folder", "null", "pipe", "protected"));
}

TEST_F(AtomicFileTest, NothingIsLeftOfAFileThatWasNotCommitted) {
  put("file", "old");
  {
    auto file = AtomicFile::create(posix_env(), path("file"), {});
    ASSERT_TRUE(file.is_ok());
    ASSERT_TRUE(file->append(std::as_bytes(std::span("half"))).is_ok());
    EXPECT_EQ(names().size(), 2u);
  }
  EXPECT_THAT(names(), ElementsAre("file"));
  EXPECT_EQ(text("file"), "old");
}

TEST_F(AtomicFileTest, TemporaryNamesCannotBeGuessedAndLongNamesWork) {
  std::vector<std::string> seen;
  for (int i = 0; i < 2; ++i) {
    auto file = AtomicFile::create(posix_env(), path("file"), {});
    ASSERT_TRUE(file.is_ok());
    seen.push_back(names().at(0));
  }
  EXPECT_NE(seen[0], seen[1]);
  EXPECT_TRUE(write(std::string(255, 'x')).is_ok());
}

TEST_F(AtomicFileTest, APowerCutOrAFailingCallLeavesTheOldFileOrTheNewOne) {
  FaultEnv without_faults(posix_env());
  ASSERT_TRUE(write("file", {}, without_faults).is_ok());
  const uint64_t total_calls = without_faults.calls();
  ASSERT_GE(total_calls, 6u);
  for (const bool cut : {false, true}) {
    for (uint64_t at = 0; at <= total_calls; ++at) {  // the last one: after everything
      for (const Survives survives : {Survives::kNothing, Survives::kNames, Survives::kSome}) {
        SCOPED_TRACE(testing::Message() << (cut ? "cut at " : "failure of ") << at);
        put("file", "old");
        FaultEnv env(posix_env());
        if (cut) {
          env.cut_power_at(at);
        } else {
          env.fail_call(at);
        }
        const Status written = write("file", {}, env);
        if (cut) {
          ASSERT_TRUE(env.restart(survives, at).is_ok());
        }
        if (written.is_ok()) {
          EXPECT_EQ(text("file"), "new") << "what was promised is lost";
        } else {
          EXPECT_TRUE(text("file") == "old" || text("file") == "new") << text("file");
        }
        EXPECT_TRUE(cut || names().size() == 1u) << "a temporary file was left";
        for (const std::string& name : names()) std::filesystem::remove(path(name));
      }
    }
  }
}

}  // namespace
}  // namespace weft
