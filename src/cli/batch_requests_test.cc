#include "cli/batch_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/stop_texts.h"

namespace weft::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr int32_t kMostTokens = 1000;

/// Nothing in them is what GenerationOptions begins with.
BatchLine flags() {
  BatchLine defaults;
  defaults.raw = true;
  defaults.options.max_tokens = 17;
  defaults.options.sampling.temperature = 0.25f;
  defaults.options.sampling.top_k = 7;
  defaults.options.sampling.top_p = 0.75f;
  defaults.options.sampling.min_p = 0.125f;
  defaults.options.sampling.seed = 99;
  defaults.options.stops = {"END"};
  return defaults;
}

BatchLine read(std::string_view line) {
  const auto read = parse_batch_line(line, flags(), kMostTokens);
  EXPECT_TRUE(read.is_ok()) << line << ": " << read.status().message();
  return read.is_ok() ? *read : BatchLine{};
}

/// The message, which is one short line.
std::string refusal(std::string_view line) {
  const auto read = parse_batch_line(line, flags(), kMostTokens);
  EXPECT_FALSE(read.is_ok()) << line;
  if (read.is_ok()) return "";
  EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument);
  const std::string message = read.status().message();
  EXPECT_LT(message.size(), 300u);
  EXPECT_TRUE(std::ranges::none_of(message, [](unsigned char c) { return c < ' '; })) << message;
  return message;
}

/// With one more key, written as `json`.
std::string with(const std::string& key, const std::string& json) {
  return "{\"prompt\":\"x\",\"" + key + "\":" + json + "}";
}

TEST(BatchRequests, AnAbsentKeyIsTheCommandsFlag) {
  const BatchLine line = read(R"({"prompt":"x"})");
  EXPECT_EQ(line.prompt, "x");
  EXPECT_TRUE(line.raw);
  EXPECT_EQ(line.options.max_tokens, 17);
  EXPECT_EQ(line.options.sampling.temperature, 0.25f);
  EXPECT_EQ(line.options.sampling.top_k, 7);
  EXPECT_EQ(line.options.sampling.top_p, 0.75f);
  EXPECT_EQ(line.options.sampling.min_p, 0.125f);
  EXPECT_EQ(line.options.sampling.seed, 99u);
  EXPECT_THAT(line.options.stops, ElementsAre("END"));
}

TEST(BatchRequests, EveryKeyReplacesItsFlag) {
  const BatchLine line =
      read(R"( {"raw":false, "stop":["a","\u00e9"], "seed":18446744073709551615, "min_p":0.5, )"
           R"("top_p":0.5, "top_k":3, "temp":1.5, "n":1000, "cache_salt":"me", "prompt":"a\nb"} )"
           "\r");
  EXPECT_EQ(line.prompt, "a\nb");
  EXPECT_EQ(line.cache_salt, "me");
  EXPECT_FALSE(line.raw);
  EXPECT_EQ(line.options.max_tokens, 1000);
  EXPECT_EQ(line.options.sampling.temperature, 1.5f);
  EXPECT_EQ(line.options.sampling.top_k, 3);
  EXPECT_EQ(line.options.sampling.top_p, 0.5f);
  EXPECT_EQ(line.options.sampling.min_p, 0.5f);
  EXPECT_EQ(line.options.sampling.seed, 18446744073709551615u);
  EXPECT_THAT(line.options.stops, ElementsAre("a", "\u00e9"));
}

TEST(BatchRequests, TheEndsOfTheRangesAreInside) {
  EXPECT_EQ(read(with("n", "1")).options.max_tokens, 1);
  EXPECT_EQ(read(with("n", "-1")).options.max_tokens, engine::kNoTokenLimit);
  EXPECT_EQ(read(with("temp", "0")).options.sampling.temperature, 0.0f);
  EXPECT_EQ(read(with("temp", "-0.0")).options.sampling.temperature, 0.0f);
  EXPECT_EQ(read(with("temp", "3e38")).options.sampling.temperature, 3e38f);
  EXPECT_EQ(read(with("top_k", "0")).options.sampling.top_k, 0);
  EXPECT_EQ(read(with("top_k", "2147483647")).options.sampling.top_k, 2147483647);
  EXPECT_EQ(read(with("top_p", "1")).options.sampling.top_p, 1.0f);
  EXPECT_EQ(read(with("top_p", "1e-40")).options.sampling.top_p, 1e-40f);
  EXPECT_EQ(read(with("min_p", "0")).options.sampling.min_p, 0.0f);
  EXPECT_EQ(read(with("min_p", "1.0")).options.sampling.min_p, 1.0f);
  EXPECT_EQ(read(with("seed", "0")).options.sampling.seed, 0u);
}

