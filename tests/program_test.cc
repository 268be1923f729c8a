// The program as its users meet it: the built `weft`, a small random model, real files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "gguf/writer.h"
#include "support/weft_program.h"

namespace weft {
namespace {

using test::Outcome;
using test::write_text;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class Cli : public test::WeftProgram {};

TEST_F(Cli, VersionAndHelp) {
  EXPECT_EQ(weft({"--version"}).out, "weft " WEFT_VERSION "\n");
  for (const char* command :
       {"generate", "ask", "ingest", "eval", "perplexity", "tokenize", "template"}) {
    const Outcome help = weft({command, "--help"});
    EXPECT_EQ(help.status, 0);
    EXPECT_THAT(help.out, HasSubstr("--model"));
  }
  for (const std::vector<std::string>& group : {std::vector<std::string>{}, {"model"}}) {
    const Outcome bare = weft(group);
    EXPECT_EQ(bare.status, 0) << bare.err;
    EXPECT_THAT(bare.out, HasSubstr("Subcommands:"));
  }
  expect_error(weft({"frob"}), 2, "no command frob; see weft --help");
  expect_error(weft({"generate", "-m", "x", "--no-such-flag"}), 2, "--no-such-flag");
  expect_error(weft({"bench", "ttft"}), 2, "--model MODEL is missing");
  expect_error(weft({"model", "rm"}), 2, "weft model rm --help");
}

TEST_F(Cli, TemplateWritesAConversation) {
  write_text(path("chat.jinja"),
             "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ extra }}\n"
             "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
             "{{ strftime_now('%A') if date }}");
  const std::string conversation =
      R"({"messages": [{"role": "user", "content": "<user>"}],
          "chat_template_kwargs": {"extra": 1}})";
  const std::string file = path("chat.jinja");
  EXPECT_EQ(weft({"template", file}, conversation).out, "<user><user>1\n<assistant>");
  EXPECT_EQ(weft({"template", file, "--no-generation-prompt", "--bos", "<s>"},
                 R"([{"role": "user", "content": "x"}])")
                .out,
            "<s><user>x\n");
  write_text(path("ends.jinja"), "{{ bos_token }}|{{ eos_token }}");
  const Outcome without =
      weft({"template", path("ends.jinja"), "--bos", "", "--eos="}, R"({"messages": []})");
  EXPECT_EQ(without.out, "|") << without.err;
  EXPECT_EQ(
      weft({"template", file, "--now", "2026-03-09"}, R"({"messages": [], "date": true})").out,
      "<assistant>Monday");
  const Json segments = weft({"template", file, "--json"}, conversation).json()["segments"];
  ASSERT_EQ(segments.size(), 3u);
  EXPECT_EQ(segments[1], (Json{{"text", "<user>1"}, {"from_input", true}}));
  expect_error(weft({"template", file}, "{\"messages\": [}"), 1, "standard input: line 1");
  expect_error(weft({"template", file}, "{}"), 1, "messages");
  write_text(path("bad.jinja"), "\n{% if %}");
  expect_error(weft({"template", path("bad.jinja")}, conversation), 1, "line 2, column 7");
  expect_error(weft({"template", model()}, conversation), 1, model());
  expect_error(weft({"template"}, conversation), 2, "weft template --help");
  expect_error(weft({"template", file, "--now", "soon"}, conversation), 2, "--now");
  expect_error(weft({"template", "-m", model()}, conversation), 1, "no chat template");
}

TEST_F(Cli, TokenizeTakesTextAsText) {
  const Outcome run = weft({"tokenize", "-m", model(), "--json"}, "Hello, world");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_FALSE(run.json()["tokens"].empty());
}

TEST_F(Cli, GenerateIsTheSameForTheSameSeed) {
  const std::vector<std::string> arguments{"generate",    "-m",         model(), "--raw",  "-p",
                                           "The harbour", "-n",         "12",    "--seed", "5",
                                           "--json",      "--logprobs", "3"};
  const Outcome first = weft(arguments);
  EXPECT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(first.json()["tokens"].size(), first.json()["logprobs"].size());
  EXPECT_EQ(first.json()["logprobs"][0]["top"].size(), 3);
  EXPECT_EQ(weft(arguments).out, first.out);
}

