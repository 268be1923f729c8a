// Fusion when the store fails under it: damaged records are computed anew, a full disk costs the
// record and not the answer, and the KV cache is as it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>

#include "base/log.h"
#include "support/fault_env.h"
#include "support/test_model.h"

namespace weft {
namespace {

using fusion::ChunkOrigin;
using fusion::FusionOptions;
using fusion::Prompt;
using fusion::ReuseMode;
using fusion::SelectorKind;
using test::FaultEnv;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int32_t kLayers = 6;
constexpr size_t kDamagedChunk = 1;

class FusionFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::kQuiet);
    const std::string path = dir_.path() + "/random.gguf";
    const gguf::RandomModelOptions options{.n_layers = kLayers,
                                           .n_embd = 96,
                                           .n_ff = 160,
                                           .n_heads = 6,
                                           .n_kv_heads = 2,
                                           .head_dim = 16};
    const Status written = gguf::write_random_model(posix_env(), path, options);
    ASSERT_TRUE(written.is_ok()) << written.message();
    model_ = std::make_unique<TestModel>(path);
    prompt_.prefix = test::random_ids(21, model_->n_vocab(), 1);
    prompt_.chunks = {test::random_ids(37, model_->n_vocab(), 2),
                      test::random_ids(64, model_->n_vocab(), 3),
                      test::random_ids(45, model_->n_vocab(), 4)};
    prompt_.suffix = test::random_ids(19, model_->n_vocab(), 5);
    anchor_ = test::random_ids(4, model_->n_vocab(), 6);
  }
  void TearDown() override { set_log_level(LogLevel::kWarning); }

  std::unique_ptr<store::ChunkStore> open_store(Env& env, uint64_t memory_limit_bytes = 0) {
    auto store = store::ChunkStore::open(
        env, {.dir = store_dir(), .memory_limit_bytes = memory_limit_bytes, .create = true});
    EXPECT_TRUE(store.is_ok()) << store.status().message();
    return std::move(*store);
  }
  std::string store_dir() const { return dir_.path() + "/store"; }

  Hash128 record(size_t chunk) const {
    fusion::KeyScope scope;
    scope.model_fingerprint = model_->model().fingerprint();
    scope.ropes = model_->model().config().ropes;
    scope.anchor = anchor_;
    const auto identity = fusion::chunk_identity(scope, prompt_.chunks[chunk]);
    return store::Key::of(identity).hash;
  }
  std::string record_path(size_t chunk) const {
    return join_path(store_dir(), store::record_file_name(record(chunk)));
  }

  /// Where a layer of the record begins: padding after layers is a multiple of the alignment.
  uint64_t layer_offset(size_t chunk, int32_t layer) const {
    const auto layer_bytes = static_cast<uint64_t>(fusion::record_layer_bytes(
        model_->model().config(), fusion::kUsualRecordType, std::ssize(prompt_.chunks[chunk])));
    const uint64_t stride = (layer_bytes + store::kRecordAlignment - 1) / store::kRecordAlignment *
                            store::kRecordAlignment;
    const uint64_t payload = std::filesystem::file_size(record_path(chunk)) - kLayers * stride;
    return payload + static_cast<uint64_t>(layer) * stride;
  }

  /// Stores every chunk of the prompt.
  void ingest(store::ChunkStore& store) {
    const auto fusor = model_->fusor(&store, anchor_);
    for (const std::vector<int32_t>& chunk : prompt_.chunks) {
      const Status stored = fusor->ensure_stored(chunk);
      ASSERT_TRUE(stored.is_ok()) << stored.message();
    }
  }

  fusion::Prefilled answer(fusion::Fusor& fusor, const FusionOptions& options) {
    auto done = fusor.prefill(prompt_, options);
    EXPECT_TRUE(done.is_ok()) << done.status().message();
    const kv::OwnedSequence freed = std::move(done->sequence);
    return std::move(*done);
  }

  /// What an undamaged store answers.
  std::vector<float> expected(const FusionOptions& options) {
    const auto store = open_store(posix_env());
    ingest(*store);
    const auto fusor = model_->fusor(store.get(), anchor_);
    const fusion::Prefilled done = answer(*fusor, options);
    EXPECT_THAT(done.report.notes, IsEmpty());
    for (const auto& chunk : done.report.chunks) EXPECT_EQ(chunk.origin, ChunkOrigin::kDisk);
    return done.logits;
  }

  using TestModel = test::TestModel;
  test::TempDir dir_;
  std::unique_ptr<TestModel> model_;
  Prompt prompt_;
  std::vector<int32_t> anchor_;
};

