// Memory and threads that run out at any point: operator new and pthread_create of this program
// fail on demand. Each call must end with an error or std::bad_alloc, keep no lock and no memory,
// and give the usual result when it is made again.
#include <dlfcn.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <new>
#include <numeric>
#include <optional>
#include <set>
#include <string>

#include "base/log.h"
#include "base/narrow.h"
#include "base/thread_pool.h"
#include "engine/batcher.h"
#include "engine/beam_generation.h"
#include "engine/engine.h"
#include "engine/generation.h"
#include "jinja/json.h"
#include "kv/cache.h"
#include "kv/invariants.h"
#include "support/instruction_sets.h"
#include "kv/session_file.h"
#include "sampling/logprobs.h"
#include "support/files.h"
#include "support/store_chunks.h"
#include "support/test_model.h"
#include "support/vocabularies.h"

namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// operator new can reach nothing but globals.
std::atomic<int64_t> allocations{0};  // since the count was last set to 0
std::atomic<int64_t> first_refused{kNever};
std::atomic<bool> refuses_all_after{false};
std::atomic<int64_t> in_use{0};
std::atomic<size_t> largest_bytes{0};  // asked for at once, since it was last set to 0

std::atomic<int64_t> threads{0};
std::atomic<int64_t> first_thread_refused{kNever};

bool refuses() {
  const int64_t n = allocations.fetch_add(1);
  return n == first_refused || (n > first_refused && refuses_all_after);
}

void* allocate(size_t size, size_t alignment) noexcept {
  if (refuses()) return nullptr;
  size_t largest = largest_bytes;
  while (size > largest && !largest_bytes.compare_exchange_weak(largest, size)) {
  }
  void* const memory = std::aligned_alloc(alignment, (size + alignment) / alignment * alignment);
  if (memory != nullptr) ++in_use;
  return memory;
}

void* allocate_or_throw(size_t size, size_t alignment) {
  void* const memory = allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void release(void* memory) noexcept {
  if (memory != nullptr) --in_use;
  std::free(memory);
}

constexpr size_t kUsual = alignof(std::max_align_t);

}  // namespace

void* operator new(size_t n) { return allocate_or_throw(n, kUsual); }
void* operator new[](size_t n) { return allocate_or_throw(n, kUsual); }
void* operator new(size_t n, const std::nothrow_t&) noexcept { return allocate(n, kUsual); }
void* operator new[](size_t n, const std::nothrow_t&) noexcept { return allocate(n, kUsual); }
void* operator new(size_t n, std::align_val_t a) {
  return allocate_or_throw(n, static_cast<size_t>(a));
}
void* operator new[](size_t n, std::align_val_t a) {
  return allocate_or_throw(n, static_cast<size_t>(a));
}
void* operator new(size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(n, static_cast<size_t>(a));
}
void* operator new[](size_t n, std::align_val_t a, const std::nothrow_t&) noexcept {
  return allocate(n, static_cast<size_t>(a));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, size_t) noexcept { release(memory); }