TEST_F(Cli, LostOutputIsAnError) {
  for (const std::string command : {"inspect", "model path"}) {
    const std::string line = "\"" WEFT_BINARY_DIR "/weft\" " + command + " \"" + model() +
                             "\" > /dev/full 2> \"" + path("err") + "\"";
    const int status = std::system(line.c_str());
    EXPECT_EQ(WEXITSTATUS(status), 1) << command;
    EXPECT_THAT(test::read_text(path("err")), HasSubstr("weft: standard output: ")) << command;
  }
}

TEST_F(Cli, GenerateGoesOnPastTheContextWhereItMay) {
  using Flags = std::vector<std::string>;
  for (const Flags& more :
       {Flags{}, Flags{"--context-shift", "--keep", "4"}, Flags{"--context-sinks", "4"}}) {
    Flags arguments{"generate", "-m", model(), "--raw", "--json", "--ignore-eos",
                    "-c",       "64", "-n",    "200",   "-p",     "Hello"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome run = weft(arguments);
    ASSERT_EQ(run.status, 0) << run.err;
    const Json json = run.json();
    EXPECT_EQ(json["stop_reason"], more.empty() ? "context" : "length");
    EXPECT_EQ(json["tokens"].size() == 200u, !more.empty());
    EXPECT_EQ(json.contains("dropped_tokens"), !more.empty());
    if (!more.empty()) {
      EXPECT_GT(json["dropped_tokens"], 200 - 64);
    }
  }
}

TEST_F(Cli, GenerateWithoutATemplateOffersRaw) {
  expect_error(weft({"generate", "-m", model(), "-p", "Hello"}), 1, "--raw");
}

TEST_F(Cli, AsksOverIngestedDocuments) {
  const Outcome ingested = ingest();
  ASSERT_EQ(ingested.status, 0) << ingested.err;
  EXPECT_THAT(ingested.out, HasSubstr("3 documents"));
  EXPECT_THAT(ingested.out, HasSubstr("3 new"));

  EXPECT_EQ(ask("When does the harbour open?").json()["chunks"][0]["title"], "Harbour");
  // Passages enough that reuse pays.
  const std::string question = "harbour orchard library shelf";
  const Outcome none = ask(question, {"--reuse", "none"});
  ASSERT_EQ(none.status, 0) << none.err;
  EXPECT_EQ(none.json()["reused_tokens"], 0);

  const Outcome blend = ask(question, {"--ratio", "0.1"});
  ASSERT_EQ(blend.status, 0) << blend.err;
  const Json report = blend.json();
  EXPECT_EQ(report["done"], "blend");
  EXPECT_EQ(report["tier"], "disk");
  EXPECT_GT(report["reused_tokens"], 0);
  EXPECT_GT(report["recomputed_tokens"], 0);
  EXPECT_EQ(report["prompt_tokens"], report["reused_tokens"].get<int>() +
                                         report["recomputed_tokens"].get<int>() +
                                         report["computed_tokens"].get<int>());
  EXPECT_EQ(ask(question, {"--ratio", "0.1"}).json()["answer"], report["answer"]);

  const Outcome full = ask(question, {"--ratio", "1"});
  EXPECT_EQ(full.json()["answer"], none.json()["answer"]);  // ratio 1 is full prefill
}

TEST_F(Cli, ComparesAllModes) {
  ASSERT_EQ(ingest().status, 0);
  const Outcome run = ask("maps in the library", {"--compare"});
  ASSERT_EQ(run.status, 0) << run.err;
  const Json modes = run.json()["modes"];
  std::vector<std::string> names;
  for (const Json& mode : modes) names.push_back(mode["mode"]);
  EXPECT_THAT(names, ::testing::ElementsAre("none", "prefix", "full", "blend"));
  EXPECT_EQ(modes[0]["answer"], modes[1]["answer"]);
  EXPECT_GT(modes[1]["reused_tokens"], 0);
}

TEST_F(Cli, AnswersQuestionsFromStandardInput) {
  ASSERT_EQ(ingest().status, 0);
  const Outcome run = weft({"ask", "-m", model(), "--store", store(), "-n", "4", "--json"},
                           "harbour?\n\nzzzunknownzzz\norchard?\n");
  EXPECT_EQ(run.status, 0) << run.err;  // that one of them matches nothing is an answer, too
  EXPECT_EQ(std::count(run.out.begin(), run.out.end(), '\n'), 3);
  EXPECT_THAT(run.out, HasSubstr(R"({"question":"zzzunknownzzz","found":false)"));
}

TEST_F(Cli, NoQuestionIsSaid) {
  ASSERT_EQ(ingest().status, 0);
  expect_error(ask(""), 2, "the question is empty");
  expect_error(ask("  "), 2, "the question is empty");
  expect_error(weft({"ask", "-m", model(), "--store", store()}, "\n \n"), 2, "no question");
}

TEST_F(Cli, IngestPicksUpChanges) {
  ASSERT_EQ(ingest().status, 0);
  EXPECT_THAT(ingest().out, HasSubstr("0 new, 0 changed, 0 completed, 0 deleted, 3 unchanged"));
  write_text(docs() + "/orchard.txt", "The orchard has quinces now.");
  std::filesystem::remove(docs() + "/library.txt");
  write_text(docs() + "/new.txt", "A lighthouse was built.");
  write_text(docs() + "/picture.bin", std::string("\x89PNG\0\0", 6));
  write_text(docs() + "/latin.txt", "a caf\xe9");
  const Outcome run = ingest();
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("2 new, 1 changed, 0 completed, 1 deleted, 1 unchanged"));
  EXPECT_THAT(run.err, HasSubstr("skipped: 1 binary (picture.bin)\n"));
  EXPECT_THAT(run.err, HasSubstr("latin.txt: read as Windows-1252 (--encoding says otherwise)\n"));
  EXPECT_EQ(ask("library maps").json()["found"], false);
  EXPECT_EQ(ask("quinces lighthouse").json()["chunks"].size(), 2);
  // The old documents' records are gone: the folder holds what a fresh one would.
  const auto records = [](const std::string& dir) {
    return weft({"cache", "stat", "--store", dir, "--json"}).json()["records"].get<int>();
  };
  const std::string fresh = path("fresh");
  ASSERT_EQ(weft({"ingest", "-m", model(), "--store", fresh, docs()}).status, 0);
  EXPECT_EQ(records(store()), records(fresh));
  std::filesystem::remove_all(fresh);
}

