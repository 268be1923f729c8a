// Speculative decoding as its users meet it: the same text, what JSON says, what is refused, and
// weft eval speculation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/weft_program.h"

namespace weft {
namespace {

using test::Outcome;
using test::write_text;
using ::testing::HasSubstr;
using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

class SpeculationProgram : public test::WeftProgram {
 protected:
  static void SetUpTestSuite() {
    WeftProgram::SetUpTestSuite();
    ASSERT_TRUE(gguf::write_random_model(posix_env(), path("model.gguf"),
                                         {.n_layers = 3, .vocab = 300, .logit_spread = 3.0f})
                    .is_ok());
    ASSERT_TRUE(gguf::write_random_model(posix_env(), path("draft.gguf"),
                                         {.n_layers = 1, .vocab = 300, .seed = 5})
                    .is_ok());
  }
  static Outcome run(Arguments first, const Arguments& more) {
    const Arguments usual{"-m", path("model.gguf"), "--compute", "f32"};
    first.insert(first.end(), usual.begin(), usual.end());
    first.insert(first.end(), more.begin(), more.end());
    return weft(first);
  }
  static Outcome generate(const Arguments& more) {
    return run({"generate", "--raw", "-p", filler(10), "-n", "40", "--ignore-eos"}, more);
  }
};

TEST_F(SpeculationProgram, TheTextIsThatWithoutDrafts) {
  for (const Arguments& how : {Arguments{},
                               {"--temp", "0.8", "--seed", "3"},
                               {"--budget", "64"},
                               {"--context-shift", "-c", "272"},
                               {"--parallel", "3", "--temp", "0.5"}}) {
    const Outcome plain = generate(how);
    ASSERT_EQ(plain.status, 0) << plain.err;
    for (const char* draft : {"ngram", "none"}) {
      Arguments flags = how;
      flags.insert(flags.end(), {"--draft", draft});
      EXPECT_EQ(generate(flags).out, plain.out) << draft;
    }
    Arguments by_model = how;
    by_model.insert(by_model.end(), {"--draft", path("draft.gguf"), "--draft-tokens", "3"});
    EXPECT_EQ(generate(by_model).out, plain.out);
  }
}

TEST_F(SpeculationProgram, JsonSaysHowDraftsWent) {
  EXPECT_FALSE(generate({"--json"}).json().contains("speculation"));
  const Json by_ngram = generate({"--json", "--draft", "ngram"}).json()["speculation"];
  EXPECT_EQ(by_ngram["draft"], "ngram");
  EXPECT_TRUE(by_ngram["draft_model"].is_null());
  EXPECT_EQ(by_ngram["draft_tokens"], 8);
  EXPECT_EQ(by_ngram["steps"].get<int>() + by_ngram["accepted"].get<int>(), 39);
  EXPECT_GE(by_ngram["drafted"], by_ngram["accepted"]);
  EXPECT_GT(by_ngram["verify_ms"], 0);
  const Json by_itself = generate({"--json", "--draft", path("model.gguf")}).json()["speculation"];
  EXPECT_EQ(by_itself["draft"], "model");
  EXPECT_GT(by_itself["draft_ms"], 0);
  EXPECT_EQ(by_itself["drafted"], by_itself["accepted"]);
  write_text(path("batch.jsonl"), Json{{"prompt", filler(4)}, {"raw", true}}.dump() + "\n" +
                                      Json{{"prompt", filler(5)}, {"raw", true}}.dump() + "\n");
  const Outcome batch =
      run({"generate", "-n", "24"}, {"--batch", path("batch.jsonl"), "--draft", "ngram"});
  ASSERT_EQ(batch.status, 0) << batch.err;
  EXPECT_TRUE(Json::parse(batch.out.substr(0, batch.out.find('\n'))).contains("speculation"));
}

TEST_F(SpeculationProgram, RefusesWhatCannotBe) {
  expect_error(generate({"--draft-tokens", "4"}), 2, "--draft-tokens goes with --draft");
  expect_error(generate({"--draft", "ngram", "--draft-tokens", "0"}), 2, "--draft-tokens 0");
  expect_error(generate({"--draft", "ngram", "--draft-tokens", "65"}), 2, "--draft-tokens 65");
  expect_error(generate({"--draft", "ngrams"}), 1, "--draft (ngram, none or a model)");
  expect_error(generate({"--draft", "ngram", "--beams", "2"}), 2, "do not go together");
  write_text(path("no.gguf"), "no model");
  EXPECT_NE(generate({"--draft", path("no.gguf")}).status, 0);
}

TEST_F(SpeculationProgram, EvalSaysWhetherItPays) {
  Json examples = Json::array();
  for (int i = 0; i < 3; ++i) {
    examples.push_back({{"question", "What does it say?"},
                        {"answers", {"this"}},
                        {"ctxs", {{{"title", "A"}, {"text", filler(3)}}}}});
  }
  write_text(path("questions.json"), examples.dump());
  const Outcome outcome = run({"eval", "speculation"}, {"-f", path("questions.json"), "-n", "12",
                                                        "--repeat", "1", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json json = outcome.json();
  EXPECT_EQ(json["results"].size(), 3u);
  EXPECT_EQ(json["other_answers"], 0);
  EXPECT_EQ(json["all"]["answers"], 3);
  EXPECT_GT(json["all"]["speedup"], 0);
  EXPECT_GT(json["all_wrong"]["speedup"], 0);
  const Outcome text =
      run({"eval", "speculation"}, {"-f", path("questions.json"), "-n", "4", "--repeat", "1"});
  EXPECT_THAT(text.out, HasSubstr("times as fast"));
  expect_error(run({"eval", "speculation"}, {}), 2, "--file is missing");
  const Arguments file{"-f", path("questions.json"), "--draft", "none"};
  expect_error(run({"eval", "speculation"}, file), 2, "nothing is drafted: give --draft");
  expect_error(run({"eval", "speculation"}, {"-f", path("questions.json"), "-c", "64"}), 1,
               "no question fits the context of 64");
}

}  // namespace
}  // namespace weft