struct Way {
  const char* name;
  FusionOptions options;
  int32_t first_loaded_layer;
};

std::vector<Way> ways() {
  const FusionOptions query{.mode = ReuseMode::kBlend, .ratio = 0.2, .allow_plain = false};
  FusionOptions deviation = query;
  deviation.selector = SelectorKind::kVDeviation;
  deviation.checks = {{2, 0.4}, {4, 0.2}};
  const FusionOptions full{.mode = ReuseMode::kFull, .allow_plain = false};
  return {{"query attention", query, 0}, {"v-deviation", deviation, 2}, {"full", full, 0}};
}

TEST_F(FusionFaults, CancelledAnywhereNothingIsLeftAndTheNextAnswerIsTheSame) {
  const auto store = open_store(posix_env());
  const auto fusor = model_->fusor(store.get(), anchor_);
  std::vector<Way> all = ways();
  all.push_back({"none", {.mode = ReuseMode::kNone}, 0});
  all.push_back({"prefix", {.mode = ReuseMode::kPrefix}, 0});
  for (Way& way : all) {
    SCOPED_TRACE(way.name);
    const std::vector<float> undisturbed = answer(*fusor, way.options).logits;
    model_->cache().evict_unused_prefixes();
    const int32_t free_pages = model_->cache().free_page_count();
    int n_asked = 0;
    for (int cancelled_at = 0; n_asked >= cancelled_at; ++cancelled_at) {
      if (cancelled_at % 3 == 0) {  // chunks are missing, too
        ASSERT_TRUE(store->clear().is_ok());
      }
      n_asked = 0;
      way.options.cancelled = [&] { return n_asked++ == cancelled_at; };
      const Status done = fusor->prefill(prompt_, way.options).status();
      ASSERT_EQ(done.is_ok(), n_asked <= cancelled_at);
      if (!done.is_ok()) {
        EXPECT_EQ(done.code(), StatusCode::kCancelled);
      }
      model_->cache().evict_unused_prefixes();
      ASSERT_EQ(model_->cache().free_page_count(), free_pages);
      if (done.is_ok()) break;
    }
    EXPECT_GE(n_asked, kLayers);
    way.options.cancelled = nullptr;
    EXPECT_THAT(answer(*fusor, way.options).logits, ElementsAreArray(undisturbed));
  }
}

