// weft ask --parallel: several questions of standard input in the same steps, each answered as it
// is alone, through the built program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "kernels/kv_codec.h"
#include "support/kv_limit.h"
#include "support/weft_program.h"

namespace weft {
namespace {

using test::Outcome;
using ::testing::HasSubstr;
using Json = nlohmann::json;

const std::string kQuestions =
    "When does the harbour open?\n"
    "What does the orchard have?\n"
    "\n"
    "Who tames zebras?\n"
    "What does the library lend?\n"
    "Is there a stream in the orchard?\n"
    "Does the harbour open at seven?\n";

class AskParallel : public test::WeftProgram {
 protected:
  void SetUp() override {
    WeftProgram::SetUp();
    std::filesystem::remove_all(store());
    ASSERT_EQ(ingest().status, 0);
  }
  static Outcome ask(std::vector<std::string> more, const std::string& input = kQuestions) {
    std::vector<std::string> arguments{"ask", "-m", model(), "--store", store(), "-n", "12"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return weft(arguments, input);
  }
  /// The limit that holds so many of them.
  static std::string pages(int64_t n_pages, int32_t n_parallel) {
    engine::StepNeeds steps = test::kAskSteps;
    steps.n_sequences = n_parallel;
    steps.batches = n_parallel > 1;
    return test::kv_limit_flag(folder_->path(), model(), n_pages, steps);
  }
  /// The lines without what the clock says.
  static std::vector<Json> answers(const Outcome& run) {
    std::vector<Json> lines;
    for (size_t begin = 0; begin < run.out.size();) {
      const size_t end = run.out.find('\n', begin);
      Json line = Json::parse(run.out.substr(begin, end - begin));
      for (const char* key :
           {"ttft_ms", "predicted_ms", "timings_ms", "load_ms", "calibration_ms", "notes"}) {
        line.erase(key);
      }
      lines.push_back(std::move(line));
      begin = end + 1;
    }
    return lines;
  }
};

TEST_F(AskParallel, EachQuestionIsAnsweredAsAloneAndInItsPlace) {
  for (const std::vector<std::string>& how :
       {std::vector<std::string>{"--json"},
        {"--json", "--reuse", "blend", "--ratio", "0.2", "--min-score", "0"},
        {"--json", "--temp", "1", "--repeat-penalty", "1.3", "--ignore-eos", "--paragraphs"}}) {
    SCOPED_TRACE(::testing::PrintToString(how));
    const Outcome one_by_one = ask(how);
    ASSERT_EQ(one_by_one.status, 0) << one_by_one.err;
    const std::vector<Json> expected = answers(one_by_one);
    ASSERT_EQ(expected.size(), 6u);
    EXPECT_EQ(expected[2]["found"], false);
    for (const std::string n : {"2", "4", "64"}) {
      std::vector<std::string> together = how;
      together.insert(together.end(), {"--parallel", n});
      const Outcome run = ask(together);
      EXPECT_EQ(run.status, 0) << run.err;
      EXPECT_EQ(answers(run), expected) << n;
    }
  }
}

TEST_F(AskParallel, WhatDoesNotFitTogetherHasItsTurnLater) {
  const std::vector<Json> expected = answers(ask({"--json"}));
  // Also where prompts have room and their answers have not.
  for (int n_pages = 83; n_pages < 266; n_pages += 17) {
    SCOPED_TRACE(n_pages);
    const Outcome tight = ask({"--json", "--parallel", "6", "--kv-limit", pages(n_pages, 6)});
    EXPECT_EQ(tight.status, 0) << tight.err;
    const std::vector<Json> got = answers(tight);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i]["question"], expected[i]["question"]);
      EXPECT_EQ(got[i]["answer"], expected[i]["answer"]) << got[i];
    }
  }
}

// Answers may grow to the end of what the KV cache holds, so few of them fit together.
TEST_F(AskParallel, AnswersWithoutALimitAreThoseThatQuestionsGetAlone) {
  for (const int n_pages : {106, 146, 244}) {
    SCOPED_TRACE(n_pages);
    const auto how = [&](int n_parallel) {
      return std::vector<std::string>{"--json",
                                      "-n",
                                      "-1",
                                      "--ignore-eos",
                                      "--paragraphs",
                                      "--parallel",
                                      std::to_string(n_parallel),
                                      "--kv-limit",
                                      pages(n_pages, n_parallel)};
    };
    const Outcome one_by_one = ask(how(1));
    ASSERT_EQ(one_by_one.status, 0) << one_by_one.err;
    const Outcome run = ask(how(6));
    EXPECT_EQ(run.status, 0) << run.err;
    const std::vector<Json> expected = answers(one_by_one);
    const std::vector<Json> got = answers(run);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i]["answer"], expected[i]["answer"]) << i;
    }
  }
}

// A program that asks, waits for the answer and asks again.
TEST_F(AskParallel, AnAnswerComesWhileTheNextQuestionDoesNot) {
  for (const std::vector<std::string>& how :
       {std::vector<std::string>{"--json"}, {"--parallel", "4"}, {"--json", "--parallel", "2"}}) {
    SCOPED_TRACE(::testing::PrintToString(how));
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    std::vector<std::string> arguments{"ask", "-m", model(), "--store", store(), "-n", "12"};
    arguments.insert(arguments.end(), how.begin(), how.end());
    const auto running = start(arguments, "", "", [&] {
      dup2(ends[0], 0);
      close(ends[0]);
      close(ends[1]);
    });
    close(ends[0]);
    size_t before = 0;
    for (const std::string question : {"harbour?", "zebras?", "What does the orchard have?"}) {
      const std::string line = question + "\n";
      ASSERT_EQ(write(ends[1], line.data(), line.size()), std::ssize(line));
      size_t now = before;
      for (int i = 0; i < 6000 && now == before; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        now = test::read_text(path("stdout")).size();
      }
      EXPECT_GT(now, before) << question;
      for (size_t last = 0; last != now;) {  // all of it
        last = now;
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        now = test::read_text(path("stdout")).size();
      }
      before = now;
    }
    close(ends[1]);
    EXPECT_EQ(finish(running).status, 0);
  }
}

