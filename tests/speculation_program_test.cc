// Speculative decoding as its users meet it: the same text, what JSON says, what is refused, and
// weft eval speculation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/weft_program.h"

namespace weft {
namespace {

using test::Outcome;
using test::write_text;
using ::testing::HasSubstr;
using ::testing::Not;
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
  EXPECT_TRUE(by_ngram["draft_model_path"].is_null());
  EXPECT_EQ(by_ngram["draft_tokens"], 8);
  EXPECT_EQ(by_ngram["steps"].get<int>() + by_ngram["accepted"].get<int>(), 39);
  EXPECT_GE(by_ngram["drafted"], by_ngram["accepted"]);
  EXPECT_GT(by_ngram["verify_ms"], 0);
  const Json by_itself = generate({"--json", "--draft", path("model.gguf")}).json()["speculation"];
  EXPECT_EQ(by_itself["draft"], "model");
  EXPECT_EQ(by_itself["draft_model_path"], path("model.gguf"));
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
  expect_error(generate({"--draft-tokens", "4"}), 2, "--draft-tokens goes with a --draft that");
  expect_error(generate({"--draft", "none", "--draft-tokens", "4"}), 2,
               "--draft-tokens goes with a --draft that");
  expect_error(generate({"--draft", "ngram", "--draft-tokens", "0"}), 2, "--draft-tokens 0");
  expect_error(generate({"--draft", "ngram", "--draft-tokens", "65"}), 2, "--draft-tokens 65");
  expect_error(generate({"--draft", "ngrams"}), 2, "--draft ngrams: did you mean ngram?");
  expect_error(generate({"--draft", "tiny-model"}), 1, "--draft (ngram, self, none or a model)");
  expect_error(generate({"--draft", "ngram", "--beams", "2"}), 2,
               "--draft and --beams do not go together");
  EXPECT_EQ(generate({"--draft", "none", "--beams", "2"}).status, 0);
  write_text(path("no.gguf"), "no model");
  expect_error(generate({"--draft", path("no.gguf")}), 1, "--draft: " + path("no.gguf"));
}

TEST_F(SpeculationProgram, FlagsOfLlamaCppAreExplained) {
  expect_error(generate({"--draft", "16"}), 2, "--draft-tokens 16");
  expect_error(generate({"--draft", "1000"}), 2, "--draft-tokens 64");
  expect_error(generate({"-md", "small.gguf"}), 2, "-md: weft's is --draft MODEL");
  expect_error(generate({"--model-draft", "small.gguf"}), 2, "weft's is --draft MODEL");
  expect_error(generate({"--draft-max", "16"}), 2, "--draft-max: weft's is --draft-tokens N");
  expect_error(generate({"--draft-n", "16"}), 2, "--draft-n: weft's is --draft-tokens N");
  expect_error(generate({"--draft-min", "2"}), 2, "weft guesses as many tokens as pay");
  expect_error(generate({"--spec-type", "x"}), 2, "--spec-type: weft's is --draft");
}

// Both fit no text with 65 tokens after it: the second not even this one.
TEST_F(SpeculationProgram, ADraftModelWithoutRoomIsNamedOnceAndChangesNothing) {
  const Outcome plain = generate({"-q"});
  for (const int context : {64, 100}) {
    const std::string draft = path("short.gguf");
    ASSERT_TRUE(gguf::write_random_model(posix_env(), draft,
                                         {.n_layers = 1, .vocab = 300, .context_length = context})
                    .is_ok());
    const Outcome outcome = generate({"-q", "--draft", draft});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.out, plain.out);
    EXPECT_THAT(outcome.err, HasSubstr("its context of " + std::to_string(context) +
                                       " tokens is too short to draft after "));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
}

TEST_F(SpeculationProgram, WhatIsSaidOfAnAnswerIsOfThatAnswer) {
  const Outcome by_ngram = generate({"-v", "--draft", "ngram"});
  EXPECT_THAT(by_ngram.err, HasSubstr("--draft ngram; 8 tokens at once at most"));
  EXPECT_THAT(by_ngram.err, HasSubstr("weft: info: drafts: "));
  const Outcome by_model = generate({"-v", "--draft", path("draft.gguf"), "--draft-tokens", "1"});
  EXPECT_THAT(by_model.err, HasSubstr("--draft " + path("draft.gguf") + ": "));
  EXPECT_THAT(by_model.err, HasSubstr(", llama, F32, context "));
  EXPECT_THAT(by_model.err, HasSubstr("; 1 token at once at most"));
  EXPECT_THAT(generate({"-v"}).err, Not(HasSubstr("draft")));

  ASSERT_EQ(ingest().status, 0);
  const Arguments question{"ask", "-m", model(),   "--store",      store(),
                           "-n",  "8",  "--stats", "--ignore-eos", "When does the harbour open?"};
  EXPECT_THAT(weft(question).out, Not(HasSubstr("drafts: ")));
  Arguments drafting = question;
  drafting.insert(drafting.end(), {"--draft", "ngram"});
  EXPECT_THAT(weft(drafting).out, HasSubstr("\ndrafts: "));

  const std::string chat = path("chat.gguf");
  ASSERT_TRUE(
      gguf::write_random_model(
          posix_env(), chat,
          {.vocab = 300, .chat_template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"})
          .is_ok());
  const Arguments talk{"chat", "-m", chat, "-n", "12", "--ignore-eos"};
  EXPECT_THAT(weft(talk, "Hello\n/stats\n").err, Not(HasSubstr("drafts ")));
  Arguments drafts = talk;
  drafts.insert(drafts.end(), {"--draft", "ngram"});
  EXPECT_THAT(weft(drafts, "Hello\n/stats\n").err, HasSubstr("\ndrafts   "));
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
  const auto is_wrong = [](const Json& row) { return row["wrong_accepted"] == 0; };
  const auto n_wrong = std::ranges::count_if(json["results"], is_wrong);
  EXPECT_EQ(json["all_wrong"]["answers"], n_wrong);
  EXPECT_EQ(json["all_wrong"]["speedup"].is_null(), n_wrong == 0);
  EXPECT_EQ(json["unfinished"], false);
  EXPECT_EQ(json["left_out"],
            Json({{"short_answers", 0}, {"long_questions", 0}, {"not_asked", 0}}));
  Arguments short_answers{"-f", path("questions.json"), "-n", "4", "--repeat", "1"};
  const Outcome text = run({"eval", "speculation"}, short_answers);
  short_answers.push_back("--json");
  EXPECT_GT(run({"eval", "speculation"}, short_answers).json()["all_wrong"]["speedup"], 0);
  EXPECT_THAT(text.out, HasSubstr("times as fast"));
  EXPECT_THAT(text.out, HasSubstr("every draft wrong"));  // four tokens repeat nothing
  EXPECT_THAT(text.out, Not(HasSubstr("left out")));
  expect_error(run({"eval", "speculation"}, {}), 2, "--file is missing");
  const Arguments file{"-f", path("questions.json"), "--draft", "none"};
  expect_error(run({"eval", "speculation"}, file), 2, "nothing is drafted: give --draft");
  expect_error(run({"eval", "speculation"}, {"-f", path("questions.json"), "-c", "64"}), 1,
               "no question fits the context of 64");
}

TEST_F(SpeculationProgram, EvalSaysWhatItLeavesOut) {
  const auto question = [](int n) {
    return Json{{"question", "What does it say?"},
                {"answers", {"this"}},
                {"ctxs", {{{"title", "A"}, {"text", filler(n)}}}}};
  };
  write_text(path("lengths.json"), Json{question(3), question(60)}.dump());
  const auto eval = [&](const Arguments& more) {
    Arguments flags{"-f", path("lengths.json"), "--repeat", "1"};
    flags.insert(flags.end(), more.begin(), more.end());
    return run({"eval", "speculation"}, flags);
  };
  const Outcome text = eval({"-n", "8", "-c", "512"});
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("left out: 1 question of up to "));
  EXPECT_THAT(text.out, HasSubstr("in a context of 512; -c "));
  const Json json = eval({"-n", "8", "-c", "512", "--json"}).json();
  EXPECT_EQ(json["results"].size(), 1u);
  EXPECT_EQ(json["left_out"]["long_questions"], 1);
  // The first token is the prompt's: there is no step.
  expect_error(eval({"-n", "1"}), 1, "2 of 2 answers have less than two tokens");
  const Json by_model = eval({"-n", "8", "--draft", path("draft.gguf"), "--json"}).json();
  EXPECT_EQ(by_model["all_wrong"]["answers"], 0);
  EXPECT_TRUE(by_model["results"][0]["wrong_speedup"].is_null());
  EXPECT_THAT(eval({"-n", "8", "--draft", path("draft.gguf")}).out,
              Not(HasSubstr("every draft wrong")));
}

// Over a part of the pages the model guesses for itself; what checks it decides whose answer it is.
TEST_F(SpeculationProgram, TheModelDraftsForItself) {
  const std::string prompt = filler(12);
  const auto answer = [&](const Arguments& more) {
    Arguments flags{"--raw", "-n", "24", "--ignore-eos", "--json"};
    flags.insert(flags.end(), more.begin(), more.end());
    flags.insert(flags.end(), {"-p", prompt});
    const Outcome outcome = run({"generate"}, flags);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.json();
  };
  const Json dense = answer({}), sparse = answer({"--budget", "48", "--lock-interval", "4"});
  const Json verified = answer({"--budget", "48", "--lock-interval", "4", "--draft", "self"});
  EXPECT_EQ(verified["text"], dense["text"]);
  EXPECT_EQ(verified["speculation"]["draft"], "self");
  EXPECT_EQ(verified["speculation"]["verify"], "dense");
  EXPECT_GT(verified["sparse"]["dense_reads"]["dense_passes"], 0);
  const Json learned = answer(
      {"--budget", "48", "--lock-interval", "4", "--draft", "self", "--checkpoint", "dense"});
  EXPECT_EQ(learned["text"], dense["text"]);
  EXPECT_GT(learned["sparse"]["locks"]["dense_passes"], 0);
  EXPECT_EQ(learned["sparse"]["locks"]["rewritten_tokens"], 0);
  EXPECT_EQ(learned["sparse"]["locks"]["drift"], 0);
  const Json locked =
      answer({"--budget", "48", "--lock-interval", "4", "--draft", "self", "--verify", "locked"});
  EXPECT_EQ(locked["text"], sparse["text"]);
  EXPECT_EQ(locked["speculation"]["verify"], "locked");
  EXPECT_EQ(locked["sparse"]["locks"]["inconsistencies"], 0);

  const Json rewritten =
      answer({"--budget", "48", "--lock-interval", "4", "--checkpoint", "dense"});
  const Json& locks = rewritten["sparse"]["locks"];
  EXPECT_EQ(locks["checkpoint"], "dense");
  EXPECT_GT(locks["dense_passes"], 2);
  EXPECT_GT(locks["rewritten_tokens"], 6);
  EXPECT_TRUE(locks["drift"].is_number());

  const Arguments no_budget{"-p", prompt, "--draft", "self"};
  expect_error(run({"generate"}, no_budget), 2, "--draft self guesses over a part of the pages");
  const Arguments no_self{"-p", prompt, "--verify", "locked", "--draft", "ngram"};
  expect_error(run({"generate"}, no_self), 2, "--verify goes with --draft self");
  const Arguments no_lock{"-p", prompt, "--budget", "48", "--checkpoint", "dense"};
  expect_error(run({"generate"}, no_lock), 2, "--checkpoint goes with --lock-interval");
  const Arguments far{"-p", prompt,         "--budget", "48", "--lock-interval",
                      "65", "--checkpoint", "dense"};
  expect_error(run({"generate"}, far), 2, "64 at most");
}

TEST_F(SpeculationProgram, EvalComparesOneSelectionWithTwo) {
  Json examples = Json::array();
  for (int i = 0; i < 2; ++i) {
    examples.push_back({{"question", "What does it say?"},
                        {"answers", {"this"}},
                        {"ctxs", {{{"title", "A"}, {"text", filler(8)}}}}});
  }
  write_text(path("questions.json"), examples.dump());
  const Arguments flags{"-f",
                        path("questions.json"),
                        "-n",
                        "16",
                        "--repeat",
                        "1",
                        "--draft",
                        "self",
                        "--budget",
                        "48",
                        "--lock-interval",
                        "4",
                        "--verify",
                        "locked",
                        "--json"};
  const Outcome outcome = run({"eval", "speculation"}, flags);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json json = outcome.json();
  EXPECT_EQ(json["other_answers"], 0);
  const Json& selections = json["selections"];
  EXPECT_GT(selections["shared_acceptance"], 0.5);
  EXPECT_GE(selections["shared_acceptance"], selections["separate_acceptance"]);
  EXPECT_GT(selections["separate_inconsistent"], 0);
}

}  // namespace
}  // namespace weft