TEST_F(Cli, IngestSaysWhatItSkipsInGroups) {
  std::filesystem::remove_all(docs());
  std::filesystem::create_directories(docs() + "/node_modules");
  write_text(docs() + "/one.txt", "short");  // a text that fits into a string itself
  write_text(docs() + "/.gitignore", "*.log\n");
  write_text(docs() + "/a.log", "x");
  write_text(docs() + "/a.pdf", "%PDF-1.4\n");
  for (const char* name : {"a.png", "b.png", "c.png", "d.png"}) {
    write_text(docs() + "/" + name, std::string("\x89PNG\r\n\x1a\n\0\0", 10));
    write_text(docs() + "/" + name + ".txt", "gr\xfc\xdf von hier");
  }
  std::filesystem::create_symlink("nowhere", docs() + "/x");
  const Outcome run = ingest();
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.err,
            "weft: 4 files read as Windows-1252 (a.png.txt, b.png.txt, c.png.txt, …; --encoding "
            "says otherwise)\n"
            "weft: skipped: 1 by .gitignore, 1 hidden, 1 node_modules, 1 PDF (a.pdf), 1 broken "
            "link (x), 4 images (a.png, b.png, c.png, …)\n");
  EXPECT_THAT(run.out, HasSubstr("ingesting 5 documents, 5 chunks, "));
  EXPECT_THAT(run.out, HasSubstr("\n5 new, 0 changed, 0 completed, 0 deleted, 0 unchanged "
                                 "documents; 9 skipped\n"));
  EXPECT_EQ(weft({"cache", "verify", "--store", store()}).status, 0);

  // One line for each on demand, and for what was named.
  const Outcome all = ingest({"--verbose"});
  EXPECT_THAT(all.err, HasSubstr("/a.log: skipped, .gitignore says so\n"));
  EXPECT_THAT(all.err, HasSubstr("/d.png: skipped, an image (PNG)\n"));
  EXPECT_THAT(weft({"ingest", "-m", model(), "--store", store(), docs() + "/a.pdf"}).err,
              ::testing::StartsWith("weft: " + docs() +
                                    "/a.pdf: skipped, a PDF: weft reads text; pdftotext makes text "
                                    "of it\nweft: "));

  // Skipped now, and so not a document any longer; --exclude takes one value each time.
  const Outcome fewer = weft({"ingest", "-m", model(), "--store", store(), "--exclude", "b.*",
                              "--exclude", "c.*", docs()});
  EXPECT_THAT(fewer.out, HasSubstr("2 deleted (2 of them skipped now), 3 unchanged documents"));
  const Json json = ingest({"--json", "--no-ignore"}).json();
  EXPECT_EQ(json["new"], 3);
  EXPECT_EQ(json["unchanged"], 3);
  EXPECT_EQ(json["n_skipped"], 8);
  EXPECT_EQ(json["skipped"][0]["path"], docs() + "/.gitignore");
  EXPECT_EQ(json["skipped"][0]["reason"], "hidden: name it to have it");
  EXPECT_EQ(json["guesses"].size(), 2u);
}

