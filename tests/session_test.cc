// Sessions in their files, with small random models: what goes on from a file is, to the bit, what
// would have gone on without one; what cannot is refused; whatever happens while a file is written,
// it is the old one or the new one.
#include "engine/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "engine/chat_session.h"
#include "kernels/arithmetic_revision.h"
#include "support/fault_env.h"
#include "support/test_model.h"

namespace weft::engine {
namespace {

using test::FaultEnv;
using test::MemoryTempDir;
using test::random_ids;
using test::read_text;
using test::Survives;
using test::write_text;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr int32_t kVocab = 300;
constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

constexpr auto kGoOn = [] { return false; };
const FunctionRef<bool()> kNever(kGoOn);

/// What a run of `generate --session` does.
struct Text {
  Session session;
  kv::OwnedSequence sequence;
  std::vector<GeneratedToken> generated;
};

class SessionTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<test::TempDir>();
    gguf::RandomModelOptions options{.vocab = kVocab};
    options.chat_template = kChatMl;
    write_model("plain", options);
    options.seed = 2;
    write_model("other", options);
    gguf::RandomModelOptions windows{
        .architecture = "gemma3", .n_layers = 4, .vocab = kVocab, .window = 16, .window_period = 2};
    write_model("windows", windows);
    gguf::RandomModelOptions longrope{.architecture = "phi3", .vocab = kVocab};
    longrope.head_dim = 16;
    longrope.rope_factors_long = std::vector<float>(8, 4.0f);
    longrope.rope_factors_short = std::vector<float>(8, 1.0f);
    longrope.original_context_length = 128;
    write_model("longrope", longrope);
  }
  static void TearDownTestSuite() { folder_.reset(); }
  static void write_model(const std::string& name, const gguf::RandomModelOptions& options) {
    ASSERT_TRUE(gguf::write_random_model(posix_env(), path(name), options).is_ok());
  }
  static std::string path(const std::string& name) { return folder_->path() + "/" + name; }

  static std::unique_ptr<Engine> open(EngineOptions options, Env& env = posix_env()) {
    if (options.model == nullptr) options.model_path = path(options.model_path);
    options.n_threads = 1;
    if (options.compute == "auto") options.compute = "f32";
    auto engine = Engine::open(env, options);
    EXPECT_TRUE(engine.is_ok()) << engine.status().message();
    return *std::move(engine);
  }

  static Text begin(Engine& engine, std::span<const int32_t> prompt,
                    const GenerationOptions& options) {
    Session session;
    session.tokens.assign(prompt.begin(), prompt.end());
    session.prompt_tokens = static_cast<uint32_t>(prompt.size());
    session.sampling = options.sampling;
    kv::OwnedSequence sequence = engine.create_sequence();
    auto logits = engine.append(sequence, prompt);
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    return run(engine, std::move(session), {std::move(sequence), *std::move(logits)}, options);
  }
  static Text run(Engine& engine, Session session, Prefilled start,
                  const GenerationOptions& options) {
    const std::span<const int32_t> tokens = session.tokens;
    const auto on_text = [](std::string_view) { return true; };
    auto generation = generate(engine, start.sequence, std::move(start.logits), options, on_text,
                               tokens.first(session.prompt_tokens),
                               {tokens.subspan(session.prompt_tokens), session.n_draws});
    EXPECT_TRUE(generation.is_ok()) << generation.status().message();
    for (const GeneratedToken& token : generation->tokens) session.tokens.push_back(token.id);
    session.n_draws = generation->n_draws;
    return {std::move(session), std::move(start.sequence), std::move(generation->tokens)};
  }
  static std::unique_ptr<SavedSession> saved(const std::string& file, Env& env = posix_env()) {
    auto opened = SavedSession::open(env, file);
    EXPECT_TRUE(opened.is_ok()) << opened.status().message();
    return opened.is_ok() ? *std::move(opened) : nullptr;
  }
  static Status save(Engine& engine, const std::string& file, const Text& text) {
    std::optional<kv::SessionStamp> stamp;
    const auto before = SavedSession::open(posix_env(), file);
    if (before.is_ok()) stamp = (*before)->file().stamp();
    return SavedSession::save(engine, file, text.session, text.sequence, stamp);
  }
  static Status refusal(const std::string& file, EngineOptions options) {
    const auto engine = open(std::move(options));
    const auto session = saved(file);
    return session->check_engine(*engine);
  }

