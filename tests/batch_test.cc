// A row's bits do not depend on what shares its step: decode rows beside many others, beside a
// prompt, beside rows that a fusion recomputes and beside drafts that are verified.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "support/identity_cases.h"
#include "support/instruction_sets.h"
#include "support/numbers.h"

namespace weft {
namespace {

using kernels::MatmulPath;
using model::RowKind;
using model::Rows;
using test::random_ids;
using test::same_bits;
using test::TestModel;

/// Rows of one sequence that go through a step together.
struct Piece {
  std::vector<int32_t> prompt;     // what the sequence holds before the step
  std::vector<int32_t> tokens;     // what runs
  std::vector<int32_t> positions;  // where
  RowKind kind = RowKind::kDecode;
};

/// What the step made of a piece: its rows' logits and the bytes of its sequence's pages.
struct Outcome {
  std::vector<float> logits;
  std::vector<uint8_t> kv;
  bool operator==(const Outcome& other) const {
    return same_bits(logits, other.logits) && kv == other.kv;
  }
};

std::vector<uint8_t> pages_of(TestModel& m, kv::SequenceId sequence) {
  std::vector<uint8_t> kv;
  const int32_t n_tokens = m.cache().length(sequence);
  for (int32_t l = 0; l < m.model().config().n_layers; ++l) {
    const kernels::PagedKv layer = m.cache().layer(l);
    const std::span<const int32_t> table = m.cache().layer_table(sequence, l);
    for (int32_t p = 0; p < n_tokens; ++p) {
      for (int32_t head = 0; head < layer.layout.n_kv_heads; ++head) {
        const uint8_t* const k = k_at(layer, table.data(), p, head);
        const uint8_t* const v = v_at(layer, table.data(), p, head);
        kv.insert(kv.end(), k, k + layer.k_bytes);
        kv.insert(kv.end(), v, v + layer.v_bytes);
      }
    }
  }
  return kv;
}

/// All pieces in one step.
std::vector<Outcome> run(TestModel& m, std::span<const Piece> pieces) {
  std::vector<kv::SequenceId> sequences;
  std::vector<kv::Reservation> reservations;
  Rows rows;
  for (const Piece& piece : pieces) {
    const kv::SequenceId id = m.cache().create_sequence();
    sequences.push_back(id);
    if (!piece.prompt.empty()) m.run(id, piece.prompt);
    const auto held = static_cast<int32_t>(piece.prompt.size());
    if (piece.positions.front() >= held) {
      auto reservation = m.cache().reserve(id, static_cast<int32_t>(piece.tokens.size()));
      EXPECT_TRUE(reservation.is_ok()) << reservation.status().message();
      reservations.push_back(std::move(*reservation));
    } else {
      EXPECT_TRUE(m.cache().make_writable(id, 0, held).is_ok());
    }
  }
  std::vector<int64_t> begins;
  for (size_t i = 0; i < pieces.size(); ++i) {
    begins.push_back(rows.size());
    rows.add(sequences[i], pieces[i].tokens, 0, pieces[i].kind);
    std::copy(pieces[i].positions.begin(), pieces[i].positions.end(),
              rows.slots.begin() + begins.back());
  }
  const std::vector<float> logits = m.run_rows(std::move(rows));
  for (kv::Reservation& reservation : reservations) reservation.commit();
  std::vector<Outcome> outcomes;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto n_vocab = static_cast<std::ptrdiff_t>(m.n_vocab());
    const auto begin = logits.begin() + begins[i] * n_vocab;
    outcomes.push_back(
        {{begin, begin + std::ssize(pieces[i].tokens) * n_vocab}, pages_of(m, sequences[i])});
    m.cache().free_sequence(sequences[i]);
  }
  return outcomes;
}

std::vector<int32_t> range(int32_t begin, int32_t n) {
  std::vector<int32_t> values(static_cast<size_t>(n));
  for (int32_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = begin + i;
  return values;
}

Piece decode_row(int32_t n_vocab, uint32_t seed) {
  const auto held = static_cast<int32_t>(1 + seed * 7 % 40);
  return {random_ids(static_cast<size_t>(held), n_vocab, seed),
          random_ids(1, n_vocab, seed + 1),
          {held}};
}

/// A prompt that goes on, what a fusion recomputes with the question after it, and drafts.
std::vector<Piece> others(int32_t n_vocab) {
  return {
      {random_ids(33, n_vocab, 301), random_ids(21, n_vocab, 302), range(33, 21), RowKind::kPrompt},
      {random_ids(60, n_vocab, 303),
       random_ids(6, n_vocab, 304),
       {3, 4, 17, 40, 58, 59},
       RowKind::kPrompt},
      {random_ids(25, n_vocab, 305), random_ids(5, n_vocab, 306), range(25, 5), RowKind::kVerify},
      {{}, random_ids(2, n_vocab, 307), range(0, 2), RowKind::kPrompt}};
}

using Batched = test::IdentityTest;

TEST_P(Batched, ARowIsWhatItIsAlone) {
  for (const kernels::Isa isa : test::machine_isas()) {
    for (const MatmulPath path : test::machine_matmul_paths()) {
      // oneDNN takes the best set of the machine whatever is asked; emulated it is too slow here.
      if (path == MatmulPath::kBf16 && isa != kernels::best_isa()) continue;
      SCOPED_TRACE(::testing::Message() << kernels::isa_name(isa) << " path " << int(path));
      TestModel m(path_, {.isa = isa, .matmul_path = path, .capacity_tokens = 8192});
      const bool is_large = m.model().config().n_layers * m.model().config().n_embd > 4096;
      if (is_large && isa != kernels::best_isa()) continue;  // minutes, for the same kernels
      std::vector<Piece> rows;
      for (uint32_t i = 0; i < (is_large ? 9u : 64u); ++i) {
        rows.push_back(decode_row(m.n_vocab(), 10 * i));
      }
      std::vector<Outcome> alone;
      for (const Piece& row : rows) alone.push_back(run(m, {&row, 1}).front());
      const std::vector<Piece> beside = others(m.n_vocab());
      std::vector<Outcome> beside_alone;
      for (const Piece& piece : beside) beside_alone.push_back(run(m, {&piece, 1}).front());
      for (const size_t n : {1u, 2u, 3u, 4u, 5u, 8u, 17u, 64u}) {
        if (n > rows.size()) break;
        // Decode rows before, between and after the others.
        std::vector<Piece> step;
        std::vector<const Outcome*> expected;
        for (size_t i = 0; i < n; ++i) {
          step.push_back(rows[i]);
          expected.push_back(&alone[i]);
          if (i % 3 == 0 && i / 3 < beside.size()) {
            step.push_back(beside[i / 3]);
            expected.push_back(&beside_alone[i / 3]);
          }
        }
        const std::vector<Outcome> together = run(m, step);
        for (size_t i = 0; i < together.size(); ++i) {
          EXPECT_TRUE(together[i] == *expected[i]) << "piece " << i << " beside " << n << " rows";
        }
      }
    }
  }
}

TEST_P(Batched, AVerifiedRowIsTheDecodedOne) {
  TestModel m(path_, {.matmul_path = MatmulPath::kInt8});
  const std::vector<int32_t> prompt = random_ids(30, m.n_vocab(), 41);
  const std::vector<int32_t> drafts = random_ids(7, m.n_vocab(), 42);
  const kv::SequenceId sequence = m.cache().create_sequence();
  m.run(sequence, prompt);
  std::vector<float> decoded;
  for (size_t i = 0; i < drafts.size(); ++i) {
    const auto row = m.run(sequence, std::span(drafts).subspan(i, 1), RowKind::kDecode);
    decoded.insert(decoded.end(), row.begin(), row.end());
  }
  const Piece piece{prompt, drafts, range(30, 7), RowKind::kVerify};
  const Outcome verified = run(m, {&piece, 1}).front();
  EXPECT_TRUE(same_bits(verified.logits, decoded));
  EXPECT_EQ(verified.kv, pages_of(m, sequence));
}

TEST_P(Batched, WhatIsNotWantedOfTheLastLayerChangesNothing) {
  TestModel m(path_);
  const std::vector<int32_t> ids = random_ids(90, m.n_vocab(), 43);
  const auto last_row = [&](bool whole, std::vector<uint8_t>& kv) {
    const kv::SequenceId sequence = m.cache().create_sequence();
    auto reservation = m.cache().reserve(sequence, 90);
    EXPECT_TRUE(reservation.is_ok());
    auto batch = m.forward().start(m.cache(), Rows::of(sequence, ids, 0));
    EXPECT_TRUE(batch.is_ok()) << batch.status().message();
    const int32_t last = m.model().config().n_layers - 1;
    for (int32_t l = 0; l < last; ++l) m.forward().run_layer(*batch, l);
    const int64_t row[] = {89};
    if (whole) {
      m.forward().run_layer(*batch, last);
      m.forward().keep_rows(*batch, row);
    } else {
      m.forward().run_last_layer(*batch, row);
    }
    std::vector<float> logits(static_cast<size_t>(m.n_vocab()));
    const int64_t first[] = {0};
    m.forward().logits(*batch, first, {logits, m.n_vocab()});
    reservation->commit();
    kv = pages_of(m, sequence);
    return logits;
  };
  std::vector<uint8_t> whole_kv, wanted_kv;
  const std::vector<float> whole = last_row(true, whole_kv);
  EXPECT_TRUE(same_bits(last_row(false, wanted_kv), whole));
  EXPECT_EQ(whole_kv, wanted_kv);
}

TEST_P(Batched, AllRowsWantedOfTheLastLayerAreTheWholeLayer) {
  TestModel m(path_);
  const kv::SequenceId sequence = m.cache().create_sequence();
  m.run(sequence, random_ids(30, m.n_vocab(), 44));
  const std::vector<int32_t> ids = random_ids(3, m.n_vocab(), 45);
  const auto logits = [&](bool keep_all_rows) {
    auto reservation = m.cache().reserve(sequence, 3);
    EXPECT_TRUE(reservation.is_ok());
    model::RowsPass pass(m.forward(), m.cache(), Rows::of(sequence, ids, 30, RowKind::kDecode),
                         {.wanted = {0, 1, 2}, .keep_all_rows = keep_all_rows});
    pass.hold(std::move(*reservation));
    EXPECT_TRUE(model::Executor(m.forward()).run(pass).is_ok());
    EXPECT_TRUE(m.cache().truncate(sequence, 30).is_ok());
    return std::move(pass.logits());
  };
  EXPECT_TRUE(same_bits(logits(false), logits(true)));
}

std::vector<fusion::ChunkKv> compute_all(fusion::ChunkComputer& computer,
                                         std::span<const std::vector<int32_t>> chunks,
                                         std::vector<size_t>* steps = nullptr) {
  const std::vector<std::span<const int32_t>> all(chunks.begin(), chunks.end());
  std::vector<fusion::ChunkKv> out;
  while (out.size() < all.size()) {
    auto computed = computer.compute_first(std::span(all).subspan(out.size()));
    EXPECT_TRUE(computed.is_ok()) << computed.status().message();
    if (!computed.is_ok() || computed->empty()) break;
    if (steps != nullptr) steps->push_back(computed->size());
    std::ranges::move(*computed, std::back_inserter(out));
  }
  return out;
}

/// V of a chunk as plain prefill after the anchor leaves it in the pages: [layer][token][width].
std::vector<std::vector<std::byte>> prefilled_values(TestModel& m, std::span<const int32_t> anchor,
                                                     std::span<const int32_t> chunk) {
  const kv::OwnedSequence sequence(m.cache(), m.cache().create_sequence());
  if (!anchor.empty()) m.run(sequence.id(), anchor);
  m.run(sequence.id(), chunk);
  std::vector<std::vector<std::byte>> layers;
  for (int32_t l = 0; l < m.model().config().n_layers; ++l) {
    const kernels::PagedKv kv = m.cache().layer(l);
    std::vector<std::byte>& values = layers.emplace_back();
    for (auto p = std::ssize(anchor); p < std::ssize(anchor) + std::ssize(chunk); ++p) {
      for (int32_t head = 0; head < kv.layout.n_kv_heads; ++head) {
        const auto* const v = reinterpret_cast<const std::byte*>(
            v_at(kv, m.cache().layer_table(sequence.id(), l).data(), p, head));
        values.insert(values.end(), v, v + kv.v_bytes);
      }
    }
  }
  return layers;
}

// Chunks of 1 to 300 tokens, which share steps as they come; one has its step to itself.
TEST_P(Batched, AChunkIsWhatItIsAlone) {
  for (const kernels::Isa isa : test::machine_isas()) {
    for (const MatmulPath path : test::machine_matmul_paths()) {
      if (path == MatmulPath::kBf16 && isa != kernels::best_isa()) continue;
      SCOPED_TRACE(::testing::Message() << kernels::isa_name(isa) << " path " << int(path));
      TestModel m(path_, {.isa = isa, .matmul_path = path});
      const bool is_large = m.model().config().n_layers * m.model().config().n_embd > 4096;
      if (is_large && isa != kernels::best_isa()) continue;
      std::vector<std::vector<int32_t>> chunks;
      for (const int n : {1, 300, 2, 17, 64, 5, 123, 300, 33, 1, 600, 16, 48}) {
        if (is_large && n > 100) continue;
        chunks.push_back(random_ids(n, m.n_vocab(), 400 + static_cast<uint32_t>(chunks.size())));
      }
      // None, one that ends inside a page, one that ends with it.
      for (const int n_anchor : {0, 9, 16}) {
        if (n_anchor != 9 && isa != kernels::best_isa()) continue;
        const std::vector<int32_t> anchor = random_ids(n_anchor, m.n_vocab(), 6);
        fusion::ChunkComputer computer(m.forward(), m.cache(), m.context(), anchor);
        std::vector<size_t> steps;
        const std::vector<fusion::ChunkKv> together = compute_all(computer, chunks, &steps);
        ASSERT_EQ(together.size(), chunks.size());
        if (!is_large) {
          EXPECT_THAT(steps, ::testing::ElementsAre(7, 3, 1, 2));
        }
        for (size_t i = 0; i < chunks.size(); ++i) {
          const auto alone = computer.compute(chunks[i]);
          ASSERT_TRUE(alone.is_ok()) << alone.status().message();
          EXPECT_EQ(together[i].n_tokens, std::ssize(chunks[i]));
          EXPECT_TRUE(together[i].layers == alone->layers) << chunks[i].size() << " tokens";
          const auto values = prefilled_values(m, anchor, chunks[i]);
          for (size_t l = 0; l < values.size(); ++l) {
            const std::span<const std::byte> layer(alone->layers[l]);
            EXPECT_TRUE(std::ranges::equal(layer.subspan(layer.size() / 2), values[l])) << l;
          }
        }
      }
      EXPECT_EQ(m.cache().used_page_count(), 0);
    }
  }
}

// As many chunks as there are free pages for; what the prefix index holds stays.
TEST_P(Batched, ChunksShareAStepWhereTheCacheHasPages) {
  constexpr int32_t kPages = 16;
  TestModel m(path_, {.capacity_tokens = kPages * 16});
  const std::vector<int32_t> prefix = random_ids(64, m.n_vocab(), 7);
  const kv::SequenceId published = m.cache().create_sequence();
  m.run(published, prefix);
  m.cache().publish(published, prefix);
  m.cache().free_sequence(published);
  std::vector<std::vector<int32_t>> chunks;
  for (uint32_t i = 0; i < 7; ++i) chunks.push_back(random_ids(40, m.n_vocab(), 500 + i));
  fusion::ChunkComputer computer(m.forward(), m.cache(), m.context(),
                                 random_ids(9, m.n_vocab(), 6));
  std::vector<size_t> steps;
  const std::vector<fusion::ChunkKv> together = compute_all(computer, chunks, &steps);
  // Four pages have the prefix, one the anchor; a chunk takes four, the copy of the anchor's among
  // them.
  EXPECT_THAT(steps, ::testing::ElementsAre(2, 2, 2, 1));
  EXPECT_EQ(m.cache().match_prefix(prefix), 64);
  for (size_t i = 0; i < chunks.size(); ++i) {
    const auto alone = computer.compute(chunks[i]);
    ASSERT_TRUE(alone.is_ok()) << alone.status().message();
    EXPECT_TRUE(together[i].layers == alone->layers) << i;
  }
  // One alone takes the prefix's pages, too, as ever.
  EXPECT_TRUE(computer.compute(random_ids(200, m.n_vocab(), 8)).is_ok());
  EXPECT_LT(m.cache().match_prefix(prefix), 64);
  const int32_t used = m.cache().used_page_count();
  EXPECT_EQ(computer.compute(random_ids(256, m.n_vocab(), 9)).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_LE(m.cache().used_page_count(), used);
}

TEST_P(Batched, ChunksThatAreStoppedLeaveNothing) {
  TestModel m(path_);
  fusion::ChunkComputer computer(m.forward(), m.cache(), m.context(),
                                 random_ids(9, m.n_vocab(), 6));
  const std::vector<int32_t> a = random_ids(20, m.n_vocab(), 51),
                             b = random_ids(30, m.n_vocab(), 52);
  const std::vector<std::span<const int32_t>> chunks = {a, b};
  const auto whole = computer.compute_first(chunks);
  ASSERT_TRUE(whole.is_ok());
  const int32_t used = m.cache().used_page_count();
  const int32_t n_layers = m.model().config().n_layers;
  for (int32_t stop_at = 0; stop_at <= n_layers; ++stop_at) {
    int32_t n_asked = 0;
    const auto stops = [&] { return n_asked++ == stop_at; };
    const model::Executor::Cancelled cancelled(stops);
    EXPECT_EQ(computer.compute_first(chunks, &cancelled).status().code(), StatusCode::kCancelled);
    EXPECT_EQ(m.cache().used_page_count(), used);
  }
  const auto again = computer.compute_first(chunks);
  ASSERT_TRUE(again.is_ok());
  EXPECT_TRUE((*again)[1].layers == (*whole)[1].layers);
}

INSTANTIATE_TEST_SUITE_P(Models, Batched, ::testing::ValuesIn(test::identity_cases()),
                         [](const auto& test_case) { return test_case.param.name; });

}  // namespace
}  // namespace weft
