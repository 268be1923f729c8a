// Many requests in the same steps: each answer is the one that its request gets alone, whatever
// waits, shares its prompt, is preempted, or ends beside it.
#include "engine/batcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "kv/invariants.h"
#include "support/files.h"
#include "support/skip.h"
#include "support/test_model.h"

namespace weft {
namespace {

using engine::Batcher;
using engine::BatchRequest;
using engine::Engine;
using engine::Generation;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::unique_ptr<Engine> open(const std::string& path, uint64_t kv_limit_bytes = 0,
                             int32_t context_tokens = 256, int32_t n_contexts = 16) {
  engine::EngineOptions options;
  options.model_path = path;
  options.n_threads = 2;
  options.compute = "f32";  // engines whose answers are compared: a busy machine measures otherwise
  options.context_tokens = context_tokens;
  options.kv_limit_bytes = kv_limit_bytes;
  options.steps = {.n_sequences = 16, .batches = true};
  options.n_contexts = n_contexts;
  auto engine = Engine::open(posix_env(), options);
  EXPECT_TRUE(engine.is_ok()) << engine.status().message();
  return std::move(*engine);
}

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;  // to the bit: other arithmetic seldom changes a token
  std::string text;
  engine::StopReason stop_reason{};
  bool operator==(const Answer&) const = default;
};

Answer answer_of(const Generation& generation) {
  Answer answer{{}, {}, generation.text, generation.stop_reason};
  for (const engine::GeneratedToken& token : generation.tokens) {
    answer.tokens.push_back(token.id);
    answer.logprobs.push_back(token.logprob);
  }
  return answer;
}

Answer alone(Engine& engine, const BatchRequest& request) {
  const kv::OwnedSequence sequence = engine.create_sequence();
  auto logits = engine.append(sequence, request.prompt);
  EXPECT_TRUE(logits.is_ok()) << logits.status().message();
  const auto generation = engine::generate(
      engine, sequence, *std::move(logits), request.options, [](std::string_view) { return true; },
      request.prompt);
  EXPECT_TRUE(generation.is_ok()) << generation.status().message();
  return answer_of(*generation);
}

/// Runs all; checks after each step that scheduler and cache are as they must be.
std::map<size_t, Answer> run(Engine& engine, Batcher& batcher) {
  std::map<size_t, Answer> answers;
  const auto on_done = [&](size_t index, const Result<engine::BatchAnswer>& generation) {
    EXPECT_TRUE(generation.is_ok()) << generation.status().message();
    if (generation.is_ok()) answers.emplace(index, answer_of(*generation));
  };
  for (;;) {
    const Result<bool> goes_on = batcher.step(on_done);
    EXPECT_TRUE(goes_on.is_ok()) << goes_on.status().message();
    EXPECT_THAT(batcher.violations(), IsEmpty());
    EXPECT_THAT(kv::violations(engine.kv_snapshots()), IsEmpty());
    if (!goes_on.is_ok() || !*goes_on) return answers;
  }
}

/// Of mixed lengths, seeds, temperatures and ends; some with the same prompt.
std::vector<BatchRequest> mixed_requests(int32_t n_vocab, size_t n, int32_t longest_prompt) {
  std::mt19937 random(77);
  const auto below = [&](int32_t end) { return static_cast<int32_t>(random() % end); };
  std::vector<BatchRequest> requests;
  for (size_t i = 0; i < n; ++i) {
    BatchRequest request;
    if (i % 5 == 4) {
      request.prompt = requests[i - 1 - random() % 4].prompt;
    } else {
      request.prompt =
          test::random_ids(1 + below(longest_prompt), n_vocab, static_cast<uint32_t>(i));
    }
    request.options.max_tokens = 1 + below(40);
    request.options.ignore_end = i % 3 == 0;
    request.options.n_logprobs = 1;
    request.options.sampling.temperature = i % 2 == 0 ? 0.0F : 0.9F;
    request.options.sampling.seed = i;
    if (i % 7 == 0) request.options.sampling.penalties.repeat = 1.3F;
    requests.push_back(std::move(request));
  }
  return requests;
}

/// That holds so many pages.
uint64_t limit_of(const Engine& engine, int64_t n_pages) {
  return static_cast<uint64_t>(engine.limit_to_hold(n_pages));
}

class BatcherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = dir_.path() + "/random.gguf";
    const gguf::RandomModelOptions model{.n_layers = 3,
                                         .n_embd = 64,
                                         .n_ff = 128,
                                         .n_heads = 4,
                                         .n_kv_heads = 2,
                                         .head_dim = 16,
                                         .vocab = kVocab,
                                         .recipe = "Q8_0"};
    const Status written = gguf::write_random_model(posix_env(), path_, model);
    ASSERT_TRUE(written.is_ok()) << written.message();
  }
  static constexpr int32_t kVocab = 320;
  test::TempDir dir_;
  std::string path_;
};

