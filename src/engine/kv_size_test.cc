// How a limit is divided between pages and steps, with made-up sizes.
#include "engine/kv_size.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/byte_sizes.h"

namespace weft::engine {
namespace {

using ::testing::HasSubstr;

/// 4 layers in two groups.
kv::Cache::Options wanted(int32_t capacity_tokens) {
  return {.n_layers = 4,
          .layer_groups = {0, 1},
          .layout = {.k_type = DType::kF32,
                     .v_type = DType::kF32,
                     .head_dim = 64,
                     .n_kv_heads = 4,
                     .page_tokens = 16},
          .capacity_tokens = capacity_tokens};
}

/// A fixed part, one for each token of the cache and one for each row of a step.
constexpr auto step_bytes = [](int64_t capacity_tokens, int64_t step_rows) {
  return 1000 + 10 * capacity_tokens + 500 * step_rows;
};

Result<KvPlan> limited(int64_t limit_bytes, int32_t capacity_tokens = 4096) {
  return limit_kv(wanted(capacity_tokens), static_cast<uint64_t>(limit_bytes), step_bytes);
}

TEST(KvLimit, HoldsPagesAndALeastStepToTheByte) {
  for (const int64_t n_pages : {1, 2, 3, 5, 40, 255}) {
    const int64_t limit = limit_for_pages(wanted(4096), n_pages, step_bytes);
    const auto plan = limited(limit);
    ASSERT_TRUE(plan.is_ok()) << plan.status().message();
    EXPECT_EQ(plan->cache.capacity_tokens, 16 * n_pages);
    EXPECT_EQ(plan->step_rows, std::min<int64_t>(kLeastStepRows, 16 * n_pages));
    if (n_pages == 1) continue;
    EXPECT_EQ(limited(limit - 1)->cache.capacity_tokens, 16 * (n_pages - 1));
  }
}

TEST(KvLimit, DigestsAreChargedToTheLayersThatHaveThem) {
  const auto bytes_with = [](const std::vector<bool>& layers) {
    kv::Cache::Options cache = wanted(4096);
    cache.digests = kv::DigestFormat{.kind = kernels::DigestKind::kMinMax,
                                     .type = kernels::DigestType::kInt8,
                                     .labels = kernels::LabelKind::kSides,
                                     .channels = {},
                                     .layers = layers};
    return kv_cache_bytes(cache, 256);
  };
  const int64_t none = kv_cache_bytes(wanted(4096), 256), all = bytes_with({});
  // Of 4 heads a step and two bytes for each of 64 dimensions; two and a half bits more of each
  // token's for their labels; and which of its page's lives a digest is of.
  EXPECT_EQ(all - none, 2 * 256 * (4 * (4 + 2 * 64 + 5 * 64) + 8));
  EXPECT_EQ(bytes_with({true, true}), all);
  EXPECT_EQ(bytes_with({false, true}), (none + all) / 2);
}

TEST(KvLimit, WhatPagesLeaveGoesToSteps) {
  for (int64_t limit = 1 << 20; limit < 40 << 20; limit += 777'777) {
    const auto plan = limited(limit);
    ASSERT_TRUE(plan.is_ok()) << plan.status().message();
    const int64_t n_pages = plan->cache.capacity_tokens / 16;
    const int64_t page_bytes = kv_cache_bytes(wanted(4096), n_pages);
    EXPECT_EQ(plan->scratch_bytes, step_bytes(16 * n_pages, plan->step_rows));
    EXPECT_LE(page_bytes + plan->scratch_bytes, limit);
    const bool is_whole = plan->step_rows == 16 * n_pages;
    EXPECT_TRUE(is_whole || page_bytes + step_bytes(16 * n_pages, plan->step_rows + 1) > limit);
  }
  // All that is wanted, in one step.
  EXPECT_EQ(limited(int64_t{1} << 40)->cache.capacity_tokens, 4096);
  EXPECT_EQ(limited(int64_t{1} << 40)->step_rows, 4096);
}

TEST(KvLimit, OneThatIsTooSmallNamesTheLeast) {
  const int64_t least = limit_for_pages(wanted(4096), 1, step_bytes);
  const Status refused = limited(least - 1).status();
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(), HasSubstr(": a page of 16 tokens takes "));
  EXPECT_THAT(refused.message(),
              HasSubstr("at least " + size_flag_for(static_cast<uint64_t>(least)) + " is needed"));
  EXPECT_TRUE(limited(least).is_ok());
}

}  // namespace
}  // namespace weft::engine
