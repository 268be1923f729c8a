#include "cli/chat_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft::cli {
namespace {

using ::testing::HasSubstr;
using text::Role;

TEST(ChatFile, WhatIsWrittenIsReadAgain) {
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

TEST(ChatFile, ReadsTheApisForms) {
  const auto parts = parse_turns(R"([{"role":"user","name":"x","content":)"
                                 R"([{"type":"text","text":"a"},{"type":"text","text":"b"}]}])");
  ASSERT_TRUE(parts.is_ok()) << parts.status().message();
  EXPECT_EQ(parts->front().text, "ab");
  EXPECT_TRUE(parse_turns(R"({"model":"m","messages":[]})").is_ok());
}

TEST(ChatFile, RefusesTheRestInOneLine) {
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

}  // namespace
}  // namespace weft::cli
