// weft -v: more on standard error, nothing else on standard output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <vector>

#include "support/kv_limit.h"
#include "support/weft_program.h"

namespace weft {
namespace {

using test::Outcome;
using test::write_text;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Arguments = std::vector<std::string>;

constexpr int64_t kPageTokens = 16;

/// A line on the KV cache, read back.
struct KvLine {
  int64_t used = 0, pages = 0, shared = 0, free = 0, wasted = 0, slots = 0;
};

std::vector<KvLine> kv_lines(const std::string& text) {
  static const std::regex kLine(
      "KV cache  (?:[^:\n]*: )?([0-9]+) of ([0-9]+) pages used \\([^)]*\\), ([0-9]+) shared by "
      "several, ([0-9]+) free; ([0-9]+) of ([0-9]+) slots without a token \\([0-9.]+ %\\)\n");
  std::vector<KvLine> lines;
  for (std::sregex_iterator it(text.begin(), text.end(), kLine), end; it != end; ++it) {
    const auto number = [&](int i) { return std::stoll((*it)[i].str()); };
    lines.push_back({number(1), number(2), number(3), number(4), number(5), number(6)});
  }
  return lines;
}

class Verbose : public test::WeftProgram {
 protected:
  static Outcome generate(Arguments more) {
    const Arguments usual{"generate", "-m", model(), "--raw", "--ignore-eos"};
    more.insert(more.begin(), usual.begin(), usual.end());
    return weft(more);
  }
  static int64_t tokens_of(const std::string& prompt) {
    return std::ssize(weft({"tokenize", "-m", model(), "--json"}, prompt).json()["tokens"]);
  }
};

TEST_F(Verbose, EveryCommandThatOpensAModelOrAStoreTakesIt) {
  for (const Arguments& command : std::vector<Arguments>{{"generate"},
                                                         {"chat"},
                                                         {"ask"},
                                                         {"ingest"},
                                                         {"eval"},
                                                         {"eval", "passkey"},
                                                         {"perplexity"},
                                                         {"bench", "speed"},
                                                         {"bench", "ttft"},
                                                         {"bench", "batch"},
                                                         {"bench", "load"},
                                                         {"bench", "retrieval"},
                                                         {"inspect"},
                                                         {"quantize"},
                                                         {"tokenize"},
                                                         {"template"},
                                                         {"docs", "ls"},
                                                         {"docs", "rm"},
                                                         {"cache", "stat"},
                                                         {"cache", "gc"}}) {
    Arguments help = command;
    help.push_back("--help");
    EXPECT_THAT(weft(help).out, HasSubstr("-v,--verbose")) << command.front();
  }
}

TEST_F(Verbose, GenerateSaysWhatItOpensAndWhatTheCacheHeld) {
  const std::string prompt = filler(3);
  const Outcome usual = generate({"-n", "20", "-p", prompt, "-q"});
  EXPECT_THAT(usual.err, IsEmpty());
  const Outcome run = generate({"-n", "20", "-p", prompt, "-v"});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, usual.out);
  EXPECT_THAT(run.err, AllOf(HasSubstr("weft: info: " + model() + ": "), HasSubstr(" mapped, "),
                             HasSubstr("llama of 6 layers"), HasSubstr("KV cache: K F16, V F16, "),
                             HasSubstr(" pages of 16 tokens in 1 group of layers"),
                             HasSubstr("answer: 20 tokens in ")));
  EXPECT_THAT(run.err, Not(HasSubstr("--kv-limit")));
  const std::vector<KvLine> lines = kv_lines(run.err);
  ASSERT_EQ(lines.size(), 1u) << run.err;
  // The token that is sampled last is never run.
  const int64_t n_tokens = tokens_of(prompt) + 19;
  const int64_t n_pages = (n_tokens + kPageTokens - 1) / kPageTokens;
  EXPECT_EQ(lines[0].used, n_pages);
  EXPECT_EQ(lines[0].free, lines[0].pages - n_pages);
  EXPECT_EQ(lines[0].shared, 0);
  EXPECT_EQ(lines[0].slots, n_pages * kPageTokens);
  EXPECT_EQ(lines[0].wasted, n_pages * kPageTokens - n_tokens);

  EXPECT_THAT(generate({"-n", "4", "-v", "--kv-limit", "2MB", "x"}).err,
              HasSubstr("--kv-limit 2MB: "));
  expect_error(generate({"-v", "-q", "x"}), 2,
               "--verbose and --quiet do not go together: give one");
}

TEST_F(Verbose, SamplesOfOnePromptShareItsPages) {
  const Arguments flags{"-n", "10", "--temp", "1", "--parallel", "6", "-p", filler(8), "--json"};
  const Outcome usual = generate(flags);
  Arguments with_flag = flags;
  with_flag.push_back("-v");
  const Outcome run = generate(with_flag);
  EXPECT_EQ(run.out, usual.out);
  const nlohmann::json kv = usual.json()["kv"];
  const std::vector<KvLine> lines = kv_lines(run.err);
  ASSERT_EQ(lines.size(), 1u) << run.err;
  EXPECT_EQ(lines[0].used, kv["pages_peak"]);
  EXPECT_EQ(lines[0].shared, kv["pages_shared"]);
  EXPECT_GT(lines[0].shared, 2);
  EXPECT_THAT(run.err, HasSubstr("tokens of its prompt are in the prefix cache"));
}

TEST_F(Verbose, RequestsThatWaitAgainAreNamed) {
  const std::string limit = test::kv_limit_flag(folder_->path(), model(), 24, test::batch_steps(6));
  const Outcome run = generate({"-n", "120", "--temp", "1", "--parallel", "6", "-p", filler(2),
                                "-v", "-c", "256", "--kv-limit", limit});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("weft: info: request 5 waits again: its "),
                             HasSubstr(" computed tokens make room")));
}

