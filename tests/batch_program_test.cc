// Many requests in one run, as their users meet them: weft generate --batch and --parallel,
// --kv-limit, weft bench batch. What a request gets beside others is what it gets alone.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "base/byte_sizes.h"
#include "gguf/random_model.h"
#include "support/kv_limit.h"
#include "support/terminal.h"
#include "support/weft_program.h"

namespace weft {
namespace {

using test::Outcome;
using test::write_text;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

constexpr int kPageTokens = 16;

class Batch : public test::WeftProgram {
 protected:
  static void SetUpTestSuite() {
    WeftProgram::SetUpTestSuite();
    gguf::RandomModelOptions options{.vocab = 300};
    options.chat_template =
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}<answer>";
    ASSERT_TRUE(gguf::write_random_model(posix_env(), chat_model(), options).is_ok());
  }
  static std::string chat_model() { return path("chat.gguf"); }

  static Arguments generate(const Arguments& more, const std::string& file = model()) {
    Arguments arguments{"generate", "-m", file, "--compute", "f32", "-t", "2", "-n", "12"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  static Arguments raw(Arguments more) {
    more.insert(more.begin(), "--raw");
    return generate(more);
  }
  /// The file of these lines, each with a line break.
  static std::string batch_file(const std::vector<Json>& lines) {
    std::string text;
    for (const Json& line : lines) text += line.dump() + "\n";
    write_text(path("batch.jsonl"), text);
    return path("batch.jsonl");
  }
  static std::vector<Json> lines_of(const std::string& text) {
    std::vector<Json> lines;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = text.find('\n', begin);
      EXPECT_NE(end, std::string::npos) << "a line that is cut: " << text.substr(begin);
      lines.push_back(Json::parse(text.substr(begin, end - begin), nullptr, false));
      EXPECT_TRUE(lines.back().is_object()) << text.substr(begin, end - begin);
      if (end == std::string::npos || !lines.back().is_object()) break;
      begin = end + 1;
    }
    return lines;
  }
  static std::vector<int> indices_of(const std::vector<Json>& lines) {
    std::vector<int> indices;
    for (const Json& line : lines) indices.push_back(line.value("index", -1));
    return indices;
  }
  static void expect_fields(const Json& object, const std::vector<std::string>& names) {
    std::vector<std::string> found;
    for (const auto& [name, value] : object.items()) found.push_back(name);
    EXPECT_THAT(found, ::testing::UnorderedElementsAreArray(names)) << object.dump();
  }
  /// What generate says alone, without what only it has.
  static Json alone(const Arguments& arguments) {
    Arguments with_json = arguments;
    with_json.push_back("--json");
    const Outcome run = weft(with_json);
    EXPECT_EQ(run.status, 0) << run.err;
    Json json = run.json();
    json.erase("logprobs");
    return json;
  }
  static Json without_index(Json line) {
    line.erase("index");
    return line;
  }
  /// The flags that say what a request says.
  static Arguments flags_of(const Json& request) {
    const std::map<std::string, std::string> flags = {
        {"prompt", "-p"},     {"n", "-n"},          {"temp", "--temp"}, {"top_k", "--top-k"},
        {"top_p", "--top-p"}, {"min_p", "--min-p"}, {"seed", "--seed"}};
    Arguments arguments;
    for (const auto& [key, value] : request.items()) {
      if (key == "raw") {
        if (value == true) arguments.push_back("--raw");
      } else if (key == "stop") {
        for (const Json& text : value) {
          arguments.insert(arguments.end(), {"--stop", text.get<std::string>()});
        }
      } else {
        const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
        arguments.insert(arguments.end(), {flags.at(key), text});
      }
    }
    return arguments;
  }
  static int64_t page_bytes() {
    const Outcome run = weft(raw({"--parallel", "2", "--json", "-p", "x"}));
    return run.json()["kv"]["page_bytes"].get<int64_t>();
  }
  /// The limit that holds so many; without steps for a single answer.
  static std::string pages(int64_t n, const engine::StepNeeds& steps = {}) {
    return test::kv_limit_flag(folder_->path(), model(), n, steps,
                               {.n_threads = 2, .compute = "f32"});
  }
};

TEST_F(Batch, LinesComeInTheOrderOfTheInputWithItsIndices) {
  write_text(path("in"),
             "{\"prompt\":\"first\",\"n\":9}\n"
             "\n"
             "nonsense\r\n"
             "{\"prompt\":\"second\",\"n\":2}\r\n"
             " \t \r\n"
             "{\"n\":3}\n"
             "{\"prompt\":\"third\",\"n\":5,\"temp\":-1}\n"
             "{\"prompt\":\"last\",\"n\":3}");
  const Outcome run = weft(raw({"--batch", path("in"), "--ignore-eos"}));
  EXPECT_EQ(run.status, 1);
  const std::vector<Json> lines = lines_of(run.out);
  ASSERT_THAT(indices_of(lines), ElementsAre(0, 2, 3, 5, 6, 7));
  for (const size_t i : {0, 2, 5})
    expect_fields(lines[i], {"index", "text", "tokens", "stop_reason"});
  for (const size_t i : {1, 3, 4}) expect_fields(lines[i], {"index", "error"});
  EXPECT_EQ(lines[0]["tokens"].size(), 9u);
  EXPECT_EQ(lines[2]["tokens"].size(), 2u);
  EXPECT_EQ(lines[5]["tokens"].size(), 3u);
  EXPECT_EQ(
      lines[1]["error"],
      "line 3: byte 2: not valid JSON; a line is {\"prompt\": \"...\"}, and what else it sets");
  EXPECT_EQ(lines[3]["error"], "line 6: \"prompt\" is missing");
  EXPECT_EQ(lines[4]["error"], "line 7: \"temp\" -1: must be a number from 0 (greedy) to 3.4e38");
  EXPECT_THAT(run.err, HasSubstr("weft: 3 prompts, 14 tokens generated in "));
  EXPECT_THAT(run.err, HasSubstr("weft: 3 of 6 requests failed\n"));
  EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 2) << run.err;
}

TEST_F(Batch, OfBadLinesAloneThereIsNoSpeedAndTheErrorStays) {
  write_text(path("in"),
             "Name a colour.\n"
             "{\"prompt\":\"x\",\"n\":\"many\"}\n");
  const Arguments quiet{"--batch", path("in"), "-q"};
  for (const Arguments& arguments : {Arguments{"--batch", path("in")}, quiet}) {
    const Outcome run = weft(raw(arguments));
    const std::vector<Json> lines = lines_of(run.out);
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_THAT(lines[0]["error"],
                AllOf(HasSubstr("line 1: "), HasSubstr("a line is {\"prompt\"")));
    EXPECT_THAT(lines[1]["error"], HasSubstr("line 2: \"n\" \"many\": must be a whole number"));
    EXPECT_EQ(run.status, 1);
    EXPECT_EQ(run.err, "weft: 2 of 2 requests failed\n");
  }
}

TEST_F(Batch, ItIsTheSameFromAFileAndAPipeWhateverEndsTheLines) {
  const std::string unix = "{\"prompt\":\"a\"}\n\n{\"prompt\":\"b\",\"temp\":1,\"seed\":4}\n";
  write_text(path("in"), unix);
  const Outcome wanted = weft(raw({"--batch", path("in"), "-q"}));
  EXPECT_EQ(wanted.status, 0) << wanted.err;
  EXPECT_EQ(wanted.err, "");
  EXPECT_THAT(indices_of(lines_of(wanted.out)), ElementsAre(0, 2));
  std::string dos;
  for (const char c : unix) dos += c == '\n' ? std::string("\r\n") : std::string(1, c);
  for (const std::string& input :
       {unix, dos, unix.substr(0, unix.size() - 1), dos.substr(0, dos.size() - 1), unix + "\n\n ",
        "\xef\xbb\xbf" + unix}) {
    const Outcome run = weft(raw({"--batch", "-"}), input);
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.out, wanted.out);
  }
}