TEST_F(Cli, IngestReadsHtmlFrontMatterAndEncodings) {
  std::filesystem::remove_all(docs());
  std::filesystem::create_directories(docs());
  write_text(docs() + "/page.html",
             "<title>The &quot;pier&quot;</title><script>zeppelin</script><p>Oak &amp; iron.");
  write_text(docs() + "/note.md",
             "---\ntitle: Quay\ntags: [masonry]\n---\n# Other\n\nThe quay is of stone.");
  write_text(docs() + "/old.txt", "Das M\xfchlrad dreht sich.");
  write_text(docs() + "/long.txt", "# " + filler(300));
  ASSERT_EQ(ingest().status, 0);
  const auto title_of = [&](const std::string& question) {
    return ask(question).json()["chunks"][0]["title"].get<std::string>();
  };
  EXPECT_EQ(title_of("oak iron"), "The \"pier\"");
  EXPECT_EQ(title_of("stone"), "Quay");
  EXPECT_EQ(title_of("masonry"), "Quay");
  EXPECT_EQ(title_of("M\u00fchlrad"), "old");
  EXPECT_EQ(title_of("item"), "long");  // a line that is too long for a heading
  EXPECT_EQ(ask("zeppelin").json()["found"], false);
  expect_error(ingest({"--encoding", "latin-2"}), 2,
               "--encoding: 'latin-2': must be one of utf-8, utf-16, utf-16le, utf-16be, latin-1, "
               "windows-1252");
  EXPECT_THAT(ingest({"--encoding", "latin1"}).out, HasSubstr("1 changed"));
}

TEST_F(Cli, APathThatIsGoneDeletesNothing) {
  ASSERT_EQ(ingest().status, 0);
  std::filesystem::rename(docs(), path("moved"));
  expect_error(ingest(), 1,
               docs() + " does not exist; `weft docs rm --store " + store() + " " + docs() +
                   "` takes its 3 documents out");
  std::filesystem::rename(path("moved"), docs());
  EXPECT_THAT(ingest().out, HasSubstr("3 unchanged"));
}

TEST_F(Cli, ARecordLivesAsLongAsOneDocumentHasItsPassage) {
  const auto records = [&] {
    return weft({"cache", "stat", "--store", store(), "--json"}).json()["records"].get<int>();
  };
  const std::string text = "# Pier\n\nThe pier is made of oak.";
  std::filesystem::remove_all(docs());
  std::filesystem::create_directories(docs());
  write_text(docs() + "/a.md", text);
  ASSERT_EQ(ingest().status, 0);
  write_text(docs() + "/b.md", text);
  ASSERT_EQ(ingest().status, 0);
  ASSERT_EQ(records(), 1);
  std::filesystem::remove(docs() + "/a.md");
  EXPECT_THAT(ingest().out, HasSubstr("1 deleted"));
  EXPECT_EQ(records(), 1);
  write_text(docs() + "/b.md", "# Pier\n\nThe pier is made of stone.");
  EXPECT_THAT(ingest().out, HasSubstr("1 changed"));
  EXPECT_EQ(records(), 1);
  std::filesystem::remove(docs() + "/b.md");
  EXPECT_THAT(ingest().out, HasSubstr("1 deleted"));
  EXPECT_EQ(records(), 0);
}

