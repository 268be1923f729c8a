// What people who know llama.cpp, Ollama and git expect of the command line, and what they get.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "support/terminal.h"
#include "support/weft_program.h"

namespace weft {
namespace {

using test::Outcome;
using test::write_text;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Habits : public test::WeftProgram {
 protected:
  static std::vector<std::string> generate(std::vector<std::string> more) {
    std::vector<std::string> arguments{"generate", "-m", model(), "--raw", "--compute",
                                       "f32",      "-t", "1",     "-n",    "12"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static Outcome with_variables(const std::vector<std::pair<const char*, std::string>>& variables,
                                std::vector<std::string> arguments, const std::string& input = "") {
    return finish(start(std::move(arguments), input, "", [variables] {
      for (const auto& [name, value] : variables) setenv(name, value.c_str(), 1);
    }));
  }
};

TEST_F(Habits, APromptComesAsWordsAFileOrAPipe) {
  const std::string wanted = weft(generate({"-p", "The harbour opens"})).out;
  ASSERT_THAT(wanted, Not(IsEmpty()));
  EXPECT_EQ(weft(generate({"The harbour opens"})).out, wanted);
  EXPECT_EQ(weft(generate({"The", "harbour", "opens"})).out, wanted);
  EXPECT_EQ(weft({"generate", "The", "-m", model(), "harbour", "--raw", "--compute", "f32", "-t",
                  "1", "opens", "-n", "12"})
                .out,
            wanted);
  EXPECT_EQ(weft(generate({}), "The harbour opens").out, wanted);
  EXPECT_EQ(weft(generate({}), "The harbour opens\n").out, wanted);
  EXPECT_EQ(weft(generate({"-f", "-"}), "The harbour opens\r\n").out, wanted);
  write_text(path("prompt.txt"), "The harbour opens\n");
  EXPECT_EQ(weft(generate({"-f", path("prompt.txt")})).out, wanted);
  EXPECT_NE(weft(generate({"-f", "-"}), "The harbour opens\n\n").out, wanted);
  // What begins with a dash is a prompt after -p or --.
  EXPECT_EQ(weft(generate({"-p", "-x"})).out, weft(generate({"--", "-x"})).out);
  EXPECT_EQ(weft(generate({"--prompt=-x"})).out, weft(generate({"--", "-x"})).out);
  EXPECT_EQ(weft(generate({"- item"})).status, 0);
  EXPECT_EQ(weft(generate({"[a]"})).out, weft(generate({"-p", "[a]"})).out);
}

TEST_F(Habits, APromptThatIsMissingTwiceOrHostileIsALine) {
  expect_error(weft(generate({})), 2, "no prompt");
  expect_error(weft(generate({"-f", "-"})), 2, "the prompt is empty");
  expect_error(weft(generate({"-p", ""})), 2, "the prompt is empty");
  expect_error(weft(generate({""})), 2, "the prompt is empty");
  expect_error(weft(generate({"-p", "x", "y"})), 2, "give one");
  expect_error(weft(generate({"-f", "-", "y"})), 2, "give one");
  expect_error(weft(generate({"-f", "-", "-p", "y"})), 2, "give one");
  expect_error(weft(generate({}), std::string(size_t{65} << 20, 'x')), 1, "over the limit of");
  // What is not counted to its end is not given a number.
  expect_error(weft(generate({"-c", "64"}), std::string(100'000, 'x')), 1,
               "the prompt (more than 2048 tokens) does not fit the context of 64 tokens: shorten "
               "it, the model holds 2048 at most, and four times as many with --grp-attn-n 4");
  // Bytes are bytes: NUL and what is no UTF-8 are tokens like others.
  EXPECT_EQ(weft(generate({}), std::string("a\0b", 3)).status, 0);
  EXPECT_NE(weft(generate({}), std::string("a\0b", 3)).out, weft(generate({"ab"})).out);
  EXPECT_EQ(weft(generate({"\xff\xfe\xc3"})).status, 0);
  test::Terminal terminal(folder_->path(), generate({}));
  EXPECT_TRUE(terminal.shows("no prompt"));
  EXPECT_EQ(terminal.exit_status(), 2);
}

TEST_F(Habits, AStopTextEndsTheAnswerAndIsNotPrinted) {
  const std::string whole = weft(generate({"-n", "40", "The"})).out;
  ASSERT_GT(whole.size(), 20u);
  // Over several tokens, as random weights make them: from the middle of the answer.
  const std::string stop = whole.substr(whole.size() / 2, 6);
  const size_t at = whole.find(stop);
  const Outcome run =
      weft(generate({"-n", "40", "--json", "--stop", "never said", "--stop", stop, "The"}));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_EQ(run.json()["stop_reason"], "stop");
  EXPECT_EQ(weft(generate({"-n", "40", "--stop", stop, "The"})).out, whole.substr(0, at) + "\n");
  EXPECT_EQ(weft(generate({"-n", "40", "--stop=[END]", "The"})).out, whole);
  expect_error(weft(generate({"--stop", "", "x"})), 2, "--stop: must not be empty");
  std::vector<std::string> many = generate({"x"});
  for (int i = 0; i < 65; ++i) many.insert(many.end(), {"--stop", std::to_string(i)});
  expect_error(weft(many), 2, "65 texts; at most 64");
  // Nothing was said before it.
  const Outcome none = weft(generate({"--stop", whole.substr(0, 1), "The"}));
  EXPECT_EQ(none.out, "\n");
  EXPECT_EQ(none.err, "weft: the model gave an empty answer\n");
}

TEST_F(Habits, TokensWhoseTextAStopTextCutsAreAmongTheTokens) {
  const std::string whole = weft(generate({"-n", "40", "The"})).out;
  const auto all = weft(generate({"-n", "40", "--json", "The"})).json()["tokens"];
  const size_t at = whole.size() / 2;
  const Outcome run = weft(generate({"-n", "40", "--json", "--stop", whole.substr(at, 6), "The"}));
  ASSERT_EQ(run.json()["stop_reason"], "stop") << run.err;
  const auto tokens = run.json()["tokens"];
  ASSERT_LT(tokens.size(), all.size());
  for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(tokens[i], all[i]);
  // All but the one that completed it: what they say goes beyond the text.
  const std::string said = weft(generate({"-n", std::to_string(tokens.size()), "The"})).out;
  EXPECT_TRUE(said.starts_with(whole.substr(0, at)));
  EXPECT_GT(said.size(), at + 1);
  const std::string more = weft(generate({"-n", std::to_string(tokens.size() + 1), "The"})).out;
  EXPECT_THAT(more.substr(at), HasSubstr(whole.substr(at, 6)));
}

TEST_F(Habits, AnEmptyTextOfAFlagIsRefused) {
  const std::vector<std::string> generate_x = generate({"x"});
  const std::vector<std::string> chat{"chat", "-m", model()};
  const std::vector<std::string> ask{"ask", "-m", model(), "--store", store(), "x"};
  const std::vector<std::string> ingest{"ingest", "-m", model(), "--store", store(), docs()};
  const std::vector<std::string> eval{"eval", "-m", model(), "-f", path("questions.json")};
  const std::vector<std::string> ttft{"bench", "ttft", "-m", model()};
  const struct {
    const std::vector<std::string>& command;
    std::string flag;
  } cases[] = {
      {chat, "--store"},   {chat, "--save"},         {chat, "--load"},       {chat, "--model"},
      {ask, "--store"},    {ask, "--check"},         {ask, "--ratio"},       {ask, "--reuse"},
      {ask, "--prompt"},   {ingest, "--anchor"},     {ingest, "--encoding"}, {ingest, "--exclude"},
      {ingest, "--store"}, {eval, "--details"},      {eval, "--modes"},      {ttft, "--check"},
      {ttft, "--modes"},   {ttft, "--write-tokens"}, {generate_x, "--file"}, {generate_x, "--stop"},
  };
  for (const auto& [command, flag] : cases) {
    for (const std::vector<std::string>& given :
         {std::vector<std::string>{flag, ""}, {flag + "="}}) {
      std::vector<std::string> arguments = command;
      arguments.insert(arguments.end(), given.begin(), given.end());
      expect_error(weft(arguments), 2, "weft: " + flag + ": must not be empty\n");
    }
  }
  expect_error(weft({"chat", "-m="}), 2, "weft: --model: must not be empty\n");
  EXPECT_FALSE(std::filesystem::exists(store()));
  // An empty text that means something, and a variable, which is not set then.
  EXPECT_EQ(weft({"chat", "-m", model(), "-s", ""}).err.find("must not be empty"),
            std::string::npos);
  EXPECT_THAT(with_variables({{"WEFT_MODEL", ""}}, {"generate", "x"}).err,
              HasSubstr("WEFT_MODEL is not set"));
}

TEST_F(Habits, HelpSaysForHowLongTheStoreLimitHolds) {
  EXPECT_THAT(weft({"ingest", "--help"}).out, HasSubstr("during this command"));
}

TEST_F(Habits, WhatALimitCutsSaysSoOnStandardError) {
  const Outcome cut = weft(generate({"The"}));
  EXPECT_EQ(cut.status, 0);
  EXPECT_EQ(cut.err, "weft: 12 tokens: the limit (-n); -n -1 goes on to the end\n");
  // Of what has no other end, there is none to go on to.
  EXPECT_EQ(weft(generate({"The", "--ignore-eos", "--context-shift"})).err,
            "weft: 12 tokens: the limit (-n); -n -1 goes on until Ctrl-C\n");
  EXPECT_THAT(cut.out, Not(HasSubstr("limit")));
  const Outcome full = weft(generate({"-c", "64", "-n", "-1", "--ignore-eos", "--json", "The"}));
  EXPECT_EQ(full.json()["stop_reason"], "context");
  EXPECT_GE(full.json()["tokens"].size(), 60u);
  EXPECT_EQ(full.err, "");  // stop_reason says it
  EXPECT_EQ(weft(generate({"-c", "64", "-n", "-1", "--ignore-eos", "The"})).err,
            "weft: the context of 64 tokens is full: the text ends here (-c)\n");
  EXPECT_EQ(weft(generate({"-q", "The"})).err, "");
  EXPECT_EQ(weft(generate({"--n-predict", "3", "--json", "The"})).json()["tokens"].size(), 3u);
  EXPECT_EQ(weft(generate({"-n3", "--json", "The"})).json()["tokens"].size(), 3u);
}

TEST_F(Habits, PenaltiesChangeWhatIsSaid) {
  const auto tokens = [](std::vector<std::string> more) {
    std::vector<std::string> arguments = generate({"-n", "60", "--ignore-eos", "--json", "The"});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return weft(arguments).json()["tokens"].get<std::vector<int>>();
  };
  const auto different = [](std::vector<int> ids) {
    std::ranges::sort(ids);
    return std::distance(ids.begin(), std::ranges::unique(ids).begin());
  };
  const std::vector<int> plain = tokens({});
  EXPECT_EQ(tokens({"--repeat-penalty", "1", "--presence-penalty", "0"}), plain);
  EXPECT_EQ(tokens({"--repeat-penalty", "50", "--repeat-last-n", "0"}), plain);
  ASSERT_LT(different(plain), 60);
  EXPECT_EQ(different(tokens({"--repeat-penalty", "100", "--repeat-last-n", "-1"})), 60);
  EXPECT_GT(different(tokens({"--frequency-penalty", "2"})), different(plain));
}

TEST_F(Habits, VariablesNameTheModelAndTheStore) {
  const std::vector<std::pair<const char*, std::string>> both{{"WEFT_MODEL", model()},
                                                              {"WEFT_STORE", store()}};
  const std::vector<std::string> prompt{"generate", "--raw", "-n", "4", "The"};
  const std::string wanted = weft({"generate", "-m", model(), "--raw", "-n", "4", "The"}).out;
  EXPECT_EQ(with_variables(both, prompt).out, wanted);
  expect_error(weft(prompt), 2,
               "--model MODEL is missing, and WEFT_MODEL is not set; weft model "
               "ls");
  expect_error(with_variables({{"WEFT_MODEL", ""}}, prompt), 2, "--model MODEL is missing");
  expect_error(with_variables({{"WEFT_MODEL", path("gone.gguf")}}, prompt), 1, "WEFT_MODEL: ");
  // The flag wins.
  EXPECT_EQ(with_variables({{"WEFT_MODEL", path("gone.gguf")}},
                           {"generate", "-m", model(), "--raw", "-n", "4", "The"})
                .out,
            wanted);
  ASSERT_EQ(with_variables(both, {"ingest", docs()}).status, 0);
  EXPECT_EQ(with_variables(both, {"cache", "ls"}).status, 0);
  // One that is not the store's is named with its variable, and -m without it.
  const std::vector<std::pair<const char*, std::string>> other{{"WEFT_MODEL", other_model()},
                                                               {"WEFT_STORE", store()}};
  expect_error(with_variables(other, {"ask", "harbour"}), 2, ": nothing here for WEFT_MODEL, ");
  expect_error(with_variables(other, {"chat", "--store", store()}, "harbour\n"), 2,
               ": nothing here for WEFT_MODEL, ");
  expect_error(with_variables(other, {"ingest", docs()}), 2, ": nothing here for WEFT_MODEL, ");
  const Outcome by_flag = with_variables(both, {"ask", "-m", other_model(), "harbour"});
  expect_error(by_flag, 2, ": nothing here for ");
  EXPECT_EQ(by_flag.err.find("WEFT_MODEL"), std::string::npos) << by_flag.err;
  const Outcome asked =
      with_variables(both, {"ask", "-n", "4", "--json", "when", "does", "the", "harbour", "open?"});
  EXPECT_EQ(asked.status, 0) << asked.err;
  EXPECT_EQ(asked.json()["question"], "when does the harbour open?");
  expect_error(with_variables({{"WEFT_MODEL", model()}}, {"ask", "x"}), 2,
               "--store DIR is missing, and WEFT_STORE is not set");
  EXPECT_EQ(with_variables(both, {"tokenize", "--json"}, "x").status, 0);
  write_text(path("chat.jinja"), "{{ messages[0].content }}");
  const std::string turn = R"([{"role":"user","content":"hi"}])";
  EXPECT_EQ(with_variables(both, {"template", path("chat.jinja")}, turn).out, "hi");
  expect_error(with_variables(both, {"template"}, turn), 1, "has no chat template");
}

TEST_F(Habits, TheStoreThatAFlagNamesIsTakenInEveryCommand) {
  ASSERT_EQ(ingest().status, 0);
  const std::string other = path("other-store");
  const auto n_records = [](const std::string& dir) {
    return weft({"cache", "stat", "--json", "--store", dir}).json()["records"].get<int>();
  };
  const int before = n_records(store());
  ASSERT_GT(before, 0);
  const std::vector<std::vector<std::string>> commands{
      {"cache", "ls"},
      {"cache", "stat"},
      {"cache", "verify"},
      {"cache", "gc"},
      {"docs", "ls"},
      {"docs", "rm", docs()},
      {"cache", "rm", "--all"},
      {"cache", "verify", "--repair"},
      {"ask", "-n", "1", "-m", model(), "harbour"}};
  for (const auto& command : commands) {
    SCOPED_TRACE(::testing::PrintToString(command));
    const auto with = [&](const std::string& variable, const std::string& flag, size_t place) {
      std::vector<std::string> arguments = command;
      arguments.insert(arguments.begin() + static_cast<std::ptrdiff_t>(place), {"--store", flag});
      return with_variables({{"WEFT_STORE", variable}}, arguments);
    };
    const size_t first = command.front() == "ask" ? 1 : 2;
    for (const size_t place : {first, command.size()}) {
      // The variable's store is none: what names it fails.
      std::filesystem::remove_all(other);
      std::filesystem::copy(store(), other, std::filesystem::copy_options::recursive);
      const Outcome run = with(path("nowhere"), other, place);
      EXPECT_THAT(run.err, Not(HasSubstr("nowhere")));
      EXPECT_EQ(run.status, 0) << run.err;
      // And the other way around: the flag's is none, the variable's stays as it is.
      const Outcome none = with(store(), path("nowhere"), place);
      expect_error(none, 1, "nowhere");
      EXPECT_EQ(n_records(store()), before);
    }
    if (first == 2) {  // a group has no flags: none that it could forget
      const Outcome refused = with(store(), other, 1);
      expect_error(refused, 2, "weft " + command.front() + " has no --store");
      EXPECT_EQ(n_records(store()), before);
    }
  }
  // Of an ingest, which makes its store.
  ASSERT_EQ(with_variables({{"WEFT_STORE", store()}, {"WEFT_MODEL", path("gone.gguf")}},
                           {"ingest", "-m", model(), "--store", path("made"), docs()})
                .status,
            0);
  EXPECT_EQ(n_records(path("made")), before);
  std::filesystem::remove_all(path("made"));
  std::filesystem::remove_all(other);
}

TEST_F(Habits, WordsThatWereNotQuotedAreTheQuestion) {
  ASSERT_EQ(ingest().status, 0);
  const Outcome run = weft({"ask", "-m", model(), "who", "opens", "--store", store(), "the",
                            "harbour", "-n", "4", "--json", "[at", "seven]"});
  EXPECT_EQ(run.json()["question"], "who opens the harbour [at seven]") << run.err;
  expect_error(weft({"ask", "-m", model(), "--store", store(), "who", "--chunk", "3", "opens"}), 2,
               "weft ask has no --chunk: did you mean --chunks?; words that begin with - come "
               "after --");
  write_text(path("docs/[a].txt"), "The pier is closed.");
  const Outcome listed = weft({"ingest", "-m", model(), path("docs/[a].txt"), "--store", store(),
                               path("docs/harbour.md"), path("docs/library.txt")});
  EXPECT_EQ(listed.status, 0) << listed.err;
  EXPECT_THAT(listed.out, HasSubstr("1 new"));
}

TEST_F(Habits, QuestionsOnATerminalAreEditedAndCalledBack) {
  ASSERT_EQ(ingest().status, 0);
  test::Terminal terminal(folder_->path(),
                          {"ask", "-m", model(), "--store", store(), "-n", "4", "-t", "1"});
  const std::string before = terminal.modes();
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("the harbur\x1b[D\x1b[Do\r");  // an o put in, two to the left
  ASSERT_TRUE(terminal.shows("harbour.md"));
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("\x1b[A");
  ASSERT_TRUE(terminal.shows("the harbour"));
  terminal.type("\r");
  ASSERT_TRUE(terminal.shows("harbour.md"));
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("\x04");
  EXPECT_EQ(terminal.exit_status(), 0);
  EXPECT_EQ(terminal.modes(), before);
}

TEST_F(Habits, QuantizeSaysWhenItsResultIsLarger) {
  const Outcome smaller = weft({"quantize", model(), path("q8.gguf"), "Q8_0"});
  EXPECT_THAT(smaller.out, Not(HasSubstr("larger than its source")));
  const Outcome larger = weft({"quantize", path("q8.gguf"), path("f32.gguf"), "F32"});
  EXPECT_EQ(larger.status, 0) << larger.err;
  EXPECT_THAT(larger.out, HasSubstr("the result is larger than its source: F32"));
  const auto bytes = static_cast<double>(std::filesystem::file_size(path("f32.gguf")));
  EXPECT_THAT(larger.out, HasSubstr(fmt::format(" converted, {:.1f} MB from ", bytes * 1e-6)));
}

TEST_F(Habits, TypesOfTheCacheHaveLlamaCppsShortNames) {
  const std::string wanted = weft(generate({"The", "--cache-type-k", "f32"})).out;
  EXPECT_EQ(weft(generate({"The", "-ctk", "f32", "-ctv", "f16"})).out, wanted);
  expect_error(weft(generate({"The", "-ctv", "q2_k"})), 2,
               "--cache-type-v q2_k: must be f32, f16, bf16");
  expect_error(weft({"model", "ls", "-ctk", "f16"}), 2, "weft model ls has no -ctk");
}

TEST_F(Habits, CommandsOfOtherProgramsAreAnsweredWithTheOneThatIsMeant) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"run", "smollm2-135m"}, "weft chat -m MODEL"},
      {{"pull", "x"}, "weft model get NAME"},
      {{"list"}, "weft model ls"},
      {{"ls"}, "weft model ls"},
      {{"rm", "x"}, "weft model rm NAME"},
      {{"show", "x"}, "weft inspect MODEL"},
      {{"ps"}, "no model stays loaded"},
      {{"serve"}, "there is no server yet"},
      {{"create", "x", "-f", "Modelfile"}, "weft has no `create`: a model is a GGUF file"},
      {{"push", "x"}, "it uploads nothing"},
      {{"cp", "a", "b"}, "weft model path NAME"},
      {{"embed", "x"}, "it makes no embeddings"},
      {{"smollm2-135m"}, "a command goes before a model: weft chat -m smollm2-135m talks with it"},
      {{"llama3.2:1b", "hello"}, "weft generate -m llama3.2:1b PROMPT answers once"},
      {{"./model.gguf"}, "weft chat -m ./model.gguf"},
      {{"model", "pull", "x"}, "weft model get NAME"},
      {{"model", "list"}, "weft model ls"},
      {{"genrate"}, "no command genrate: did you mean generate?"},
      {{"model", "gte"}, "no command gte: did you mean get?"},
      {{"docs", "list"}, "no command list: did you mean ls?; see weft docs --help"},
      {{"docs", "remove"}, "no command remove: did you mean rm?; see weft docs --help"},
      {{"docs", "delete", "x"}, "no command delete: did you mean rm?"},
      {{"cache", "remove"}, "no command remove: did you mean rm?"},
      {{"cache", "prune"}, "no command prune: did you mean gc?"},
      {{"help", "chatt"}, "no command chatt: did you mean chat?"},
      {{"frobnicate"}, "no command frobnicate; see weft --help"},
      {{std::string(10'000, 'x')}, "xxx...; see weft --help"},
      {{"a\nb"}, "no command 'a"},
      {{"generate", "-ngl", "99", "x"}, "-ngl: weft has no GPU layers to place"},
      {{"generate", "--n-gpu-layers=9", "x"}, "--n-gpu-layers: weft has no GPU layers to place"},
      {{"generate", "--tempp", "1", "x"}, "has no --tempp: did you mean --temp?"},
      {{"docs", "--store", "x"}, "weft docs has no --store: a command goes before it: ls or rm"},
      {{"generate", "--temprature", "1", "x"}, "--temperature: weft's is --temp"},
      {{"bench", "speed", "-r", "1"}, "-r: weft bench speed's is --repeat"},
      {{"bench", "batch", "-b", "2"}, "-b: weft bench batch's is --batch"},
      {{"bench", "speed", "--temp", "1"}, "weft bench speed has no --temp; see weft bench speed"},
      {{"bench", "batch", "--temperature", "1"}, "has no --temperature"},
      {{"generate", "--budget-tokens", "64", "x"}, "--budget-tokens: weft's is --budget"},
      {{"chat", "--lookup"}, "--lookup: weft's is --draft ngram"},
      {{"generate", "--mirostat", "2", "x"}, "--mirostat: weft's are --temp, --top-k"},
      {{"bench", "speed", "--mirostat", "2"}, "weft bench speed has no --mirostat; see"},
      {{"generate", "--gan", "2", "x"}, "--gan: weft's is --grp-attn-n"},
      {{"generate", "--raw=1", "x"}, "--raw takes no value"},
      {{"generate", "x", "-n"}, "-n needs a value (INT)"},
      {{"generate", "--compute", "bf61", "x"},
       "--compute bf61: must be auto, f32, bf16 or int8; did you mean bf16?"},
      {{"quantize", "in.gguf", "out.gguf", "Q9_0"}, "type Q9_0: must be F32, F16"},
      {{"bench", "ttft", "--order", "sam"},
       "--order sam: must be shuffled or same; did you mean same?"},
      {{"bench", "speed", "-m", "x", "-p", "1,x"}, "--prefill 1,x: must be token counts"},
      {{"chat", "tiny"}, "tiny is one word too many; a model is named by -m: weft chat -m tiny"},
      {{"chat", "-m", model(), "hello"},
       "hello is one word too many; weft chat reads what you say"},
      {{"model", "ls", "x"}, "x is one word too many; see weft model ls --help"},
      {{"chat", "-p", "hi"}, "-p: weft chat reads what you say from the terminal, or line by line"},
      {{"chat", "-f", "x"}, "-f: weft chat reads lines from standard input: weft chat -m MODEL <"},
      {{"chat", "-ngl", "99"}, "-ngl: weft has no GPU layers to place"},
      {{"ask", "-ngl99", "x"}, "-ngl99: weft has no GPU layers to place"},
      {{"-ngl", "99", "-m", "x"}, "-ngl: weft has no GPU layers to place"},
      {{"ask", "-k", "3", "x"}, "-k: weft's are --chunks (passages in the prompt)"},
      {{"ask", "-f", "x"},
       "-f: weft ask reads questions line by line: weft ask --store DIR < FILE"},
      {{"ask", "-p", "x"}, "-p: the question is an argument by itself"},
      {{"docs", "rm", "--store", "x"},
       "name the documents to remove: files and folders (weft docs"},
      {{"ingest", "--store", "x"}, "name the files and folders to ingest"},
      {{"ingest", "-m", model(), "--store", docs(), docs()},
       docs() + ": a store needs a folder of its own, not that of the documents"},
      {{"ingest", "-m", model(), "--store", path("."), docs()},
       docs() + ": lies in " + path(".") + ", which --store names"},
  };
  for (const auto& [arguments, part] : cases) {
    expect_error(weft(arguments), 2, part);
  }
}

/// Where PATH has a shell; "" where it is not installed.
std::string shell_at(const std::string& name) {
  const char* folders = std::getenv("PATH");
  std::istringstream list(folders == nullptr ? "" : folders);
  for (std::string folder; std::getline(list, folder, ':');) {
    if (access((folder + "/" + name).c_str(), X_OK) == 0) return folder + "/" + name;
  }
  return "";
}

/// What the command line's last word can become, asked of the real shell.
class Completions : public Habits {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(path("models"));
    for (const char* name : {"tiny", "two words", "$(touch ran)"}) {
      write_text(path("models/" + std::string(name) + ".gguf"), "x");
    }
  }

  /// A line of output for each word that is offered.
  static std::string run_shell(const std::string& shell, const std::string& script,
                               const std::string& program) {
    const Outcome made = weft({"completions", shell});
    EXPECT_EQ(made.status, 0) << made.err;
    write_text(path("weft." + shell), made.out);
    write_text(path("script"), script);
    const std::string out = path("offered");
    const std::string command = "cd '" + folder_->path() + "' && PATH='" + WEFT_BINARY_DIR +
                                "':$PATH WEFT_MODELS='" + path("models") + "' HOME='" +
                                folder_->path() + "' " + program + " ./script > '" + out + "' 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0) << test::read_text(out);
    return test::read_text(out);
  }

  static std::string bash(const std::string& words) {
    return run_shell("bash",
                     "source ./weft.bash\nCOMP_WORDS=(" + words +
                         ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_weft\n"
                         "if ((${#COMPREPLY[@]})); then printf '%s\\n' \"${COMPREPLY[@]}\"; fi\n",
                     shell_at("bash") + " --norc -u");
  }
};

TEST_F(Completions, BashOffersWhatTheProgramTakes) {
  WEFT_SKIP_UNLESS(!shell_at("bash").empty(), "bash");
  EXPECT_EQ(bash("weft ge"), "generate\n");
  EXPECT_EQ(bash("weft model ''"), "get\nls\nrm\npath\n");
  EXPECT_EQ(bash("weft help chat"), "chat\n");
  EXPECT_EQ(bash("weft generate --repeat"), "--repeat-penalty\n--repeat-last-n\n");
  EXPECT_EQ(bash("weft ask --reuse ''"), "none\nprefix\nfull\nblend\n");
  EXPECT_EQ(bash("weft ask --reuse = f"), "full\n");  // as bash cuts --reuse=f
  EXPECT_EQ(bash("weft generate --compute b"), "bf16\n");
  EXPECT_EQ(bash("weft model get ''"), "smollm2-135m\ngemma3-270m\n");
  EXPECT_EQ(bash("weft quantize a b Q8"), "Q8_0\n");
  EXPECT_EQ(bash("weft chat -m ti"), "tiny\n");
  EXPECT_EQ(bash("weft chat -m tw"), "two\\ words\n");
  EXPECT_EQ(bash("weft model rm '$'"), "\\$\\(touch\\ ran\\)\n");
  EXPECT_EQ(bash("weft cache ls --store mod"), "models\n");
  EXPECT_EQ(bash("weft generate -f mod"), "");  // bash's own files
  EXPECT_EQ(bash("weft frob ''").substr(0, 6), "model\n");
  EXPECT_FALSE(std::filesystem::exists(path("ran")));
  // And it is what `complete` has.
  EXPECT_THAT(run_shell("bash", "source ./weft.bash\ncomplete -p weft\n", shell_at("bash")),
              HasSubstr("-F _weft weft"));
}

// Not everybody has the other two, and weft is not built with them: where one is missing only its
// script's text is looked at.

TEST_F(Completions, ZshOffersWhatTheProgramTakes) {
  EXPECT_THAT(weft({"completions", "zsh"}).out,
              AllOf(HasSubstr("#compdef weft\n"), HasSubstr("'weft model get'"),
                    HasSubstr("auto f32 bf16 int8")));
  if (shell_at("zsh").empty()) return;
  const auto zsh = [](const std::string& words) {
    return run_shell(
        "zsh",
        "compadd() { local -a shown; shown=(\"${(@)@[2,-1]}\"); print -rl -- "
        "\"${(@M)shown:#$cur*}\" }\n"
        "compdef() { : }\n_files() { : }\ncompset() { : }\nsource ./weft.zsh\nwords=(" +
            words + ")\nCURRENT=$#words\n_weft\n",
        shell_at("zsh") + " -f");
  };
  EXPECT_EQ(zsh("weft ge"), "generate\n");
  EXPECT_EQ(zsh("weft model ''"), "get\nls\nrm\npath\n");
  EXPECT_EQ(zsh("weft ask --reuse=f"), "full\n");
  EXPECT_EQ(zsh("weft generate --compute b"), "bf16\n");
  EXPECT_EQ(zsh("weft chat -m t"), "tiny\ntwo words\n");
}

TEST_F(Completions, FishOffersWhatTheProgramTakes) {
  EXPECT_THAT(weft({"completions", "fish"}).out,
              AllOf(HasSubstr("complete -c weft -n"), HasSubstr("'weft model get'"),
                    HasSubstr("auto f32 bf16 int8")));
  if (shell_at("fish").empty()) return;
  const auto fish = [](const std::string& line) {
    return run_shell(
        "fish", "source ./weft.fish\ncomplete -C '" + line + "' | string replace -r '\\t.*' ''\n",
        shell_at("fish") + " --no-config");
  };
  EXPECT_EQ(fish("weft ge"), "generate\n");
  EXPECT_EQ(fish("weft model "), "get\nls\npath\nrm\n");
  EXPECT_EQ(fish("weft ask --reuse=f"), "--reuse=full\n");
  EXPECT_EQ(fish("weft generate --compute b"), "bf16\n");
  EXPECT_THAT(fish("weft chat -m t"), HasSubstr("tiny\n"));
}

TEST_F(Habits, AnUnknownShellIsALine) {
  expect_error(weft({"completions", "tcsh"}), 2, "shell tcsh: must be bash, zsh or fish");
  expect_error(weft({"completions"}), 2, "shell is missing");
}

TEST_F(Habits, ModelsAreNamedByWhatIsNearest) {
  write_text(path("tinymodel.gguf"), "x");
  expect_error(weft({"generate", "-m", "tinymodle", "x"}), 1, "did you mean tinymodel?");
  expect_error(weft({"generate", "-m", "smollm2:135m", "x"}), 1,
               "did you mean smollm2-135m? weft model get smollm2-135m");
  expect_error(weft({"model", "get", "smollm2"}), 1, "did you mean smollm2-135m?");
  expect_error(weft({"model", "get", "gpt"}), 1, "it knows: smollm2-135m gemma3-270m");
}

TEST_F(Habits, HelpIsACommandToo) {
  EXPECT_EQ(weft({"help"}).out, weft({"--help"}).out);
  const Outcome get = weft({"help", "model", "get"});
  EXPECT_EQ(get.status, 0) << get.err;
  EXPECT_EQ(get.out, weft({"model", "get", "--help"}).out);
  EXPECT_THAT(get.out, HasSubstr("--accept-terms"));
  EXPECT_THAT(weft({"help", "generate"}).out,
              AllOf(HasSubstr("--stop TEXT"), HasSubstr("auto|f32|bf16|int8"),
                    HasSubstr("-m,--model MODEL (or $WEFT_MODEL)")));
  EXPECT_EQ(weft({"-v"}).out, weft({"--version"}).out);
}

}  // namespace
}  // namespace weft
