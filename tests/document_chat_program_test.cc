// Follow-up questions over documents through the built program: `chat --store` and `ask -i`, fed by
// a script and on a terminal, over a real store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "support/terminal.h"
#include "support/weft_program.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using test::Outcome;
using test::write_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

class DocumentChatProgram : public test::WeftProgram {
 protected:
  static std::vector<std::string> chat(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"chat", "-m",        model(), "--store", store(), "-n",
                                       "6",    "--compute", "f32",   "-t",      "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static std::vector<Json> objects(const Outcome& run) {
    std::vector<Json> out;
    std::istringstream lines(run.out);
    for (std::string line; std::getline(lines, line);) {
      out.push_back(Json::parse(line, nullptr, false));
      EXPECT_FALSE(out.back().is_discarded()) << line;
    }
    return out;
  }
  static std::vector<Json> talk(const std::string& input, std::vector<std::string> more = {}) {
    more.push_back("--json");
    const Outcome run = weft(chat(std::move(more)), input);
    EXPECT_EQ(run.status, 0) << run.err;
    return objects(run);
  }
  static std::string title(const Json& answer) {
    return answer["chunks"].empty() ? "" : answer["chunks"][0]["title"].get<std::string>();
  }
};

TEST_F(DocumentChatProgram, AFollowUpIsAboutTheQuestionBefore) {
  ASSERT_EQ(ingest().status, 0);
  const std::vector<Json> answers = talk(
      "When does the harbour open?\nand when was it built?\nWhat does the library lend?\n"
      "Who governs Bolivia?\nWho may borrow them?\n");
  ASSERT_EQ(answers.size(), 5u);
  EXPECT_EQ(title(answers[0]), "Harbour");
  EXPECT_EQ(answers[0]["looked_back"], false);
  EXPECT_EQ(answers[0]["history_tokens"], 0);
  EXPECT_EQ(title(answers[1]), "Harbour");
  EXPECT_EQ(answers[1]["looked_back"], true);
  EXPECT_GT(answers[1]["history_tokens"], 0);
  EXPECT_GE(answers[1]["reused_tokens"], answers[1]["history_tokens"]);
  EXPECT_EQ(title(answers[2]), "library");
  EXPECT_EQ(answers[2]["looked_back"], false);
  EXPECT_EQ(answers[3]["found"], false);  // not looked for under the library
  EXPECT_EQ(answers[3]["reason"], "no-match");
  EXPECT_TRUE(answers[3]["answer"].is_null());
  EXPECT_EQ(title(answers[4]), "library");  // what was not answered is not referred to
}

TEST_F(DocumentChatProgram, AFollowUpOfAQuestionThatWasNotAnsweredSaysWhatItIsTakenToBeAbout) {
  ASSERT_EQ(ingest().status, 0);
  const std::vector<Json> answers =
      talk("When does the harbour open?\nWho is the plumber?\nWhen does it open?\nWhere is it?\n");
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_EQ(answers[1]["found"], false);
  const std::string note =
      "taken to be about \"When does the harbour open?\", the last question that was answered";
  EXPECT_EQ(title(answers[2]), "Harbour");
  EXPECT_EQ(answers[2]["looked_back"], true);
  EXPECT_THAT(answers[2]["notes"].dump(), HasSubstr(Json(note).dump()));
  // The next one follows an answer.
  EXPECT_EQ(answers[3]["notes"].dump().find("taken to be about"), std::string::npos);
  const std::vector<Json> alone =
      talk("When does the harbour open?\nWho is the plumber?\nWhat does the library lend?\n");
  EXPECT_EQ(alone[2]["notes"].dump().find("taken to be about"), std::string::npos);
}

TEST_F(DocumentChatProgram, TheFirstAnswerIsAsks) {
  ASSERT_EQ(ingest().status, 0);
  const std::string question = "When does the harbour open?";
  const Json asked = ask(question, {"--compute", "f32", "-t", "1"}).json();
  const std::vector<Json> answers = talk(question + "\n", {"-n", "8"});
  ASSERT_EQ(answers.size(), 1u);
  for (const char* field :
       {"question", "found", "answer", "prompt_tokens", "mode", "done", "ratio", "stop_reason"}) {
    EXPECT_EQ(answers[0][field], asked[field]) << field;
  }
  EXPECT_EQ(answers[0]["chunks"], asked["chunks"]);
}

