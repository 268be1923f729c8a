// The design's identities where K and V are not f16: f32, bf16, blocks, and a type for each. What
// must be equal is compared bit for bit.
#include "support/kv_types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/identity_cases.h"
#include "support/instruction_sets.h"
#include "support/numbers.h"
#include "support/test_model.h"

namespace weft {
namespace {

using fusion::FusionOptions;
using fusion::Prompt;
using fusion::ReuseMode;
using kernels::KvTypes;
using test::random_ids;
using test::relative_error;
using test::TestModel;
using ::testing::ElementsAreArray;

/// By how much a value is off, as a share of a usual one; of a block's usual values its largest is
/// some 2.2 times.
double step_of(DType type) { return (is_quantised(type) ? 4.4 : 2) * test::kv_error(type); }
double step_of(const KvTypes& types) { return std::max(step_of(types.k), step_of(types.v)); }

std::string named(const KvTypes& types) {
  return std::string(dtype_info(types.k).name) + " and " + std::string(dtype_info(types.v).name);
}

class KvTypeIdentities : public test::IdentityTest {
 protected:
  /// Types in blocks are refused for some head sizes.
  static bool takes(const TestModel& m, const KvTypes& types) {
    return kernels::check_kv_layout(m.model().config().kv_layout(types)).is_ok();
  }
  static Prompt prompt(int32_t n_vocab) {
    Prompt p;
    p.prefix = random_ids(21, n_vocab, 1);
    p.chunks = {random_ids(37, n_vocab, 2), random_ids(64, n_vocab, 3), random_ids(45, n_vocab, 4)};
    p.suffix = random_ids(19, n_vocab, 5);
    return p;
  }
  static std::vector<float> fuse(fusion::Fusor& fusor, const Prompt& p,
                                 const FusionOptions& options) {
    auto done = fusor.prefill(p, options);
    EXPECT_TRUE(done.is_ok()) << done.status().message();
    return std::move(done->logits);
  }
  static std::vector<float> plain(TestModel& m, const Prompt& p) {
    return fuse(*m.fusor(nullptr, {}), p, {.mode = ReuseMode::kNone});
  }
};

FusionOptions blend(double ratio) {
  return {.mode = ReuseMode::kBlend, .ratio = ratio, .allow_plain = false};
}

TEST_P(KvTypeIdentities, AnswersAreThoseOfTheTypeWithinItsPrecision) {
  const std::vector<int32_t> ids = random_ids(60, TestModel(path_).n_vocab(), 7);
  TestModel exact(path_, {.kv_types = {DType::kF32, DType::kF32}});
  const std::vector<float> expected = exact.prefill_logits(ids);
  const auto n_layers = static_cast<double>(exact.model().config().n_layers);
  // One round of 8 (bf16) or 11 significant bits on K and V moves a layer's output by about that
  // share of its size; over the layers such errors add like a random walk. 4: models differ.
  for (const KvTypes& types : test::kv_type_pairs()) {
    if (types.k == DType::kF32 && types.v == DType::kF32) continue;
    if (!takes(exact, types)) continue;
    SCOPED_TRACE(named(types));
    TestModel m(path_, {.kv_types = types});
    const double error = relative_error(expected, m.prefill_logits(ids));
    EXPECT_LT(error, 4 * std::sqrt(n_layers) * step_of(types));
    EXPECT_GT(error, 0);  // or the type is not the one that was asked for
  }
}

TEST_P(KvTypeIdentities, Hold) {
  const TestModel usual(path_);
  for (const KvTypes& types : test::mixed_kv_types()) {
    if (!takes(usual, types)) continue;
    SCOPED_TRACE(named(types));
    TestModel m(path_, {.kv_types = types});
    TestModel contiguous(path_, {.page_tokens = 256, .kv_types = types});
    const std::vector<int32_t> ids = random_ids(120, m.n_vocab(), 8);
    const std::vector<float> whole = m.prefill_logits(ids);
    EXPECT_THAT(contiguous.prefill_logits(ids), ElementsAreArray(whole)) << "paged is contiguous";
    kv::OwnedSequence sequence(m.cache(), m.cache().create_sequence());
    std::vector<float> pieces;
    for (const size_t n : {33u, 5u, 64u, 18u}) {
      const size_t begin = static_cast<size_t>(m.cache().length(sequence.id()));
      const std::vector<float> piece = m.run(sequence.id(), std::span(ids).subspan(begin, n));
      pieces.insert(pieces.end(), piece.begin(), piece.end());
    }
    EXPECT_THAT(pieces, ElementsAreArray(whole)) << "chunked prefill is whole prefill";

    const Prompt p = prompt(m.n_vocab());
    const std::vector<int32_t> anchor = random_ids(9, m.n_vocab(), 6);
    EXPECT_THAT(fuse(*m.fusor(nullptr, anchor), p, blend(1)), ElementsAreArray(plain(m, p)))
        << "ratio 1 is full prefill";
    auto store = store::ChunkStore::open(posix_env(),
                                         {.dir = dir_.path() + "/" + named(types), .create = true});
    ASSERT_TRUE(store.is_ok()) << store.status().message();
    const auto fusor = m.fusor(store->get(), anchor);
    const std::vector<float> miss = fuse(*fusor, p, blend(0.2));
    EXPECT_THAT(fuse(*fusor, p, blend(0.2)), ElementsAreArray(miss)) << "a hit is a miss";
    EXPECT_TRUE(TestModel(path_).fusor(store->get(), anchor)->is_stored(p.chunks[0]))
        << "records serve whatever the pages hold";

    Prompt one_chunk = p;
    one_chunk.chunks.resize(1);
    const std::vector<float> reused = fuse(*m.fusor(nullptr, one_chunk.prefix), one_chunk,
                                           {.mode = ReuseMode::kFull, .allow_plain = false});
    const double n_layers = m.model().config().n_layers;
    EXPECT_LT(relative_error(plain(m, one_chunk), reused), 4 * std::sqrt(n_layers) * step_of(types))
        << "a chunk after its own prefix is full prefill";
  }
}

// Each type of records into pages of f16, of blocks, and of a type for each of K and V: what was
// stored by one cache is found by all, and a miss there is a hit.
TEST_P(KvTypeIdentities, RecordsOfEachTypeServeWhateverThePagesHold) {
  const TestModel usual(path_);
  const model::ModelConfig& config = usual.model().config();
  const Prompt p = prompt(config.vocab_size);
  const std::vector<int32_t> anchor = random_ids(9, config.vocab_size, 6);
  for (const DType type : test::record_types(config)) {
    auto store = store::ChunkStore::open(
        posix_env(),
        {.dir = dir_.path() + "/of " + fusion::kRecordTypes.name(type), .create = true});
    ASSERT_TRUE(store.is_ok()) << store.status().message();
    for (const KvTypes& types :
         {KvTypes{}, KvTypes{DType::kQ8_0, DType::kQ8_0}, KvTypes{DType::kQ8_0, DType::kF16},
          KvTypes{DType::kF32, DType::kBF16}}) {
      if (!takes(usual, types)) continue;
      SCOPED_TRACE(named(types) + ", records of " + fusion::kRecordTypes.name(type));
      TestModel m(path_, {.kv_types = types});
      const auto missed = m.fusor(nullptr, anchor, type),
                 found = m.fusor(store->get(), anchor, type);
      (void)found->prefill(p, blend(0.2));  // the first of the caches fills the store
      for (const fusion::SelectorKind selector : fusion::kSelectors.values()) {
        FusionOptions options = blend(0.2);
        options.selector = selector;
        const auto hit = found->prefill(p, options);
        ASSERT_TRUE(hit.is_ok()) << hit.status().message();
        for (const fusion::ChunkReport& chunk : hit->report.chunks) {
          EXPECT_EQ(chunk.origin, fusion::ChunkOrigin::kDisk);
        }
        // What q8_0 pages held as a chunk was computed is a part of its KV: only the cache that
        // filled the store computes the very same.
        if (types == KvTypes{}) {
          EXPECT_THAT(fuse(*missed, p, options), ElementsAreArray(hit->logits));
        }
        EXPECT_THAT(fuse(*found, p, options), ElementsAreArray(hit->logits));
      }
    }
    const auto records = (*store)->ls();
    ASSERT_EQ(records->size(), p.chunks.size());
    for (const store::RecordSummary& record : *records) {
      EXPECT_EQ(record.info.layer_bytes,
                fusion::record_layer_bytes(config, type, record.info.n_tokens));
    }
  }
}

// A record's K and V are the exact ones, rounded once to its type; and a record of another type is
// none of the chunk's.
TEST_P(KvTypeIdentities, ARecordsTypeIsOneRoundingOfTheSameValues) {
  TestModel m(path_);
  const Prompt p = prompt(m.n_vocab());
  const std::vector<int32_t> anchor = random_ids(9, m.n_vocab(), 6);
  const std::span<const int32_t> chunks[] = {p.chunks[0], p.chunks[1], p.chunks[2]};
  const auto computed = [&](DType type) {
    fusion::ChunkComputer computer(m.forward(), m.cache(), m.context(), anchor, type);
    auto all = computer.compute_first(chunks);  // in one step
    EXPECT_EQ(all->size(), 3u);
    return std::move(*all);
  };
  const auto values_of = [&](const fusion::ChunkKv& kv, size_t layer) {
    std::vector<float> values(2 * kv.n_tokens * m.model().config().kv_width());
    kernels::decode_kv(m.context().isa, kv.type, kv.layers[layer].data(), values);
    return values;
  };
  const std::vector<fusion::ChunkKv> exact = computed(DType::kF16);
  for (const DType type : test::record_types(m.model().config())) {
    SCOPED_TRACE(dtype_info(type).name);
    const int64_t block = dtype_info(type).block_elements;
    const std::vector<fusion::ChunkKv> rounded = computed(type);
    fusion::ChunkComputer computer(m.forward(), m.cache(), m.context(), anchor, type);
    for (size_t i = 0; i < rounded.size(); ++i) {
      EXPECT_EQ(rounded[i].type, type);
      EXPECT_EQ(computer.compute(chunks[i])->layers, rounded[i].layers) << "alone, and in a step";
      for (size_t layer = 0; layer < rounded[i].layers.size(); ++layer) {
        const std::vector<float> expected = values_of(exact[i], layer);
        const std::vector<float> values = values_of(rounded[i], layer);
        for (size_t begin = 0; begin < values.size(); begin += block) {
          float largest = 0;
          for (int64_t j = 0; j < block; ++j)
            largest = std::max(largest, std::abs(expected[begin + j]));
          // Beside f16's own rounding, and that of q8_0's scale to f16.
          const double error = largest * (2 * test::kv_error(type) + 2 * 0x1p-11) + 0x1p-24;
          for (int64_t j = 0; j < block; ++j)
            ASSERT_NEAR(values[begin + j], expected[begin + j], error) << layer;
        }
      }
    }
  }
}

TEST_P(KvTypeIdentities, ARecordOfAnotherTypeIsAMiss) {
  TestModel m(path_);
  const Prompt p = prompt(m.n_vocab());
  const std::vector<int32_t> anchor = random_ids(9, m.n_vocab(), 6);
  auto store = *store::ChunkStore::open(posix_env(), {.dir = dir_ / "store", .create = true});
  size_t n_records = 0;
  for (const DType type : test::record_types(m.model().config())) {
    const auto fusor = m.fusor(store.get(), anchor, type);
    EXPECT_FALSE(fusor->is_stored(p.chunks[0]));
    const auto done = fusor->prefill(p, blend(0.2));
    ASSERT_TRUE(done.is_ok()) << done.status().message();
    EXPECT_EQ(done->report.chunks[0].origin, fusion::ChunkOrigin::kComputed);
    n_records += p.chunks.size();
    EXPECT_EQ(store->stat()->disk.records, n_records) << "nor is it replaced";
    EXPECT_EQ(store->stat()->damaged, 0u);
  }
}

// Of the right key, but of f16's bytes: what a faulty or hostile writer left.
TEST_P(KvTypeIdentities, ARecordOfTheRightKeyAndAnotherTypesShapeIsRejected) {
  TestModel m(path_);
  const model::ModelConfig& config = m.model().config();
  if (!fusion::check_record_type(config, DType::kQ8_0).is_ok()) return;
  const Prompt p = prompt(m.n_vocab());
  const std::vector<int32_t> anchor = random_ids(9, m.n_vocab(), 6);
  auto store = *store::ChunkStore::open(posix_env(), {.dir = dir_ / "store", .create = true});
  const fusion::KeyScope scope{.model_fingerprint = m.model().fingerprint(),
                               .ropes = config.ropes,
                               .anchor = anchor,
                               .record_type = DType::kQ8_0};
  const auto identity = fusion::chunk_identity(scope, p.chunks[0]);
  const auto f16 =
      fusion::ChunkComputer(m.forward(), m.cache(), m.context(), anchor).compute(p.chunks[0]);
  const std::vector<std::span<const std::byte>> layers(f16->layers.begin(), f16->layers.end());
  ASSERT_TRUE(
      store->put(store::Key::of(identity), static_cast<uint32_t>(f16->n_tokens), layers).is_ok());
  const auto fusor = m.fusor(store.get(), anchor, DType::kQ8_0);
  ASSERT_TRUE(fusor->is_stored(p.chunks[0]));
  const auto done = fusor->prefill(p, blend(0.2));
  ASSERT_TRUE(done.is_ok()) << done.status().message();
  EXPECT_EQ(done->report.chunks[0].origin, fusion::ChunkOrigin::kComputed);
  EXPECT_EQ(store->stat()->damaged, 1u);
  EXPECT_THAT(fuse(*fusor, p, blend(0.2)), ElementsAreArray(done->logits)) << "a good one is there";
  EXPECT_EQ(store->stat()->damaged, 1u);
}

// Shared pages are copied before they are written, and found ones hold what would be computed.
TEST_P(KvTypeIdentities, ForksAndFoundPrefixesAreFreshSequences) {
  const TestModel usual(path_);
  for (const KvTypes& types : test::mixed_kv_types()) {
    if (!takes(usual, types)) continue;
    SCOPED_TRACE(named(types));
    TestModel m(path_, {.kv_types = types});
    const std::vector<int32_t> start = random_ids(37, m.n_vocab(), 10);  // ends within a page
    const auto tail_logits = [&](kv::SequenceId id, uint32_t seed) {
      return m.run(id, random_ids(20, m.n_vocab(), seed));
    };
    const auto fresh = [&](uint32_t seed) {
      kv::OwnedSequence sequence(m.cache(), m.cache().create_sequence());
      m.run(sequence.id(), start);
      return tail_logits(sequence.id(), seed);
    };
    kv::OwnedSequence sequence(m.cache(), m.cache().create_sequence());
    m.run(sequence.id(), start);
    auto forked = m.cache().fork(sequence.id());
    ASSERT_TRUE(forked.is_ok()) << forked.status().message();
    kv::OwnedSequence fork(m.cache(), *forked);
    EXPECT_THAT(tail_logits(fork.id(), 11), ElementsAreArray(fresh(11)));
    EXPECT_THAT(tail_logits(sequence.id(), 12), ElementsAreArray(fresh(12)));

    m.cache().publish(fork.id(), start);
    kv::OwnedSequence found(m.cache(), m.cache().create_sequence());
    const auto n_found = m.cache().attach_prefix(found.id(), start);
    ASSERT_EQ(*n_found, 32);
    m.run(found.id(), std::span(start).subspan(32));
    EXPECT_THAT(tail_logits(found.id(), 11), ElementsAreArray(fresh(11)));
  }
}

// A decoded row is what it is alone, on every instruction set.
TEST_P(KvTypeIdentities, ADecodedRowIsWhatItIsAlone) {
  const TestModel usual(path_);
  for (const KvTypes& types : test::mixed_kv_types()) {
    if (!takes(usual, types)) continue;
    for (const kernels::Isa isa : test::machine_isas()) {
      SCOPED_TRACE(::testing::Message() << named(types) << ", " << kernels::isa_name(isa));
      TestModel m(path_, {.isa = isa, .kv_types = types});
      if (m.model().config().n_layers * m.model().config().n_embd > 4096 &&
          isa != kernels::best_isa()) {
        continue;  // minutes, for the same kernels
      }
      const auto run = [&](size_t n_sequences) {
        std::vector<kv::OwnedSequence> sequences;
        std::vector<kv::Reservation> reservations;
        model::Rows rows;
        for (size_t i = 0; i < n_sequences; ++i) {
          sequences.emplace_back(m.cache(), m.cache().create_sequence());
          const auto held = static_cast<int32_t>(17 + 5 * i);
          m.run(sequences[i].id(), random_ids(static_cast<size_t>(held), m.n_vocab(), 20 + i));
          auto reservation = m.cache().reserve(sequences[i].id(), 1);
          EXPECT_TRUE(reservation.is_ok()) << reservation.status().message();
          reservations.push_back(std::move(*reservation));
          rows.add(sequences[i].id(), random_ids(1, m.n_vocab(), 40 + i), held,
                   model::RowKind::kDecode);
        }
        std::vector<float> logits = m.run_rows(std::move(rows));
        logits.resize(static_cast<size_t>(m.n_vocab()));
        return logits;
      };
      EXPECT_THAT(run(9), ElementsAreArray(run(1)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, KvTypeIdentities, ::testing::ValuesIn(test::identity_cases()),
                         [](const auto& test_case) { return test_case.param.name; });

}  // namespace
}  // namespace weft