TEST_F(Batch, AFileWithoutARequestIsOneLine) {
  for (const std::string input : {"", "\n", "\n \r\n\t\n", " "}) {
    write_text(path("in"), input);
    expect_error(weft(raw({"--batch", path("in")})), 2, path("in") + ": no requests");
    expect_error(weft(raw({"--batch", "-"}), input), 2, "no requests");
  }
  expect_error(weft(raw({"--batch", path("none.jsonl")})), 1, path("none.jsonl"));
  expect_error(weft(raw({"--batch", folder_->path()})), 2, folder_->path());
  expect_error(weft(raw({"--batch", ""})), 2, "--batch: must not be empty");
}

TEST_F(Batch, ALineGetsWhatItsRequestGetsAlone) {
  const std::string whole = alone(raw({"-p", "The harbour", "-n", "30", "--ignore-eos"}))["text"];
  const std::string long_prompt = filler(12);
  const std::vector<Json> requests = {
      {{"prompt", "The harbour"}, {"n", 30}},
      {{"prompt", "The harbour"}, {"n", 30}, {"stop", {"never said", whole.substr(10, 4)}}},
      {{"prompt", "The harbour"}, {"n", 30}, {"temp", 0.7}, {"seed", 1}},
      {{"prompt", "The harbour"}, {"n", 30}, {"temp", 0.7}, {"seed", 18446744073709551615u}},
      {{"prompt", "The harbour"},
       {"temp", 1.5},
       {"seed", 3},
       {"top_k", 0},
       {"top_p", 1},
       {"min_p", 0}},
      {{"prompt", "The harbour"}, {"temp", 1.5}, {"seed", 3}, {"top_k", 3}},
      {{"prompt", "The harbour"}, {"temp", 1.5}, {"seed", 3}, {"top_p", 0.5}},
      {{"prompt", "The harbour"}, {"temp", 1.5}, {"seed", 3}, {"min_p", 0.5}},
      {{"prompt", long_prompt}, {"n", 1}},
      {{"prompt", long_prompt}, {"n", 40}, {"temp", 1}},
      {{"prompt", long_prompt + "An end."}, {"n", 20}, {"temp", 1}, {"seed", 2}},
      {{"prompt", ""}, {"n", 4}},
      {{"prompt", std::string("a\0b\xc3\xa9", 5)}, {"n", 4}},
  };
  // What a line does not say is what the flags say.
  const Arguments flags{"--ignore-eos", "--temp", "0.3", "--seed", "11", "--repeat-penalty", "1.3"};
  Arguments batch = raw(flags);
  batch.insert(batch.end(), {"--batch", batch_file(requests)});
  const Outcome run = weft(batch);
  const std::vector<Json> lines = lines_of(run.out);
  ASSERT_EQ(lines.size(), requests.size()) << run.err;
  for (size_t i = 0; i < requests.size(); ++i) {
    SCOPED_TRACE(requests[i].dump());
    EXPECT_EQ(lines[i]["index"], i);
    Arguments single = raw(flags);
    Json request = requests[i];
    if (request["prompt"].get<std::string>().find('\0') != std::string::npos) {
      single.insert(single.end(), {"-f", "-"});
      request.erase("prompt");
    }
    for (const std::string& flag : flags_of(request)) single.push_back(flag);
    single.push_back("--json");
    const Outcome wanted = weft(single, requests[i]["prompt"].get<std::string>());
    if (wanted.status != 0) {  // this vocabulary has no BOS
      EXPECT_EQ(requests[i]["prompt"], "");
      EXPECT_EQ(lines[i]["error"], fmt::format("line {}: the prompt is empty", i + 1));
      EXPECT_EQ(wanted.err, "weft: the prompt is empty\n");
      continue;
    }
    Json json = wanted.json();
    json.erase("logprobs");
    EXPECT_EQ(without_index(lines[i]), json);
  }
  EXPECT_EQ(lines[1]["stop_reason"], "stop");
  EXPECT_NE(lines[2]["text"], lines[3]["text"]);
}