TEST_F(BatcherTest, EachAnswerIsTheOneThatItGetsAlone) {
  const auto engine = open(path_);
  const std::vector<BatchRequest> requests = mixed_requests(kVocab, 60, 150);
  std::vector<Answer> expected;
  for (const BatchRequest& request : requests) expected.push_back(alone(*engine, request));
  for (const int32_t max_running : {1, 3, 16}) {
    auto batcher = Batcher::create(*engine, {.max_running = max_running, .prompt_rows = 40});
    ASSERT_TRUE(batcher.is_ok()) << batcher.status().message();
    for (const BatchRequest& request : requests) {
      ASSERT_TRUE((*batcher)->submit(request).is_ok());
    }
    const auto answers = run(*engine, **batcher);
    ASSERT_EQ(answers.size(), requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_TRUE(answers.at(i) == expected[i]) << "request " << i << " of " << max_running;
    }
    EXPECT_EQ((*batcher)->stats().preemptions, 0);
  }
}

TEST_F(BatcherTest, WithTooLittleKvTheAnswersAreTheSame) {
  const std::vector<BatchRequest> requests = mixed_requests(kVocab, 200, 60);
  const auto roomy = open(path_);
  std::vector<Answer> expected;
  for (const BatchRequest& request : requests) expected.push_back(alone(*roomy, request));
  // Sixteen requests of some 50 tokens want about 50 pages.
  const auto tight = open(path_, limit_of(*roomy, 12));
  ASSERT_EQ(tight->kv_usage().pages, 12);
  auto batcher = Batcher::create(*tight, {.max_running = 16, .prompt_rows = 32});
  ASSERT_TRUE(batcher.is_ok()) << batcher.status().message();
  for (const BatchRequest& request : requests) {
    const auto submitted = (*batcher)->submit(request);
    ASSERT_TRUE(submitted.is_ok()) << submitted.status().message();
  }
  const auto answers = run(*tight, **batcher);
  ASSERT_EQ(answers.size(), requests.size());
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_TRUE(answers.at(i) == expected[i]) << i;
  EXPECT_GT((*batcher)->stats().preemptions, 0);
  EXPECT_LE((*batcher)->stats().pages_peak, 12);
  EXPECT_EQ(tight->kv_usage().held(), 0);
}

