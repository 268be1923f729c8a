// weft eval passkey as its users meet it: the report, what it refuses, and that eval has it as a
// command beside its own work.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/kv_limit.h"
#include "support/weft_program.h"

namespace weft {
namespace {

using test::Outcome;
using test::write_text;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

class PasskeyProgram : public test::WeftProgram {
 protected:
  static void SetUpTestSuite() {
    WeftProgram::SetUpTestSuite();
    // Attention as peaked as this makes answers that differ from prompt to prompt.
    ASSERT_TRUE(gguf::write_random_model(
                    posix_env(), path("model.gguf"),
                    {.head_dim = 32, .vocab = 300, .logit_spread = 3.0f, .score_spread = 4.0f})
                    .is_ok());
  }
  static Outcome passkey(const Arguments& more) {
    Arguments arguments{"eval", "passkey", "-m", model(), "--compute", "f32", "-t", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return weft(arguments);
  }
  static std::string book() {
    write_text(path("book.txt"), filler(300));
    return path("book.txt");
  }
};

TEST_F(PasskeyProgram, JsonHasTrialsByDepth) {
  const Outcome run = passkey({"--length", "400", "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, IsEmpty());
  const Json json = run.json();
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("accuracy", "by_depth", "correct", "trials", "unfinished"));
  EXPECT_EQ(json["unfinished"], false);
  EXPECT_EQ(json["trials"], 20);
  ASSERT_EQ(json["by_depth"].size(), 10u);
  int64_t correct = 0;
  for (size_t i = 0; i < 10; ++i) {
    const Json& one = json["by_depth"][i];
    EXPECT_NEAR(one["depth"].get<double>(), 0.05 + 0.1 * i, 1e-9);
    EXPECT_EQ(one["trials"], 2);
    correct += one["correct"].get<int64_t>();
  }
  EXPECT_EQ(json["correct"], correct);
  EXPECT_EQ(json["accuracy"], correct / 20.0);
  EXPECT_EQ(passkey({"--length", "400", "--json"}).out, run.out);
}

TEST_F(PasskeyProgram, TheTableSaysTheSame) {
  const Outcome run = passkey({"--length", "400", "--trials", "3", "--depth", "0.5"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(HasSubstr("depth  correct\n0.50   "), HasSubstr(" of 3\nall    "),
                             HasSubstr(" of 3 ("), HasSubstr("), prompts of 400 tokens\n")));
}

// The answers of random weights follow from every token of the prompt, so they tell what it was.
TEST_F(PasskeyProgram, AnswersFollowFromTextAndSeedAlone) {
  const auto answers = [](Arguments more) {
    const Arguments usual{"--length", "600", "--trials", "4", "-v"};
    more.insert(more.end(), usual.begin(), usual.end());
    const Outcome run = passkey(more);
    EXPECT_EQ(run.status, 0) << run.err;
    std::string lines;
    for (size_t at = run.err.find("depth 0."); at != std::string::npos;
         at = run.err.find("depth 0.", at + 1)) {
      lines += run.err.substr(at, run.err.find('\n', at) + 1 - at);
    }
    EXPECT_THAT(lines, HasSubstr("the answer is"));
    return lines;
  };
  const std::string usual = answers({});
  EXPECT_EQ(answers({}), usual);
  EXPECT_EQ(answers({"--seed", "1"}), usual);
  EXPECT_NE(answers({"--seed", "2"}), usual);
  EXPECT_NE(answers({"-f", book()}), usual);
  EXPECT_NE(answers({"--needles", "2"}), usual);
  EXPECT_NE(answers({"-ctk", "q4_0"}), usual);
  // The context is the prompt's and the answer's unless it is given; a larger one changes nothing.
  EXPECT_EQ(answers({"-c", "1000"}), usual);
  // Prompts that are each run by themselves, for want of room.
  EXPECT_EQ(answers({"--kv-limit", test::kv_limit_flag(folder_->path(), model(), 39)}), usual);
}

TEST_F(PasskeyProgram, TheLengthIsThreeQuartersOfTheContext) {
  EXPECT_THAT(passkey({"--trials", "1", "-c", "800"}).out, HasSubstr("prompts of 600 tokens"));
  EXPECT_THAT(passkey({"--trials", "1"}).out, HasSubstr("prompts of 1536 tokens"));  // of 2,048
}

TEST_F(PasskeyProgram, ReadsBeyondTheModelsContextWithSelfExtendOrOnDemand) {
  const Arguments longer{"--length", "2500", "--trials", "1"};
  const auto with = [&](Arguments more) {
    more.insert(more.end(), longer.begin(), longer.end());
    return passkey(more);
  };
  expect_error(with({}), 1,
               "--length 2500: with 16 tokens for the answer the model's context of 2048 holds "
               "2032 at most");
  const Outcome extended = with({"--grp-attn-n", "4", "--grp-attn-w", "256"});
  EXPECT_EQ(extended.status, 0) << extended.err;
  EXPECT_THAT(extended.err, IsEmpty());
  const Outcome beyond = with({"--beyond-context"});
  EXPECT_EQ(beyond.status, 0) << beyond.err;
  EXPECT_THAT(beyond.err, HasSubstr("the model was trained for 2048 tokens"));
  expect_error(passkey({"--length", "9000", "--grp-attn-n", "4"}), 1, "context of 8192 holds 8176");
}

TEST_F(PasskeyProgram, RefusesWhatCannotBe) {
  expect_error(passkey({"--length", "50"}), 1, "--length 50: 1 pass key and the question take ");
  expect_error(passkey({"--length", "900", "--needles", "64"}), 1, "fewer --needles");
  expect_error(passkey({"--length", "600", "-c", "610"}), 1,
               "--length 600: with 16 tokens for the answer it does not fit the context of 610; "
               "-c 616 holds them");
  expect_error(passkey({"--depth", "1.5"}), 2, "--depth 1.5: must be a number from 0 to 1");
  expect_error(passkey({"--depth", "-0.1"}), 2, "--depth -0.1: must be a number from 0 to 1");
  expect_error(passkey({"--trials", "0"}), 2, "--trials 0: must be");
  expect_error(passkey({"--needles", "0"}), 2, "--needles 0: must be");
  write_text(path("short.txt"), "A few words.");
  expect_error(passkey({"--length", "800", "-f", path("short.txt")}), 1,
               path("short.txt") + ": has ");
  write_text(path("empty.txt"), " \n");
  expect_error(passkey({"-f", path("empty.txt")}), 1, path("empty.txt") + ": has no text");
  write_text(path("latin1.txt"), "caf\xE9 au lait");
  expect_error(passkey({"-f", path("latin1.txt")}), 1, path("latin1.txt") + ": is not UTF-8");
  expect_error(passkey({"-f", path("nothing.txt")}), 1, path("nothing.txt") + ": cannot open");
}

TEST_F(PasskeyProgram, IsACommandOfEvalWhichRunsByItselfToo) {
  EXPECT_THAT(weft({"eval", "--help"}).out,
              AllOf(HasSubstr("--details"), HasSubstr("passkey"), HasSubstr("a long text")));
  const Outcome help = weft({"eval", "passkey", "--help"});
  EXPECT_THAT(help.out, AllOf(HasSubstr("weft eval passkey"), HasSubstr("--grp-attn-n"),
                              HasSubstr("--beyond-context"), HasSubstr("--needles")));
  EXPECT_EQ(weft({"help", "eval", "passkey"}).out, help.out);
  expect_error(weft({"eval", "-m", model()}), 2, "--file is missing");
  expect_error(weft({"eval", "passkey"}), 2, "--model MODEL is missing");
  expect_error(weft({"eval", "-m", model(), "passkey"}), 2,
               "-m goes after the command: weft eval passkey -m ...");
  expect_error(weft({"eval", "paskey"}), 2, "no command paskey: did you mean passkey?");
  expect_error(weft({"eval", "--fiel", "x"}), 2, "did you mean --file?");
  expect_error(weft({"eval", "passkey", "--lenght", "9"}), 2, "did you mean --length?");
  for (const char* shell : {"bash", "zsh", "fish"}) {
    EXPECT_THAT(weft({"completions", shell}).out, HasSubstr("passkey")) << shell;
  }
}

}  // namespace
}  // namespace weft