TEST_F(Cli, IngestRestoresRecordsThatWereRemoved) {
  ASSERT_EQ(ingest().status, 0);
  const Json before = weft({"cache", "stat", "--store", store(), "--json"}).json();
  ASSERT_EQ(weft({"cache", "rm", "--store", store(), "--all"}).status, 0);
  EXPECT_THAT(ingest().out, HasSubstr("3 completed"));
  EXPECT_EQ(weft({"cache", "stat", "--store", store(), "--json"}).json()["records"],
            before["records"]);
  EXPECT_THAT(ingest().out, HasSubstr("3 unchanged"));
}

TEST_F(Cli, AStoreIsNoFolderOfDocuments) {
  expect_error(weft({"ingest", "-m", model(), "--store", docs(), docs()}), 2,
               "a folder of its own");
  EXPECT_FALSE(std::filesystem::exists(docs() + "/properties"));
}

TEST_F(Cli, AStoreLimitStopsIngestAndLeavesAUsableStore) {
  const Outcome run = ingest({"--store-limit", "200KB"});
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("stopped at"));
  EXPECT_EQ(ask("harbour").status, 0);
  // The limit that is named holds the rest.
  std::smatch limit;
  ASSERT_TRUE(std::regex_search(run.err, limit,
                                std::regex("; --store-limit ([0-9.]+[KMG]B) holds all of it\n")))
      << run.err;
  const Outcome resumed = ingest({"--store-limit", limit[1].str()});
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("completed"));
}

TEST_F(Cli, ADamagedRecordIsAMissAndNeverAWrongAnswer) {
  ASSERT_EQ(ingest().status, 0);
  const std::vector<std::string> flags{"--ratio", "0.1", "--chunks", "3"};
  const Json before = ask("harbour orchard library", flags).json();
  ASSERT_EQ(before["done"], "blend");
  int damaged = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(store())) {
    if (entry.path().extension() != ".chunk") continue;
    std::string bytes = test::read_text(entry.path().string());
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    write_text(entry.path().string(), bytes);
    ++damaged;
  }
  ASSERT_GT(damaged, 2);
  const Outcome verify = weft({"cache", "verify", "--store", store()});
  EXPECT_EQ(verify.status, 1);
  const Outcome after = ask("harbour orchard library", flags);
  EXPECT_EQ(after.status, 0);
  EXPECT_EQ(after.json()["answer"], before["answer"]);
  EXPECT_THAT(after.err, HasSubstr("warning"));
  const Json notes = after.json()["notes"];
  EXPECT_FALSE(notes.empty());
  for (const Json& note : notes) EXPECT_THAT(note.get<std::string>(), HasSubstr("computed anew"));
  const Json again = ask("harbour orchard library", flags).json();  // from the new records
  EXPECT_EQ(again["answer"], before["answer"]);
  EXPECT_EQ(again["tier"], "disk");
}

TEST_F(Cli, AnotherModelIsToldThatTheStoreHasNothingForIt) {
  ASSERT_EQ(ingest().status, 0);
  expect_error(weft({"ask", "-m", other_model(), "--store", store(), "harbour"}), 2,
               "nothing here for");
}

TEST_F(Cli, AnotherAnchorNeedsAnotherFolder) {
  ASSERT_EQ(ingest({"--anchor", "none"}).status, 0);
  expect_error(ingest({"--anchor", "neutral"}), 2, "anchor 'none'");
  EXPECT_EQ(ingest().status, 0);  // without the flag: the folder's own
}

