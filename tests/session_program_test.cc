// --session of generate and chat as users meet it: what is printed, kept, and refused.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "engine/session.h"
#include "support/weft_program.h"

namespace weft::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

class SessionProgram : public WeftProgram {
 protected:
  static void SetUpTestSuite() {
    WeftProgram::SetUpTestSuite();
    gguf::RandomModelOptions options{.vocab = 300};
    options.chat_template = kChatMl;
    ASSERT_TRUE(gguf::write_random_model(posix_env(), path("chat.gguf"), options).is_ok());
  }
  void TearDown() override {
    std::filesystem::remove(file());
    WeftProgram::TearDown();
  }
  static std::string file() { return path("kept.session"); }

  static std::vector<std::string> generate(std::vector<std::string> more) {
    std::vector<std::string> arguments{"generate",  "-m",  model(), "-t",    "1",
                                       "--compute", "f32", "--raw", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static Outcome text(std::vector<std::string> more, const std::string& input = "") {
    return weft(generate(std::move(more)), input);
  }
  /// With the session.
  static Outcome kept(std::vector<std::string> more) {
    more.insert(more.end(), {"--session", file()});
    return text(std::move(more));
  }
  static std::vector<int32_t> tokens(const Outcome& run) {
    EXPECT_EQ(run.status, 0) << run.err;
    return run.json()["tokens"].get<std::vector<int32_t>>();
  }
  static Outcome chat(const std::string& input, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{
        "chat", "-m", path("chat.gguf"), "-t", "1", "--compute", "f32", "-n", "8"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return weft(std::move(arguments), input);
  }
  /// One line, exit status 1, and the file as it was.
  static void expect_refused(std::vector<std::string> arguments, const std::string& part) {
    const std::string before = read_text(file());
    arguments.insert(arguments.end(), {"--session", file()});
    const Outcome run = weft(arguments);
    expect_error(run, 1, part);
    EXPECT_TRUE(run.err.starts_with("weft: --session " + file() + ": ")) << run.err;
    EXPECT_EQ(read_text(file()), before);
  }
  /// A file as some weft could write it, of turns that this one's chat need not have had.
  static void write_chat(std::vector<text::Turn> turns, uint32_t first_turn = 0) {
    const auto engine = engine::Engine::open(
        posix_env(), {.model_path = path("chat.gguf"), .n_threads = 1, .compute = "f32"});
    ASSERT_TRUE(engine.is_ok()) << engine.status().message();
    engine::Session session{.kind = engine::SessionKind::kChat, .tokens = {1, 2, 3}};
    session.turns = std::move(turns);
    session.first_turn = first_turn;
    const kv::OwnedSequence sequence = (*engine)->create_sequence();
    ASSERT_TRUE((*engine)->append(sequence, session.tokens).is_ok());
    std::optional<kv::SessionStamp> absent;
    std::filesystem::remove(file());
    ASSERT_TRUE(engine::SavedSession::save(**engine, file(), session, sequence, absent).is_ok());
  }
};

TEST_F(SessionProgram, TwoRunsOf20TokensAreOneOf40) {
  const std::vector<std::string> sampling = {
      "--ignore-eos",        "--temp", "0.9", "--seed", "3", "--repeat-penalty", "1.2",
      "--frequency-penalty", "0.2"};
  std::vector<std::string> whole = {"-n", "40", "Once upon"};
  whole.insert(whole.end(), sampling.begin(), sampling.end());
  const Outcome one = text(whole);
  std::vector<std::string> first = whole;
  first[1] = "20";
  std::vector<int32_t> both = tokens(kept(first));
  EXPECT_EQ(both.size(), 20u);
  // Neither prompt nor settings are given again.
  const Outcome rest = kept({"-n", "20", "--ignore-eos"});
  for (const int32_t id : tokens(rest)) both.push_back(id);
  EXPECT_EQ(both, tokens(one));
}

TEST_F(SessionProgram, APromptGivesTheAnswerOfTheCommandWithoutTheSession) {
  ASSERT_EQ(kept({"-n", "12", "--ignore-eos", "The harbour opens at seven."}).status, 0);
  for (const char* prompt : {"The harbour opens at seven.", "The harbour opens at eight.", "The h",
                             "Nothing of it", "The harbour opens at seven. Does it?"}) {
    for (const char* temp : {"0", "0.8"}) {
      const std::vector<std::string> arguments = {
          "-n", "12", "--ignore-eos", "--temp", temp, "--logprobs", "2", prompt};
      const auto with = kept(arguments).json(), without = text(arguments).json();
      EXPECT_EQ(with, without) << prompt;
    }
  }
}

TEST_F(SessionProgram, APromptIsAnsweredWithTheRunsOwnSettingsNotTheSessions) {
  const std::vector<std::string> first = {"-n", "8", "--temp", "1.5", "--seed", "7", "Once"};
  const std::vector<std::string> second = {"-n", "8", "--ignore-eos", "Nothing of it"};
  ASSERT_EQ(kept(first).status, 0);
  EXPECT_EQ(kept(second).out, text(second).out);
}

TEST_F(SessionProgram, ATextThatWasNotPrintedIsNotKept) {
  ASSERT_EQ(kept({"-n", "5", "--ignore-eos", "Once upon a time"}).status, 0);
  const std::string before = read_text(file());
  for (const bool json : {false, true}) {
    std::vector<std::string> arguments = generate({"-n", "5", "--session", file(), "-q"});
    if (!json) std::erase(arguments, "--json");
    const Outcome lost = finish(start(
        arguments, "", "", [] { dup2(open("/dev/full", O_WRONLY | O_CLOEXEC), STDOUT_FILENO); }));
    expect_error(lost, 1, "standard output: No space left on device");
    EXPECT_EQ(read_text(file()), before);
  }
}

TEST_F(SessionProgram, VerboseTellsWhatIsReusedAndKept) {
  const Outcome first = kept({"-n", "5", "--ignore-eos", "-v", "Once upon a time"});
  const Outcome second = kept({"-n", "5", "--ignore-eos", "-v"});
  const auto n_tokens = weft({"inspect", file(), "--json"}).json()["tokens"].get<int>();
  const std::string before = std::to_string(n_tokens - 5), last = std::to_string(n_tokens - 6);
  EXPECT_THAT(first.err, HasSubstr(file() + ": kept, " + before + " tokens"));
  EXPECT_THAT(second.err,
              HasSubstr(file() + ": KV of " + last + " of its " + before + " tokens is reused"));
}

TEST_F(SessionProgram, AnEmptyPromptDoesNotTakeTheTextsPlace) {
  ASSERT_EQ(kept({"-n", "5", "--ignore-eos", "Once upon a time"}).status, 0);
  const std::string before = read_text(file());
  expect_error(kept({"-n", "5", ""}), 2, "the prompt is empty");
  expect_error(text({"-n", "5", "--session", file()}, "\n"), 2, "stays as it is");
  EXPECT_EQ(read_text(file()), before);
}

TEST_F(SessionProgram, FlagsThatAreGivenTakeThePlaceOfTheSessionsSettings) {
  ASSERT_EQ(kept({"-n", "4", "--temp", "0.7", "--seed", "9", "--top-k", "5", "Once"}).status, 0);
  ASSERT_EQ(kept({"-n", "4", "--seed", "10", "--repeat-penalty", "1.5"}).status, 0);
  const auto settings = weft({"inspect", file(), "--json"}).json()["sampling"];
  EXPECT_EQ(settings["temp"].dump(), "0.7");
  EXPECT_EQ(settings["seed"], 10);
  EXPECT_EQ(settings["top_k"], 5);
  EXPECT_EQ(settings["repeat_penalty"].dump(), "1.5");
}

TEST_F(SessionProgram, APromptOfAPipeIsAPromptAndNoneGoesOn) {
  ASSERT_EQ(text({"-n", "3", "--ignore-eos", "--session", file()}, "Once\n").status, 0);
  ASSERT_EQ(text({"-n", "3", "--ignore-eos", "--session", file()}, "").status, 0);
  const auto after = weft({"inspect", file(), "--json"}).json();
  EXPECT_EQ(after["tokens"].get<int>() - after["prompt_tokens"].get<int>(), 6);
}

TEST_F(SessionProgram, WithoutAFileAPromptIsNeeded) {
  expect_error(kept({"-n", "3"}), 2, "is not there yet, and begins with one");
  EXPECT_FALSE(std::filesystem::exists(file()));
}

TEST_F(SessionProgram, ANewFileIsForItsOwnerAlone) {
  ASSERT_EQ(kept({"-n", "3", "Once"}).status, 0);
  struct stat entry {};
  ASSERT_EQ(::stat(file().c_str(), &entry), 0);
  EXPECT_EQ(entry.st_mode & 0777, 0600u);
}

TEST_F(SessionProgram, WhatIsRefusedStaysAsItWas) {
  ASSERT_EQ(kept({"-n", "5", "--ignore-eos", "Once upon a time"}).status, 0);
  const std::string good = read_text(file());
  expect_refused({"generate", "-m", other_model(), "--compute", "f32", "--raw", "Once"},
                 "another model");
  expect_refused(generate({"Once", "-ctk", "f32"}), "--cache-type-k f16 --cache-type-v f16");
  expect_refused(generate({"Once", "-ctv", "bf16"}), "K f16 and V bf16");
  expect_refused(generate({"Once", "--compute", "int8"}), "--compute f32");
  expect_refused({"chat", "-m", path("chat.gguf")}, "a text's session; weft generate goes on");
  expect_refused(generate({"-c", "4"}), "fill the context of 4");

  std::string damaged = good;
  damaged[damaged.size() / 2] ^= 4;
  write_text(file(), damaged);
  expect_refused(generate({"Once"}), "checksum");
  write_text(file(), good.substr(0, good.size() - 1));
  expect_refused(generate({"Once"}), "its header says");
  std::string newer = good;
  newer[16] = 3;
  write_text(file(), newer);
  expect_refused(generate({"Once"}), "version 3, this weft reads version 2");
  for (const char* other : {"", "x", "{\"messages\": []}", "WEFTSE\r\n"}) {
    write_text(file(), other);
    expect_refused(generate({"Once"}), file());
  }
  expect_error(text({"--session", docs(), "Once"}), 1, "--session " + docs());
}

// Whole files, whose turns no chat could have.
TEST_F(SessionProgram, AConversationOfMisplacedTurnsIsRefused) {
  using text::Role;
  const std::vector<std::string> chat = {"chat",      "-m", path("chat.gguf"), "-t", "1",
                                         "--compute", "f32"};
  write_chat({{Role::kAssistant, "A"}, {Role::kUser, "x"}});
  expect_refused(chat, "begins with an answer");
  write_chat({{Role::kUser, "A"}, {Role::kSystem, "x"}, {Role::kUser, "z"}});
  expect_refused(chat, "a system turn after the conversation's beginning");
  write_chat({{Role::kUser, "A"}, {Role::kAssistant, "x"}}, 3);
  expect_refused(chat, "3 turns are dropped");
}

// Where auto's choice is kept nowhere, or was another number of threads', it may choose otherwise.
TEST_F(SessionProgram, WithoutComputeTheSessionsIsTaken) {
  const auto run = [](std::vector<std::string> arguments, const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), {"-t", "1", "-n", "4", "--session", file()});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return weft(arguments, arguments[0] == "chat" ? "Hello\n" : "");
  };
  for (const std::string compute : {"f32", "int8"}) {
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"generate", "-m", model(), "--raw"},
          std::vector<std::string>{"chat", "-m", path("chat.gguf")}}) {
      SCOPED_TRACE(command[0] + " " + compute);
      std::filesystem::remove(file());
      std::vector<std::string> first = {"--compute", compute};
      if (command[0] == "generate") first.emplace_back("Once");
      ASSERT_EQ(run(command, first).status, 0);
      EXPECT_EQ(run(command, {}).status, 0);
      EXPECT_EQ(run(command, {"--compute", "auto"}).status, 0);
      EXPECT_EQ(weft({"inspect", file(), "--json"}).json()["compute"], compute);
      const std::string other = compute == "f32" ? "int8" : "f32";
      expect_error(run(command, {"--compute", other}), 1, "--compute " + compute);
    }
  }
}