void operator delete[](void* memory, size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { release(memory); }

extern "C" int pthread_create(pthread_t* id, const pthread_attr_t* attributes, void* (*body)(void*),
                              void* argument) noexcept {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto create = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  if (threads.fetch_add(1) == first_thread_refused) return EAGAIN;
  return create(id, attributes, body, argument);
}

namespace weft {
namespace {

/// Allocation number `n` from now on is refused, and with `all_after` every later one.
class Refusal {
 public:
  Refusal(int64_t n, bool all_after) {
    allocations = 0;
    refuses_all_after = all_after;
    first_refused = n;
  }
  ~Refusal() { first_refused = kNever; }
  Refusal(const Refusal&) = delete;
  Refusal& operator=(const Refusal&) = delete;
};

/// Thread number `n` from now on is refused.
class ThreadRefusal {
 public:
  explicit ThreadRefusal(int64_t n) {
    threads = 0;
    first_thread_refused = n;
  }
  ~ThreadRefusal() { first_thread_refused = kNever; }
  ThreadRefusal(const ThreadRefusal&) = delete;
  ThreadRefusal& operator=(const ThreadRefusal&) = delete;
};

/// What a run came to: its result's bytes, or nothing after an error.
using Run = std::function<std::optional<std::string>()>;

std::string bytes_of(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}
std::string bytes_of(std::span<const int32_t> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

/// The result where there is one. An error that memory did not cause is a failure of the test.
template <class T>
std::optional<T> usable(Result<T> result) {
  if (result.is_ok()) return *std::move(result);
  EXPECT_EQ(result.status().code(), StatusCode::kResourceExhausted) << result.status().message();
  return std::nullopt;
}

/// Refuses one allocation of `run` after the other (all of them where they are few, else about
/// `max_points` spread over them, the first ones all), alone and with all that come after it.
/// `settle`, which nothing is refused to, puts back what a run may leave by right.
void fail_everywhere(
    const Run& run, int64_t max_points = 400, const std::function<void()>& settle = [] {}) {
  const auto good_run = [&] {
    auto result = run();
    settle();
    return result;
  };
  set_log_level(LogLevel::kQuiet);   // a store that could not be written warns
  const auto expected = good_run();  // and fills what is made once
  ASSERT_TRUE(expected.has_value());
  ASSERT_EQ(good_run(), expected);
  int64_t in_use_before = 0, n_allocations = 0;
  // More than once: a worker's scratch, as below.
  for (int i = 0; i == 0 || (in_use != in_use_before && i < 10); ++i) {
    in_use_before = in_use;
    allocations = 0;
    ASSERT_EQ(good_run(), expected);
    n_allocations = allocations;
  }
  ASSERT_EQ(in_use, in_use_before) << "the run leaks without a failure";
  const int64_t stride = std::max<int64_t>(1, n_allocations / max_points);
  int n_errors = 0;
  const auto run_refused = [&](int64_t n, bool all_after) {
    std::optional<std::string> got;
    bool threw = false;
    {
      const Refusal refusal(n, all_after);
      try {
        got = run();
      } catch (const std::bad_alloc&) {
        threw = true;
      } catch (const std::length_error&) {
        threw = true;
      }
    }
    n_errors += !got.has_value();
    if (got.has_value()) {
      ASSERT_EQ(*got, *expected) << "allocation " << n << " refused";
    }
    got.reset();
    settle();
    ASSERT_EQ(good_run(), expected)
        << "after allocation " << n << " had been refused, threw: " << threw;
  };
  for (const bool all_after : {false, true}) {
    for (int64_t n = 0; n < n_allocations; n += n < max_points / 4 ? 1 : stride) {
      ASSERT_NO_FATAL_FAILURE(run_refused(n, all_after));
      if (in_use == in_use_before) continue;
      // On a busy machine a worker may take its first task only now, and makes its scratch. What
      // leaks does so again.
      in_use_before = in_use;
      ASSERT_NO_FATAL_FAILURE(run_refused(n, all_after));
      ASSERT_EQ(in_use, in_use_before) << "left after allocation " << n << " had been refused";
    }
  }
  EXPECT_GT(n_errors, 0);
  set_log_level(LogLevel::kWarning);
  std::printf("%lld allocations, %d runs ended with an error\n",
              static_cast<long long>(n_allocations), n_errors);
}

constexpr const char* kText =
    "The harbour opens at seven, and 120 boats (or more) lie there; it's <b>quiet</b>.\n\n\tна "
    "рейде\xff стоят лодки 港は七時に開く.";

TEST(AllocationFailure, ByteLevelTokenizer) {
  fail_everywhere([]() -> std::optional<std::string> {
    auto tokenizer = usable(text::Tokenizer::create(
        test::bpe_test_vocab({"t h", "th e", "o p", "e n", "op en", "b o"})));
    if (!tokenizer) return std::nullopt;
    const auto ids = usable(tokenizer->encode(kText, {.parse_special = true}));
    if (!ids) return std::nullopt;
    return tokenizer->decode(*ids) + bytes_of(*ids);
  });
}

TEST(AllocationFailure, SentencePieceTokenizer) {
  fail_everywhere([]() -> std::optional<std::string> {
    auto tokenizer = usable(text::Tokenizer::create(
        test::spm_test_vocab({"th", "the", "op", "open", "\xE2\x96\x81the"})));
    if (!tokenizer) return std::nullopt;
    const text::TextPart parts[] = {{kText, false}, {"</s>", true}, {kText, false}};
    const auto ids = usable(tokenizer->encode_parts(parts));
    if (!ids) return std::nullopt;
    return tokenizer->decode(*ids) + bytes_of(*ids);
  });
}

TEST(AllocationFailure, Json) {
  fail_everywhere([]() -> std::optional<std::string> {
    const auto value = jinja::parse_json(
        R"({"messages": [{"role": "user", "content": "A text that is longer than short ones"},)"
        R"( [1, 2.5, true, null, {"deep": [[[[]]]]}]], "n": 12345678901})");
    if (!value.is_ok()) return std::nullopt;
    return "parsed";
  });
}

TEST(AllocationFailure, Sampler) {
  std::vector<float> logits(300);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>((i * 7919) % 97);
  fail_everywhere([&]() -> std::optional<std::string> {
    auto sampler = usable(sampling::Sampler::create(
        {.temperature = 0.7F, .top_k = 40, .top_p = 0.9F, .min_p = 0.1F}));
    if (!sampler) return std::nullopt;
    std::vector<int32_t> ids;
    for (int i = 0; i < 5; ++i) ids.push_back(sampler->sample(logits));
    for (const auto& top : sampling::top_logprobs(logits, 4)) ids.push_back(top.id);
    return bytes_of(ids);
  });
}

TEST(AllocationFailure, ThreadPoolWhoseTasksAllocate) {
  auto created = ThreadPool::create(3);
  ASSERT_TRUE(created.is_ok());
  ThreadPool& pool = **created;
  fail_everywhere([&]() -> std::optional<std::string> {
    std::vector<int32_t> sums(20);
    pool.run(20, [&](int task, int) {
      const std::vector<int32_t> values(static_cast<size_t>(task + 1), task);
      for (const int32_t value : values) sums[static_cast<size_t>(task)] += value;
    });
    return bytes_of(sums);
  });
}

// How long a layer is, only the file says; a sparse one takes no room on the disk.
TEST(LargestAllocation, OfASessionsFileIsAPieceUntilItsLayersHavePages) {
  constexpr int32_t kSlots = 4096;  // of 4 KB a layer
  const auto make_cache = [](int32_t capacity_tokens) {
    auto cache = kv::Cache::create({.n_layers = 1,
                                    .layout = {DType::kF32, DType::kF32, 256, 2, 16},
                                    .capacity_tokens = capacity_tokens});
    EXPECT_TRUE(cache.is_ok()) << cache.status().message();
    return *std::move(cache);
  };
  const test::TempDir dir;
  const auto cache = make_cache(2 * kSlots);
  const kv::SequenceId sequence = cache->create_sequence();
  cache->reserve(sequence, kSlots)->commit();
  const std::vector<int32_t> tokens(kSlots);
  std::ofstream out(dir / "session", std::ios::binary);
  ASSERT_TRUE(kv::write_session(*cache, sequence,
                                {.tokens = tokens,
                                 .n_slots = kSlots,
                                 .identity = std::as_bytes(std::span("x", 1)),
                                 .state = {}},
                                [&](std::span<const std::byte> bytes) {
                                  out.write(reinterpret_cast<const char*>(bytes.data()),
                                            std::ssize(bytes));
                                  return Status::ok();
                                })
                  .is_ok());
  out.close();
  const auto small = make_cache(kSlots / 2);
  auto file = posix_env().open_read(dir / "session");
  ASSERT_TRUE(file.is_ok());

  constexpr size_t kPiece = size_t{1} << 20;
  largest_bytes = 0;
  const auto reader = kv::SessionReader::open(*std::move(file), "s");
  ASSERT_TRUE(reader.is_ok()) << reader.status().message();
  ASSERT_GT(reader->head().layer_bytes(), 15 << 20);
  EXPECT_LE(largest_bytes, kPiece);
  largest_bytes = 0;
  EXPECT_EQ(reader->restore(*small, kSlots).status().code(), StatusCode::kResourceExhausted);
  EXPECT_LE(largest_bytes, kPiece / 8);
  EXPECT_TRUE(reader->restore(*cache, kSlots).is_ok());
}

class ModelFailure : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<test::TempDir>();
    ASSERT_TRUE(gguf::write_random_model(posix_env(), model(),
                                         {.n_layers = 3, .n_embd = 32, .n_ff = 64, .vocab = 300})
                    .is_ok());
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string model() { return folder_->path() + "/model.gguf"; }
  static engine::EngineOptions options() {
    return {.model_path = model(), .n_threads = 2, .context_tokens = 256, .compute = "f32"};
  }

  static int32_t used_pages(const engine::Engine& engine) {
    const kv::Usage kv = engine.kv_usage();
    return kv.pages - kv.free;
  }

  static std::unique_ptr<engine::Engine> open() {
    auto opened = engine::Engine::open(posix_env(), options());
    EXPECT_TRUE(opened.is_ok()) << opened.status().message();
    return *std::move(opened);
  }

  /// Prompt, then some tokens: the ids, and the last logits' bytes.
  static std::optional<std::string> answer(engine::Engine& engine) {
    const kv::OwnedSequence sequence = engine.create_sequence();
    auto logits = usable(engine.append(sequence, kPrompt));
    if (!logits) return std::nullopt;
    const std::string first = bytes_of(*logits);
    const auto made = usable(engine::generate(engine, sequence, *std::move(logits),
                                              {.max_tokens = 4, .n_logprobs = 2},
                                              [](std::string_view) { return true; }));
    if (!made) return std::nullopt;
    std::vector<int32_t> ids;
    for (const auto& token : made->tokens) ids.push_back(token.id);
    return first + bytes_of(ids) + made->text;
  }

  static fusion::Prompt fused_prompt() {
    return {.prefix = {1, 2, 3},
            .chunks = {test::random_ids(30, 300, 1), test::random_ids(25, 300, 2)},
            .suffix = {7, 8, 9}};
  }

  static inline const std::vector<int32_t> kPrompt = test::random_ids(20, 300, 3);
  static inline std::unique_ptr<test::TempDir> folder_;
};

TEST_F(ModelFailure, GgufParsing) {
  fail_everywhere([]() -> std::optional<std::string> {
    const auto file = usable(gguf::File::open(posix_env(), model()));
    if (!file) return std::nullopt;
    const auto parsed = usable(model::Model::open(*file));
    if (!parsed) return std::nullopt;
    return (*parsed)->fingerprint().to_hex();
  });
}

TEST_F(ModelFailure, EngineFromTheFileToTheAnswer) {
  fail_everywhere(
      []() -> std::optional<std::string> {
        auto engine = usable(engine::Engine::open(posix_env(), options()));
        if (!engine) return std::nullopt;
        return answer(**engine);
      },
      100);
}

TEST_F(ModelFailure, AnEngineGoesOnAfterwards) {
  const auto engine = open();
  fail_everywhere([&] { return answer(*engine); });
  EXPECT_EQ(used_pages(*engine), 0);
}

TEST_F(ModelFailure, BeamsThatForkTheSequenceOfOneAnother) {
  const auto engine = open();
  fail_everywhere([&]() -> std::optional<std::string> {
    const auto choices = usable(engine::generate_beams(
        *engine, kPrompt, {.n_beams = 3, .max_tokens = 6, .stops = {"never said"}},
        [](int32_t) { return true; }));
    if (!choices) return std::nullopt;
    std::string out;
    for (const engine::BeamChoice& choice : *choices) {
      std::vector<int32_t> ids;
      for (const auto& token : choice.generation.tokens) ids.push_back(token.id);
      out += choice.generation.text + bytes_of(ids);
    }
    return out;
  });
  EXPECT_EQ(used_pages(*engine), 0);
}

/// The answers of some requests in the same steps, `chunked` of them over chunks; with too few
/// pages one of them is preempted.
std::optional<std::string> batch_answers(engine::Engine& engine, fusion::Fusor* fusor = nullptr,
                                         const fusion::Prompt& chunked = {}) {
  const auto batcher =
      usable(engine::Batcher::create(engine, {.max_running = 3, .prompt_rows = 8}));
  if (!batcher) return std::nullopt;
  std::string out;
  bool any_failed = false;
  const auto on_done = [&](size_t index, const Result<engine::BatchAnswer>& generation) {
    any_failed |= !usable(generation);
    if (!generation.is_ok()) return;
    out += std::to_string(index);
    for (const auto& token : generation->tokens) out += " " + std::to_string(token.id);
  };
  const auto ended = [&](const auto& result) {
    if (usable(result)) return false;
    (*batcher)->cancel(on_done);
    return true;
  };
  try {
    for (uint32_t i = 0; i < 4; ++i) {
      const engine::BatchRequest request{test::random_ids(15, 300, i % 3),
                                         {.max_tokens = 20, .ignore_end = true}};
      if (ended((*batcher)->submit(request))) return std::nullopt;
      if (fusor == nullptr || i % 2 == 0) continue;
      if (ended((*batcher)->submit({.fusor = fusor,
                                    .prompt = chunked,
                                    .fusion = {.ratio = 0.2, .allow_plain = false},
                                    .options = {.max_tokens = 10, .ignore_end = true}}))) {
        return std::nullopt;
      }
    }
    for (;;) {
      const auto goes_on = (*batcher)->step(on_done);
      if (ended(goes_on)) return std::nullopt;
      EXPECT_TRUE((*batcher)->violations().empty());
      if (!*goes_on) return any_failed ? std::nullopt : std::optional(out);
    }
  } catch (const std::bad_alloc&) {  // of submit, or of what this test does
    (*batcher)->cancel([](size_t, const Result<engine::BatchAnswer>&) {});
    throw;
  }
}

TEST_F(ModelFailure, ManyRequestsInTheSameSteps) {
  engine::EngineOptions tight = options();
  tight.kv_limit_bytes = narrow<uint64_t>(open()->limit_to_hold(5));
  const auto engine = *engine::Engine::open(posix_env(), tight);
  fail_everywhere([&] { return batch_answers(*engine); }, 400, [&] { engine->forget_prefixes(); });
  EXPECT_EQ(used_pages(*engine), 0);
}

TEST_F(ModelFailure, FusionsInTheSameStepsAsOthers) {
  engine::EngineOptions tight = options();
  tight.kv_limit_bytes = narrow<uint64_t>(open()->limit_to_hold(11));
  const auto engine = *engine::Engine::open(posix_env(), tight);
  const auto fusor = engine->make_fusor(nullptr, {4, 5});
  fail_everywhere([&] { return batch_answers(*engine, fusor.get(), fused_prompt()); }, 100,
                  [&] { engine->forget_prefixes(); });
  EXPECT_EQ(engine->kv_usage().held(), 0);
}

TEST_F(ModelFailure, FusionOfChunksFromAStore) {
  const auto engine = open();
  const fusion::Prompt prompt = fused_prompt();
  const std::string store_dir = folder_->path() + "/store";
  fail_everywhere(
      [&]() -> std::optional<std::string> {
        auto store =
            usable(store::ChunkStore::open(posix_env(), {.dir = store_dir, .create = true}));
        if (!store) return std::nullopt;
        const auto fusor = engine->make_fusor(store->get(), {4, 5});
        for (const auto& chunk : prompt.chunks) {
          const Status stored = fusor->ensure_stored(chunk);
          if (!stored.is_ok()) return std::nullopt;
        }
        const auto done = usable(fusor->prefill(prompt, {.ratio = 0.2, .allow_plain = false}));
        if (!done) return std::nullopt;
        return bytes_of(done->logits);
      },
      100,
      [&] {
        engine->forget_prefixes();
        std::filesystem::remove_all(store_dir);
      });
  EXPECT_EQ(used_pages(*engine), 0);
}

/// A load without memory for its copy takes nothing of the memory tier's room.
TEST(AllocationFailure, TheStoresMemoryTierKeepsItsRoom) {
  const test::MemoryTempDir dir;
  const test::TestChunk first(1, 5000), second(2, 5000);
  const auto store = test::open_store(posix_env(), dir.path(), 0,
                                      std::max(first.copy_bytes(), second.copy_bytes()));
  ASSERT_TRUE(put(*store, first).is_ok());
  ASSERT_TRUE(put(*store, second).is_ok());
  fail_everywhere(
      [&]() -> std::optional<std::string> {
        std::string bytes;
        store::AlignedBytes scratch;
        for (const test::TestChunk* chunk : {&first, &second}) {
          auto handle = usable(store->find(chunk->key()));
          if (!handle) return std::nullopt;
          for (uint32_t layer = 0; layer < chunk->layers.size(); ++layer) {
            const auto loaded = usable(handle->load_layer(layer, scratch));
            if (!loaded) return std::nullopt;
            bytes.append(reinterpret_cast<const char*>(loaded->data()), loaded->size());
          }
        }
        return bytes;
      },
      400,
      [&] {
        ASSERT_TRUE(load(*store, first).is_ok());
        ASSERT_TRUE(load(*store, second).is_ok());
        ASSERT_EQ(store->find(second.key())->tier(), store::Tier::kMemory);
      });
}

/// A record is written, named and evicted by all, whatever failed before.
TEST(AllocationFailure, TheStoresRecordsAreAllCounted) {
  const test::MemoryTempDir dir;
  const std::vector<test::TestChunk> chunks = {test::TestChunk(1, 5000), test::TestChunk(2, 5000),
                                               test::TestChunk(3, 5000)};
  uint64_t largest = 0;
  for (const auto& chunk : chunks) largest = std::max(largest, chunk.file_bytes());
  const auto store = test::open_store(posix_env(), dir.path(), largest);
  const auto put_all = [&] {
    for (const auto& chunk : chunks) {
      const Status status = put(*store, chunk);
      if (!status.is_ok()) return status;
    }
    return Status::ok();
  };
  fail_everywhere(
      [&]() -> std::optional<std::string> {
        if (!put_all().is_ok()) return std::nullopt;
        return "put";
      },
      400,
      [&] {
        ASSERT_TRUE(put_all().is_ok());
        uint64_t n_files = 0;
        for (const auto& file : std::filesystem::directory_iterator(dir.path()))
          n_files += file.path().extension() == ".chunk";
        ASSERT_EQ(n_files, 1u) << "a record that nothing evicts";
        ASSERT_EQ(store->stat()->disk.records, 1u);
        ASSERT_TRUE(load(*store, chunks.back()).is_ok());
      });
}

TEST_F(ModelFailure, ThreadsThatAreRefusedAreAnError) {
  constexpr int kThreads = 8;
  for (int n = 0; n < kThreads - 1; ++n) {
    const ThreadRefusal refusal(n);
    const auto pool = ThreadPool::create(kThreads);
    ASSERT_FALSE(pool.is_ok());
    EXPECT_EQ(pool.status().code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(pool.status().message(),
                ::testing::HasSubstr("thread " + std::to_string(n + 2) + " of 8: "));
    EXPECT_THAT(pool.status().message(), ::testing::HasSubstr("-t"));
    EXPECT_THAT(pool.status().message(), ::testing::HasSubstr("ulimit -u"));
  }
  {
    const ThreadRefusal refusal(0);
    const auto engine = engine::Engine::open(posix_env(), options());
    ASSERT_FALSE(engine.is_ok());
    EXPECT_EQ(engine.status().code(), StatusCode::kResourceExhausted);
  }
  EXPECT_TRUE(open() != nullptr);
}

TEST_F(ModelFailure, FusionWithoutAThreadIsAnErrorAndLeavesNothing) {
  const auto engine = open();
  const auto fusor = engine->make_fusor(nullptr, {});
  const fusion::FusionOptions options{.ratio = 0.2, .allow_plain = false};
  {
    const ThreadRefusal refusal(0);
    const auto done = fusor->prefill(fused_prompt(), options);
    ASSERT_FALSE(done.is_ok());
    EXPECT_EQ(done.status().code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(done.status().message(), ::testing::HasSubstr("loads chunks ahead"));
  }
  EXPECT_EQ(used_pages(*engine), 0);
  const auto done = fusor->prefill(fused_prompt(), options);
  ASSERT_TRUE(done.is_ok()) << done.status().message();
}

/// A KV cache of two groups of layers with two sequences, and all that a caller may see of them.
class SmallCache {
 public:
  static constexpr int32_t kTokens = 100;

  SmallCache() {
    cache = *kv::Cache::create({.n_layers = 2,
                                .layer_groups = {0, 1},
                                .layout = {DType::kF32, DType::kF32, 8, 1, 16},
                                .capacity_tokens = 512});
    std::iota(ids.begin(), ids.end(), 5);
    full = cache->create_sequence();
    kv::Reservation reservation = cache->reserve(full, kTokens).value();
    for (int32_t slot = 0; slot < kTokens; ++slot) {
      for_slot(slot, [&](float& k, float& v, int layer) {
        k = slot;
        v = 1000 * layer + slot;
      });
    }
    reservation.commit();
    cache->publish(full, ids);
    empty = cache->create_sequence();
  }

  /// As model/context_shift does: memory is taken before K and V change.
  void move(std::span<const int32_t> by, int32_t from, int32_t to) {
    const std::vector<int32_t> deltas(by.begin(), by.end());
    for (size_t i = 0; i < deltas.size(); ++i) {
      float k[2], v[2];
      for_slot(from++, [&](float& ki, float& vi, int layer) {
        k[layer] = ki + deltas[i];
        v[layer] = vi;
      });
      for_slot(to++, [&](float& ki, float& vi, int layer) {
        ki = k[layer];
        vi = v[layer];
      });
    }
  }

  /// Sequences, their slots and K and V of them; not which pages hold them.
  std::string state() {
    std::string text;
    for (const kv::Snapshot& group : cache->snapshots()) {
      for (const auto& named : group.sequences) {
        const kv::Sequence& sequence = named.sequence;
        text += fmt::format("\n{}+{}", sequence.length, sequence.reserved);
        for (const kv::SlotRun& run : sequence.kinds) {
          text += fmt::format(" {} to {}", to_underlying(run.kind), run.end);
        }
        for (int32_t slot = 0; slot < sequence.length; ++slot) {
          text += fmt::format(" {}", sequence.positions.at(slot));
        }
      }
    }
    for (int32_t slot = 0; slot < std::min(cache->length(full), kTokens); ++slot) {
      for_slot(slot, [&](float k, float v, int) { text += fmt::format(" {}/{}", k, v); });
    }
    return text;
  }

  std::unique_ptr<kv::Cache> cache;
  std::vector<int32_t> ids = std::vector<int32_t>(kTokens);
  kv::SequenceId full{};  // kTokens prompt tokens, published
  kv::SequenceId empty{};
  std::vector<kv::Reservation> open;

 private:
  template <class Fn>
  void for_slot(int32_t slot, const Fn& fn) {
    for (int layer = 0; layer < 2; ++layer) {
      const kernels::PagedKv kv = cache->layer(layer);
      const int32_t* table = cache->layer_table(full, layer).data();
      fn(*reinterpret_cast<float*>(kernels::k_at(kv, table, slot, 0)),
         *reinterpret_cast<float*>(kernels::v_at(kv, table, slot, 0)), layer);
    }
  }
};

using CacheOperation = void (*)(SmallCache&);
void nothing(SmallCache&) {}

/// Refuses one allocation of `operation` after the other, each on a cache of its own that `prepare`
/// has changed: all groups are then as before or, if it ended, as after it, and it can be done
/// again.
void expect_all_or_nothing(CacheOperation operation, CacheOperation prepare = nothing) {
  SmallCache done;
  prepare(done);
  operation(done);
  const std::string after = done.state();
  for (const bool all_after : {false, true}) {
    for (int64_t n = 0;; ++n) {
      SCOPED_TRACE(fmt::format("allocation {} refused, those after it too: {}", n, all_after));
      SmallCache small;
      prepare(small);
      const std::string before = small.state();
      bool threw = false;
      {
        const Refusal refusal(n, all_after);
        try {
          operation(small);
        } catch (const std::bad_alloc&) {
          threw = true;
        }
      }
      ASSERT_THAT(kv::violations(small.cache->snapshots()), ::testing::IsEmpty());
      ASSERT_EQ(small.state(), threw ? before : after);
      if (threw) {
        operation(small);
        ASSERT_EQ(small.state(), after);
      }
      small.open.clear();
      if (threw) continue;
      EXPECT_GT(n, 0) << "nothing was refused";
      break;
    }
  }
}

// A cut of a sequence whose positions were shifted has runs of them to copy.
void shift_the_end(SmallCache& c) {
  ASSERT_TRUE(c.cache->shift(c.full, 50, 100, 7, [&](auto by) { c.move(by, 50, 50); }).is_ok());
}

TEST(CacheAllocation, TokensAreRemovedInAllGroupsOrInNone) {
  const CacheOperation remove = [](SmallCache& c) {
    (void)c.cache->remove(c.full, 10, 40, [&](auto by) { c.move(by, 40, 10); });
  };
  expect_all_or_nothing(remove);
  expect_all_or_nothing(remove, shift_the_end);
  expect_all_or_nothing([](SmallCache& c) {
    (void)c.cache->remove(c.full, 30, 100, [](auto) { FAIL() << "nothing is to move"; });
  });
}

TEST(CacheAllocation, PositionsChangeInAllGroupsOrInNone) {
  expect_all_or_nothing([](SmallCache& c) {
    (void)c.cache->shift(c.full, 50, 100, 7, [&](auto by) { c.move(by, 50, 50); });
  });
  expect_all_or_nothing([](SmallCache& c) {
    (void)c.cache->divide(c.full, 20, 90, 3, [&](auto by) { c.move(by, 20, 20); });
  });
}

TEST(CacheAllocation, ASequenceIsCutInAllGroupsOrInNone) {
  expect_all_or_nothing([](SmallCache& c) { (void)c.cache->truncate(c.full, 60); }, shift_the_end);
}

TEST(CacheAllocation, APrefixIsAttachedInAllGroupsOrInNone) {
  expect_all_or_nothing([](SmallCache& c) { (void)c.cache->attach_prefix(c.empty, c.ids); });
}

TEST(CacheAllocation, SequencesComeAndGrowInAllGroupsOrInNone) {
  expect_all_or_nothing([](SmallCache& c) { (void)c.cache->create_sequence(); });
  expect_all_or_nothing([](SmallCache& c) { (void)c.cache->fork(c.full); });
  expect_all_or_nothing([](SmallCache& c) {
    const kv::Growth growths[] = {{c.full, 30}, {c.empty, 30}};
    for (kv::Reservation& one : c.cache->reserve_all(growths).value()) one.commit();
  });
  expect_all_or_nothing([](SmallCache& c) { (void)c.cache->make_writable(c.full, 5, 95); });
  expect_all_or_nothing([](SmallCache& c) {
    const kv::SlotRun runs[] = {{20, kv::SlotKind::kPrompt}, {40, kv::SlotKind::kDecode}};
    (void)c.cache->restore(40, runs, [](int32_t, std::span<std::byte> bytes) {
      std::ranges::fill(bytes, std::byte{0});
      return Status::ok();
    });
  });
}

TEST(CacheAllocation, ReservedSlotsAreMarkedInAllGroupsOrInNone) {
  expect_all_or_nothing([](SmallCache& c) { c.open.front().mark_from(110, kv::SlotKind::kDecode); },
                        [](SmallCache& c) {
                          c.open.push_back(c.cache->reserve(c.full, 20).value());
                          c.open.front().mark_from(104, kv::SlotKind::kFused);
                        });
}

// Here groups may differ: what some have and others do not is not found.
TEST(CacheAllocation, APublishedPrefixIsFoundAsFarAsAllGroupsHaveIt) {
  std::set<int32_t> lengths_found;
  bool threw = true;
  for (int64_t n = 0; threw; ++n) {
    SmallCache small;
    (void)small.cache->make_writable(small.full, 0, SmallCache::kTokens);
    small.cache->evict_unused_prefixes();
    const std::string before = small.state();
    threw = false;
    {
      const Refusal refusal(n, false);
      try {
        small.cache->publish(small.full, small.ids);
      } catch (const std::bad_alloc&) {
        threw = true;
      }
    }
    ASSERT_THAT(kv::violations(small.cache->snapshots()), ::testing::IsEmpty());
    ASSERT_EQ(small.state(), before);
    const int32_t found = small.cache->match_prefix(small.ids);
    lengths_found.insert(found);
    const auto attached = small.cache->attach_prefix(small.empty, small.ids);
    ASSERT_TRUE(attached.is_ok() && *attached == found);
    small.cache->publish(small.full, small.ids);
    ASSERT_EQ(small.cache->match_prefix(small.ids), 96);
    ASSERT_THAT(kv::violations(small.cache->snapshots()), ::testing::IsEmpty());
  }
  EXPECT_THAT(lengths_found, ::testing::ElementsAre(0, 16, 32, 48, 64, 80, 96));
}

/// Allocations in each layer of a step; the whole step is run, and nothing of it kept.
std::vector<int64_t> allocations_in_layers(test::TestModel& m, const model::Rows& rows) {
  auto batch = m.forward().start(m.cache(), rows);
  EXPECT_TRUE(batch.is_ok()) << batch.status().message();
  std::vector<int64_t> counts(static_cast<size_t>(m.model().config().n_layers));
  for (size_t layer = 0; layer < counts.size(); ++layer) {
    const int64_t before = allocations;
    m.forward().run_layer(*batch, static_cast<int32_t>(layer));
    counts[layer] = allocations - before;
  }
  return counts;
}

TEST(LayerAllocation, ALayerAllocatesNothingOnceAStepOfItsSizeHasRun) {
  test::TempDir dir;
  const gguf::RandomModelOptions dense{.n_embd = 64, .n_ff = 128, .recipe = "Q4_K_M"};
  gguf::RandomModelOptions experts{.n_embd = 64, .n_ff = 64, .recipe = "Q8_0"};
  experts.n_experts = 4;
  experts.n_experts_used = 2;
  for (const auto& options : {dense, experts}) {
    const std::string path = dir.path() + "/model.gguf";
    ASSERT_TRUE(gguf::write_random_model(posix_env(), path, options).is_ok());
    for (const auto path_of_products : test::machine_matmul_paths()) {
      // One thread: a worker's own memory comes with its first task of a size, and on a busy
      // machine that may be in a later step than the first.
      test::TestModel m(path, {.n_threads = 1, .matmul_path = path_of_products});
      const kv::SequenceId a = m.cache().create_sequence();
      const kv::SequenceId b = m.cache().create_sequence();
      const std::vector<int32_t> ids = test::random_ids(600, m.n_vocab(), 3);
      m.run(a, ids);
      const auto room_a = m.cache().reserve(a, 700);
      const auto room_b = m.cache().reserve(b, 700);
      ASSERT_TRUE(room_a.is_ok() && room_b.is_ok());
      model::Rows decode =
          model::Rows::of(a, std::span(ids).first(1), 600, model::RowKind::kDecode);
      model::Rows mixed = decode;
      mixed.add(b, ids, 0);
      model::Rows many = model::Rows::of(a, std::span(ids).first(40), 600, model::RowKind::kVerify);
      for (const model::Rows* rows : {&decode, &mixed, &many}) {
        // What oneDNN allocates to run a product is its own.
        if (path_of_products == kernels::MatmulPath::kBf16 && rows == &mixed) continue;
        const std::vector<int64_t> first = allocations_in_layers(m, *rows);
        if (rows == &decode) {
          EXPECT_GT(first[0], 0);  // so that what is counted is seen
        }
        EXPECT_THAT(allocations_in_layers(m, *rows), ::testing::Each(0))
            << "path " << static_cast<int>(path_of_products) << ", " << rows->size() << " rows";
      }
    }
  }
}

}  // namespace
}  // namespace weft
