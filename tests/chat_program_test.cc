// weft chat as its users meet it: on a terminal (a pty) and fed by a script.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/kv_limit.h"
#include "support/terminal.h"
#include "support/test_model.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using Outcome = test::ProgramRun;
using test::Terminal;

constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

class ChatProgram : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<test::TempDir>();
    gguf::RandomModelOptions options{.vocab = 300};
    options.context_length = 8192;
    ASSERT_TRUE(gguf::write_random_model(posix_env(), path("base.gguf"), options).is_ok());
    options.chat_template = kChatMl;
    ASSERT_TRUE(gguf::write_random_model(posix_env(), path("chat.gguf"), options).is_ok());
  }
  static void TearDownTestSuite() { folder_.reset(); }
  static std::string path(const std::string& name) { return folder_->path() + "/" + name; }

  static std::vector<std::string> chat(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{
        "chat", "-m", path("chat.gguf"), "--compute", "f32", "-t", "1", "--temp", "0", "-n", "8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  static Outcome weft(std::vector<std::string> arguments, const std::string& input) {
    return test::run_weft(folder_->path(), std::move(arguments), input);
  }

  static inline std::unique_ptr<test::TempDir> folder_;
};

TEST_F(ChatProgram, AScriptGetsOnlyAnswers) {
  const Outcome one = weft(chat(), "Hello");
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_TRUE(one.out.ends_with('\n'));
  EXPECT_THAT(one.out, Not(HasSubstr("> ")));
  const Outcome blank = weft(chat(), "\n  \r\nHello\r\n/stats\n/help\n");
  EXPECT_EQ(blank.out, one.out);
  EXPECT_THAT(blank.err, HasSubstr("0 reused"));
  const Outcome empty = weft(chat(), "");
  EXPECT_EQ(empty.status, 0);
  EXPECT_EQ(empty.out + empty.err, "");
}

TEST_F(ChatProgram, LinesBlocksAndCommands) {
  const std::string file = path("conversation.json");
  const Outcome run =
      weft(chat({"-s", "Be brief."}),
           "one \\\ntwo\n\"\"\"\n/three\nfour\n\"\"\"\n\"\"\"five\"\"\"\n//six\n/save " + file +
               "\n/undo\n/undo\n/set temp 0.5\n/set tokens 3\n/system Other.\n");
  EXPECT_EQ(run.status, 0) << run.err;
  const Json messages = Json::parse(test::read_text(file))["messages"];
  ASSERT_EQ(messages.size(), 9u);
  EXPECT_EQ(messages[0]["content"], "Be brief.");
  EXPECT_EQ(messages[1]["content"], "one \ntwo");
  EXPECT_EQ(messages[3]["content"], "\n/three\nfour\n");
  EXPECT_EQ(messages[5]["content"], "five");
  EXPECT_EQ(messages[7]["content"], "/six");
  EXPECT_EQ(messages[8]["role"], "assistant");
  EXPECT_THAT(run.err, HasSubstr("temp 0.5"));

  const Outcome loaded =
      weft(chat({"--save", path("saved.json")}), "/load " + file + "\n/regen\n/stats\n/clear\n");
  EXPECT_EQ(loaded.status, 0) << loaded.err;
  EXPECT_THAT(loaded.err, HasSubstr("(9 turns (1 system, 4 questions, 4 answers) loaded)"));
  EXPECT_EQ(Json::parse(test::read_text(path("saved.json")))["messages"].size(), 9u);
}

TEST_F(ChatProgram, AKvLimitThatIsTooSmallIsNamed) {
  const auto limit = [](int64_t n_pages) {
    return test::kv_limit_flag(folder_->path(), path("chat.gguf"), n_pages, {},
                               {.n_threads = 1, .compute = "f32"});
  };
  std::string question = "When";
  for (int i = 0; i < 60; ++i) question += " and when";
  const auto talk = [&](const std::string& kv_limit) {
    return weft(chat({"--kv-limit", kv_limit}), question + "\n");
  };
  const Outcome refused = talk(limit(5));
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err,
              HasSubstr("does not fit the context of 80 tokens: shorten it, or give "));
  const std::string named =
      test::named_limit(refused.err, "give --kv-limit ([0-9.]+[KM]B), which holds it");
  EXPECT_EQ(talk(named).status, 0) << named;
  const int64_t page_bytes =
      (*parse_byte_size(limit(6))).bytes - (*parse_byte_size(limit(5))).bytes;
  EXPECT_EQ(talk(test::less_than(named, page_bytes)).status, 1) << named << " " << page_bytes;
}