  static inline std::unique_ptr<test::TempDir> folder_;
};

std::vector<std::pair<int32_t, float>> ids_and_scores(const std::vector<GeneratedToken>& tokens) {
  std::vector<std::pair<int32_t, float>> out;
  for (const GeneratedToken& token : tokens) out.emplace_back(token.id, token.logprob);
  return out;
}

const sampling::SamplingOptions kSampled{
    .temperature = 0.9f,
    .seed = 5,
    .penalties = {.repeat = 1.3f, .repeat_last_n = 12, .frequency = 0.4f, .presence = 0.3f}};

/// Through a file, in an engine that has seen nothing of it.
TEST_F(SessionTest, TwoRunsAreOne) {
  constexpr int32_t kTokens = 30;
  const std::string file = path("two-runs");
  for (const char* model : {"plain", "windows"}) {
    for (const kernels::KvTypes types :
         {kernels::KvTypes{}, kernels::KvTypes{DType::kF32, DType::kBF16}}) {
      for (const auto& sampling : {sampling::SamplingOptions{}, kSampled}) {
        const EngineOptions opening{.model_path = model, .kv_types = types};
        GenerationOptions options{.sampling = sampling, .max_tokens = kTokens, .ignore_end = true};
        options.n_logprobs = 1;
        const std::vector<int32_t> prompt = random_ids(21, kVocab, 1);
        const auto engine = open(opening);
        const Text whole = begin(*engine, prompt, options);
        for (const int32_t first : {0, 1, 11, 12, kTokens - 1}) {
          SCOPED_TRACE(testing::Message() << model << ", " << first << " tokens first");
          std::filesystem::remove(file);
          options.max_tokens = first;
          ASSERT_TRUE(save(*engine, file, begin(*engine, prompt, options)).is_ok());
          const auto later = open(opening);
          const auto session = saved(file);
          ASSERT_TRUE(session->check_engine(*later).is_ok());
          auto start = session->resume(*later, kNever);
          ASSERT_TRUE(start.is_ok()) << start.status().message();
          options.max_tokens = kTokens - first;
          options.sampling = session->session().sampling;
          const Text rest = run(*later, session->session(), *std::move(start), options);
          EXPECT_THAT(rest.session.tokens, ElementsAreArray(whole.session.tokens));
          EXPECT_EQ(rest.session.n_draws, whole.session.n_draws);
          auto expected = ids_and_scores(whole.generated);
          expected.erase(expected.begin(), expected.begin() + first);
          EXPECT_EQ(ids_and_scores(rest.generated), expected);
          EXPECT_EQ(later->kv_snapshots()[0].sequences[0].sequence.kinds,
                    engine->kv_snapshots()[0].sequences[0].sequence.kinds);
        }
      }
    }
  }
}

TEST_F(SessionTest, APromptWithASessionGivesTheBitsOfOneWithout) {
  for (const char* model : {"plain", "windows"}) {
    const auto engine = open({.model_path = model});
    const std::vector<int32_t> prompt = random_ids(40, kVocab, 3);
    const Text first = begin(*engine, prompt, {.max_tokens = 20, .ignore_end = true});
    const std::string file = path(std::string("prompts-") + model);
    ASSERT_TRUE(save(*engine, file, first).is_ok());
    const auto session = saved(file);
    struct Case {
      std::vector<int32_t> prompt;
      int32_t reused;
    };
    std::vector<Case> cases = {{prompt, 39},
                               {{prompt.begin(), prompt.begin() + 25}, 24},
                               {{prompt.begin(), prompt.begin() + 1}, 0},
                               {random_ids(30, kVocab, 4), 0},
                               // The answer's rows were decoded, which a prompt's are not.
                               {first.session.tokens, 40}};
    cases.push_back({prompt, 17});
    cases.back().prompt[17] = (prompt[17] + 1) % kVocab;
    cases.push_back({first.session.tokens, 40});
    for (const int32_t id : random_ids(30, kVocab, 5)) cases.back().prompt.push_back(id);
    for (const Case& c : cases) {
      const auto with = session->prefill(*engine, c.prompt, kNever);
      ASSERT_TRUE(with.is_ok()) << with.status().message();
      const kv::OwnedSequence sequence = engine->create_sequence();
      const auto without = engine->append(sequence, c.prompt);
      ASSERT_TRUE(without.is_ok());
      EXPECT_EQ(with->reused_tokens, c.reused);
      EXPECT_EQ(with->logits, *without) << c.prompt.size();
    }
  }
}