TEST(BatchRequests, ANumberOutsideItsRangeIsNamedWithIt) {
  const struct {
    const char* key;
    std::vector<const char*> values;
    const char* range;
  } cases[] = {
      {"n",
       {"0", "-2", "1001", "2147483648", "4294967297", "-9223372036854775808",
        "18446744073709551615", "18446744073709551616", "1.5", "1.0", "1e2", "1e300"},
       "1"},
      {"temp", {"-0.5", "-1e300", "3.5e38", "1e300"}, "a number from 0 (greedy) to 3.4e38"},
      {"top_k",
       {"-1", "2147483648", "4294967296", "9223372036854775808", "0.5", "1e3"},
       "a whole number from 0 (all)"},
      {"top_p", {"0", "-1", "1.0000001", "2", "1e300", "1e-60"}, "over 0 and at most 1 (all)"},
      {"min_p", {"-0.1", "1.1", "-1e300"}, "from 0 (all) to 1"},
      {"seed",
       {"-1", "-9223372036854775808", "18446744073709551616", "1.0", "1e3"},
       "from 0 to 18446744073709551615"},
  };
  for (const auto& [key, values, range] : cases) {
    for (const char* value : values) {
      EXPECT_THAT(refusal(with(key, value)), AllOf(StartsWith("\"" + std::string(key) + "\" "),
                                                   HasSubstr("must be"), HasSubstr(range)))
          << value;
    }
  }
}

TEST(BatchRequests, AValueOfTheWrongTypeIsNamedWithItsKey) {
  const std::vector<std::string> all = {"null",
                                        "true",
                                        "\"1\"",
                                        "1",
                                        "0.5",
                                        "[]",
                                        "{}",
                                        "[[1]]",
                                        "[\"a\"]",
                                        "[1]",
                                        "{\"a\":{\"b\":[]}}"};
  const struct {
    const char* key;
    std::vector<std::string> fits;
  } cases[] = {{"prompt", {"\"1\""}},   {"n", {"1"}},
               {"temp", {"1", "0.5"}},  {"top_k", {"1"}},
               {"top_p", {"1", "0.5"}}, {"min_p", {"1", "0.5"}},
               {"seed", {"1"}},         {"stop", {"\"1\"", "[]", "[\"a\"]"}},
               {"raw", {"true"}}};
  for (const auto& [key, fits] : cases) {
    for (const std::string& value : all) {
      if (std::ranges::find(fits, value) != fits.end()) {
        read(with(key, value));
      } else {
        EXPECT_THAT(refusal(with(key, value)), StartsWith("\"" + std::string(key) + "\" "))
            << value;
      }
    }
  }
}

