// weft chat as its users meet it: on a terminal (a pty) and fed by a script.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "test_model.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// Replaces this process by weft.
[[noreturn]] void become_weft(const std::string& folder, std::vector<std::string> arguments) {
  for (const char* name : {"XDG_CACHE_HOME", "XDG_STATE_HOME", "WEFT_MODELS"}) {
    setenv(name, folder.c_str(), 1);
  }
  setenv("TERM", "xterm", 1);
  std::string program = WEFT_BINARY_DIR "/weft";
  std::vector<char*> argv{program.data()};
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  _exit(127);
}

int wait_for_exit(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/// weft on a terminal of its own.
class Terminal {
 public:
  Terminal(const std::string& folder, std::vector<std::string> arguments) {
    const winsize size{.ws_row = 24, .ws_col = 200, .ws_xpixel = 0, .ws_ypixel = 0};
    child_ = forkpty(&fd_, nullptr, nullptr, &size);
    if (child_ == 0) become_weft(folder, std::move(arguments));
  }
  ~Terminal() {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      wait_for_exit(child_);
    }
    close(fd_);
  }

  void type(const std::string& keys) {
    EXPECT_EQ(write(fd_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }

  /// Reads until `text` shows, from where the last one ended; false when it never does.
  bool shows(const std::string& text) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < end) {
      const size_t found = screen_.find(text, seen_);
      if (found != std::string::npos) {
        seen_ = found + text.size();
        return true;
      }
      if (!read_more()) break;
    }
    ADD_FAILURE() << "'" << text << "' does not show behind:\n" << screen_.substr(seen_);
    return false;
  }

  /// Something other than white space, from where the last one ended.
  bool shows_anything() {
    const size_t begin = seen_;
    while (screen_.find_first_not_of(" \r\n", begin) == std::string::npos) {
      if (!read_more()) return false;
    }
    return true;
  }

  tcflag_t local_modes() const {
    termios mode{};
    EXPECT_EQ(tcgetattr(fd_, &mode), 0);
    return mode.c_lflag;
  }

  void end_by(int signal) {
    const pid_t child = std::exchange(child_, -1);
    kill(child, signal);
    EXPECT_EQ(wait_for_exit(child), 1000 + signal);
  }

  int exit_status() {
    while (read_more()) {
    }
    const int status = wait_for_exit(child_);
    child_ = -1;
    return status;
  }

 private:
  bool read_more() {
    pollfd input{fd_, POLLIN, 0};
    if (poll(&input, 1, 60'000) <= 0) return false;
    char buffer[4096];
    const ssize_t n = read(fd_, buffer, sizeof(buffer));
    if (n > 0) screen_.append(buffer, static_cast<size_t>(n));
    return n > 0;  // EIO: nobody has the terminal open any more
  }

  int fd_ = -1;
  pid_t child_ = -1;
  std::string screen_;
  size_t seen_ = 0;
};

struct Outcome {
  int status = -1;
  std::string out;
  std::string err;
};

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
    std::ofstream(path("stdin"), std::ios::binary) << input;
    const pid_t child = fork();
    if (child == 0) {
      const bool redirected = freopen(path("stdin").c_str(), "r", stdin) != nullptr &&
                              freopen(path("stdout").c_str(), "w", stdout) != nullptr &&
                              freopen(path("stderr").c_str(), "w", stderr) != nullptr;
      if (redirected) become_weft(folder_->path(), std::move(arguments));
      _exit(126);
    }
    const int status = wait_for_exit(child);
    return {status, test::slurp(path("stdout")), test::slurp(path("stderr"))};
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
  const Json messages = Json::parse(test::slurp(file))["messages"];
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
  EXPECT_THAT(loaded.err, HasSubstr("9 turns loaded"));
  EXPECT_EQ(Json::parse(test::slurp(path("saved.json")))["messages"].size(), 9u);
}

TEST_F(ChatProgram, WhatGoesWrongIsOneLineAndTheRestGoesOn) {
  const Outcome run = weft(chat(),
                           "/frob\n/set temp -1\n/set colour 3\n/set tokens many\n/load /nowhere\n"
                           "/save\n/undo\n/regen\n/stats\nHello\n");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("no command /frob; /help"));
  EXPECT_THAT(run.err, HasSubstr("9 inputs failed"));
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 11) << run.err;
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
  const Json messages = Json::parse(test::slurp(file))["messages"];
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_EQ(messages[1]["content"], "See: /one\ntwo\tgr\xc3\xbc\xc3\x9f - what?");
}

TEST_F(ChatProgram, WhatEndsItLeavesTheTerminalAsItWas) {
  for (const int signal : {SIGTERM, SIGHUP}) {
    Terminal terminal(folder_->path(), chat());
    const tcflag_t before = terminal.local_modes();
    ASSERT_TRUE(terminal.shows("\x1b[?2004h"));
    ASSERT_TRUE(terminal.shows("> "));
    EXPECT_NE(terminal.local_modes(), before);
    terminal.end_by(signal);
    EXPECT_EQ(terminal.local_modes(), before);
    EXPECT_TRUE(terminal.shows("\x1b[?2004l"));
  }
}

TEST_F(ChatProgram, AConversationIsNotSavedOverAnother) {
  const std::string file = path("kept.json");
  std::filesystem::remove(file);
  EXPECT_EQ(weft(chat({"--save", file}), "Hello\n").status, 0);
  const std::string kept = test::slurp(file);
  const Outcome again = weft(chat({"--save", file}), "Hi\n");
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.err, HasSubstr("--load"));
  EXPECT_EQ(test::slurp(file), kept);
  EXPECT_EQ(weft(chat({"--save", file, "--load", file}), "Hi\n").status, 0);
  EXPECT_EQ(Json::parse(test::slurp(file))["messages"].size(), 4u);
  EXPECT_EQ(weft(chat({"--save", file, "--load", file}), "/clear\nOther.\n").status, 0);
  EXPECT_EQ(weft(chat({"--save", file, "--load", file}), "/clear\n").status, 0);
  EXPECT_EQ(Json::parse(test::slurp(file))["messages"].size(), 4u);
  EXPECT_EQ(weft(chat({"--save", file, "--load", file}), "/load /nowhere\n/system New.\n").status,
            1);
  EXPECT_EQ(Json::parse(test::slurp(file))["messages"].size(), 5u);
  EXPECT_EQ(weft(chat({"--save", path("unused.json")}), "").status, 0);
  EXPECT_FALSE(std::filesystem::exists(path("unused.json")));
  const Outcome nowhere = weft(chat({"--save", path("none/file")}), "Hi\n");
  EXPECT_EQ(nowhere.status, 1);
  EXPECT_EQ(nowhere.out, "");
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
