// The program where its surroundings are not as it may expect: descriptors that are closed, limits
// on files and on the stack, no home folder, numbers that no type holds, and files of the user
// where it is to write. It loses nothing of theirs, waits for nobody, and says what it cannot do in
// one line.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>

#include "support/terminal.h"
#include "support/weft_program.h"

namespace weft {
namespace {

using test::Outcome;
using test::Terminal;
using test::write_text;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kData[] = R"([{"question": "Which item?", "answers": ["seven"],
                              "ctxs": [{"title": "A", "text": "Item seven is here."}]}])";

class Surroundings : public test::WeftProgram {
 protected:
  void SetUp() override {
    WeftProgram::SetUp();
    write_text(data(), kData);
  }
  static std::string data() { return path("data.json"); }
  static Outcome run_in(const std::function<void()>& prepare, std::vector<std::string> arguments,
                        const std::string& input = "") {
    return finish(start(std::move(arguments), input, "", prepare));
  }
  static std::vector<std::string> eval(const std::string& details) {
    return {"eval", "-m", model(), "-f", data(), "--modes", "none", "--details", details};
  }
  static std::vector<std::string> ttft(const std::string& tokens) {
    return {"bench",   "ttft", "-m",       model(), "--chunks",       "2",   "--chunk-tokens", "16",
            "--modes", "none", "--repeat", "1",     "--write-tokens", tokens};
  }
  /// A small model with this chat template.
  static std::string model_with(const std::string& name, const std::string& chat_template) {
    gguf::RandomModelOptions options{.vocab = 300};
    options.context_length = 8192;
    options.chat_template = chat_template;
    EXPECT_TRUE(gguf::write_random_model(posix_env(), path(name), options).is_ok());
    return path(name);
  }
  static std::vector<std::string> temporary_files() {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder_->path())) {
      if (entry.path().extension() == ".tmp") found.push_back(entry.path().string());
    }
    return found;
  }
};

// Results in files.

TEST_F(Surroundings, AResultsFileIsThereWhenItIsWhole) {
  const std::string file = path("result");
  for (const auto& command : {eval(file), ttft(file)}) {
    write_text(file, "precious");
    const auto no_room = [] {
      const rlimit limit{16, 16};
      setrlimit(RLIMIT_FSIZE, &limit);
    };
    EXPECT_NE(run_in(no_room, command).status, 0);
    EXPECT_EQ(test::read_text(file), "precious");
    const Outcome done = weft(command);
    ASSERT_EQ(done.status, 0) << done.err;
    EXPECT_THAT(test::read_text(file), Not(HasSubstr("precious")));
    EXPECT_FALSE(nlohmann::json::parse(test::read_text(file), nullptr, false).is_discarded());
    EXPECT_THAT(temporary_files(), IsEmpty());
  }
}

TEST_F(Surroundings, AResultsFileIsNoneThatIsRead) {
  std::filesystem::create_hard_link(data(), path("again.json"));
  for (const std::string& file : {data(), path("again.json"), model()}) {
    const std::string before = test::read_text(file);
    expect_error(weft(eval(file)), 2, file + ": is the file to be read");
    EXPECT_EQ(test::read_text(file), before);
  }
  std::filesystem::remove(path("again.json"));
  expect_error(weft(ttft(model())), 2, model() + ": is the file to be read");
}

TEST_F(Surroundings, AResultsFileIsARegularOne) {
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  std::filesystem::create_symlink(path("nowhere"), path("dangling"));
  for (const auto command : {&Surroundings::eval, &Surroundings::ttft}) {
    expect_error(weft(command(path("fifo"))), 2, "not a regular file");
    expect_error(weft(command(path("dangling"))), 1, "dangling");
    EXPECT_FALSE(std::filesystem::exists(path("nowhere")));
    expect_error(weft(command(path("no/such/folder"))), 1, path("no/such/folder") + ": cannot");
  }
  std::filesystem::remove(path("fifo"));
  std::filesystem::remove(path("dangling"));
}

// Descriptors.

