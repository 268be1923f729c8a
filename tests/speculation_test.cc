// Speculative decoding changes how fast an answer comes and nothing else: the same tokens, the same
// probabilities to the bit, greedy or sampled, whatever K and V are kept in and whatever pages are
// read; and drafts that were rejected leave nothing.
#include "engine/speculation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "engine/batcher.h"
#include "engine/beam_generation.h"
#include "engine/generation.h"
#include "eval/speculation_eval.h"
#include "kv/invariants.h"
#include "sparse/selector.h"
#include "support/files.h"
#include "support/kv_types.h"
#include "support/skip.h"
#include "support/test_model.h"

namespace weft::engine {
namespace {

using sparse::Policy;
using sparse::SparseOptions;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

gguf::RandomModelOptions random_model(const std::string& architecture) {
  gguf::RandomModelOptions options{
      .architecture = architecture, .n_layers = 6, .head_dim = 32, .vocab = 300};
  options.context_length = 1024;
  options.score_spread = 8;
  if (architecture == "gemma3") options.window = 24;
  return options;
}

std::vector<int32_t> prompt_of(int32_t n, int32_t seed = 0) {
  std::vector<int32_t> tokens(n);
  for (int32_t i = 0; i < n; ++i) tokens[i] = (i * 37 + i * i + 11 * seed) % 250;
  return tokens;
}

struct Setting {
  friend void PrintTo(const Setting& s, std::ostream* out) { *out << s.name; }
  std::string name;
  std::string architecture = "llama";
  SparseOptions sparse;
  kernels::KvTypes types;
  kv::SelfExtend self_extend;
  bool rolls_windows = false;

  bool has_dense_checkpoints() const {
    return sparse.lock.checkpoint == sparse::Checkpoint::kDense;
  }
};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const char* architecture : {"llama", "qwen3", "gemma3"}) {
    all.push_back({.name = architecture, .architecture = architecture});
    all.push_back(
        {.name = std::string(architecture) + "_sampled",
         .architecture = architecture,
         .sparse = {.policy = Policy::kLabelsSample, .budget_tokens = 80, .dense_layers = 0}});
    for (const Policy policy : {Policy::kLabels, Policy::kQuest, Policy::kH2o, Policy::kTova}) {
      Setting one{.name = std::string(architecture) + "_" + sparse::kPolicies.name(policy),
                  .architecture = architecture,
                  .sparse = {.policy = policy, .budget_tokens = 80, .dense_layers = 0}};
      all.push_back(one);
      one.name += "_locked";
      one.sparse.lock = {.interval_tokens = 5, .duration_tokens = 12, .update_threshold = 1};
      all.push_back(one);
      if (policy != Policy::kLabels && policy != Policy::kH2o) continue;
      one.name += "_dense";
      one.sparse.lock.checkpoint = sparse::Checkpoint::kDense;
      all.push_back(one);
    }
  }
  for (const kernels::KvTypes& types : test::kv_type_pairs()) {
    all.push_back({.name = "kv" + std::to_string(all.size()), .types = types});
  }
  all.push_back(
      {.name = "self_extend", .self_extend = {.group_tokens = 4, .neighbour_tokens = 32}});
  all.push_back({.name = "window", .architecture = "gemma3", .rolls_windows = true});
  return all;
}

class Speculated : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    path_ = dir_.path() + "/model.gguf";
    ASSERT_TRUE(gguf::write_random_model(posix_env(), path_, random_model(GetParam().architecture))
                    .is_ok());
  }
  std::unique_ptr<Engine> open(const spec::DraftOptions& draft, int32_t context_tokens = 512,
                               int64_t kv_limit_bytes = 0) {
    EngineOptions options{.model_path = path_, .n_threads = 2, .compute = "f32"};
    options.context_tokens = context_tokens;
    options.self_extend = GetParam().self_extend;
    options.sparse = GetParam().sparse;
    options.draft = draft;
    options.kv_types = GetParam().types;
    options.n_contexts = 4;
    options.rolls_windows = GetParam().rolls_windows;
    options.steps = {.n_sequences = 8, .batches = true};
    options.kv_limit_bytes = static_cast<uint64_t>(kv_limit_bytes);
    auto engine = Engine::open(posix_env(), options);
    EXPECT_TRUE(engine.is_ok()) << engine.status().message();
    return *std::move(engine);
  }

  test::TempDir dir_;
  std::string path_;
};

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::string text;
  StopReason stop_reason{};
  uint64_t n_draws = 0;
  int32_t length = 0;        // of the sequence
  std::vector<float> after;  // logits of one token more
  bool operator==(const Answer&) const = default;
};

/// known: the tokens that drafts and penalties count as the text before.
Answer answer(Engine& engine, std::span<const int32_t> prompt, const GenerationOptions& options,
              std::span<const int32_t> known) {
  const kv::OwnedSequence sequence = engine.create_sequence();
  auto logits = engine.append(sequence, prompt);
  EXPECT_TRUE(logits.is_ok()) << logits.status().message();
  const auto generation = generate(
      engine, sequence, *std::move(logits), options, [](std::string_view) { return true; }, known);
  EXPECT_TRUE(generation.is_ok()) << generation.status().message();
  Answer out{.text = generation->text,
             .stop_reason = generation->stop_reason,
             .n_draws = generation->n_draws,
             .length = sequence.length()};
  for (const GeneratedToken& token : generation->tokens) {
    out.tokens.push_back(token.id);
    out.logprobs.push_back(token.logprob);
  }
  if (sequence.length() < engine.context_tokens()) {
    const int32_t more[] = {7};
    auto after = engine.append(sequence, more, {.kind = model::RowKind::kDecode});
    EXPECT_TRUE(after.is_ok()) << after.status().message();
    out.after = *std::move(after);
  }
  EXPECT_THAT(kv::violations(engine.kv_snapshots()), IsEmpty());
  return out;
}

/// Drafts whatever the machine's times are.
void make_rows_free(Engine& engine, double step_ms = 10) {
  for (int32_t n_rows = 1; n_rows < 9; ++n_rows) engine.step_cost().add_step(n_rows, step_ms);
}

