// What a question finds, says and shows, and what becomes of documents, through the built program:
// sources with lines, "not in the documents", moved files, unfinished ingests, repair.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "support/kv_limit.h"
#include "support/weft_program.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using test::write_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using Json = nlohmann::json;

class AskProgram : public test::WeftProgram {
 protected:
  /// On a person's terms: no JSON.
  static Outcome ask_plainly(const std::string& question, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"ask",   "-m", model(), "--store",
                                       store(), "-n", "4",     question};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return weft(arguments);
  }
  /// In a working folder, so that it is known what its relative paths are.
  static Outcome weft_in(const std::string& folder, std::vector<std::string> arguments) {
    return finish(start(std::move(arguments), "", "", [folder] {
      if (chdir(folder.c_str()) != 0) _exit(126);
    }));
  }
  static Json documents() {
    return weft({"docs", "ls", "--store", store(), "--json"}).json()["documents"];
  }
  static std::vector<std::string> listed() {
    std::vector<std::string> paths;
    for (const Json& document : documents()) paths.push_back(document["relative_path"]);
    return paths;
  }
  static int records() {
    return weft({"cache", "stat", "--store", store(), "--json"}).json()["records"].get<int>();
  }
};

TEST_F(AskProgram, ShowsNumberedSourcesWithLinesAndASentence) {
  fs::create_directories(docs() + "/notes");
  write_text(docs() + "/notes/meeting.md",
             "# Meeting\n\nEverybody came.\n\nThe lighthouse gets a new lamp.\nIt is paid by the "
             "council.\n");
  ASSERT_EQ(ingest().status, 0);
  const Outcome run = ask_plainly("Who pays the lighthouse's lamp?");
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("\n\n[1] docs/notes/meeting.md:1-6  Meeting  ("));
  EXPECT_THAT(run.out, HasSubstr("\n    The lighthouse gets a new lamp.\n"));
  EXPECT_THAT(run.out, HasSubstr(" s to the first token by full prefill: the prompt is short "
                                 "(predicted: "));
  EXPECT_THAT(run.out, HasSubstr(" s on a quiet machine"));  // what follows depends on this one
  EXPECT_THAT(run.out, HasSubstr(" (--stats)\n"));
  EXPECT_THAT(run.out, Not(HasSubstr("TTFT")));
  const Outcome stats = ask_plainly("Who pays the lighthouse's lamp?", {"--stats"});
  EXPECT_THAT(stats.out, HasSubstr("TTFT ms = lookup"));
  EXPECT_THAT(stats.out, Not(HasSubstr("(--stats)")));
  EXPECT_THAT(weft({"ask", "--help"}).out, HasSubstr("load"));
}

TEST_F(AskProgram, JsonHasThePassagesTextAndLines) {
  fs::create_directories(docs() + "/notes");
  write_text(docs() + "/notes/meeting.md",
             "# Meeting\n\nEverybody came.\n\nThe lighthouse gets a new lamp.\n");
  ASSERT_EQ(ingest().status, 0);
  const Json report = ask("lighthouse lamp").json();
  ASSERT_EQ(report["found"], true);
  const Json chunk = report["chunks"][0];
  EXPECT_EQ(chunk["relative_path"], "docs/notes/meeting.md");
  EXPECT_EQ(chunk["path"], fs::canonical(docs()).string() + "/notes/meeting.md");
  EXPECT_EQ(chunk["line_begin"], 1);
  EXPECT_EQ(chunk["line_end"], 5);
  EXPECT_THAT(chunk["text"].get<std::string>(), HasSubstr("The lighthouse gets a new lamp."));
  EXPECT_EQ(chunk["sentence"], "The lighthouse gets a new lamp.");
  EXPECT_LE(chunk["score"].dump().size(), 5u) << chunk["score"];  // three digits and a point
  const std::string ms = report["ttft_ms"].dump();
  EXPECT_LE(ms.size() - std::min(ms.find('.'), ms.size()), 3u) << ms;
}

TEST_F(AskProgram, WhatIsNotInTheDocumentsIsSaidAndNotInvented) {
  ASSERT_EQ(ingest().status, 0);
  const Outcome run = ask_plainly("Who governs Bolivia?");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out,
            "Not in the documents: no passage has \"governs\" or \"Bolivia\" (--answer-anyway asks "
            "all the same).\n");
  EXPECT_EQ(run.err, "");
  const Json json = ask("Who governs Bolivia?").json();
  EXPECT_EQ(json["found"], false);
  EXPECT_EQ(json["reason"], "no-match");
  EXPECT_TRUE(json["answer"].is_null());
  EXPECT_TRUE(json["chunks"].empty());
  EXPECT_THAT(json["absent"], ElementsAre("governs", "Bolivia"));
  EXPECT_EQ(ask("What is it?").json()["reason"], "no-words");
  EXPECT_TRUE(ask("What is it?").json()["absent"].empty());
  EXPECT_EQ(
      ask_plainly("Which parliament appointed ministers of the library?").out,
      "Not in the documents: no passage has \"parliament\", \"appointed\" or \"ministers\", and "
      "the nearest one shares too little with the question (--answer-anyway asks all the "
      "same).\n");
  const std::string longest(3000, 'q');
  EXPECT_EQ(ask_plainly(longest).out, "Not in the documents: no passage has \"" +
                                          longest.substr(0, 40) +
                                          "…\" (--answer-anyway asks all the same).\n");
  EXPECT_EQ(ask("Which parliament appointed ministers of the library?").json()["reason"],
            "too-little");
}

TEST_F(AskProgram, AWordThatNoDocumentHasIsSaidAfterTheSources) {
  write_text(docs() + "/boathouse.md",
             "# Boathouse\n\nThe boathouse has a green door, and its code is 4711.\n");
  ASSERT_EQ(ingest().status, 0);
  const std::string question = "What is the alarm code of the boathouse?";
  const Outcome run = ask_plainly(question);
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("code is 4711.\nno document has the word \"alarm\"\n\n"));
  EXPECT_THAT(ask(question).json()["absent"], ElementsAre("alarm"));
  // Said before the answer where one was asked for anyway, and not again.
  EXPECT_THAT(ask_plainly("Who governs Bolivia?", {"--answer-anyway"}).out,
              Not(HasSubstr("no document has")));
  EXPECT_THAT(ask_plainly("How many doors has the boathouse?").out,
              Not(HasSubstr("no document has")));
}