TEST_F(Batch, ARealModelSaysBesideOthersWhatItSaysAlone) {
  const std::string stories = test::shared_file("models/stories260K/stories260Ktok512.gguf");
  WEFT_SKIP_UNLESS(!stories.empty(), "stories260K");
  std::vector<Json> requests;
  for (int i = 0; i < 20; ++i) {
    requests.push_back(
        {{"prompt", i % 2 == 0 ? "Once upon a time" : "The red ball " + filler(i / 4)},
         {"n", i % 5 == 4 ? -1 : 10 + 7 * i},
         {"temp", 0.5 * (i % 3)},
         {"seed", i}});
    if (i % 4 == 3) requests.back()["stop"] = Json::array({".", "Lily"});
  }
  for (const std::string compute : {"f32", "int8"}) {
    const Arguments flags{"generate", "-m", stories, "--raw", "--compute", compute, "-t", "2"};
    Arguments batch = flags;
    batch.insert(batch.end(), {"--batch", batch_file(requests)});
    const Outcome run = weft(batch);
    ASSERT_EQ(run.status, 0) << run.err << run.out;
    const std::vector<Json> lines = lines_of(run.out);
    ASSERT_EQ(lines.size(), requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      Arguments single = flags;
      for (const std::string& flag : flags_of(requests[i])) single.push_back(flag);
      EXPECT_EQ(without_index(lines[i]), alone(single)) << compute << requests[i].dump();
    }
  }
}

TEST_F(Batch, APromptIsAChatTurnUnlessItIsRaw) {
  const std::string file = batch_file({{{"prompt", "Hello"}},
                                       {{"prompt", "Hello"}, {"raw", true}},
                                       {{"prompt", "Hello"}, {"raw", false}}});
  const Json turn = alone(generate({"-p", "Hello"}, chat_model()));
  const Json bare = alone(generate({"-p", "Hello", "--raw"}, chat_model()));
  EXPECT_NE(turn, bare);
  for (const bool is_raw : {false, true}) {
    Arguments arguments = generate({"--batch", file}, chat_model());
    if (is_raw) arguments.push_back("--raw");
    const Outcome run = weft(arguments);
    EXPECT_EQ(run.status, 0) << run.err;
    const std::vector<Json> lines = lines_of(run.out);
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_EQ(without_index(lines[0]), is_raw ? bare : turn);
    EXPECT_EQ(without_index(lines[1]), bare);
    EXPECT_EQ(without_index(lines[2]), turn);
  }
  // Without a template only the lines that need one fail.
  const std::vector<Json> lines = lines_of(weft(generate({"--batch", file})).out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0]["error"], HasSubstr("no chat template"));
  EXPECT_THAT(lines[1]["text"], Not(IsEmpty()));
  EXPECT_THAT(lines[2]["error"], HasSubstr("no chat template"));
}