/// A text before which this answer was once, but for some of its tokens: what quotes it is partly
/// right.
std::vector<int32_t> quoting(std::span<const int32_t> prompt, std::span<const int32_t> answer) {
  std::vector<int32_t> known(prompt.begin(), prompt.end());
  for (size_t i = 0; i < answer.size(); ++i) known.push_back(i % 9 == 8 ? 299 : answer[i]);
  known.insert(known.end(), prompt.begin(), prompt.end());
  return known;
}

TEST_P(Speculated, TheAnswerIsThatOfPlainDecoding) {
  const auto plain = open({});
  for (const int32_t most_tokens : {1, 4, 16}) {
    const auto drafting = open({.kind = spec::DrafterKind::kNgram, .most_tokens = most_tokens});
    make_rows_free(*drafting, 0.001);  // else how many are guessed depends on what steps take
    for (int32_t i = 0; i < 4; ++i) {
      GenerationOptions options{.max_tokens = 60 + i, .ignore_end = i % 2 == 0, .n_logprobs = 1};
      if (i >= 2) options.sampling = {.temperature = 0.4F, .top_k = 4, .seed = 9};
      if (i == 3) options.sampling.penalties.repeat = 1.1F;
      const auto prompt = prompt_of(180 + 20 * i, i);
      const auto known = quoting(prompt, answer(*plain, prompt, options, prompt).tokens);
      EXPECT_TRUE(answer(*drafting, prompt, options, known) ==
                  answer(*plain, prompt, options, known))
          << most_tokens << " drafted, answer " << i;
    }
    const spec::DraftCounters& c = drafting->draft_counters();
    EXPECT_GT(c.drafted, c.accepted);
    EXPECT_GT(c.accepted, 0);
  }
}

// A draft model that is right always (the model itself, reading all pages), and one that never is.
TEST_P(Speculated, ADraftModelChangesNoAnswer) {
  const std::string other = dir_.path() + "/other.gguf";
  gguf::RandomModelOptions small = random_model(GetParam().architecture);
  small.seed = 77;
  ASSERT_TRUE(gguf::write_random_model(posix_env(), other, small).is_ok());
  const auto plain = open({});
  for (const std::string& model : {path_, other}) {
    const auto drafting =
        open({.kind = spec::DrafterKind::kModel, .most_tokens = 5, .model_path = model});
    make_rows_free(*drafting);
    for (int32_t i = 0; i < 3; ++i) {
      GenerationOptions options{.max_tokens = 50, .ignore_end = true, .n_logprobs = 1};
      if (i == 2) options.sampling = {.temperature = 0.4F, .top_k = 4, .seed = 9};
      const auto prompt = prompt_of(180, i);
      EXPECT_TRUE(answer(*drafting, prompt, options, prompt) ==
                  answer(*plain, prompt, options, prompt))
          << model << " " << i;
    }
    EXPECT_GT(drafting->draft_counters().drafted, 0);
    EXPECT_THAT(kv::violations(drafting->draft_engine()->kv_snapshots()), IsEmpty());
    EXPECT_EQ(drafting->draft_engine()->kv_usage().held(), 0);
  }
}

// Files of one vocabulary whose matrices have other numbers of rows: what one of the two models has
// no row for is not guessed, and ends the guesses where it is said.
TEST_P(Speculated, RowsThatOneOfTheModelsHasNotEndNoAnswer) {
  if (GetParam().name != "llama") return;  // nothing else differs
  gguf::RandomModelOptions padded = random_model(GetParam().architecture);
  padded.seed = 77;
  padded.spare_rows = 20 * padded.vocab;
  padded.vocab += padded.spare_rows;
  const std::string other = dir_.path() + "/padded.gguf";
  ASSERT_TRUE(gguf::write_random_model(posix_env(), other, padded).is_ok());
  const GenerationOptions options{.max_tokens = 50, .ignore_end = true, .n_logprobs = 1};
  const auto prompt = prompt_of(180);
  std::string draft = other;
  for (int i = 0; i < 2; ++i) {
    const auto plain = open({});
    const auto drafting =
        open({.kind = spec::DrafterKind::kModel, .most_tokens = 5, .model_path = draft});
    make_rows_free(*drafting);
    EXPECT_TRUE(answer(*drafting, prompt, options, prompt) ==
                answer(*plain, prompt, options, prompt))
        << draft;
    // The other way round the first token that is said may be one that the draft model has not.
    if (draft == other) {
      EXPECT_GT(drafting->draft_counters().drafted, 0);
    }
    std::swap(path_, draft);
  }
}

TEST_P(Speculated, WhereADraftModelHasNoPageLeftTheAnswerComesWithoutGuesses) {
  if (GetParam().name != "llama") return;  // nothing else differs
  const auto plain = open({}),
             drafting =
                 open({.kind = spec::DrafterKind::kModel, .most_tokens = 5, .model_path = path_});
  make_rows_free(*drafting);
  Engine& small = *drafting->draft_engine();
  std::vector<kv::OwnedSequence> others;
  for (const int32_t n_tokens : {200, 1}) {
    do {
      others.push_back(small.create_sequence());
    } while (small.append(others.back(), prompt_of(n_tokens)).is_ok());
  }
  const GenerationOptions options{.max_tokens = 30, .ignore_end = true, .n_logprobs = 1};
  const auto prompt = prompt_of(180);
  EXPECT_TRUE(answer(*drafting, prompt, options, prompt) ==
              answer(*plain, prompt, options, prompt));
  EXPECT_EQ(drafting->draft_counters().drafted, 0);
  others.clear();
  EXPECT_TRUE(answer(*drafting, prompt, options, prompt) ==
              answer(*plain, prompt, options, prompt));
  EXPECT_GT(drafting->draft_counters().drafted, 0);
  EXPECT_EQ(small.kv_usage().held(), 0);
}