// The token that completed a stop text is no part of the answer: it is drawn again.
TEST_F(SessionTest, WhatEndedAtAStopTextGoesOnWithTheTokensOfATextWithoutIt) {
  const auto engine = open({.model_path = "plain"});
  const std::vector<int32_t> prompt = random_ids(9, kVocab, 6);
  GenerationOptions options{.sampling = kSampled, .max_tokens = 40, .ignore_end = true};
  const Text whole = begin(*engine, prompt, options);
  const int32_t stop = whole.generated[20].id;
  options.stops = {std::string(engine->tokenizer().token_bytes(stop, false))};
  ASSERT_FALSE(options.stops[0].empty());
  const Text stopped = begin(*engine, prompt, options);
  ASSERT_LT(stopped.generated.size(), whole.generated.size());
  const std::string file = path("stopped");
  ASSERT_TRUE(save(*engine, file, stopped).is_ok());
  auto start = saved(file)->resume(*engine, kNever);
  ASSERT_TRUE(start.is_ok());
  options.stops.clear();
  options.max_tokens = static_cast<int32_t>(whole.generated.size() - stopped.generated.size());
  const Text rest = run(*engine, saved(file)->session(), *std::move(start), options);
  EXPECT_THAT(rest.session.tokens, ElementsAreArray(whole.session.tokens));
}

TEST_F(SessionTest, AConversationGoesOnAsIfItHadNeverStopped) {
  const std::string file = path("chat");
  const EngineOptions opening{.model_path = "plain", .context_tokens = 200};
  const GenerationOptions options{.sampling = kSampled, .max_tokens = 24};
  const auto engine = open(opening);
  auto whole = ChatSession::open(*engine);
  ASSERT_TRUE(whole.is_ok() && (*whole)->set_system("Be brief.").is_ok());
  std::optional<kv::SessionStamp> stamp;
  int32_t dropped = 0;
  for (int turn = 0; turn < 8; ++turn) {
    SCOPED_TRACE(turn);
    const auto later = open(opening);
    auto resumed = ChatSession::open(*later);
    ASSERT_TRUE(resumed.is_ok());
    if (turn == 0) {
      ASSERT_TRUE((*resumed)->set_system("Be brief.").is_ok());
    } else {
      const auto session = saved(file);
      ASSERT_TRUE(session->check_engine(*later).is_ok());
      ASSERT_TRUE((*resumed)->resume(*session).is_ok());
      EXPECT_EQ(session->session().sampling.seed, kSampled.seed);
    }
    const auto answer = [&](ChatSession& session) {
      return turn == 3 || turn == 4 ? session.regenerate(options, {})
                                    : session.say("Question " + std::to_string(turn), options, {});
    };
    const auto expected = answer(**whole);
    const auto got = answer(**resumed);
    ASSERT_TRUE(expected.is_ok() && got.is_ok()) << got.status().message();
    EXPECT_EQ(got->text, expected->text);
    EXPECT_EQ(got->reused_tokens, expected->reused_tokens);
    EXPECT_THAT((*resumed)->held_tokens(), ElementsAreArray((*whole)->held_tokens()));
    EXPECT_EQ((*resumed)->dropped_turns(), (*whole)->dropped_turns());
    dropped = (*resumed)->dropped_turns();
    Session now = (*resumed)->session();
    now.sampling = options.sampling;
    const Status kept = SavedSession::save(*later, file, now, (*resumed)->sequence(), stamp);
    ASSERT_TRUE(kept.is_ok()) << kept.message();
  }
  EXPECT_GT(dropped, 0);  // so that this was tried, too
}