TEST_F(Batch, TooLittleMemoryForAllAtOnceMakesThemWaitAndChangesNothing) {
  std::vector<Json> requests;
  for (int i = 0; i < 40; ++i) {
    // Some share the beginnings of their prompts, some the whole.
    requests.push_back({{"prompt", filler(i % 4) + (i % 8 < 4 ? "" : std::to_string(i))},
                        {"n", 20 + 17 * (i % 7)},
                        {"temp", 0.4 * (i % 3)},
                        {"seed", i}});
    if (i % 4 == 0) requests.back()["prompt"] = "Item " + std::to_string(i % 12);
  }
  const std::string file = batch_file(requests);
  const Arguments flags{"-c", "256", "--ignore-eos", "--batch", file};
  const Outcome roomy = weft(raw(flags));
  ASSERT_EQ(roomy.status, 0) << roomy.err << roomy.out;
  const std::vector<Json> lines = lines_of(roomy.out);
  ASSERT_EQ(lines.size(), requests.size());
  // 16 go on at once where there is room, each with up to 16 pages.
  for (const int n_pages : {17, 24, 40}) {
    Arguments limited = raw(flags);
    limited.insert(limited.end(), {"--kv-limit", pages(n_pages, test::batch_steps(16))});
    const Outcome run = weft(limited);
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_EQ(run.out, roomy.out) << n_pages;
  }
  for (size_t i = 0; i < requests.size(); i += 3) {
    Arguments single = raw({"-c", "256", "--ignore-eos"});
    for (const std::string& flag : flags_of(requests[i])) single.push_back(flag);
    EXPECT_EQ(without_index(lines[i]), alone(single)) << requests[i].dump();
  }
}