TEST_P(Speculated, ItEndsWhereTheContextIsFull) {
  const auto plain = open({}, 256);
  const auto drafting = open({.kind = spec::DrafterKind::kNgram}, 256);
  const GenerationOptions options{.max_tokens = 100, .ignore_end = true, .n_logprobs = 1};
  const auto prompt = prompt_of(200);
  const auto known = quoting(prompt, answer(*plain, prompt, options, prompt).tokens);
  const Answer expected = answer(*plain, prompt, options, known);
  EXPECT_EQ(expected.stop_reason, StopReason::kContextFull);
  EXPECT_TRUE(answer(*drafting, prompt, options, known) == expected);
  EXPECT_GT(drafting->draft_counters().accepted, 0);
}

/// Rows of any number after what is there, of which so many are kept: the logits of each kept one
/// are those that it has when it is decoded by itself.
TEST_P(Speculated, RowsThatAreRejectedLeaveNothing) {
  const auto engine = open({}, 1024);
  std::mt19937 random(4);
  const std::vector<int32_t> prompt = prompt_of(150);
  const kv::OwnedSequence one_by_one = engine->create_sequence(), tried = engine->create_sequence();
  for (const kv::OwnedSequence* sequence : {&one_by_one, &tried}) {
    ASSERT_TRUE(engine->append(*sequence, prompt).is_ok());
  }
  const int64_t n_vocab = engine->model().config().vocab_size;
  int32_t token = 3;
  while (tried.length() < 400) {
    const auto most = static_cast<int32_t>(std::min<int64_t>(20, engine->tried_rows(tried)));
    const auto n_rows = static_cast<int32_t>(1 + random() % most);
    auto n_kept = static_cast<int32_t>(random() % (n_rows + 1));
    // The newest token is always kept: a dense pass before it stays, too.
    if (GetParam().has_dense_checkpoints()) n_kept = std::max(n_kept, 1);
    std::vector<int32_t> rows{token};
    for (int32_t i = 1; i < n_rows; ++i) rows.push_back(static_cast<int32_t>(random() % 300));
    const Appended appended[] = {{&tried, rows}};
    auto result = engine->try_rows(appended);
    ASSERT_TRUE(result.is_ok()) << result.status().message();
    const std::vector<float> logits = result->logits;
    engine->accept(*std::move(result), {&n_kept, 1});
    for (int32_t i = 0; i < n_kept; ++i) {
      const auto expected = engine->append(one_by_one, std::span(rows).subspan(i, 1),
                                           {.kind = model::RowKind::kDecode});
      ASSERT_TRUE(expected.is_ok());
      ASSERT_TRUE(std::equal(expected->begin(), expected->end(), logits.begin() + i * n_vocab))
          << "row " << i << " of " << n_rows << " after " << tried.length() - n_kept;
    }
    ASSERT_EQ(tried.length(), one_by_one.length());
    ASSERT_THAT(kv::violations(engine->kv_snapshots()), IsEmpty());
    token = static_cast<int32_t>(random() % 300);
    if (tried.length() > 200 && random() % 40 == 0 && !GetParam().rolls_windows &&
        !GetParam().self_extend.is_on()) {
      for (const kv::OwnedSequence* sequence : {&one_by_one, &tried}) {
        const Status removed = engine->remove_tokens(*sequence, 20, 43);
        ASSERT_TRUE(removed.is_ok()) << removed.message();
      }
    }
  }
}

std::vector<Answer> each_alone(Engine& engine, std::span<const BatchRequest> requests) {
  std::vector<Answer> answers;
  for (const BatchRequest& request : requests) {
    answers.push_back(answer(engine, request.prompt, request.options, request.prompt));
  }
  return answers;
}

/// Returns how many requests were preempted.
int64_t expect_in_a_batch(Engine& engine, std::span<const BatchRequest> requests,
                          std::span<const Answer> expected) {
  make_rows_free(engine);
  auto batcher = Batcher::create(engine, {.max_running = 6, .prompt_rows = 64});
  EXPECT_TRUE(batcher.is_ok()) << batcher.status().message();
  for (const BatchRequest& request : requests) EXPECT_TRUE((*batcher)->submit(request).is_ok());
  const auto on_done = [&](size_t index, const Result<BatchAnswer>& got) {
    ASSERT_TRUE(got.is_ok()) << got.status().message();
    ASSERT_EQ(got->tokens.size(), expected[index].tokens.size());
    EXPECT_EQ(got->text, expected[index].text);
    EXPECT_EQ(got->n_draws, expected[index].n_draws);
    for (size_t i = 0; i < got->tokens.size(); ++i) {
      ASSERT_EQ(got->tokens[i].id, expected[index].tokens[i]) << index << " at " << i;
      ASSERT_EQ(got->tokens[i].logprob, expected[index].logprobs[i]) << index << " at " << i;
    }
  };
  Result<bool> goes_on = true;
  while (goes_on.is_ok() && *goes_on) {
    goes_on = (*batcher)->step(on_done);
    EXPECT_THAT((*batcher)->violations(), IsEmpty());
    EXPECT_THAT(kv::violations(engine.kv_snapshots()), IsEmpty());
  }
  EXPECT_TRUE(goes_on.is_ok()) << goes_on.status().message();
  return (*batcher)->stats().preemptions;
}

// Each drafts as much as pays for it, some are preempted, and each answers as it does alone and
// without drafts.
TEST_P(Speculated, InABatchTheAnswersAreThoseOfPlainDecoding) {
  if (GetParam().self_extend.is_on() || GetParam().has_dense_checkpoints()) {
    EXPECT_EQ(Batcher::create(*open({}), {}).status().code(), StatusCode::kUnsupported);
    return;
  }
  std::vector<BatchRequest> requests;
  for (int32_t i = 0; i < 8; ++i) {
    BatchRequest request{.prompt = prompt_of(60 + 17 * i, i)};
    request.options = {.max_tokens = 40 + 30 * (i % 4), .ignore_end = true, .n_logprobs = 1};
    if (i % 3 == 2) request.options.sampling = {.temperature = 0.3F, .top_k = 2, .seed = 9};
    requests.push_back(std::move(request));
  }
  const std::vector<Answer> expected = each_alone(*open({}), requests);
  const auto roomy = open({.kind = spec::DrafterKind::kNgram});
  EXPECT_EQ(expect_in_a_batch(*roomy, requests, expected), 0);
  if (GetParam().rolls_windows) return;
  const auto tight = open({.kind = spec::DrafterKind::kNgram}, 512, roomy->limit_to_hold(30));
  EXPECT_GT(expect_in_a_batch(*tight, requests, expected), 0);
}

