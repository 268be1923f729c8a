// The program where the machine gives it too little: memory (ulimit -v), threads (ulimit -u). It
// says so in one line and ends with status 1, whatever the limit and wherever it is met.
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "kernels/matmul_prefill.h"
#include "support/program.h"
#include "support/test_model.h"

namespace weft {
namespace {

using test::ProgramRun;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

class Limits : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<test::TempDir>();
    ::chmod(folder_->path().c_str(), 0755);  // for the other user
    ASSERT_TRUE(gguf::write_random_model(posix_env(), path("model.gguf"),
                                         {.n_layers = 4, .n_embd = 64, .n_ff = 256, .vocab = 600})
                    .is_ok());
    std::string text;
    for (int i = 0; text.size() < 200'000; ++i) {
      text += "Item " + std::to_string(i) + " lies on its shelf in the harbour's store. ";
    }
    std::filesystem::create_directory(path("docs"));
    std::ofstream(path("docs/items.txt")) << text.substr(0, 12'000);
    std::ofstream(path("prompt.txt")) << text.substr(0, 1500);
    std::ofstream(path("text.txt")) << text;
    std::ofstream(path("eval.json"))
        << R"([{"question": "What lies there?", "answers": ["items"], "ctxs": [{"text": ")"
        << text.substr(0, 2000) << R"("}]}])";
    const ProgramRun made =
        run({"ingest", "-m", path("model.gguf"), "--store", path("store"), path("docs")});
    ASSERT_EQ(made.status, 0) << made.err;
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string path(const std::string& name) { return folder_->path() + "/" + name; }

  static ProgramRun run(const std::vector<std::string>& arguments, const std::string& input = "",
                        const std::function<void()>& prepare = {}) {
    return test::run_weft(folder_->path(), arguments, input, prepare);
  }

  static ProgramRun run_with_memory(const std::vector<std::string>& arguments, uint64_t bytes,
                                    const std::string& input = "") {
    return run(arguments, input, [bytes] {
      const rlimit limit{bytes, bytes};
      setrlimit(RLIMIT_AS, &limit);
      const rlimit no_core{0, 0};
      setrlimit(RLIMIT_CORE, &no_core);
    });
  }

  /// One line that says why it ended; warnings may come before.
  static void expect_one_line(const ProgramRun& failed) {
    EXPECT_EQ(failed.status, 1) << failed.err;
    int n_errors = 0;
    std::istringstream lines(failed.err);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_TRUE(line.starts_with("weft: ")) << failed.err;
      if (!line.starts_with("weft: warning: ")) ++n_errors;
    }
    EXPECT_EQ(n_errors, 1) << failed.err;
  }

  /// From where the program can be loaded at all up to where the command succeeds.
  static void expect_one_line_at_every_size(const std::vector<std::string>& arguments,
                                            const std::string& input = "") {
    const ProgramRun unlimited = run(arguments, input);
    ASSERT_EQ(unlimited.status, 0) << unlimited.err;
    std::filesystem::remove_all(path("made"));  // begins anew, and goes on from size to size
    uint64_t bytes = 8 * kMiB;
    while (run_with_memory({"--version"}, bytes).status != 0) bytes += kMiB / 4;
    int n_failed = 0;
    for (uint64_t step = kMiB / 4;; bytes += step) {
      const ProgramRun done = run_with_memory(arguments, bytes, input);
      if (done.status == 0) break;
      SCOPED_TRACE(std::to_string(bytes / 1024) + " KiB");
      expect_one_line(done);
      if (HasFailure()) return;
      if (++n_failed % 16 == 0) step += step / 2;  // ever larger: a command may take much
      ASSERT_LT(bytes, 8192 * kMiB);
    }
    EXPECT_GT(n_failed, 0);
    std::printf("%d sizes failed up to %llu KiB\n", n_failed,
                static_cast<unsigned long long>(bytes / 1024));
  }

  static inline std::unique_ptr<test::TempDir> folder_;
};

