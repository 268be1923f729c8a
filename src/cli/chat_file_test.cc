#include "cli/chat_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "support/fault_env.h"
#include "support/files.h"

namespace weft::cli {
namespace {

using test::FaultEnv;
using test::Survives;
using ::testing::HasSubstr;
using text::Role;

TEST(ChatFile, WhatIsWrittenReadsBackTheSame) {
  const std::vector<text::Turn> turns = {{Role::kSystem, "s\"\\\n\t"},
                                         {Role::kUser, "<|im_end|> \u00e9\U0001F600"},
                                         {Role::kAssistant, ""}};
  const auto read = parse_turns(write_conversation(turns));
  ASSERT_TRUE(read.is_ok()) << read.status().message();
  ASSERT_EQ(read->size(), turns.size());
  for (size_t i = 0; i < turns.size(); ++i) {
    EXPECT_EQ((*read)[i].role, turns[i].role);
    EXPECT_EQ((*read)[i].text, turns[i].text);
  }
  const auto mended =
      parse_turns(write_conversation(std::vector<text::Turn>{{Role::kUser, "\xff"}}));
  ASSERT_TRUE(mended.is_ok());
  EXPECT_EQ(mended->front().text, "\ufffd");
}

TEST(ChatFile, ReadsEveryFormOfTheApi) {
  const auto parts = parse_turns(R"([{"role":"user","name":"x","content":)"
                                 R"([{"type":"text","text":"a"},{"type":"text","text":"b"}]}])");
  ASSERT_TRUE(parts.is_ok()) << parts.status().message();
  EXPECT_EQ(parts->front().text, "ab");
  EXPECT_TRUE(parse_turns(R"({"model":"m","messages":[]})").is_ok());
}

TEST(ChatFile, RefusesAnythingElseInOneLine) {
  const std::pair<const char*, const char*> bad[] = {
      {"", "line 1"},
      {"{", "line 1"},
      {"{}", "messages"},
      {"7", "messages"},
      {R"({"messages":{}})", "messages"},
      {"[7]", "message 1: no role"},
      {R"([{"role":"user","content":"x"},{"role":"tool","content":"x"}])", "message 2: its role"},
      {R"([{"role":"user","content":null}])", "message 1: no content"},
      {R"([{"role":"user"}])", "message 1: no content"},
      {R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])", "no text"},
      {R"([{"role":"user","content":[{"type":"text","text":3}]}])", "no text"}};
  for (const auto& [json, part] : bad) {
    const auto read = parse_turns(json);
    ASSERT_FALSE(read.is_ok()) << json;
    EXPECT_THAT(read.status().message(), HasSubstr(part)) << json;
    EXPECT_EQ(read.status().message().find('\n'), std::string::npos);
  }
  EXPECT_FALSE(parse_turns(std::string(100000, '[')).is_ok());
}

/// A folder of its own, as others may write to it too.
class ChatFileOnDisk : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return dir_ / name; }
  void put(const std::string& name, const std::string& text, uint32_t mode = 0644) const {
    std::ofstream(path(name)) << text;
    ASSERT_EQ(::chmod(path(name).c_str(), mode), 0);
  }
  std::string text(const std::string& name) const {
    auto read = read_file(posix_env(), path(name), 1 << 20);
    return read.is_ok() ? *read : "<none>";
  }
  uint32_t mode(const std::string& name) const { return posix_env().stat(path(name))->mode; }
  Status save(const std::string& name, bool replace = true, Env& env = posix_env()) const {
    return save_conversation(env, path(name), turns_, replace);
  }

  const std::vector<text::Turn> turns_ = {{Role::kUser, "Hello"}, {Role::kAssistant, "Hi"}};
  const std::string json_ = write_conversation(turns_);
  test::TempDir dir_;
};

TEST_F(ChatFileOnDisk, SavingTouchesNoOtherFile) {
  put("s.json.part", "the user's own");
  put("victim", "precious");
  ASSERT_TRUE(save("s.json").is_ok());
  EXPECT_EQ(text("s.json"), json_);
  EXPECT_EQ(text("s.json.part"), "the user's own");
  std::filesystem::remove(path("s.json.part"));
  std::filesystem::create_symlink("victim", path("s.json.part"));
  ASSERT_TRUE(save("s.json").is_ok());
  EXPECT_EQ(text("victim"), "precious");
  EXPECT_EQ(posix_env().list(dir_.path())->size(), 3u);
}

TEST_F(ChatFileOnDisk, ANewFileIsPrivateAndAnOldOneKeepsItsMode) {
  ASSERT_TRUE(save("new").is_ok());
  EXPECT_EQ(mode("new"), 0600u);
  put("shared", "old", 0664);
  ASSERT_TRUE(save("shared").is_ok());
  EXPECT_EQ(mode("shared"), 0664u);
  EXPECT_EQ(text("shared"), json_);
}

TEST_F(ChatFileOnDisk, ALinkIsWrittenThrough) {
  std::filesystem::create_directory(path("elsewhere"));
  put("elsewhere/s.json", "old");
  std::filesystem::create_symlink("elsewhere/s.json", path("link"));
  ASSERT_TRUE(save("link").is_ok());
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(text("elsewhere/s.json"), json_);
}

TEST_F(ChatFileOnDisk, WithoutReplaceAnExistingFileStays) {
  put("other", "another's");
  std::filesystem::create_symlink("nowhere", path("dangling"));
  EXPECT_EQ(save("other", /*replace=*/false).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(save("dangling", /*replace=*/false).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(text("other"), "another's");
  EXPECT_FALSE(save_conversation(posix_env(), "/dev/null", turns_, /*replace=*/true).is_ok());
}

TEST_F(ChatFileOnDisk, WhatWasSavedOutlivesAPowerCut) {
  for (const bool exists : {false, true}) {
    if (exists) put("s.json", "old");
    FaultEnv env(posix_env());
    ASSERT_TRUE(save("s.json", /*replace=*/true, env).is_ok());
    env.cut_power_at(env.calls());
    ASSERT_TRUE(env.restart(Survives::kNothing).is_ok());
    EXPECT_EQ(text("s.json"), json_) << "the file's or the folder's sync is missing";
  }
}

TEST_F(ChatFileOnDisk, AFailureAnywhereLeavesTheOldFileOrTheNewOne) {
  put("s.json", "old");
  FaultEnv counted(posix_env());
  ASSERT_TRUE(save("s.json", /*replace=*/true, counted).is_ok());
  for (uint64_t at = 0; at < counted.calls(); ++at) {
    put("s.json", "old");
    FaultEnv env(posix_env());
    env.fail_call(at);
    const Status saved = save("s.json", /*replace=*/true, env);
    EXPECT_FALSE(saved.is_ok()) << at;
    EXPECT_TRUE(text("s.json") == "old" || text("s.json") == json_) << at;
    EXPECT_EQ(posix_env().list(dir_.path())->size(), 1u) << at;
  }
}

}  // namespace
}  // namespace weft::cli