std::unique_ptr<Engine> open_model(const std::string& path, const Setting& setting,
                                   const spec::DraftOptions& draft, int32_t context_tokens = 512) {
  EngineOptions options{.model_path = path, .n_threads = 2, .compute = "f32"};
  options.context_tokens = context_tokens;
  options.sparse = setting.sparse;
  options.draft = draft;
  options.kv_types = setting.types;
  options.n_contexts = 4;
  auto engine = Engine::open(posix_env(), options);
  EXPECT_TRUE(engine.is_ok()) << engine.status().message();
  return *std::move(engine);
}

// The model drafts for itself over chosen pages: verified over all of them the answer is dense
// decoding's, verified over the chosen ones sparse decoding's.
TEST_P(Speculated, ADraftByTheModelItselfChangesNoAnswer) {
  if (!GetParam().sparse.is_on()) return;
  Setting dense = GetParam();
  dense.sparse = {};
  for (const spec::Verify verify : {spec::Verify::kDense, spec::Verify::kLocked}) {
    const bool is_dense = verify == spec::Verify::kDense;
    const auto plain = open_model(path_, is_dense ? dense : GetParam(), {});
    const auto drafting = open_model(
        path_, GetParam(), {.kind = spec::DrafterKind::kSelf, .most_tokens = 5, .verify = verify});
    make_rows_free(*drafting);
    std::vector<BatchRequest> requests;
    for (int32_t i = 0; i < 2; ++i) {
      GenerationOptions options{.max_tokens = 40, .ignore_end = true, .n_logprobs = 1};
      if (i == 1) options.sampling = {.temperature = 0.4F, .top_k = 4, .seed = 9};
      const auto prompt = prompt_of(180 + 7 * i, i);
      EXPECT_TRUE(answer(*drafting, prompt, options, prompt) ==
                  answer(*plain, prompt, options, prompt))
          << spec::kVerifies.name(verify) << " " << i;
      requests.push_back({.prompt = prompt, .options = options, .salt = ""});
    }
    EXPECT_GT(drafting->draft_counters().drafted, 0);
    if (!is_dense) {  // greedy answers' drafts are the answer
      EXPECT_GT(drafting->draft_counters().accepted, 0);
    }
    const sparse::SparseCounters& c = drafting->selector()->counters();
    EXPECT_EQ(c.reads_in_dense_passes > 0, is_dense || GetParam().has_dense_checkpoints());
    EXPECT_EQ(c.locks.inconsistencies, 0);
    EXPECT_EQ(c.locks.compared_drafts > 0, !is_dense && GetParam().sparse.lock.is_on());
    if (drafting->has_dense_checkpoints() || GetParam().architecture != "llama") continue;
    expect_in_a_batch(*drafting, requests, each_alone(*plain, requests));
  }
}

// Draft and target choose by themselves, at other slots: seen by who compares.
TEST_P(Speculated, DraftsWithPagesOfTheirOwnAreInconsistent) {
  const bool remembers =
      GetParam().sparse.policy == Policy::kH2o || GetParam().sparse.policy == Policy::kTova;
  if (!GetParam().sparse.lock.is_on() || GetParam().has_dense_checkpoints() || remembers) return;
  Setting setting = GetParam();
  setting.sparse.lock.drafts_share = false;
  const auto plain = open_model(path_, GetParam(), {});
  const auto drafting = open_model(
      path_, setting,
      {.kind = spec::DrafterKind::kSelf, .most_tokens = 5, .verify = spec::Verify::kLocked});
  make_rows_free(*drafting);
  const GenerationOptions options{.max_tokens = 60, .ignore_end = true, .n_logprobs = 1};
  const auto prompt = prompt_of(250);
  EXPECT_TRUE(answer(*drafting, prompt, options, prompt) ==
              answer(*plain, prompt, options, prompt));
  EXPECT_GT(drafting->selector()->counters().locks.inconsistencies, 0);
}

// Each token a checkpoint: all that is decoded is dense decoding's.
TEST_P(Speculated, ADensePassAtEachTokenIsDenseDecoding) {
  if (!GetParam().has_dense_checkpoints()) return;
  Setting dense = GetParam(), each = GetParam();
  dense.sparse = {};
  each.sparse.lock.interval_tokens = 1;
  const auto a = open_model(path_, dense, {}), b = open_model(path_, each, {});
  const auto prompt = prompt_of(200);
  const kv::OwnedSequence one = a->create_sequence(), other = b->create_sequence();
  ASSERT_TRUE(a->append(one, prompt).is_ok());
  ASSERT_TRUE(b->append(other, prompt).is_ok());
  for (int32_t i = 0; i < 40; ++i) {
    const int32_t token[] = {(i * 31) % 250};
    const auto expected = a->append(one, token, {.kind = model::RowKind::kDecode});
    const auto got = b->append(other, token, {.kind = model::RowKind::kDecode});
    ASSERT_TRUE(expected.is_ok() && got.is_ok());
    // The first chooses by its policy, and the second runs it again.
    ASSERT_EQ(*got == *expected, i > 0) << i;
  }
  const sparse::SparseCounters& c = b->selector()->counters();
  EXPECT_EQ(c.dense_passes, 39);
  EXPECT_EQ(c.rewritten_tokens, 1);
  // Of gemma3's six layers the last alone reads all slots, and so its K is what it was.
  EXPECT_EQ(c.drift > 0, GetParam().architecture != "gemma3");
}