TEST_F(AskProgram, AMisspeltWordIsSearchedForAsTheNearestOrAHintNamesIt) {
  ASSERT_EQ(ingest().status, 0);
  const Outcome run = ask_plainly("Where is the Libary?");
  EXPECT_THAT(run.err, HasSubstr("note: took \"Libary\" for \"library\"\n"));
  EXPECT_THAT(run.out, Not(HasSubstr("no document has")));
  const Json json = ask("Where is the Libary?").json();
  EXPECT_EQ(json["found"], true);
  EXPECT_EQ(json["searched_as"], Json({{"Libary", "library"}}));
  EXPECT_THAT(json["notes"].dump(), HasSubstr("took"));
  EXPECT_TRUE(json["absent"].empty());
  const Outcome none = ask_plainly("Which parliament appointed ministers of the libary?");
  EXPECT_THAT(none.out, HasSubstr("Not in the documents: no passage has \"parliament\", "));
  EXPECT_EQ(none.err, "weft: note: took \"libary\" for \"library\"\n");
  // What may be another word as well is a hint and no more.
  const std::string question = "Which pears are in the ochords?";
  EXPECT_THAT(ask_plainly(question).out,
              HasSubstr("no document has the word \"ochords\" (did you mean \"orchard\"?)\n"));
  EXPECT_EQ(ask(question).json()["did_you_mean"], Json({{"ochords", "orchard"}}));
  EXPECT_TRUE(ask(question).json()["searched_as"].empty());
}

TEST_F(AskProgram, ANoteThatIsEditedRightAfterItWasIngestedHasChanged) {
  write_text(docs() + "/boathouse.md", "# Boathouse\n\nThe code of the boathouse is 4711.\n");
  ASSERT_EQ(ingest().status, 0);
  const auto written = fs::last_write_time(docs() + "/boathouse.md");
  const auto state = [&] { return ask("code of the boathouse").json()["chunks"][0]["file"]; };
  EXPECT_EQ(state(), "same");
  write_text(docs() + "/boathouse.md", "# Boathouse\n\nThe code of the boathouse is 9922.\n");
  fs::last_write_time(docs() + "/boathouse.md", written);
  EXPECT_EQ(state(), "changed");
}

TEST_F(AskProgram, AnswerAnywayAsksAllTheSame) {
  ASSERT_EQ(ingest().status, 0);
  for (const std::string reuse : {"none", "prefix", "full", "blend"}) {
    const Outcome none = ask("Who governs Bolivia?", {"--answer-anyway", "--reuse", reuse});
    ASSERT_EQ(none.status, 0) << reuse << ": " << none.err;
    EXPECT_EQ(none.json()["found"], false);
    EXPECT_TRUE(none.json()["answer"].is_string());
    EXPECT_TRUE(none.json()["chunks"].empty());
    EXPECT_THAT(none.json()["notes"].dump(), HasSubstr("asked all the same"));
  }
  const Json weak =
      ask("Which parliament appointed ministers of the library?", {"--answer-anyway"}).json();
  EXPECT_EQ(weak["chunks"][0]["title"], "library");
  EXPECT_EQ(ask_plainly("Who governs Bolivia?", {"--answer-anyway", "--compare"}).status, 0);
}

TEST_F(AskProgram, AKvLimitThatIsTooSmallIsNamed) {
  // 6 layers of K and V, 2 heads of 16 f16 values each, 16 tokens a page.
  constexpr int64_t kPageBytes = 6 * 2 * 2 * 16 * 2 * 16;
  const auto pages = [](int n, const engine::StepNeeds& steps) {
    return test::kv_limit_flag(folder_->path(), model(), n, steps);
  };
  const auto named_limit = [](const std::string& line) {
    return test::named_limit(line, "--kv-limit(?: of)? ([0-9.]+[KM]B)");
  };
  const auto one_page_less = [](const std::string& limit) {
    return test::less_than(limit, kPageBytes);
  };
  const Outcome refused = ingest({"--kv-limit", pages(5, {.makes_chunks = true})});
  expect_error(refused, 1, ".txt: a chunk of ");
  EXPECT_THAT(refused.err, HasSubstr(" is computed after the anchor of "));
  EXPECT_THAT(refused.err, HasSubstr("and it holds 80: a --kv-limit of "));
  EXPECT_THAT(refused.err, HasSubstr(" or a larger context (-c) is needed; nothing was changed\n"));
  EXPECT_EQ(refused.out, "");
  EXPECT_FALSE(fs::exists(store()));
  const std::string enough = named_limit(refused.err);
  EXPECT_EQ(ingest({"--kv-limit", one_page_less(enough)}).status, 1);
  EXPECT_FALSE(fs::exists(store()));
  const Outcome with_limit = ingest({"--kv-limit", enough});
  EXPECT_EQ(with_limit.status, 0) << with_limit.err;
  const std::string line = "do not fit the context of 80; --kv-limit ";
  const std::string five = pages(5, test::kAskSteps);
  const auto ask_with = [](const std::string& limit) {
    return ask_plainly("harbour", {"--kv-limit", limit});
  };
  const Outcome asked = ask_with(five);
  expect_error(asked, 1, line);
  EXPECT_THAT(asked.err, HasSubstr(" holds them\n"));
  const Outcome with_named = ask_with(named_limit(asked.err));
  EXPECT_EQ(with_named.status, 0) << asked.err << with_named.err;
  EXPECT_EQ(ask_with(one_page_less(named_limit(asked.err))).status, 1);
  expect_error(ask_plainly("harbour", {"-c", "80"}), 1, "do not fit the context of 80; -c ");
  const auto endless = [](const std::string& limit) {
    return weft(
        {"ask", "-m", model(), "--store", store(), "--kv-limit", limit, "-n", "-1", "harbour"});
  };
  const Outcome long_answer = endless(five);
  EXPECT_THAT(long_answer.err, HasSubstr(line));
  EXPECT_EQ(endless(named_limit(long_answer.err)).status, 0);
  EXPECT_EQ(endless(one_page_less(named_limit(long_answer.err))).status, 1);
  expect_error(ask_plainly("harbour", {"-n", "100000"}), 1, "; the model holds 2048 at most: ");
  std::string long_question = "When does the harbour open";
  for (int i = 0; i < 3000; ++i) long_question += " again";
  expect_error(ask_plainly(long_question), 1, "with one passage (more than 2048 tokens) and ");
  const auto talk = [](const std::string& limit) {
    return weft({"ask", "-i", "-m", model(), "--store", store(), "--kv-limit", limit, "-n", "4"},
                "harbour\n");
  };
  const Outcome talked = talk(five);
  EXPECT_THAT(talked.err, HasSubstr(line));
  const Outcome talked_on = talk(named_limit(talked.err));
  EXPECT_EQ(talked_on.status, 0) << talked_on.err;
  EXPECT_THAT(talked_on.err, Not(HasSubstr("do not fit")));
  EXPECT_THAT(talk(one_page_less(named_limit(talked.err))).err, HasSubstr("do not fit"));
}