TEST_F(SessionTest, DroppedTurnsComeBackWhereTheContextHasRoomForThem) {
  const std::string file = path("smaller");
  const auto small = open({.model_path = "plain", .context_tokens = 120});
  auto chat = ChatSession::open(*small);
  ASSERT_TRUE(chat.is_ok());
  const GenerationOptions options{.max_tokens = 8, .ignore_end = true};
  for (int turn = 0; (*chat)->dropped_turns() == 0; ++turn) {
    ASSERT_LT(turn, 20);
    ASSERT_TRUE((*chat)->say("Question " + std::to_string(turn), options, {}).is_ok());
  }
  std::optional<kv::SessionStamp> stamp;
  const Session session = (*chat)->session();
  ASSERT_TRUE(SavedSession::save(*small, file, session, (*chat)->sequence(), stamp).is_ok());
  const auto large = open({.model_path = "plain", .context_tokens = 250});
  auto resumed = ChatSession::open(*large), anew = ChatSession::open(*large);
  ASSERT_TRUE(resumed.is_ok() && anew.is_ok());
  ASSERT_TRUE((*resumed)->resume(*saved(file)).is_ok());
  ASSERT_TRUE((*anew)->set_turns(session.turns).is_ok());
  const auto again = (*resumed)->say("And then?", options, {});
  const auto expected = (*anew)->say("And then?", options, {});
  ASSERT_TRUE(again.is_ok() && expected.is_ok()) << again.status().message();
  EXPECT_EQ((*resumed)->dropped_turns(), 0);
  EXPECT_EQ(again->text, expected->text);
}

// A file with right checksums may say anything.
TEST_F(SessionTest, DroppedTurnsThatLeaveNoUsersTurnAreRefused) {
  const std::string file = path("dropped");
  const auto engine = open({.model_path = "plain", .context_tokens = 200});
  auto chat = ChatSession::open(*engine);
  ASSERT_TRUE(chat.is_ok());
  ASSERT_TRUE((*chat)->say("Question", {.max_tokens = 4}, {}).is_ok());
  Session session = (*chat)->session();
  ASSERT_EQ(session.turns.size(), 2u);
  for (const uint32_t first_turn : {1u, 2u, 3u, UINT32_MAX}) {
    session.first_turn = first_turn;
    std::filesystem::remove(file);
    std::optional<kv::SessionStamp> stamp;
    ASSERT_TRUE(SavedSession::save(*engine, file, session, (*chat)->sequence(), stamp).is_ok());
    auto resumed = ChatSession::open(*engine);
    ASSERT_TRUE(resumed.is_ok());
    const Status status = (*resumed)->resume(*saved(file));
    EXPECT_EQ(status.code(), StatusCode::kCorrupt) << first_turn;
    EXPECT_TRUE(status.message().starts_with(file + ": ")) << status.message();
    EXPECT_TRUE((*resumed)->say("Question", {.max_tokens = 4}, {}).is_ok());
  }
}

TEST_F(SessionTest, WhatTheRunCannotGoOnWithIsRefusedByName) {
  const std::string file = path("refused");
  const auto engine = open({.model_path = "plain", .isa = "baseline"});
  const Text first = begin(*engine, random_ids(20, kVocab, 1), {.max_tokens = 4});
  ASSERT_TRUE(save(*engine, file, first).is_ok());
  const auto expect = [&](EngineOptions options, const char* part) {
    const Status status = refusal(file, std::move(options));
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(status.message(), HasSubstr(part));
    EXPECT_TRUE(status.message().starts_with(file + ": "));
  };
  EXPECT_TRUE(refusal(file, {.model_path = "plain", .isa = "baseline"}).is_ok());
  expect({.model_path = "other", .isa = "baseline"}, "another model");
  expect({.model_path = "windows", .isa = "baseline"}, "another model");
  expect({.model_path = "plain", .kv_types = {DType::kF32, DType::kF16}, .isa = "baseline"},
         "--cache-type-k f16 --cache-type-v f16");
  expect({.model_path = "plain", .isa = "baseline", .compute = "int8"},
         "--compute f32 --isa baseline");
  const std::string best = kernels::isa_name(kernels::best_isa());
  if (best != "baseline") expect({.model_path = "plain", .isa = best}, "--isa baseline");
}

