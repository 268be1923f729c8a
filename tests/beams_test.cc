// Beam search with a model: the answers and scores that transformers finds
// (golden/stories260k_beams.json; tools/make_beam_references.py), each the score of its tokens
// alone, and nothing left in the KV cache.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/byte_sizes.h"
#include "base/hash.h"
#include "engine/beam_generation.h"
#include "engine/beam_search.h"
#include "kv/invariants.h"
#include "sampling/logprobs.h"
#include "support/identity_cases.h"
#include "support/kv_limit.h"
#include "support/test_model.h"

namespace weft {
namespace {

using engine::BeamChoice;
using engine::BeamOptions;
using engine::Engine;
using engine::StopReason;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Json = nlohmann::json;
using Tokens = std::vector<int32_t>;

constexpr auto kGoesOn = [](int32_t) { return true; };

/// For `n` beams.
std::unique_ptr<Engine> open(const std::string& path, int32_t n, engine::EngineOptions how = {}) {
  how.model_path = path;
  how.n_threads = 2;
  how.compute = "f32";
  how.n_contexts = n;
  how.steps = {.n_sequences = n};
  auto engine = Engine::open(posix_env(), how);
  EXPECT_TRUE(engine.is_ok()) << engine.status().message();
  return std::move(*engine);
}

Tokens tokens_of(const engine::Generation& generation) {
  Tokens tokens;
  for (const engine::GeneratedToken& token : generation.tokens) tokens.push_back(token.id);
  return tokens;
}

/// Checks the cache before every step, and that it is at the end as it was. `seen` (may be empty)
/// is called there.
std::vector<BeamChoice> search(Engine& engine, const Tokens& prompt, const BeamOptions& options,
                               const std::function<void()>& seen = {}) {
  const int64_t n_before = std::ssize(engine.kv_snapshots()[0].sequences);
  const int32_t n_free = engine.kv_usage().free;
  const auto checked = [&](int32_t n_tokens) {
    const std::vector<kv::Snapshot> groups = engine.kv_snapshots();
    if (n_tokens > 0) {  // in the prompt's pass the reservation is open
      EXPECT_THAT(kv::violations(groups), IsEmpty());
    }
    EXPECT_LE(std::ssize(groups[0].sequences), n_before + options.n_beams);
    if (seen) seen();
    return true;
  };
  auto choices = engine::generate_beams(engine, prompt, options, checked);
  EXPECT_TRUE(choices.is_ok()) << choices.status().message();
  EXPECT_EQ(std::ssize(engine.kv_snapshots()[0].sequences), n_before);
  EXPECT_EQ(engine.kv_usage().free, n_free);
  return choices.is_ok() ? *std::move(choices) : std::vector<BeamChoice>();
}

/// A number's bytes, as GGUF has it.
std::string bytes_of(uint32_t value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

/// A copy of the model in which this token ends a text.
void write_with_end(const std::string& from, const std::string& to, int32_t end_token) {
  std::string bytes = test::read_text(from);
  const std::string key = "tokenizer.ggml.eos_token_id";
  const size_t value = bytes.find(key) + key.size() + sizeof(uint32_t);  // after the value's type
  ASSERT_LT(value, bytes.size());
  bytes.replace(value, sizeof(uint32_t), bytes_of(static_cast<uint32_t>(end_token)));
  test::write_text(to, bytes);
}

constexpr int32_t kNewline = 13, kFullStop = 426;

/// The text that ends with this token of stories260K, and with no other.
std::string text_of(int32_t token) {
  EXPECT_TRUE(token == kNewline || token == kFullStop);
  return token == kNewline ? "\n" : ".";
}

class BeamReferences : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = test::shared_file("models/stories260K/stories260Ktok512.gguf");
    WEFT_SKIP_UNLESS(!path_.empty(), "stories260K");
    reference_ = Json::parse(
        test::read_text(std::string(WEFT_SOURCE_DIR) + "/tests/golden/stories260k_beams.json"));
    Sha256 hash;
    const std::string model = test::read_text(path_);
    hash.update(std::as_bytes(std::span(model)));
    ASSERT_EQ(hash.finish_hex(), reference_["sha256"]);
  }

