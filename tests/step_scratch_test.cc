// How much memory a step takes beside the KV cache, against what model::StepScratch says: operator
// new of this program counts what is asked for. Never less than a step takes, and at most a tenth
// more, so that a limit is kept and nothing of it wasted.
#include "model/step_scratch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "engine/batcher.h"
#include "engine/engine.h"
#include "fusion/fusion_scratch.h"
#include "fusion/fusor.h"
#include "kernels/matmul_prefill.h"
#include "model/executor.h"
#include "store/chunk_store.h"
#include "support/files.h"
#include "support/identity_cases.h"
#include "support/instruction_sets.h"
#include "support/test_model.h"

namespace {

// operator new can reach nothing but globals.
std::atomic<int64_t> bytes_in_use{0};
std::atomic<int64_t> most_bytes{0};

// The size is kept in front of the memory, an alignment's width before it.
void* allocate(size_t size, size_t alignment) {
  const size_t room = std::max(alignment, alignof(std::max_align_t));
  const size_t whole = (size + 2 * room - 1) / room * room;
  auto* const memory = static_cast<char*>(std::aligned_alloc(room, whole));
  if (memory == nullptr) return nullptr;
  *reinterpret_cast<size_t*>(memory + room - sizeof(size_t)) = size;
  const int64_t now = bytes_in_use += static_cast<int64_t>(size);
  int64_t most = most_bytes;
  while (now > most && !most_bytes.compare_exchange_weak(most, now)) {
  }
  return memory + room;
}

void* allocate_or_throw(size_t size, size_t alignment) {
  void* const memory = allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void release(void* memory, size_t alignment) {
  if (memory == nullptr) return;
  const size_t room = std::max(alignment, alignof(std::max_align_t));
  auto* const bytes = static_cast<char*>(memory);
  bytes_in_use -= static_cast<int64_t>(*reinterpret_cast<size_t*>(bytes - sizeof(size_t)));
  std::free(bytes - room);
}

size_t of(std::align_val_t a) { return static_cast<size_t>(a); }

}  // namespace

void* operator new(size_t n) { return allocate_or_throw(n, 0); }
void* operator new[](size_t n) { return allocate_or_throw(n, 0); }
void* operator new(size_t n, const std::nothrow_t&) noexcept { return allocate(n, 0); }
void* operator new[](size_t n, const std::nothrow_t&) noexcept { return allocate(n, 0); }
void* operator new(size_t n, std::align_val_t a) { return allocate_or_throw(n, of(a)); }
void* operator new[](size_t n, std::align_val_t a) { return allocate_or_throw(n, of(a)); }
void* operator new(size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(n, of(a));
}
void* operator new[](size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(n, of(a));
}
void operator delete(void* memory) noexcept { release(memory, 0); }
void operator delete[](void* memory) noexcept { release(memory, 0); }
void operator delete(void* memory, size_t) noexcept { release(memory, 0); }
void operator delete[](void* memory, size_t) noexcept { release(memory, 0); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { release(memory, 0); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { release(memory, 0); }
void operator delete(void* memory, std::align_val_t a) noexcept { release(memory, of(a)); }
void operator delete[](void* memory, std::align_val_t a) noexcept { release(memory, of(a)); }
void operator delete(void* memory, size_t, std::align_val_t a) noexcept { release(memory, of(a)); }
void operator delete[](void* memory, size_t, std::align_val_t a) noexcept {
  release(memory, of(a));
}

namespace weft {
namespace {

using kernels::MatmulPath;
using model::RowKind;
using model::StepShape;

/// The most that fn() has at a time, beyond what was there before.
template <class Fn>
int64_t most_taken_by(const Fn& fn) {
  const int64_t before = bytes_in_use;
  most_bytes = before;
  fn();
  return most_bytes - before;
}

/// Rows of a step: prompts first, then sequences that decode at the end of a context.
struct Case {
  std::vector<int32_t> prompts;
  int32_t n_decoding = 0;
  int32_t decode_at = 0;
  bool receives = false;
};

class Step {
 public:
  Step(test::TestModel& model, const Case& what) : model_(model), what_(what) {
    const auto add = [&](int32_t begin, int32_t n, RowKind kind) {
      const kv::SequenceId id = model_.cache().create_sequence();
      auto reservation = model_.cache().reserve(id, begin + n);
      ASSERT_TRUE(reservation.is_ok()) << reservation.status().message();
      reservations_.push_back(std::move(*reservation));
      const std::vector<int32_t> tokens(static_cast<size_t>(n), 3);
      rows_.add(id, tokens, begin, kind);
      wanted_.push_back(rows_.size() - 1);
    };
    for (const int32_t n : what.prompts) add(0, n, RowKind::kPrompt);
    for (int i = 0; i < what.n_decoding; ++i) add(what.decode_at, 1, RowKind::kDecode);
  }

  StepShape shape() const {
    StepShape shape{.decode_rows = what_.n_decoding,
                    .n_slots = what_.n_decoding > 0 ? what_.decode_at + 1 : 1,
                    .logit_rows = std::ssize(wanted_),
                    .receives = what_.receives};
    for (const int32_t n : what_.prompts) {
      shape.prompt_rows += n;
      shape.n_slots = std::max<int64_t>(shape.n_slots, n);
    }
    return shape;
  }

  void run() {
    std::vector<float> received(what_.receives ? what_.prompts.front() : 0);
    auto batch = model_.forward().start(model_.cache(), rows_);
    ASSERT_TRUE(batch.is_ok()) << batch.status().message();
    const int32_t n_layers = model_.model().config().n_layers;
    for (int32_t layer = 0; layer + 1 < n_layers; ++layer) {
      model_.forward().run_layer(*batch, layer, {.received = received});
    }
    model_.forward().run_last_layer(*batch, wanted_);
    std::vector<int64_t> left(wanted_.size());
    for (size_t i = 0; i < left.size(); ++i) left[i] = static_cast<int64_t>(i);
    std::vector<float> logits(left.size() * model_.n_vocab());
    model_.forward().logits(*batch, left, {logits, model_.n_vocab()});
  }

 private:
  test::TestModel& model_;
  Case what_;
  model::Rows rows_;
  std::vector<int64_t> wanted_;
  std::vector<kv::Reservation> reservations_;
};

const std::vector<Case>& steps() {
  static const std::vector<Case> all = {
      {{1}, 0, 0, false},    {{40}, 0, 0, false},
      {{200}, 0, 0, true},   {{700}, 0, 0, false},
      {{1100}, 0, 0, false}, {{}, 1, 30, false},
      {{}, 3, 700, false},   {{}, 12, 1500, false},
      {{}, 40, 600, false},  {{30, 30, 100}, 9, 900, false},
  };
  return all;
}

/// Of the paths that this machine has at full speed, and f32.
std::vector<MatmulPath> paths() {
  std::vector<MatmulPath> all = {MatmulPath::kF32, MatmulPath::kInt8};
  if (kernels::onednn_has_bf16()) all.push_back(MatmulPath::kBf16);
  return all;
}

/// oneDNN's own objects, which nobody can say the size of beforehand.
constexpr int64_t kOneDnnBytes = 96 << 10;
/// Vectors of the batch and the like, beside what grows with rows.
constexpr int64_t kSmallBytes = 8 << 10;

struct Setup {
  kernels::Isa isa = kernels::best_isa();
  MatmulPath path = MatmulPath::kF32;
  int n_threads = 1;
};

void expect_bounds(const std::string& file, const Setup& setup) {
  for (const Case& one : steps()) {
    test::TestModel model(file, {.n_threads = setup.n_threads,
                                 .isa = setup.isa,
                                 .matmul_path = setup.path,
                                 .capacity_tokens = 40000});
    Step step(model, one);
    const StepShape shape = step.shape();
    const model::StepScratch scratch(model.model(), model.context(), model.cache().layout());
    const int64_t computed = scratch.bytes(shape);
    const int64_t taken = most_taken_by([&] { step.run(); });
    SCOPED_TRACE(fmt::format("{} {} path {}: {} prompt rows, {} decode rows: takes {}, computed {}",
                             file, kernels::isa_name(setup.isa), to_underlying(setup.path),
                             shape.prompt_rows, shape.decode_rows, taken, computed));
    const bool is_bf16 = setup.path == MatmulPath::kBf16 && shape.prompt_rows > 0;
    EXPECT_LE(taken, computed + kSmallBytes + (is_bf16 ? kOneDnnBytes : 0));
    // Of several threads one may find no task left, and then takes nothing.
    if (setup.n_threads > 1) continue;
    EXPECT_LE(computed, taken + taken / 10 + kSmallBytes);
  }
}

class StepScratch : public ::testing::Test {
 protected:
  std::string file_of(const test::IdentityCase& one) const {
    const std::string file = dir_.path() + "/" + one.name + ".gguf";
    EXPECT_TRUE(gguf::write_random_model(posix_env(), file, one.random).is_ok());
    return file;
  }
  static std::vector<test::IdentityCase> models() {
    std::vector<test::IdentityCase> all = test::identity_cases();
    std::erase_if(all, [](const test::IdentityCase& one) { return !one.file.empty(); });
    return all;
  }

 private:
  test::TempDir dir_;
};

TEST_F(StepScratch, IsWhatAStepTakesAndHardlyMore) {
  for (const test::IdentityCase& one : models()) {
    const std::string file = file_of(one);
    for (const MatmulPath path : paths()) expect_bounds(file, {.path = path});
  }
}

TEST_F(StepScratch, FollowsTheInstructionSet) {
  for (const test::IdentityCase& one : models()) {
    if (one.name != "llama3_q4_k_m" && one.name != "mixtral_q8_0") continue;
    const std::string file = file_of(one);
    for (const kernels::Isa isa : test::machine_isas()) {
      for (const MatmulPath path : {MatmulPath::kF32, MatmulPath::kInt8}) {
        expect_bounds(file, {.isa = isa, .path = path});
      }
    }
  }
}

TEST_F(StepScratch, IsEnoughForAnyNumberOfThreads) {
  const std::string file = file_of(models().front());
  for (const int n_threads : {2, 3, 8}) expect_bounds(file, {.n_threads = n_threads});
}

/// Records come from the disk, each layer as it is needed; all tokens of the chunks are recomputed.
TEST_F(StepScratch, HoldsAFusionWithItsLayersInFlight) {
  for (const test::IdentityCase& one : models()) {
    if (one.name != "gqa_f32" && one.name != "llama3_q4_k_m" && one.name != "gemma3_q8_0") continue;
    const std::string file = file_of(one);
    for (const fusion::SelectorKind selector :
         {fusion::SelectorKind::kQueryAttention, fusion::SelectorKind::kVDeviation}) {
      const test::TempDir store_dir;
      auto store = store::ChunkStore::open(posix_env(),
                                           {.dir = store_dir.path() + "/store", .create = true});
      ASSERT_TRUE(store.is_ok()) << store.status().message();
      fusion::Prompt prompt{.prefix = std::vector<int32_t>(40, 7), .chunks = {}, .suffix = {}};
      for (int32_t i = 0; i < 5; ++i) prompt.chunks.emplace_back(200, 10 + i);
      prompt.suffix.assign(100, 9);
      {
        test::TestModel computing(file);
        ASSERT_TRUE(computing.fusor(store->get(), {4, 5, 6})->gather(prompt).is_ok());
      }
      test::TestModel model(file, {.n_threads = 1});
      const auto fusor = model.fusor(store->get(), {4, 5, 6});
      const int64_t n = prompt.n_tokens();
      const fusion::FusionOptions options{.mode = fusion::ReuseMode::kBlend,
                                          .ratio = 1,
                                          .selector = selector,
                                          .allow_plain = false};
      const int64_t computed =
          model::StepScratch(model.model(), model.context(), model.cache().layout())
              .bytes({.prompt_rows = n, .n_slots = n, .logit_rows = 1, .receives = true}) +
          fusion::fusion_scratch_bytes(model.model().config(), n);
      const int64_t taken = most_taken_by([&] {
        auto prefilled = fusor->prefill(prompt, options);
        ASSERT_TRUE(prefilled.is_ok()) << prefilled.status().message();
        EXPECT_GT(prefilled->report.recomputed_tokens, 900);
      });
      SCOPED_TRACE(fmt::format("{} {}: takes {}, computed {}", one.name,
                               fusion::kSelectors.name(selector), taken, computed));
      EXPECT_LE(taken, computed);
      // One number for both selectors and for chunks of any length.
      EXPECT_LE(computed, taken + taken / 4);
    }
  }
}

/// So that a limit can be halved for: more rows never take less.
TEST_F(StepScratch, GrowsWithEachNumber) {
  test::TestModel model(file_of(models()[2]), {.n_threads = 1});
  const model::StepScratch scratch(model.model(), model.context(), model.cache().layout());
  using Member = int64_t StepShape::*;
  for (const Member member : {&StepShape::prompt_rows, &StepShape::decode_rows, &StepShape::n_slots,
                              &StepShape::logit_rows}) {
    StepShape shape{.prompt_rows = 3, .decode_rows = 3, .n_slots = 40, .logit_rows = 1};
    int64_t before = scratch.bytes(shape);
    for (int i = 0; i < 2000; ++i) {
      ++(shape.*member);
      const int64_t now = scratch.bytes(shape);
      ASSERT_GE(now, before) << i;
      before = now;
    }
  }
}

/// Engines as commands open them, under a limit.
class LimitedEngine : public StepScratch {
 protected:
  void SetUp() override {
    ASSERT_TRUE(gguf::write_random_model(posix_env(), file_,
                                         {.n_layers = 6,
                                          .n_embd = 128,
                                          .n_ff = 384,
                                          .n_heads = 8,
                                          .n_kv_heads = 2,
                                          .head_dim = 16,
                                          .vocab = 600,
                                          .context_length = 4096,
                                          .recipe = "Q8_0"})
                    .is_ok());
  }
  std::unique_ptr<engine::Engine> open(uint64_t limit_bytes, const engine::StepNeeds& steps) {
    auto engine = engine::Engine::open(posix_env(), {.model_path = file_,
                                                     .n_threads = 2,
                                                     .kv_limit_bytes = limit_bytes,
                                                     .steps = steps,
                                                     .n_contexts = steps.n_sequences,
                                                     .compute = "int8"});
    EXPECT_TRUE(engine.is_ok()) << engine.status().message();
    return std::move(*engine);
  }
  uint64_t limit_of(int64_t n_pages, const engine::StepNeeds& steps) {
    return static_cast<uint64_t>(open(0, steps)->limit_to_hold(n_pages));
  }
  /// Expects that what `run` takes beside the pages, with what opening took for steps, stays within
  /// what the limit has for it; returns it as a share of that.
  template <class Run>
  double share_of_scratch(uint64_t limit_bytes, const engine::StepNeeds& steps, const Run& run) {
    const int64_t before_unlimited = bytes_in_use;
    auto unlimited = open(0, steps);
    const int64_t as_usual = bytes_in_use - before_unlimited;
    unlimited.reset();
    const int64_t before = bytes_in_use;
    const auto engine = open(limit_bytes, steps);
    // The cache's own integers are fewer than those of the larger one.
    const int64_t at_once = std::max<int64_t>(bytes_in_use - before - as_usual, 0);
    const int64_t taken = at_once + most_taken_by([&] { run(*engine); });
    EXPECT_LE(taken, engine->scratch_bytes() + kOtherBytes);
    EXPECT_LE(engine->scratch_bytes() + engine->kv_usage().pages * engine->page_bytes(),
              static_cast<int64_t>(limit_bytes));
    return 1.0 * taken / engine->scratch_bytes();
  }
  std::vector<int32_t> ids(int32_t n) const {
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < n; ++i) ids.push_back((i * 37 + i / 7) % 590);
    return ids;
  }
  /// Tokens, texts, block tables: what grows with requests and is no activation.
  static constexpr int64_t kOtherBytes = 160 << 10;
  test::TempDir models_;
  const std::string file_ = models_.path() + "/model.gguf";
};

TEST_F(LimitedEngine, ShorterStepsGiveTheBitsOfOne) {
  const std::vector<int32_t> prompt = ids(900);
  const auto whole = open(0, {});
  const kv::OwnedSequence all = whole->create_sequence();
  const auto expected = whole->append(all, prompt);
  ASSERT_TRUE(expected.is_ok());
  const auto tight = open(limit_of(58, {}), {});
  EXPECT_EQ(tight->step_rows(), 64);
  const kv::OwnedSequence some = tight->create_sequence();
  const auto logits = tight->append(some, prompt);
  ASSERT_TRUE(logits.is_ok()) << logits.status().message();
  EXPECT_EQ(*logits, *expected);
}

TEST_F(LimitedEngine, APromptStaysWithinTheLimitAndUsesIt) {
  for (const int64_t n_pages : {6, 60, 200}) {
    const double share = share_of_scratch(limit_of(n_pages, {}), {}, [&](engine::Engine& engine) {
      const kv::OwnedSequence sequence = engine.create_sequence();
      ASSERT_TRUE(engine.append(sequence, ids(engine.context_tokens() - 1)).is_ok());
      ASSERT_TRUE(engine.append(sequence, ids(1), {.kind = model::RowKind::kDecode}).is_ok());
    });
    EXPECT_GT(share, 0.7) << n_pages;
  }
}

TEST_F(LimitedEngine, SoDoManyRequestsOfWhichSomeArePreempted) {
  const engine::StepNeeds steps{.n_sequences = 12, .batches = true};
  const double share = share_of_scratch(limit_of(40, steps), steps, [&](engine::Engine& engine) {
    auto batcher = engine::Batcher::create(engine, {.max_running = 12});
    ASSERT_TRUE(batcher.is_ok());
    for (int i = 0; i < 12; ++i) {
      engine::BatchRequest request{.prompt = ids(20 + 5 * i),
                                   .options = {.max_tokens = 100, .ignore_end = true}};
      ASSERT_TRUE((*batcher)->submit(std::move(request)).is_ok());
    }
    for (bool goes_on = true; goes_on;) {
      const auto step = (*batcher)->step([](size_t, const auto&) {});
      ASSERT_TRUE(step.is_ok()) << step.status().message();
      goes_on = *step;
    }
    EXPECT_GT((*batcher)->stats().preemptions, 0);
  });
  EXPECT_GT(share, 0.5);
}

TEST_F(LimitedEngine, SoDoesAFusionAndTheMeasurementBeforeIt) {
  const engine::StepNeeds steps{.makes_chunks = true, .fuses = true};
  for (const int64_t n_pages : {40, 100}) {
    const test::TempDir store_dir;
    auto store =
        store::ChunkStore::open(posix_env(), {.dir = store_dir.path() + "/store", .create = true});
    ASSERT_TRUE(store.is_ok());
    share_of_scratch(limit_of(n_pages, steps), steps, [&](engine::Engine& engine) {
      ASSERT_TRUE(engine.prefill_rates().is_ok());
      const auto fusor = engine.make_fusor(store->get(), {4, 5, 6});
      fusion::Prompt prompt{.prefix = ids(20), .chunks = {}, .suffix = ids(40)};
      const int32_t n_chunks = (engine.context_tokens() - 60) / 120;
      for (int32_t i = 0; i < n_chunks; ++i) prompt.chunks.emplace_back(120, 10 + i);
      for (const auto& chunk : prompt.chunks) ASSERT_TRUE(fusor->ensure_stored(chunk).is_ok());
      for (const double ratio : {0.1, 1.0}) {
        const auto prefilled = fusor->prefill(
            prompt, {.mode = fusion::ReuseMode::kBlend, .ratio = ratio, .allow_plain = false});
        ASSERT_TRUE(prefilled.is_ok()) << prefilled.status().message();
        EXPECT_GT(prefilled->report.reused_tokens + prefilled->report.recomputed_tokens, 0);
      }
    });
  }
}

}  // namespace
}  // namespace weft
