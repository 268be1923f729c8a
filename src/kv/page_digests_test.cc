// Digests are those of what the pages hold, whatever became of the sequences before: random
// operations on a cache, after each of which the digests of a sequence's full pages are compared
// with ones that were just made.
#include "kv/page_digests.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <string>

#include "kernels/attention.h"
#include "kernels/ref/page_digest.h"
#include "kv/cache.h"
#include "support/cache_walk.h"
#include "support/test_pool.h"

namespace weft::kv {
namespace {

using test::CacheWalk;

constexpr int32_t kPageTokens = 16;
constexpr int32_t kHeadDim = 32;
constexpr int32_t kKvHeads = 2;

/// Of a sequence chosen by chance.
void check(CacheWalk& walk) {
  const std::optional<SequenceId> any = walk.any_sequence();
  if (!any) return;
  const SequenceId id = *any;
  Cache& cache = walk.cache();
  const int32_t n_sealed = cache.length(id) / kPageTokens;
  if (n_sealed == 0) return;
  for (int32_t layer = 0; layer < CacheWalk::kLayers; ++layer) {
    const auto pages = cache.layer_table(id, layer).first(n_sealed);
    const LayerDigests kept = cache.digests(walk.context(), layer, pages);
    const int64_t n_digests = int64_t{cache.page_count()} * kKvHeads;
    std::vector<std::byte> memory(n_digests * kept.digests.bytes + 64),
        label_memory(n_digests * kept.labels->bytes + 64);
    const auto made = kernels::make_paged_digests(kept.digests.layout, memory.data());
    const auto labels =
        kernels::make_paged_labels(kept.labels->layout, label_memory.data(), nullptr);
    kernels::make_digests(walk.context(), cache.layer(layer), pages, made);
    kernels::make_labels(walk.context(), cache.layer(layer), pages, made, labels);
    const auto text = [](const uint8_t* bytes, int32_t n) {
      return std::string(reinterpret_cast<const char*>(bytes), n);
    };
    for (const int32_t page : pages) {
      for (int32_t head = 0; head < kKvHeads; ++head) {
        ASSERT_EQ(text(digest_at(kept.digests, page, head), made.bytes),
                  text(digest_at(made, page, head), made.bytes))
            << "page " << page << ", head " << head;
        ASSERT_EQ(text(label_at(*kept.labels, page, head), labels.bytes),
                  text(label_at(labels, page, head), labels.bytes))
            << "page " << page << ", head " << head;
      }
    }
    walk.did["compared"] += n_sealed;
  }
}

class DigestsProperty : public ::testing::TestWithParam<uint32_t> {};

TEST_P(DigestsProperty, AreThoseOfWhatThePagesHold) {
  CacheWalk walk(GetParam());
  for (int i = 0; i < 4'000; ++i) {
    walk.step();
    check(walk);
    if (HasFatalFailure()) FAIL() << "step " << i;
  }
  for (const char* what :
       {"grew", "rolled back", "forked", "cut", "removed", "overwritten", "freed", "moved"}) {
    EXPECT_GT(walk.did[what], 20) << what;
  }
  EXPECT_GT(walk.did["compared"], 4'000);
}

INSTANTIATE_TEST_SUITE_P(Seeds, DigestsProperty, ::testing::Range(1u, 6u));

TEST(PageDigests, AreMadeOnceUntilThePageIsWritten) {
  struct Contents : PageContents {
    void copy_page(int32_t, int32_t) override {}
    void page_freed(int32_t) override {}
    void give_back(int32_t, int32_t) override {}
  } contents;
  PagePool pool(4, contents);
  auto digests = PageDigests::create({}, {.head_dim = 8, .n_kv_heads = 1, .page_tokens = 16}, 2, 4);
  ASSERT_TRUE(digests.is_ok());
  const int32_t page = pool.allocate().page;
  const std::vector<int32_t> pages{page};
  const auto misses = [&](int32_t layer) { return !digests->missing(layer, pages, pool).empty(); };
  EXPECT_TRUE(misses(0));
  digests->set_made(0, pages, pool);
  EXPECT_FALSE(misses(0));
  EXPECT_TRUE(misses(1));
  digests->set_made(1, pages, pool);
  digests->forget(page);
  EXPECT_TRUE(misses(0));
  EXPECT_TRUE(misses(1));
  digests->set_made(0, pages, pool);
  pool.release(page);
  ASSERT_EQ(pool.allocate().page, page);  // the same memory, another page
  EXPECT_TRUE(misses(0));
}

/// A cache of so many pages with digests and labels.
std::unique_ptr<Cache> cache_with(std::vector<bool> layers, int32_t n_pages,
                                  std::vector<int32_t> groups) {
  auto cache = Cache::create({.n_layers = 4,
                              .layer_groups = std::move(groups),
                              .layout = {.k_type = DType::kF16,
                                         .v_type = DType::kF16,
                                         .head_dim = kHeadDim,
                                         .n_kv_heads = kKvHeads,
                                         .page_tokens = kPageTokens},
                              .capacity_tokens = n_pages * kPageTokens,
                              .windows = {},
                              .digests = DigestFormat{.kind = kernels::DigestKind::kCuboidMean,
                                                      .type = kernels::DigestType::kInt8,
                                                      .labels = kernels::LabelKind::kSides,
                                                      .channels = {},
                                                      .layers = std::move(layers)}});
  EXPECT_TRUE(cache.is_ok()) << cache.status().message();
  return std::move(*cache);
}

TEST(Digests, LayersThatHaveThemEachHaveTheirOwn) {
  test::TestPool pool(1);
  const kernels::Context context{pool, kernels::best_isa()};
  const auto cache = cache_with({false, true, true, true}, 8, {0, 1, 0, 1});
  const SequenceId id = cache->create_sequence();
  cache->reserve(id, kPageTokens)->commit();
  // Keys of a layer are its number.
  std::vector<int32_t> slots(kPageTokens);
  std::iota(slots.begin(), slots.end(), 0);
  for (int32_t layer = 0; layer < 4; ++layer) {
    const std::vector<float> numbers(kPageTokens * kKvHeads * kHeadDim, 1.0f * layer);
    const kernels::AttentionSequence rows[] = {
        {cache->layer_table(id, layer).data(), 0, kPageTokens, kernels::KernelClass::kPrefill}};
    const MatrixView<const float> k(numbers.data(), kPageTokens, kKvHeads * kHeadDim);
    kernels::write_kv(context, cache->layer(layer), rows, slots, k, k);
  }
  for (const int32_t layer : {1, 2, 3})
    (void)cache->digests(context, layer, cache->layer_table(id, layer));
  for (const int32_t layer : {1, 2, 3}) {
    const auto pages = cache->layer_table(id, layer);
    const LayerDigests digests = cache->digests(context, layer, pages);
    EXPECT_NEAR(kernels::ref::digest_values(digests.digests, pages[0], 1)[0], layer, 0.02);
  }
}

TEST(Digests, TheirMemoryGoesBackWithTheirPages) {
  constexpr int32_t kPages = 4096;
  test::TestPool pool(1);
  const kernels::Context context{pool, kernels::best_isa()};
  const auto cache = cache_with({}, kPages, {});
  const SequenceId id = cache->create_sequence();
  cache->reserve(id, kPages * kPageTokens)->commit();
  for (int32_t layer = 0; layer < 4; ++layer) {
    (void)cache->digests(context, layer, cache->layer_table(id, layer));
  }
  const int64_t full = cache->digest_resident_bytes();
  EXPECT_GT(full, 4 * kPages * kKvHeads * (2 * kHeadDim + 2 * kHeadDim));
  ASSERT_TRUE(cache->truncate(id, kPages / 4 * kPageTokens).is_ok());
  while (cache->give_back_memory({.slack_pages = 0, .slack_divisor = 1 << 20}).goes_on) {
  }
  EXPECT_LT(cache->digest_resident_bytes(), full / 3);
}

}  // namespace
}  // namespace weft::kv
