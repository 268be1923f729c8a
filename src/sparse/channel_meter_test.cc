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

/// K as given for every token of one sequence, at both layers.
TEST(ChannelMeter, FindsTheDimensionsWhereQueriesAndKeysAreLargeTogether) {
  auto cache = *kv::Cache::create({.n_layers = 3,
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
  const kv::Reservation reservation = *cache->reserve(sequence.id(), 20);
  // K of KV head 0 is large in the dimensions from 10 on, of head 1 in those from 40 on; half of
  // the tokens' have the other sign, so that their mean says nothing.
  std::vector<float> k(20 * kKvHeads * kHeadDim, 0.1f);
  for (int32_t t = 0; t < 20; ++t) {
    for (int32_t d = 0; d < 20; ++d) {
      k[(t * kKvHeads + 0) * kHeadDim + 10 + d] = t % 2 == 0 ? 5.0f : -5.0f;
      k[(t * kKvHeads + 1) * kHeadDim + 40 + d] = t % 2 == 0 ? -5.0f : 5.0f;
    }
  }
  std::vector<int32_t> slots(20);
  std::iota(slots.begin(), slots.end(), 0);
  const auto table = cache->layer_table(sequence.id(), 1);
  const kernels::AttentionSequence written[] = {
      {table.data(), 0, 20, kernels::KernelClass::kPrefill}};
  const MatrixView<const float> keys(k.data(), 20, kKvHeads * kHeadDim);
  kernels::write_kv(context, cache->layer(1), written, slots, keys, keys);

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

  ChannelMeter meter(3, kKvHeads, kHeadDim);
  std::vector<kv::SelectingRow> rows;
  for (int32_t slot = 0; slot < 20; ++slot) {
    rows.push_back({sequence.id(), slot, q.data(), table});
  }
  const auto lists = meter.select(context, {*cache, 1, kHeads, 1.0f, 0, rows});
  ASSERT_EQ(lists.size(), rows.size());
  for (const auto& list : lists) EXPECT_TRUE(list.empty());  // it chooses nothing

  const std::vector<uint8_t> channels = meter.channels(kernels::LabelKind::kChannels);
  ASSERT_EQ(std::ssize(channels), 3 * kKvHeads * kernels::kLabelChannels);
  const auto of = [&](int32_t layer, int32_t head) {
    const auto begin = channels.begin() + (layer * kKvHeads + head) * kernels::kLabelChannels;
    return std::vector<int>(begin, begin + kernels::kLabelChannels);
  };
  std::vector<int> first{10, 11}, second;
  for (int d = 16; d < 30; ++d) first.push_back(d);
  for (int d = 40; d < 60; ++d) {
    if (d < 50 || d >= 54) second.push_back(d);
  }
  EXPECT_EQ(of(1, 0), first);
  EXPECT_EQ(of(1, 1), second);
  // A layer that was not seen has the first.
  std::vector<int> unseen(kernels::kLabelChannels);
  std::iota(unseen.begin(), unseen.end(), 0);
  EXPECT_EQ(of(2, 1), unseen);

  // All of them, the heaviest first; of the same weight in K's order.
  const std::vector<uint8_t> orders = meter.channels(kernels::LabelKind::kSides);
  ASSERT_EQ(std::ssize(orders), 3 * kKvHeads * kHeadDim);
  const auto order_of = [&](int32_t layer, int32_t head) {
    return std::span(orders).subspan((layer * kKvHeads + head) * kHeadDim, kHeadDim);
  };
  for (int32_t i = 0; i < 16; ++i) EXPECT_EQ(order_of(1, 1)[i], second[i]);
  for (int32_t d = 0; d < kHeadDim; ++d) EXPECT_EQ(order_of(2, 1)[d], d);
  for (int32_t head = 0; head < kKvHeads; ++head) {
    std::vector<int> once(order_of(1, head).begin(), order_of(1, head).end());
    std::ranges::sort(once);
    for (int32_t d = 0; d < kHeadDim; ++d) EXPECT_EQ(once[d], d);
  }
}

// What is the same in all keys tells none of them from another, however large it is.
TEST(ChannelMeter, OrdersByWhatKeysDifferIn) {
  const auto cache = *kv::Cache::create({.n_layers = 1,
                                         .layout = {.k_type = DType::kF32,
                                                    .v_type = DType::kF32,
                                                    .head_dim = 16,
                                                    .n_kv_heads = 1,
                                                    .page_tokens = 16},
                                         .capacity_tokens = 16,
                                         .windows = {},
                                         .digests = {}});
  test::TestPool pool(1);
  const kernels::Context context{pool, kernels::best_isa()};
  const kv::OwnedSequence sequence(*cache, cache->create_sequence());
  const kv::Reservation reservation = *cache->reserve(sequence.id(), 16);
  std::vector<float> k(16 * 16, 0.0f);
  for (int32_t t = 0; t < 16; ++t) {
    k[t * 16 + 3] = 100.0f;
    k[t * 16 + 9] = t % 2 == 0 ? 1.0f : -1.0f;
    k[t * 16 + 5] = t % 2 == 0 ? 2.0f : -2.0f;
  }
  std::vector<int32_t> slots(16);
  std::iota(slots.begin(), slots.end(), 0);
  const auto table = cache->layer_table(sequence.id(), 0);
  const kernels::AttentionSequence written[] = {
      {table.data(), 0, 16, kernels::KernelClass::kPrefill}};
  const MatrixView<const float> keys(k.data(), 16, 16);
  kernels::write_kv(context, cache->layer(0), written, slots, keys, keys);
  std::vector<float> q(16, 1.0f);
  q[9] = -3.0f;
  std::vector<kv::SelectingRow> rows;
  for (const int32_t slot : slots) rows.push_back({sequence.id(), slot, q.data(), table});
  ChannelMeter meter(1, 1, 16);
  meter.select(context, {*cache, 0, 1, 1.0f, 0, rows});
  const std::vector<uint8_t> order = meter.channels(kernels::LabelKind::kSides);
  EXPECT_EQ((std::vector<int>(order.begin(), order.begin() + 4)), (std::vector<int>{9, 5, 0, 1}));
}

}  // namespace
}  // namespace weft::sparse