TEST_F(AskProgram, AnAnswerThatWasCutSaysSo) {
  ASSERT_EQ(ingest().status, 0);
  EXPECT_EQ(ask_plainly("harbour").err,
            "weft: note: the answer was cut at 4 tokens (-n; -n -1 goes on to the end)\n");
  EXPECT_EQ(ask("harbour").err, "");  // a program reads its stop_reason
}

TEST_F(AskProgram, TheStoreKnowsItsModel) {
  expect_error(weft({"ask", "--store", store(), "harbour"}), 1, "no documents were ingested here");
  expect_error(weft({"ingest", "--store", store(), docs()}), 2, "the first ingest needs a model");
  ASSERT_EQ(ingest().status, 0);
  const std::string models = path("models");
  fs::create_directories(models);
  fs::copy_file(model(), models + "/model.gguf", fs::copy_options::overwrite_existing);
  const auto with_models = [&](std::vector<std::string> arguments) {
    return finish(
        start(std::move(arguments), "", "", [&] { setenv("WEFT_MODELS", models.c_str(), 1); }));
  };
  const Outcome asked = with_models({"ask", "--store", store(), "-n", "2", "harbour"});
  EXPECT_EQ(asked.status, 0) << asked.err;
  const Outcome ingested = with_models({"ingest", "--store", store(), docs()});
  EXPECT_EQ(ingested.status, 0) << ingested.err;
  fs::remove_all(models);
  expect_error(with_models({"ask", "--store", store(), "harbour"}), 1,
               "(model.gguf), which is not in the models folder");
}

TEST_F(AskProgram, ARenamedFolderLeavesNoRowOfItsEmptyFile) {
  write_text(docs() + "/empty.txt", "");
  ASSERT_EQ(ingest().status, 0);
  fs::rename(docs(), path("papers"));
  const Outcome moved = weft({"ingest", "-m", model(), "--store", store(), path("papers")});
  ASSERT_EQ(moved.status, 0) << moved.err;
  EXPECT_THAT(moved.out, HasSubstr("0 new, 0 changed, 0 completed, 4 moved, 0 deleted"));
  EXPECT_THAT(listed(), ElementsAre("papers/empty.txt", "papers/harbour.md", "papers/library.txt",
                                    "papers/orchard.txt"));
  fs::rename(path("papers"), docs());
}

TEST_F(AskProgram, AMovedFolderIsTakenOver) {
  ASSERT_EQ(ingest().status, 0);
  const std::string question = "harbour orchard library shelf";  // enough for reuse to pay
  const Json before = ask(question, {"--ratio", "0.1"}).json();
  const int n_records = records();
  fs::rename(docs(), path("papers"));
  const Outcome moved = weft({"ingest", "-m", model(), "--store", store(), path("papers")});
  ASSERT_EQ(moved.status, 0) << moved.err;
  EXPECT_THAT(moved.out, HasSubstr("0 new, 0 changed, 0 completed, 3 moved, 0 deleted"));
  EXPECT_THAT(moved.out, Not(HasSubstr("ingesting")));  // nothing was computed
  EXPECT_THAT(listed(),
              ElementsAre("papers/harbour.md", "papers/library.txt", "papers/orchard.txt"));
  EXPECT_EQ(records(), n_records);
  const Json after = ask(question, {"--ratio", "0.1"}).json();
  EXPECT_EQ(after["answer"], before["answer"]);
  EXPECT_EQ(after["tier"], "disk");
  EXPECT_THAT(after["chunks"][0]["relative_path"].get<std::string>(), HasSubstr("papers/"));
  fs::rename(path("papers"), docs());
}

TEST_F(AskProgram, ARenamedFileWhoseNameIsItsTitleIsCutAnewAndTheOldOneGoes) {
  ASSERT_EQ(ingest().status, 0);
  const int n_records = records();
  fs::rename(docs() + "/orchard.txt", docs() + "/garden.txt");
  fs::rename(docs() + "/harbour.md", docs() + "/port.md");  // its heading stays its title
  const Outcome moved = ingest();
  ASSERT_EQ(moved.status, 0) << moved.err;
  EXPECT_THAT(moved.out, HasSubstr("ingesting 1 document, "));
  EXPECT_THAT(moved.out, HasSubstr("2 moved, 0 deleted, 1 unchanged"));
  EXPECT_THAT(listed(), ElementsAre("docs/garden.txt", "docs/library.txt", "docs/port.md"));
  EXPECT_EQ(documents()[0]["title"], "garden");
  EXPECT_EQ(documents()[0]["status"], "stored");
  EXPECT_EQ(records(), n_records);
  EXPECT_EQ(ask("pears stream").json()["chunks"][0]["title"], "garden");
  EXPECT_EQ(weft({"cache", "verify", "--store", store()}).status, 0);
}