TEST_F(Cli, BadInputGetsOneLine) {
  write_text(path("bad.gguf"), "GGUF and nothing else");
  expect_error(weft({"generate", "-m", path("bad.gguf"), "-p", "x"}), 1, "bad.gguf");
  expect_error(weft({"generate", "-m", "no-such-model", "-p", "x"}), 1, "no-such-model");
  expect_error(weft({"generate", "-m", model()}), 2, "no prompt");
  expect_error(weft({"generate", "-m", model(), "--keep", "3", "x"}), 2, "--keep goes with");
  expect_error(weft({"generate", "-m", model(), "--context-shift", "--keep", "-1", "x"}), 2,
               "--keep -1: must be");
  expect_error(weft({"generate", "-m", model(), "--context-shift", "--context-sinks", "4", "x"}), 2,
               "do not go together");
  expect_error(weft({"generate", "-m", model(), "--context-shift", "--parallel", "2", "x"}), 2,
               "do not go together");
  expect_error(weft({"generate", "-m", model(), "-p", "x", "-f", "y"}), 2, "--file");
  expect_error(weft({"ask", "-m", model(), "--store", path("nowhere"), "x"}), 1, "nowhere");
  expect_error(weft({"cache", "ls", "--store", path("nowhere")}), 1, "nowhere");
  expect_error(weft({"ingest", "-m", model(), "--store", store(), path("missing")}), 1, "missing");
  EXPECT_FALSE(std::filesystem::exists(store()));
  expect_error(weft({"generate", "-m", model(), "--raw", "-p", "x", "--compute", "f64"}), 2, "f64");
  expect_error(weft({"generate", "-m", model(), "--raw", "-p", "x", "--temp", "-1"}), 2, "temp");
  expect_error(weft({"generate", "-m", folder_->path(), "-p", "x"}), 1, "a folder");
  expect_error(weft({"quantize", "no-such-model", path("out.gguf"), "Q8_0"}), 1, "no-such-model");
  expect_error(ingest({"--store-limit", "0"}), 2, "--store-limit");
  expect_error(ingest({"--store-limit", "-1GB"}), 2,
               "--store-limit -1GB: must be a number of bytes");
  expect_error(ingest({"--memory-limit", "-5"}), 2, "--memory-limit -5: must be a number of bytes");
  expect_error(ingest({"--memory-limit", "5XB"}), 2, "--memory-limit 5XB: must be");
  expect_error(weft({"generate", "-m", model(), "-p", "x", "--seed", "-1"}), 2,
               "--seed -1: must be a whole number from 0 to 18446744073709551615; for a "
               "random one --seed $RANDOM");
  expect_error(weft({"generate", "-m", model(), "-p", "x", "-t", "0"}), 2, "--threads");
  expect_error(weft({"generate", "-m", "", "-p", "x"}), 2, "--model: must not be empty");
  EXPECT_FALSE(std::filesystem::exists(store()));
  ASSERT_EQ(ingest().status, 0);
  expect_error(ask("harbour", {"--ratio", "2"}), 2, "--ratio 2: must be a number from 0 to 1");
  expect_error(ask("harbour", {"--selector", "v-deviation", "--check", "0:0.1"}), 2, "layer 0");
  const Json checked = ask("harbour orchard library shelf", {"--selector", "v-deviation", "--check",
                                                             "1:0.2,3:0.1", "--ratio", "0.9"})
                           .json();
  EXPECT_EQ(checked["done"], "blend");
  EXPECT_EQ(checked["ratio"], 0.1);
  // Layers that the model does not have, whatever is chosen and whether passages are found.
  const std::string questions = path("questions.json");
  write_text(questions, R"([{"question": "When?", "answers": ["seven"],)"
                        R"( "ctxs": [{"title": "a", "text": "The harbour opens at seven."}]}])");
  for (const char* check : {"6:0.3", "2147483647:0.3", "1:0.3,1:0.2", "1:0.2,2:0.3"}) {
    const std::vector<std::string> bad{"--selector", "v-deviation", "--check", check};
    const auto refused = [&](std::vector<std::string> arguments) {
      arguments.insert(arguments.end(), bad.begin(), bad.end());
      expect_error(weft(arguments), 2, "weft: --check: check ");
    };
    for (const char* mode : {"none", "blend"}) {
      refused({"ask", "-m", model(), "--store", store(), "--reuse", mode, "harbour"});
    }
    refused({"ask", "-m", model(), "--store", store(), "zeppelin"});
    refused({"chat", "-m", model(), "--store", store()});
    refused({"eval", "-m", model(), "-f", questions});
    refused({"bench", "ttft", "-m", model(), "--chunks", "1", "--chunk-tokens", "8"});
  }
  expect_error(weft({"template", "", "-m", model()}, "[]"), 2, "FILE: must not be empty");
  expect_error(ask("harbour", {"--reuse", "some"}), 2,
               "--reuse some: must be none, prefix, full or blend");
  expect_error(ask("harbour", {"-c", "40"}), 1, "context of 40");
}

