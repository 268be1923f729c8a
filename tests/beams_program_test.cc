// weft generate --beams as its users meet it: output, limits, what it is not taken together with.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/beam_generation.h"
#include "support/kv_limit.h"
#include "support/weft_program.h"

namespace weft {
namespace {

using test::Outcome;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

constexpr double kTolerance = 3e-6;  // beams_test.cc says why

class BeamsProgram : public test::WeftProgram {
 protected:
  static Outcome generate(const Arguments& more, const std::string& file = model()) {
    Arguments arguments{"generate", "-m", file, "--compute", "f32", "-t", "2", "--raw"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return weft(arguments);
  }
  static Json choices_of(const Outcome& run) {
    EXPECT_EQ(run.status, 0) << run.err;
    return run.json()["choices"];
  }
};

TEST_F(BeamsProgram, JsonHasAllChoicesTheBestFirstAndTextIsTheBest) {
  const Arguments flags{"--beams", "4", "-n", "12", "--ignore-eos", "The harbour"};
  Arguments with_json = flags;
  with_json.push_back("--json");
  const Outcome run = generate(with_json);
  EXPECT_EQ(run.err, "");
  const Json json = run.json();
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("choices"));
  const Json choices = choices_of(run);
  ASSERT_THAT(choices, SizeIs(4));
  for (const Json& choice : choices) {
    names.clear();
    for (const auto& [name, value] : choice.items()) names.push_back(name);
    EXPECT_THAT(names, ::testing::UnorderedElementsAre("text", "tokens", "score", "stop_reason"));
    EXPECT_THAT(choice["tokens"], SizeIs(12));
    EXPECT_LT(choice["score"], 0.0);
    EXPECT_EQ(choice["stop_reason"], "length");
    EXPECT_EQ(
        std::ranges::count(choices, choice["tokens"], [](const Json& c) { return c["tokens"]; }),
        1);
  }
  for (size_t i = 1; i < 4; ++i) EXPECT_GE(choices[i - 1]["score"], choices[i]["score"]);