// Guesses that were rejected, then a prompt in their slots: what the next pass writes again are the
// tokens that are there, and those before the prompt were written before it.
TEST_P(Speculated, ADensePassKnowsWhichTokensArePending) {
  if (!GetParam().has_dense_checkpoints()) return;
  const auto text = prompt_of(200), turn = prompt_of(6, 3);
  std::vector<float> after[2];
  for (const int32_t n_wrong : {0, 11}) {
    const auto engine = open_model(path_, GetParam(), {});
    const kv::OwnedSequence sequence = engine->create_sequence();
    ASSERT_TRUE(engine->append(sequence, text).is_ok());
    const auto decode = [&](int32_t token) {
      const int32_t tokens[] = {token};
      auto logits = engine->append(sequence, tokens, {.kind = model::RowKind::kDecode});
      EXPECT_TRUE(logits.is_ok()) << logits.status().message();
      return *std::move(logits);
    };
    decode(1);
    const std::vector<int32_t> rows(1 + std::min<int64_t>(n_wrong, 3), 2);
    const Appended appended[] = {{&sequence, rows}};
    auto tried = engine->try_rows(appended);
    ASSERT_TRUE(tried.is_ok());
    const int32_t n_kept = 1;
    engine->accept(*std::move(tried), {&n_kept, 1});
    const sparse::SparseCounters& c = engine->selector()->counters();
    ASSERT_TRUE(engine->append(sequence, turn).is_ok());
    EXPECT_EQ(c.rewritten_tokens, 2);  // the two that were decoded
    for (int32_t i = 0; i < 12; ++i) after[n_wrong > 0] = decode(i);
    EXPECT_EQ(c.rewritten_tokens, 2 + 0 + 4 + 4);  // at 208, at 213 and at 218
    EXPECT_EQ(c.dense_passes, 4);
  }
  EXPECT_EQ(after[0], after[1]);
}

// What was decoded over chosen pages is written again: K and V are dense decoding's to the bit, and
// nobody else's copy of the pages is touched.
TEST_P(Speculated, ADensePassWritesWhatDenseDecodingWould) {
  if (!GetParam().has_dense_checkpoints()) return;
  Setting dense = GetParam();
  dense.sparse = {};
  const auto a = open_model(path_, dense, {}), b = open_model(path_, GetParam(), {});
  std::vector<int32_t> text = prompt_of(200);
  const kv::OwnedSequence one = a->create_sequence(), other = b->create_sequence();
  ASSERT_TRUE(a->append(one, text).is_ok());
  ASSERT_TRUE(b->append(other, text).is_ok());
  const auto copy = other.fork();
  ASSERT_TRUE(copy.is_ok());
  const auto step = [](Engine& engine, const kv::OwnedSequence& sequence, int32_t token) {
    const int32_t tokens[] = {token};
    auto logits = engine.append(sequence, tokens, {.kind = model::RowKind::kDecode});
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    return *std::move(logits);
  };
  for (int32_t i = 0; i < 16; ++i) {  // checkpoints at 5, 10 and 15
    const auto expected = step(*a, one, i);
    const auto got = step(*b, other, i);
    EXPECT_EQ(got == expected, i % 5 == 0 && i > 0) << i;
  }
  EXPECT_EQ(b->selector()->counters().rewritten_tokens, 5 + 4 + 4);
  EXPECT_EQ(generate_beams(*b, text, {}, [](int32_t) { return true; }).status().code(),
            StatusCode::kUnsupported);
  // The next row by itself, all pages of both being dense decoding's.
  ASSERT_TRUE(b->use_sparse({}).is_ok());
  EXPECT_EQ(step(*b, other, 9), step(*a, one, 9));
  const kv::OwnedSequence fresh = a->create_sequence();
  ASSERT_TRUE(a->append(fresh, text).is_ok());
  EXPECT_EQ(step(*b, *copy, 9), step(*a, fresh, 9));
}

INSTANTIATE_TEST_SUITE_P(Settings, Speculated, ::testing::ValuesIn(settings()),
                         [](const auto& test) {
                           std::string name = test.param.name;
                           std::erase(name, '-');
                           return name;
                         });

TEST(SpeculatedByModels, AnotherVocabularyIsRefused) {
  test::TempDir dir;
  const std::string a = dir.path() + "/a.gguf", b = dir.path() + "/b.gguf";
  gguf::RandomModelOptions model = random_model("llama");
  ASSERT_TRUE(gguf::write_random_model(posix_env(), a, model).is_ok());
  model.vocab = 310;
  ASSERT_TRUE(gguf::write_random_model(posix_env(), b, model).is_ok());
  EngineOptions options{.model_path = a, .n_threads = 1, .compute = "f32"};
  options.draft = {.kind = spec::DrafterKind::kModel, .model_path = b};
  const auto refused = Engine::open(posix_env(), options);
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), ::testing::HasSubstr("310 tokens, not 300"));
  options.draft.model_path = dir.path() + "/none.gguf";
  EXPECT_THAT(Engine::open(posix_env(), options).status().message(),
              AllOf(HasSubstr("--draft: "), HasSubstr("none.gguf")));
}

constexpr auto kAllText = [](std::string_view) { return true; };

/// A model that drafts for itself, after prompts that it reads in several steps.
class SpeculatedByItself : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = dir_.path() + "/model.gguf";
    ASSERT_TRUE(gguf::write_random_model(posix_env(), path_, random_model("llama")).is_ok());
  }
  Result<std::unique_ptr<Engine>> try_open(const spec::DraftOptions& draft,
                                           int64_t kv_limit_bytes = 0) {
    EngineOptions options{.model_path = path_, .n_threads = 2, .compute = "f32"};
    options.context_tokens = 512;
    options.draft = draft;
    options.draft.model_path = path_;
    options.kv_limit_bytes = static_cast<uint64_t>(kv_limit_bytes);
    return Engine::open(posix_env(), options);
  }
  std::unique_ptr<Engine> open(const spec::DraftOptions& draft, int64_t kv_limit_bytes = 0) {
    auto engine = try_open(draft, kv_limit_bytes);
    EXPECT_TRUE(engine.is_ok()) << engine.status().message();
    return *std::move(engine);
  }
  static Generation generate_after(Engine& engine, int32_t n_prompt, int32_t max_tokens,
                                   FunctionRef<bool(std::string_view)> on_text) {
    const std::vector<int32_t> prompt = prompt_of(n_prompt);
    const kv::OwnedSequence sequence = engine.create_sequence();
    auto logits = engine.append(sequence, prompt);
    EXPECT_TRUE(logits.is_ok()) << logits.status().message();
    auto generation = generate(engine, sequence, *std::move(logits),
                               {.max_tokens = max_tokens, .ignore_end = true}, on_text, prompt);
    EXPECT_TRUE(generation.is_ok()) << generation.status().message();
    // The newest token is not run, as after any answer.
    EXPECT_EQ(sequence.length(), n_prompt + std::ssize(generation->tokens) - 1);
    return *std::move(generation);
  }

  test::TempDir dir_;
  std::string path_;
};