TEST_F(Cli, FilesThatAreNoWholeModelSayWhatTheyAre) {
  const std::string bytes = test::read_text(model());
  write_text(path("half.gguf"), bytes.substr(0, bytes.size() / 2));
  expect_error(weft({"generate", "-m", path("half.gguf"), "-p", "x"}), 1, "it is incomplete");
  const auto whole = gguf::File::open(posix_env(), model());
  ASSERT_TRUE(whole.is_ok());
  gguf::HeaderBuilder header;
  for (const auto& [key, value] : (*whole)->metadata()) header.add_value(key, value);
  write_text(path("vocab.gguf"), header.bytes());
  expect_error(weft({"generate", "-m", path("vocab.gguf"), "-p", "x"}), 1,
               "a vocabulary without weights");
  EXPECT_EQ(weft({"tokenize", "-m", path("vocab.gguf")}, "x").status, 0);
}

TEST_F(Cli, RecordsAreRemovedAndCounted) {
  ASSERT_EQ(ingest().status, 0);
  const Json records = weft({"cache", "ls", "--store", store(), "--json"}).json()["records"];
  ASSERT_GT(records.size(), 2u);
  const Json one =
      weft({"cache", "rm", "--store", store(), "--json", records[0]["hash"].get<std::string>()})
          .json();
  EXPECT_EQ(one["removed"], 1);
  EXPECT_EQ(one["freed_bytes"], records[0]["bytes"]);
  const Outcome rest = weft({"cache", "rm", "--store", store(), "--all"});
  EXPECT_EQ(rest.out.find(std::to_string(records.size() - 1) + " records removed"), 0u);
}

TEST_F(Cli, AShortContextTakesFewerChunks) {
  ASSERT_EQ(ingest().status, 0);
  const Json report = ask("harbour orchard library shelf", {"-c", "1300"}).json();
  EXPECT_LT(report["chunks"].size(), 4);
  EXPECT_FALSE(report["notes"].empty());
}

TEST_F(Cli, BenchmarksReportAsJson) {
  const Json ttft = weft({"bench", "ttft", "-m", model(), "--chunks", "3", "--chunk-tokens", "64",
                          "--question-tokens", "12", "--repeat", "2", "--json"})
                        .json();
  EXPECT_GT(ttft["modes"]["blend"]["ttft_ms"]["median"], 0);
  EXPECT_GT(ttft["modes"]["none"]["ttft_ms"]["median"], 0);
  const Json speed = weft({"bench", "speed", "-m", model(), "-p", "64,96", "-n", "4", "-d", "32",
                           "--repeat", "1", "--json"})
                         .json();
  EXPECT_EQ(speed["prefill"][1]["tokens"], 96);
  EXPECT_EQ(speed["decode"]["depth"], 32);
  EXPECT_GT(speed["decode"]["tokens_per_s"]["median"], 0);
  const Json load =
      weft({"bench", "load", "-m", model(), "-c", "128", "--repeat", "2", "--cold", "--json"})
          .json();
  EXPECT_GT(load["first_token_ms"]["min"], 0.0);
  EXPECT_GE(load["exit_ms"]["max"], load["first_token_ms"]["max"]);
  EXPECT_EQ(load["file_bytes"], std::filesystem::file_size(model()));
  EXPECT_GT(load["peak_bytes"], load["kv_bytes"]);
}