  /// The model with this end token; K and V in f32, as in transformers.
  Engine& model_with_end(int32_t end_token) {
    std::unique_ptr<Engine>& engine = engines_[end_token];
    if (engine != nullptr) return *engine;
    const std::string path = dir_ / fmt::format("end_{}.gguf", end_token);
    write_with_end(path_, path, end_token);
    engine = open(path, 4, {.kv_types = {.k = DType::kF32, .v = DType::kF32}});
    return *engine;
  }

  void expect_equal(const Json& expected, const std::vector<BeamChoice>& choices,
                    StopReason at_end) {
    const auto ends = expected["end"].get<Tokens>();
    const bool has_stops = !expected["stops"].empty();
    ASSERT_EQ(choices.size(), expected["choices"].size());
    for (size_t i = 0; i < choices.size(); ++i) {
      SCOPED_TRACE(i);
      auto tokens = expected["choices"][i]["tokens"].get<Tokens>();
      const bool has_end = std::ranges::count(ends, tokens.back()) > 0;
      const bool at_context = expected["name"] == "context";
      const StopReason at_limit = at_context ? StopReason::kContextFull : StopReason::kMaxTokens;
      if (has_stops && std::cmp_less(tokens.size(), expected["max_tokens"].get<int>())) {
        EXPECT_EQ(choices[i].generation.stop_reason, StopReason::kStopText);
        tokens.pop_back();
      } else if (has_end && ends.size() == 1) {
        EXPECT_EQ(choices[i].generation.stop_reason, at_end);
      } else if (!has_end) {
        EXPECT_EQ(choices[i].generation.stop_reason, at_limit);
      }
      if (has_end) tokens.pop_back();  // it counts in the score and is no part of the answer
      EXPECT_EQ(tokens_of(choices[i].generation), tokens);
      const double score = expected["choices"][i]["score"].get<double>();
      EXPECT_NEAR(choices[i].score, score, kTolerance);
      worst_ = std::max(worst_, std::abs(choices[i].score - score));
    }
  }

  /// Of a mean of log-probabilities. transformers adds them up as floats: once a sum is past -32
  /// each addition rounds by up to 1.9e-6, and past -64, where the longest end, by 3.8e-6. The
  /// log-probabilities differ as sums of floats in another order do: the margin of
  /// golden/stories260k_greedy.json, a logit less another, differs by 1.3e-6. The largest
  /// difference of a score that was seen is 6.6e-7.
  static constexpr double kTolerance = 3e-6;

