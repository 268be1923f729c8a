// Data sets' JSON: what is read of it, and what is refused by one line.
#include "eval/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/files.h"

namespace weft::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Dataset : public ::testing::Test {
 protected:
  Result<std::vector<Example>> read(const std::string& json, int64_t limit = 0) {
    dir_.write("set.json", json);
    return read_dataset(posix_env(), dir_ / "set.json", limit);
  }

  test::TempDir dir_;
};

constexpr const char* kTwo = R"([
  {"question": "When?", "answers": ["at seven", "7"],
   "ctxs": [{"title": "The_old_harbour", "text": "It opens at_seven.", "gold": true},
            {"text": "No title."}]},
  {"question": "Who?", "answers": ["Ann"], "ctxs": [{"text": "Ann.", "gold": false}], "id": 5}])";

TEST_F(Dataset, HasQuestionsAnswersAndPassages) {
  const auto examples = read(kTwo);
  ASSERT_TRUE(examples.is_ok()) << examples.status().message();
  ASSERT_EQ(examples->size(), 2u);
  const Example& first = (*examples)[0];
  EXPECT_EQ(first.question, "When?");
  EXPECT_THAT(first.answers, ElementsAre("at seven", "7"));
  ASSERT_EQ(first.passages.size(), 2u);
  EXPECT_EQ(first.passages[0].title, "The old harbour");
  EXPECT_EQ(first.passages[0].text, "It opens at_seven.");  // a text's underscores are its own
  EXPECT_TRUE(first.passages[0].is_gold);
  EXPECT_EQ(first.passages[1].title, "");
  EXPECT_FALSE(first.passages[1].is_gold);
  EXPECT_FALSE((*examples)[1].passages[0].is_gold);
}

TEST_F(Dataset, ADialogueIsAPassageWithItsSummary) {
  const auto examples =
      read(R"([{"dialogue": "A: Hi\nB: Hello", "summary": "They greet.", "split": "train"}])");
  ASSERT_TRUE(examples.is_ok()) << examples.status().message();
  const Example& one = examples->front();
  EXPECT_TRUE(one.is_dialogue);
  EXPECT_THAT(one.answers, ElementsAre("They greet."));
  ASSERT_EQ(one.passages.size(), 1u);
  EXPECT_EQ(one.passages[0].text, "A: Hi\nB: Hello");
  EXPECT_FALSE(
      read(R"([{"question": "?", "answers": ["a"], "ctxs": [{"text": ""}], "dialogue": 5}])")
          ->front()
          .is_dialogue);
  EXPECT_THAT(read(R"([{"dialogue": "A: Hi"}])").status().message(),
              HasSubstr("example 0: 'summary' is no string"));
  EXPECT_THAT(read(R"([{"dialogue": 5, "summary": ""}])").status().message(),
              HasSubstr("'dialogue' is no string"));
}

TEST_F(Dataset, ALimitTakesTheFirst) {
  EXPECT_EQ(read(kTwo, 1)->size(), 1u);
  EXPECT_EQ(read(kTwo, 3)->size(), 2u);
  // What is beyond the limit is not looked at.
  EXPECT_TRUE(
      read(R"([{"question": "?", "answers": ["a"], "ctxs": [{"text": ""}]}, 5])", 1).is_ok());
}

TEST_F(Dataset, WhatIsWrongIsNamedByFileExampleAndField) {
  struct Case {
    const char* json;
    const char* says;
  };
  const Case cases[] = {
      {"[{]", "set.json: not valid JSON"},
      {"{}", "set.json: no list of examples"},
      {"[]", "set.json: an empty list of examples"},
      {"[5]", "example 0: no object"},
      {R"([{"answers": ["a"], "ctxs": [{"text": "t"}]}])", "example 0: 'question' is no string"},
      {R"([{"question": 5, "answers": ["a"], "ctxs": [{"text": "t"}]}])", "'question'"},
      {R"([{"question": "?", "answers": "a", "ctxs": [{"text": "t"}]}])", "'answers' is no list"},
      {R"([{"question": "?", "answers": [], "ctxs": [{"text": "t"}]}])", "'answers' is empty"},
      {R"([{"question": "?", "answers": ["a", 5], "ctxs": [{"text": "t"}]}])", "'answers'"},
      {R"([{"question": "?", "answers": ["a"], "ctxs": []}])", "'ctxs' is empty"},
      {R"([{"question": "?", "answers": ["a"], "ctxs": ["t"]}])", "'ctxs'"},
      {R"([{"question": "?", "answers": ["a"], "ctxs": [{"title": "t"}]}])", "'text' is no string"},
      {R"([{"question": "?", "answers": ["a"], "ctxs": [{"text": "t", "title": 5}]}])", "'title'"},
      {R"([{"question": "?", "answers": ["a"], "ctxs": [{"text": "t", "gold": 1}]}])",
       "'gold' is not true or false"},
  };
  for (const Case& c : cases) {
    const Status status = read(c.json).status();
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << c.json;
    EXPECT_THAT(status.message(), HasSubstr(c.says));
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
  }
  EXPECT_EQ(read_dataset(posix_env(), dir_ / "missing", 0).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace weft::eval