TEST_F(FusionFaults, ADamagedLayerIsComputedAnewAndTheAnswerIsTheSame) {
  for (const Way& way : ways()) {
    const std::vector<float> undamaged = expected(way.options);
    for (int32_t layer = way.first_loaded_layer; layer < kLayers; ++layer) {
      SCOPED_TRACE(testing::Message() << way.name << ", layer " << layer);
      FaultEnv env(posix_env());
      const auto store = open_store(env);
      const auto fusor = model_->fusor(store.get(), anchor_);
      // Once over undamaged records, so that the anchor's and the prefix's pages are there.
      EXPECT_THAT(answer(*fusor, way.options).logits, ElementsAreArray(undamaged));
      ASSERT_TRUE(store->remove(record(0)).is_ok());  // ensures the anchor's pages, too
      ASSERT_TRUE(fusor->ensure_stored(prompt_.chunks[0]).is_ok());
      const int32_t free_pages = model_->cache().free_page_count();

      env.damage_reads(record_path(kDamagedChunk), layer_offset(kDamagedChunk, layer) + 5,
                       std::byte{0x40});
      const fusion::Prefilled done = answer(*fusor, way.options);
      EXPECT_THAT(done.logits, ElementsAreArray(undamaged));
      ASSERT_THAT(done.report.notes, SizeIs(1));
      EXPECT_THAT(done.report.notes[0], HasSubstr("chunk 2 was computed anew"));
      EXPECT_THAT(done.report.notes[0], HasSubstr("layer " + std::to_string(layer)));
      EXPECT_EQ(done.report.notes[0].find('\n'), std::string::npos);
      ASSERT_THAT(done.report.chunks, SizeIs(3));
      EXPECT_EQ(done.report.chunks[0].origin, ChunkOrigin::kDisk);
      EXPECT_EQ(done.report.chunks[1].origin, ChunkOrigin::kComputed);
      EXPECT_EQ(done.report.chunks[2].origin, ChunkOrigin::kDisk);
      EXPECT_EQ(
          done.report.reused_tokens + done.report.recomputed_tokens + done.report.computed_tokens,
          done.report.prompt_tokens);
      EXPECT_EQ(model_->cache().free_page_count(), free_pages);
      EXPECT_EQ(store->stat()->damaged, 1u);
    }
  }
}

TEST_F(FusionFaults, AllRecordsDamagedIsAnAnswerStill) {
  const FusionOptions options = ways()[0].options;
  const std::vector<float> undamaged = expected(options);
  FaultEnv env(posix_env());
  const auto store = open_store(env);
  const auto fusor = model_->fusor(store.get(), anchor_);
  for (size_t chunk = 0; chunk < 3; ++chunk) {
    env.damage_reads(record_path(chunk), layer_offset(chunk, static_cast<int32_t>(chunk)),
                     std::byte{1});
  }
  const fusion::Prefilled done = answer(*fusor, options);
  EXPECT_THAT(done.logits, ElementsAreArray(undamaged));
  EXPECT_THAT(done.report.notes, SizeIs(3));
}

TEST_F(FusionFaults, DamagedLastLayersCostOneFusionMoreHoweverMany) {
  FusionOptions options = ways()[0].options;
  const std::vector<float> undamaged = expected(options);
  const auto count_layers = [&](std::span<const size_t> damaged) {
    FaultEnv env(posix_env());
    const auto store = open_store(env);
    const auto fusor = model_->fusor(store.get(), anchor_);
    ingest(*store);
    for (const size_t chunk : damaged) {
      env.damage_reads(record_path(chunk), layer_offset(chunk, kLayers - 1), std::byte{1});
    }
    int n_layers = 0;
    options.cancelled = [&] {
      ++n_layers;
      return false;
    };
    const fusion::Prefilled done = answer(*fusor, options);
    EXPECT_THAT(done.logits, ElementsAreArray(undamaged));
    EXPECT_THAT(done.report.notes, SizeIs(damaged.size()));
    return n_layers;
  };
  const int of_one = count_layers(std::array<size_t, 1>{2});
  const int of_all = count_layers(std::array<size_t, 3>{0, 1, 2});
  EXPECT_GT(of_one, kLayers);
  EXPECT_LE(of_all, of_one + 2 * kLayers);  // the other two chunks' own layers at most
}

TEST_F(FusionFaults, ADamagedHeadIsAMiss) {
  const FusionOptions options = ways()[0].options;
  const std::vector<float> undamaged = expected(options);
  FaultEnv env(posix_env());
  const auto store = open_store(env);
  env.damage_reads(record_path(kDamagedChunk), 20, std::byte{0xff});
  const auto fusor = model_->fusor(store.get(), anchor_);
  const fusion::Prefilled done = answer(*fusor, options);
  EXPECT_THAT(done.logits, ElementsAreArray(undamaged));
  EXPECT_EQ(done.report.chunks[kDamagedChunk].origin, ChunkOrigin::kComputed);
}