TEST_F(ChatProgram, WhatGoesWrongIsOneLineAndTheRestGoesOn) {
  const Outcome run = weft(chat(),
                           "/frob\n/set temp -1\n/set colour 3\n/set tokens many\n/load /nowhere\n"
                           "/save\n/undo\n/regen\n/stats\nHello\n");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("no command /frob; /help"));
  EXPECT_THAT(run.err, HasSubstr("8 inputs failed"));
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 12) << run.err;
  EXPECT_EQ(run.out, weft(chat(), "Hello\n").out);

  const Outcome base = weft({"chat", "-m", path("base.gguf")}, "Hello\n");
  EXPECT_EQ(base.status, 1);
  EXPECT_THAT(base.err, HasSubstr("weft generate --raw"));
  EXPECT_EQ(std::count(base.err.begin(), base.err.end(), '\n'), 1) << base.err;
}

TEST_F(ChatProgram, CtrlCStopsAnAnswerAndNotTheProgram) {
  Terminal terminal(folder_->path(), chat());
  ASSERT_TRUE(terminal.shows("/help"));
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("/set tokens 100000\r");
  ASSERT_TRUE(terminal.shows("tokens 100000)"));
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("Tell me all.\r");
  ASSERT_TRUE(terminal.shows("Tell me all.\r\n\x1b[?2004l"));
  ASSERT_TRUE(terminal.shows_anything());
  terminal.type("\x03");
  ASSERT_TRUE(terminal.shows("(stopped)"));
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("/stats\r");
  ASSERT_TRUE(terminal.shows("2 turns"));
  terminal.type("/set tokens 4\r");
  ASSERT_TRUE(terminal.shows("tokens 4)"));
  terminal.type("And then?\r");
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("/exit\r");
  EXPECT_EQ(terminal.exit_status(), 0);
}

/// Has a long answer under way.
void begin_long_answer(Terminal& terminal) {
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("/set tokens 100000\r");
  ASSERT_TRUE(terminal.shows("tokens 100000)"));
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("Tell me all.\r");
  ASSERT_TRUE(terminal.shows("Tell me all.\r\n\x1b[?2004l"));
  ASSERT_TRUE(terminal.shows_anything());
}

TEST_F(ChatProgram, WhatIsTypedDuringAnAnswerIsTheNextLineAndDoesNotShowInIt) {
  Terminal terminal(folder_->path(), chat());
  const std::string before = terminal.modes();
  begin_long_answer(terminal);
  const size_t begin = terminal.screen().size();
  terminal.type("/set seed 47");
  while (terminal.screen().size() < begin + 200) ASSERT_TRUE(terminal.shows_more());
  terminal.type("\x03");
  ASSERT_TRUE(terminal.shows("(stopped)"));
  const size_t end = terminal.screen().find("(stopped)");
  const std::string answer = terminal.screen().substr(begin, end - begin);
  EXPECT_THAT(answer, Not(HasSubstr("/set seed")));
  EXPECT_THAT(answer, Not(HasSubstr("^C")));
  ASSERT_TRUE(terminal.shows("> "));
  ASSERT_TRUE(terminal.shows("/set seed 47"));
  terminal.type("11\r");
  ASSERT_TRUE(terminal.shows("seed 4711, "));
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("/exit\r");
  EXPECT_EQ(terminal.exit_status(), 0);
  EXPECT_EQ(terminal.modes(), before);
}

TEST_F(ChatProgram, WhatEndsItDuringAnAnswerLeavesTheTerminalAsItWas) {
  const std::pair<int, int> ends[] = {
      {SIGTERM, 143}, {SIGHUP, 129}, {SIGQUIT, 1000 + SIGQUIT}, {SIGABRT, 1000 + SIGABRT}};
  for (const auto& [signal, status] : ends) {
    SCOPED_TRACE(signal);
    Terminal terminal(folder_->path(), chat());
    const std::string before = terminal.modes();
    begin_long_answer(terminal);
    EXPECT_NE(terminal.modes(), before);
    terminal.send(signal);
    EXPECT_EQ(terminal.exit_status(), status);
    EXPECT_EQ(terminal.modes(), before);
  }
}