/// A mixture of plain requests and chunked ones, the latter in all modes; chunks and openings
/// recur.
struct Mixed {
  std::vector<BatchRequest> plain;
  std::vector<engine::ChunkedRequest> chunked;
};
Mixed mixed_with_chunks(int32_t n_vocab, size_t n, fusion::Fusor& fusor) {
  Mixed mixed{mixed_requests(n_vocab, n, 60), {}};
  std::mt19937 random(5);
  for (size_t i = 0; i < n; ++i) {
    engine::ChunkedRequest request{.fusor = &fusor};
    request.prompt.prefix = test::random_ids(random() % 3 == 0 ? 0 : 20, n_vocab, 900);
    for (size_t chunk = 0; chunk < random() % 4; ++chunk) {
      const uint32_t seed = 500 + random() % 6;
      request.prompt.chunks.push_back(
          test::random_ids(static_cast<int32_t>(5 + 7 * (seed - 500)), n_vocab, seed));
    }
    request.prompt.suffix =
        test::random_ids(1 + static_cast<int32_t>(random() % 20), n_vocab, 2000 + random() % 5);
    const fusion::ReuseMode modes[] = {fusion::ReuseMode::kBlend, fusion::ReuseMode::kFull,
                                       fusion::ReuseMode::kBlend, fusion::ReuseMode::kPrefix,
                                       fusion::ReuseMode::kNone};
    request.fusion = {.mode = modes[i % 5], .ratio = 0.3, .allow_plain = i % 4 == 3};
    if (i % 5 == 2) {
      request.fusion.selector = fusion::SelectorKind::kVDeviation;
      request.fusion.checks = {{.layer = 1, .ratio = 0.4}};
    }
    request.options = mixed.plain[i].options;
    mixed.chunked.push_back(std::move(request));
  }
  return mixed;
}

std::vector<Answer> each_alone(Engine& engine, const Mixed& mixed) {
  std::vector<Answer> answers;
  for (size_t i = 0; i < mixed.plain.size(); ++i) {
    answers.push_back(alone(engine, mixed.plain[i]));
    const engine::ChunkedRequest& request = mixed.chunked[i];
    auto done = request.fusor->prefill(request.prompt, request.fusion);
    EXPECT_TRUE(done.is_ok()) << done.status().message();
    const auto generation = engine::generate(
        engine, done->sequence, std::move(done->logits), request.options,
        [](std::string_view) { return true; }, request.prompt.tokens());
    EXPECT_TRUE(generation.is_ok()) << generation.status().message();
    answers.push_back(answer_of(*generation));
  }
  return answers;
}

void submit_all(Batcher& batcher, const Mixed& mixed) {
  for (size_t i = 0; i < mixed.plain.size(); ++i) {
    ASSERT_TRUE(batcher.submit(mixed.plain[i]).is_ok());
    const auto submitted = batcher.submit(mixed.chunked[i]);
    ASSERT_TRUE(submitted.is_ok()) << submitted.status().message();
  }
}

TEST_F(BatcherTest, ChunkedPromptsAreAnsweredAsAloneBesideOthers) {
  const auto engine = open(path_);
  const auto fusor = engine->make_fusor(nullptr, test::random_ids(30, kVocab, 1));
  const Mixed mixed = mixed_with_chunks(kVocab, 30, *fusor);
  const std::vector<Answer> expected = each_alone(*engine, mixed);
  for (const int32_t max_running : {1, 3, 16}) {
    engine->forget_prefixes();
    auto batcher = Batcher::create(*engine, {.max_running = max_running, .prompt_rows = 24});
    ASSERT_TRUE(batcher.is_ok()) << batcher.status().message();
    submit_all(**batcher, mixed);
    const auto answers = run(*engine, **batcher);
    ASSERT_EQ(answers.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(answers.at(i) == expected[i]) << "request " << i << " of " << max_running;
    }
    EXPECT_EQ((*batcher)->stats().preemptions, 0);
  }
}