  test::TempDir dir_;
  std::string path_;
  Json reference_;
  std::map<int32_t, std::unique_ptr<Engine>> engines_;
  double worst_ = 0;
};

// Each case's `margin` is at least 1e-4 between sums, of which those here differ by 1e-5 or so: no
// choice is decided by rounding.
TEST_F(BeamReferences, TokensAndScoresAreTransformers) {
  size_t n_of_many_lengths = 0;
  for (const Json& expected : reference_["cases"]) {
    SCOPED_TRACE(expected["name"].get<std::string>() + ", " + expected["text"].get<std::string>() +
                 ", beams " + expected["n_beams"].dump());
    const auto ends = expected["end"].get<Tokens>();
    const auto never = expected["never"].get<Tokens>();
    BeamOptions options{.n_beams = expected["n_beams"], .max_tokens = expected["max_tokens"]};
    if (expected["name"] == "context") options.max_tokens = engine::kNoTokenLimit;
    options.stops = expected["stops"].get<std::vector<std::string>>();
    if (ends.size() > 1) options.stops.push_back(text_of(ends[1]));
    options.ignore_end = !never.empty();
    Engine& engine = model_with_end(never.empty() ? ends[0] : never[0]);
    const auto prompt = expected["prompt"].get<Tokens>();
    expect_equal(expected, search(engine, prompt, options), StopReason::kEnd);
    std::set<size_t> lengths;
    for (const Json& choice : expected["choices"]) lengths.insert(choice["tokens"].size());
    n_of_many_lengths += lengths.size() > 2 ? 1 : 0;
  }
  EXPECT_GE(reference_["cases"].size(), 55u);
  EXPECT_GE(n_of_many_lengths, 3u);
  RecordProperty("worst_score", fmt::format("{:.1e}", worst_));
}

TEST_F(BeamReferences, AStopTextEndsAnAnswerAsATokenDoes) {
  for (const Json& expected : reference_["cases"]) {
    if (expected["name"] != "newline" && expected["name"] != "full stop") continue;
    const auto ends = expected["end"].get<Tokens>();
    SCOPED_TRACE(expected["name"].get<std::string>() + expected["n_beams"].dump());
    const BeamOptions options{.n_beams = expected["n_beams"],
                              .max_tokens = expected["max_tokens"],
                              .stops = {"never said", text_of(ends[0])}};
    const std::vector<BeamChoice> choices =
        search(model_with_end(2), expected["prompt"].get<Tokens>(), options);
    expect_equal(expected, choices, StopReason::kStopText);
    for (const BeamChoice& choice : choices) {
      EXPECT_THAT(choice.generation.text, Not(HasSubstr(text_of(ends[0]))));
    }
  }
}

class Beams : public test::IdentityTest {
 protected:
  static Tokens prompt(const Engine& engine, int n, uint32_t seed) {
    return test::random_ids(n, engine.model().config().vocab_size, seed);
  }
  static int32_t context_of(const std::string& path) {
    auto file = gguf::File::open(posix_env(), path);
    return std::min(model::read_config(**file)->context_length, 512);
  }
};

TEST_P(Beams, OfOneBeamAreGreedy) {
  const auto engine = open(path_, 1, {.context_tokens = context_of(path_)});
  for (const uint32_t seed : {1u, 2u, 3u}) {
    const Tokens tokens = prompt(*engine, 21, seed);
    const kv::OwnedSequence sequence = engine->create_sequence();
    auto logits = engine->append(sequence, tokens);
    ASSERT_TRUE(logits.is_ok());
    const auto greedy =
        engine::generate(*engine, sequence, *std::move(logits), {.max_tokens = 40, .n_logprobs = 1},
                         [](std::string_view) { return true; });
    ASSERT_TRUE(greedy.is_ok()) << greedy.status().message();
    const auto choices =
        engine::generate_beams(*engine, tokens, {.n_beams = 1, .max_tokens = 40}, kGoesOn);
    ASSERT_TRUE(choices.is_ok()) << choices.status().message();
    ASSERT_EQ(choices->size(), 1u);
    EXPECT_EQ(tokens_of((*choices)[0].generation), tokens_of(*greedy));
    EXPECT_EQ((*choices)[0].generation.text, greedy->text);
    EXPECT_EQ((*choices)[0].generation.stop_reason, greedy->stop_reason);
  }
}

// To the bit: what a beam's row gets follows from its tokens alone, whichever pages it shares,
// copied or left, and which rows were beside it.
TEST_P(Beams, ScoreAsTheirTokensDoAlone) {
  const int32_t n_beams = 6;
  const auto engine = open(path_, n_beams, {.context_tokens = context_of(path_)});
  const Tokens tokens = prompt(*engine, 23, 4);
  const std::vector<BeamChoice> choices =
      search(*engine, tokens, {.n_beams = n_beams, .max_tokens = 40, .ignore_end = true});
  ASSERT_EQ(std::ssize(choices), n_beams);
  for (const BeamChoice& choice : choices) {
    const kv::OwnedSequence sequence = engine->create_sequence();
    Result<std::vector<float>> logits = engine->append(sequence, tokens);
    double sum = 0;
    const Tokens said = tokens_of(choice.generation);
    ASSERT_EQ(said.size(), 40u);
    for (const int32_t id : said) {
      ASSERT_TRUE(logits.is_ok()) << logits.status().message();
      sum += sampling::logprob_of((*logits)[id], sampling::log_sum_exp(*logits));
      logits = engine->append(sequence, std::span(&id, 1), {.kind = model::RowKind::kDecode});
    }
    EXPECT_EQ(choice.score, sum / 40);
  }
  EXPECT_TRUE(std::ranges::is_sorted(choices, std::ranges::greater(), &BeamChoice::score));
}

/// Sequences that hold pages of the group that rolls until it has so many left.
std::vector<kv::OwnedSequence> leave_free_in_windows(Engine& engine, size_t n_pages) {
  std::vector<kv::OwnedSequence> taken;
  const auto is_filled = [&](const kv::Snapshot& group) {
    return group.window_tokens == 0 || group.free_list.size() <= n_pages;
  };
  while (!std::ranges::all_of(engine.kv_snapshots(), is_filled)) {
    taken.push_back(engine.create_sequence());
    // All of these are still seen by the next token.
    EXPECT_TRUE(engine.append(taken.back(), test::random_ids(24, 256, 9)).is_ok());
  }
  return taken;
}

// What forks share may have left their windows, where pages run short.
TEST_P(Beams, AreThoseOfACacheThatKeepsWholeContexts) {
  const int32_t n_beams = 4;
  std::vector<std::vector<BeamChoice>> all;
  bool has_windows = false, has_rolled = false;
  for (const bool rolls : {false, true}) {
    const auto engine =
        open(path_, n_beams, {.context_tokens = context_of(path_), .rolls_windows = rolls});
    const auto taken = leave_free_in_windows(*engine, 10);
    const auto look = [&] {
      for (const kv::Snapshot& group : engine->kv_snapshots()) {
        has_windows |= group.window_tokens > 0;
        for (const auto& [id, sequence] : group.sequences) has_rolled |= sequence.first_page > 0;
      }
    };
    const BeamOptions how{.n_beams = n_beams, .max_tokens = 120, .ignore_end = true};
    all.push_back(search(*engine, prompt(*engine, 40, 5), how, look));
  }
  EXPECT_EQ(has_rolled, has_windows);
  ASSERT_EQ(all[0].size(), all[1].size());
  for (size_t i = 0; i < all[0].size(); ++i) {
    EXPECT_EQ(tokens_of(all[0][i].generation), tokens_of(all[1][i].generation));
    EXPECT_EQ(all[0][i].score, all[1][i].score);
  }
}

std::vector<test::IdentityCase> beam_cases() {
  std::vector<test::IdentityCase> cases;
  for (test::IdentityCase& c : test::identity_cases()) {
    for (const char* name : {"gqa_f32", "wide_q8_0", "gemma3_q8_0", "phi3_window_key",
                             "mixtral_q8_0", "stories260k"}) {
      if (c.name == name) cases.push_back(std::move(c));
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Models, Beams, ::testing::ValuesIn(beam_cases()),
                         [](const auto& c) { return c.param.name; });

/// One small model.
class BeamEngine : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<test::TempDir>();
    ASSERT_TRUE(gguf::write_random_model(posix_env(), model(), options()).is_ok());
  }
  static void TearDownTestSuite() { folder_.reset(); }
  static gguf::RandomModelOptions options() {
    return {.vocab = 300, .tied = false, .context_length = 256};
  }
  static std::string model() { return folder_->path() + "/model.gguf"; }
  static Tokens prompt(int n) { return test::random_ids(n, 300, 7); }
  static int64_t used_pages(const Engine& engine) {
    return engine.kv_usage().pages - engine.kv_usage().free;
  }

  static inline std::unique_ptr<test::TempDir> folder_;
};

std::string text_of(const Engine& engine, const Tokens& tokens) {
  text::StreamingDetokenizer detokenizer(engine.tokenizer());
  std::string text;
  for (const int32_t id : tokens) text += detokenizer.push(id);
  return text;
}

/// The search with nothing shared: every step computes every beam again from its first token, and
/// looks through its whole text. Of at most `max_tokens` tokens; end tokens do not end it.
std::vector<engine::Hypothesis> search_naively(Engine& engine, const Tokens& prompt,
                                               const BeamOptions& options) {
  engine::BeamSearch search({.n_beams = options.n_beams, .n_end_tokens = 2});
  const auto ends = [&](int32_t beam, int32_t id) -> std::optional<StopReason> {
    Tokens tokens = search.running()[beam].tokens;
    tokens.push_back(id);
    const std::string text = text_of(engine, tokens);
    for (const std::string& stop : options.stops) {
      if (text.find(stop) != std::string::npos) return StopReason::kStopText;
    }
    if (engine.tokenizer().is_end_of_generation(id)) return StopReason::kEnd;
    if (search.n_tokens() == options.max_tokens) return StopReason::kMaxTokens;
    return std::nullopt;
  };
  while (!search.is_done()) {
    std::vector<float> all;
    for (const engine::Beam& beam : search.running()) {
      const kv::OwnedSequence sequence = engine.create_sequence();
      auto logits = engine.append(sequence, prompt);
      for (const int32_t id : beam.tokens) {
        logits = engine.append(sequence, std::span(&id, 1), {.kind = model::RowKind::kDecode});
      }
      all.insert(all.end(), logits->begin(), logits->end());
    }
    search.step(MatrixView<const float>(all, engine.model().config().vocab_size), ends);
  }
  return search.best();
}

TEST_F(BeamEngine, AreThoseOfASearchThatSharesNothing) {
  const auto engine = open(model(), 4);
  size_t n_stopped = 0;
  for (uint32_t seed = 0; seed < 6; ++seed) {
    const Tokens tokens = test::random_ids(17, 300, seed);
    BeamOptions how{.n_beams = 4, .max_tokens = 14};
    for (const BeamChoice& choice : search(*engine, tokens, how)) {
      const std::string& text = choice.generation.text;  // what some beam says ends all
      if (text.size() > 8) how.stops.push_back(text.substr(text.size() / 2, 3));
    }
    ASSERT_FALSE(how.stops.empty());
    const std::vector<BeamChoice> choices = search(*engine, tokens, how);
    const std::vector<engine::Hypothesis> expected = search_naively(*engine, tokens, how);
    ASSERT_EQ(choices.size(), expected.size());
    for (size_t i = 0; i < choices.size(); ++i) {
      Tokens said = expected[i].tokens;
      if (expected[i].reason != StopReason::kMaxTokens) said.pop_back();
      EXPECT_EQ(tokens_of(choices[i].generation), said);
      EXPECT_EQ(choices[i].score, expected[i].score);
      EXPECT_EQ(choices[i].generation.stop_reason, expected[i].reason);
      n_stopped += expected[i].reason == StopReason::kStopText ? 1 : 0;
    }
  }
  EXPECT_GT(n_stopped, 6u);
}

/// Takes pages until so many are free; they are taken as long as what is returned.
std::vector<kv::OwnedSequence> leave_free(Engine& engine, int64_t n_pages) {
  std::vector<kv::OwnedSequence> taken;
  while (engine.kv_usage().free > n_pages) {
    const int64_t n = std::min<int64_t>(engine.kv_usage().free - n_pages, 16);
    taken.push_back(engine.create_sequence());
    EXPECT_TRUE(engine.append(taken.back(), Tokens(16 * n, 1)).is_ok());
  }
  return taken;
}

TEST_F(BeamEngine, ThePagesThatAreAskedForSuffice) {
  for (const int32_t n_beams : {1, 2, 3, 8, 32}) {
    const auto engine = open(model(), 1);
    for (const int32_t n_prompt : {1, 15, 16, 17, 30}) {
      for (const int32_t n_tokens : {1, 2, 17, 34}) {
        SCOPED_TRACE(fmt::format("{} beams, {} after {}", n_beams, n_tokens, n_prompt));
        const int64_t n_pages = engine::beam_pages(n_prompt, n_tokens - 1, n_beams, 16);
        const auto taken = leave_free(*engine, n_pages);
        ASSERT_EQ(engine->kv_usage().free, n_pages);
        const BeamOptions how{.n_beams = n_beams, .max_tokens = n_tokens, .ignore_end = true};
        const auto choices = engine::generate_beams(*engine, prompt(n_prompt), how, kGoesOn);
        ASSERT_TRUE(choices.is_ok()) << choices.status().message();
        for (const BeamChoice& choice : *choices) {
          EXPECT_EQ(std::ssize(choice.generation.tokens), n_tokens);
        }
        EXPECT_EQ(engine->kv_usage().free, n_pages);
      }
    }
  }
}

TEST_F(BeamEngine, TooFewPagesAreRefusedWithTheLimitThatWouldDo) {
  const BeamOptions how{.n_beams = 8, .max_tokens = 60, .ignore_end = true};
  const int64_t n_pages = engine::beam_pages(20, 59, 8, 16);
  std::optional<uint64_t> limit = narrow<uint64_t>(open(model(), 8)->limit_to_hold(n_pages / 2));
  for (const bool is_enough : {false, true}) {
    const auto engine = open(model(), 8, {.kv_limit_bytes = *limit});
    const auto choices = engine::generate_beams(*engine, prompt(20), how, kGoesOn);
    EXPECT_EQ(choices.is_ok(), is_enough);
    if (choices.is_ok()) break;
    EXPECT_EQ(choices.status().code(), StatusCode::kResourceExhausted);
    const std::string line = choices.status().message();
    EXPECT_THAT(line, AllOf(HasSubstr("8 beams of up to 60 tokens after a prompt of 20 may need"),
                            HasSubstr(fmt::format("{} pages", n_pages))));
    EXPECT_EQ(used_pages(*engine), 0);
    limit = parse_byte_size(test::named_limit(line, "--kv-limit (\\S+) holds them"))->bytes;
  }
  // Contexts for fewer, without a limit: what is spare beside them is not enough for all.
  const auto few = open(model(), 1);
  const BeamOptions long_ones{.n_beams = 32, .max_tokens = engine::kNoTokenLimit};
  const Status refused = engine::generate_beams(*few, prompt(20), long_ones, kGoesOn).status();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("more contexts at once hold them"));
}