TEST_F(Verbose, GroupsOfLayersHaveALineEach) {
  const std::string gemma = path("gemma.gguf");
  ASSERT_TRUE(gguf::write_random_model(posix_env(), gemma,
                                       {.architecture = "gemma3",
                                        .n_layers = 6,
                                        .vocab = 300,
                                        .context_length = 8192,
                                        .window = 24})
                  .is_ok());
  const Outcome run =
      weft({"generate", "-m", gemma, "--raw", "--ignore-eos", "-n", "8", "-v", "-p", filler(4)});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(kv_lines(run.err).size(), 2u) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("KV cache  5 layers with a window of 24: "),
                             HasSubstr("KV cache  1 layer that see all: ")));
}

/// The group that counts their sequences has no layers, so no line.
TEST_F(Verbose, AModelOfWhichAllLayersRollHasOneLine) {
  const std::string phi = path("phi.gguf");
  ASSERT_TRUE(gguf::write_random_model(posix_env(), phi,
                                       {.architecture = "phi3",
                                        .n_layers = 4,
                                        .vocab = 300,
                                        .context_length = 32768,
                                        .window = 24})
                  .is_ok());
  const Outcome run = weft({"generate", "-m", phi, "--raw", "--ignore-eos", "-n", "8", "-v", "-c",
                            "32768", "-p", filler(4)});
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr(" in 2 groups of layers"));
  EXPECT_EQ(kv_lines(run.err).size(), 1u) << run.err;
}

TEST_F(Verbose, ChatSaysItAfterEachAnswerAndInStats) {
  const std::string chat = path("talk.gguf");
  ASSERT_TRUE(
      gguf::write_random_model(
          posix_env(), chat,
          {.vocab = 300,
           .chat_template =
               "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<answer>"})
          .is_ok());
  const Arguments flags{"chat", "-m", chat, "-n", "5"};
  const std::string said = "Hello\nAgain\n/stats\n";
  const Outcome usual = weft(flags, said);
  EXPECT_EQ(kv_lines(usual.err).size(), 1u) << usual.err;  // of /stats
  Arguments with_flag = flags;
  with_flag.push_back("-v");
  const Outcome run = weft(with_flag, said);
  ASSERT_EQ(run.status, 0) << run.err;
  EXPECT_EQ(run.out, usual.out);
  const std::vector<KvLine> lines = kv_lines(run.err);
  ASSERT_EQ(lines.size(), 3u) << run.err;
  EXPECT_GE(lines[1].used, lines[0].used);
  EXPECT_EQ(lines[2].used, lines[1].used);
  EXPECT_EQ(lines[2].wasted, lines[1].wasted);
}

TEST_F(Verbose, IngestAndAskTellOfTheStoreAndItsRecords) {
  write_text(docs() + "/picture.png", std::string("\x89PNG\0\0\0\0", 8));
  const Outcome ingested = ingest({"-v"});
  ASSERT_EQ(ingested.status, 0) << ingested.err;
  EXPECT_THAT(ingested.err, AllOf(HasSubstr("picture.png: skipped, "),
                                  HasSubstr(store() + ": 0 records, 0 B, a new store")));
  EXPECT_EQ(kv_lines(ingested.err).size(), 1u) << ingested.err;
  EXPECT_GT(kv_lines(ingested.err)[0].used, 0);
  const Arguments blend{"--reuse", "blend", "--ratio", "0.2"};
  const nlohmann::json usual = ask("When does the harbour open?", blend).json();
  Arguments with_flag = blend;
  with_flag.push_back("-v");
  const Outcome asked = ask("When does the harbour open?", with_flag);
  ASSERT_EQ(asked.status, 0) << asked.err;
  const nlohmann::json answer = asked.json();
  EXPECT_EQ(answer["answer"], usual["answer"]);
  for (const auto& [name, value] : usual.items()) EXPECT_TRUE(answer.contains(name)) << name;
  EXPECT_EQ(answer.size(), usual.size());
  EXPECT_THAT(asked.err, HasSubstr("weft: info: " + store() + ": "));
  EXPECT_THAT(asked.err, HasSubstr(" tokens over "));
  EXPECT_THAT(asked.err, HasSubstr(" from disk, "));
  EXPECT_EQ(kv_lines(asked.err).size(), 1u) << asked.err;
  EXPECT_THAT(weft({"cache", "stat", "-v", "--store", store()}).err, HasSubstr(store() + ": "));
}

}  // namespace
}  // namespace weft
