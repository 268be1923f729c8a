#include "kv/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <string>

#include "kv/invariants.h"
#include "tensor/half.h"

namespace weft::kv {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kLayers = 3;
constexpr int kHeads = 2;
constexpr int kHeadDim = 8;

kernels::KvLayout layout_of(int n_kv_heads, int head_dim) {
  return {DType::kF16, DType::kF16, head_dim, n_kv_heads, 16};
}

std::unique_ptr<Cache> make_cache(int32_t capacity_tokens) {
  auto cache = Cache::create({.n_layers = kLayers,
                              .layer_groups = {0, 1, 0},
                              .layout = layout_of(kHeads, kHeadDim),
                              .capacity_tokens = capacity_tokens});
  EXPECT_TRUE(cache.is_ok()) << cache.status().message();
  return std::move(*cache);
}

uint16_t& element(uint8_t* vector, int dim) { return reinterpret_cast<uint16_t*>(vector)[dim]; }

/// Calls fn(element, its tag) for all of a position's elements, the tag differing between them.
template <class F>
void for_each_element(Cache& cache, SequenceId id, int32_t position, F fn) {
  uint16_t tag = 0;
  for (int layer = 0; layer < kLayers; ++layer) {
    const kernels::PagedKv kv = cache.layer(layer);
    const int32_t* const table = cache.layer_table(id, layer).data();
    for (int head = 0; head < kHeads; ++head) {
      for (int dim = 0; dim < kHeadDim; ++dim) {
        fn(element(k_at(kv, table, position, head), dim), tag++);
        fn(element(v_at(kv, table, position, head), dim), tag++);
      }
    }
  }
}
void write(Cache& cache, SequenceId id, int32_t begin, int32_t end, uint16_t seed) {
  for (int32_t p = begin; p < end; ++p) {
    for_each_element(cache, id, p, [&](uint16_t& e, uint16_t tag) { e = seed + 251 * p + tag; });
  }
}
void expect_written(Cache& cache, SequenceId id, int32_t begin, int32_t end, uint16_t seed) {
  for (int32_t p = begin; p < end; ++p) {
    for_each_element(cache, id, p, [&](uint16_t& e, uint16_t tag) {
      ASSERT_EQ(e, seed + 251 * p + tag) << "position " << p;
    });
  }
}
void append(Cache& cache, SequenceId id, int32_t n, uint16_t seed) {
  auto reservation = cache.reserve(id, n);
  ASSERT_TRUE(reservation.is_ok()) << reservation.status().message();
  write(cache, id, reservation->begin(), reservation->end(), seed);
  reservation->commit();
}

TEST(Cache, GivenAForkWhenEitherWritesThenTheOtherKeepsItsKAndV) {
  const auto cache = make_cache(128);
  const SequenceId a = cache->create_sequence();
  append(*cache, a, 37, 1);
  const SequenceId b = *cache->fork(a);
  append(*cache, b, 5, 2);
  append(*cache, a, 5, 3);
  expect_written(*cache, a, 0, 37, 1);
  expect_written(*cache, a, 37, 42, 3);
  expect_written(*cache, b, 0, 37, 1);
  expect_written(*cache, b, 37, 42, 2);
  ASSERT_TRUE(cache->make_writable(b, 10, 20).is_ok());
  write(*cache, b, 10, 20, 9);
  expect_written(*cache, a, 0, 37, 1);
  expect_written(*cache, b, 0, 10, 1);
  expect_written(*cache, b, 10, 20, 9);
  expect_written(*cache, b, 20, 37, 1);
}

TEST(Cache, GivenAPublishedPrefixWhenAnotherSequenceAttachesThenItReadsTheSameAndMayBeOverwritten) {
  const auto cache = make_cache(128);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 40; ++i) tokens.push_back(i * 7);
  const SequenceId a = cache->create_sequence();
  append(*cache, a, 40, 1);
  cache->publish(a, tokens);
  cache->free_sequence(a);
  EXPECT_EQ(cache->used_page_count(), 2);
  EXPECT_EQ(cache->evictable_page_count(), 2);
  EXPECT_EQ(cache->match_prefix(tokens), 32);

  const SequenceId b = cache->create_sequence();
  EXPECT_EQ(*cache->attach_prefix(b, tokens), 32);
  expect_written(*cache, b, 0, 32, 1);
  ASSERT_TRUE(cache->make_writable(b, 0, 32).is_ok());
  write(*cache, b, 0, 32, 5);  // fusion's values: nobody must find them
  const SequenceId c = cache->create_sequence();
  EXPECT_EQ(*cache->attach_prefix(c, tokens), 32);
  expect_written(*cache, c, 0, 32, 1);
  EXPECT_THAT(violations(cache->snapshots()), IsEmpty());
}