TEST_F(AskProgram, ADocumentWhoseRecordsAreGoneIsNotListedAsStored) {
  ASSERT_EQ(ingest().status, 0);
  EXPECT_EQ(weft({"docs", "ls", "--store", store()}).err, "");
  const Json all = weft({"cache", "ls", "--store", store(), "--json"}).json()["records"];
  for (const auto& entry : fs::recursive_directory_iterator(store())) {
    if (entry.path().filename().string().starts_with(all[0]["hash"].get<std::string>())) {
      fs::remove(entry.path());
      break;
    }
  }
  ASSERT_EQ(records(), std::ssize(all) - 1);
  const Outcome run = weft({"docs", "ls", "--store", store()});
  EXPECT_EQ(run.status, 0);
  EXPECT_THAT(run.out, HasSubstr("  incomplete\n"));
  EXPECT_EQ(run.err,
            "weft: " + store() +
                ": records of 1 document are gone from the store's folder; asking computes "
                "what it needs of them, and weft cache verify --repair says the command "
                "that makes them all\n");
  int n_incomplete = 0;
  for (const Json& document : documents()) n_incomplete += document["status"] == "incomplete";
  EXPECT_EQ(n_incomplete, 1);
  ASSERT_EQ(weft({"cache", "verify", "--repair", "--store", store()}).status, 0);
  ASSERT_EQ(ingest().status, 0);
  EXPECT_EQ(weft({"docs", "ls", "--store", store()}).err, "");
}

TEST_F(AskProgram, ThePlanOfAChangedDocumentIsOfWhatIsNewInIt) {
  ASSERT_EQ(ingest().status, 0);
  write_text(docs() + "/library.txt", "The library lends maps. " + filler(300) + "And globes.");
  const Json report = ingest({"--json"}).json();
  EXPECT_EQ(report["changed"], 1);
  EXPECT_EQ(report["new_chunks"], 1);  // the last
  EXPECT_GT(report["chunks"], 1);
  EXPECT_LT(report["new_tokens"], report["tokens"]);
  write_text(docs() + "/library.txt", "The library lends maps. " + filler(300) + "And atlases.");
  EXPECT_THAT(ingest().out, AllOf(HasSubstr("ingesting 1 document, 1 new chunk, "),
                                  HasSubstr(" stored already\n")));
}

TEST_F(AskProgram, ACopyIsNoMove) {
  ASSERT_EQ(ingest().status, 0);
  fs::copy_file(docs() + "/harbour.md", docs() + "/copy.md");
  EXPECT_THAT(ingest().out, HasSubstr("1 new, 0 changed, 0 completed, 0 deleted, 3 unchanged"));
  EXPECT_EQ(listed().size(), 4u);
  const std::string shown = ask_plainly("When does the harbour open?").out;
  EXPECT_THAT(shown, HasSubstr("\n    the same as docs/"));
  EXPECT_THAT(shown, Not(HasSubstr("nearly the same")));
}

TEST_F(AskProgram, AnIngestThatDidNotEndIsSaidWithTheCommandThatCompletesIt) {
  write_text(docs() + "/zebra.txt", "Zebras graze. " + filler(200));
  const Outcome stopped = ingest({"--store-limit", "200KB"});
  ASSERT_EQ(stopped.status, 1);
  const Outcome asked = ask("harbour");
  EXPECT_EQ(asked.status, 0);
  const std::string command =
      "weft ingest -m " + model() + " --store " + store() + " " + fs::canonical(docs()).string();
  EXPECT_THAT(asked.err, HasSubstr(command + "\n"));  // -m as it was given
  EXPECT_THAT(weft({"docs", "ls", "--store", store()}).err,
              HasSubstr("weft ingest --store " + store() + " " + fs::canonical(docs()).string()));
  const std::string both =
      "1 document is not stored whole, and an ingest did not end, so files may be missing; to "
      "complete it: ";
  EXPECT_THAT(asked.err, HasSubstr(both + command + "\n"));
  for (const char* question : {"harbour", "Who governs Bolivia?"}) {
    const Json json = ask(question).json();
    ASSERT_FALSE(json["notes"].empty()) << json.dump();
    EXPECT_TRUE(json["notes"][0].get<std::string>().ends_with(both + command));
  }
  EXPECT_THAT(ask_plainly("Who governs Bolivia?").out,
              HasSubstr("But not all of them are in the store yet."));
  ASSERT_EQ(ingest().status, 0);
  EXPECT_EQ(ask("harbour").err, "");
  EXPECT_TRUE(ask("Who governs Bolivia?").json()["notes"].empty());
}

TEST_F(AskProgram, TheCommandThatCompletesAnIngestLeavesOutWhatWasExcluded) {
  write_text(docs() + "/debug.log", "A log line. " + filler(10));
  write_text(docs() + "/zebra.txt", "Zebras graze. " + filler(200));
  ASSERT_EQ(ingest({"--exclude", "*.log", "--no-ignore", "--store-limit", "200KB"}).status, 1);
  const std::string root = fs::canonical(docs()).string();
  const std::string command = "weft ingest -m " + model() + " --store " + store() +
                              " --exclude '*.log' --no-ignore " + root;
  EXPECT_THAT(ask("harbour").err, HasSubstr(command + "\n"));
  const Json unfinished = weft({"docs", "ls", "--store", store(), "--json"}).json()["unfinished"];
  EXPECT_EQ(unfinished["command"],
            "weft ingest --store " + store() + " --exclude '*.log' --no-ignore " + root);
  EXPECT_EQ(unfinished["documents"], 1);
  EXPECT_EQ(unfinished["ingest_did_not_end"], true);
  EXPECT_EQ(unfinished["paths"], Json::array({root}));
  // As the command says it; the model's file is not in the models folder here.
  ASSERT_EQ(
      weft({"ingest", "-m", model(), "--store", store(), "--exclude", "*.log", "--no-ignore", root})
          .status,
      0);
  EXPECT_EQ(ask("harbour").err, "");
  EXPECT_TRUE(weft({"docs", "ls", "--store", store(), "--json"}).json()["unfinished"].is_null());
  EXPECT_THAT(listed(), Not(::testing::Contains("docs/debug.log")));
  // Without it, what is no longer excluded is taken in.
  ASSERT_EQ(ingest().status, 0);
  EXPECT_THAT(listed(), ::testing::Contains("docs/debug.log"));
}

TEST_F(AskProgram, AnIngestThatDidNotEndEndsWithDocsRmWhenItsFolderIsGone) {
  ASSERT_EQ(ingest({"--store-limit", "200KB"}).status, 1);
  fs::remove_all(docs());
  expect_error(ingest(), 1, "`weft docs rm --store " + store() + " " + docs() + "` takes its ");
  ASSERT_EQ(weft({"docs", "rm", "--store", store(), docs()}).status, 0);
  EXPECT_EQ(weft({"docs", "ls", "--store", store()}).err, "");
}