// The first call is of the first token, those after it of the draft model's first layers.
TEST_F(SpeculatedByItself, CtrlCEndsTheReadingOfThePrompt) {
  const auto engine = open({.kind = spec::DrafterKind::kModel});
  make_rows_free(*engine);
  int32_t n_calls = 0;
  const Generation stopped =
      generate_after(*engine, 400, 50, [&](std::string_view) { return ++n_calls < 4; });
  EXPECT_EQ(stopped.stop_reason, StopReason::kCancelled);
  EXPECT_EQ(stopped.tokens.size(), 1u);
  EXPECT_EQ(stopped.drafts.drafted, 0);
  for (Engine* one : {engine.get(), engine->draft_engine()}) {
    EXPECT_EQ(one->kv_usage().held(), 0);
    EXPECT_THAT(kv::violations(one->kv_snapshots()), IsEmpty());
  }
  const Generation whole = generate_after(*engine, 400, 50, kAllText);
  const Generation plain = generate_after(*open({}), 400, 50, kAllText);
  EXPECT_EQ(whole.text, plain.text);
  EXPECT_GT(whole.drafts.accepted, 0);
}

TEST_F(SpeculatedByItself, ABatchIsStoppedWhileThePromptIsReadAndGoesOn) {
  const auto engine = open({.kind = spec::DrafterKind::kModel});
  make_rows_free(*engine);
  const Generation plain = generate_after(*open({}), 400, 30, kAllText);
  auto batcher = Batcher::create(*engine, {});
  ASSERT_TRUE(batcher.is_ok()) << batcher.status().message();
  const BatchRequest request{.prompt = prompt_of(400),
                             .options = {.max_tokens = 30, .ignore_end = true}};
  ASSERT_TRUE((*batcher)->submit(request).is_ok());
  std::vector<std::string> texts;
  const auto on_done = [&](size_t, const Result<BatchAnswer>& answer) {
    ASSERT_TRUE(answer.is_ok()) << answer.status().message();
    EXPECT_GT(answer->drafts.accepted, 0);
    texts.push_back(answer->text);
  };
  const auto reads = [&] { return engine->draft_engine()->kv_usage().held() > 0; };
  const model::Executor::Cancelled cancelled(reads);
  Result<bool> stepped = true;
  while (stepped.is_ok() && *stepped) stepped = (*batcher)->step(on_done, &cancelled);
  EXPECT_EQ(stepped.status().code(), StatusCode::kCancelled);
  EXPECT_EQ(engine->draft_engine()->kv_usage().held(), 0);  // it ended before all was read
  EXPECT_THAT((*batcher)->violations(), IsEmpty());
  stepped = true;
  while (stepped.is_ok() && *stepped) stepped = (*batcher)->step(on_done);
  EXPECT_THAT(texts, ElementsAre(plain.text));
}

// Of steps that take no time nothing can be saved, whatever reading takes.
TEST_F(SpeculatedByItself, WhatTheAnswerCannotWinBackIsNotRead) {
  const auto engine = open({.kind = spec::DrafterKind::kModel});
  for (int32_t i = 0; i < 300; ++i) engine->step_cost().add_step(1 + i % 3, 1e-6);
  EXPECT_EQ(generate_after(*engine, 400, 4, kAllText).drafts.drafted, 0);
  engine->use_drafts(spec::DraftOptions(engine->draft_options()));  // forgets these times
  make_rows_free(*engine, 1000);
  EXPECT_GT(generate_after(*engine, 400, 4, kAllText).drafts.drafted, 0);
}

TEST_F(SpeculatedByItself, AnAnswersCountersAreItsOwn) {
  const auto engine = open({.kind = spec::DrafterKind::kModel});
  make_rows_free(*engine);
  spec::DraftCounters sum;
  for (const int32_t n_tokens : {20, 30}) {
    const Generation one = generate_after(*engine, 40, n_tokens, kAllText);
    EXPECT_EQ(one.drafts.steps + one.drafts.accepted, n_tokens - 1);
    sum.steps += one.drafts.steps;
    sum.drafted += one.drafts.drafted;
    sum.accepted += one.drafts.accepted;
  }
  EXPECT_EQ(sum.steps, engine->draft_counters().steps);
  EXPECT_EQ(sum.drafted, engine->draft_counters().drafted);
  EXPECT_EQ(sum.accepted, engine->draft_counters().accepted);
  EXPECT_EQ(generate_after(*open({}), 40, 20, kAllText).drafts.steps, 0);
}

// What would fit with fewer guesses at once is named, and fits.
TEST_F(SpeculatedByItself, ALimitNamesHowManyGuessesItHolds) {
  const int64_t limit =
      open({.kind = spec::DrafterKind::kNgram, .most_tokens = 4})->limit_to_hold(20);
  const auto engine = open({.kind = spec::DrafterKind::kNgram, .most_tokens = 64}, limit);
  ASSERT_LT(engine->context_tokens(), 320);
  const std::string way = engine->way_to_hold(320);
  constexpr std::string_view kFlag = " or --draft-tokens ";
  ASSERT_THAT(way, HasSubstr(kFlag));
  const int32_t n = std::stoi(way.substr(way.find(kFlag) + kFlag.size()));
  EXPECT_GE(n, 4);
  EXPECT_GE(open({.kind = spec::DrafterKind::kNgram, .most_tokens = n}, limit)->context_tokens(),
            320);
  EXPECT_LT(
      open({.kind = spec::DrafterKind::kNgram, .most_tokens = n + 1}, limit)->context_tokens(),
      320);
  // At opening, and where none is too many.
  const auto refused =
      try_open({.kind = spec::DrafterKind::kNgram, .most_tokens = 64}, open({})->limit_to_hold(1));
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("is needed, or no --draft"));
  EXPECT_THAT(open({}, limit)->way_to_hold(400), Not(HasSubstr("draft")));
}