// A sanitizer's shadow takes more than any limit on address space leaves, and ThreadSanitizer has a
// thread of its own: these are for the program as it is.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

TEST_F(Limits, MemoryForALongTextRunsOut) {
  const std::string text(50 * kMiB, 'a');
  const ProgramRun failed =
      run_with_memory({"tokenize", "-m", path("model.gguf")}, 300 * kMiB, text);
  expect_one_line(failed);
  EXPECT_THAT(failed.err, HasSubstr("out of memory"));
}

TEST_F(Limits, EveryCommandEndsWithALineAtEverySize) {
  const std::string model = path("model.gguf");
  const std::string text = test::read_text(path("text.txt"));
  // oneDNN's products have generated code and memory of their own.
  const std::string wide = kernels::onednn_takes_bf16() ? "bf16" : "int8";
  const std::vector<std::pair<std::vector<std::string>, std::string>> commands{
      {{"tokenize", "-m", model}, text},
      {{"inspect", model}, ""},
      {{"generate", "-m", model, "--raw", "-f", path("prompt.txt"), "-n", "4", "-c", "2048"}, ""},
      {{"generate", "-m", model, "--raw", "-p", "Hello", "-n", "4", "--compute", "f32"}, ""},
      {{"generate", "-m", model, "--raw", "-f", path("prompt.txt"), "-n", "4", "--compute", wide},
       ""},
      {{"ingest", "-m", model, "--store", path("made"), path("docs")}, ""},
      {{"ask", "-m", model, "--store", path("store"), "-n", "4", "What lies there?"}, ""},
      {{"quantize", model, path("small.gguf"), "Q8_0"}, ""},
      {{"eval", "-m", model, "-f", path("eval.json"), "--modes", "none,blend"}, ""},
  };
  for (const auto& [arguments, input] : commands) {
    SCOPED_TRACE(::testing::PrintToString(arguments));
    expect_one_line_at_every_size(arguments, input);
    if (HasFailure()) return;
  }
}

#endif
#if !defined(__SANITIZE_THREAD__)

/// Leaves root for a user that owns no process, then limits it to `n` threads.
void limit_threads(rlim_t n) {
  constexpr uid_t kNobodyElse = 54'321;
  if (geteuid() == 0) {
    setgroups(0, nullptr);
    if (setresgid(kNobodyElse, kNobodyElse, kNobodyElse) != 0) _exit(126);
    if (setresuid(kNobodyElse, kNobodyElse, kNobodyElse) != 0) _exit(126);
  }
  const rlimit limit{n, n};
  setrlimit(RLIMIT_NPROC, &limit);
}

TEST_F(Limits, ThreadsThatTheMachineRefusesAreALine) {
  // Not as root this user has other processes, and every thread is one too many.
  const std::vector<rlim_t> limits =
      geteuid() == 0 ? std::vector<rlim_t>{1, 2, 5, 15} : std::vector<rlim_t>{1};
  for (const rlim_t n : limits) {
    const ProgramRun failed = run({"generate", "-m", path("model.gguf"), "--raw", "-p", "Hello",
                                   "-n", "2", "-t", "16", "--compute", "f32"},
                                  "", [n] { limit_threads(n); });
    expect_one_line(failed);
    EXPECT_THAT(failed.err, HasSubstr("of 16: the machine refuses another thread"));
    if (geteuid() == 0) {
      EXPECT_THAT(failed.err, HasSubstr("thread " + std::to_string(n + 1) + " of 16"));
    }
    EXPECT_THAT(failed.err, HasSubstr("-t"));
    EXPECT_THAT(failed.err, HasSubstr("ulimit -u"));
  }
  const ProgramRun one = run({"generate", "-m", path("model.gguf"), "--raw", "-p", "Hello", "-n",
                              "2", "-t", "1", "--compute", "f32"},
                             "", [] { limit_threads(1); });
  EXPECT_EQ(one.status, 0) << one.err;
}

#endif

}  // namespace
}  // namespace weft