TEST_F(ChatProgram, CtrlZDuringAnAnswerGivesTheTerminalToTheShell) {
  Terminal shell = Terminal::shell(folder_->path());
  ASSERT_TRUE(shell.shows("$ "));
  const std::string before = shell.modes();
  std::string line = WEFT_BINARY_DIR "/weft";
  for (const std::string& argument : chat()) line += " '" + argument + "'";
  shell.type(line + "\r");
  begin_long_answer(shell);
  const std::string answering = shell.modes();
  shell.type("\x1a");
  ASSERT_TRUE(shell.shows("$ "));
  EXPECT_EQ(shell.modes(), before);
  shell.type("fg\r");
  ASSERT_TRUE(shell.shows("weft"));  // what fg continues
  ASSERT_TRUE(shell.shows_anything());
  for (int i = 0; i < 1000 && shell.modes() != answering; ++i) ASSERT_TRUE(shell.shows_more());
  EXPECT_EQ(shell.modes(), answering);
  shell.type("\x03");
  ASSERT_TRUE(shell.shows("(stopped)"));
  ASSERT_TRUE(shell.shows("> "));
  shell.type("quit\r");
  ASSERT_TRUE(shell.shows("$ "));
  EXPECT_EQ(shell.modes(), before);
  shell.type("exit\r");
  EXPECT_EQ(shell.exit_status(), 0);
}

TEST_F(ChatProgram, WordsThatLeave) {
  for (const char* word : {"exit", "quit", "/exit", "/quit", "/bye"}) {
    SCOPED_TRACE(word);
    Terminal terminal(folder_->path(), chat());
    ASSERT_TRUE(terminal.shows("> "));
    terminal.type(std::string(word) + "\r");
    EXPECT_EQ(terminal.exit_status(), 0);
    EXPECT_THAT(terminal.screen(), Not(HasSubstr("cut at")));  // no answer
  }
  // In a script a word is a question; what begins with / is a command everywhere.
  EXPECT_THAT(weft(chat(), "exit\n").out, Not(::testing::IsEmpty()));
  EXPECT_EQ(weft(chat(), "/bye\nHello\n").out, "");
}

TEST_F(ChatProgram, LoadedTurnsAreCountedAndASystemTurnInTheirPlaceIsSaid) {
  const std::string file = path("counted.json");
  std::filesystem::remove(file);
  EXPECT_THAT(weft(chat(), "/stats\n").err,
              HasSubstr("tokens; 0 turns, 0 no longer seen; no answer"));
  ASSERT_EQ(weft(chat({"-s", "Be brief.", "--save", file}), "Hello\nAnd?\n").status, 0);
  EXPECT_EQ(weft(chat({"--load", file}), "").err,
            "(5 turns (1 system, 2 questions, 2 answers) loaded)\n");
  EXPECT_EQ(weft(chat({"--load", file, "-s", "Other."}), "").err,
            "(5 turns (1 system, 2 questions, 2 answers) loaded; -s takes the place of its system "
            "turn)\n");
  EXPECT_THAT(weft(chat({"--load", file}), "/undo\n/stats\n").err,
              HasSubstr("3 turns (1 system, 1 question, 1 answer), 0 no longer seen"));
  ASSERT_EQ(weft(chat({"--load", file}), "/undo\n/system\n/save! " + file + "\n").status, 0);
  EXPECT_EQ(weft(chat({"--load", file, "-s", "Other."}), "").err,
            "(2 turns (1 question, 1 answer) loaded; -s adds a system turn)\n");
}

TEST_F(ChatProgram, SettingsOfTheSampler) {
  const Outcome run = weft(chat(),
                           "/set repeat-penalty 1.5\n/set repeat-last-n -1\n/set presence-penalty "
                           "0.5\n/set frequency-penalty 0.25\n/set tokens -1\n/set repeat-penalty "
                           "0\n/set frequency-penalty 3\n/set tokens 0\n");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("repeat-penalty 1.5, repeat-last-n -1, presence-penalty 0.5, "
                                 "frequency-penalty 0.25, seed 0, tokens -1)"));
  EXPECT_THAT(run.err, HasSubstr("weft: /set repeat-penalty 0: must be over 0"));
  EXPECT_THAT(run.err, HasSubstr("weft: /set frequency-penalty 3: must be from -2 to 2"));
  EXPECT_THAT(run.err, HasSubstr("weft: /set tokens 0: must be 1 to "));
  EXPECT_THAT(run.err, HasSubstr("3 inputs failed"));
}