TEST_F(Batch, WhatCanNeverFitIsRefusedWithItsNumbersAndTheOthersRun) {
  const std::string long_prompt = filler(40);
  const std::string file = batch_file(
      {{{"prompt", "a"}}, {{"prompt", long_prompt}}, {{"prompt", "b"}}, {{"prompt", ""}}});
  const Outcome run = weft(raw({"-c", "64", "--batch", file}));
  EXPECT_EQ(run.status, 1);
  const std::vector<Json> lines = lines_of(run.out);
  ASSERT_THAT(indices_of(lines), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(without_index(lines[0]), alone(raw({"-p", "a"})));
  const std::string refused = "does not fit the context of 64 tokens: shorten it, or give ";
  EXPECT_THAT(lines[1]["error"], HasSubstr("line 2: the prompt ("));
  EXPECT_THAT(lines[1]["error"], HasSubstr(refused + "-c "));
  EXPECT_EQ(without_index(lines[2]), alone(raw({"-p", "b"})));
  EXPECT_THAT(run.err, HasSubstr("weft: "));
  // A limit of memory counts like one of the context.
  const Outcome limited =
      weft(raw({"--kv-limit", pages(4, test::batch_steps(16)), "--batch", file}));
  EXPECT_EQ(limited.status, 1);
  const std::vector<Json> again = lines_of(limited.out);
  ASSERT_EQ(again.size(), 4u);
  EXPECT_EQ(again[0], lines[0]);
  EXPECT_THAT(again[1]["error"], HasSubstr(refused + "--kv-limit "));
  EXPECT_EQ(again[2], lines[2]);
  // The size that is named holds the prompt and its answer.
  const auto named_flags = [](const std::string& line) {
    std::smatch found;
    EXPECT_TRUE(std::regex_search(line, found, std::regex("or give (-\\S+) (\\S+), which holds")))
        << line;
    return found.empty() ? Arguments{} : Arguments{found[1].str(), found[2].str()};
  };
  for (const Arguments& limit : {Arguments{"--kv-limit", pages(4)}, Arguments{"-c", "64"}}) {
    Arguments small = limit;
    small.insert(small.end(), {"-p", long_prompt, "-n", "8"});
    const Outcome too_small = weft(raw(small));
    expect_error(too_small, 1, refused + limit.front() + " ");
    Arguments enough = named_flags(too_small.err);
    enough.insert(enough.end(), {"-p", long_prompt, "-n", "8"});
    const Outcome held = weft(raw(enough));
    EXPECT_EQ(held.status, 0) << held.err;
    EXPECT_THAT(held.err, Not(HasSubstr("is full")));
    if (limit.front() != "--kv-limit") continue;
    enough[1] = test::less_than(enough[1], page_bytes());
    const Outcome one_less = weft(raw(enough));
    EXPECT_TRUE(one_less.status == 1 || one_less.err.find("is full") != std::string::npos)
        << one_less.err;
  }
  expect_error(weft(raw({"--kv-limit", pages(4, test::batch_steps(2)), "--parallel", "2", "-p",
                         long_prompt})),
               1, refused + "--kv-limit ");
  const Outcome full = weft(raw({"--kv-limit", pages(4), "--ignore-eos", "-n", "-1", "x"}));
  EXPECT_EQ(full.err, "weft: the context of 64 tokens is full: the text ends here (--kv-limit)\n");
}

TEST_F(Batch, SamplesAreTheRunsWithTheSeedsAfterTheFirst) {
  const std::string prompt = filler(6);
  const Arguments flags{"-p", prompt, "-n", "20", "--temp", "1"};
  for (const uint64_t seed : {uint64_t{0}, uint64_t{7}}) {
    Arguments together = raw(flags);
    together.insert(together.end(), {"--seed", std::to_string(seed), "--parallel", "4", "--json"});
    const Outcome run = weft(together);
    ASSERT_EQ(run.status, 0) << run.err;
    const Json json = run.json();
    expect_fields(json, {"choices", "kv"});
    expect_fields(json["kv"], {"pages_peak", "pages_shared", "page_bytes"});
    ASSERT_EQ(json["choices"].size(), 4u);
    for (uint64_t i = 0; i < 4; ++i) {
      Arguments single = raw(flags);
      single.insert(single.end(), {"--seed", std::to_string(seed + i)});
      EXPECT_EQ(json["choices"][i], alone(single)) << i;
    }
    EXPECT_NE(json["choices"][0]["text"], json["choices"][1]["text"]);
  }
}

TEST_F(Batch, SamplesShareThePagesOfTheirPrompt) {
  const std::string prompt = filler(8);
  const size_t n_prompt =
      weft({"tokenize", "-m", model(), "--json"}, prompt).json()["tokens"].size();
  const int64_t whole_pages = static_cast<int64_t>(n_prompt - 1) / kPageTokens;
  ASSERT_GT(whole_pages, 3);
  const Outcome run =
      weft(raw({"-p", prompt, "-n", "20", "--ignore-eos", "--parallel", "8", "--json"}));
  const Json kv = run.json()["kv"];
  EXPECT_GE(kv["pages_shared"], whole_pages);
  EXPECT_GT(kv["pages_peak"], kv["pages_shared"]);
  EXPECT_LT(kv["pages_peak"], 8 * whole_pages);
  // 6 layers, 2 heads of 16, K and V.
  EXPECT_EQ(kv["page_bytes"].get<int64_t>() % (kPageTokens * 6 * 2 * 16 * 2), 0);
  for (const int n_pages : {20, 28}) {
    const Json limited = weft(raw({"-p", prompt, "-n", "20", "--ignore-eos", "--parallel", "8",
                                   "--json", "--kv-limit", pages(n_pages, test::batch_steps(8))}))
                             .json();
    EXPECT_EQ(limited["choices"], run.json()["choices"]);
    EXPECT_GT(limited["kv"]["pages_peak"], whole_pages);
    EXPECT_LE(limited["kv"]["pages_peak"], n_pages);
  }
}

TEST_F(Batch, OneSampleIsWhatItIsWithoutTheFlag) {
  for (const Arguments& more :
       {Arguments{}, Arguments{"--json"}, Arguments{"--temp", "1", "--seed", "3", "-q"}}) {
    Arguments plain = raw({"-p", "The harbour"});
    plain.insert(plain.end(), more.begin(), more.end());
    Arguments one = plain;
    one.insert(one.end(), {"--parallel", "1"});
    const Outcome wanted = weft(plain);
    const Outcome run = weft(one);
    EXPECT_EQ(run.status, 0);
    EXPECT_EQ(run.out, wanted.out);
    EXPECT_EQ(run.err, wanted.err);
  }
}

TEST_F(Batch, SamplesAsTextHaveTheirSeedsAbove) {
  const Outcome run =
      weft(raw({"-p", "The harbour", "--temp", "1", "--seed", "5", "--parallel", "2", "-q"}));
  std::string wanted;
  for (const std::string seed : {"5", "6"}) {
    wanted += (seed == "5" ? "--- 1 (--seed " : "\n--- 2 (--seed ") + seed + ")\n" +
              weft(raw({"-p", "The harbour", "--temp", "1", "--seed", seed})).out;
  }
  EXPECT_EQ(run.status, 0);
  EXPECT_EQ(run.out, wanted);
  EXPECT_EQ(run.err, "");
}

TEST_F(Batch, TheTypesOfTheCacheAreWhatItsPagesTake) {
  const auto run = [](const std::string& k, const std::string& v) {
    return weft(raw({"--parallel", "2", "--json", "-n", "4", "--cache-type-k", k, "--cache-type-v",
                     v, "-p", "x"}))
        .json();
  };
  const auto bytes = [](const Json& json) { return json["kv"]["page_bytes"].get<int64_t>(); };
  const Json f16 = run("f16", "f16");
  EXPECT_EQ(bytes(f16), page_bytes());
  EXPECT_EQ(bytes(run("bf16", "bf16")), page_bytes());
  EXPECT_EQ(bytes(run("f32", "f32")), 2 * page_bytes());
  EXPECT_EQ(2 * bytes(run("f32", "f16")), 3 * page_bytes());
  EXPECT_EQ(run("f16", "f16")["choices"], f16["choices"]);
  expect_error(weft(raw({"--cache-type-k", "q8_1", "x"})), 2,
               "--cache-type-k q8_1: must be f32, f16, bf16");
}

TEST_F(Batch, NotesOnSamplesSayWhichAndThatGreedyOnesAreTheSame) {
  const std::vector<std::string> two{"-p",           "The harbour", "-n", "3",
                                     "--ignore-eos", "--parallel",  "2"};
  const std::string cut = " 3 tokens: the limit (-n); -n -1 goes on to the end\n";
  const std::string limits = "weft: sample 1:" + cut + "weft: sample 2:" + cut;
  const std::string same =
      "weft: at temperature 0 all 2 samples are the same; --temp 0.7 makes them differ\n";
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), two.begin(), two.end());
    return weft(raw(more)).err;
  };
  EXPECT_EQ(with({"--temp", "1"}), limits);
  EXPECT_EQ(with({"--temp", "0"}), same + limits);
  EXPECT_EQ(with({"--temp", "0", "--json"}), same);
  EXPECT_EQ(with({"--temp", "0", "-q"}), "");
}