TEST_F(SessionProgram, ALinkThatLeadsNowhereIsCalledSo) {
  const std::string link = path("dangling");
  std::filesystem::create_symlink(path("nowhere"), link);
  for (const Outcome& run :
       {text({"-n", "3", "Once", "--session", link}), chat("Hello\n", {"--session", link})}) {
    expect_error(run, 1, "--session " + link + ": a symbolic link that leads nowhere");
  }
  std::filesystem::remove(link);
}

TEST_F(SessionProgram, WhatAKilledRunLeftGoesWithALaterRun) {
  const std::string old = file() + ".0123456789abcdef.tmp",
                    young = file() + ".fedcba9876543210.tmp";
  write_text(old, "what was said");
  write_text(young, "what is being said");
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(old, now - std::chrono::hours(2));
  ASSERT_EQ(kept({"-n", "3", "Once"}).status, 0);
  EXPECT_FALSE(std::filesystem::exists(old));
  EXPECT_TRUE(std::filesystem::exists(young));  // another process may be at it
  std::filesystem::remove(young);
}

// /save! is the other program here: it writes this file, and the session knows nothing of it.
TEST_F(SessionProgram, AConversationWhoseFileWasTakenSaysHowToKeepIt) {
  const Outcome run = chat("Hello\n/save! " + file() + "\nMore\n/clear\n", {"--session", file()});
  EXPECT_EQ(run.status, 1) << run.err;
  EXPECT_THAT(run.err,
              HasSubstr(file() + ": another program wrote this file meanwhile; the session "
                                 "was not kept; /save NAME keeps its turns"));
  EXPECT_THAT(run.err, Not(HasSubstr("keeps the conversation before")));
  EXPECT_THAT(read_text(file()), HasSubstr("\"messages\""));
}

