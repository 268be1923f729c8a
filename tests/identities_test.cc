// The design's identities, on generated random models of several architectures, shapes and types,
// on stories260K, SmolLM2 and Gemma 3: what must be equal is compared bit for bit; where sums are
// reordered or K is rounded a second time, the tolerance is derived beside the test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "support/identity_cases.h"
#include "support/kv_types.h"
#include "support/test_model.h"
#include "tensor/half.h"

namespace weft {
namespace {

using fusion::FusionOptions;
using fusion::Prompt;
using fusion::ReuseMode;
using fusion::SelectorKind;
using test::ModelSetup;
using test::random_ids;
using test::relative_error;
using test::TestModel;

/// One round of f16 (11 significant bits) on K and V moves a layer's output by about 2^-11 of its
/// size; over the layers such errors add like a random walk, and the residual stream carries them.
/// The factor 4 is for the spread between models.
double half_rounding_floor(int32_t n_layers) {
  return 4 * std::sqrt(static_cast<double>(n_layers)) * 0x1p-11;
}

class Identities : public test::IdentityTest {
 protected:
  /// Prefix, three chunks of uneven lengths, suffix; about 200 tokens.
  Prompt prompt(int32_t n_vocab) const {
    Prompt p;
    p.prefix = random_ids(21, n_vocab, 1);
    p.chunks = {random_ids(37, n_vocab, 2), random_ids(64, n_vocab, 3), random_ids(45, n_vocab, 4)};
    p.suffix = random_ids(19, n_vocab, 5);
    return p;
  }

  fusion::Prefilled fuse(fusion::Fusor& fusor, const Prompt& p, const FusionOptions& options) {
    auto done = fusor.prefill(p, options);
    EXPECT_TRUE(done.is_ok()) << done.status().message();
    return std::move(*done);
  }

