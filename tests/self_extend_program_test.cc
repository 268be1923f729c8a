// --grp-attn-n and --grp-attn-w as users meet them: texts longer than the model, what they do not
// go together with, numbers that no group has.
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
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

class SelfExtendProgram : public test::WeftProgram {
 protected:
  static constexpr int kModelTokens = 128;

  void SetUp() override {
    WeftProgram::SetUp();
    ASSERT_TRUE(gguf::write_random_model(
                    posix_env(), small(),
                    {.n_layers = 2, .n_embd = 64, .vocab = 600, .context_length = kModelTokens})
                    .is_ok());
  }
  static std::string small() { return path("small.gguf"); }

  static Outcome run(const std::string& command, const Arguments& more,
                     const std::string& input = "") {
    Arguments arguments{command, "-m", small(), "--compute", "f32", "-t", "2"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return weft(arguments, input);
  }
  static Outcome generate(Arguments more) {
    more.insert(more.end(), {"--raw", "--ignore-eos"});
    return run("generate", more);
  }
};

TEST_F(SelfExtendProgram, AContextIsAsManyTimesTheModels) {
  expect_error(generate({"-c", "129", "x"}), 2, "-c 129: the model's context is 1 to 128 tokens");
  const Outcome text =
      generate({"-gan", "4", "-gaw", "16", "-n", "300", "--json", "The harbour opens"});
  EXPECT_EQ(text.err, "");
  EXPECT_EQ(text.json()["tokens"].size(), 300u);
  // The longer names, and a context that positions do not fill: the same.
  const Outcome again = generate({"--grp-attn-n", "4", "--grp-attn-w", "16", "-c", "400", "-n",
                                  "300", "--json", "The harbour opens"});
  EXPECT_EQ(again.json()["tokens"], text.json()["tokens"]);
  // As long as it may be, past the model's positions.
  const Outcome full =
      generate({"-gan", "4", "-gaw", "16", "-c", "512", "-n", "-1", "--json", "The harbour opens"});
  EXPECT_EQ(full.json()["stop_reason"], "context");
  EXPECT_THAT(full.err, HasSubstr("weft: warning: -c 512: positions reach "));
  EXPECT_THAT(full.err, HasSubstr("the model was trained for 128 tokens: a larger --grp-attn-n "));
  expect_error(generate({"-gan", "4", "-gaw", "16", "-c", "513", "x"}), 2,
               "-c 513: the model's context is 1 to 512 tokens with --grp-attn-n 4");
}

TEST_F(SelfExtendProgram, WithinTheNeighboursNothingDiffers) {
  const Arguments prompt{"-n", "40", "--json", "--logprobs", "2", "The harbour opens"};
  const Json plain = generate(prompt).json();
  for (const Arguments& flags : {Arguments{"-gan", "1"}, Arguments{"-gan", "4", "-gaw", "64"}}) {
    Arguments all = flags;
    all.insert(all.end(), prompt.begin(), prompt.end());
    const Json extended = generate(all).json();
    EXPECT_EQ(extended["tokens"], plain["tokens"]);
    EXPECT_EQ(extended["logprobs"], plain["logprobs"]);
  }
}

TEST_F(SelfExtendProgram, AKvLimitHoldsWhatItHolds) {
  const std::string limit = test::kv_limit_flag(
      folder_->path(), small(), 12, {}, {.n_threads = 2, .self_extend = {4, 16}, .compute = "f32"});
  const Outcome run = generate(
      {"-gan", "4", "-gaw", "16", "--kv-limit", limit, "-n", "-1", "--json", "The harbour opens"});
  EXPECT_EQ(run.status, 0) << run.err;
  const Json json = run.json();
  EXPECT_EQ(json["stop_reason"], "context");
  EXPECT_GT(json["tokens"].size(), size_t{kModelTokens});
  EXPECT_LT(json["tokens"].size(), 12u * 16);
}

TEST_F(SelfExtendProgram, WhatItDoesNotGoWithIsRefusedByName) {
  const auto refused = [](const Outcome& run, const std::string& other) {
    expect_error(run, 2, "do not go together");
    EXPECT_THAT(run.err, HasSubstr("--grp-attn-n"));
    EXPECT_THAT(run.err, HasSubstr(other));
  };
  refused(generate({"-gan", "4", "--session", path("s"), "x"}), "--session");
  refused(generate({"-gan", "4", "--parallel", "2", "x"}), "--parallel");
  refused(run("generate", {"-gan", "4", "--batch", path("b")}), "--batch");
  refused(run("chat", {"-gan", "4", "--session", path("s")}), "--session");
  refused(run("ask", {"-gan", "4", "--store", store(), "--parallel", "2"}), "--parallel");
  expect_error(run("perplexity", {"-f", path("t"), "-gan", "4", "-gaw", "16", "--grp-attn-only"}),
               2, "--grp-attn-w and --grp-attn-only do not go together");
}

TEST_F(SelfExtendProgram, NumbersThatNoGroupHasAreOneLine) {
  for (const std::string n : {"0", "-1", "257", "many", "2.5"}) {
    expect_error(generate({"-gan", n, "x"}), 2,
                 "--grp-attn-n " + n + ": must be a whole number from 1 to 256");
  }
  for (const std::string w : {"0", "-4"}) {
    expect_error(generate({"-gan", "4", "-gaw", w, "x"}), 2, "--grp-attn-w " + w + ": must be");
  }
  expect_error(generate({"-gan", "4", "-gaw", "18", "x"}), 2,
               "--grp-attn-w 18: must be a multiple of --grp-attn-n 4, as 16");
  expect_error(generate({"-gaw", "16", "x"}), 2, "--grp-attn-w goes with a --grp-attn-n above 1");
  expect_error(run("perplexity", {"-f", path("t"), "--grp-attn-only"}), 1, path("t"));
}

TEST_F(SelfExtendProgram, PerplexityComparesBeyondTheContext) {
  test::write_text(path("text"), filler(400));
  const auto perplexity = [](Arguments more) {
    more.insert(more.end(), {"-f", path("text"), "-c", "256", "--limit", "512", "--json"});
    return run("perplexity", more);
  };
  expect_error(perplexity({}), 2, "-c 256: the model's context is 1 to 128 tokens");
  const Outcome beyond = perplexity({"--beyond-context"});
  EXPECT_THAT(beyond.err, HasSubstr("positions reach 255, the model was trained for 128 tokens: "
                                    "--grp-attn-n would keep within them"));
  const Outcome extended = perplexity({"-gan", "4", "-gaw", "32"});
  EXPECT_EQ(extended.err, "");
  const Outcome only = perplexity({"-gan", "4", "--grp-attn-only"});
  for (const Outcome* one : {&beyond, &extended, &only}) {
    EXPECT_EQ(one->status, 0) << one->err;
    EXPECT_EQ(one->json()["tokens"], 254);  // of two windows the second halves
  }
  EXPECT_NE(beyond.json()["perplexity"], extended.json()["perplexity"]);
  EXPECT_NE(only.json()["perplexity"], extended.json()["perplexity"]);
}

TEST_F(SelfExtendProgram, QuestionsOverDocumentsMayBeLongerThanTheModel) {
  const Outcome made = run("ingest", {"--store", store(), docs()});
  ASSERT_EQ(made.status, 0) << made.err;
  const Arguments question{"--store", store(), "--chunks", "8",      "--min-score",
                           "0",       "-n",    "8",        "--json", "item shelf library"};
  Arguments extended = question;
  extended.insert(extended.end(), {"-gan", "16", "-gaw", "32"});
  for (const std::string mode : {"none", "full", "blend", "prefix"}) {
    Arguments all = extended;
    all.insert(all.end(), {"--reuse", mode});
    const Outcome run_of_mode = run("ask", all);
    ASSERT_EQ(run_of_mode.status, 0) << run_of_mode.err;
    EXPECT_GT(run_of_mode.json()["prompt_tokens"], 2 * kModelTokens) << mode;
  }
  const Outcome chat = run("chat",
                           {"--store", store(), "-gan", "16", "-gaw", "32", "-n", "8", "--chunks",
                            "8", "--min-score", "0"},
                           "item shelf library\nitem orchard\n");
  EXPECT_EQ(chat.status, 0) << chat.err;
}

}  // namespace
}  // namespace weft