TEST_F(FusionFaults, ARecordOfTheWrongShapeIsComputedAnewAndStored) {
  const FusionOptions options = ways()[0].options;
  const std::vector<float> right = expected(options);
  fusion::KeyScope scope;
  scope.model_fingerprint = model_->model().fingerprint();
  scope.ropes = model_->model().config().ropes;
  scope.anchor = anchor_;
  const auto identity = fusion::chunk_identity(scope, prompt_.chunks[kDamagedChunk]);
  const store::Key key = store::Key::of(identity);
  const auto n_tokens = static_cast<uint32_t>(prompt_.chunks[kDamagedChunk].size());
  const std::vector<std::byte> layer(static_cast<size_t>(
      fusion::record_layer_bytes(model_->model().config(), fusion::kUsualRecordType, n_tokens)));
  const auto put_shape = [&](uint32_t n_layers, size_t layer_bytes, uint32_t tokens) {
    const auto store = open_store(posix_env());
    ASSERT_TRUE(store->clear().is_ok());
    const std::vector<std::span<const std::byte>> layers(n_layers,
                                                         std::span(layer).first(layer_bytes));
    ASSERT_TRUE(store->put(key, tokens, layers).is_ok());
  };
  for (const auto& [n_layers, layer_bytes, tokens] :
       {std::tuple(uint32_t{kLayers}, layer.size(), n_tokens - 1),
        std::tuple(uint32_t{kLayers}, layer.size() - 2, n_tokens),
        std::tuple(uint32_t{kLayers - 1}, layer.size(), n_tokens)}) {
    for (const uint64_t memory_limit_bytes : {uint64_t{0}, uint64_t{1} << 24}) {
      put_shape(n_layers, layer_bytes, tokens);
      const auto store = open_store(posix_env(), memory_limit_bytes);
      const auto fusor = model_->fusor(store.get(), anchor_);
      if (memory_limit_bytes > 0) {  // also where the bad one is in memory by now
        auto handle = store->find(key);
        ASSERT_TRUE(handle.is_ok());
        store::AlignedBytes scratch;
        for (uint32_t i = 0; i < n_layers; ++i) {
          ASSERT_TRUE(handle->load_layer(i, scratch).is_ok());
        }
        ASSERT_EQ(store->stat()->memory.records, 1u);
      }
      fusion::Prefilled done = answer(*fusor, options);
      EXPECT_EQ(done.report.chunks[kDamagedChunk].origin, ChunkOrigin::kComputed);
      EXPECT_EQ(store->stat()->damaged, 1u);
      done = answer(*fusor, options);
      EXPECT_NE(done.report.chunks[kDamagedChunk].origin, ChunkOrigin::kComputed);
      EXPECT_THAT(done.logits, ElementsAreArray(right));
      EXPECT_EQ(store->stat()->damaged, 1u);
    }
  }
}