TEST_F(Batch, ALimitThatIsNoneIsRefused) {
  const std::string page = size_flag_for(static_cast<uint64_t>(page_bytes()));
  for (const Arguments& mode :
       {Arguments{"x"}, Arguments{"--parallel", "2", "x"}, Arguments{"--batch", "-"}}) {
    Arguments arguments = raw(mode);
    arguments.insert(arguments.end(), {"--kv-limit", "1KB"});
    const std::string request = "{\"prompt\":\"x\", \"n\": 4}";
    const Outcome refused = weft(arguments, request);
    expect_error(refused, 2, "--kv-limit 1KB: a page of 16 tokens takes " + page);
    EXPECT_THAT(refused.err, HasSubstr(" with this model, and a step beside it "));
    // What is named does, and less does not.
    arguments.insert(arguments.end(), {"-n", "4"});
    const std::string named = test::named_limit(refused.err, "at least ([0-9.]+[KM]B) is needed");
    *std::ranges::find(arguments, "1KB") = named;
    EXPECT_EQ(weft(arguments, request).status, 0) << named;
    *std::ranges::find(arguments, named) = test::less_than(named, page_bytes());
    expect_error(weft(arguments, request), 2, ": a page of 16 tokens takes " + page);
  }
  for (const std::string value :
       {"0", "-1", "abc", "1e99GB", "99999999999GB", "1.5", "GB", "1XB"}) {
    expect_error(weft(raw({"--kv-limit", value, "x"})), 2,
                 "--kv-limit " + value + ": must be a number of bytes");
  }
  expect_error(weft(raw({"--kv-limit", "2", "x"})), 2,
               "--kv-limit 2: must be more: 2 bytes are too few; 2GB?");
  expect_error(weft(raw({"--kv-limit", "", "x"})), 2, "--kv-limit '': must be");
  // One page runs what fits it; a limit above the need changes nothing.
  const std::string wanted = weft(raw({"x", "-n", "4"})).out;
  EXPECT_EQ(weft(raw({"x", "-n", "4", "--kv-limit", pages(1)})).out, wanted);
  EXPECT_EQ(weft(raw({"x", "-n", "4", "--kv-limit", "10EB"})).status, 2);
  EXPECT_EQ(weft(raw({"x", "-n", "4", "--kv-limit", "7EB"})).out, wanted);
}

