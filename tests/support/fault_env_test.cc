#include "support/fault_env.h"

#include <gtest/gtest.h>

#include "support/files.h"

namespace weft::test {
namespace {

class FaultEnvTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return dir_ / name; }
  Status write(const std::string& name, std::string_view text, bool sync) {
    WEFT_ASSIGN_OR_RETURN(const auto file, env_.create(path(name)));
    WEFT_RETURN_IF_ERROR(file->append(std::as_bytes(std::span(text))));
    if (sync) WEFT_RETURN_IF_ERROR(file->sync());
    return file->close();
  }
  std::string text(const std::string& name) {
    auto text = read_file(posix_env(), path(name), 1 << 20);
    return text.is_ok() ? *text : "<none>";
  }

  TempDir dir_;
  FaultEnv env_{posix_env()};
};

TEST_F(FaultEnvTest, SyncedDataAndNamesSurviveAPowerCut) {
  ASSERT_TRUE(write("a.tmp", "durable", true).is_ok());
  ASSERT_TRUE(env_.rename(path("a.tmp"), path("a")).is_ok());
  ASSERT_TRUE(env_.sync_dir(dir_.path()).is_ok());
  ASSERT_TRUE(env_.restart(Survives::kNothing).is_ok());
  EXPECT_EQ(text("a"), "durable");
}

TEST_F(FaultEnvTest, WhatWasNotSyncedIsLost) {
  ASSERT_TRUE(write("old", "old", true).is_ok());
  ASSERT_TRUE(write("gone", "back", true).is_ok());
  ASSERT_TRUE(env_.sync_dir(dir_.path()).is_ok());
  ASSERT_TRUE(write("new", "new", true).is_ok());
  ASSERT_TRUE(env_.rename(path("new"), path("old")).is_ok());
  ASSERT_TRUE(env_.remove(path("gone")).is_ok());
  ASSERT_TRUE(env_.restart(Survives::kNothing).is_ok());
  EXPECT_EQ(text("old"), "old");
  EXPECT_EQ(text("new"), "<none>");
  EXPECT_EQ(text("gone"), "back");
}

TEST_F(FaultEnvTest, NamesMaySurviveTheirData) {
  ASSERT_TRUE(write("x", "data", false).is_ok());
  ASSERT_TRUE(env_.restart(Survives::kNames).is_ok());
  EXPECT_EQ(text("x"), "");
  ASSERT_TRUE(write("y", "data", false).is_ok());
  ASSERT_TRUE(env_.restart(Survives::kNamesAndSizes).is_ok());
  EXPECT_EQ(text("y"), std::string(4, '\0'));
}

TEST_F(FaultEnvTest, FailsTheChosenCallAndAllAfterThePowerIsCut) {
  env_.fail_call(env_.calls());
  EXPECT_EQ(write("a", "abcd", true).code(), StatusCode::kIoError);
  EXPECT_TRUE(write("a", "abcd", true).is_ok());
  env_.fail_call(env_.calls() + 1);
  EXPECT_EQ(write("b", "abcd", true).code(), StatusCode::kIoError);
  EXPECT_EQ(text("b"), "ab") << "a failing write is cut short";
  env_.cut_power_at(env_.calls());
  EXPECT_FALSE(env_.exists(path("a")));
  EXPECT_FALSE(env_.list(dir_.path()).is_ok());
  ASSERT_TRUE(env_.restart(Survives::kNames).is_ok());
  EXPECT_TRUE(env_.exists(path("a")));
}

TEST_F(FaultEnvTest, TheDiskFillsAndEmpties) {
  env_.limit_disk(6);
  EXPECT_TRUE(write("a", "abcd", true).is_ok());
  EXPECT_EQ(write("b", "efgh", true).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(text("b"), "ef");
  EXPECT_TRUE(env_.remove(path("a")).is_ok());
  EXPECT_TRUE(env_.remove(path("b")).is_ok());
  EXPECT_TRUE(write("b", "efgh", true).is_ok());
}

TEST_F(FaultEnvTest, APowerCutKeepsModesAndUndoesNewNames) {
  ASSERT_TRUE(env_.create(path("a"), {.mode = 0600}).is_ok());
  ASSERT_TRUE(write("b", "text", true).is_ok());
  ASSERT_TRUE(env_.sync_dir(dir_.path()).is_ok());
  ASSERT_TRUE(env_.remove(path("a")).is_ok());
  ASSERT_TRUE(env_.rename_to_new(path("b"), path("c")).is_ok());
  const auto folder = env_.make_temporary_dir(path("t"));
  ASSERT_TRUE(folder.is_ok());
  ASSERT_TRUE(env_.restart(Survives::kNothing).is_ok());
  EXPECT_EQ(posix_env().stat(path("a"))->mode, 0600u);
  EXPECT_EQ(text("b"), "text");
  EXPECT_EQ(text("c"), "<none>");
  EXPECT_FALSE(posix_env().exists(*folder));
}

TEST_F(FaultEnvTest, TheClockJumpsBothWays) {
  const int64_t before_ms = env_.unix_ms();
  env_.jump_clock_ms(3'600'000);
  EXPECT_GE(env_.unix_ms(), before_ms + 3'600'000);
  env_.jump_clock_ms(-7'200'000);
  EXPECT_LT(env_.unix_ms(), before_ms);
}

TEST_F(FaultEnvTest, DamagesReads) {
  ASSERT_TRUE(write("a", "abcd", true).is_ok());
  env_.damage_reads(path("a"), 2, std::byte{1});
  EXPECT_EQ(*read_file(env_, path("a"), 100), "abbd");
}

}  // namespace
}  // namespace weft::test