// The same model, whose RoPE depends on the context that it was opened for.
TEST_F(SessionTest, OtherRopeSettingsAreRefused) {
  const std::string file = path("ropes");
  const auto engine = open({.model_path = "longrope", .context_tokens = 64});
  const Text first = begin(*engine, random_ids(20, kVocab, 1), {.max_tokens = 4});
  ASSERT_TRUE(save(*engine, file, first).is_ok());
  EXPECT_TRUE(refusal(file, {.model_path = "longrope", .context_tokens = 100}).is_ok());
  const Status status = refusal(file, {.model_path = "longrope", .context_tokens = 512});
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("-c of its first run"));
}

TEST_F(SessionTest, AFullContextIsSaidWithTheFlagThatHoldsMore) {
  const std::string file = path("full");
  const auto engine = open({.model_path = "plain", .context_tokens = 64});
  const Text full =
      begin(*engine, random_ids(20, kVocab, 1), {.max_tokens = kNoTokenLimit, .ignore_end = true});
  EXPECT_EQ(full.session.tokens.size(), 65u);  // the last was not run
  ASSERT_TRUE(save(*engine, file, full).is_ok());
  const auto start = saved(file)->resume(*engine, kNever);
  EXPECT_EQ(start.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(start.status().message(), HasSubstr("-c 65"));
  const auto larger = open({.model_path = "plain", .context_tokens = 65});
  EXPECT_TRUE(saved(file)->resume(*larger, kNever).is_ok());
  // A prompt that fits takes of it what it needs.
  const auto small = open({.model_path = "plain", .context_tokens = 32});
  const auto prompt = std::span(full.session.tokens).first(20);
  EXPECT_EQ(saved(file)->prefill(*small, prompt, kNever)->reused_tokens, 19);
}

TEST_F(SessionTest, ACancelledPrefillLeavesNoSequence) {
  const std::string file = path("cancelled");
  const auto engine = open({.model_path = "plain"});
  ASSERT_TRUE(
      save(*engine, file, begin(*engine, random_ids(20, kVocab, 1), {.max_tokens = 4})).is_ok());
  const auto stop = [] { return true; };
  EXPECT_EQ(saved(file)->resume(*engine, stop).status().code(), StatusCode::kCancelled);
  EXPECT_EQ(engine->kv_usage().held(), 0);
}

/// A session whose state is `state`, under right checksums: whoever wrote it could compute them.
void forge(const std::string& file, std::span<const std::byte> state,
           std::span<const std::byte> identity) {
  auto cache = kv::Cache::create(
      {.n_layers = 1, .layout = {DType::kF16, DType::kF16, 8, 1, 16}, .capacity_tokens = 16});
  EXPECT_TRUE(cache.is_ok());
  const kv::SequenceId id = (*cache)->create_sequence();
  auto reservation = (*cache)->reserve(id, 3);
  reservation->commit();
  std::string bytes;
  const std::vector<int32_t> tokens = {1, 2, 3};
  const auto written = kv::write_session(
      **cache, id, {.tokens = tokens, .n_slots = 3, .identity = identity, .state = state},
      [&](std::span<const std::byte> more) {
        bytes.append(reinterpret_cast<const char*>(more.data()), more.size());
        return Status::ok();
      });
  EXPECT_TRUE(written.is_ok());
  write_text(file, bytes);
}

TEST_F(SessionTest, AStateThatLiesIsRefusedUnderRightChecksums) {
  const std::string file = path("forged");
  const auto engine = open({.model_path = "plain"});
  Text first = begin(*engine, random_ids(3, kVocab, 1), {.max_tokens = 0});
  ASSERT_TRUE(save(*engine, file, first).is_ok());
  const auto honest = saved(file);
  const auto span = honest->file().state();
  const std::vector<std::byte> state(span.begin(), span.end());
  const std::vector<std::byte> identity = honest->file().head().identity;
  forge(file, state, identity);
  EXPECT_TRUE(SavedSession::open(posix_env(), file).is_ok());
  for (size_t n = 0; n < state.size(); ++n) {
    forge(file, std::span(state).first(n), identity);
    EXPECT_EQ(SavedSession::open(posix_env(), file).status().code(), StatusCode::kCorrupt) << n;
  }
  for (size_t n = 1; n < identity.size(); ++n) {
    forge(file, state, std::span(identity).first(n));
    EXPECT_EQ(SavedSession::open(posix_env(), file).status().code(), StatusCode::kCorrupt) << n;
  }
  // Numbers that no settings may have, a kind and a prompt that cannot be.
  for (const auto& [at, lie] : {std::pair{0u, 2u},
                                {0u, 1u << 31},
                                {4u, 0x7fc00000u},
                                {4u, 0xbf800000u},
                                {12u, 0x40000000u},
                                {44u, 0u},
                                {44u, 4u}}) {
    std::vector<std::byte> changed = state;
    std::memcpy(&changed[at], &lie, sizeof(lie));
    forge(file, changed, identity);
    EXPECT_EQ(SavedSession::open(posix_env(), file).status().code(), StatusCode::kCorrupt)
        << at << ": " << lie;
  }
}

// A session of before a change of a kernel's rounding has the same model, types and flags.
TEST_F(SessionTest, AnotherRevisionOfTheArithmeticIsRefused) {
  const std::string file = path("revision");
  const auto engine = open({.model_path = "plain"});
  ASSERT_TRUE(
      save(*engine, file, begin(*engine, random_ids(3, kVocab, 1), {.max_tokens = 0})).is_ok());
  const auto honest = saved(file);
  EXPECT_EQ(honest->origin().arithmetic, kernels::kArithmeticRevision);
  EXPECT_TRUE(honest->check_engine(*engine).is_ok());
  std::vector<std::byte> identity = honest->file().head().identity;
  const uint32_t other = kernels::kArithmeticRevision + 1;
  std::memcpy(identity.data(), &other, sizeof(other));
  forge(file, honest->file().state(), identity);
  const Status status = saved(file)->check_engine(*engine);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(),
              HasSubstr("arithmetic gives other bits (revision " + std::to_string(other)));
}