  const Outcome text = generate(flags);
  EXPECT_EQ(text.status, 0);
  EXPECT_EQ(text.err, "weft: 12 tokens: the limit (-n); -n -1 goes on to the end\n");
  Arguments quiet = flags;
  quiet.push_back("-q");
  EXPECT_EQ(generate(quiet).err, "");
  EXPECT_EQ(generate(quiet).out, text.out);
  // Bytes that are no UTF-8 are as they are in text, and U+FFFD in JSON.
  EXPECT_EQ(Json(text.out).dump(-1, ' ', false, Json::error_handler_t::replace),
            Json(choices[0]["text"].get<std::string>() + "\n").dump());
}

TEST_F(BeamsProgram, AreThoseOfTransformers) {
  const std::string stories = test::shared_file("models/stories260K/stories260Ktok512.gguf");
  WEFT_SKIP_UNLESS(!stories.empty(), "stories260K");
  const Json reference = Json::parse(
      test::read_text(std::string(WEFT_SOURCE_DIR) + "/tests/golden/stories260k_beams.json"));
  size_t n_seen = 0;
  for (const Json& expected : reference["cases"]) {
    const bool stops = expected["name"] == "full stop";
    if (!stops && expected["name"] != "length") continue;
    SCOPED_TRACE(expected["name"].get<std::string>() + ", " + expected["text"].get<std::string>());
    Arguments flags{"--beams",
                    expected["n_beams"].dump(),
                    "-n",
                    expected["max_tokens"].dump(),
                    "-ctk",
                    "f32",
                    "-ctv",
                    "f32",
                    "--json",
                    "-p",
                    expected["text"]};
    if (stops) flags.insert(flags.end(), {"--stop", "."});
    const Json choices = choices_of(generate(flags, stories));
    ASSERT_EQ(choices.size(), expected["choices"].size());
    for (size_t i = 0; i < choices.size(); ++i) {
      auto tokens = expected["choices"][i]["tokens"].get<std::vector<int32_t>>();
      if (stops) tokens.pop_back();
      EXPECT_EQ(choices[i]["tokens"], tokens);
      EXPECT_EQ(choices[i]["stop_reason"], stops ? "stop" : "length");
      EXPECT_NEAR(choices[i]["score"], expected["choices"][i]["score"].get<double>(), kTolerance);
    }
    ++n_seen;
  }
  EXPECT_EQ(n_seen, 18u);
}

TEST_F(BeamsProgram, OfOneBeamAreGreedy) {
  for (const std::string n : {"1", "30", "-1"}) {
    const Arguments flags{"-n", n, "-c", "128", "--json", "The orchard has"};
    Arguments one = flags;
    one.insert(one.end(), {"--beams", "1"});
    const Json greedy = generate(flags).json();
    const Json choices = choices_of(generate(one));
    ASSERT_THAT(choices, SizeIs(1));
    for (const char* field : {"text", "tokens", "stop_reason"}) {
      EXPECT_EQ(choices[0][field], greedy[field]);
    }
  }
}

TEST_F(BeamsProgram, OfOneBeamEndAtAContextThatALimitMakesSmaller) {
  const std::string limit =
      test::kv_limit_flag(folder_->path(), model(), 5, {}, {.n_threads = 2, .compute = "f32"});
  const Arguments flags{"-n", "-1", "--kv-limit", limit, "--ignore-eos", "--json", "The orchard"};
  Arguments one = flags;
  one.insert(one.end(), {"--beams", "1"});
  const Json greedy = generate(flags).json();
  EXPECT_EQ(greedy["stop_reason"], "context");
  const Json choices = choices_of(generate(one));
  EXPECT_EQ(choices[0]["tokens"], greedy["tokens"]);
  EXPECT_EQ(choices[0]["stop_reason"], "context");
  // Several have no room for answers as long as the model's context.
  one.back() = "2";
  expect_error(generate(one), 1, "2 beams of up to ");
}

TEST_F(BeamsProgram, WhatSamplesOrKeepsOneTextIsRefusedByName) {
  const std::vector<Arguments> others = {{"--temp", "0.5"},
                                         {"--top-k", "3"},
                                         {"--top-p", "0.5"},
                                         {"--min-p", "0.1"},
                                         {"--repeat-penalty", "1.1"},
                                         {"--repeat-last-n", "8"},
                                         {"--presence-penalty", "1"},
                                         {"--frequency-penalty", "1"},
                                         {"--seed", "4"},
                                         {"--logprobs", "2"},
                                         {"--context-shift"},
                                         {"--context-shift", "--keep", "4"},
                                         {"--context-sinks", "4"},
                                         {"--parallel", "2"},
                                         {"--session", path("s")},
                                         {"--batch", path("b")}};
  for (const Arguments& other : others) {
    Arguments flags{"--beams", "2"};
    flags.insert(flags.end(), other.begin(), other.end());
    if (other[0] != "--batch") flags.push_back("x");
    const Outcome run = generate(flags);
    expect_error(run, 2, "do not go together: give one");
    EXPECT_THAT(run.err, AllOf(HasSubstr("--beams"),
                               HasSubstr(other.back()[0] == '-' ? other.back() : other[0])));
  }
}

TEST_F(BeamsProgram, ANumberThatNoSearchHasIsOneLine) {
  for (const std::string n : {"0", "-1", "33", "1.5", "many"}) {
    expect_error(generate({"--beams", n, "x"}), 2,
                 "--beams " + n + ": must be a whole number from 1 to 32");
  }
  expect_error(generate({"--num-beams", "4", "x"}), 2, "weft generate's is --beams");
}

TEST_F(BeamsProgram, TheContextEndsThemAndALongPromptIsRefused) {
  const Arguments flags{"--beams", "3", "-n", "-1", "-c", "64", "--ignore-eos", "The library"};
  const Outcome text = generate(flags);
  EXPECT_EQ(text.status, 0);
  EXPECT_EQ(text.err, "weft: the context of 64 tokens is full: the text ends here (-c)\n");
  Arguments with_json = flags;
  with_json.push_back("--json");
  const Json choices = choices_of(generate(with_json));
  ASSERT_THAT(choices, SizeIs(3));
  for (const Json& choice : choices) {
    EXPECT_EQ(choice["stop_reason"], "context");
    EXPECT_EQ(choice["tokens"].size(), choices[0]["tokens"].size());
  }
  expect_error(generate({"--beams", "3", "-c", "64", filler(20)}), 1,
               "does not fit the context of 64 tokens");
}

TEST_F(BeamsProgram, ALimitThatCannotHoldAllAnswersNamesTheOneThatCan) {
  const auto limit = [](int64_t n_pages) {
    return test::kv_limit_flag(folder_->path(), model(), n_pages, {.n_sequences = 8},
                               {.n_threads = 2, .compute = "f32"});
  };
  const Arguments flags{"--beams", "8", "-n", "50", "--ignore-eos", "--json", "The harbour"};
  const auto with_limit = [&](const std::string& size) {
    Arguments arguments = flags;
    arguments.insert(arguments.end(), {"--kv-limit", size});
    return generate(arguments);
  };
  const Outcome refused = with_limit(limit(12));
  expect_error(refused, 1, "8 beams of up to 50 tokens after a prompt of ");
  const std::string named = test::named_limit(refused.err, "--kv-limit (\\S+) holds them");
  EXPECT_EQ(choices_of(with_limit(named)), choices_of(generate(flags)));
}

TEST_F(BeamsProgram, TypesOfTheCacheAndTurnsGoWithIt) {
  // Heads of 16 elements, which the types in blocks do not take: one line, as without beams.
  for (const std::string type : {"f16", "bf16", "f32"}) {
    const Json choices = choices_of(
        generate({"--beams", "2", "-n", "6", "-ctk", type, "-ctv", type, "--json", "The harbour"}));
    EXPECT_THAT(choices, SizeIs(2));
  }
  expect_error(generate({"--beams", "2", "-ctk", "q8_0", "x"}), 1, "q8_0");
  // Without --raw the prompt is a turn, which this model has no template for.
  expect_error(weft({"generate", "-m", model(), "--beams", "2", "Hello"}), 1, "no chat template");
}

TEST_F(BeamsProgram, VerboseSaysThatPagesAreShared) {
  const Outcome run = generate({"--beams", "6", "-n", "20", "-v", "--ignore-eos", filler(8)});
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.err, AllOf(HasSubstr(" shared by several"), Not(HasSubstr(" 0 shared")),
                             HasSubstr("answer: 20 tokens in ")));
}

}  // namespace
}  // namespace weft