TEST_F(ChatProgram, SettingsAsOllamaNamesThem) {
  const Outcome run =
      weft(chat(),
           "/set parameter temperature 0.5\n/set parameter num_predict 3\n/set top_k 7\n"
           "/set system Be brief.\n/show info\n/set parameter colour 3\n/set parameter\n");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("(temp 0.5, top-k 7, "));
  EXPECT_THAT(run.err, HasSubstr(", tokens 3)"));
  EXPECT_THAT(run.err, HasSubstr("(the system turn is set)"));
  EXPECT_THAT(run.err, HasSubstr("weft: chat has no /show: "));
  EXPECT_THAT(run.err, HasSubstr("weft: /set colour: must be temp, "));
  EXPECT_THAT(run.err, HasSubstr("weft: /set parameter: must be temp, "));
}

TEST_F(ChatProgram, ASettingThatNamesItselfAMillionTimesIsOneLine) {
  std::string line = "/set";
  for (int i = 0; i < 1'000'000; ++i) line += " parameter";
  const Outcome run = weft(chat(), line + " temp 0.5\n");
  EXPECT_EQ(run.status, 1) << run.err.substr(0, 200);
  EXPECT_THAT(run.err, HasSubstr("weft: /set parameter: must be temp, "));
}

TEST_F(ChatProgram, StatsTellOfAShift) {
  const Outcome run =
      weft(chat({"-c", "96", "-n", "300", "--ignore-eos", "--context-shift"}), "Hello\n/stats\n");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr(" tokens dropped by shifts"));
}

TEST_F(ChatProgram, CtrlCAtThePromptClearsTheLine) {
  Terminal terminal(folder_->path(), chat());
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("/exi");
  ASSERT_TRUE(terminal.shows("/exi"));
  terminal.type("\x03");
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("\x03");
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("\x03");
  ASSERT_TRUE(terminal.shows("Ctrl-D leaves"));
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("\"\"\"open\r");
  ASSERT_TRUE(terminal.shows(". "));
  terminal.type("\x03");
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("/undo\r");
  ASSERT_TRUE(terminal.shows("nothing to undo"));
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("\x04");
  EXPECT_EQ(terminal.exit_status(), 0);
}

TEST_F(ChatProgram, LinesPastedAtOnceAreOneText) {
  const std::string file = path("pasted.json");
  std::filesystem::remove(file);
  Terminal terminal(folder_->path(), chat({"-s", "Be brief.", "--save", file}));
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("\x1b\xc3\xbcSee: \x1b[200~/one\rtwo\tgr\xc3\xbc\xc3\x9f\r\x1b[201~ - what?\r");
  ASSERT_TRUE(terminal.shows("what?"));
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("\x1b[200~/undo\x1b[201~\r");  // one line is typed text
  ASSERT_TRUE(terminal.shows("taken back"));
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("\x1b[A\x1b[A\r");  // the paste again, whole
  ASSERT_TRUE(terminal.shows("what?"));
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("\x04");
  EXPECT_EQ(terminal.exit_status(), 0);
  const Json messages = Json::parse(test::read_text(file))["messages"];
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(messages[1]["content"], "See: /one\ntwo\tgr\xc3\xbc\xc3\x9f - what?");
}

TEST_F(ChatProgram, WhatEndsItLeavesTheTerminalAsItWas) {
  const std::pair<int, int> ends[] = {{SIGTERM, 143},
                                      {SIGHUP, 129},
                                      {SIGQUIT, 1000 + SIGQUIT},
                                      {SIGABRT, 1000 + SIGABRT},
                                      {SIGUSR1, 1000 + SIGUSR1}};
  for (const auto& [signal, status] : ends) {
    SCOPED_TRACE(signal);
    Terminal terminal(folder_->path(), chat());
    const std::string before = terminal.modes();
    ASSERT_TRUE(terminal.shows("\x1b[?2004h"));
    ASSERT_TRUE(terminal.shows("> "));
    EXPECT_NE(terminal.modes(), before);
    terminal.send(signal);
    ASSERT_TRUE(terminal.shows("\x1b[?2004l"));
    EXPECT_EQ(terminal.exit_status(), status);
    EXPECT_EQ(terminal.modes(), before);
  }
}