TEST_F(BeamEngine, AFullContextEndsThem) {
  const auto engine = open(model(), 3, {.context_tokens = 50});
  const BeamOptions how{.n_beams = 3, .max_tokens = engine::kNoTokenLimit, .ignore_end = true};
  const std::vector<BeamChoice> choices = search(*engine, prompt(33), how);
  ASSERT_EQ(choices.size(), 3u);
  for (const BeamChoice& choice : choices) {
    EXPECT_EQ(choice.generation.stop_reason, StopReason::kContextFull);
    EXPECT_EQ(choice.generation.tokens.size(), 18u);  // the last is not run
  }
  const std::vector<BeamChoice> at_once = search(*engine, prompt(50), how);
  EXPECT_EQ(at_once[0].generation.tokens.size(), 1u);
  EXPECT_EQ(engine::generate_beams(*engine, prompt(51), how, kGoesOn).status().code(),
            StatusCode::kResourceExhausted);
}

TEST_F(BeamEngine, WhoAsksCanEndThemAndGetsWhatThereIs) {
  const auto engine = open(model(), 4);
  const BeamOptions how{.n_beams = 4, .max_tokens = 40, .ignore_end = true};
  const auto until = [&](int32_t n) {
    return engine::generate_beams(*engine, prompt(20), how, [n](int32_t made) { return made < n; });
  };
  const auto choices = until(7);
  ASSERT_TRUE(choices.is_ok()) << choices.status().message();
  ASSERT_EQ(choices->size(), 4u);
  for (const BeamChoice& choice : *choices) {
    EXPECT_EQ(choice.generation.stop_reason, StopReason::kCancelled);
    EXPECT_EQ(choice.generation.tokens.size(), 7u);
  }
  EXPECT_EQ(used_pages(*engine), 0);
  EXPECT_EQ(until(0).status().code(), StatusCode::kCancelled);  // in the prompt
  EXPECT_EQ(used_pages(*engine), 0);
}