TEST_F(SpeculatedByItself, ATokenIsAddedOnceHoweverOftenItsStepIsTried) {
  const auto engine = open({.kind = spec::DrafterKind::kNgram});
  make_rows_free(*engine);
  const std::vector<int32_t> text{5, 6, 7, 8, 9, 10, 5, 6, 7};
  Speculation speculation(*engine, std::span(text).first(7));
  const kv::OwnedSequence sequence = engine->create_sequence();
  const DraftRoom room{.tokens = 1, .answer_tokens = 10};
  speculation.catch_up(std::span(text).first(8));  // a token that came without a draft
  for (int i = 0; i < 3; ++i)
    EXPECT_THAT(*speculation.rows_after(sequence, 7, room), ElementsAre(7, 8));
  speculation.accept(1);
  EXPECT_THAT(*speculation.rows_after(sequence, 9, room), ElementsAre(9, 10));
}

eval::SpeculationEvalOptions questions(int32_t n) {
  eval::SpeculationEvalOptions options{.answer_tokens = 8, .repeat = 1};
  for (int32_t i = 0; i < n; ++i) {
    options.examples.push_back(
        {.question = "What is on the shelf?",
         .answers = {"an item"},
         .passages = {eval::EvalPassage{.title = "Shelf", .text = "An item is on it."}}});
  }
  return options;
}

TEST_F(SpeculatedByItself, AnEvaluationThatIsStoppedHasWhatItMeasured) {
  const auto engine = open({.kind = spec::DrafterKind::kNgram});
  const auto stopped_after = [&](int64_t n) {
    return eval::speculation_eval(*engine, questions(5),
                                  [&](int64_t done, int64_t) { return done < n; });
  };
  const auto some = stopped_after(2);
  ASSERT_TRUE(some.is_ok()) << some.status().message();
  EXPECT_EQ(some->n_not_asked, 3);
  EXPECT_EQ(std::ssize(some->rows) + some->n_short, 2);
  EXPECT_EQ(stopped_after(0).status().code(), StatusCode::kCancelled);
  EXPECT_TRUE(engine->draft_options().is_on());
  EXPECT_EQ(engine->kv_usage().held(), 0);
}

TEST_F(SpeculatedByItself, AnEvaluationMisleadsNgramsAlone) {
  for (const auto kind : {spec::DrafterKind::kNgram, spec::DrafterKind::kModel}) {
    const auto results = eval::speculation_eval(*open({.kind = kind}), questions(1),
                                                [](int64_t, int64_t) { return true; });
    ASSERT_TRUE(results.is_ok()) << results.status().message();
    ASSERT_EQ(results->rows.size(), 1u);
    const auto& misled = results->rows[0].misled;
    EXPECT_EQ(misled.has_value(), kind == spec::DrafterKind::kNgram);
    const bool counts = misled && misled->drafts.accepted == 0;
    EXPECT_EQ(eval::misled_speedup_of(results->rows).n, counts ? 1 : 0);
  }
}

// An answer that says something twice is its own draft, whatever text came before it.
TEST(SpeculationSummary, OfMisledAnswersIsOfThoseWithoutARightGuess) {
  std::vector<eval::SpeculationRow> rows(3);
  for (eval::SpeculationRow& row : rows) row.plain_ms = 90;
  rows[0].misled = {.drafts = {.drafted = 4, .accepted = 3}, .ms = 30};
  rows[1].misled = {.drafts = {.drafted = 4}, .ms = 100};
  const eval::SpeculationSummary summary = eval::misled_speedup_of(rows);
  EXPECT_EQ(summary.n, 1);
  EXPECT_DOUBLE_EQ(summary.median, 0.9);
  EXPECT_EQ(eval::misled_speedup_of({}).n, 0);
}

// A model that says again what it has said, so that drafts are right and wrong.
TEST(SpeculatedStories, AreThoseOfPlainDecodingInAnyBatch) {
  const std::string stories = test::shared_file("models/stories260K/stories260Ktok512.gguf");
  WEFT_SKIP_UNLESS(!stories.empty(), "stories260K");
  const auto open = [&](spec::DrafterKind kind, int64_t kv_limit_bytes) {
    EngineOptions options{.model_path = stories, .n_threads = 2, .compute = "f32"};
    options.draft.kind = kind;
    options.n_contexts = 8;
    options.steps = {.n_sequences = 8, .batches = true};
    options.kv_limit_bytes = static_cast<uint64_t>(kv_limit_bytes);
    auto engine = Engine::open(posix_env(), options);
    EXPECT_TRUE(engine.is_ok()) << engine.status().message();
    return *std::move(engine);
  };
  const auto plain = open(spec::DrafterKind::kNone, 0);
  std::vector<BatchRequest> requests;
  for (int32_t i = 0; i < 12; ++i) {
    const std::string text =
        "Once upon a time there was a little dog and a cat. The dog said to the";
    BatchRequest request;
    request.prompt = *plain->tokenizer().encode(text.substr(0, 30 + 3 * i), {.add_bos = true});
    request.options = {.max_tokens = 60 + 10 * i, .ignore_end = true, .n_logprobs = 1};
    if (i % 4 == 3) request.options.sampling = {.temperature = 0.7F, .seed = 9};
    requests.push_back(std::move(request));
  }
  const std::vector<Answer> expected = each_alone(*plain, requests);
  const auto roomy = open(spec::DrafterKind::kNgram, 0);
  expect_in_a_batch(*roomy, requests, expected);
  EXPECT_GT(roomy->draft_counters().accepted, 50);
  EXPECT_GT(roomy->draft_counters().drafted, roomy->draft_counters().accepted);
  const auto tight = open(spec::DrafterKind::kNgram, roomy->limit_to_hold(30));
  EXPECT_GT(expect_in_a_batch(*tight, requests, expected), 0);
}