TEST_F(BatcherTest, ChunkedPromptsAreAnsweredAsAloneWithTooLittleKv) {
  const auto roomy = open(path_);
  const std::vector<int32_t> anchor = test::random_ids(30, kVocab, 1);
  const auto roomy_fusor = roomy->make_fusor(nullptr, anchor);
  Mixed mixed = mixed_with_chunks(kVocab, 60, *roomy_fusor);
  const std::vector<Answer> expected = each_alone(*roomy, mixed);
  int64_t preemptions = 0;
  for (const int n_pages : {13, 16, 24}) {
    const auto tight = open(path_, limit_of(*roomy, n_pages));
    const auto fusor = tight->make_fusor(nullptr, anchor);
    for (engine::ChunkedRequest& request : mixed.chunked) request.fusor = fusor.get();
    auto batcher = Batcher::create(*tight, {.max_running = 8, .prompt_rows = 24});
    ASSERT_TRUE(batcher.is_ok()) << batcher.status().message();
    submit_all(**batcher, mixed);
    const auto answers = run(*tight, **batcher);
    ASSERT_EQ(answers.size(), expected.size()) << n_pages;
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(answers.at(i) == expected[i]) << "request " << i << " of " << n_pages;
    }
    preemptions += (*batcher)->stats().preemptions;
    batcher->reset();
    EXPECT_EQ(tight->kv_usage().held(), 0);
  }
  EXPECT_GT(preemptions, 2);
}

// The anchor's and the chunk's layers have more rows than a step has for prompts: one of them a
// step, beside which the other goes on.
TEST_F(BatcherTest, OthersDecodeWhileAFusionIsUnderWay) {
  const auto engine = open(path_);
  const auto fusor = engine->make_fusor(nullptr, test::random_ids(30, kVocab, 1));
  auto batcher = Batcher::create(*engine, {.max_running = 2, .prompt_rows = 4});
  ASSERT_TRUE(batcher.is_ok());
  ASSERT_TRUE((*batcher)->submit({{1, 2, 3}, {.max_tokens = 5, .ignore_end = true}}).is_ok());
  ASSERT_TRUE((*batcher)
                  ->submit({.fusor = fusor.get(),
                            .prompt = {.chunks = {test::random_ids(90, kVocab, 2)}, .suffix = {7}},
                            .fusion = {.mode = fusion::ReuseMode::kFull, .allow_plain = false},
                            .options = {.max_tokens = 1, .ignore_end = true}})
                  .is_ok());
  std::vector<size_t> ended;
  const auto on_done = [&](size_t index, const Result<engine::BatchAnswer>& answer) {
    ended.push_back(index);
    ASSERT_TRUE(answer.is_ok());
    EXPECT_EQ(answer->report.has_value(), index == 1);
  };
  for (auto goes_on = (*batcher)->step(on_done); *goes_on; goes_on = (*batcher)->step(on_done)) {
  }
  EXPECT_THAT(ended, ElementsAre(0, 1));
}

// The pages in which an anchor and missing chunks are computed are counted when their prompt is
// admitted; after that others grow.
TEST_F(BatcherTest, OthersGrowWhileMissingChunksAreComputed) {
  const auto roomy = open(path_);
  for (const int n_pages : {18, 22, 29, 36}) {
    const auto tight = open(path_, limit_of(*roomy, n_pages));
    const auto fusor = tight->make_fusor(nullptr, test::random_ids(150, kVocab, 1));
    auto batcher = Batcher::create(*tight, {.max_running = 12, .prompt_rows = 4});
    ASSERT_TRUE(batcher.is_ok());
    for (int32_t i = 0; i < 8; ++i) {
      ASSERT_TRUE((*batcher)
                      ->submit({test::random_ids(1 + 2 * i, kVocab, 7),
                                {.max_tokens = 100, .ignore_end = true}})
                      .is_ok());
    }
    for (uint32_t seed = 2; seed < 4; ++seed) {
      engine::ChunkedRequest request{.fusor = fusor.get()};
      request.prompt.chunks.push_back(test::random_ids(10, kVocab, seed));
      request.prompt.suffix = {7};
      request.fusion = {.mode = fusion::ReuseMode::kFull, .allow_plain = false};
      request.options = {.max_tokens = 3, .ignore_end = true};
      ASSERT_TRUE((*batcher)->submit(std::move(request)).is_ok());
    }
    EXPECT_EQ(run(*tight, **batcher).size(), 10) << n_pages;
  }
}