TEST_F(BeamEngine, OptionsAreRefusedByName) {
  const auto engine = open(model(), 4);
  const auto refused = [&](const BeamOptions& how, const Tokens& tokens) {
    const Status status = engine::generate_beams(*engine, tokens, how, kGoesOn).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(used_pages(*engine), 0);
    return status.message();
  };
  for (const int32_t n : {-1, 0, 33, std::numeric_limits<int32_t>::max()}) {
    EXPECT_THAT(refused({.n_beams = n}, prompt(3)), HasSubstr(fmt::format("beams {}", n)));
  }
  for (const int32_t n : {-2, 0, std::numeric_limits<int32_t>::min()}) {
    EXPECT_THAT(refused({.max_tokens = n}, prompt(3)), HasSubstr(fmt::format("tokens {}", n)));
  }
  EXPECT_THAT(refused({.stops = {""}}, prompt(3)), HasSubstr("stop ''"));
  EXPECT_THAT(refused({}, {}), HasSubstr("the prompt is empty"));
  EXPECT_THAT(refused({}, {300}), HasSubstr("300"));
}

/// Writes NaN over the rows of a matrix for which `is_damaged` says so.
void damage_rows(const std::string& path, const char* name,
                 const std::function<bool(int32_t)>& is_damaged) {
  std::string bytes = test::read_text(path);
  const auto file = gguf::File::open(posix_env(), path);
  ASSERT_TRUE(file.is_ok());
  const gguf::TensorInfo* tensor = (*file)->find_tensor(name);
  ASSERT_NE(tensor, nullptr);
  const std::vector<float> nans(tensor->dims[0], std::numeric_limits<float>::quiet_NaN());
  const int64_t row_bytes = tensor->dims[0] * narrow<int64_t>(sizeof(float));
  const int64_t begin = tensor->data - (*file)->parts()[0].bytes.data();
  for (int32_t row = 0; row < tensor->dims[1]; ++row) {
    if (is_damaged(row)) std::memcpy(&bytes[begin + row * row_bytes], nans.data(), row_bytes);
  }
  test::write_text(path, bytes);
}