TEST(Cache, GivenAFailedStepThenTheCacheIsAsBefore) {
  const auto cache = make_cache(96);
  const SequenceId a = cache->create_sequence();
  append(*cache, a, 20, 1);
  const SequenceId b = *cache->fork(a);
  {
    auto reservation = cache->reserve(b, 30);
    ASSERT_TRUE(reservation.is_ok());
    write(*cache, b, 20, 50, 2);
  }
  EXPECT_EQ(cache->length(b), 20);
  EXPECT_EQ(cache->free_page_count(), 4);
  expect_written(*cache, a, 0, 20, 1);
  expect_written(*cache, b, 0, 20, 1);
}

TEST(Cache, GivenTooFewPagesThenExpendableSequencesGoAndOthersKeepWhatTheyShareWithThem) {
  const auto cache = make_cache(96);
  const SequenceId spare = cache->create_sequence();
  append(*cache, spare, 40, 1);
  const SequenceId fork = *cache->fork(spare);
  cache->make_expendable(spare);
  append(*cache, fork, 8, 2);  // in a copy of the third page
  EXPECT_EQ(cache->free_page_count(), 2);
  EXPECT_EQ(cache->evictable_page_count(), 1);
  const SequenceId other = cache->create_sequence();
  EXPECT_EQ(cache->reserve(cache->create_sequence(), 97).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_TRUE(cache->contains(spare));  // without it there would be too few, too
  append(*cache, other, 32, 3);
  append(*cache, other, 16, 4);
  EXPECT_FALSE(cache->contains(spare));
  EXPECT_EQ(cache->evictable_page_count(), 0);
  expect_written(*cache, fork, 0, 40, 1);
  expect_written(*cache, fork, 40, 48, 2);
  expect_written(*cache, other, 0, 32, 3);
  EXPECT_EQ(cache->reserve(other, 1).status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(violations(cache->snapshots()), IsEmpty());
}

/// As a step would: slots [end, length) to [begin, …), element by element.
Status remove(Cache& cache, SequenceId id, int32_t begin, int32_t end) {
  const int32_t length = cache.length(id);
  return cache.remove(id, begin, end, [&](std::span<const int32_t>) {
    for (int32_t p = end; p < length; ++p) {
      std::vector<uint16_t> elements;
      for_each_element(cache, id, p, [&](uint16_t& e, uint16_t) { elements.push_back(e); });
      for_each_element(cache, id, p - end + begin,
                       [&](uint16_t& e, uint16_t tag) { e = elements[tag]; });
    }
  });
}

TEST(Cache, GivenTokensRemovedThenThoseAfterThemFollowAndAForkKeepsItsOwn) {
  const auto cache = make_cache(256);
  const SequenceId a = cache->create_sequence();
  append(*cache, a, 75, 1);
  const SequenceId b = *cache->fork(a);
  ASSERT_TRUE(remove(*cache, a, 10, 43).is_ok());
  EXPECT_EQ(cache->length(a), 42);
  EXPECT_EQ(cache->block_table(a, 0).size(), 3u);
  expect_written(*cache, a, 0, 10, 1);
  for (int32_t p = 10; p < 42; ++p) {
    for_each_element(*cache, a, p, [&](uint16_t& e, uint16_t tag) {
      ASSERT_EQ(e, 1 + 251 * (p + 33) + tag) << "position " << p;
    });
  }
  expect_written(*cache, b, 0, 75, 1);
  append(*cache, a, 20, 7);
  expect_written(*cache, a, 42, 62, 7);
  expect_written(*cache, b, 0, 75, 1);
  EXPECT_THAT(violations(cache->snapshots()), IsEmpty());
}

TEST(Cache, GivenTokensRemovedThenOnlyWhatIsBeforeThemIsFoundByIds) {
  const auto cache = make_cache(256);
  std::vector<int32_t> tokens(96);
  std::iota(tokens.begin(), tokens.end(), 100);
  const SequenceId a = cache->create_sequence();
  append(*cache, a, 96, 1);
  ASSERT_TRUE(remove(*cache, a, 40, 56).is_ok());
  std::vector<int32_t> left = tokens;
  left.erase(left.begin() + 40, left.begin() + 56);
  cache->publish(a, left);
  EXPECT_EQ(cache->match_prefix(left), 32);
  EXPECT_THAT(cache->slot_kinds(a), ::testing::ElementsAre(SlotRun{40, SlotKind::kPrompt},
                                                           SlotRun{80, SlotKind::kFused}));
  EXPECT_THAT(violations(cache->snapshots()), IsEmpty());
}

TEST(Cache, GivenARangeThatCannotBeRemovedThenNothingMoves) {
  const auto cache = make_cache(64);
  const SequenceId a = cache->create_sequence();
  append(*cache, a, 64, 1);
  for (const auto& [begin, end] : {std::pair{-1, 3}, {5, 3}, {60, 65}}) {
    const Status status = cache->remove(a, begin, end, [](auto) { FAIL(); });
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << begin << " " << end;
  }
  EXPECT_TRUE(cache->remove(a, 7, 7, [](auto) { FAIL(); }).is_ok());
  const SequenceId b = *cache->fork(a);  // no page is left to copy to
  EXPECT_EQ(cache->remove(b, 0, 16, [](auto) { FAIL(); }).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(cache->remove(b, 48, 64, [](auto) { FAIL(); }).is_ok());  // the end: nothing to move
  EXPECT_EQ(cache->length(b), 48);
  expect_written(*cache, a, 0, 64, 1);
  expect_written(*cache, b, 0, 48, 1);
}

TEST(Cache, GivenAFreedPageThenItIsPoisoned) {
  const auto cache = make_cache(64);
  const SequenceId a = cache->create_sequence();
  append(*cache, a, 16, 1);
  const int32_t page = cache->block_table(a, 0)[0];
  cache->free_sequence(a);
  for (int layer = 0; layer < kLayers; ++layer) {
    const kernels::PagedKv kv = cache->layer(layer);
    for (int slot = 0; slot < 16; ++slot) {
      for (int i = 0; i < kHeads * kHeadDim; ++i) {
        const float k = f32_from_f16(element(k_at(kv, &page, slot, i / kHeadDim), i % kHeadDim));
        const float v = f32_from_f16(element(v_at(kv, &page, slot, i / kHeadDim), i % kHeadDim));
        ASSERT_NE(k, k);
        ASSERT_NE(v, v);
      }
    }
  }
}

TEST(Cache, GivenALargeCapacityThenMemoryIsTakenOnlyAsPagesAreWritten) {
  const auto resident_bytes = [] {
    std::ifstream statm("/proc/self/statm");
    int64_t size = 0, resident = 0;
    statm >> size >> resident;
    return resident * 4096;
  };
  const int64_t before = resident_bytes();
  auto cache = Cache::create(
      {.n_layers = 30, .layout = layout_of(8, 128), .capacity_tokens = 1 << 17});  // 16 GB
  ASSERT_TRUE(cache.is_ok()) << cache.status().message();
  const SequenceId id = (*cache)->create_sequence();
  auto reservation = (*cache)->reserve(id, 100000);
  ASSERT_TRUE(reservation.is_ok());
  reservation->commit();
  EXPECT_LT(resident_bytes() - before, int64_t{64} << 20);
}

TEST(Cache, GivenNumbersThatNoCacheCanHaveThenOneLineSaysSo) {
  const Cache::Options good{.n_layers = 2, .layout = layout_of(2, 64), .capacity_tokens = 100};
  const auto status_of = [](const Cache::Options& options) {
    return Cache::create(options).status();
  };
  ASSERT_TRUE(Cache::create(good).is_ok());
  EXPECT_EQ((*Cache::create(good))->page_count(), 7);

  auto bad = good;
  bad.layout.head_dim = 20;
  EXPECT_EQ(status_of(bad).code(), StatusCode::kUnsupported);
  EXPECT_THAT(status_of(bad).message(), HasSubstr("head size 20"));
  bad = good;
  bad.layout.page_tokens = 24;
  EXPECT_EQ(status_of(bad).code(), StatusCode::kUnsupported);
  bad = good;
  bad.layout.page_tokens = 0;
  EXPECT_EQ(status_of(bad).code(), StatusCode::kInvalidArgument);
  bad = good;
  bad.capacity_tokens = -1;
  EXPECT_EQ(status_of(bad).code(), StatusCode::kInvalidArgument);
  for (const std::vector<int32_t>& groups :
       {std::vector<int32_t>{0}, {0, 0, 0}, {1, 0}, {0, 2}, {0, -1}}) {
    bad = good;
    bad.layer_groups = groups;
    EXPECT_EQ(status_of(bad).code(), StatusCode::kInvalidArgument) << groups.size();
    EXPECT_THAT(status_of(bad).message(), HasSubstr("group"));
  }
  bad = good;
  bad.n_layers = 0;
  EXPECT_EQ(status_of(bad).code(), StatusCode::kInvalidArgument);
  bad = good;  // overflows 64 bits
  bad.n_layers = bad.layout.n_kv_heads = bad.capacity_tokens = INT32_MAX;
  EXPECT_EQ(status_of(bad).code(), StatusCode::kResourceExhausted);
  bad = good;  // fits in 64 bits, but no machine has it
  bad.n_layers = bad.capacity_tokens = 1 << 30;
  EXPECT_EQ(status_of(bad).code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status_of(bad).message(), HasSubstr("KV cache"));
}

/// Layer 1 has a window of 20 tokens and pages for 64; the others hold 512.
std::unique_ptr<Cache> make_rolling_cache() {
  auto cache = Cache::create({.n_layers = kLayers,
                              .layer_groups = {0, 1, 0},
                              .layout = layout_of(kHeads, kHeadDim),
                              .capacity_tokens = 512,
                              .windows = {{}, {.window_tokens = 20, .capacity_tokens = 64}}});
  EXPECT_TRUE(cache.is_ok()) << cache.status().message();
  return std::move(*cache);
}

TEST(RollingCache, GivesBackOnlyWhatNoLaterTokenSeesAndOnlyWhenPagesRunShort) {
  const auto cache = make_rolling_cache();
  const SequenceId id = cache->create_sequence();
  const auto n_given_back = [&] { return std::ranges::count(cache->layer_table(id, 1), kNoPage); };
  for (int32_t length = 1; length <= 300; ++length) {
    cache->reserve(id, 1).value().commit();
    if (length <= 64) {
      ASSERT_EQ(n_given_back(), 0) << length;
    }
    // The next token sees 19 before itself.
    ASSERT_LE(n_given_back(), std::max(0, length - 19) / 16) << length;
    ASSERT_EQ(std::ranges::count(cache->layer_table(id, 0), kNoPage), 0);
    ASSERT_THAT(violations(cache->snapshots()), IsEmpty());
  }
  EXPECT_EQ(n_given_back(), 15);  // of 19 pages the pool has four
  EXPECT_EQ(cache->used_page_count(), 19);
  EXPECT_EQ(cache->free_page_count(), 32 - 19);
}

TEST(RollingCache, AForkKeepsItsPagesWhenTheOtherRolls) {
  const auto cache = make_rolling_cache();
  const SequenceId id = cache->create_sequence();
  cache->reserve(id, 40).value().commit();
  write(*cache, id, 0, 40, 100);
  const SequenceId copy = *cache->fork(id);
  cache->reserve(id, 16).value().commit();  // page 0 of both goes for it
  // Of the four pages the copy sees two, and two are its own.
  EXPECT_EQ(cache->reserve(id, 16).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(cache->length(id), 56);
  EXPECT_THAT(violations(cache->snapshots()), IsEmpty());
  expect_written(*cache, copy, 32, 40, 100);
  cache->free_sequence(id);
  cache->reserve(copy, 8).value().commit();
  EXPECT_THAT(violations(cache->snapshots()), IsEmpty());
}

// Every layer has a window: whole sequences are counted all the same.
TEST(RollingCache, OfWindowedLayersAloneCountsWholeSequences) {
  auto cache = Cache::create({.n_layers = 2,
                              .layout = layout_of(kHeads, kHeadDim),
                              .capacity_tokens = 256,
                              .windows = {{.window_tokens = 20, .capacity_tokens = 64}}});
  ASSERT_TRUE(cache.is_ok()) << cache.status().message();
  const SequenceId id = (*cache)->create_sequence();
  for (int i = 0; i < 16; ++i) (*cache)->reserve(id, 16).value().commit();
  EXPECT_EQ((*cache)->length(id), 256);
  EXPECT_EQ((*cache)->used_page_count(), 16);
  EXPECT_EQ((*cache)->memory_bytes(), (*cache)->page_bytes() * 4);
  EXPECT_THAT((*cache)->reserve(id, 1).status().message(), HasSubstr("257 tokens asked for"));
  EXPECT_THAT(violations((*cache)->snapshots()), IsEmpty());
}

TEST(RollingCache, WindowsOfOtherGroupsThanThereAreAreRefused) {
  const auto cache = Cache::create({.n_layers = 1,
                                    .layout = layout_of(kHeads, kHeadDim),
                                    .capacity_tokens = 64,
                                    .windows = {{}, {}}});
  EXPECT_EQ(cache.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace weft::kv