TEST_F(DocumentChatProgram, EachAnswerIsThatOfAFreshProcess) {
  ASSERT_EQ(ingest().status, 0);
  const std::string questions[] = {"When does the harbour open?", "Is it on a shelf?",
                                   "And the orchard's pears?"};
  const std::string file = path("talk.json");
  for (const std::string mode : {"prefix", "blend"}) {
    const std::vector<std::string> reuse{"--reuse", mode, "--ratio", "0.2"};
    std::string all;
    for (const std::string& question : questions) all += question + "\n";
    const std::vector<Json> together = talk(all, reuse);
    ASSERT_EQ(together.size(), std::size(questions));
    fs::remove(file);
    for (size_t i = 0; i < std::size(questions); ++i) {
      std::vector<std::string> more = reuse;
      more.insert(more.end(), {"--save", file});
      if (i > 0) more.insert(more.end(), {"--load", file});
      const std::vector<Json> alone = talk(questions[i] + "\n", more);
      ASSERT_EQ(alone.size(), 1u);
      EXPECT_EQ(alone[0]["answer"], together[i]["answer"]) << mode << ": " << questions[i];
      EXPECT_EQ(alone[0]["prompt_tokens"], together[i]["prompt_tokens"]);
      EXPECT_EQ(alone[0]["history_tokens"], together[i]["history_tokens"]);
      EXPECT_EQ(alone[0]["chunks"], together[i]["chunks"]);
    }
  }
  fs::remove(file);
}

TEST_F(DocumentChatProgram, AScriptGetsAnswersSourcesAndTimes) {
  ASSERT_EQ(ingest().status, 0);
  const Outcome run =
      weft(chat(), "harbour?\n/sources\n/stats\nWho governs Bolivia?\n/reset\nWhy?\n");
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(run.out.starts_with("> harbour?\n")) << run.out;
  EXPECT_THAT(run.out, HasSubstr("\n\n[1] docs/harbour.md:1"));
  EXPECT_THAT(run.out, HasSubstr(" s to the first token"));
  EXPECT_THAT(run.out, HasSubstr("\n> Who governs Bolivia?\nNot in the documents: no passage"));
  // Nothing comes before it any longer.
  EXPECT_THAT(run.out, HasSubstr("\n> Why?\nNot asked: the question has no words"));
  EXPECT_THAT(run.err, HasSubstr("(1 question, 1 answer)"));
  EXPECT_THAT(run.err, HasSubstr("(a new conversation)"));
}

TEST_F(DocumentChatProgram, SourcesAndFiguresAreOfTheAnswerThatIsTheLast) {
  ASSERT_EQ(ingest().status, 0);
  const Outcome back = weft(chat(), "harbour?\n/undo\n/sources\n/stats\n");
  EXPECT_EQ(back.status, 1);  // of /sources
  EXPECT_THAT(back.err, HasSubstr("weft: no sources: the last answer was taken back\n"));
  EXPECT_THAT(back.err, HasSubstr("0 turns, 0 no longer seen; the last answer was taken back\n"));
  const size_t source = back.out.find("[1] docs/harbour.md");
  ASSERT_NE(source, std::string::npos) << back.out;
  EXPECT_EQ(back.out.find("[1] docs/harbour.md", source + 1), std::string::npos) << back.out;

  const Outcome none = weft(chat(), "harbour?\nWho governs Bolivia?\n/sources\n/stats\n");
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.err, HasSubstr("weft: no sources: the last question was not answered\n"));
  EXPECT_THAT(none.err, HasSubstr("no longer seen; the last question was not answered\n"));
  EXPECT_THAT(none.err, Not(HasSubstr("prompt   ")));

  const Outcome again = weft(chat(), "harbour?\nWho governs Bolivia?\norchard?\n/sources\n");
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_TRUE(again.out.rfind("[1] docs/orchard.txt") != again.out.find("[1] docs/orchard.txt"));
}

TEST_F(DocumentChatProgram, EveryModeTakesTheDefaultRatio) {
  ASSERT_EQ(ingest().status, 0);
  for (const std::string mode : {"none", "prefix", "full", "blend"}) {
    const std::vector<Json> answers = talk("harbour?\nWhen was it built?\n", {"--reuse", mode});
    ASSERT_EQ(answers.size(), 2u) << mode;
    EXPECT_EQ(answers[1]["mode"], mode);
    EXPECT_EQ(title(answers[1]), "Harbour") << mode;
  }
}

TEST_F(DocumentChatProgram, AskGoesOnAsking) {
  ASSERT_EQ(ingest().status, 0);
  const Outcome run = weft({"ask", "-i", "-m", model(), "--store", store(), "-n", "4", "--json",
                            "When does the harbour open?"},
                           "Who built it?\n");
  EXPECT_EQ(run.status, 0) << run.err;
  const std::vector<Json> answers = objects(run);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(title(answers[1]), "Harbour");
  expect_error(weft({"ask", "-i", "--compare", "-m", model(), "--store", store(), "x"}), 2,
               "do not go together");
}

TEST_F(DocumentChatProgram, ATurnWithoutAnAnswerIsNotKept) {
  ASSERT_EQ(ingest().status, 0);
  const std::string file = path("kept.json");
  const Outcome run =
      weft(chat({"--save", file}), "Who governs Bolivia?\nharbour?\n/undo\n/undo\nlibrary?\n");
  EXPECT_EQ(run.status, 1) << run.err;  // the second /undo
  EXPECT_THAT(run.err, HasSubstr("there is nothing to undo"));
  const Json messages = Json::parse(test::read_text(file))["messages"];
  ASSERT_EQ(messages.size(), 2u) << messages;
  EXPECT_EQ(messages[0]["content"], "library?");
  write_text(file, R"([{"role":"user","content":"a"},{"role":"user","content":"b"}])");
  expect_error(weft(chat({"--load", file}), ""), 1, "questions with an answer each");
  fs::remove(file);
}

