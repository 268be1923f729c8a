// Attention over lists of pages, what pages weigh in it, and what it says of each page.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "support/attention_step.h"
#include "support/instruction_sets.h"

namespace weft::kernels {
namespace {

using test::Guarded;
using test::machine_isas;
using test::same_bits;

/// The pages, or runs, of each KV head: the sequence's listed ones, the last of which holds the
/// row.
struct Chosen {
  std::vector<std::vector<int32_t>> tables;
  std::vector<HeadPages> heads;

  Chosen(const Shape& shape, const std::vector<int32_t>& table, int32_t slot,
         const std::vector<std::vector<int32_t>>& lists, int32_t entry_tokens = 0) {
    if (entry_tokens == 0) entry_tokens = shape.page_tokens;
    const int32_t n_parts = shape.page_tokens / entry_tokens;
    for (const std::vector<int32_t>& list : lists) {
      std::vector<int32_t>& entries = tables.emplace_back();
      for (const int32_t i : list) entries.push_back(table[i / n_parts] * n_parts + i % n_parts);
    }
    for (const std::vector<int32_t>& entries : tables) {
      const int32_t n_before = (entries.size() - 1) * entry_tokens;
      heads.push_back({entries.data(), n_before + slot % entry_tokens, entry_tokens});
    }
  }
};

/// Of f32 to f16, and where products are of integers.
std::vector<std::pair<int32_t, KvTypes>> listed_types() {
  return {{64, {}},
          {80, {DType::kF16, DType::kBF16}},
          {64, {DType::kQ8_0, DType::kQ8_0}},
          {64, {DType::kQ4_0, DType::kQ8_0}}};
}

TEST(AttentionPageLists, EachHeadReadsItsPagesAndNothingElse) {
  for (const auto& [head_dim, types] :
       {std::pair(64, KvTypes()), {80, KvTypes{DType::kF16, DType::kBF16}}}) {
    const Shape shape{head_dim, 3, 2, 16, types};
    constexpr int32_t kSlot = 1500;  // in page 93 of the sequence
    const std::vector<std::vector<int32_t>> lists = {range(0, 94), {0, 7, 40, 92, 93}, {93}};
    for (const Isa isa : machine_isas()) {
      SCOPED_TRACE(isa_name(isa));
      Pages pages(shape, 128);
      const std::vector<int32_t> table = pages.add(kSlot + 1, 31);
      const std::vector<int32_t> other = pages.add(40, 32);
      for (int32_t head = 0; head < 3; ++head) {
        const std::vector<int32_t>& list = lists[head];
        for (int32_t slot = 0; slot <= kSlot; ++slot) {
          if (std::ranges::find(list, slot / 16) == list.end()) pages.poison(table, slot, head);
        }
      }
      const Chosen chosen(shape, table, kSlot, lists);
      Step step{.shape = shape, .kv = pages.kv()};
      step.add(other, {39}, KernelClass::kDecode);
      step.add(table, {kSlot}, KernelClass::kDecode);
      step.add(other, range(0, 40), KernelClass::kPrefill);
      step.sequences[1].heads = chosen.heads;
      const Result result = run(step, isa, 2);
      expect_close(result, ref::attention(step.args(), 42), tolerance(shape, kSlot));
    }
  }
}

TEST(AttentionPageLists, ListsOfAllPagesAndOfAllRunsChangeNoBit) {
  for (const auto& [head_dim, types] : listed_types()) {
    for (const int32_t page_tokens : {16, 64}) {
      const Shape shape{head_dim, 2, 3, page_tokens, types};
      Pages pages(shape, 128);
      const std::vector<int32_t> table = pages.add(1600, 33);
      for (const int32_t slot : {0, 7, 8, 15, 16, 511, 512, 1023, 1036, 1599}) {
        for (const Isa isa : machine_isas()) {
          Step step{.shape = shape, .kv = pages.kv()};
          step.add(table, {slot}, KernelClass::kDecode);
          const Result dense = run(step, isa, 2);
          for (const int32_t entry_tokens : {kRunTokens, page_tokens}) {
            SCOPED_TRACE(::testing::Message()
                         << isa_name(isa) << " slot " << slot << " entries of " << entry_tokens);
            const std::vector<int32_t> all = range(0, slot / entry_tokens + 1);
            const Chosen chosen(shape, table, slot, {all, all}, entry_tokens);
            step.sequences[0].heads = chosen.heads;
            const Result sparse = run(step, isa, 2);
            EXPECT_TRUE(same_bits(dense.out, sparse.out));
            EXPECT_TRUE(same_bits(dense.log_sum_exp, sparse.log_sum_exp));
          }
        }
      }
    }
  }
}

// As if the runs' keys lay together; what is not listed is not read.
TEST(AttentionPageLists, RunsAreReadAsTheirKeysWouldBeTogether) {
  constexpr int32_t kSlot = 1500;  // in run 187 of the sequence
  const std::vector<std::vector<int32_t>> lists = {{0, 1, 9, 40, 41, 43, 185, 186, 187},
                                                   {3, 4, 5, 17, 18, 90, 91, 92, 187}};
  const int32_t slot_together = 8 * kRunTokens + kSlot % kRunTokens;
  for (const auto& [head_dim, types] : listed_types()) {
    for (const int32_t page_tokens : {16, 64}) {
      const Shape shape{head_dim, 2, 3, page_tokens, types};
      Pages pages(shape, 128);
      const std::vector<int32_t> table = pages.add(kSlot + 1, 31);
      const std::vector<int32_t> together = pages.add(slot_together + 1, 32);
      const PagedKv kv = pages.kv();
      for (int32_t head = 0; head < 2; ++head) {
        for (int32_t slot = 0; slot <= slot_together; ++slot) {
          const int64_t from =
              int64_t{lists[head][slot / kRunTokens]} * kRunTokens + slot % kRunTokens;
          std::memcpy(k_at(kv, together.data(), slot, head), k_at(kv, table.data(), from, head),
                      kv.k_bytes);
          std::memcpy(v_at(kv, together.data(), slot, head), v_at(kv, table.data(), from, head),
                      kv.v_bytes);
        }
        for (int32_t slot = 0; slot <= kSlot; ++slot) {
          if (std::ranges::count(lists[head], slot / kRunTokens) == 0) {
            pages.poison(table, slot, head);
          }
        }
      }
      const Chosen chosen(shape, table, kSlot, lists, kRunTokens);
      Step listed{.shape = shape, .kv = kv}, dense{.shape = shape, .kv = kv};
      listed.add(table, {kSlot}, KernelClass::kDecode);
      listed.sequences[0].heads = chosen.heads;
      dense.add(together, {slot_together}, KernelClass::kDecode);
      dense.q = listed.q;
      for (const Isa isa : machine_isas()) {
        SCOPED_TRACE(::testing::Message() << isa_name(isa) << " pages of " << page_tokens);
        const Result got = run(listed, isa, 2), want = run(dense, isa, 2);
        EXPECT_TRUE(std::ranges::none_of(want.out, [](float x) { return std::isnan(x); }));
        EXPECT_TRUE(same_bits(got.out, want.out));
        EXPECT_TRUE(same_bits(got.log_sum_exp, want.log_sum_exp));
      }
    }
  }
}

TEST(AttentionPageWeights, EqualTheScalarTwin) {
  constexpr int32_t kSlot = 2900;  // several splits
  for (const auto& [softcap, entry_tokens] :
       {std::pair(0.0f, 16), {0.0f, kRunTokens}, {20.0f, 16}, {20.0f, kRunTokens}}) {
    const int32_t last = kSlot / entry_tokens;
    const std::vector<std::vector<int32_t>> lists = {range(0, last + 1),
                                                     {0, 7, 40, 41, 42, last - 1, last}};
    for (const auto& [head_dim, types] :
         {std::pair(64, KvTypes()), {80, KvTypes{DType::kF16, DType::kBF16}}}) {
      const Shape shape{head_dim, 2, 5, 16, types};
      Pages pages(shape, 200);
      const std::vector<int32_t> table = pages.add(kSlot + 1, 31);
      Chosen chosen(shape, table, kSlot, lists, entry_tokens);
      std::vector<std::vector<float>> weights(2);
      for (int head = 0; head < 2; ++head) {
        for (size_t i = 0; i < lists[head].size(); ++i) {
          weights[head].push_back(i % 3 == 0 ? 1.0f : 1.0f + 5.0f * (i % 7));
        }
        chosen.heads[head].weights = weights[head].data();
      }
      Step step{.shape = shape, .kv = pages.kv(), .softcap = softcap};
      step.add(table, {kSlot}, KernelClass::kDecode);
      step.sequences[0].heads = chosen.heads;
      for (const Isa isa : machine_isas()) {
        SCOPED_TRACE(::testing::Message() << isa_name(isa) << " entries of " << entry_tokens);
        // A page of weight 31 may take all of a head's attention: sums round as ever.
        const double bound = tolerance(shape, kSlot) + 2e-6 * softcap;
        expect_close(run(step, isa, 2), ref::attention(step.args(), 1), bound);
      }
    }
  }
}

// Weights of 1 change no bit, and one of 2 is the page listed twice.
TEST(AttentionPageWeights, SayHowOftenAPageCounts) {
  for (const int32_t page_tokens : {16, 32, 128}) {
    const Shape shape{64, 2, 3, page_tokens};
    Pages pages(shape, 80);
    const std::vector<int32_t> table = pages.add(1100, 33);
    const int32_t last = 1099 / page_tokens;
    const std::vector<int32_t> once = {0, 2, 5, last}, twice = {0, 2, 2, 5, 5, last};
    const std::vector<float> ones(4, 1.0f), weights = {1, 2, 2, 1};
    const Chosen all_twice(shape, table, 1099, {twice, twice});
    Chosen chosen(shape, table, 1099, {once, once});
    const auto read = [&](Isa isa, std::span<const HeadPages> heads) {
      Step step{.shape = shape, .kv = pages.kv()};
      step.add(table, {1099}, KernelClass::kDecode);
      step.sequences[0].heads = heads;
      return run(step, isa, 2);
    };
    for (const Isa isa : machine_isas()) {
      const Result unweighted = read(isa, chosen.heads);
      for (HeadPages& head : chosen.heads) head.weights = ones.data();
      EXPECT_TRUE(same_bits(read(isa, chosen.heads).out, unweighted.out)) << isa_name(isa);
      for (HeadPages& head : chosen.heads) head.weights = weights.data();
      const Result weighted = read(isa, chosen.heads), listed = read(isa, all_twice.heads);
      for (size_t i = 0; i < weighted.out.size(); ++i) {
        ASSERT_NEAR(weighted.out[i], listed.out[i], 1e-5) << isa_name(isa) << " " << page_tokens;
      }
      for (HeadPages& head : chosen.heads) head.weights = nullptr;
    }
  }
}

// What one head reads, and how many splits that takes, is nothing to another.
TEST(AttentionPageLists, AHeadDoesNotDependOnTheOthersLists) {
  const Shape shape{64, 2, 3, 16};
  Pages pages(shape, 128);
  const std::vector<int32_t> table = pages.add(1600, 34);
  for (const Isa isa : machine_isas()) {
    const auto first_head = [&](const std::vector<int32_t>& second) {
      const Chosen chosen(shape, table, 1599, {{0, 5, 99}, second});
      Step step{.shape = shape, .kv = pages.kv()};
      step.add(table, {1599}, KernelClass::kDecode);
      step.sequences[0].heads = chosen.heads;
      std::vector<float> out = run(step, isa, 2).out;
      out.resize(3 * 64);
      return out;
    };
    EXPECT_TRUE(same_bits(first_head({99}), first_head(range(0, 100)))) << isa_name(isa);
  }
}

// By the twin's attention over the keys of each page alone, whose log_sum_exp that is.
TEST(AttentionPageSums, AreThoseOfEachPageAndChangeNoBit) {
  for (const Shape& shape : {Shape{32, 2, 3, 16}, Shape{64, 3, 1, 64}, Shape{24, 1, 8, 256}}) {
    Pages pages(shape, 80);
    const std::vector<int32_t> table = pages.add(1100, 8);
    for (const int32_t slot : {0, 15, 300, 511, 512, 1099}) {
      for (const float softcap : {0.0f, 5.0f}) {
        Step step{.shape = shape, .kv = pages.kv(), .softcap = softcap};
        step.add(table, {slot});
        const int64_t n_heads = step.args().n_heads, n_pages = slot / shape.page_tokens + 1;
        for (const Isa isa : machine_isas()) {
          SCOPED_TRACE(::testing::Message() << isa_name(isa) << " slot " << slot << ", pages of "
                                            << shape.page_tokens << ", cap " << softcap);
          const Result plain = run(step, isa, 1);
          Guarded<float> sums(n_heads * n_pages, kGuard);
          step.sequences[0].page_log_sums = sums.data();
          const Result result = run(step, isa, 2);
          step.sequences[0].page_log_sums = nullptr;
          sums.check();
          EXPECT_TRUE(same_bits(result.out, plain.out));
          for (int64_t page = 0; page < n_pages; ++page) {
            const int32_t begin = static_cast<int32_t>(page) * shape.page_tokens;
            Step of_page{.shape = shape, .kv = pages.kv(), .softcap = softcap};
            const int32_t last = std::min(slot - begin, shape.page_tokens - 1);
            of_page.add({table[page]}, {last});
            of_page.q = step.q;
            const auto expected = ref::attention(of_page.args(), 1).log_sum_exp;
            for (int64_t head = 0; head < n_heads; ++head) {
              ASSERT_NEAR(sums.values()[head * n_pages + page], expected[head],
                          4 * tolerance(shape, 256))
                  << "head " << head << " page " << page;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::kernels