// ---------------------------------------------------------------------------------- the file

uint32_t mode_of(const std::string& file) {
  struct stat entry {};
  EXPECT_EQ(::stat(file.c_str(), &entry), 0);
  return entry.st_mode & 0777;
}

TEST_F(SessionTest, ANewFileIsForItsOwnerAloneAndAnOldOneKeepsItsMode) {
  const std::string file = path("mode");
  const auto engine = open({.model_path = "plain"});
  const Text first = begin(*engine, random_ids(20, kVocab, 1), {.max_tokens = 4});
  const mode_t umask_before = ::umask(0);
  ASSERT_TRUE(save(*engine, file, first).is_ok());
  ::umask(umask_before);
  EXPECT_EQ(mode_of(file), 0600u);
  ASSERT_EQ(::chmod(file.c_str(), 0640), 0);
  ASSERT_TRUE(save(*engine, file, first).is_ok());
  EXPECT_EQ(mode_of(file), 0640u);
}

TEST_F(SessionTest, AFileThatAnotherProgramWroteMeanwhileStays) {
  const std::string file = path("meanwhile");
  const auto engine = open({.model_path = "plain"});
  const Text first = begin(*engine, random_ids(20, kVocab, 1), {.max_tokens = 4});
  std::optional<kv::SessionStamp> absent;
  write_text(file, "mine");
  Status status = SavedSession::save(*engine, file, first.session, first.sequence, absent);
  EXPECT_EQ(status.code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(read_text(file), "mine");
  std::filesystem::remove(file);
  std::optional<kv::SessionStamp> stamp;
  ASSERT_TRUE(SavedSession::save(*engine, file, first.session, first.sequence, stamp).is_ok());
  ASSERT_TRUE(stamp.has_value());
  const Text other = begin(*engine, random_ids(20, kVocab, 2), {.max_tokens = 4});
  ASSERT_TRUE(save(*engine, file, other).is_ok());
  const std::string theirs = read_text(file);
  status = SavedSession::save(*engine, file, first.session, first.sequence, stamp);
  EXPECT_EQ(status.code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(read_text(file), theirs);
  // One that is gone is no loss.
  std::filesystem::remove(file);
  EXPECT_TRUE(SavedSession::save(*engine, file, first.session, first.sequence, stamp).is_ok());
}

/// Two sessions of one engine, and their files' bytes.
class SessionFaults : public SessionTest {
 protected:
  void SetUp() override {
    model_ = open({.model_path = "plain"})->shared_model();
    engine_ = open({.model = model_}, env_);
    runs_.push_back(begin(*engine_, random_ids(20, kVocab, 1), {.max_tokens = 4}));
    runs_.push_back(begin(*engine_, random_ids(33, kVocab, 2), {.max_tokens = 4}));
    for (const Text& run : runs_) {
      std::optional<kv::SessionStamp> stamp;
      const std::string file = dir_ / "example";
      ASSERT_TRUE(SavedSession::save(*engine_, file, run.session, run.sequence, stamp).is_ok());
      bytes_.push_back(read_text(file));
      stamps_.push_back(stamp);
      std::filesystem::remove(file);
    }
    ASSERT_TRUE(env_.sync_dir(dir_.path()).is_ok());
  }
  /// Text `which` in place of what is there.
  Status write(const std::string& file, size_t which) {
    std::optional<kv::SessionStamp> stamp;
    if (std::filesystem::exists(file)) stamp = stamps_[1 - which];
    const Text& run = runs_[which];
    return SavedSession::save(*engine_, file, run.session, run.sequence, stamp);
  }

  MemoryTempDir dir_;
  FaultEnv env_{posix_env()};
  std::shared_ptr<const model::Model> model_;
  std::unique_ptr<Engine> engine_;
  std::vector<Text> runs_;
  std::vector<std::string> bytes_;
  std::vector<std::optional<kv::SessionStamp>> stamps_;
};

TEST_F(SessionFaults, WhicheverCallFailsTheFileIsTheOldOneOrTheNewOne) {
  const std::string file = dir_ / "f";
  ASSERT_TRUE(write(file, 0).is_ok());
  const uint64_t begin = env_.calls();
  ASSERT_TRUE(write(file, 1).is_ok());
  const uint64_t n_calls = env_.calls() - begin;
  EXPECT_GT(n_calls, 8u);
  int n_failed = 0;
  for (uint64_t at = 0; at < n_calls; ++at) {
    SCOPED_TRACE(at);
    write_text(file, bytes_[0]);
    env_.fail_call(env_.calls() + at);
    const Status status = write(file, 1);
    const std::string now = read_text(file);
    EXPECT_TRUE(now == bytes_[0] || now == bytes_[1]);
    if (status.is_ok()) {
      EXPECT_EQ(now, bytes_[1]);
      continue;
    }
    ++n_failed;
    EXPECT_THAT(status.message(), HasSubstr(dir_.path()));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.path()), {}), 1);
  }
  EXPECT_GT(n_failed, 6);
}