  std::unique_ptr<store::ChunkStore> open_store(uint64_t memory_limit_bytes) {
    auto store = store::ChunkStore::open(
        posix_env(),
        {.dir = dir_.path() + "/store", .memory_limit_bytes = memory_limit_bytes, .create = true});
    EXPECT_TRUE(store.is_ok()) << store.status().message();
    return std::move(*store);
  }
};

FusionOptions blend(double ratio, SelectorKind selector = SelectorKind::kQueryAttention) {
  return {.mode = ReuseMode::kBlend, .ratio = ratio, .selector = selector, .allow_plain = false};
}

/// The logits after a prompt's last token, by plain prefill.
std::vector<float> plain_last_logits(TestModel& m, const Prompt& p) {
  const auto fusor = m.fusor(nullptr, {});
  auto done = fusor->prefill(p, {.mode = ReuseMode::kNone});
  EXPECT_TRUE(done.is_ok()) << done.status().message();
  return done->logits;
}

TEST_P(Identities, RatioOneIsFullPrefill) {
  TestModel m(path_);
  const Prompt p = prompt(m.n_vocab());
  const std::vector<float> expected = plain_last_logits(m, p);
  for (const DType type : test::record_types(m.model().config())) {
    for (const SelectorKind selector : fusion::kSelectors.values()) {
      const auto fusor = m.fusor(nullptr, random_ids(9, m.n_vocab(), 6), type);
      const fusion::Prefilled done = fuse(*fusor, p, blend(1, selector));
      EXPECT_THAT(done.logits, ::testing::ElementsAreArray(expected));
      EXPECT_EQ(done.report.recomputed_share, 1);
    }
  }
  FusionOptions checked = blend(0, SelectorKind::kVDeviation);  // the check's ratio counts
  checked.checks = {{1, 1.0}};
  const auto fusor = m.fusor(nullptr, random_ids(9, m.n_vocab(), 6));
  const fusion::Prefilled done = fuse(*fusor, p, checked);
  EXPECT_THAT(done.logits, ::testing::ElementsAreArray(expected));
  EXPECT_EQ(done.report.ratio, 1);
}

TEST_P(Identities, ChunkBehindItsOwnPrefixIsFullPrefill) {
  TestModel m(path_);
  Prompt p = prompt(m.n_vocab());
  p.chunks.resize(1);
  const auto fusor = m.fusor(nullptr, p.prefix);  // the anchor is exactly what comes before it
  FusionOptions options{.mode = ReuseMode::kFull, .allow_plain = false};
  const fusion::Prefilled done = fuse(*fusor, p, options);
  // K is rounded before rotation as well as after it: one more rounding than plain prefill's.
  EXPECT_LT(relative_error(plain_last_logits(m, p), done.logits),
            half_rounding_floor(m.model().config().n_layers));
  EXPECT_EQ(done.report.computed_tokens, 21 + 19 + 37);  // nothing was stored: the chunk is a miss
}

TEST_P(Identities, ReuseWithoutItsContextIsNotFullPrefill) {
  TestModel m(path_);
  const Prompt p = prompt(m.n_vocab());
  const auto fusor = m.fusor(nullptr, {});
  const fusion::Prefilled done = fuse(*fusor, p, {.mode = ReuseMode::kFull, .allow_plain = false});
  EXPECT_GT(relative_error(plain_last_logits(m, p), done.logits),
            half_rounding_floor(m.model().config().n_layers));  // so the tests above can fail
}

TEST_P(Identities, PagedIsContiguous) {
  TestModel paged(path_, {.page_tokens = 16});
  TestModel contiguous(path_, {.page_tokens = 256});  // the whole prompt in one page
  const std::vector<int32_t> ids = random_ids(200, paged.n_vocab(), 7);
  EXPECT_THAT(paged.prefill_logits(ids),
              ::testing::ElementsAreArray(contiguous.prefill_logits(ids)));
}

TEST_P(Identities, ChunkedPrefillIsWholePrefill) {
  TestModel m(path_);
  const std::vector<int32_t> ids = random_ids(120, m.n_vocab(), 8);
  const std::vector<float> whole = m.prefill_logits(ids);
  const kv::SequenceId sequence = m.cache().create_sequence();
  std::vector<float> pieces;
  size_t begin = 0;
  for (const size_t n : {33u, 5u, 64u, 18u}) {  // all of them prefill-sized
    const std::vector<float> piece = m.run(sequence, std::span(ids).subspan(begin, n));
    pieces.insert(pieces.end(), piece.begin(), piece.end());
    begin += n;
  }
  ASSERT_EQ(begin, ids.size());
  EXPECT_THAT(pieces, ::testing::ElementsAreArray(whole));
}

TEST_P(Identities, WhatWasThereOfAPromptChangesNoBitOfTheRest) {
  TestModel m(path_);
  const std::vector<int32_t> ids = random_ids(90, m.n_vocab(), 14);
  const auto last_logits = [&](kv::SequenceId sequence, std::span<const int32_t> tokens) {
    const int32_t begin = m.cache().length(sequence);
    auto reservation = m.cache().reserve(sequence, static_cast<int32_t>(tokens.size()));
    EXPECT_TRUE(reservation.is_ok()) << reservation.status().message();
    const int64_t last[] = {std::ssize(tokens) - 1};
    std::vector<float> logits = m.run_rows(model::Rows::of(sequence, tokens, begin), last);
    reservation->commit();
    return logits;
  };
  const std::vector<float> whole = last_logits(m.cache().create_sequence(), ids);
  for (const size_t n_left : {1u, 3u, 4u, 5u, 58u, 89u}) {  // around the kernels' border
    const kv::SequenceId sequence = m.cache().create_sequence();
    last_logits(sequence, std::span(ids).first(ids.size() - n_left));
    EXPECT_THAT(last_logits(sequence, std::span(ids).last(n_left)),
                ::testing::ElementsAreArray(whole))
        << n_left;
  }
}

TEST_P(Identities, DecodeStepsArePrefillWithinReorderedSums) {
  TestModel m(path_);
  const std::vector<int32_t> ids = random_ids(40, m.n_vocab(), 9);
  const std::vector<float> whole = m.prefill_logits(ids);
  const kv::SequenceId sequence = m.cache().create_sequence();
  std::vector<float> steps = m.run(sequence, std::span(ids).first(30));
  for (size_t i = 30; i < ids.size(); ++i) {
    const std::vector<float> step =
        m.run(sequence, std::span(ids).subspan(i, 1), model::RowKind::kDecode);
    steps.insert(steps.end(), step.begin(), step.end());
  }
  // Decode on the f32 path rounds activations to 15 bits where the weights are quantised: half a
  // step is 2^-15 of a block's largest value, with random signs. K and V are f16 on both sides,
  // where such a difference can tip a rounding of 2^-11.
  const double n_layers = m.model().config().n_layers;
  EXPECT_LT(relative_error(whole, steps), 4 * std::sqrt(n_layers) * 0x1p-11);
}

TEST_P(Identities, TwoSequencesInOneStepAreEachAlone) {
  TestModel m(path_);
  const std::vector<int32_t> a = random_ids(50, m.n_vocab(), 10);
  const std::vector<int32_t> b = random_ids(71, m.n_vocab(), 11);
  const std::vector<float> a_alone = m.prefill_logits(a);
  const std::vector<float> b_alone = m.prefill_logits(b);

  const kv::SequenceId sa = m.cache().create_sequence();
  const kv::SequenceId sb = m.cache().create_sequence();
  auto ra = m.cache().reserve(sa, 50);
  auto rb = m.cache().reserve(sb, 71);
  ASSERT_TRUE(ra.is_ok() && rb.is_ok());
  model::Rows rows = model::Rows::of(sa, a, 0);
  rows.add(sb, b, 0);
  const std::vector<float> both = m.run_rows(std::move(rows));
  const auto middle = both.begin() + 50 * m.n_vocab();
  EXPECT_THAT(std::vector<float>(both.begin(), middle), ::testing::ElementsAreArray(a_alone));
  EXPECT_THAT(std::vector<float>(middle, both.end()), ::testing::ElementsAreArray(b_alone));
}

TEST_P(Identities, AnyThreadCountGivesTheSameBits) {
  TestModel one(path_, {.n_threads = 1});
  TestModel three(path_, {.n_threads = 3});
  const std::vector<int32_t> ids = random_ids(90, one.n_vocab(), 12);
  EXPECT_THAT(three.prefill_logits(ids), ::testing::ElementsAreArray(one.prefill_logits(ids)));
}

TEST_P(Identities, HitIsMissAndEvictedIsReloaded) {
  TestModel m(path_);
  const Prompt p = prompt(m.n_vocab());
  const std::vector<int32_t> anchor = random_ids(9, m.n_vocab(), 6);
  const auto expect_hits_of = [&](DType type, const FusionOptions& options) {
    const auto store = open_store(uint64_t{1} << 30);
    const auto fusor = m.fusor(store.get(), anchor, type);
    const fusion::Prefilled miss = fuse(*fusor, p, options);
    EXPECT_EQ(miss.report.chunks[0].origin, fusion::ChunkOrigin::kComputed);
    const fusion::Prefilled hit = fuse(*fusor, p, options);
    EXPECT_NE(hit.report.chunks[0].origin, fusion::ChunkOrigin::kComputed);
    EXPECT_THAT(hit.logits, ::testing::ElementsAreArray(miss.logits));

    const auto cold = open_store(0);  // nothing in memory: every layer comes from disk
    const auto cold_fusor = m.fusor(cold.get(), anchor, type);
    const fusion::Prefilled reloaded = fuse(*cold_fusor, p, options);
    EXPECT_EQ(reloaded.report.chunks[0].origin, fusion::ChunkOrigin::kDisk);
    EXPECT_THAT(reloaded.logits, ::testing::ElementsAreArray(miss.logits));
    std::error_code ignored;
    std::filesystem::remove_all(dir_.path() + "/store", ignored);
  };
  for (const DType type : test::record_types(m.model().config())) {
    SCOPED_TRACE(dtype_info(type).name);
    for (const SelectorKind selector : fusion::kSelectors.values()) {
      expect_hits_of(type, blend(0.2, selector));
    }
    expect_hits_of(type, {.mode = ReuseMode::kFull, .allow_plain = false});
  }
}

TEST_P(Identities, TheSecondAskingFindsThePrefixAndSaysTheSame) {
  TestModel m(path_);
  Prompt p = prompt(m.n_vocab());
  p.prefix = random_ids(40, m.n_vocab(), 13);  // two whole pages
  const auto fusor = m.fusor(nullptr, {});
  const fusion::Prefilled first = fuse(*fusor, p, blend(0.1));
  const fusion::Prefilled second = fuse(*fusor, p, blend(0.1));
  EXPECT_EQ(first.report.computed_tokens - second.report.computed_tokens, 32);
  EXPECT_THAT(second.logits, ::testing::ElementsAreArray(first.logits));
}

TEST_P(Identities, FusedPagesAreNotFoundByTokenIds) {
  TestModel m(path_);
  const Prompt p = prompt(m.n_vocab());
  const auto fusor = m.fusor(nullptr, {});
  fuse(*fusor, p, blend(0.1));
  EXPECT_EQ(m.cache().match_prefix(p.tokens()), 16);  // the prefix's one whole page, nothing fused
  const fusion::Prefilled after = fuse(*fusor, p, {.mode = ReuseMode::kPrefix});
  EXPECT_THAT(after.logits, ::testing::ElementsAreArray(plain_last_logits(m, p)));
}

/// V of a sequence's positions [begin, end) at a layer, [position][kv_width].
std::vector<uint16_t> values_in_pages(TestModel& m, kv::SequenceId sequence, int32_t layer,
                                      int32_t begin, int32_t end) {
  const kernels::PagedKv kv = m.cache().layer(layer);
  std::vector<uint16_t> values;
  for (int32_t p = begin; p < end; ++p) {
    for (int32_t head = 0; head < kv.layout.n_kv_heads; ++head) {
      const auto* v = reinterpret_cast<const uint16_t*>(
          v_at(kv, m.cache().layer_table(sequence, layer).data(), p, head));
      values.insert(values.end(), v, v + kv.layout.head_dim);
    }
  }
  return values;
}

/// Tokens [n_tokens][width] of a layer in the record, of whatever type, and in two prompts' pages.
struct ChunkValues {
  std::vector<float> stored;
  std::vector<uint16_t> without, with;
  size_t width = 0;
  std::span<const uint16_t> row(const std::vector<uint16_t>& of, size_t token) const {
    return std::span(of).subspan(token * width, width);
  }
  std::span<const float> stored_row(size_t token) const {
    return std::span(stored).subspan(token * width, width);
  }
  /// Not recomputed, nor corrected.
  bool is_reused(size_t token) const {
    return std::ranges::equal(row(without, token), stored_row(token), {}, {}, f16_from_f32);
  }
};

void expect_one_correction(const ChunkValues& values, const std::vector<bool>& reused) {
  std::vector<float> shift, slack;  // of the first reused token, and what rounding may add to it
  for (size_t t = 0; t < reused.size(); ++t) {
    if (!reused[t]) continue;
    ASSERT_TRUE(values.is_reused(t));
    for (size_t i = 0; i < values.width; ++i) {
      const float before = values.stored_row(t)[i];
      const float after = f32_from_f16(values.row(values.with, t)[i]);
      // The sum was rounded once, to 11 bits; below f16's normal range to 2^-25. A record's value
      // that f16 has not was rounded before that where query attention had placed the layer.
      const float placed = std::abs(before - f32_from_f16(f16_from_f32(before)));
      const float rounding = std::abs(after) * 0x1p-11F + 0x1p-25F + placed;
      if (shift.size() < values.width) {
        shift.push_back(after - before);
        slack.push_back(rounding);
      }
      ASSERT_NEAR(after - before, shift[i], rounding + slack[i]) << t;
    }
  }
}

// With factor 0 every token that is not recomputed has the record's V; with another its chunk's
// common correction, from layer 1 on.
TEST_P(Identities, PropagationGivesAChunksOtherTokensOneCorrection) {
  TestModel m(path_);
  const Prompt p = prompt(m.n_vocab());
  const auto expect_of = [&](DType type, SelectorKind selector) {
    const auto fusor = m.fusor(nullptr, random_ids(9, m.n_vocab(), 6), type);
    auto sources = fusor->gather(p);
    ASSERT_TRUE(sources.is_ok()) << sources.status().message();
    FusionOptions options = blend(0.2, selector);
    options.propagate = 0;
    const auto without = fusor->prefill_from(p, options, *sources);
    options.propagate = 0.5;
    const auto with = fusor->prefill_from(p, options, *sources);
    ASSERT_TRUE(without.is_ok() && with.is_ok());
    EXPECT_NE(with->logits, without->logits);
    for (size_t chunk = 0; chunk < p.chunks.size(); ++chunk) {
      const int32_t begin = p.chunk_begin(chunk), end = p.chunk_begin(chunk + 1);
      const auto n_tokens = static_cast<size_t>(end - begin);
      const auto values_at = [&](int32_t layer) {
        ChunkValues values;
        values.width = static_cast<size_t>(m.model().config().kv_width());
        store::AlignedBytes scratch;
        const auto stored = (*sources)[chunk].load_layer(layer, scratch);
        EXPECT_TRUE(stored.is_ok());
        values.stored.resize(n_tokens * values.width);
        kernels::decode_kv(m.context().isa, type, stored->data() + stored->size() / 2,
                           values.stored);
        values.without = values_in_pages(m, without->sequence.id(), layer, begin, end);
        values.with = values_in_pages(m, with->sequence.id(), layer, begin, end);
        return values;
      };
      const int32_t last = m.model().config().n_layers - 1;
      const ChunkValues deepest = values_at(last);
      std::vector<bool> reused;
      for (size_t t = 0; t < n_tokens; ++t) {
        reused.push_back(deepest.is_reused(t));
      }
      EXPECT_GT(std::count(reused.begin(), reused.end(), true), std::ssize(reused) / 4);
      for (int32_t layer = 1; layer <= last; ++layer) {
        SCOPED_TRACE(::testing::Message() << "layer " << layer << " chunk " << chunk);
        expect_one_correction(values_at(layer), reused);
      }
      EXPECT_EQ(values_at(0).with, values_at(0).without);
    }
  };
  for (const DType type : test::record_types(m.model().config())) {
    SCOPED_TRACE(dtype_info(type).name);
    for (const SelectorKind selector : fusion::kSelectors.values()) expect_of(type, selector);
  }
}

// Also of a step that is too long to go through a layer at once: 512 rows.
TEST_P(Identities, TheSinkIsGivenEveryRowBeforeAnyAttends) {
  TestModel m(path_);
  const std::vector<int32_t> ids = random_ids(600, m.n_vocab(), 15);
  const auto run = [&](bool first, std::vector<float>& kv) {
    kv::OwnedSequence sequence(m.cache(), m.cache().create_sequence());
    auto reservation = m.cache().reserve(sequence.id(), 600);
    EXPECT_TRUE(reservation.is_ok()) << reservation.status().message();
    auto batch = m.forward().start(m.cache(), model::Rows::of(sequence.id(), ids, 0));
    EXPECT_TRUE(batch.is_ok()) << batch.status().message();
    const int32_t last = m.model().config().n_layers - 1;
    for (const int32_t layer : {0, 1, last}) {  // the layers between matter to nobody here
      const std::vector<uint16_t> before = values_in_pages(m, sequence.id(), layer, 0, 600);
      const auto take = [&](int64_t, MatrixView<const float> k, MatrixView<const float> v) {
        for (const auto& some : {k.elements(), v.elements()}) {
          kv.insert(kv.end(), some.begin(), some.end());
        }
        if (!first) return;
        EXPECT_EQ(values_in_pages(m, sequence.id(), layer, 0, 600), before);
      };
      const model::LayerHooks::KvSink sink(take);
      const model::LayerHooks hooks{.kv_sink = &sink, .sink_first = first};
      if (layer == last) {
        m.forward().run_last_layer(*batch, {}, hooks);
      } else {
        m.forward().run_layer(*batch, layer, hooks);
      }
    }
  };
  std::vector<float> as_they_run, first;
  run(false, as_they_run);
  run(true, first);
  EXPECT_EQ(first, as_they_run);
}

INSTANTIATE_TEST_SUITE_P(Models, Identities, ::testing::ValuesIn(test::identity_cases()),
                         [](const auto& test_case) { return test_case.param.name; });

}  // namespace
}  // namespace weft
