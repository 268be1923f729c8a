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
      auto store = store::ChunkStore::open(
          posix_env(), {.dir = store_dir.path() + "/store", .create = true});
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

}  // namespace
}  // namespace weft
