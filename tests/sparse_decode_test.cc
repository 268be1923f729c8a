// Sparse decoding in an engine: a budget that covers the context changes no bit, a row gets what it
// gets alone, and what was cut, copied, moved or grouped decodes as what never was anything else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/batcher.h"
#include "engine/engine.h"
#include "kv/invariants.h"
#include "sparse/selector.h"
#include "support/kv_types.h"
#include "support/test_model.h"

namespace weft::engine {
namespace {

using sparse::Policy;
using sparse::SparseOptions;
using ::testing::IsEmpty;

constexpr int32_t kPrompt = 400;
constexpr int32_t kDecoded = 40;

std::vector<int32_t> some_tokens(int32_t n, int32_t seed = 0) {
  std::vector<int32_t> tokens(n);
  for (int32_t i = 0; i < n; ++i) tokens[i] = (i * 37 + i * i + 11 * seed) % 250;
  return tokens;
}

gguf::RandomModelOptions random_model(const std::string& architecture) {
  gguf::RandomModelOptions options{
      .architecture = architecture, .n_layers = 6, .head_dim = 32, .vocab = 300};
  options.context_length = 1024;
  options.score_spread = 8;  // attention that tells tokens apart
  if (architecture == "gemma3") options.window = 24;
  return options;
}

/// Logits of each decoded token, one after another.
std::vector<float> decode(Engine& engine, const kv::OwnedSequence& sequence,
                          std::span<const int32_t> tokens) {
  std::vector<float> all;
  for (size_t i = 0; i < tokens.size(); ++i) {
    auto logits = engine.append(sequence, tokens.subspan(i, 1), {.kind = model::RowKind::kDecode});
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    all.insert(all.end(), logits->begin(), logits->end());
  }
  return all;
}

class SparseDecode : public ::testing::TestWithParam<std::tuple<const char*, Policy>> {
 protected:
  void SetUp() override {
    path_ = dir_.path() + "/model.gguf";
    const auto options = random_model(std::get<0>(GetParam()));
    ASSERT_TRUE(gguf::write_random_model(posix_env(), path_, options).is_ok());
  }
  SparseOptions small() const {
    // One of Gemma's six layers sees all tokens.
    const int32_t dense = std::string_view(std::get<0>(GetParam())) == "gemma3" ? 0 : 1;
    return {.policy = std::get<1>(GetParam()), .budget_tokens = 80, .dense_layers = dense};
  }
  std::unique_ptr<Engine> open(const SparseOptions& sparse, const kernels::KvTypes& types = {},
                               int n_threads = 2, const kv::SelfExtend& self_extend = {},
                               int64_t kv_limit_bytes = 0) {
    EngineOptions options{.model_path = path_,
                          .n_threads = n_threads,
                          .self_extend = self_extend,
                          .sparse = sparse,
                          .kv_types = types,
                          .n_contexts = 8,
                          .compute = "f32"};
    options.steps = {.n_sequences = 8, .batches = true};
    options.kv_limit_bytes = static_cast<uint64_t>(kv_limit_bytes);
    auto engine = Engine::open(posix_env(), options);
    EXPECT_TRUE(engine.is_ok()) << engine.status().message();
    return *std::move(engine);
  }
  /// Requests that end at different times, so that pages of others move, and that wait again for
  /// want of pages, so that answers are computed a second time.
  void expect_answers_as_alone(const SparseOptions& options) {
    const auto roomy = open(options);
    std::vector<BatchRequest> requests;
    std::vector<Generation> expected;
    for (int32_t i = 0; i < 12; ++i) {
      BatchRequest request{.prompt = some_tokens(70 + 19 * (i % 5), i)};
      request.options = {.max_tokens = 10 + 47 * (i % 4), .ignore_end = true, .n_logprobs = 1};
      const kv::OwnedSequence sequence = roomy->create_sequence();
      auto logits = roomy->append(sequence, request.prompt);
      ASSERT_TRUE(logits.is_ok()) << logits.status().message();
      auto alone = generate(
          *roomy, sequence, *std::move(logits), request.options,
          [](std::string_view) { return true; }, request.prompt);
      ASSERT_TRUE(alone.is_ok()) << alone.status().message();
      expected.push_back(*std::move(alone));
      requests.push_back(std::move(request));
    }
    const auto tight = open(options, {}, 2, {}, roomy->limit_to_hold(32));
    for (Engine* engine : {roomy.get(), tight.get()}) {
      auto batcher = Batcher::create(*engine, {.max_running = 8, .prompt_rows = 64});
      ASSERT_TRUE(batcher.is_ok()) << batcher.status().message();
      for (const BatchRequest& request : requests) ASSERT_TRUE((*batcher)->submit(request).is_ok());
      const auto on_done = [&](size_t index, const Result<BatchAnswer>& answer) {
        ASSERT_TRUE(answer.is_ok()) << answer.status().message();
        ASSERT_EQ(answer->tokens.size(), expected[index].tokens.size());
        for (size_t i = 0; i < answer->tokens.size(); ++i) {
          ASSERT_EQ(answer->tokens[i].id, expected[index].tokens[i].id)
              << index << " at " << i << (engine == tight.get() ? " tight" : "");
          ASSERT_EQ(answer->tokens[i].logprob, expected[index].tokens[i].logprob)
              << index << " at " << i << (engine == tight.get() ? " tight" : "");
        }
      };
      Result<bool> goes_on = true;
      while (goes_on.is_ok() && *goes_on) goes_on = (*batcher)->step(on_done);
      ASSERT_TRUE(goes_on.is_ok()) << goes_on.status().message();
      EXPECT_EQ((*batcher)->stats().preemptions > 0, engine == tight.get());
    }
  }