TEST_F(Surroundings, AClosedDescriptorIsNoFileThatIsOpenedLater) {
  const std::string small = path("small.gguf");
  const std::vector<std::string> command{"quantize", model(), small, "Q8_0"};
  ASSERT_EQ(weft(command).status, 0);
  const std::string whole = test::read_text(small);
  for (int closed = 1; closed < 8; ++closed) {
    SCOPED_TRACE(closed);
    const Outcome run = run_in(
        [closed] {
          for (int fd = 0; fd < 3; ++fd) {
            if ((closed >> fd & 1) != 0) close(fd);
          }
        },
        command);
    // Nobody is told where standard error is closed; the line on standard output is lost.
    EXPECT_EQ(run.status, (closed & 2) != 0 ? 1 : 0) << run.err;
    if ((closed & 2) != 0 && (closed & 4) == 0) expect_error(run, 1, "standard output: ");
    EXPECT_EQ(test::read_text(small), whole);
  }
  // A lock is held, its file open, while the report is written.
  const Outcome ingested =
      run_in([] { close(1); }, {"ingest", "-m", model(), "--store", store(), docs()});
  expect_error(ingested, 1, "standard output: ");
  int n_locks = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(store())) {
    if (entry.path().extension() != ".lock") continue;
    ++n_locks;
    EXPECT_EQ(test::read_text(entry.path().string()), "") << entry.path();
  }
  EXPECT_GT(n_locks, 0);
  expect_error(run_in([] { close(0); }, {"tokenize", "-m", model()}), 1, "standard input: ");
}

// Limits.

TEST_F(Surroundings, ALimitOnTheSizeOfFilesIsALine) {
  const Outcome run = run_in(
      [] {
        const rlimit limit{64 << 10, 64 << 10};
        setrlimit(RLIMIT_FSIZE, &limit);
        const rlimit no_core{0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGXFSZ, SIG_DFL);
      },
      {"quantize", model(), path("limited.gguf"), "Q8_0"});
  expect_error(run, 1, path("limited.gguf") + ": cannot write");
  EXPECT_THAT(run.err, HasSubstr("ulimit -f"));
  EXPECT_FALSE(std::filesystem::exists(path("limited.gguf")));
  EXPECT_THAT(temporary_files(), IsEmpty());
}

