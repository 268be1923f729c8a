// Sparse decoding as its users meet it: flags, what they refuse, what JSON says, sessions, stores
// and batches, and weft eval sparse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gguf/random_model.h"
#include "support/weft_program.h"

namespace weft {
namespace {

using test::Outcome;
using test::write_text;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

class SparseProgram : public test::WeftProgram {
 protected:
  static void SetUpTestSuite() {
    WeftProgram::SetUpTestSuite();
    // Attention as peaked as this makes answers that differ from prompt to prompt.
    ASSERT_TRUE(gguf::write_random_model(posix_env(), path("model.gguf"),
                                         {.n_layers = 4,
                                          .head_dim = 32,
                                          .vocab = 300,
                                          .logit_spread = 3.0f,
                                          .score_spread = 4.0f})
                    .is_ok());
    write_text(path("book.txt"), filler(60));
  }
  static Outcome run(Arguments first, const Arguments& more) {
    const Arguments usual{"-m", model(), "--compute", "f32"};
    first.insert(first.end(), usual.begin(), usual.end());
    first.insert(first.end(), more.begin(), more.end());
    return weft(first);
  }
  /// Of a prompt of some 1,300 tokens.
  static Outcome generate(const Arguments& more) {
    Arguments first{"generate", "--raw", "-f", path("book.txt"), "-n", "24"};
    return run(first, more);
  }
};

TEST_F(SparseProgram, ABudgetThatCoversTheTextIsPlain) {
  const std::string plain = generate({}).out;
  EXPECT_EQ(generate({"--sparse", "dense"}).out, plain);
  EXPECT_EQ(generate({"--sparse", "quest", "--budget", "2048"}).out, plain);
  EXPECT_EQ(generate({"--sparse", "quest", "--sparse-ratio", "1"}).out, plain);
  EXPECT_NE(generate({"--sparse", "streaming", "--budget", "32"}).out, plain);
}

TEST_F(SparseProgram, JsonSaysWhatWasReadAndWhyNot) {
  EXPECT_FALSE(generate({"--json"}).json().contains("sparse"));
  // Without a policy the usual one.
  for (const Arguments& asked : {Arguments{"--sparse", "quest", "--budget", "128"},
                                 {"--sparse", "quest", "--sparse-ratio", "0.1"},
                                 {"--sparse", "quest", "--retain", "0.5"},
                                 {"--sparse", "double-sparsity", "--budget", "128"},
                                 {"--sparse", "labels-sample", "--budget", "128"},
                                 {"--retain", "0.5"},
                                 {"--budget", "128"}}) {
    Arguments flags{"--json"};
    flags.insert(flags.end(), asked.begin(), asked.end());
    const Outcome outcome = generate(flags);
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const Json sparse = outcome.json()["sparse"];
    EXPECT_EQ(sparse["policy"], asked[0] == "--sparse" ? asked[1] : "labels");
    // Of four layers two are dense; the last token of an answer is not run.
    EXPECT_EQ(sparse["reads"], 4 * 23);
    EXPECT_EQ(sparse["dense_reads"]["dense_layers"], 2 * 23);
    EXPECT_EQ(sparse["dense_reads"]["within_budget"], 0);
    EXPECT_LT(sparse["pages_read"], sparse["pages"]);
    EXPECT_GT(sparse["kv_bytes_saved"], 0);
    EXPECT_GT(sparse["index_bytes_read"], 0);
    EXPECT_GT(sparse["mass_kept"], 0);
    EXPECT_LE(sparse["mass_kept"], 1);
    EXPECT_GT(sparse["measured_reads"], 0);
  }
  const Json all = generate({"--json", "--sparse", "gsa", "--budget", "4096"}).json()["sparse"];
  EXPECT_EQ(all["kv_bytes_saved"], 0);
  EXPECT_EQ(all["dense_reads"]["within_budget"], 2 * 23);
  EXPECT_TRUE(all["mass_kept"].is_null());
}

TEST_F(SparseProgram, DigestsOfEitherType) {
  const auto bytes_of = [&](const char* type) {
    const Outcome outcome =
        generate({"--sparse", "quest", "--budget", "128", "--digest-type", type, "--json"});
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.json()["sparse"]["index_bytes_read"].get<int64_t>();
  };
  // Two numbers of each of 32 dimensions, and of bytes their step.
  EXPECT_EQ(bytes_of("f16") * (4 + 2 * 32), bytes_of("int8") * (2 * 2 * 32));
  expect_error(generate({"--digest-type", "f16"}), 2, "--digest-type goes with --budget");
  expect_error(generate({"--budget", "64", "--digest-type", "f16"}), 2,
               "--digest-type f16: of quest, cuboid and gsa, not of labels");
  expect_error(generate({"--sparse", "labels-sample", "--budget", "64", "--lock-interval", "8"}), 2,
               "labels-sample: what a page stands for");
}

// All modes, full prefill's too, decode so.
TEST_F(SparseProgram, ReuseModesAreComparedUnderIt) {
  const Json example = {
      {"question", "What does the library lend?"},
      {"answers", {"books"}},
      {"ctxs",
       {{{"title", "one"}, {"text", filler(20)}}, {{"title", "two"}, {"text", filler(20)}}}}};
  write_text(path("examples.json"), Json::array({example}).dump());
  const auto eval = [&](const Arguments& more) {
    Arguments all{"--json", "--modes", "none,full"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = run({"eval", "-f", path("examples.json")}, all);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.json();
  };
  const Json plain = eval({}), whole = eval({"--budget", "4096"}),
             sparse = eval({"--budget", "64"});
  EXPECT_FALSE(plain.contains("sparse"));
  EXPECT_EQ(whole["sparse"]["kv_bytes_saved"], 0);
  EXPECT_GT(sparse["sparse"]["kv_bytes_saved"], 0);
  EXPECT_NE(plain["modes"]["full"]["kl"], sparse["modes"]["full"]["kl"]);
  EXPECT_EQ(sparse["modes"]["none"]["kl"], 0);
}

TEST_F(SparseProgram, LocksKeepWhatWasChosen) {
  const Json sparse = generate({"--json", "--budget", "128", "--lock-interval", "4",
                                "--lock-duration", "12", "--update-threshold", "1"})
                          .json()["sparse"];
  const Json locks = sparse["locks"];
  EXPECT_EQ(locks["interval"], 4);
  EXPECT_EQ(locks["duration"], 12);
  EXPECT_EQ(locks["update_threshold"], 1);
  // Of 23 tokens the first and the thirteenth; compared at each fourth of the others.
  EXPECT_EQ(locks["locks"], 2);
  EXPECT_EQ(locks["unlocks"], 1);
  EXPECT_EQ(locks["checkpoints"], 4);
  EXPECT_EQ(locks["locked_reads"], 2 * (23 - 2 - 4));
  EXPECT_GE(locks["update_rate"], 0);
  const Outcome told = generate({"-v", "--budget", "128", "--lock-interval", "4", "--lock-duration",
                                 "12", "--update-threshold", "1"});
  EXPECT_THAT(told.err, AllOf(HasSubstr("sparse so far: labels, "),
                              HasSubstr("locks so far: interval 4, duration 12, threshold 1: 2 "
                                        "made, 1 ended, 4 checkpoints replaced ")));
  const Json whole = generate({"--json", "--budget", "128"}).json()["sparse"];
  EXPECT_FALSE(whole.contains("locks"));
  EXPECT_LT(sparse["index_bytes_read"].get<int64_t>() * 3, whole["index_bytes_read"]);
}

TEST_F(SparseProgram, AFileSaysWhatFlagsSay) {
  write_text(path("kvstar.yaml"),
             "kvstar: {base_method: quest, checkpoint_interval: 4, "
             "lock_duration: 12, update_threshold: 1, sparse_ratio: 0.2}\n");
  const Outcome by_file = generate({"--sparse-config", path("kvstar.yaml"), "--json"});
  ASSERT_EQ(by_file.status, 0) << by_file.err;
  const Outcome by_flags =
      generate({"--sparse", "quest", "--sparse-ratio", "0.2", "--lock-interval", "4",
                "--lock-duration", "12", "--update-threshold", "1", "--json"});
  EXPECT_EQ(by_file.json()["text"], by_flags.json()["text"]);
  for (const char* const key : {"locks", "mass_kept", "top10_recall", "measured_reads"}) {
    EXPECT_EQ(by_file.json()["sparse"][key], by_flags.json()["sparse"][key]) << key;
  }
  EXPECT_GT(by_file.json()["sparse"]["measured_reads"], 0);
  write_text(path("bad.yaml"), "kvstar: {interval: 4}\n");
  expect_error(generate({"--sparse-config", path("bad.yaml")}), 2, "line 1: interval: no such key");
  expect_error(generate({"--sparse-config", path("none.yaml")}), 1, "none.yaml");
  write_text(path("large.yaml"), std::string(5000, '#'));
  EXPECT_NE(generate({"--sparse-config", path("large.yaml")}).status, 0);
  for (const Arguments& beside : {Arguments{"--budget", "64"},
                                  {"--sparse", "quest"},
                                  {"--lock-interval", "3"},
                                  {"--update-threshold", "0"}}) {
    Arguments all{"--sparse-config", path("kvstar.yaml")};
    all.insert(all.end(), beside.begin(), beside.end());
    expect_error(generate(all), 2, "do not go together");
  }
}

TEST_F(SparseProgram, RefusesWhatCannotBe) {
  expect_error(generate({"--lock-interval", "8"}), 2, "--lock-interval goes with --budget");
  expect_error(generate({"--budget", "64", "--lock-duration", "8"}), 2,
               "--lock-duration goes with --lock-interval");
  expect_error(generate({"--budget", "64", "--lock-interval", "0"}), 2, "--lock-interval 0: must");
  expect_error(generate({"--budget", "64", "--lock-interval", "8", "--lock-duration", "4"}), 2,
               "never compared after 8");
  expect_error(generate({"--budget", "64", "--lock-interval", "8", "--lock-duration", "8"}), 2,
               "never compared after 8");
  expect_error(generate({"--sparse", "dense", "--budget", "64", "--lock-interval", "4"}), 2,
               "--lock-interval goes with a --sparse policy that chooses pages, and dense reads");

  expect_error(generate({"--sparse", "quest"}), 2, "--sparse quest needs one of --budget");
  expect_error(generate({"--sparse", "dense", "--budget", "64"}), 2, "--budget goes with a");
  expect_error(generate({"--dense-layers", "1"}), 2, "--dense-layers goes with --budget");
  expect_error(generate({"--sparse", "dense", "--retain", "0.5"}), 2, "--retain goes with");
  expect_error(generate({"--sparse", "quests", "--budget", "64"}), 2, "did you mean quest?");
  expect_error(generate({"--sparse", "quest", "--budget", "0"}), 2, "--budget 0: must be");
  expect_error(generate({"--sparse", "quest", "--budget", "-5"}), 2, "--budget -5: must be");
  expect_error(generate({"--sparse", "quest", "--budget", "31"}), 2, "at least 32 tokens");
  expect_error(generate({"--sparse", "quest", "--budget", "99999999999"}), 2, "must be");
  expect_error(generate({"--sparse", "quest", "--sparse-ratio", "1.5"}), 2, "--sparse-ratio 1.5");
  expect_error(generate({"--sparse", "quest", "--retain", "0"}), 2, "--retain 0: must be");
  expect_error(generate({"--sparse", "h2o", "--retain", "0.9"}), 2, "h2o does not");
  expect_error(generate({"--sparse", "quest", "--budget", "64", "--retain", "0.9"}), 2,
               "do not go together");
  expect_error(generate({"--page-tokens", "24"}), 2, "--page-tokens 24: must be 16, 32");
  EXPECT_EQ(generate({"--sparse", "quest", "--budget", "1000000000"}).status, 0);
  EXPECT_EQ(generate({"--sparse", "quest", "--budget", "64", "--dense-layers", "1000"}).status, 0);
  expect_error(run({"perplexity", "-f", path("book.txt"), "-c", "256", "--endless", "sinks"},
                   {"--sparse", "quest", "--budget", "64"}),
               2, "sparse decoding and --endless");
}

TEST_F(SparseProgram, PagesOfOtherSizesGiveTheSameTextWithoutIt) {
  const std::string plain = generate({}).out;
  for (const char* n : {"32", "64", "128", "256"}) {
    EXPECT_EQ(generate({"--page-tokens", n}).out, plain) << n;
    std::map<std::string, double> kept;
    for (const char* policy : {"streaming", "quest", "labels", "labels-sample", "oracle"}) {
      const Outcome sparse =
          generate({"--page-tokens", n, "--sparse", policy, "--budget", "512", "--json"});
      ASSERT_EQ(sparse.status, 0) << sparse.err;
      const Json counted = sparse.json()["sparse"];
      EXPECT_GT(counted["kv_bytes_saved"], 0) << n << " " << policy;
      kept[policy] = counted["mass_kept"];
    }
    // Exact shares keep what any choice of as many tokens can keep; where a page is the budget's
    // half, runs of it more than whole ones.
    for (const auto& [policy, mass] : kept) EXPECT_LE(mass, kept["oracle"] + 1e-3) << n << policy;
    EXPECT_GT(kept["labels"], kept["quest"]) << n;
  }
}

TEST_F(SparseProgram, GoesWithEveryWayToGenerate) {
  const Arguments sparse{"--sparse", "quest", "--budget", "96"};
  const auto with = [&](Arguments more) {
    more.insert(more.end(), sparse.begin(), sparse.end());
    return generate(more);
  };
  const std::string alone = with({}).out;
  // Of several samples the first has the seed of the only one, greedily all are it.
  const Json samples = with({"--parallel", "3", "--json"}).json()["choices"];
  ASSERT_EQ(samples.size(), 3u);
  for (const Json& one : samples) EXPECT_EQ(one["text"], with({"--json"}).json()["text"]);
  // A session goes on where it stopped.
  const std::string session = path("text.session");
  ASSERT_EQ(with({"--session", session, "-n", "12"}).status, 0);
  Arguments goes_on{"generate", "--raw", "--session", session, "-n", "12"};
  const std::string begin = with({"-n", "12"}).out;
  const Outcome rest = weft(
      [&] {
        Arguments all = goes_on;
        all.insert(all.end(), {"-m", model(), "--compute", "f32"});
        all.insert(all.end(), sparse.begin(), sparse.end());
        return all;
      }(),
      "");
  ASSERT_EQ(rest.status, 0) << rest.err;
  EXPECT_EQ(begin.substr(0, begin.size() - 1) + rest.out, alone);
  // Of a batch each line says what all so far have read.
  write_text(path("batch.jsonl"), Json{{"prompt", filler(60)}, {"raw", true}}.dump() + "\n");
  const Outcome batch = run({"generate", "-n", "24"}, {"--batch", path("batch.jsonl"), "--sparse",
                                                       "quest", "--budget", "96"});
  ASSERT_EQ(batch.status, 0) << batch.err;
  EXPECT_GT(Json::parse(batch.out)["sparse"]["kv_bytes_saved"], 0);
  EXPECT_EQ(Json::parse(batch.out)["sparse"].contains("measured_reads"), true);
  // Beams, another type of K and V, a bounded cache, groups of positions.
  EXPECT_EQ(with({"--beams", "2"}).status, 0);
  EXPECT_EQ(with({"-ctk", "q8_0", "-ctv", "q4_0"}).status, 0);
  EXPECT_EQ(with({"--grp-attn-n", "2", "--grp-attn-w", "256"}).status, 0);
  EXPECT_EQ(with({"--kv-limit", "64MB"}).out, alone);
}

TEST_F(SparseProgram, AnswersOverStoredChunks) {
  ASSERT_EQ(weft({"ingest", "-m", model(), "--compute", "f32", "--store", store(), docs()}).status,
            0);
  const auto ask = [&](Arguments more) {
    Arguments all{"ask", "-m", model(),  "--compute", "f32", "--store",        store(),
                  "-n",  "12", "--json", "--chunks",  "8",   "--answer-anyway"};
    all.insert(all.end(), more.begin(), more.end());
    all.push_back("What does the library lend?");
    return weft(all);
  };
  const Outcome plain = ask({}), whole = ask({"--sparse", "quest", "--budget", "4096"});
  ASSERT_EQ(plain.status, 0) << plain.err;
  ASSERT_EQ(whole.status, 0) << whole.err;
  const Json sparse = ask({"--sparse", "quest", "--budget", "64"}).json();
  EXPECT_TRUE(sparse.contains("sparse")) << sparse.dump();
}

TEST_F(SparseProgram, PerplexityAndPasskeyReadTokenByToken) {
  const auto perplexity = [&](const Arguments& more) {
    Arguments all{"--json", "-c", "256", "--limit", "512"};
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = run({"perplexity", "-f", path("book.txt")}, all);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.json();
  };
  const double dense = perplexity({})["perplexity"];
  const Json whole = perplexity({"--sparse", "quest", "--budget", "256"});
  EXPECT_NEAR(whole["perplexity"].get<double>() / dense, 1, 1e-3);  // prefill's rows and decode's
  EXPECT_EQ(whole["tokens"], 2 * (256 - 129));
  EXPECT_GT(perplexity({"--sparse", "quest", "--budget", "64"})["sparse"]["kv_bytes_saved"], 0);
  const Outcome passkey = run({"eval", "passkey"}, {"--length", "600", "--trials", "2", "--json",
                                                    "--sparse", "quest", "--budget", "128"});
  ASSERT_EQ(passkey.status, 0) << passkey.err;
  EXPECT_GT(passkey.json()["sparse"]["kv_bytes_saved"], 0);
  const auto told = [&](const char* budget) {
    return run({"perplexity", "-f", path("book.txt")},
               {"-c", "256", "--limit", "512", "--sparse", "quest", "--budget", budget})
        .out;
  };
  EXPECT_THAT(told("64"), HasSubstr("\nsparse quest, 64 tokens of each KV head at most: "));
  EXPECT_THAT(told("64"), HasSubstr(" % of K and V read, "));
  EXPECT_THAT(told("256"), HasSubstr("all of K and V read, as no context was longer\n"));
}

TEST_F(SparseProgram, RandomFillIsLabelled) {
  const Outcome outcome =
      run({"bench", "speed"}, {"-p", "0", "-n", "4", "-d", "1000", "--fill", "random", "--repeat",
                               "1", "--json", "--sparse", "quest", "--budget", "128"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json json = outcome.json();
  EXPECT_EQ(json["decode"]["fill"], "random");
  const Json attention = json["decode"]["attention"];
  EXPECT_EQ(attention["dense"]["layers"], 2);
  EXPECT_EQ(attention["selecting"]["layers"], 2);
  EXPECT_GT(attention["selecting"]["select_ms_per_layer"]["median"], 0);
  const Outcome text = run({"bench", "speed"}, {"-p", "0", "-n", "4", "-d", "300", "--repeat", "1",
                                                "--sparse", "gsa", "--sparse-ratio", "0.5"});
  EXPECT_THAT(text.out, HasSubstr("\n--sparse gsa --sparse-ratio 0.5: attention "));
  EXPECT_GT(json["sparse"]["kv_bytes_saved"], 0);
}

class EvalSparse : public SparseProgram {};

TEST_F(EvalSparse, JsonHasARowForEachSetting) {
  const Outcome outcome =
      run({"eval", "sparse"}, {"--policies", "dense,quest,tova", "--budgets", "64,128", "--lengths",
                               "400,600", "--trials", "2", "--dense-layers", "0", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, IsEmpty());
  const Json rows = outcome.json()["results"];
  ASSERT_EQ(rows.size(), 5 * 2u);
  EXPECT_EQ(rows[0]["policy"], "dense");
  EXPECT_TRUE(rows[0]["budget"].is_null());
  EXPECT_EQ(rows[1]["length"], 600);
  EXPECT_EQ(rows[2]["policy"], "quest");
  EXPECT_EQ(rows[2]["budget"], 64);
  for (const Json& row : rows) {
    EXPECT_EQ(row["task"], "passkey");
    EXPECT_TRUE(row["depth"].is_null());
    EXPECT_TRUE(row["perplexity"].is_null());
    EXPECT_TRUE(row["kl"].is_null());
    EXPECT_GE(row["accuracy"], 0);
    EXPECT_EQ(row["mass_kept"].is_null(), row["policy"] == "dense");
  }
}

TEST_F(EvalSparse, WritesAPageThatNeedsNoOther) {
  const std::string page = path("report.html");
  const Outcome outcome =
      run({"eval", "sparse"}, {"--policies", "dense,quest", "--budgets", "64", "--lengths", "400",
                               "--trials", "2", "-ctv", "q8_0", "--html", page});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::string html = test::read_text(page);
  EXPECT_THAT(html, AllOf(HasSubstr("<!DOCTYPE html>"), HasSubstr("quest"), HasSubstr("<svg")));
  EXPECT_THAT(html, HasSubstr(" -ctv q8_0"));
  EXPECT_EQ(html.find(" -ctk "), std::string::npos);
  EXPECT_EQ(html.find("src=\"http"), std::string::npos);
  expect_error(run({"eval", "sparse"}, {"--lengths", "400", "--html", model()}), 2, "model.gguf");
}

TEST_F(EvalSparse, WeightsBesideEachOther) {
  const std::string other = path("other.gguf"), page = path("beside.html");
  ASSERT_EQ(weft({"quantize", model(), other, "Q8_0"}).status, 0);
  const Arguments flags{"--beside",       other,        "--task",       "perplexity", "-f",
                        path("book.txt"), "--policies", "dense,cuboid", "--budgets",  "64,96",
                        "--lengths",      "400,500",    "--trials",     "1"};
  Arguments with = flags;
  with.insert(with.end(), {"--json", "--html", page});
  const Outcome outcome = run({"eval", "sparse"}, with);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json rows = outcome.json()["results"];
  ASSERT_EQ(rows.size(), 2 * 2 * 3u);
  EXPECT_EQ(rows[0]["weights"], "model");
  EXPECT_EQ(rows[6]["weights"], "other");
  EXPECT_EQ(rows[0]["length"], rows[6]["length"]);
  EXPECT_NE(rows[0]["perplexity"], rows[6]["perplexity"]);
  for (const Json& row : rows) {
    EXPECT_GT(row["ms_per_token"]["attend"], 0);
    EXPECT_EQ(row["ms_per_token"]["score"].is_null(), row["policy"] == "dense");
  }
  EXPECT_THAT(test::read_text(page), HasSubstr("<h2 id=\"grid\">Length, budget and weights</h2>"));
  EXPECT_THAT(run({"eval", "sparse"}, flags).out, HasSubstr("\nother\n"));
  expect_error(run({"eval", "sparse"}, {"--beside", path("none.gguf")}), 1, "none.gguf");
  gguf::RandomModelOptions deeper;
  deeper.n_layers = 5;
  ASSERT_TRUE(gguf::write_random_model(posix_env(), path("deeper.gguf"), deeper).is_ok());
  expect_error(run({"eval", "sparse"}, {"--beside", path("deeper.gguf")}), 2, "is another model");
}

TEST_F(EvalSparse, AReportTakesNoFileOfWeightsPlace) {
  const std::string models = path("models"), other = models + "/other.gguf";
  std::filesystem::create_directory(models);
  std::filesystem::copy_file(model(), other);
  const std::string before = test::read_text(other);
  const auto run_named = [&](const std::string& name) {
    Arguments arguments{"eval",      "sparse", "-m",         model(), "--beside",
                        name,        "--task", "perplexity", "-f",    path("book.txt"),
                        "--lengths", "400",    "--policies", "dense", "--trials",
                        "1",         "--html", other};
    return finish(
        start(std::move(arguments), "", "", [&] { setenv("WEFT_MODELS", models.c_str(), 1); }));
  };
  expect_error(run_named("other"), 2, "other.gguf");
  expect_error(run_named(other), 2, "other.gguf");
  EXPECT_TRUE(test::read_text(other) == before);
}

TEST_F(EvalSparse, TheReportsCommandIsOneThatAShellTakes) {
  const std::string text = path("it's $(here).txt"), page = path("quoted.html");
  write_text(text, filler(60));
  ASSERT_EQ(run({"eval", "sparse"}, {"--task", "perplexity", "-f", text, "--policies", "dense",
                                     "--lengths", "400", "--trials", "1", "--html", page})
                .status,
            0);
  EXPECT_THAT(test::read_text(page), HasSubstr("/it&#39;\\&#39;&#39;s $(here).txt&#39;"));
}

// They get longer answers than questions, for which the context needs room: with the least length
// that the prompt fits into, none is left of it.
TEST_F(EvalSparse, DialoguesAmongQuestionsFit) {
  write_text(path("talk.json"), R"([{"dialogue":"A: When?\nB: At noon.","summary":"Noon."}])");
  Outcome outcome;
  for (int length = 64; length <= 640; length += 16) {
    outcome =
        run({"eval", "sparse"}, {"--task", "qa", "-f", path("talk.json"), "--policies", "dense",
                                 "--lengths", std::to_string(length), "--trials", "1", "--json"});
    if (outcome.status == 0) break;
    ASSERT_THAT(outcome.err, HasSubstr("tokens or fewer (--lengths)"));
  }
  EXPECT_EQ(outcome.json()["results"][0]["trials"], 1);
  EXPECT_EQ(outcome.json()["unfinished"], false);
}

TEST_F(SparseProgram, WhatLabelsGoByIsNotWrittenThroughALink) {
  const Arguments labels{"--sparse", "labels", "--budget", "64"};
  const std::string answer = generate(labels).out;
  const std::string victim = path("precious.txt");
  write_text(victim, "precious");
  int n_files = 0;
  for (const auto& file : std::filesystem::directory_iterator(path("weft/labels"))) {
    std::filesystem::remove(file.path());
    std::filesystem::create_symlink(victim, file.path());
    ++n_files;
  }
  EXPECT_GE(n_files, 1);
  EXPECT_EQ(generate(labels).out, answer);
  EXPECT_EQ(test::read_text(victim), "precious");
}

TEST_F(EvalSparse, LocksBesideEachTokenByItself) {
  const Outcome outcome =
      run({"eval", "sparse"},
          {"--task", "perplexity", "-f", path("book.txt"), "--policies", "dense,cuboid",
           "--budgets", "64", "--lock-intervals", "0,8", "--lengths", "500", "--trials", "1",
           "--json", "--html", path("locks.html")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const Json rows = outcome.json()["results"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_TRUE(rows[1]["lock_interval"].is_null());
  EXPECT_EQ(rows[2]["lock_interval"], 8);
  EXPECT_GE(rows[2]["update_rate"], 0);
  EXPECT_NE(rows[1]["perplexity"], rows[2]["perplexity"]);
  EXPECT_THAT(test::read_text(path("locks.html")), HasSubstr("cuboid/8"));
  expect_error(run({"eval", "sparse"}, {"--lock-intervals", "8", "--policies", "dense"}), 2,
               "--policies dense has none");
  expect_error(run({"eval", "sparse"}, {"--digest-type", "f16", "--policies", "labels,oracle"}), 2,
               "--policies labels,oracle has none of them");
  expect_error(run({"eval", "sparse"}, {"--beside", ","}), 2, "--beside ,: must be files");
  expect_error(run({"eval", "sparse"}, {"--lengths", "99999999999"}), 2, "from 1 to 16777216");
  expect_error(run({"eval", "sparse"}, {"--lock-intervals", "8,-1"}), 2, "--lock-intervals 8,-1");
}

TEST_F(EvalSparse, OfLayersThatNeverChooseItIsSaidOnce) {
  const Outcome outcome =
      run({"eval", "sparse"}, {"--policies", "quest,double-sparsity", "--budgets", "64,96",
                               "--lengths", "400", "--trials", "1", "--dense-layers", "9"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const size_t first = outcome.err.find("no layer chooses pages");
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(outcome.err.find("no layer chooses pages", first + 1), std::string::npos);
}

TEST_F(EvalSparse, TheTableSaysHowItWasRead) {
  const Outcome outcome = run(
      {"eval", "sparse"}, {"--task", "perplexity", "-f", path("book.txt"), "--policies",
                           "dense,cuboid", "--budgets", "64", "--lengths", "500", "--trials", "1"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("prefilled densely, the last 256 tokens come one by one"),
                    HasSubstr("cuboid"), HasSubstr("perplexity ")));
}

TEST_F(EvalSparse, RefusesWhatCannotBe) {
  const auto eval = [&](const Arguments& more) { return run({"eval", "sparse"}, more); };
  expect_error(eval({"--policies", "quest,mine"}), 2, "--policies mine: must be of dense,");
  expect_error(eval({"--policies", "label"}), 2, "did you mean labels?");
  expect_error(eval({"--lengths", "50"}), 1, "--lengths 50: 1 pass key and the question take");
  expect_error(eval({"--budgets", "64,x"}), 2, "--budgets 64,x: must be whole numbers");
  expect_error(eval({"--budgets", "16"}), 2, "--budgets 16: at least 32 are needed");
  expect_error(eval({"--lengths", "0"}), 2, "--lengths 0: must be whole numbers");
  expect_error(eval({"--lengths", "3000"}), 1, "--lengths 3000: with 16 tokens");
  expect_error(eval({"--task", "poems"}), 2, "--task poems: must be passkey");
  expect_error(eval({"--task", "qa"}), 2, "-f FILE");
  expect_error(eval({"--task", "perplexity", "--by-depth"}), 2, "--by-depth: of the tasks passkey");
  expect_error(eval({"--sparse", "quest"}), 2, "is --policies, several with commas");
  expect_error(eval({"--policies", "labels-sample", "--lock-intervals", "8"}), 2,
               "weft: labels-sample: what a page stands for");
  expect_error(eval({"--lengths", "500", "--task", "needles"}), 1, "so it must be 1396 or more\n");
  expect_error(eval({"--kv-limit", "64MB"}), 2, "--kv-limit: no part of eval sparse");
  EXPECT_THAT(weft({"eval", "sparse", "--help"}).out, HasSubstr("not of eval sparse"));
}

}  // namespace
}  // namespace weft