// Said before the answer, which would be lost.
TEST_F(SessionProgram, AFolderThatCannotBeWrittenIsOneLineAndNoAnswer) {
  const std::string folder = path("read-only");
  std::filesystem::create_directory(folder);
  ASSERT_EQ(kept({"-n", "3", "Once"}).status, 0);
  std::filesystem::copy_file(file(), folder + "/f");
  ASSERT_EQ(::chmod((folder + "/f").c_str(), 0644), 0);
  ASSERT_EQ(::chmod(folder.c_str(), 0555), 0);
  ASSERT_EQ(::chmod(folder_->path().c_str(), 0755), 0);
  const auto as_another = [] {
    if (::geteuid() != 0) return;
    if (::setgroups(0, nullptr) != 0 || ::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(126);
  };
  const std::string before = read_text(folder + "/f");
  for (const char* name : {"/f", "/new"}) {
    const Outcome run = finish(
        start(generate({"-n", "3", "Once", "--session", folder + name}), "", "", as_another));
    expect_error(run, 1, "--session " + folder + name);
    EXPECT_EQ(run.out, "");
  }
  EXPECT_EQ(read_text(folder + "/f"), before);
  ::chmod(folder.c_str(), 0755);
}

TEST_F(SessionProgram, AConversationGoesOnFromItsFile) {
  const Outcome whole = chat("Hello\nAnd then?\nWhy?\n", {"--temp", "0.9", "--seed", "4"});
  ASSERT_EQ(whole.status, 0) << whole.err;
  const Outcome first =
      chat("Hello\nAnd then?\n", {"--temp", "0.9", "--seed", "4", "--session", file()});
  ASSERT_EQ(first.status, 0) << first.err;
  const Outcome second = chat("Why?\n/stats\n", {"--session", file()});
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_EQ(first.out + "\n" + second.out, whole.out);
  EXPECT_THAT(second.err, HasSubstr("4 turns (2 questions, 2 answers) loaded"));
  EXPECT_THAT(second.err, Not(HasSubstr(" 0 reused")));
  EXPECT_EQ(weft({"inspect", file(), "--json"}).json()["turns"], 6);
}

TEST_F(SessionProgram, AConversationsFileKeepsWhatWasTakenBackAndSet) {
  ASSERT_EQ(chat("Hello\nMore\n/undo\n/set temp 0.25\n", {"--session", file()}).status, 0);
  auto now = weft({"inspect", file(), "--json"}).json();
  EXPECT_EQ(now["turns"], 2);
  EXPECT_EQ(now["sampling"]["temp"].dump(), "0.25");
  const Outcome cleared = chat("/clear\nOther\n", {"--session", file()});
  EXPECT_THAT(cleared.err, HasSubstr(file() + " keeps the conversation before"));
  now = weft({"inspect", file(), "--json"}).json();
  EXPECT_EQ(now["turns"], 2);
  ASSERT_EQ(chat("", {"--session", path("nothing.session")}).status, 0);
  EXPECT_FALSE(std::filesystem::exists(path("nothing.session")));
}

TEST_F(SessionProgram, InspectShowsASession) {
  ASSERT_EQ(kept({"-n", "5", "--ignore-eos", "Once upon a time"}).status, 0);
  const auto shown = weft({"inspect", file(), "--json"}).json();
  EXPECT_EQ(shown["format"], "session");
  EXPECT_EQ(shown["kind"], "text");
  EXPECT_EQ(shown["layers"], 6);
  EXPECT_EQ(shown["k_type"], "f16");
  EXPECT_EQ(shown["bytes"], std::filesystem::file_size(file()));
  const int slots = shown["slots"].get<int>();
  EXPECT_EQ(shown["tokens"], slots + 1);
  EXPECT_EQ(shown["slot_kinds"]["decode"], 4);
  EXPECT_EQ(shown["kv_bytes"],
            slots * 6 * 2 * 2 * 16 * 2);  // layers, K and V, heads, head size, f16
  const Outcome text = weft({"inspect", file()});
  EXPECT_THAT(text.out, HasSubstr("text session version 2"));
  EXPECT_THAT(text.out, HasSubstr("K f16, V f16"));
}

TEST_F(SessionProgram, AnInterruptedTextLeavesTheFile) {
  ASSERT_EQ(kept({"-n", "5", "--ignore-eos", "Once upon a time"}).status, 0);
  const std::string before = read_text(file());
  const RunningProgram running =
      start(generate({"-n", "-1", "-c", "2000", "--ignore-eos", "--session", file()}));
  ::usleep(300'000);
  ::kill(running.child, SIGINT);
  const Outcome run = finish(running);
  if (run.status == 0) return;  // it was done before the signal came
  EXPECT_EQ(run.status, 130) << run.err;
  EXPECT_EQ(read_text(file()), before);
}

TEST_F(SessionProgram, AnInterruptedTextOfANewSessionSaysThatThereIsNoFile) {
  std::vector<std::string> args = generate({"-n", "-1", "-c", "2000", "--ignore-eos", "--session"});
  args.insert(args.end(), {file(), "Once upon a time"});
  const RunningProgram running = start(args);
  ::usleep(200'000);
  ::kill(running.child, SIGINT);
  const Outcome run = finish(running);
  if (run.status == 0) return;  // it was done before the signal came
  EXPECT_EQ(run.status, 130) << run.err;
  EXPECT_FALSE(std::filesystem::exists(file()));
  EXPECT_THAT(run.err, Not(HasSubstr("as it was")));
}

// What a shift has moved is left out of the file, so that it can be gone on with.
TEST_F(SessionProgram, AChatThatShiftedIsGoneOnWith) {
  for (const char* sinks : {"0", "4"}) {
    const std::vector<std::string> flags{"-c",  "96",        "--ignore-eos", "--context-sinks",
                                         sinks, "--session", file()};
    const auto say = [&](const char* tokens) {
      std::vector<std::string> more = flags;
      more.insert(more.end(), {"-n", tokens});
      return chat("Tell me more.\n/stats\n", more);
    };
    const Outcome first = say("200");
    EXPECT_EQ(first.status, 0) << first.err;
    EXPECT_THAT(first.err, HasSubstr("dropped by shifts"));
    const Outcome second = say("4");
    EXPECT_EQ(second.status, 0) << second.err;
    EXPECT_THAT(second.err, HasSubstr("4 turns (2 questions, 2 answers)"));
    std::filesystem::remove(file());
  }
}

}  // namespace
}  // namespace weft::test