/// For a child: little stack, and as a shell sets it no way back.
void limit_stack() {
  const rlimit limit{256 << 10, 256 << 10};
  setrlimit(RLIMIT_STACK, &limit);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Sanitizers start with more than such a stack has.

TEST_F(Surroundings, ASmallStackSufficesForTheDeepestTemplate) {
  const std::map<std::string, std::string> templates{
      {"recursion.gguf", "{% macro f(n) %}{{ f(n+1) }}{% endmacro %}{{ f(0) }}"},
      {"nested.gguf", "{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"},
      {"lists.gguf", "{{ " + std::string(290, '[') + "1" + std::string(290, ']') + " }}"},
      {"filters.gguf",
       "{% macro f(n) %}{% for i in [1] %}{% if true %}{{ [[[[f(n+1)]]]]|map('string')|join }}"
       "{% endif %}{% endfor %}{% endmacro %}{{ f(0) }}"}};
  for (const auto& [name, text] : templates) {
    SCOPED_TRACE(name);
    const std::vector<std::string> command{"generate", "-m", model_with(name, text), "-p", "x",
                                           "-n",       "1"};
    const Outcome usual = weft(command);
    const Outcome small = run_in(limit_stack, command);
    EXPECT_EQ(small.status, usual.status) << small.err;
    EXPECT_EQ(small.err, usual.err);
  }
}

TEST_F(Surroundings, AHugePromptOfATemplateIsRefusedForLittleMemory) {
  const std::string huge = model_with("huge.gguf", "{{ '<|im_start|>' * 4000000 }}");
  const auto little_memory = [] {
    const rlimit limit{512 << 20, 512 << 20};
    setrlimit(RLIMIT_AS, &limit);
  };
  expect_error(run_in(little_memory, {"generate", "-m", huge, "-p", "x", "-t", "1"}), 1,
               "does not fit the context of ");
  const Outcome talk = run_in(little_memory, {"chat", "-m", huge, "-t", "1"}, "x\n");
  EXPECT_EQ(talk.status, 1);
  EXPECT_THAT(talk.err, HasSubstr("does not fit the context of "));
}

TEST_F(Surroundings, ASmallStackChangesNothingElse) {
  const std::vector<std::string> command{"generate",    "-m", model(), "--raw",  "-p",
                                         "The harbour", "-n", "6",     "--temp", "0",
                                         "--json",      "-t", "2"};
  const Outcome usual = weft(command), small = run_in(limit_stack, command);
  EXPECT_EQ(small.status, 0) << small.err;
  EXPECT_EQ(small.out, usual.out);
  expect_error(run_in(limit_stack, {"frob"}), 2, "no command frob");
  expect_error(run_in(limit_stack, {"inspect", path("none.gguf")}), 1, "none.gguf");
}

/// weft on a terminal, by a shell that lowers the limit.
Terminal on_a_small_stack(const std::string& folder, const std::string& command) {
  Terminal terminal = Terminal::shell(folder);
  EXPECT_TRUE(terminal.shows("$ "));
  terminal.type("ulimit -s 256; exec \"" WEFT_BINARY_DIR "/weft\" " + command + "\n");
  return terminal;
}

TEST_F(Surroundings, ASmallStackLeavesSignalsAndTheEditor) {
  const std::string chat = model_with("chat.gguf",
                                      "{% for m in messages %}{{ m.content }}\n"
                                      "{% endfor %}");
  Terminal editor = on_a_small_stack(folder_->path(), "chat -m '" + chat + "'");
  ASSERT_TRUE(editor.shows("> "));
  editor.type("/hep\x02l\r");  // Ctrl-B goes back a character
  ASSERT_TRUE(editor.shows("this list"));
  ASSERT_TRUE(editor.shows("> "));
  editor.type("\x03");
  ASSERT_TRUE(editor.shows("> "));
  editor.type("\x04");
  EXPECT_EQ(editor.exit_status(), 0);
  for (const auto& [number, status] : {std::pair{SIGINT, 130}, {SIGTERM, 143}, {SIGHUP, 129}}) {
    SCOPED_TRACE(number);
    Terminal working = on_a_small_stack(
        folder_->path(),
        "generate -m '" + chat + "' --raw -p x -n 8000 -c 8192 -t 1 --logprobs 1 --compute f32");
    ASSERT_TRUE(working.shows("--compute f32\r\n"));  // what was typed
    ASSERT_TRUE(working.shows_anything());
    working.send(number);
    EXPECT_EQ(working.exit_status(), status) << working.screen();
  }
}
#endif

// What is kept.

TEST_F(Surroundings, WithoutAHomeNothingIsKeptInTheWorkingFolder) {
  const std::string here = path("here");
  std::filesystem::create_directory(here);
  const auto homeless = [&here] {
    for (const char* name : {"HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"}) {
      unsetenv(name);
    }
    if (chdir(here.c_str()) != 0) _exit(126);
    // A user that the system does not know has no home at all.
    if (geteuid() == 0 && setresuid(54'321, 54'321, 54'321) != 0) _exit(126);
  };
  std::filesystem::permissions(folder_->path(), std::filesystem::perms(0755));
  std::filesystem::permissions(here, std::filesystem::perms(0777));
  const std::vector<std::string> command{"generate", "-m", model(), "--raw", "-p", "x", "-n", "1"};
  // Of a user that has a home this keeps the measurement there: that is not for a test.
  WEFT_SKIP_UNLESS(geteuid() == 0, "root's right to become a user without a home");
  const Outcome run = run_in(homeless, command);
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(std::filesystem::is_empty(here));
  const auto no_models = [&homeless] {
    homeless();
    unsetenv("WEFT_MODELS");
  };
  expect_error(run_in(no_models, {"model", "get", "smollm2-135m"}), 1, "WEFT_MODELS");
  expect_error(run_in(no_models, {"model", "path", "nosuch"}), 1, "WEFT_MODELS");
  const Outcome listed = run_in(no_models, {"model", "ls"});
  EXPECT_THAT(listed.err, HasSubstr("no home folder (HOME)"));
  EXPECT_THAT(listed.out, HasSubstr("smollm2-135m"));
  EXPECT_TRUE(std::filesystem::is_empty(here));
  std::filesystem::remove_all(here);
}

TEST_F(Surroundings, AVariableThatIsNoPathFromTheRootDoesNotCount) {
  const std::string here = path("here"), home = path("home");
  for (const std::string& folder : {here, home}) std::filesystem::create_directory(folder);
  const Outcome run = run_in(
      [&] {
        setenv("HOME", home.c_str(), 1);
        setenv("XDG_CACHE_HOME", "cache", 1);
        if (chdir(here.c_str()) != 0) _exit(126);
      },
      {"generate", "-m", model(), "--raw", "-p", "x", "-n", "1"});
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_TRUE(std::filesystem::is_empty(here));
  std::filesystem::remove_all(here);
  std::filesystem::remove_all(home);
}

TEST_F(Surroundings, AHistoryThatIsNoRegularFileIsNotKept) {
  const std::string chat = model_with("chat.gguf", "{{ messages[0].content }}");
  const std::string history = path("weft/chat_history");
  std::filesystem::create_directories(path("weft"));
  std::filesystem::remove(history);
  const std::function<void()> lays[] = {
      [&] { ASSERT_EQ(mkfifo(history.c_str(), 0600), 0); },
      [&] { std::filesystem::create_symlink(path("victim"), history); },
      [&] { std::filesystem::create_directory(history); }};
  for (const auto& lay : lays) {
    lay();
    Terminal terminal(folder_->path(), {"chat", "-m", chat});
    ASSERT_TRUE(terminal.shows("no history is kept: "));
    ASSERT_TRUE(terminal.shows("> "));
    for (int i = 0; i < 2; ++i) {
      terminal.type("/set\r");
      ASSERT_TRUE(terminal.shows("(temp"));
    }
    terminal.type("/exit\r");
    EXPECT_EQ(terminal.exit_status(), 0);
    std::filesystem::remove_all(history);
    EXPECT_FALSE(std::filesystem::exists(path("victim")));
  }
}

TEST_F(Surroundings, AHistoryThatBecomesSomethingElseIsNoLongerKept) {
  const std::string chat = model_with("chat.gguf", "{{ messages[0].content }}");
  const std::string history = path("weft/chat_history");
  Terminal terminal(folder_->path(), {"chat", "-m", chat});
  ASSERT_TRUE(terminal.shows("> "));
  std::filesystem::remove(history);
  ASSERT_EQ(mkfifo(history.c_str(), 0600), 0);
  terminal.type("/set\r");
  ASSERT_TRUE(terminal.shows("no history is kept: "));
  ASSERT_TRUE(terminal.shows("(temp"));
  terminal.type("/exit\r");
  EXPECT_EQ(terminal.exit_status(), 0);
  std::filesystem::remove(history);
}

// Numbers.

TEST_F(Surroundings, ANumberThatDoesNotFitIsALineWithItsRange) {
  const auto generate = [](const std::string& flag, const std::string& value) {
    return weft({"generate", "-m", model(), "--raw", "-p", "x", "-n", "1", flag, value});
  };
  const auto expect_refused = [](const Outcome& run, const std::string& part) {
    expect_error(run, 2, part);
    EXPECT_LT(run.err.size(), 200u) << run.err;
  };
  expect_refused(generate("--seed", "99999999999999999999999"),
                 "--seed 99999999999999999999999: must be a whole number from 0 to "
                 "18446744073709551615");
  expect_refused(generate("--seed", "18446744073709551616"),
                 "--seed 18446744073709551616: must be");
  for (const char* value : {"-1", "1.5", "seven", "0x10", "1'000", "1_000", "+1"}) {
    expect_refused(generate("--seed", value), "--seed " + std::string(value) + ": must be");
  }
  expect_refused(generate("--seed", ""), "--seed '': must be");
  expect_refused(generate("--seed", " 1"), "--seed ' 1': must be");
  expect_refused(generate("--seed", std::string(100'000, '7')), "7777...: must be");
  expect_refused(generate("--threads", "0"), "--threads 0: must be a whole number from 1 to ");
  expect_refused(generate("-c", "4294967297"), "--context 4294967297: must be");
  for (const char* value : {"nan", "inf", "1e999", "hot", "-0.5"}) {
    expect_refused(generate("--temp", value), "--temp " + std::string(value) + ": must be");
  }
  for (const char* value : {"18446744073709551617", "18446744073709551616", "0", "16777216TB",
                            "1.5", ".5GB", "1.GB", "1..5GB", "5XB", "GB", "12i"}) {
    expect_refused(ingest({"--store-limit", value}),
                   "--store-limit " + std::string(value) + ": must be a number of bytes");
  }
  const std::pair<const char*, std::vector<const char*>> refused[] = {
      {"--top-k", {"-1", "2.5"}},
      {"--top-p", {"0", "1.1", "-0.1", "nan"}},
      {"--min-p", {"-0.1", "1.5"}},
      {"--repeat-penalty", {"0", "-1", "100.5", "nan", "inf"}},
      {"--repeat-last-n", {"-2", "1e9"}},
      {"--presence-penalty", {"-2.5", "2.5", "nan"}},
      {"--frequency-penalty", {"-2.5", "1e30"}},
      {"--tokens", {"0", "-2", "16777217"}}};
  for (const auto& [flag, values] : refused) {
    for (const char* value : values) {
      expect_refused(generate(flag, value), std::string(flag) + " " + value + ": must be");
    }
  }
  for (const char* value : {"50", "999999"}) {  // a unit that was forgotten
    expect_refused(ingest({"--store-limit", value}),
                   fmt::format("--store-limit {}: must be more: {} bytes are too few; {}GB?", value,
                               value, value));
  }
  EXPECT_EQ(generate("--seed", "18446744073709551615").status, 0);
  EXPECT_EQ(generate("--logprobs", "09").status, 0) << "decimal, whatever it begins with";
  for (const char* value :
       {"100MB", "100 mib", "100000k", "1g", "1000000", "4294967296", "1.5GB", "0.25GiB"}) {
    const Outcome run = ingest({"--store-limit", value});
    EXPECT_EQ(run.status, 0) << run.err;
  }
}

}  // namespace
}  // namespace weft
