#include "cli/local_models.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "support/fault_env.h"
#include "support/wheels.h"

namespace weft::cli {
namespace {

using test::FaultEnv;
using test::read_text;
using test::write_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LocalModelsTest : public test::WheelTest {
 protected:
  void expect_unknown(const std::string& name, const char* what) {
    const auto result = remove_model(posix_env(), name, models_dir());
    ASSERT_FALSE(result.is_ok()) << name;
    EXPECT_EQ(result.status().code(), StatusCode::kNotFound);
    EXPECT_THAT(result.status().message(), HasSubstr(what));
  }
};

TEST_F(LocalModelsTest, ResolvesPathsAndNames) {
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
  expect_missing("smollm2-135m", "weft model get smollm2-135m");
  std::filesystem::remove_all(models_dir());
  expect_missing("other", "weft model get smollm2-135m");
}

TEST_F(LocalModelsTest, ListsTheFolder) {
  EXPECT_TRUE(list_models(posix_env(), models_dir())->empty());
  EXPECT_TRUE(list_models(posix_env(), dir_.path() + "/none")->empty());
  write_text(models_dir() + "/b.gguf", "12345");
  write_text(models_dir() + "/b.terms.txt", "1");
  write_text(models_dir() + "/a.gguf", "1");
  write_text(models_dir() + "/c.txt", "1");
  std::filesystem::create_directories(models_dir() + "/d.gguf");
  const auto models = list_models(posix_env(), models_dir());
  ASSERT_EQ(models->size(), 2u);
  EXPECT_EQ((*models)[0].name, "a");
  EXPECT_EQ((*models)[0].terms_path, "");
  EXPECT_EQ((*models)[1].name, "b");
  EXPECT_EQ((*models)[1].size_bytes, 5u);
  EXPECT_EQ((*models)[1].terms_path, models_dir() + "/b.terms.txt");
}

TEST_F(LocalModelsTest, RemovesAModelAndItsTerms) {
  for (const char* name : {"a.gguf", "a.terms.txt", "b.gguf", "b.terms.txt", "c.gguf"}) {
    write_text(models_dir() + "/" + name, "12345");
  }
  EXPECT_EQ(*remove_model(posix_env(), "a", models_dir()), 10u);
  EXPECT_EQ(*remove_model(posix_env(), "c.gguf", models_dir()), 5u);
  EXPECT_THAT(models_dir_entries(), ElementsAre("b.gguf", "b.terms.txt"));
}

TEST_F(LocalModelsTest, ANameGoesBeforeAFileName) {
  write_text(models_dir() + "/a.gguf", "1");
  write_text(models_dir() + "/a.gguf.gguf", "1");
  EXPECT_TRUE(remove_model(posix_env(), "a.gguf", models_dir()).is_ok());
  EXPECT_THAT(models_dir_entries(), ElementsAre("a.gguf"));
}

TEST_F(LocalModelsTest, RemovesNothingElse) {
  expect_unknown("tiny", "'tiny': no model of that name");
  expect_unknown("tiny", "there is none");
  write_text(target(), "x");
  write_text(dir_.path() + "/outside.gguf", "x");
  write_text(models_dir() + "/notes.txt", "x");
  std::filesystem::create_directories(models_dir() + "/folder.gguf");
  write_text(models_dir() + "/folder.gguf/inside.gguf", "x");
  for (const std::string name :
       {"other", "", ".", "..", "../outside", "../outside.gguf", "../models/tiny", "./tiny",
        "notes.txt", "notes", "folder", "folder.gguf", "folder.gguf/inside"}) {
    expect_unknown(name, "there are: tiny");
  }
  expect_unknown(target(), "there are: tiny");
  expect_unknown(dir_.path() + "/outside.gguf", "there are: tiny");
  EXPECT_THAT(models_dir_entries(), ElementsAre("folder.gguf", "notes.txt", "tiny.gguf"));
  EXPECT_TRUE(posix_env().exists(dir_.path() + "/outside.gguf"));
  EXPECT_TRUE(posix_env().exists(models_dir() + "/folder.gguf/inside.gguf"));
}

TEST_F(LocalModelsTest, ALinkGoesAndItsTargetStays) {
  write_text(dir_.path() + "/outside.gguf", "12345");
  std::filesystem::create_symlink(dir_.path() + "/outside.gguf", target());
  EXPECT_EQ(*remove_model(posix_env(), "tiny", models_dir()), 0u);
  EXPECT_THAT(models_dir_entries(), ElementsAre());
  EXPECT_EQ(read_text(dir_.path() + "/outside.gguf"), "12345");
}

TEST_F(LocalModelsTest, AFailedRemovalIsReported) {
  for (uint64_t call = 0;; ++call) {
    write_text(target(), "x");
    write_text(models_dir() + "/tiny.terms.txt", "x");
    FaultEnv env(posix_env());
    env.fail_call(call);
    const auto result = remove_model(env, "tiny", models_dir());
    if (env.calls() <= call) break;
    // A look that saw nothing may end well, but never claims a removal that was not done.
    EXPECT_FALSE(result.is_ok() && posix_env().exists(target())) << call;
    ASSERT_LT(call, 20u);
  }
}

}  // namespace
}  // namespace weft::cli