TEST_F(AskProgram, WhereNothingWasStoredBeforeTheFolderWasGoneItEndsSo) {
  ASSERT_EQ(ingest().status, 0);
  fs::create_directories(path("more"));
  write_text(path("more/m.txt"), "Marmots whistle. " + filler(200));
  const auto ingest_more = [&] {
    return weft(
        {"ingest", "-m", model(), "--store", store(), "--store-limit", "200KB", path("more")});
  };
  ASSERT_EQ(ingest_more().status, 1);
  ASSERT_EQ(weft_in(store(), {"docs", "rm", "--store", store(), "docs"}).status, 0);
  fs::rename(path("more/m.txt"), docs() + "/m.txt");  // takes the document with it
  ASSERT_EQ(ingest().status, 0);
  fs::remove_all(path("more"));
  expect_error(ingest_more(), 1, "ends the ingest that was begun there");
  ASSERT_EQ(weft({"docs", "rm", "--store", store(), path("more")}).status, 0);
  EXPECT_EQ(ask("marmots").err, "");
}

TEST_F(AskProgram, DocumentsAreListedAndRemoved) {
  fs::create_directories(docs() + "/old");
  write_text(docs() + "/old/a.md", "# A\n\nAlpaca wool.");
  write_text(docs() + "/old/b.md", "# B\n\nBadger setts.");
  ASSERT_EQ(ingest().status, 0);
  const Json all = documents();
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0]["relative_path"], "docs/harbour.md");
  EXPECT_EQ(all[0]["title"], "Harbour");
  EXPECT_GT(all[0]["chunks"], 0);
  EXPECT_GT(all[0]["tokens"], 0);
  EXPECT_GT(all[0]["bytes"], 0);
  EXPECT_EQ(all[0]["status"], "stored");
  EXPECT_THAT(weft({"docs", "ls", "--store", store()}).out, HasSubstr("docs/harbour.md  Harbour"));
  const int n_records = records();
  fs::remove_all(docs() + "/old");  // gone from the disk, not from the index
  const Outcome removed = weft({"docs", "rm", "--store", store(), docs() + "/old"});
  EXPECT_EQ(removed.status, 0) << removed.err;
  EXPECT_THAT(removed.out, HasSubstr("2 documents removed, with 2 records"));
  EXPECT_EQ(records(), n_records - 2);
  EXPECT_EQ(ask("alpaca").json()["found"], false);
  const Json one =
      weft_in(store(), {"docs", "rm", "--store", store(), "--json", "docs/library.txt"}).json();
  EXPECT_EQ(one["removed"], 1);
  EXPECT_THAT(listed(), ElementsAre("docs/harbour.md", "docs/orchard.txt"));
  expect_error(weft({"docs", "rm", "--store", store(), docs() + "/harbour.md", "nowhere"}), 1,
               "nowhere: no document of ");
  EXPECT_EQ(listed().size(), 2u);  // nothing was removed
  expect_error(weft({"docs", "ls", "--store", path("nothing")}), 1, "no documents were ingested");
}

TEST_F(AskProgram, AFirstIngestThatTakesNothingInLeavesNoStore) {
  write_text(path("film.png"), std::string("\x89PNG\r\n\x1a\n\0\0", 10));
  const std::string fresh = path("deep/fresh");
  const auto ingest_film = [&] {
    return weft({"ingest", "-m", model(), "--store", fresh, path("film.png")});
  };
  const Outcome nothing = ingest_film();
  EXPECT_EQ(nothing.status, 1) << nothing.err;
  EXPECT_THAT(nothing.err, HasSubstr(fresh + ": no document came in, so no store was made\n"));
  EXPECT_FALSE(fs::exists(path("deep")));
  fs::create_directories(fresh);
  EXPECT_EQ(ingest_film().err, nothing.err);
  EXPECT_TRUE(fs::is_empty(fresh));
  fs::remove_all(path("deep"));
}

TEST_F(AskProgram, AnIngestIntoWhichNothingNamedCameInFails) {
  write_text(path("film.png"), std::string("\x89PNG\r\n\x1a\n\0\0", 10));
  ASSERT_EQ(ingest().status, 0);
  const std::string line = store() + ": no document came in, and the store has what it had\n";
  const auto ingest_what = [&](std::vector<std::string> what) {
    what.insert(what.begin(), {"ingest", "-m", model(), "--store", store()});
    return weft(what);
  };
  const Outcome film = ingest_what({path("film.png")});
  EXPECT_EQ(film.status, 1);
  EXPECT_THAT(film.out, HasSubstr("0 new, 0 changed"));
  EXPECT_THAT(film.err, HasSubstr(line));
  const Outcome as_json = ingest_what({path("film.png"), "--json"});
  EXPECT_EQ(as_json.status, 1);
  EXPECT_EQ(as_json.json()["n_skipped"], 1);
  EXPECT_EQ(as_json.err, "weft: " + line);
  EXPECT_EQ(ingest_what({path("film.png"), docs()}).status, 0);
  // What takes documents out has done something.
  EXPECT_EQ(ingest({"--exclude", "*"}).status, 0);
  EXPECT_EQ(ingest({"--exclude", "*"}).status, 1);
}

TEST_F(AskProgram, AFolderWithOtherFilesIsNotMadeAStore) {
  fs::create_directories(path("mine/sub"));
  const Outcome refused = weft({"ingest", "-m", model(), "--store", path("mine"), docs()});
  expect_error(refused, 1,
               path("mine") +
                   ": no store, and it has other files in it (sub): give --store a new or an empty "
                   "folder");
  EXPECT_TRUE(fs::is_empty(path("mine/sub")));
  fs::remove(path("mine/sub"));
  EXPECT_TRUE(fs::is_empty(path("mine")));
  // The rest of a store is taken up, and so is a store that somebody put a note into.
  for (const char* name : {"documents.sqlite-journal", "store.lock"}) {
    write_text(path("mine/") + name, "");
  }
  write_text(path("mine/0123456789abcdef0123456789abcdef.chunk"), "damaged");
  fs::create_directories(path("mine/tmp"));
  fs::create_directories(path("mine/lost+found"));
  EXPECT_EQ(weft({"ingest", "-m", model(), "--store", path("mine"), docs()}).status, 0);
  write_text(path("mine/note.txt"), "A note.");
  const Outcome again = weft({"ingest", "-m", model(), "--store", path("mine"), docs()});
  EXPECT_EQ(again.status, 0) << again.err;
  fs::remove_all(path("mine"));
}