TEST_F(Batch, FlagsThatDoNotGoTogetherAreRefused) {
  const std::string file = batch_file({{{"prompt", "x"}}});
  for (const Arguments& other :
       {Arguments{"a prompt"}, Arguments{"-p", "a prompt"}, Arguments{"-f", file},
        Arguments{"--parallel", "2"}, Arguments{"--logprobs", "3"}}) {
    Arguments arguments = raw(other);
    arguments.insert(arguments.end(), {"--batch", file});
    expect_error(weft(arguments), 2, "give one");
  }
  expect_error(weft(raw({"--parallel", "2", "--logprobs", "3", "x"})), 2, "give one");
  for (const std::string n : {"0", "-1", "257", "two", "1.5", "99999999999999999999"}) {
    expect_error(weft(raw({"--parallel", n, "x"})), 2,
                 "--parallel " + n + ": must be a whole number from 1 to 256");
  }
  expect_error(weft(raw({"--parallel", "2", "-p", ""})), 2, "the prompt is empty");
}

TEST_F(Batch, CtrlCEndsABatchWithALineForEachRequest) {
  std::vector<Json> requests(120, {{"prompt", "The harbour"}, {"n", 2000}, {"temp", 1}});
  for (size_t i = 0; i < requests.size(); ++i) requests[i]["seed"] = i;
  requests[0]["n"] = 1;
  const auto running = start(raw({"--ignore-eos", "--batch", batch_file(requests)}));
  // The rest takes seconds.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (test::read_text(path("stdout")).find('\n') == std::string::npos &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  kill(running.child, SIGINT);
  const Outcome run = finish(running);
  EXPECT_EQ(run.status, 130);
  EXPECT_THAT(run.err, HasSubstr("weft: interrupted"));
  const std::vector<Json> lines = lines_of(run.out);
  ASSERT_EQ(lines.size(), requests.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["index"], i);
    expect_fields(lines[i], {"index", "text", "tokens", "stop_reason"});
  }
  EXPECT_EQ(lines.front()["stop_reason"], "length");
  EXPECT_EQ(lines.back()["stop_reason"], "cancelled");
}

TEST_F(Batch, CtrlCEndsSamplesWithWhatTheyHave) {
  // Of near uniform samples the first ends soon, the last not in 2000 steps; a bar shows the first.
  test::Terminal terminal(folder_->path(),
                          raw({"--temp", "1", "--top-k", "0", "--top-p", "1", "--min-p", "0", "-n",
                               "2000", "--parallel", "64", "--json", "x"}),
                          path("samples"));
  ASSERT_TRUE(terminal.shows("generate ["));
  terminal.send(SIGINT);
  EXPECT_EQ(terminal.exit_status(), 130);
  EXPECT_THAT(terminal.screen(), HasSubstr("weft: interrupted"));
  const std::vector<Json> lines = lines_of(test::read_text(path("samples")));
  ASSERT_EQ(lines.size(), 1u);
  ASSERT_EQ(lines[0]["choices"].size(), 64u);
  std::map<std::string, int> reasons;
  for (const Json& choice : lines[0]["choices"]) {
    expect_fields(choice, {"text", "tokens", "stop_reason"});
    ++reasons[choice["stop_reason"]];
  }
  EXPECT_GE(reasons["end"], 1);
  EXPECT_GE(reasons["cancelled"], 1);
}