TEST_F(ChatProgram, BeingAskedToEndSavesTheConversation) {
  for (const auto& [signal, status] : {std::pair{SIGTERM, 143}, {SIGHUP, 129}}) {
    SCOPED_TRACE(signal);
    const std::string file = path("ended.json");
    std::filesystem::remove(file);
    Terminal terminal(folder_->path(), chat({"--save", file}));
    const std::string before = terminal.modes();
    ASSERT_TRUE(terminal.shows("> "));
    terminal.type("/set tokens 100000\r");
    ASSERT_TRUE(terminal.shows("tokens 100000)"));
    ASSERT_TRUE(terminal.shows("> "));
    terminal.type("Tell me all.\r");
    ASSERT_TRUE(terminal.shows("Tell me all.\r\n\x1b[?2004l"));
    ASSERT_TRUE(terminal.shows_anything());
    terminal.send(signal);
    EXPECT_EQ(terminal.exit_status(), status);
    EXPECT_THAT(terminal.screen(), HasSubstr("weft: stopped"));
    EXPECT_EQ(terminal.modes(), before);
    EXPECT_EQ(Json::parse(test::read_text(file))["messages"].size(), 2u);
  }
  // A script, between two lines.
  const std::string file = path("script.json");
  const Outcome script = weft(chat({"--save", file, "-s", "Be brief."}), "Hello\n/undo\n");
  EXPECT_EQ(script.status, 0) << script.err;
  EXPECT_EQ(Json::parse(test::read_text(file))["messages"].size(), 1u);
}

TEST_F(ChatProgram, AWindowThatIsClosedLosesNothing) {
  const std::string file = path("closed.json");
  std::filesystem::remove(file);
  Terminal terminal(folder_->path(), chat({"--save", file}));
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("Hello\r");
  ASSERT_TRUE(terminal.shows("Hello\r\n\x1b[?2004l"));
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("/system New.\r");
  ASSERT_TRUE(terminal.shows("the system turn is set"));
  terminal.hang_up();
  EXPECT_EQ(terminal.exit_status(), 129);
  EXPECT_EQ(Json::parse(test::read_text(file))["messages"].size(), 3u);
}

TEST_F(ChatProgram, AModelThatIsCutWhileItRunsIsNamedOnASaneTerminal) {
  const std::string model = path("cut\x1b[2J.gguf");
  std::filesystem::copy_file(path("chat.gguf"), model);
  std::vector<std::string> arguments = chat();
  arguments[2] = model;
  Terminal terminal(folder_->path(), arguments);
  const std::string before = terminal.modes();
  ASSERT_TRUE(terminal.shows("> "));
  std::filesystem::resize_file(model, 100);
  terminal.type("Hello\r");
  EXPECT_EQ(terminal.exit_status(), 1);
  EXPECT_EQ(terminal.modes(), before);
  EXPECT_THAT(terminal.screen(),
              HasSubstr("\nweft: " + path("cut\ufffd[2J.gguf") + ": cannot be read any more"));
}

TEST_F(ChatProgram, CtrlZGivesTheTerminalToTheShellAndFgBringsItBack) {
  Terminal shell = Terminal::shell(folder_->path());
  ASSERT_TRUE(shell.shows("$ "));
  const std::string before = shell.modes();
  std::string line = WEFT_BINARY_DIR "/weft";
  for (const std::string& argument : chat()) line += " '" + argument + "'";
  shell.type(line + "\r");
  ASSERT_TRUE(shell.shows("\x1b[?2004h"));
  ASSERT_TRUE(shell.shows("> "));
  const std::string editing = shell.modes();
  EXPECT_NE(editing, before);
  shell.type("/und");
  ASSERT_TRUE(shell.shows("/und"));
  shell.type("\x1a");
  ASSERT_TRUE(shell.shows("\x1b[?2004l"));
  ASSERT_TRUE(shell.shows("$ "));
  EXPECT_EQ(shell.modes(), before);
  shell.type("fg\r");
  ASSERT_TRUE(shell.shows("\x1b[?2004h"));
  shell.type("o\r");
  ASSERT_TRUE(shell.shows("nothing to undo"));
  ASSERT_TRUE(shell.shows("> "));
  EXPECT_EQ(shell.modes(), editing);
  shell.type("\x04");
  ASSERT_TRUE(shell.shows("$ "));
  EXPECT_EQ(shell.modes(), before);
  shell.type("exit\r");
  EXPECT_EQ(shell.exit_status(), 0);
}