TEST_F(AskProgram, OneIsNoPlural) {
  fs::remove(docs() + "/orchard.txt");
  fs::remove(docs() + "/library.txt");
  write_text(docs() + "/harbour.md", "# Harbour\n\nThe harbour opens at seven.");
  ASSERT_EQ(ingest().status, 0);
  const std::string all = weft({"docs", "ls", "--store", store()}).out;
  EXPECT_THAT(all, HasSubstr("docs/harbour.md  Harbour  1 chunk, "));
  EXPECT_THAT(all, HasSubstr("\n1 document\n"));
  EXPECT_THAT(weft({"docs", "rm", "--store", store(), docs()}).out,
              HasSubstr("1 document removed, with 1 record ("));
}

TEST_F(AskProgram, ADocumentWhoseFileIsALinkNowIsRemovedByItsOwnPath) {
  fs::create_directories(docs() + "/x");
  write_text(docs() + "/x/a.txt", "Alpacas graze.");
  ASSERT_EQ(ingest().status, 0);
  fs::remove(docs() + "/x/a.txt");
  fs::create_symlink("../orchard.txt", docs() + "/x/a.txt");
  EXPECT_THAT(weft({"docs", "rm", "--store", store(), docs() + "/x/a.txt"}).out,
              HasSubstr("1 document removed, with 1 record ("));
  EXPECT_THAT(listed(), ElementsAre("docs/harbour.md", "docs/library.txt", "docs/orchard.txt"));
  // No document is there by its name any more: what it leads to is meant.
  EXPECT_EQ(weft({"docs", "rm", "--store", store(), docs() + "/x/a.txt"}).status, 0);
  EXPECT_THAT(listed(), ElementsAre("docs/harbour.md", "docs/library.txt"));
}

TEST_F(AskProgram, AnIngestThatDidNotEndEndsWhereItsFolderIsALinkNow) {
  write_text(docs() + "/zebra.txt", "Zebras graze. " + filler(200));
  ASSERT_EQ(ingest({"--store-limit", "200KB"}).status, 1);
  fs::rename(docs(), path("papers"));
  fs::create_directory_symlink(path("papers"), docs());
  const Outcome linked = ingest();
  EXPECT_EQ(linked.status, 0) << linked.err;
  EXPECT_TRUE(weft({"docs", "ls", "--store", store(), "--json"}).json()["unfinished"].is_null());
  EXPECT_THAT(listed(), ElementsAre("papers/harbour.md", "papers/library.txt", "papers/orchard.txt",
                                    "papers/zebra.txt"));
  fs::remove(docs());
  fs::remove_all(path("papers"));
}

TEST_F(AskProgram, DocumentsWithoutTextAreSaid) {
  fs::remove_all(docs());
  fs::create_directories(docs());
  write_text(docs() + "/a.txt", "");
  write_text(docs() + "/b.html", "<script>let x = 1;</script>");
  write_text(docs() + "/c.md", "---\ndraft: true\n---\n");
  const Outcome few = ingest();
  EXPECT_EQ(few.status, 0);
  EXPECT_THAT(few.out, HasSubstr("3 new"));
  const std::string root = fs::canonical(docs()).string();
  const std::string none = ": has no text, so no question finds it\n";
  EXPECT_EQ(few.err, "weft: " + root + "/a.txt" + none + "weft: " + root + "/b.html" + none +
                         "weft: " + root + "/c.md" + none);
  expect_error(ask("heading"), 1, "the documents in the store have no text");
  EXPECT_EQ(ingest().err, "");
  for (const char* name : {"d", "e", "f", "g"}) write_text(docs() + "/" + name + ".txt", "\n");
  const Json many = ingest({"--json"}).json();
  EXPECT_EQ(many["notes"][0],
            "4 documents have no text, so no question finds them (d.txt, e.txt, f.txt, …)");
  write_text(docs() + "/a.txt", "A walnut.");
  ASSERT_EQ(ingest().status, 0);
  EXPECT_EQ(ask("walnut").status, 0);
}

TEST_F(AskProgram, ADocumentThatIsOnlyAHeadingIsFoundByIt) {
  write_text(docs() + "/contacts.md", "# The plumber is Zacharias, 030-4711\n");
  const Outcome ingested = ingest();
  EXPECT_EQ(ingested.status, 0);
  EXPECT_EQ(ingested.err, "");
  const Json answer = ask("Who is the plumber?").json();
  ASSERT_EQ(answer["chunks"].size(), 1u) << answer;
  EXPECT_EQ(answer["chunks"][0]["sentence"], "The plumber is Zacharias, 030-4711");
  EXPECT_EQ(answer["chunks"][0]["line_begin"], 1);
}

TEST_F(AskProgram, AnEmptyMountPointKeepsItsDocuments) {
  ASSERT_EQ(ingest().status, 0);
  fs::rename(docs(), path("away"));
  fs::create_directory(docs());
  expect_error(ingest(), 1,
               docs() +
                   ": none of its 3 documents is there any more (a disk that is not mounted?); "
                   "`weft docs rm --store " +
                   store() + " " + docs() + "` takes them out");
  EXPECT_EQ(listed().size(), 3u);
  EXPECT_EQ(weft({"docs", "ls", "--store", store()}).err, "");
  ASSERT_EQ(weft({"docs", "rm", "--store", store(), docs()}).status, 0);
  EXPECT_EQ(ingest().status, 1);
  fs::remove_all(path("away"));
}

TEST_F(AskProgram, AnEmptyPathIsRefusedAndRemovesNothing) {
  ASSERT_EQ(ingest().status, 0);
  expect_error(weft({"docs", "rm", "--store", store(), ""}), 2, "a path is empty");
  expect_error(weft({"docs", "rm", "--store", store(), docs(), ""}), 2, "a path is empty");
  expect_error(weft({"ingest", "-m", model(), "--store", store(), ""}), 2, "a path is empty");
  expect_error(weft({"ingest", "-m", model(), "--store", path("fresh"), ""}), 2, "a path is empty");
  EXPECT_FALSE(fs::exists(path("fresh")));
  EXPECT_EQ(listed().size(), 3u);
}