TEST_F(BatcherTest, ACancelledStepKeepsWhatAFusionHasDone) {
  const auto engine = open(path_);
  const auto fusor = engine->make_fusor(nullptr, test::random_ids(30, kVocab, 1));
  const Mixed mixed = mixed_with_chunks(kVocab, 8, *fusor);
  const std::vector<Answer> expected = each_alone(*engine, mixed);
  auto batcher = Batcher::create(*engine, {.max_running = 4, .prompt_rows = 24});
  ASSERT_TRUE(batcher.is_ok());
  submit_all(**batcher, mixed);
  std::map<size_t, Answer> answers;
  const auto on_done = [&](size_t index, const Result<engine::BatchAnswer>& answer) {
    answers.emplace(index, answer_of(*answer));
  };
  std::mt19937 random(3);
  for (bool goes_on = true; goes_on;) {
    int left = static_cast<int>(random() % 12);
    const auto stop = [&] { return --left < 0; };
    const model::Executor::Cancelled stopped(stop);
    const Result<bool> stepped = (*batcher)->step(on_done, &stopped);
    EXPECT_THAT((*batcher)->violations(), IsEmpty());
    EXPECT_THAT(kv::violations(engine->kv_snapshots()), IsEmpty());
    goes_on = !stepped.is_ok() || *stepped;
  }
  ASSERT_EQ(answers.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(answers.at(i) == expected[i]) << i;
}

// The anchor that its chunks were computed after keeps its pages only as long as nobody needs them.
TEST_F(BatcherTest, AnAnswerMayTakeAllPagesAfterAFusion) {
  const auto roomy = open(path_);
  const auto tight = open(path_, limit_of(*roomy, 12));
  const auto fusor = tight->make_fusor(nullptr, test::random_ids(70, kVocab, 1));
  const fusion::Prompt prompt{.chunks = {test::random_ids(50, kVocab, 2)}, .suffix = {7, 8}};
  auto done = fusor->prefill(prompt, {.mode = fusion::ReuseMode::kFull, .allow_plain = false});
  ASSERT_TRUE(done.is_ok()) << done.status().message();
  EXPECT_GE(tight->kv_usage().evictable, 4);
  const auto generation =
      engine::generate(*tight, done->sequence, std::move(done->logits),
                       {.max_tokens = engine::kNoTokenLimit, .ignore_end = true},
                       [](std::string_view) { return true; });
  ASSERT_TRUE(generation.is_ok()) << generation.status().message();
  EXPECT_EQ(generation->stop_reason, engine::StopReason::kContextFull);
  EXPECT_EQ(done->sequence.length(), 12 * 16);
  EXPECT_EQ(tight->kv_usage().evictable, 0);
}

TEST_F(BatcherTest, AStepInWhichOneSequenceHasNoTokensIsRefused) {
  const auto engine = open(path_);
  const kv::OwnedSequence a = engine->create_sequence();
  const kv::OwnedSequence b = engine->create_sequence();
  const std::vector<int32_t> tokens = {1, 2};
  for (const bool empty_last : {true, false}) {
    std::vector<engine::Appended> both = {{&a, tokens}, {&b, {}}};
    if (!empty_last) std::ranges::reverse(both);
    const auto logits = engine->append_all(both);
    EXPECT_EQ(logits.status().code(), StatusCode::kInvalidArgument) << logits.status().message();
    EXPECT_EQ(a.length(), 0);
  }
}

TEST_F(BatcherTest, SamplesOfOnePromptShareItsPages) {
  const auto engine = open(path_, 0, 512, 8);
  BatchRequest request{
      test::random_ids(400, kVocab, 5),
      {.sampling = {.temperature = 0.9F}, .max_tokens = 20, .ignore_end = true, .n_logprobs = 1}};
  auto batcher = Batcher::create(*engine, {.max_running = 8});
  ASSERT_TRUE(batcher.is_ok());
  std::vector<Answer> expected;
  for (uint64_t i = 0; i < 8; ++i) {
    request.options.sampling.seed = 40 + i;
    expected.push_back(alone(*engine, request));
    ASSERT_TRUE((*batcher)->submit(request).is_ok());
  }
  const auto answers = run(*engine, **batcher);
  for (size_t i = 0; i < 8; ++i) EXPECT_TRUE(answers.at(i) == expected[i]) << i;
  const int32_t prompt_pages = 400 / 16;
  EXPECT_LE((*batcher)->stats().pages_peak, prompt_pages + 8 * 2 + 8);  // tails of 20 tokens
  EXPECT_GE((*batcher)->stats().pages_shared, prompt_pages - 1);
  EXPECT_LT((*batcher)->stats().prompt_rows, 400 + 8 * 16);
}

// Two tenants ask the same at once and again, with the KV of a few of them: each is answered as
// alone, and no tenant's prompt is computed less for the other's.
TEST_F(BatcherTest, TenantsShareNothing) {
  const std::vector<int32_t> prompt = test::random_ids(65, kVocab, 9);
  const auto rows_computed = [&](std::span<const char* const> salts, uint64_t kv_limit) {
    const auto engine = open(path_, kv_limit);
    BatchRequest request{.prompt = prompt, .options = {.max_tokens = 4}};
    request.options.n_logprobs = 1;
    const Answer expected = alone(*engine, request);
    const auto batcher = *Batcher::create(*engine, {.max_running = 4});
    for (int round = 0; round < 2; ++round) {
      for (const char* salt : salts) {
        request.salt = salt;
        EXPECT_TRUE(batcher->submit(request).is_ok());
      }
      for (const auto& [index, answer] : run(*engine, *batcher)) EXPECT_EQ(answer, expected);
    }
    return batcher->stats().prompt_rows;
  };
  const char* const same[] = {"red", "red"};
  const char* const others[] = {"red", "blue"};
  EXPECT_EQ(rows_computed(same, 0), 65 + 3);  // four whole pages are found, but the last row runs
  EXPECT_EQ(rows_computed(others, 0), 2 * (65 + 1));
  const auto engine = open(path_);
  rows_computed(others, limit_of(*engine, 6));  // with evictions
}

TEST_F(BatcherTest, WhatCannotRunAloneIsRefusedWithTheNumbers) {
  const auto roomy = open(path_);
  const auto tight = open(path_, limit_of(*roomy, 4));
  EXPECT_EQ(tight->context_tokens(), 64);
  auto batcher = Batcher::create(*tight, {});
  ASSERT_TRUE(batcher.is_ok());
  const auto refused = [&](std::vector<int32_t> prompt, int32_t n) {
    return (*batcher)->submit({std::move(prompt), {.max_tokens = n}}).status();
  };
  EXPECT_THAT(refused(test::random_ids(65, kVocab, 1), 1).message(), HasSubstr("65 tokens"));
  EXPECT_EQ(refused({}, 1).code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused({1, kVocab}, 1).message(), HasSubstr("the vocabulary has 0 to 319"));
  EXPECT_THAT(refused({1, -1}, 1).message(), HasSubstr("the vocabulary has 0 to 319"));
  EXPECT_EQ(refused({1}, -2).code(), StatusCode::kInvalidArgument);
  // What may be long ends where the KV cache does.
  const auto index = (*batcher)->submit({{1, 2, 3}, {.max_tokens = 1000, .ignore_end = true}});
  ASSERT_TRUE(index.is_ok()) << index.status().message();
  EXPECT_EQ(*index, 0U);
  const auto answers = run(*tight, **batcher);
  EXPECT_EQ(answers.at(0).tokens.size(), 64U - 3 + 1);
  EXPECT_EQ(answers.at(0).stop_reason, engine::StopReason::kContextFull);
}

TEST_F(BatcherTest, CancelledInTheMiddleNothingIsHeld) {
  const auto engine = open(path_);
  auto batcher = Batcher::create(*engine, {});
  ASSERT_TRUE(batcher.is_ok());
  for (uint32_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(
        (*batcher)
            ->submit({test::random_ids(40, kVocab, i), {.max_tokens = 30, .ignore_end = true}})
            .is_ok());
  }
  const auto none = [](size_t, const Result<engine::BatchAnswer>&) { FAIL(); };
  for (int i = 0; i < 6; ++i) ASSERT_TRUE((*batcher)->step(none).is_ok());
  int asked = 0;
  const auto stop = [&] { return ++asked == 3; };  // between layers
  const model::Executor::Cancelled stopped(stop);
  EXPECT_EQ((*batcher)->step(none, &stopped).status().code(), StatusCode::kCancelled);
  EXPECT_THAT((*batcher)->violations(), IsEmpty());
  ASSERT_TRUE((*batcher)->step(none).is_ok());  // as if nothing had happened
  std::vector<size_t> ended;
  (*batcher)->cancel([&](size_t index, const Result<engine::BatchAnswer>& generation) {
    ended.push_back(index);
    EXPECT_EQ(generation->stop_reason, engine::StopReason::kCancelled);
    EXPECT_EQ(generation->tokens.size(), 7U);
  });
  EXPECT_THAT(ended, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(engine->kv_usage().held(), 0);
  const auto left = (*batcher)->step(none);
  EXPECT_TRUE(left.is_ok() && !*left);
}

TEST_F(BatcherTest, ARequestMayComeWhileOthersRun) {
  const auto engine = open(path_);
  const std::vector<BatchRequest> requests = mixed_requests(kVocab, 12, 80);
  auto batcher = Batcher::create(*engine, {.max_running = 4, .prompt_rows = 16});
  ASSERT_TRUE(batcher.is_ok());
  std::map<size_t, Answer> answers;
  const auto on_done = [&](size_t index, const Result<engine::BatchAnswer>& generation) {
    answers.emplace(index, answer_of(*generation));
  };
  for (const BatchRequest& request : requests) {
    ASSERT_TRUE((*batcher)->submit(request).is_ok());
    for (int i = 0; i < 3; ++i) ASSERT_TRUE((*batcher)->step(on_done).is_ok());
  }
  for (auto goes_on = (*batcher)->step(on_done); *goes_on; goes_on = (*batcher)->step(on_done)) {
  }
  ASSERT_EQ(answers.size(), requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(answers.at(i) == alone(*engine, requests[i])) << i;
  }
}

TEST(BatcherOnSmolLm2, FortyMixedRequestsOnHalfOfTheKvThatTheyWant) {
  const std::string path = test::model_file(test::kSmolLm2File);
  WEFT_SKIP_UNLESS(!path.empty(), "SmolLM2");
  const auto roomy = open(path);
  std::vector<BatchRequest> requests = mixed_requests(roomy->model().config().vocab_size, 40, 60);
  for (BatchRequest& request : requests) request.options.max_tokens %= 12;
  for (BatchRequest& request : requests) request.options.max_tokens += 1;
  std::vector<Answer> expected;
  for (const BatchRequest& request : requests) expected.push_back(alone(*roomy, request));
  const auto tight = open(path, limit_of(*roomy, 14));
  auto batcher = Batcher::create(*tight, {.max_running = 16});
  ASSERT_TRUE(batcher.is_ok());
  for (const BatchRequest& request : requests) {
    ASSERT_TRUE((*batcher)->submit(request).is_ok());
  }
  const auto answers = run(*tight, **batcher);
  ASSERT_EQ(answers.size(), requests.size());
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_TRUE(answers.at(i) == expected[i]) << i;
}

}  // namespace
}  // namespace weft