// Without a model. By default a layer's pages come in pieces of 2 MB, which is why a tenth may be
// resident beside what is used.
TEST_F(Cli, BenchKvGivesBackWhatHalfOfTheSequencesHad) {
  const Json kv = weft({"bench", "kv", "--operations", "20000", "--json"}).json();
  EXPECT_EQ(kv["contents_equal"], true);
  const Json& freed = kv["freed"];
  const Json& compacted = kv["compacted"];
  const auto used_bytes = compacted["used_bytes"].get<double>();
  EXPECT_GT(used_bytes, 0);
  EXPECT_EQ(freed["used_bytes"], compacted["used_bytes"]);
  EXPECT_GT(freed["resident_bytes"].get<double>(), 1.2 * used_bytes);
  EXPECT_LE(compacted["resident_bytes"].get<double>(), 1.1 * used_bytes);
  EXPECT_GT(kv["operations"]["remove"], 1000);
  EXPECT_GT(kv["compacting"]["moved_pages"], 0);

  const Outcome table = weft({"bench", "kv", "--operations", "500", "--layers", "2", "-c", "4096"});
  EXPECT_EQ(table.status, 0) << table.err;
  EXPECT_NE(table.out.find("contents equal"), std::string::npos) << table.out;
  expect_error(weft({"bench", "kv", "--head-dim", "63"}), 2,
               "--head-dim 63: must be a multiple of 8, at most 256");
  expect_error(weft({"bench", "kv", "--layers", "256", "--kv-heads", "256"}), 2,
               "a cache of 1100 GB: at most 8 are filled");
  expect_error(weft({"bench", "kv", "--operations", "0"}), 2, "--operations");
}

TEST_F(Cli, QuantizeWritesAModelThatRuns) {
  const Outcome run = weft({"quantize", model(), path("q8.gguf"), "q8_0", "-t", "2", "--json"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "");  // no progress bar but on a terminal
  EXPECT_EQ(run.json()["type"], "Q8_0");
  EXPECT_EQ(run.json()["bytes_out"], std::filesystem::file_size(path("q8.gguf")));
  EXPECT_LT(run.json()["bytes_out"], run.json()["bytes_in"]);
  EXPECT_EQ(weft({"generate", "-m", path("q8.gguf"), "--raw", "-p", "The", "-n", "2"}).status, 0);
  expect_error(weft({"quantize", model(), path("q.gguf"), "Q9"}), 2, "type Q9: must be F32");
  expect_error(weft({"quantize", model(), model(), "Q8_0"}), 2, "is the file to be read");
  expect_error(weft({"quantize", path("none.gguf"), path("q.gguf"), "Q8_0"}), 1, "none.gguf");
  for (const auto& entry : std::filesystem::directory_iterator(folder_->path())) {
    EXPECT_NE(entry.path().extension(), ".tmp");
  }
  std::filesystem::remove(path("q8.gguf"));
}

TEST_F(Cli, EvalComparesModes) {
  Json data = Json::array();
  for (int i = 0; i < 2; ++i) {
    data.push_back(
        {{"question", "Which item?"},
         {"answers", {"seven"}},
         {"ctxs",
          {{{"title", "A"}, {"text", filler(12)}}, {{"title", "B"}, {"text", filler(9)}}}}});
  }
  write_text(path("data.json"), data.dump());
  const Json report = weft({"eval", "-m", model(), "-f", path("data.json"), "--modes",
                            "none,full,blend", "--ratio", "1", "--json"})
                          .json();
  EXPECT_EQ(report["examples"], 2);
  EXPECT_EQ(report["modes"]["none"]["kl"], 0);
  EXPECT_GT(report["modes"]["full"]["kl"], 0);
  EXPECT_EQ(report["modes"]["blend"]["recomputed_share"], 1);
  EXPECT_LT(report["modes"]["blend"]["kl"], report["modes"]["full"]["kl"]);
  write_text(path("data.json"), "[{\"question\": 3}]");
  expect_error(weft({"eval", "-m", model(), "-f", path("data.json")}), 1, "'question'");
}

TEST_F(Cli, PerplexityOfRandomWeightsIsNearTheVocabulary) {
  write_text(path("text.txt"), filler(200));
  const Json report =
      weft({"perplexity", "-m", model(), "-f", path("text.txt"), "-c", "256", "--json"}).json();
  EXPECT_GT(report["tokens"], 100);
  EXPECT_GT(report["perplexity"], 10);
}

TEST_F(Cli, InspectShowsModelsAndRecords) {
  EXPECT_EQ(weft({"inspect", model(), "--json"}).json()["metadata"]["general.architecture"],
            "llama");
  ASSERT_EQ(ingest().status, 0);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(store())) {
    if (entry.path().extension() != ".chunk") continue;
    EXPECT_EQ(weft({"inspect", entry.path().string(), "--json"}).json()["layers"], 6);
  }
}

}  // namespace
}  // namespace weft