TEST_F(AskParallel, ALineThatIsFarTooLongIsItsOwnErrorAlone) {
  constexpr size_t kOver = (size_t{64} << 20) + 70'000;
  const std::string lines = "What does the orchard have?\n" + std::string(kOver, 'x') +
                            "\nWhen does the library open?\n" + std::string(kOver, 'y');
  for (const char* n : {"1", "3"}) {
    const Outcome asked = ask({"--json", "--parallel", n}, lines);
    EXPECT_EQ(asked.status, 1);
    const std::vector<Json> objects = answers(asked);
    ASSERT_EQ(objects.size(), 4u);
    EXPECT_TRUE(objects[0].contains("answer"));
    EXPECT_TRUE(objects[2].contains("answer"));
    for (const size_t i : {1, 3}) {
      EXPECT_THAT(objects[i]["error"].get<std::string>(), HasSubstr("longer than 1048576 bytes"));
      EXPECT_LT(objects[i]["question"].get<std::string>().size(), 1100u);
    }
    EXPECT_THAT(asked.err, HasSubstr("question 2: the question is longer"));
    EXPECT_THAT(asked.err, HasSubstr("2 of 4 questions were not answered"));
  }
}

TEST_F(AskParallel, HalfALineKeepsNobodyWaiting) {
  for (const bool is_ended : {true, false}) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const auto running =
        start({"ask", "-m", model(), "--store", store(), "-n", is_ended ? "60" : "100000",
               "--ignore-eos", "--json", "--parallel", "4"},
              "", "", [&] {
                dup2(ends[0], 0);
                close(ends[0]);
                close(ends[1]);
              });
    close(ends[0]);
    const auto put = [&](std::string_view text) {
      ASSERT_EQ(write(ends[1], text.data(), text.size()), std::ssize(text));
    };
    put("What does the orchard have?\n");
    put("harb");
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    put("our");
    if (is_ended) {
      for (int i = 0; i < 6000 && test::read_text(path("stdout")).empty(); ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      EXPECT_NE(test::read_text(path("stdout")), "");
      put("?\n");
      close(ends[1]);
      EXPECT_EQ(finish(running).status, 0);
    } else {  // Ctrl-C is for the answer that runs
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      kill(running.child, SIGINT);
      EXPECT_EQ(finish(running).status, 130);
      close(ends[1]);
    }
  }
}

TEST_F(AskParallel, PeopleSeeTheQuestionsAndTheirAnswersInTurn) {
  const Outcome run = ask({"--parallel", "3"});
  EXPECT_EQ(run.status, 0) << run.err;
  size_t at = 0;
  for (const char* part :
       {"> When does the harbour open?\n", "[1] ", "> What does the orchard", "> Who tames zebras?",
        "> What does the library", "> Is there a stream", "> Does the harbour open at seven?"}) {
    const size_t found = run.out.find(part, at);
    ASSERT_NE(found, std::string::npos) << part << "\n" << run.out;
    at = found;
  }
}

TEST_F(AskParallel, OneThatFailsIsCountedAndTheOthersRun) {
  const Outcome run = ask({"--json", "--parallel", "4"},
                          "harbour?\n" + std::string(100'000, 'x') + " harbour\norchard?\n");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("weft: question 2: "));
  EXPECT_THAT(run.err, HasSubstr("weft: 1 of 3 questions were not answered"));
  const std::vector<Json> lines = answers(run);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_TRUE(lines[0].contains("answer"));
  EXPECT_TRUE(lines[1].contains("error"));
  EXPECT_TRUE(lines[2].contains("answer"));
}

// A user asked with another type of cache, and every record was swept away as if nobody needed it.
TEST_F(AskParallel, RecordsStayWhateverTypesTheCacheHas) {
  const auto records = [] {
    return weft({"cache", "stat", "--json", "--store", store()}).json()["records"].get<int>();
  };
  const int before = records();
  ASSERT_GT(before, 0);
  for (const std::string& type : kernels::kv_type_names()) {
    const DType dtype = *kernels::parse_kv_type(type);
    if (is_quantised(dtype)) continue;  // this model's heads are smaller than a block
    const Outcome run = ask({"--json", "--reuse", "full", "--cache-type-k", type, "--cache-type-v",
                             type, "When does the harbour open?"});
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.json()["tier"], "disk") << run.out;  // found, not computed
    EXPECT_EQ(ask({"--cache-type-k", type, "zebras"}).status, 0);
    EXPECT_EQ(records(), before) << type;
  }
}

TEST_F(AskParallel, WhatDoesNotGoTogetherIsRefused) {
  expect_error(ask({"--parallel", "2", "harbour?"}), 2,
               "--parallel is for questions from standard input");
  expect_error(ask({"--parallel", "0"}), 2, "--parallel 0: must be");
  expect_error(ask({"--parallel", "65"}), 2, "--parallel 65: must be");
  expect_error(ask({"--parallel", "2", "--compare"}), 2, "--compare");
  expect_error(ask({"--parallel", "2", "-i"}), 2, "--interactive");
  expect_error(ask({"--parallel", "2"}, "\n \n"), 2, "no question: give one");
}

}  // namespace
}  // namespace weft