TEST_F(FusionFaults, AFullDiskCostsTheRecordAndNotTheAnswer) {
  const FusionOptions options = ways()[0].options;
  const std::vector<float> undamaged = expected(options);
  ASSERT_TRUE(open_store(posix_env())->clear().is_ok());
  FaultEnv env(posix_env());
  const auto store = open_store(env);
  env.limit_disk(10'000);  // less than one record
  const auto fusor = model_->fusor(store.get(), anchor_);
  const fusion::Prefilled done = answer(*fusor, options);
  EXPECT_THAT(done.logits, ElementsAreArray(undamaged));
  for (const auto& chunk : done.report.chunks) EXPECT_EQ(chunk.origin, ChunkOrigin::kComputed);
  EXPECT_EQ(store->stat()->disk.records, 0u);

  env.limit_disk(std::nullopt);  // room again: the next question stores them
  EXPECT_THAT(answer(*fusor, options).logits, ElementsAreArray(undamaged));
  EXPECT_EQ(store->stat()->disk.records, 3u);
}

TEST_F(FusionFaults, AnyCallThatFailsLeavesTheAnswerAndThePages) {
  const FusionOptions options = ways()[0].options;
  const std::vector<float> undamaged = expected(options);
  uint64_t n_calls = 0;
  {
    FaultEnv env(posix_env());
    const auto store = open_store(env);
    const uint64_t before = env.calls();
    const auto fusor = model_->fusor(store.get(), anchor_);
    answer(*fusor, options);
    n_calls = env.calls() - before;
  }
  ASSERT_GT(n_calls, 18u);  // 3 records of 6 layers
  for (uint64_t call = 0; call < n_calls; ++call) {
    SCOPED_TRACE(call);
    FaultEnv env(posix_env());
    const auto store = open_store(env);
    env.fail_call(env.calls() + call);
    const int32_t used_before =
        model_->cache().used_page_count() - model_->cache().evictable_page_count();
    {
      const auto fusor = model_->fusor(store.get(), anchor_);
      EXPECT_THAT(answer(*fusor, options).logits, ElementsAreArray(undamaged));
    }
    EXPECT_EQ(model_->cache().used_page_count() - model_->cache().evictable_page_count(),
              used_before);
  }
}

// Several chunks of one step: a limit or a full disk costs what comes after, and no more.
TEST_F(FusionFaults, WhatIsComputedTogetherIsStoredAsFarAsItFits) {
  const std::vector<int32_t> again = prompt_.chunks[0];
  const std::vector<std::span<const int32_t>> chunks = {prompt_.chunks[0], prompt_.chunks[1], again,
                                                        prompt_.chunks[2]};
  uint64_t bytes = 0;
  std::vector<bool> computed;
  const auto note = [&](bool is_computed) { computed.push_back(is_computed); };
  {
    const auto store = open_store(posix_env());
    const auto fusor = model_->fusor(store.get(), anchor_);
    ASSERT_TRUE(fusor->ensure_first_stored(chunks, note).is_ok());
    EXPECT_THAT(computed, testing::ElementsAre(true, true, false, true));
    bytes = store->stat()->disk.bytes;
    computed.clear();
    ASSERT_TRUE(fusor->ensure_first_stored(chunks, note).is_ok());
    EXPECT_THAT(computed, testing::ElementsAre(false, false, false, false));
    EXPECT_EQ(store->stat()->disk.records, 3u);
    ASSERT_TRUE(store->clear().is_ok());
  }
  const auto limited = *store::ChunkStore::open(
      posix_env(), {.dir = store_dir(), .disk_limit_bytes = bytes - 1, .create = true});
  FaultEnv env(posix_env());
  const auto full = open_store(env);
  for (store::ChunkStore* const store : {limited.get(), full.get()}) {
    ASSERT_TRUE(store->clear().is_ok());
    env.limit_disk(bytes - 1);
    const auto fusor = model_->fusor(store, anchor_);
    computed.clear();
    const Status status = fusor->ensure_first_stored(chunks, note, {.evict = false});
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
    EXPECT_THAT(computed, testing::ElementsAre(true, true, false));
    EXPECT_TRUE(fusor->is_stored(prompt_.chunks[1]));
    EXPECT_FALSE(fusor->is_stored(prompt_.chunks[2]));
  }
}

TEST_F(FusionFaults, TooFewPagesAreSaidAndGivenBack) {
  const auto store = open_store(posix_env());
  ingest(*store);
  test::TestModel small(dir_.path() + "/random.gguf", {.capacity_tokens = 128});
  const auto fusor = small.fusor(store.get(), anchor_);
  const auto done = fusor->prefill(prompt_, ways()[0].options);
  EXPECT_EQ(done.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(small.cache().used_page_count(), small.cache().evictable_page_count());
}

}  // namespace
}  // namespace weft
