#include "bench/kv.h"

#include <gtest/gtest.h>

#include <cstring>

namespace weft::bench {
namespace {

constexpr KvShape kSmall{.n_layers = 2, .n_kv_heads = 1, .head_dim = 64, .capacity_tokens = 16'384};

constexpr auto go_on = [](int64_t, int64_t) { return true; };

// Pages are of 4 KB a layer, as small as memory pages, so nothing is rounded up.
TEST(BenchKv, HalfFreedWhatIsResidentIsWhatIsUsedAndContentsAreEqual) {
  auto report = bench_kv(posix_env(), {.shape = kSmall, .operations = 20'000}, go_on);
  ASSERT_TRUE(report.is_ok()) << report.status().message();
  EXPECT_TRUE(report->contents_equal);
  int64_t n_done = 0;
  for (const int64_t n : report->done) {
    EXPECT_GT(n, 50);
    n_done += n;
  }
  EXPECT_GT(n_done, 19'000);  // but for those that found no sequence
  EXPECT_GT(report->found_prefixes, 10);
  EXPECT_GT(report->without_pages, 10);
  EXPECT_GT(report->worked.pages.shared, 0);
  EXPECT_EQ(report->freed.sequences, report->worked.sequences / 2);
  EXPECT_LT(report->freed.used_bytes, report->worked.used_bytes);
  EXPECT_GT(report->freed.resident_bytes, 1.2 * report->freed.used_bytes);
  EXPECT_EQ(report->compacted.used_bytes, report->freed.used_bytes);
  EXPECT_EQ(report->compacted.resident_bytes, report->compacted.used_bytes);
  EXPECT_GT(report->compacting.moved_pages, 0);
  EXPECT_GT(report->compacting.returned_pages, 0);
}

TEST(BenchKv, AWrongBitShows) {
  auto work = KvWork::create(kSmall, 3);
  ASSERT_TRUE(work.is_ok());
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(work->step().is_ok());
  EXPECT_TRUE(work->is_right());
  // Of the first slot of each page: whichever are used, a token is in it.
  const kernels::PagedKv kv = work->cache().layer(1);
  for (int32_t page = 0; page < work->cache().page_count(); ++page) {
    *kernels::k_at(kv, &page, 0, 0) ^= 4;
  }
  EXPECT_FALSE(work->is_right());
  int32_t n_seen = 0;  // by a look at a token at random
  for (int i = 0; i < 200'000; ++i) n_seen += !work->looks_right();
  EXPECT_GT(n_seen, 0);
}

TEST(BenchKv, RefusesShapesAndStops) {
  KvOptions options{.shape = kSmall, .operations = 100};
  options.shape.head_dim = 63;
  EXPECT_EQ(bench_kv(posix_env(), options, go_on).status().code(), StatusCode::kUnsupported);
  options.shape = {
      .n_layers = 4096, .n_kv_heads = 4096, .head_dim = 256, .capacity_tokens = 1 << 28};
  EXPECT_EQ(bench_kv(posix_env(), options, go_on).status().code(), StatusCode::kInvalidArgument);
  options.shape = kSmall;
  const auto stop = [](int64_t, int64_t) { return false; };
  EXPECT_EQ(bench_kv(posix_env(), options, stop).status().code(), StatusCode::kCancelled);
}

}  // namespace
}  // namespace weft::bench