TEST_F(SessionFaults, AFullDiskLeavesTheOldOne) {
  const std::string file = dir_ / "f";
  for (uint64_t room = 0; room < bytes_[1].size(); room += 501) {
    write_text(file, bytes_[0]);
    env_.limit_disk(room);
    EXPECT_FALSE(write(file, 1).is_ok());
    EXPECT_EQ(read_text(file), bytes_[0]);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.path()), {}), 1);
    env_.limit_disk(std::nullopt);
  }
}

TEST_F(SessionFaults, APowerCutAnywhereLeavesTheOldOneOrTheNewOne) {
  const std::string file = dir_ / "f";
  ASSERT_TRUE(write(file, 0).is_ok());
  const uint64_t begin = env_.calls();
  ASSERT_TRUE(write(file, 1).is_ok());
  const uint64_t n_calls = env_.calls() - begin;
  for (uint64_t at = 0; at <= n_calls; ++at) {
    for (const Survives survives :
         {Survives::kNothing, Survives::kNames, Survives::kNamesAndSizes, Survives::kSome}) {
      SCOPED_TRACE(testing::Message() << at << ", " << static_cast<int>(survives));
      std::filesystem::remove(file);
      ASSERT_TRUE(write(file, 0).is_ok());
      env_.cut_power_at(env_.calls() + at);
      const bool promised = write(file, 1).is_ok();
      ASSERT_TRUE(env_.restart(survives, at).is_ok());
      const std::string now = read_text(file);
      EXPECT_TRUE(now == bytes_[1] || (!promised && now == bytes_[0]));
      EXPECT_TRUE(SavedSession::open(posix_env(), file).is_ok());
    }
  }
}