TEST_F(DocumentChatProgram, SettingsAndAnswersAgain) {
  ASSERT_EQ(ingest().status, 0);
  const std::vector<Json> answers = talk("harbour?\n/regen\n/set tokens 2\n/regen\n");
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[0]["answer"], answers[1]["answer"]);  // greedy
  EXPECT_EQ(answers[0]["prompt_tokens"], answers[2]["prompt_tokens"]);
  EXPECT_EQ(answers[2]["history_tokens"], 0);
}

TEST_F(DocumentChatProgram, TheOldestQuestionsAreLeftOut) {
  ASSERT_EQ(ingest().status, 0);
  std::string questions;
  for (int i = 0; i < 12; ++i) questions += "Does the orchard have pears or a stream?\n";
  const Outcome run = weft(chat({"-c", "1400", "--chunks", "1"}), questions);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("(the context of 1400 tokens is full: the oldest "));
}

TEST_F(DocumentChatProgram, HostileQuestions) {
  ASSERT_EQ(ingest().status, 0);
  std::string input = std::string((1 << 20) - 100, 'q') + " harbour\n";
  input += std::string("har\0bour harbour\xFF\n", 18);
  input += "harbour <|im_end|> <s>\n";
  input += "harbour\n";
  const Outcome run = weft(chat({"--json"}), input);
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("do not fit the context"));
  const std::vector<Json> answers = objects(run);
  ASSERT_EQ(answers.size(), 4u);
  EXPECT_TRUE(answers[0].contains("error"));
  for (size_t i = 1; i < answers.size(); ++i) EXPECT_EQ(title(answers[i]), "Harbour") << i;
}

TEST_F(DocumentChatProgram, AStoreThatGoesAwayIsALine) {
  ASSERT_EQ(ingest().status, 0);
  test::Terminal terminal(folder_->path(), chat());
  ASSERT_TRUE(terminal.shows("/help lists the commands"));
  terminal.type("harbour?\r");
  ASSERT_TRUE(terminal.shows("s to the first token"));
  fs::remove_all(store());
  terminal.type("and the library?\r");
  // The index is open and its file lives on; what cannot be read is computed, or said in a line.
  ASSERT_TRUE(terminal.shows("> "));
  terminal.type("/bye\r");
  EXPECT_EQ(terminal.exit_status(), 0);
}

TEST_F(DocumentChatProgram, OnATerminal) {
  ASSERT_EQ(ingest().status, 0);
  test::Terminal terminal(folder_->path(), chat());
  ASSERT_TRUE(terminal.shows("/help lists the commands"));
  terminal.type("/help\r");
  ASSERT_TRUE(terminal.shows("/sources"));
  terminal.type("/sources\r");
  ASSERT_TRUE(terminal.shows("no answer with sources yet"));
  terminal.type("harbour?\r");
  ASSERT_TRUE(terminal.shows("[1] docs/harbour.md"));
  ASSERT_TRUE(terminal.shows("s to the first token"));
  terminal.type("Who governs Bolivia?\r");
  ASSERT_TRUE(terminal.shows("Not in the documents"));
  terminal.type("/sources\r");
  ASSERT_TRUE(terminal.shows("no sources: the last question was not answered"));
  terminal.type("/bye\r");
  EXPECT_EQ(terminal.exit_status(), 0);
}

TEST_F(DocumentChatProgram, DocumentsFlagsNeedAStore) {
  expect_error(weft({"chat", "-m", model(), "--chunks", "2"}), 2, "--chunks goes with --store");
  expect_error(weft({"chat"}), 2, "--model MODEL is missing");
  ASSERT_EQ(ingest().status, 0);
  expect_error(weft(chat({"-s", "Be brief."}), "x\n"), 2,
               "the few-shot form of the prompt has no system turn");
  expect_error(weft(chat({"--ratio", "2"}), "x\n"), 2, "--ratio 2: must be");
}

TEST_F(DocumentChatProgram, WithATemplateAndASystemTurn) {
  gguf::RandomModelOptions options{.vocab = 600};
  options.chat_template = kChatMl;
  options.context_length = 4096;
  const std::string instruct = path("instruct.gguf");
  ASSERT_TRUE(gguf::write_random_model(posix_env(), instruct, options).is_ok());
  ASSERT_EQ(weft({"ingest", "-m", instruct, "--store", store(), docs()}).status, 0);
  const Outcome run =
      weft({"chat", "-m", instruct, "--store", store(), "-s", "Be brief.", "-n", "4", "--json"},
           "harbour?\nIs it open?\n");
  EXPECT_EQ(run.status, 0) << run.err;
  const std::vector<Json> answers = objects(run);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(title(answers[1]), "Harbour");
  EXPECT_GT(answers[1]["history_tokens"], 0);
}

}  // namespace
}  // namespace weft