TEST_F(ChatProgram, AConversationIsNotSavedOverAnother) {
  const std::string file = path("kept.json");
  std::filesystem::remove(file);
  EXPECT_EQ(weft(chat({"--save", file}), "Hello\n").status, 0);
  const std::string kept = test::read_text(file);
  const Outcome again = weft(chat({"--save", file}), "Hi\n");
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.err, HasSubstr("--load"));
  EXPECT_EQ(test::read_text(file), kept);
  EXPECT_EQ(weft(chat({"--save", file, "--load", file}), "Hi\n").status, 0);
  EXPECT_EQ(Json::parse(test::read_text(file))["messages"].size(), 4u);
  EXPECT_EQ(weft(chat({"--save", file, "--load", file}), "/clear\nOther.\n").status, 0);
  EXPECT_EQ(weft(chat({"--save", file, "--load", file}), "/clear\n").status, 0);
  EXPECT_EQ(Json::parse(test::read_text(file))["messages"].size(), 4u);
  EXPECT_EQ(weft(chat({"--save", file, "--load", file}), "/load /nowhere\n/system New.\n").status,
            1);
  EXPECT_EQ(Json::parse(test::read_text(file))["messages"].size(), 5u);
  EXPECT_EQ(weft(chat({"--save", path("unused.json")}), "").status, 0);
  EXPECT_FALSE(std::filesystem::exists(path("unused.json")));
  const Outcome nowhere = weft(chat({"--save", path("none/file")}), "Hi\n");
  EXPECT_EQ(nowhere.status, 1);
  EXPECT_EQ(nowhere.out, "");
}

TEST_F(ChatProgram, SaveReplacesNoFileButThisConversations) {
  const std::string file = path("precious.json");
  std::ofstream(file) << "precious";
  const Outcome refused = weft(chat(), "Hello\n/save " + file + "\n");
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("/save! " + file + " replaces it"));
  EXPECT_EQ(test::read_text(file), "precious");
  const Outcome forced = weft(chat(), "Hello\n/save! " + file + "\nAnd?\n/save " + file + "\n");
  EXPECT_EQ(forced.status, 0) << forced.err;
  EXPECT_EQ(Json::parse(test::read_text(file))["messages"].size(), 4u);
  // What was loaded from it may go back to it, through a link too; what begins anew may not.
  std::filesystem::create_symlink(file, path("link.json"));
  EXPECT_EQ(weft(chat(), "/load " + path("link.json") + "\n/undo\n/save " + file + "\n").status, 0);
  EXPECT_EQ(Json::parse(test::read_text(file))["messages"].size(), 2u);
  EXPECT_EQ(weft(chat({"--load", file}), "Hi\n/save " + path("link.json") + "\n").status, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(path("link.json")));
  EXPECT_EQ(Json::parse(test::read_text(file))["messages"].size(), 4u);
  EXPECT_EQ(weft(chat({"--load", file}), "/clear\nHi\n/save " + file + "\n").status, 1);
  EXPECT_EQ(Json::parse(test::read_text(file))["messages"].size(), 4u);
}

