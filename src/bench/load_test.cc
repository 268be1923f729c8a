// A program run from its beginning, with the shell in the place of weft.
#include "bench/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/files.h"

namespace weft::bench {
namespace {

using ::testing::HasSubstr;

constexpr auto go_on = [](int64_t, int64_t) { return true; };

Result<LoadReport> run_shell(const std::string& script, int32_t repeat = 2) {
  return bench_load(posix_env(), {.command = {"/bin/sh", "-c", script}, .repeat = repeat}, go_on);
}

TEST(Load, RunsTheCommandAsOftenAsAsked) {
  const test::TempDir dir;
  std::vector<int64_t> done;
  const auto report = bench_load(
      posix_env(), {.command = {"/bin/sh", "-c", "echo x | tee -a " + dir / "runs"}, .repeat = 3},
      [&](int64_t n, int64_t total) {
        EXPECT_EQ(total, 3);
        done.push_back(n);
        return true;
      });
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  EXPECT_EQ(test::read_text(dir / "runs"), "x\nx\nx\n");
  EXPECT_THAT(done, ::testing::ElementsAre(1, 2, 3));
  EXPECT_GT(report->first_token_ms.min, 0);
  EXPECT_LE(report->first_token_ms.max, report->exit_ms.max)
      << "the first byte comes before the end";
  EXPECT_GT(report->peak_bytes, 0u);
}

TEST(Load, ReadsAllThatItPrints) {  // more than a pipe holds
  EXPECT_TRUE(run_shell("head -c 1000000 /dev/zero").is_ok());
}

TEST(Load, ItsInputIsEmpty) { EXPECT_TRUE(run_shell("read line && exit 1; echo none").is_ok()); }

TEST(Load, AFailureIsAnErrorThatNamesTheProgram) {
  for (const auto& [script, what] : {std::pair{"echo x; exit 3", "failed"},
                                     {"echo x; kill -9 $$", "failed"},
                                     {"true", "printed nothing"}}) {
    const Status status = run_shell(script).status();
    EXPECT_EQ(status.code(), StatusCode::kIoError) << script;
    EXPECT_THAT(status.message(), HasSubstr(std::string("/bin/sh: ") + what));
  }
  const Status missing = bench_load(posix_env(), {.command = {"/nowhere/weft"}}, go_on).status();
  EXPECT_EQ(missing.code(), StatusCode::kIoError);
  EXPECT_THAT(missing.message(), HasSubstr("/nowhere/weft: cannot run: No such file"));
}

TEST(Load, CanBeStoppedBetweenRuns) {
  const auto report = bench_load(posix_env(), {.command = {"/bin/sh", "-c", "echo x"}},
                                 [](int64_t done, int64_t) { return done < 2; });
  EXPECT_EQ(report.status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace weft::bench
