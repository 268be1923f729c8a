#include "sparse/channel_meter.h"

#include <gtest/gtest.h>

#include <numeric>

#include "kernels/attention.h"
#include "support/test_pool.h"

namespace weft::sparse {
namespace {

constexpr int32_t kHeadDim = 64;
constexpr int32_t kKvHeads = 2;
constexpr int32_t kHeads = 4;

constexpr int32_t kTokens = 20;

/// What saw layer 1 of 3, and there the same query in each of kTokens rows, of these keys
/// [kTokens][kKvHeads * kHeadDim].
ChannelMeter meter_of(const std::vector<float>& q, const std::vector<float>& k) {
  const auto cache = *kv::Cache::create({.n_layers = 3,
                                         .layer_groups = {},
                                         .layout = {.k_type = DType::kF32,
                                                    .v_type = DType::kF32,
                                                    .head_dim = kHeadDim,
                                                    .n_kv_heads = kKvHeads,
                                                    .page_tokens = 16},
                                         .capacity_tokens = 64,
                                         .windows = {},
                                         .digests = {}});
  test::TestPool pool(2);
  const kernels::Context context{pool, kernels::best_isa()};
  const kv::OwnedSequence sequence(*cache, cache->create_sequence());
  const kv::Reservation reservation = *cache->reserve(sequence.id(), kTokens);
  std::vector<int32_t> slots(kTokens);
  std::iota(slots.begin(), slots.end(), 0);
  const auto table = cache->layer_table(sequence.id(), 1);
  const kernels::AttentionSequence written[] = {
      {table.data(), 0, kTokens, kernels::KernelClass::kPrefill}};
  const MatrixView<const float> keys(k.data(), kTokens, kKvHeads * kHeadDim);
  kernels::write_kv(context, cache->layer(1), written, slots, keys, keys);
  std::vector<kv::SelectingRow> rows;
  for (const int32_t slot : slots) rows.push_back({sequence.id(), slot, q.data(), table});
  ChannelMeter meter(3, kKvHeads, kHeadDim);
  const auto lists = meter.select(context, {*cache, 1, kHeads, 1.0f, 0, rows});
  EXPECT_EQ(lists.size(), rows.size());
  for (const auto& list : lists) EXPECT_TRUE(list.empty());  // it chooses nothing
  return meter;
}

/// Of a layer and KV head, n of each.
std::vector<int> of_head(const std::vector<uint8_t>& channels, int32_t n, int32_t layer,
                         int32_t head) {
  EXPECT_EQ(std::ssize(channels), 3 * kKvHeads * n);
  const auto begin = channels.begin() + (layer * kKvHeads + head) * n;
  return {begin, begin + n};
}

std::vector<int> first_ones(int32_t n) {
  std::vector<int> first(n);
  std::iota(first.begin(), first.end(), 0);
  return first;
}

TEST(ChannelMeter, FindsTheDimensionsWhereQueriesAndKeysAreLargeTogether) {
  // K of KV head 0 is large in the dimensions from 10 on, of head 1 in those from 40 on; half of
  // the tokens' have the other sign, so that their mean says nothing.
  std::vector<float> k(kTokens * kKvHeads * kHeadDim, 0.1f);
  for (int32_t t = 0; t < kTokens; ++t) {
    for (int32_t d = 0; d < 20; ++d) {
      k[(t * kKvHeads + 0) * kHeadDim + 10 + d] = t % 2 == 0 ? 5.0f : -5.0f;
      k[(t * kKvHeads + 1) * kHeadDim + 40 + d] = t % 2 == 0 ? -5.0f : 5.0f;
    }
  }
  // Queries leave out four of these twenty: of the first head's group 12 to 15 (either of its two
  // heads alone would leave out more), of the second's 50 to 53.
  std::vector<float> q(kHeads * kHeadDim, -1.0f);
  const auto leave_out = [&](int32_t head, int32_t begin, int32_t end) {
    for (int32_t d = begin; d < end; ++d) q[head * kHeadDim + d] = 0.001f;
  };
  leave_out(0, 12, 20);
  leave_out(1, 8, 16);
  leave_out(2, 50, 54);
  leave_out(3, 50, 54);
  const ChannelMeter meter = meter_of(q, k);
  std::vector<int> first{10, 11}, second;
  for (int d = 16; d < 30; ++d) first.push_back(d);
  for (int d = 40; d < 60; ++d) {
    if (d < 50 || d >= 54) second.push_back(d);
  }
  const auto channels = meter.channels(kernels::LabelKind::kChannels);
  EXPECT_EQ(of_head(channels, kernels::kLabelChannels, 1, 0), first);
  EXPECT_EQ(of_head(channels, kernels::kLabelChannels, 1, 1), second);
  // A layer that was not seen has the first.
  EXPECT_EQ(of_head(channels, kernels::kLabelChannels, 2, 1), first_ones(kernels::kLabelChannels));

  // All of them, the heaviest first; of the same weight in K's order.
  const auto orders = meter.channels(kernels::LabelKind::kSides);
  std::vector<int> heaviest = of_head(orders, kHeadDim, 1, 1);
  for (int32_t i = 0; i < 16; ++i) EXPECT_EQ(heaviest[i], second[i]);
  EXPECT_EQ(of_head(orders, kHeadDim, 2, 1), first_ones(kHeadDim));
  for (int32_t head = 0; head < kKvHeads; ++head) {
    std::vector<int> once = of_head(orders, kHeadDim, 1, head);
    std::ranges::sort(once);
    EXPECT_EQ(once, first_ones(kHeadDim));
  }
}

// What is the same in all keys tells none of them from another, however large it is.
TEST(ChannelMeter, OrdersByWhatKeysDifferIn) {
  std::vector<float> k(kTokens * kKvHeads * kHeadDim, 0.0f);
  for (int32_t t = 0; t < kTokens; ++t) {
    float* const of_token = k.data() + t * kKvHeads * kHeadDim;
    of_token[3] = 100.0f;
    of_token[9] = t % 2 == 0 ? 1.0f : -1.0f;
    of_token[5] = t % 2 == 0 ? 2.0f : -2.0f;
  }
  std::vector<float> q(kHeads * kHeadDim, 1.0f);
  for (int32_t head = 0; head < kHeads; ++head) q[head * kHeadDim + 9] = -3.0f;
  std::vector<int> order =
      of_head(meter_of(q, k).channels(kernels::LabelKind::kSides), kHeadDim, 1, 0);
  order.resize(4);
  EXPECT_EQ(order, (std::vector<int>{9, 5, 0, 1}));
}

}  // namespace
}  // namespace weft::sparse