TEST_F(ChatProgram, SavingIsPrivateAndTouchesNoOtherFile) {
  const std::string file = path("private.json");
  std::ofstream(file + ".part") << "the user's own";
  EXPECT_EQ(weft(chat({"--save", file}), "Hello\n").status, 0);
  EXPECT_EQ(test::read_text(file + ".part"), "the user's own");
  struct stat found {};
  ASSERT_EQ(stat(file.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  ASSERT_EQ(chmod(file.c_str(), 0640), 0);
  EXPECT_EQ(weft(chat({"--save", file, "--load", file}), "Hi\n").status, 0);
  ASSERT_EQ(stat(file.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0640u);
}

TEST_F(ChatProgram, WhatAnotherProgramSavedMeanwhileIsNotReplaced) {
  const std::string file = path("two.json");
  ASSERT_EQ(weft(chat({"--save", file}), "Hello\n").status, 0);
  Terminal one(folder_->path(), chat({"--load", file, "--save", file}));
  Terminal two(folder_->path(), chat({"--load", file, "--save", file}));
  const auto say = [](Terminal& terminal, const std::string& text) {
    ASSERT_TRUE(terminal.shows("> "));
    terminal.type(text + "\r");
    ASSERT_TRUE(terminal.shows(text));
  };
  ASSERT_TRUE(two.shows("> "));
  say(one, "first");
  say(one, "/set");  // the answer is there, and saved
  ASSERT_TRUE(one.shows("(temp"));
  const std::string saved = test::read_text(file);
  EXPECT_THAT(saved, HasSubstr("first"));
  two.type("second\r");
  ASSERT_TRUE(two.shows("two.json: another program changed this file"));
  EXPECT_EQ(test::read_text(file), saved);
  say(two, "/save " + file);
  ASSERT_TRUE(two.shows("two.json: another program changed this file"));
  EXPECT_EQ(test::read_text(file), saved);
  say(two, "/save " + path("other.json"));
  ASSERT_TRUE(two.shows("(saved to "));
  EXPECT_THAT(test::read_text(path("other.json")), HasSubstr("second"));
  say(two, "/exit");
  ASSERT_TRUE(two.shows("two.json: another program changed this file"));
  EXPECT_EQ(two.exit_status(), 1);
  EXPECT_EQ(test::read_text(file), saved);
  // What is gone is written anew, and what is asked for is replaced.
  std::filesystem::remove(file);
  say(one, "third");
  say(one, "/set");
  ASSERT_TRUE(one.shows("(temp"));
  EXPECT_THAT(test::read_text(file), HasSubstr("third"));
  std::ofstream(file) << saved;
  say(one, "/save! " + file);
  ASSERT_TRUE(one.shows("(saved to "));
  EXPECT_THAT(test::read_text(file), HasSubstr("third"));
  say(one, "fourth");
  say(one, "/exit");
  EXPECT_EQ(one.exit_status(), 0);
  EXPECT_THAT(test::read_text(file), HasSubstr("fourth"));
}

TEST_F(ChatProgram, RegenerateAtTemperature0SaysTheSame) {
  const Outcome run = weft(chat(), "Tell me of the harbour.\n/regen\n");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.out, Not(::testing::IsEmpty()));
  EXPECT_EQ(run.out.substr(0, run.out.size() / 2), run.out.substr(run.out.size() / 2));
}

TEST_F(ChatProgram, HistoryIsKeptAndPrivate) {
  const std::string file = path("weft/chat_history");
  std::filesystem::remove(file);
  {
    Terminal terminal(folder_->path(), chat());
    ASSERT_TRUE(terminal.shows("> "));
    terminal.type("/set seed 77\xc3\xa9\r");
    ASSERT_TRUE(terminal.shows("no such value"));
    terminal.type("/set temp \\\r");
    ASSERT_TRUE(terminal.shows(". "));
    terminal.type("0.25\r");
    ASSERT_TRUE(terminal.shows("temp 0.25, "));
    terminal.type("\x1b[A\r");  // both lines at once
    ASSERT_TRUE(terminal.shows("temp 0.25, "));
    terminal.type("/set seed 4711\r");
    ASSERT_TRUE(terminal.shows("seed 4711, "));
    terminal.type("/quit\r");
    EXPECT_EQ(terminal.exit_status(), 0);
  }
  struct stat found {};
  ASSERT_EQ(stat(file.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0600u);
  Terminal terminal(folder_->path(), chat());
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("\x1b[A");
  ASSERT_TRUE(terminal.shows("/quit"));
  terminal.type("\x1b[A");
  ASSERT_TRUE(terminal.shows("set seed 4711"));
  terminal.type("\r");
  ASSERT_TRUE(terminal.shows("seed 4711, "));
}

}  // namespace
}  // namespace weft