/// The kernel kills a process that writes past its limit, at that very byte.
TEST_F(SessionFaults, KillNineAtAnyByteLeavesTheOldOne) {
  const std::string file = dir_ / "f";
  for (rlim_t limit = 0; limit <= bytes_[1].size(); limit += limit < 200 ? 1 : 97) {
    write_text(file, bytes_[0]);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const rlimit no_core{0, 0}, bytes{limit, limit};
      ::setrlimit(RLIMIT_CORE, &no_core);
      ::signal(SIGXFSZ, SIG_DFL);
      ::setrlimit(RLIMIT_FSIZE, &bytes);
      ::_exit(write(file, 1).is_ok() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(limit == bytes_[1].size() || WIFSIGNALED(status)) << limit;
    const bool whole = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    ASSERT_EQ(read_text(file), bytes_[whole ? 1 : 0]) << limit;
  }
}

TEST_F(SessionFaults, KillNineAtAnyMomentLeavesAWholeOne) {
  const std::string file = dir_ / "f";
  std::mt19937 random(3);
  int n_old = 0, n_new = 0;
  for (int round = 0; round < 60; ++round) {
    write_text(file, bytes_[0]);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (size_t i = 0;; ++i) {
        if (!write(file, 1 - i % 2).is_ok()) ::_exit(1);
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    const std::string now = read_text(file);
    ASSERT_TRUE(now == bytes_[0] || now == bytes_[1]);
    ++(now == bytes_[0] ? n_old : n_new);
  }
  EXPECT_EQ(n_old + n_new, 60);
}

/// Damage that only shows when the file is read the second time, for its KV.
TEST_F(SessionFaults, AReadThatFailsAtAnyCallIsAnErrorAndLeavesNoSequence) {
  const std::string file = dir_ / "f";
  ASSERT_TRUE(write(file, 0).is_ok());
  const int32_t held = engine_->kv_usage().held();
  const auto go = [&]() -> Status {
    WEFT_ASSIGN_OR_RETURN(const auto session, SavedSession::open(env_, file));
    WEFT_RETURN_IF_ERROR(session->check_engine(*engine_));
    return session->restore(*engine_, session->n_slots()).status();
  };
  const uint64_t begin = env_.calls();
  ASSERT_TRUE(go().is_ok());
  const uint64_t n_calls = env_.calls() - begin;
  for (uint64_t at = 0; at < n_calls; ++at) {
    env_.fail_call(env_.calls() + at);
    EXPECT_FALSE(go().is_ok()) << at << " of " << n_calls;
    EXPECT_EQ(engine_->kv_usage().held(), held);
  }
}

}  // namespace
}  // namespace weft::engine