  /// A prompt's sequence.
  kv::OwnedSequence prompt(Engine& engine, int32_t seed = 0, int32_t n = kPrompt) {
    kv::OwnedSequence sequence = engine.create_sequence();
    EXPECT_TRUE(engine.append(sequence, some_tokens(n, seed)).is_ok());
    return sequence;
  }

  test::TempDir dir_;
  std::string path_;
};

/// Of policies whose choice a lock may keep.
class SparseLocks : public SparseDecode {};

TEST_P(SparseDecode, ABudgetThatCoversTheContextChangesNoBit) {
  for (const kernels::KvTypes& types : test::mixed_kv_types()) {
    const auto dense = open({}, types);
    SparseOptions options = small();
    options.budget_tokens = 448;
    const auto sparse = open(options, types);
    const auto a = prompt(*dense), b = prompt(*sparse);
    EXPECT_EQ(decode(*dense, a, some_tokens(kDecoded)), decode(*sparse, b, some_tokens(kDecoded)));
    const sparse::SparseCounters& c = sparse->selector()->counters();
    EXPECT_EQ(c.reads, 0);
    EXPECT_GT(c.reads_within_budget, 0);
    EXPECT_EQ(c.kv_bytes_read, c.kv_bytes);
  }
}

TEST_P(SparseDecode, ASmallerOneReadsLessAndChangesWhatComesOut) {
  const auto dense = open({});
  const auto sparse = open(small());
  const auto a = prompt(*dense), b = prompt(*sparse);
  const auto expected = decode(*dense, a, some_tokens(kDecoded));
  const auto got = decode(*sparse, b, some_tokens(kDecoded));
  EXPECT_NE(got, expected);
  for (const float logit : got) ASSERT_TRUE(std::isfinite(logit));
  const sparse::SparseCounters& c = sparse->selector()->counters();
  EXPECT_GT(c.reads, 0);
  EXPECT_LT(c.pages_read, c.pages / 4);
  EXPECT_EQ(c.reads_within_budget, 0);
}

TEST_P(SparseDecode, ARowGetsWhatItGetsAloneWithAnyThreads) {
  const auto engine = open(small());
  std::vector<kv::OwnedSequence> sequences;
  std::vector<Appended> rows;
  const std::vector<int32_t> tokens = some_tokens(8, 3);
  for (int32_t i = 0; i < 8; ++i) sequences.push_back(prompt(*engine, i, 60 + 45 * i));
  std::vector<kv::OwnedSequence> copies;
  for (const kv::OwnedSequence& sequence : sequences) copies.push_back(*sequence.fork());
  for (int32_t i = 0; i < 8; ++i) {
    rows.push_back({&sequences[i], std::span(tokens).subspan(i, 1)});
  }
  const auto together = engine->append_all(rows, {.kind = model::RowKind::kDecode});
  ASSERT_TRUE(together.is_ok());
  const auto three = open(small(), {}, 3);
  const int64_t n_vocab = engine->model().config().vocab_size;
  for (int32_t i = 0; i < 8; ++i) {
    const std::vector<float> expected(together->begin() + i * n_vocab,
                                      together->begin() + (i + 1) * n_vocab);
    EXPECT_EQ(decode(*engine, copies[i], rows[i].tokens), expected) << i;
    const auto again = prompt(*three, i, 60 + 45 * i);
    EXPECT_EQ(decode(*three, again, rows[i].tokens), expected) << i;
  }
}

// A draft's rows, and those of a request whose pages others took, come many in a step.
TEST_P(SparseDecode, RowsOfOneStepGetWhatTheyGetOneByOne) {
  const auto engine = open(small());
  const auto one_by_one = prompt(*engine), together = prompt(*engine);
  const std::vector<int32_t> tokens = some_tokens(kDecoded, 4);  // over three pages
  const auto expected = decode(*engine, one_by_one, tokens);
  const auto got =
      engine->append(together, tokens, {.kind = model::RowKind::kVerify, .every_row = true});
  ASSERT_TRUE(got.is_ok()) << got.status().message();
  EXPECT_EQ(*got, expected);
  // And rejected drafts leave nothing.
  auto rejected = prompt(*engine);
  ASSERT_TRUE(engine->append(rejected, some_tokens(kDecoded, 8), {.kind = model::RowKind::kVerify})
                  .is_ok());
  ASSERT_TRUE(rejected.truncate(kPrompt).is_ok());
  EXPECT_EQ(decode(*engine, rejected, tokens), expected);
}

TEST_P(SparseLocks, RowsOfOneStepGetUnderLocksWhatTheyGetOneByOne) {
  SparseOptions options = small();
  options.lock = {.interval_tokens = 5, .duration_tokens = 12, .update_threshold = 1};
  const auto engine = open(options);
  const auto one_by_one = prompt(*engine), together = prompt(*engine);
  const std::vector<int32_t> tokens = some_tokens(kDecoded, 4);
  const auto expected = decode(*engine, one_by_one, tokens);
  const auto got =
      engine->append(together, tokens, {.kind = model::RowKind::kVerify, .every_row = true});
  ASSERT_TRUE(got.is_ok()) << got.status().message();
  EXPECT_EQ(*got, expected);
}

TEST_P(SparseDecode, ABatchAnswersWhatEachGetsAlone) { expect_answers_as_alone(small()); }

TEST_P(SparseLocks, ABatchUnderLocksAnswersWhatEachGetsAlone) {
  SparseOptions options = small();
  options.lock = {.interval_tokens = 5, .duration_tokens = 12, .update_threshold = 1};
  expect_answers_as_alone(options);
}

// Eight requests at once, each with a lock of its own, and each alone.
TEST_P(SparseLocks, LocksOfOneSequenceDoNotDependOnOthers) {
  SparseOptions options = small();
  options.lock = {.interval_tokens = 5, .duration_tokens = 12, .update_threshold = 1};
  const auto engine = open(options), alone = open(options, {}, 3);
  std::vector<kv::OwnedSequence> sequences;
  for (int32_t i = 0; i < 8; ++i) sequences.push_back(prompt(*engine, i, 200 + 20 * i));
  const int64_t n_vocab = engine->model().config().vocab_size;
  std::vector<std::vector<float>> together(8);
  const auto tokens = some_tokens(kDecoded, 6);
  for (int32_t step = 0; step < kDecoded; ++step) {
    std::vector<Appended> rows;
    for (const kv::OwnedSequence& sequence : sequences) {
      rows.push_back({&sequence, std::span(tokens).subspan(step, 1)});
    }
    const auto logits = engine->append_all(rows, {.kind = model::RowKind::kDecode});
    ASSERT_TRUE(logits.is_ok());
    for (int32_t i = 0; i < 8; ++i) {
      together[i].insert(together[i].end(), logits->begin() + i * n_vocab,
                         logits->begin() + (i + 1) * n_vocab);
    }
  }
  for (const int32_t i : {0, 3, 7}) {
    const auto one = prompt(*alone, i, 200 + 20 * i);
    EXPECT_EQ(decode(*alone, one, tokens), together[i]) << i;
  }
  const sparse::LockCounters& c = engine->selector()->counters().locks;
  EXPECT_EQ(c.locks, 8 * 4);  // of 40 tokens
  EXPECT_EQ(c.unlocks, 8 * 3);
  EXPECT_GT(c.locked_reads, c.kept + c.updated);
}

TEST_P(SparseLocks, ALockThatCoversTheContextChangesNoBit) {
  SparseOptions options = small();
  options.budget_tokens = 448;
  options.lock.interval_tokens = 8;
  const auto dense = open({}), sparse = open(options);
  const auto a = prompt(*dense), b = prompt(*sparse);
  EXPECT_EQ(decode(*dense, a, some_tokens(kDecoded)), decode(*sparse, b, some_tokens(kDecoded)));
  EXPECT_EQ(sparse->selector()->counters().locks.locks, 0);
}

TEST_P(SparseDecode, WhatWasCutOrCopiedDecodesAsBefore) {
  const auto engine = open(small());
  auto sequence = prompt(*engine);
  const auto first = decode(*engine, sequence, some_tokens(kDecoded));
  const auto copy = *sequence.fork();
  ASSERT_TRUE(sequence.truncate(kPrompt).is_ok());
  EXPECT_EQ(decode(*engine, sequence, some_tokens(kDecoded)), first);
  const auto more = some_tokens(20, 5);
  const auto of_copy = decode(*engine, copy, more), of_sequence = decode(*engine, sequence, more);
  // H2O remembers what its sequence saw, and a copy begins without that.
  if (std::get<1>(GetParam()) != Policy::kH2o) {
    EXPECT_EQ(of_copy, of_sequence);
  }
  // Cut in a page's middle, and other tokens there: as a sequence that never had the first ones.
  ASSERT_TRUE(sequence.truncate(kPrompt - 5).is_ok());
  const auto other = prompt(*engine, 0, kPrompt - 5);
  const auto rest = some_tokens(kDecoded, 9);
  EXPECT_EQ(decode(*engine, sequence, rest), decode(*engine, other, rest));
  EXPECT_THAT(kv::violations(engine->kv_snapshots()), IsEmpty());
}

TEST_P(SparseDecode, WhatWasShiftedDecodesAsIfItHadNotBeenReadBefore) {
  const auto engine = open(small()), fresh = open(small());
  const auto sequence = prompt(*engine), other = prompt(*fresh);
  const auto copy = *sequence.fork();
  decode(*engine, copy, some_tokens(kDecoded));  // digests of shared pages are there
  ASSERT_TRUE(engine->remove_tokens(sequence, 50, 93).is_ok());
  ASSERT_TRUE(fresh->remove_tokens(other, 50, 93).is_ok());
  const auto tokens = some_tokens(kDecoded, 2);
  EXPECT_EQ(decode(*engine, sequence, tokens), decode(*fresh, other, tokens));
}

TEST_P(SparseDecode, GroupedPositionsAreThoseThatPagesAreScoredBy) {
  constexpr kv::SelfExtend kExtend{.group_tokens = 4, .neighbour_tokens = 32};
  const auto engine = open(small(), {}, 2, kExtend), fresh = open(small(), {}, 2, kExtend);
  const auto sequence = prompt(*engine), other = prompt(*fresh);
  const auto copy = *sequence.fork();
  decode(*engine, copy, some_tokens(kDecoded));
  const auto tokens = some_tokens(kDecoded, 2);  // K is turned on the way
  EXPECT_EQ(decode(*engine, sequence, tokens), decode(*fresh, other, tokens));
  EXPECT_GT(engine->selector()->counters().reads, 0);
}

constexpr const char* kArchitectures[] = {"llama", "qwen3", "gemma3"};
constexpr Policy kLockable[] = {Policy::kQuest, Policy::kLabels,    Policy::kDoubleSparsity,
                                Policy::kGsa,   Policy::kStreaming, Policy::kH2o,
                                Policy::kOracle};

std::string name_of(const ::testing::TestParamInfo<std::tuple<const char*, Policy>>& test) {
  std::string name =
      std::string(std::get<0>(test.param)) + "_" + sparse::kPolicies.name(std::get<1>(test.param));
  std::erase(name, '-');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Architectures, SparseDecode,
                         ::testing::Combine(::testing::ValuesIn(kArchitectures),
                                            ::testing::ValuesIn(kLockable)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Samples, SparseDecode,
                         ::testing::Combine(::testing::ValuesIn(kArchitectures),
                                            ::testing::Values(Policy::kLabelsSample)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Architectures, SparseLocks,
                         ::testing::Combine(::testing::ValuesIn(kArchitectures),
                                            ::testing::ValuesIn(kLockable)),
                         name_of);

TEST(RandomSequence, IsAsLongAsAskedAndDecodes) {
  test::TempDir dir;
  const std::string path = dir.path() + "/model.gguf";
  ASSERT_TRUE(gguf::write_random_model(posix_env(), path, random_model("llama")).is_ok());
  for (const kernels::KvTypes& types : test::kv_type_pairs()) {
    auto engine = Engine::open(posix_env(), {.model_path = path, .kv_types = types});
    ASSERT_TRUE(engine.is_ok());
    const auto sequence = (*engine)->random_sequence(777);
    ASSERT_TRUE(sequence.is_ok()) << sequence.status().message();
    EXPECT_EQ(sequence->length(), 777);
    for (const float logit : decode(**engine, *sequence, some_tokens(3))) {
      ASSERT_TRUE(std::isfinite(logit));
    }
    EXPECT_EQ((*engine)->random_sequence(1 << 20).status().code(), StatusCode::kResourceExhausted);
  }
}

}  // namespace
}  // namespace weft::engine