TEST_F(AskProgram, AShownNameIsTakenOnlyWhereNothingIsThereAndItMeansOneFolder) {
  ASSERT_EQ(ingest().status, 0);
  // In a folder that has another "docs", which is not ingested: that one is meant.
  fs::create_directories(path("elsewhere/docs"));
  const std::vector<std::string> remove{"docs", "rm", "--store", store(), "docs"};
  expect_error(weft_in(path("elsewhere"), remove), 1, "docs: no document of ");
  EXPECT_EQ(listed().size(), 3u);
  // Two roots of that name.
  write_text(path("elsewhere/docs/orchard.txt"), "Another orchard.");
  ASSERT_EQ(weft({"ingest", "-m", model(), "--store", store(), path("elsewhere/docs")}).status, 0);
  const std::string first = fs::canonical(docs()).string();
  const std::string second = fs::canonical(path("elsewhere/docs")).string();
  expect_error(weft_in(store(), remove), 2, "docs: may be any of " + first + ", " + second + ";");
  expect_error(weft_in(store(), {"docs", "rm", "--store", store(), "docs/orchard.txt"}), 2,
               first + "/orchard.txt, " + second + "/orchard.txt;");
  EXPECT_EQ(listed().size(), 4u);
  // What only one of them has is that one's; what is there is meant wherever it is.
  EXPECT_EQ(weft_in(store(), {"docs", "rm", "--store", store(), "docs/library.txt"}).status, 0);
  EXPECT_EQ(weft_in(path("elsewhere"), remove).status, 0);
  EXPECT_THAT(listed(), ElementsAre("docs/harbour.md", "docs/orchard.txt"));
  fs::remove_all(path("elsewhere"));
  EXPECT_EQ(weft_in(store(), {"docs", "rm", "--store", store(), "docs/"}).status, 0);
  EXPECT_EQ(listed().size(), 0u);
}

TEST_F(AskProgram, FilesOfOneNameThatAreNamedByThemselvesAreToldApart) {
  for (const char* folder : {"/a", "/b"}) fs::create_directories(docs() + folder);
  write_text(docs() + "/a/notes.md", "The zeppelin lands at noon.");
  write_text(docs() + "/b/notes.md", "A quagga grazes on the far hill.");
  ASSERT_EQ(weft({"ingest", "-m", model(), "--store", store(), docs() + "/a/notes.md",
                  docs() + "/b/notes.md"})
                .status,
            0);
  EXPECT_THAT(listed(), ElementsAre("a/notes.md", "b/notes.md"));
  EXPECT_THAT(ask_plainly("When does the zeppelin land?").out, HasSubstr("\n[1] a/notes.md:1  "));
  EXPECT_EQ(ask("Where is the quagga?").json()["chunks"][0]["relative_path"], "b/notes.md");
  ASSERT_EQ(weft({"docs", "rm", "--store", store(), "a/notes.md"}).status, 0);
  EXPECT_THAT(listed(), ElementsAre("notes.md"));
}

TEST_F(AskProgram, RepairRemovesWhatIsDamagedAndIngestMakesItAnew) {
  ASSERT_EQ(ingest().status, 0);
  const int n_records = records();
  const Json sound = weft({"cache", "verify", "--store", store(), "--repair", "--json"}).json();
  EXPECT_EQ(sound["removed_bad"], 0);
  EXPECT_EQ(sound["incomplete_documents"], 0);
  std::string damaged;
  for (const auto& entry : fs::recursive_directory_iterator(store())) {
    if (entry.path().extension() == ".chunk") damaged = entry.path().string();
  }
  std::string bytes = test::read_text(damaged);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_text(damaged, bytes);
  // A record that no document has.
  const std::string elsewhere = path("elsewhere");
  write_text(path("stray.md"), "# Stray\n\nA stray cat.");
  ASSERT_EQ(weft({"ingest", "-m", model(), "--store", elsewhere, path("stray.md")}).status, 0);
  for (const auto& entry : fs::recursive_directory_iterator(elsewhere)) {
    if (entry.path().extension() == ".chunk") {
      fs::copy_file(entry.path(), store() + "/" + entry.path().filename().string());
    }
  }
  fs::remove_all(elsewhere);
  expect_error(weft({"cache", "verify", "--store", store()}), 1, "--repair");
  const Outcome repaired = weft({"cache", "verify", "--store", store(), "--repair"});
  EXPECT_EQ(repaired.status, 0) << repaired.err;
  EXPECT_THAT(repaired.out, HasSubstr("1 damaged record removed, 1 that no document has; 1 "
                                      "document is incomplete now"));
  EXPECT_THAT(repaired.err, HasSubstr("weft ingest --store"));
  EXPECT_EQ(records(), n_records - 1);
  EXPECT_THAT(ask("harbour").err, HasSubstr("1 document is not stored whole; to complete it"));
  EXPECT_EQ(weft({"cache", "verify", "--store", store()}).status, 0);
  EXPECT_THAT(ingest().out, HasSubstr("1 completed"));
  EXPECT_EQ(records(), n_records);
  EXPECT_EQ(ask("harbour").err, "");
}