TEST(BatchRequests, NumbersThatJsonDoesNotHaveAreRefused) {
  for (const char* value : {"NaN", "nan", "Infinity", "-Infinity", "inf", "+1", "01", ".5", "1.",
                            "0x10", "1e", "--1", "1_000", "True", "'x'"}) {
    EXPECT_THAT(refusal(with("temp", value)), HasSubstr("not valid JSON")) << value;
  }
  for (const char* value : {"1e999", "-1e999"}) {
    for (const char* key : {"temp", "n", "seed", "stop"}) {
      EXPECT_THAT(refusal(with(key, value)),
                  AllOf(StartsWith("byte "), HasSubstr("a number that is too large")));
    }
  }
  const std::string digits(100'000, '9');
  EXPECT_THAT(refusal(with("seed", digits)), HasSubstr("too large"));
  EXPECT_EQ(read(with("temp", "0." + digits)).options.sampling.temperature, 1.0f);
}

TEST(BatchRequests, ALineThatIsNoObjectIsRefused) {
  for (const char* line : {"[]", "null", "1", "\"x\"", "true", "[{\"prompt\":\"x\"}]"}) {
    EXPECT_THAT(refusal(line), StartsWith("no JSON object; a line is {\"prompt\": \"...\"}"))
        << line;
  }
  for (const char* line : {"", " ", "x", "{", "{\"prompt\":\"x\"", "{\"prompt\":\"x\"}}",
                           "{\"prompt\":\"x\"} {\"prompt\":\"y\"}", "{\"prompt\":\"x\",}",
                           "{prompt:\"x\"}", "{\"prompt\" \"x\"}", "{\"prompt\":\"x}", "{1:2}",
                           "{\"prompt\":\"x\"} // a", "{\"prompt\":\"a\tb\"}"}) {
    EXPECT_THAT(refusal(line), AllOf(StartsWith("byte "), HasSubstr("not valid JSON"))) << line;
  }
  EXPECT_EQ(refusal("{\"n\":1,}"),
            "byte 8: not valid JSON; a line is {\"prompt\": \"...\"}, and what else it sets");
}

TEST(BatchRequests, APromptIsNeeded) {
  EXPECT_EQ(refusal("{}"), "\"prompt\" is missing");
  EXPECT_EQ(refusal(R"({"n":1})"), "\"prompt\" is missing");
  EXPECT_EQ(read(R"({"prompt":""})").prompt, "");  // BOS alone may be a prompt
}

TEST(BatchRequests, AnUnknownKeyIsRefusedWithTheKnownOnes) {
  for (const char* key : {"", "Prompt", "prompt ", "temperature", "max_tokens", "top-k", "stops"}) {
    const std::string message = refusal(with(key, "1"));
    EXPECT_THAT(message, StartsWith("no key \"" + std::string(key) + "\"; "));
    EXPECT_THAT(message, HasSubstr("prompt, n, temp, top_k, top_p, min_p, seed, stop, raw"));
  }
  EXPECT_THAT(refusal(with(std::string(1 << 20, 'k'), "1")), HasSubstr("kkk...; there are"));
  EXPECT_THAT(refusal(with("max_tokens", "1")),
              StartsWith("no key \"max_tokens\"; \"n\" is meant; there are prompt, n,"));
  EXPECT_THAT(refusal(with("temperature", "1")), HasSubstr("; \"temp\" is meant; "));
  EXPECT_THAT(refusal(with("top-k", "1")), StartsWith("no key \"top-k\"; there are "));
  EXPECT_THAT(refusal(with("a\\u0000\\nb", "1")), HasSubstr("\"a\\u0000\\nb\""));
}

TEST(BatchRequests, OfTwoValuesOfAKeyTheLastCounts) {
  EXPECT_EQ(read(R"({"prompt":"a","n":1,"prompt":"b","n":2})").prompt, "b");
  EXPECT_EQ(read(R"({"prompt":"a","n":1,"n":2})").options.max_tokens, 2);
  EXPECT_THAT(read(R"({"prompt":"a","stop":["x","y"],"stop":"z"})").options.stops,
              ElementsAre("z"));
}

TEST(BatchRequests, ALineMayNotBeDeepOrLong) {
  constexpr size_t kMany = 10'000'000;
  const std::string deep(kMany, '[');
  EXPECT_THAT(refusal(deep), StartsWith("no JSON object"));
  for (const char* key : {"prompt", "stop", "other"}) {
    EXPECT_THAT(refusal(with(key, deep)), HasSubstr(key));
  }
  std::string objects;
  for (size_t i = 0; i < kMany / 5; ++i) objects += "{\"a\":";
  EXPECT_THAT(refusal(objects), HasSubstr("no key \"a\""));
  EXPECT_THAT(refusal(with("stop", objects)), StartsWith("\"stop\" {}"));

  std::string line = R"({"prompt":")" + std::string(kMaxBatchLineBytes, 'x');
  line.resize(kMaxBatchLineBytes - 2);
  line += "\"}";
  EXPECT_EQ(read(line).prompt.size(), kMaxBatchLineBytes - 13);
  const auto longer = parse_batch_line(line + " ", flags(), kMostTokens);
  EXPECT_EQ(longer.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(longer.status().message(), "67108865 bytes: a line has 67108864 at most");
}

TEST(BatchRequests, TextIsUtf8) {
  EXPECT_EQ(read("{\"prompt\":\"\xc3\xa9\xf0\x9f\x98\x80\"}").prompt, "\xc3\xa9\xf0\x9f\x98\x80");
  EXPECT_EQ(read(R"({"prompt":"\ud83d\ude00"})").prompt, "\xf0\x9f\x98\x80");
  EXPECT_EQ(read(R"({"prompt":"a\u0000b"})").prompt, std::string("a\0b", 3));
  for (const char* bytes : {"\xff", "\xc3", "\xc3(", "\xed\xa0\x80", "\xf8\x88\x80\x80\x80",
                            "\xc0\x80", "\\ud83d", "\\ude00", "\\x41", "\\u12"}) {
    EXPECT_THAT(refusal("{\"prompt\":\"" + std::string(bytes) + "\"}"),
                HasSubstr("not valid JSON"));
  }
  // A NUL byte itself is a control character, wherever it is.
  EXPECT_THAT(refusal(std::string("{\"prompt\":\"a\0b\"}", 16)), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(std::string("{\"prompt\":\"a\"}\0", 15)), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(std::string("{\"prompt\":\"a\"}\0]", 16)),
              StartsWith("byte 15: not valid JSON; a line is "));
  EXPECT_THAT(refusal(std::string("\0", 1)), HasSubstr("not valid JSON"));
  // A byte order mark before a line, as editors of Windows write it before a file's first one.
  EXPECT_EQ(read("\xef\xbb\xbf{\"prompt\":\"x\"}").prompt, "x");
}

TEST(BatchRequests, AValueThatIsShownIsCutBetweenCharacters) {
  std::string smileys;
  for (int i = 0; i < 100; ++i) smileys += "\xf0\x9f\x98\x80";
  for (const std::string before : {"", "a", "ab", "abc"}) {
    const std::string message = refusal(with("n", "\"" + before + smileys + "\""));
    EXPECT_THAT(message, HasSubstr("\x98\x80...: must be")) << message;
  }
}

TEST(BatchRequests, StopsAreATextOrAListThatGenerateTakes) {
  EXPECT_THAT(read(with("stop", "\"a\"")).options.stops, ElementsAre("a"));
  EXPECT_THAT(read(with("stop", "[]")).options.stops, IsEmpty());
  EXPECT_THAT(read(with("stop", R"(["\u0000"])")).options.stops, ElementsAre(std::string(1, '\0')));
  for (const char* empty : {"\"\"", "[\"\"]", "[\"a\",\"\"]"}) {
    EXPECT_EQ(refusal(with("stop", empty)), "stop '': must not be empty");
  }
  const auto list_of = [](size_t n) {
    std::string list = "[\"0\"";
    for (size_t i = 1; i < n; ++i) list += ",\"" + std::to_string(i) + "\"";
    return list + "]";
  };
  EXPECT_EQ(read(with("stop", list_of(engine::kMaxStopTexts))).options.stops.size(),
            engine::kMaxStopTexts);
  EXPECT_THAT(refusal(with("stop", list_of(65))), HasSubstr("more than 64 texts"));
  EXPECT_THAT(refusal(with("stop", list_of(1'000'000))), HasSubstr("more than 64 texts"));
  EXPECT_THAT(refusal(with("stop", R"(["a",null])")), StartsWith(R"("stop" ["a",null]: must be)"));
}

TEST(BatchRequests, DefaultsAreCheckedToo) {
  BatchLine defaults;
  defaults.options.sampling.penalties.repeat = -1;
  const auto read = parse_batch_line(R"({"prompt":"x"})", defaults, kMostTokens);
  EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weft::cli