TEST_F(Batch, LostOutputIsAnError) {
  const std::string file = batch_file({{{"prompt", "x"}}, {{"prompt", "y"}}});
  for (const Arguments& mode :
       {Arguments{"--batch", file}, Arguments{"--parallel", "2", "--json", "x"}}) {
    for (const bool is_full : {true, false}) {
      const Outcome run = finish(start(raw(mode), "", "", [is_full] {
        if (is_full) {
          dup2(open("/dev/full", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
        } else {
          close(STDOUT_FILENO);
        }
      }));
      EXPECT_EQ(run.status, 1) << is_full;
      EXPECT_THAT(run.err, HasSubstr("weft: standard output: ")) << is_full;
    }
  }
}

TEST_F(Batch, AFullDiskEndsABatchAtOnce) {
  std::vector<Json> requests(100, {{"prompt", "The harbour"}, {"n", 2000}});
  requests[0]["n"] = 1;
  const Outcome run =
      finish(start(raw({"--ignore-eos", "--batch", batch_file(requests)}), "", "",
                   [] { dup2(open("/dev/full", O_WRONLY | O_CLOEXEC), STDOUT_FILENO); }));
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.err, HasSubstr("weft: 100 prompts, 1 token generated in "));
  EXPECT_THAT(run.err, HasSubstr("weft: standard output: No space left on device\n"));
}

TEST_F(Batch, BenchMeasuresEachBatch) {
  const Arguments flags{"bench", "batch", "-m", model(), "--compute", "f32", "-t", "1"};
  Arguments arguments = flags;
  arguments.insert(arguments.end(),
                   {"--batch", "1,4,2", "-p", "20", "-n", "5", "--repeat", "2", "--json"});
  const Outcome run = weft(arguments);
  ASSERT_EQ(run.status, 0) << run.err;
  const Json batches = run.json()["batches"];
  ASSERT_EQ(batches.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const Json& b = batches[i];
    expect_fields(b, {"batch", "prefill_tokens_per_s", "decode_tokens_per_s", "itl_ms", "kv"});
    expect_fields(b["kv"], {"pages_peak", "bytes_peak", "shared_share", "wasted_share"});
    EXPECT_EQ(b["kv"]["shared_share"], 0);
    EXPECT_EQ(b["batch"], (std::vector<int>{1, 4, 2})[i]);
    for (const char* name : {"prefill_tokens_per_s", "decode_tokens_per_s"}) {
      expect_fields(b[name], {"median", "min", "max"});
      EXPECT_GT(b[name]["min"], 0);
      EXPECT_LE(b[name]["min"], b[name]["median"]);
      EXPECT_LE(b[name]["median"], b[name]["max"]);
    }
    expect_fields(b["itl_ms"], {"p50", "p95"});
    EXPECT_GT(b["itl_ms"]["p50"], 0);
    EXPECT_LE(b["itl_ms"]["p50"], b["itl_ms"]["p95"]);
  }
  arguments.pop_back();
  EXPECT_THAT(weft(arguments).out, AllOf(HasSubstr("\nbatch "), HasSubstr("\n    4  ")));
}

TEST_F(Batch, BenchShowsWhatASharedPromptSaves) {
  Arguments arguments{"bench", "batch", "-m", model(), "--compute", "f32", "-t", "1"};
  arguments.insert(arguments.end(), {"--batch", "1,4", "-p", "10", "-n", "5", "--repeat", "1",
                                     "--shared-prompt", "64", "--mixed", "--json"});
  const Outcome run = weft(arguments);
  ASSERT_EQ(run.status, 0) << run.err;
  const Json report = run.json();
  EXPECT_EQ(report["same_answers"], true);
  const Json& batches = report["batches"];
  ASSERT_EQ(batches.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(batches[i]["batch"], i < 2 ? 1 : 4);
    EXPECT_EQ(batches[i]["shares_prompt"], i % 2 == 1);
  }
  EXPECT_EQ(batches[2]["kv"]["shared_share"], 0);
  EXPECT_GT(batches[3]["kv"]["shared_share"], 0.25);
  EXPECT_LT(batches[3]["kv"]["bytes_peak"], batches[2]["kv"]["bytes_peak"].get<double>() / 2);
  arguments.pop_back();
  const std::string table = weft(arguments).out;
  EXPECT_THAT(table,
              HasSubstr("64 that are the same for all, then prompts of 1 to 19, 2 to 8 new"));
  EXPECT_THAT(table, HasSubstr("\n    4      yes  "));
  EXPECT_THAT(table, HasSubstr("with and without sharing the answers are the same\n"));
}

TEST_F(Batch, BenchRefusesWhatItCannotRun) {
  const auto bench = [](const Arguments& more) {
    Arguments arguments{"bench", "batch", "-m", model(), "-t", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return weft(arguments);
  };
  for (const std::string list :
       {"0", "a", "1,,2", "1,", ",", "-1", "1025", "1.5", "1;2", "99999999999999999999"}) {
    expect_error(bench({"--batch", list}), 2,
                 "--batch " + list + ": must be numbers from 1 to 1024 with commas between");
  }
  expect_error(bench({"--batch", ""}), 2, "--batch: must not be empty");
  for (const Arguments& wrong :
       {Arguments{"-p", "0"}, Arguments{"-n", "1"}, Arguments{"--repeat", "0"},
        Arguments{"-p", "x"}, Arguments{"--shared-prompt", "0"}}) {
    expect_error(bench(wrong), 2, wrong[1] + ": must be a whole number");
  }
  expect_error(bench({"-c", "64", "-p", "60", "-n", "5"}), 2, "do not fit the context of 64");
  expect_error(bench({"-c", "64", "-p", "8", "-n", "5", "--shared-prompt", "52"}), 2,
               "60 tokens of a prompt and 5 new ones do not fit the context of 64");
  expect_error(bench({"-c", "64", "-p", "28", "-n", "5", "--mixed"}), 2,
               "56 tokens of a prompt and 10 new ones do not fit the context of 64");
  const std::string ten_pages =
      test::kv_limit_flag(folder_->path(), model(), 10,
                          {.n_sequences = 8, .batches = true, .whole_rows = 320}, {.n_threads = 1});
  expect_error(
      bench({"--batch", "1,8", "-c", "64", "-p", "40", "-n", "10", "--kv-limit", ten_pages}), 2,
      "a batch of 8 takes 32 pages of the KV cache, which has 10 (--kv-limit, -c)");
}

}  // namespace
}  // namespace weft