TEST_F(BeamEngine, ABeamWhoseScoresAreNoNumbersIsAnErrorOfAll) {
  const std::string path = folder_->path() + "/damaged.gguf";
  ASSERT_TRUE(gguf::write_random_model(posix_env(), path, options()).is_ok());
  const BeamOptions how{.n_beams = 4, .max_tokens = 20, .ignore_end = true};
  std::vector<int32_t> firsts;
  for (const BeamChoice& choice :
       search(*open(path, 4), prompt(20), {.n_beams = 4, .max_tokens = 1, .ignore_end = true})) {
    firsts.push_back(choice.generation.tokens[0].id);
  }
  ASSERT_THAT(prompt(20), Not(::testing::Contains(firsts[2])));
  // One of the four that the first step chooses. The head is another matrix in this model.
  damage_rows(path, "token_embd.weight", [&](int32_t id) { return id == firsts[2]; });
  const auto engine = open(path, 4);
  const Status status = engine::generate_beams(*engine, prompt(20), how, kGoesOn).status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("the model's scores are no numbers"));
  EXPECT_EQ(used_pages(*engine), 0);
}

TEST_F(BeamEngine, WhereOnlyEndsArePossibleIgnoringThemIsOneLine) {
  const std::string path = folder_->path() + "/ends.gguf";
  ASSERT_TRUE(gguf::write_random_model(posix_env(), path, options()).is_ok());
  const auto is_end = [engine = open(path, 1)](int32_t id) {
    return engine->tokenizer().is_end_of_generation(id);
  };
  damage_rows(path, "output.weight", [&](int32_t id) { return !is_end(id); });
  const auto engine = open(path, 4);
  const std::vector<BeamChoice> ended = search(*engine, prompt(5), {.n_beams = 4});
  ASSERT_FALSE(ended.empty());
  for (const BeamChoice& choice : ended) {
    EXPECT_EQ(choice.generation.stop_reason, StopReason::kEnd);
    EXPECT_THAT(choice.generation.tokens, IsEmpty());
  }
  const Status status =
      engine::generate_beams(*engine, prompt(5), {.n_beams = 4, .ignore_end = true}, kGoesOn)
          .status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("--ignore-eos"));
  EXPECT_EQ(used_pages(*engine), 0);
}

}  // namespace
}  // namespace weft