TEST_F(AskProgram, RepairKeepsWhatItCouldOnlyNotRead) {
  ASSERT_EQ(ingest().status, 0);
  const int n_records = records();
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(store())) {
    if (entry.path().extension() == ".chunk") files.push_back(entry.path());
  }
  ASSERT_GE(files.size(), 2u);
  const fs::path unreadable = files[0];
  std::string bytes = test::read_text(files[1].string());
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_text(files[1].string(), bytes);
  fs::permissions(unreadable, fs::perms::none);
  // Root may read everything: then the store is somebody else's.
  constexpr uid_t kOther = 65534;
  if (geteuid() == 0) {
    fs::permissions(folder_->path(), fs::perms::others_exec, fs::perm_options::add);
    ASSERT_EQ(chown(store().c_str(), kOther, kOther), 0);
    for (const auto& entry : fs::recursive_directory_iterator(store())) {
      ASSERT_EQ(chown(entry.path().c_str(), kOther, kOther), 0);
    }
  }
  const auto verify = [](std::vector<std::string> more) {
    std::vector<std::string> arguments{"cache", "verify", "--store", store()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return finish(start(arguments, "", "", [] {
      if (geteuid() == 0 && (setgid(kOther) != 0 || setuid(kOther) != 0)) _exit(126);
    }));
  };
  expect_error(verify({}), 1, "1 bad record, 1 unreadable record;");
  const Outcome repaired = verify({"--repair", "--json"});
  EXPECT_EQ(repaired.status, 1);
  EXPECT_THAT(repaired.err, HasSubstr("1 record could not be read and was kept"));
  const Json report = repaired.json();
  EXPECT_EQ(report["removed_bad"], 1);
  EXPECT_EQ(report["removed_unneeded"], 0);
  EXPECT_EQ(report["incomplete_documents"], 1);
  EXPECT_EQ(report["bad"].size(), 1u);
  ASSERT_EQ(report["unreadable"].size(), 1u);
  EXPECT_EQ(report["unreadable"][0]["file"], unreadable.filename().string());
  EXPECT_TRUE(fs::exists(unreadable));
  EXPECT_FALSE(fs::exists(files[1]));
  fs::permissions(unreadable, fs::perms::owner_read | fs::perms::owner_write);
  const Outcome again = verify({"--repair"});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(records(), n_records - 1);
}

TEST_F(AskProgram, VerifyNamesDocumentsWhoseRecordsAreMissing) {
  ASSERT_EQ(ingest().status, 0);
  const int n_records = records();
  const Json whole = weft({"cache", "verify", "--store", store(), "--json"}).json();
  EXPECT_EQ(whole["missing"], Json::array());
  const Json all = weft({"cache", "ls", "--store", store(), "--json"}).json()["records"];
  ASSERT_EQ(
      weft({"cache", "rm", "--store", store(), all[0]["hash"].get<std::string>()}).out.substr(0, 9),
      "1 record ");
  const Outcome verify = weft({"cache", "verify", "--store", store()});
  expect_error(verify, 1, ": 1 chunk without a record; asking");
  EXPECT_THAT(verify.out, HasSubstr(": 1 chunk without a record\n"));
  EXPECT_THAT(verify.out, HasSubstr(" 0 bad, 1 chunk without a record\n"));
  const Outcome as_json = weft({"cache", "verify", "--store", store(), "--json"});
  EXPECT_EQ(as_json.status, 1);
  ASSERT_EQ(as_json.json()["missing"].size(), 1u);
  EXPECT_EQ(as_json.json()["missing"][0]["chunks"], 1);
  EXPECT_THAT(as_json.json()["missing"][0]["path"].get<std::string>(), HasSubstr("/docs/"));
  const Outcome repaired = weft({"cache", "verify", "--store", store(), "--repair"});
  EXPECT_EQ(repaired.status, 0) << repaired.err;
  EXPECT_THAT(repaired.err, HasSubstr("to complete it: weft ingest"));
  EXPECT_EQ(weft({"cache", "verify", "--store", store()}).status, 0) << "it is said elsewhere";
  EXPECT_THAT(ingest().out, HasSubstr("1 completed"));
  EXPECT_EQ(records(), n_records);
  EXPECT_EQ(weft({"cache", "verify", "--store", store()}).status, 0);
}

TEST_F(AskProgram, BenchRetrievalSaysHowOftenTheGoldPassageIsShown) {
  write_text(path("data.json"), R"([
    {"question": "Who keeps the weir?", "answers": ["Ann"], "ctxs": [
      {"title": "Weir", "text": "Ann keeps the weir and its gates.", "gold": true},
      {"title": "Pier", "text": "The pier is made of oak.", "gold": false}]},
    {"question": "What is the pier made of?", "answers": ["oak"], "ctxs": [
      {"title": "Pier", "text": "The pier is made of oak.", "gold": true}]}])");
  const Outcome run =
      weft({"bench", "retrieval", "-m", model(), "-f", path("data.json"), "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  const Json all = run.json()["results"].back();
  EXPECT_EQ(all["set"], "all");
  EXPECT_EQ(all["questions"], 2);
  EXPECT_EQ(all["chosen"]["gold"]["value"], 1.0);
  EXPECT_EQ(all["chosen"]["passages"], 1.0);
  EXPECT_EQ(all["plain"]["passages"], 2.0);             // "is" and "the" are in both
  EXPECT_EQ(all["foreign_not_in_documents"], nullptr);  // there is no other set
  const Outcome table = weft({"bench", "retrieval", "-m", model(), "-f", path("data.json")});
  EXPECT_TRUE(table.out.ends_with(" | -\n")) << table.out;
  // Rows can be told apart, and a half without questions has none.
  fs::create_directories(path("more"));
  write_text(path("more/data.json"), R"([
    {"question": "Who mends the nets?", "answers": ["Bo"], "ctxs": [
      {"title": "Nets", "text": "Bo mends the nets.", "gold": true}]}])");
  fs::copy_file(path("more/data.json"), path("all.json"));
  const Outcome several = weft({"bench", "retrieval", "-m", model(), "-f", path("data.json"), "-f",
                                path("more/data.json"), "-f", path("all.json"), "--json"});
  ASSERT_EQ(several.status, 0) << several.err;
  std::vector<std::string> rows;
  const Json report = several.json();
  for (const Json& row : report["results"]) {
    rows.push_back(row["set"].get<std::string>() + " " + row["half"].get<std::string>());
  }
  const std::string first = path("data.json");
  const std::string second = path("more/data.json");
  const std::string third = path("all.json");
  EXPECT_THAT(rows, ElementsAre(first + " even", first + " odd", first + " all", second + " even",
                                second + " all", third + " even", third + " all", "all even",
                                "all odd", "all all"));
  expect_error(weft({"bench", "retrieval", "-m", model(), "-f", path("data.json"), "-f",
                     path("more/../data.json")}),
               2, "more/../data.json: the same file as");
  fs::remove(path("all.json"));
  write_text(path("data.json"),
             R"([{"question": "x", "answers": ["y"], "ctxs": [{"title": "t", "text": "x"}]}])");
  expect_error(weft({"bench", "retrieval", "-m", model(), "-f", path("data.json")}), 2,
               "example 0: no passage is marked as gold");
}

}  // namespace
}  // namespace weft