// Of a model that was trained, a part of the pages tells most tokens: verified over all pages most
// guesses are right, be the pages the policy's or those that the last dense pass attended to.
TEST(SpeculatedStories, MostDraftsOfTheModelItselfAreRight) {
  const std::string stories = test::shared_file("models/stories260K/stories260Ktok512.gguf");
  WEFT_SKIP_UNLESS(!stories.empty(), "stories260K");
  Setting dense, select{.sparse = {.policy = Policy::kQuest, .budget_tokens = 48}};
  select.sparse.dense_layers = 0;
  select.sparse.lock = {.interval_tokens = 8};
  Setting passes = select;
  passes.sparse.lock.checkpoint = sparse::Checkpoint::kDense;
  const auto plain = open_model(stories, dense, {}, 128);
  const auto prompt = *plain->tokenizer().encode("Once upon a time", {.add_bos = true});
  const GenerationOptions options{.max_tokens = 110, .ignore_end = true, .n_logprobs = 1};
  const Answer expected = answer(*plain, prompt, options, prompt);
  for (const Setting& setting : {select, passes}) {
    const auto engine =
        open_model(stories, setting,
                   {.kind = spec::DrafterKind::kSelf, .most_tokens = 4, .always = true}, 128);
    EXPECT_TRUE(answer(*engine, prompt, options, prompt) == expected);
    const spec::DraftCounters& c = engine->draft_counters();
    EXPECT_GT(2 * c.accepted, c.drafted);
    EXPECT_GT(c.drafted, 80);
    const sparse::LockCounters& locks = engine->selector()->counters().locks;
    EXPECT_GT(locks.locked_reads, 0);
    EXPECT_GT(locks.unlocks, 0);
  }
}

/// Whether counts may be of that distribution: false once in ten thousand times that they are.
/// (Pearson's chi-squared, its quantile after Wilson and Hilferty 1931.)
bool fits(std::span<const int64_t> counts, std::span<const double> shares) {
  double n = 0, chi_squared = 0, rare_count = 0, rare_share = 0;
  for (const int64_t count : counts) n += static_cast<double>(count);
  int64_t n_bins = 0;
  const auto add = [&](double count, double expected) {
    chi_squared += (count - expected) * (count - expected) / expected;
    ++n_bins;
  };
  for (size_t i = 0; i < counts.size(); ++i) {
    if (n * shares[i] >= 5) {
      add(static_cast<double>(counts[i]), n * shares[i]);
    } else {
      rare_count += static_cast<double>(counts[i]);
      rare_share += shares[i];
    }
  }
  if (n * rare_share >= 1) add(rare_count, n * rare_share);
  const double k = static_cast<double>(n_bins - 1), spread = 2 / (9 * k);
  const double limit = k * std::pow(1 - spread + 3.719 * std::sqrt(spread), 3);
  return chi_squared < limit;
}

std::vector<double> shares_of(std::span<const float> logits, double temperature) {
  std::vector<double> shares;
  double sum = 0;
  for (const float logit : logits) sum += shares.emplace_back(std::exp(logit / temperature));
  for (double& share : shares) share /= sum;
  return shares;
}

// What is sampled first, and what after a draft that was right, of 100,000 answers.
TEST(SpeculatedStories, SamplesHaveTheModelsDistribution) {
  const std::string stories = test::shared_file("models/stories260K/stories260Ktok512.gguf");
  WEFT_SKIP_UNLESS(!stories.empty(), "stories260K");
  auto engine =
      Engine::open(posix_env(), {.model_path = stories, .n_threads = 1, .compute = "f32"});
  ASSERT_TRUE(engine.is_ok()) << engine.status().message();
  const std::vector<int32_t> prompt = *(*engine)->tokenizer().encode("Once upon a time, there");
  const kv::OwnedSequence sequence = (*engine)->create_sequence();
  const auto begun = (*engine)->append(sequence, std::span(prompt).first(prompt.size() - 1));
  ASSERT_TRUE(begun.is_ok());
  // The likeliest token, a likely one, and one that hardly comes.
  std::vector<int32_t> ranked(512);
  for (int32_t draft_rank : {0, 1, 100}) {
    std::vector<int32_t> rows{prompt.back()};
    std::vector<float> logits;
    for (int i = 0; i < 2; ++i) {
      const Appended appended[] = {{&sequence, rows}};
      auto tried = (*engine)->try_rows(appended);
      ASSERT_TRUE(tried.is_ok()) << tried.status().message();
      logits = tried->logits;
      std::iota(ranked.begin(), ranked.end(), 0);
      std::ranges::stable_sort(ranked, [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
      if (i == 0) rows.push_back(ranked[draft_rank]);
    }
    for (const float temperature : {0.7F, 1.0F}) {
      std::vector<int64_t> first(512), second(512);
      int64_t n_second = 0;
      for (uint64_t seed = 0; seed < 100'000; ++seed) {
        GenerationOptions options{.max_tokens = 10};
        options.sampling = {
            .temperature = temperature, .top_k = 0, .top_p = 1, .min_p = 0, .seed = seed * 7919};
        auto text = TextGeneration::create((*engine)->tokenizer(), options, {});
        ASSERT_TRUE(text.is_ok());
        int32_t n_kept = 0;
        const auto next = (*text)->next_of(
            rows, logits, [](int64_t) { return true; }, [](std::string_view) { return true; },
            n_kept);
        ASSERT_TRUE(next.is_ok());
        // An end of the text is none of these tokens, and is not counted.
        if (n_kept == 1 && *next) ++first[**next];
        if (n_kept == 2) {
          ++first[rows[1]];
          if (*next) ++second[**next];
          n_second += *next ? 1 : 0;
        }
      }
      const std::vector<double> of_first = shares_of(std::span(logits).first(512), temperature);
      const std::vector<double> of_second = shares_of(std::span(logits).last(512), temperature);
      EXPECT_TRUE(fits(first, of_first)) << draft_rank << " at " << temperature;
      if (n_second > 1000) {
        EXPECT_TRUE(fits(second, of_second)) << draft_rank << " at " << temperature;
      }
      std::ranges::reverse(first);  // and another distribution does not fit
      EXPECT_FALSE(fits(first, of_first));
    }
  }
}

}  // namespace
}  // namespace weft::engine
