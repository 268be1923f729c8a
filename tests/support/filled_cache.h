// A cache of sequences whose pages differ, with digests, and a selector of its second layer.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "kernels/kv_codec.h"
#include "sparse/selector.h"
#include "support/test_pool.h"

namespace weft::sparse {

inline constexpr int32_t kPageTokens = 16;
inline constexpr int32_t kHeadDim = 32;
inline constexpr int32_t kKvHeads = 2;
inline constexpr int32_t kHeads = 6;
inline constexpr int32_t kGroup = kHeads / kKvHeads;
inline constexpr float kScale = 0.17f;

/// Two layers, the second of which selects, and so is the first that does unless both do.
class Filled {
 public:
  explicit Filled(const SparseOptions& options, DType k_type = DType::kF16, int n_threads = 2,
                  const std::vector<bool>& selects = {false, true})
      : pool_(n_threads), options_(options) {
    auto cache = kv::Cache::create({.n_layers = 2,
                                    .layer_groups = {},
                                    .layout = {.k_type = k_type,
                                               .v_type = DType::kF16,
                                               .head_dim = kHeadDim,
                                               .n_kv_heads = kKvHeads,
                                               .page_tokens = kPageTokens},
                                    .capacity_tokens = 900 * kPageTokens,
                                    .windows = {},
                                    .digests = digest_format(options)});
    EXPECT_TRUE(cache.is_ok());
    cache_ = std::move(*cache);
    selector_ = make_selector(options, selects, posix_env());
  }

  kv::Cache& cache() { return *cache_; }
  kernels::Context& context() { return context_; }
  CountingSelector& selector() { return *selector_; }

  /// A sequence of random K whose pages differ, as their sums do; and one token more, reserved.
  kv::SequenceId add(int32_t n_tokens, uint32_t seed) {
    const kv::SequenceId id = cache_->create_sequence();
    auto reservation = cache_->reserve(id, n_tokens);
    EXPECT_TRUE(reservation.is_ok());
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> k(int64_t{n_tokens} * kKvHeads * kHeadDim), middle(kKvHeads * kHeadDim);
    for (int32_t slot = 0; slot < n_tokens; ++slot) {
      if (slot % kPageTokens == 0) {
        for (float& x : middle) x = normal(random);
      }
      for (size_t i = 0; i < middle.size(); ++i) {
        k[slot * middle.size() + i] = middle[i] + 0.5f * normal(random);
      }
    }
    write(id, 0, k);
    reservation->commit();
    return id;
  }

  /// K and V of the slots from `begin` on.
  void write(kv::SequenceId id, int32_t begin, std::span<const float> k) {
    constexpr int64_t kWidth = kKvHeads * kHeadDim;
    const int64_t n = std::ssize(k) / kWidth;
    std::vector<int32_t> slots(n);
    std::iota(slots.begin(), slots.end(), begin);
    const kernels::AttentionSequence rows[] = {
        {cache_->layer_table(id, 1).data(), 0, n, kernels::KernelClass::kPrefill}};
    const MatrixView<const float> keys(k.data(), n, kWidth);
    kernels::write_kv(context_, cache_->layer(1), rows, slots, keys, keys);
  }

  /// K of a page and KV head as it lies there.
  std::vector<float> keys(kv::SequenceId id, int32_t page, int32_t head) {
    const kernels::PagedKv kv = cache_->layer(1);
    std::vector<float> out(kPageTokens * kHeadDim);
    const int32_t* table = cache_->layer_table(id, 1).data();
    for (int32_t t = 0; t < kPageTokens; ++t) {
      const auto* from = kernels::k_at(kv, table, page * kPageTokens + t, head);
      kernels::decode_kv(context_.isa, kv.layout.k_type, reinterpret_cast<const std::byte*>(from),
                         std::span(out).subspan(t * kHeadDim, kHeadDim));
    }
    return out;
  }

 private:
  test::TestPool pool_;
  kernels::Context context_{pool_, kernels::best_isa()};
  SparseOptions options_;
  std::unique_ptr<kv::Cache> cache_;
  std::unique_ptr<CountingSelector> selector_;
};

inline std::vector<float> query(uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> q(kHeads * kHeadDim);
  for (float& x : q) x = normal(random);
  return q;
}

inline SparseOptions options_of(Policy policy, int32_t budget_tokens = 8 * kPageTokens,
                                kernels::DigestType type = kernels::DigestType::kF16) {
  SparseOptions options{.policy = policy, .budget_tokens = budget_tokens, .digest_type = type};
  for (int32_t i = 0; policy == Policy::kDoubleSparsity && i < 2 * kKvHeads * 16; ++i) {
    options.channels.push_back(i % 16 * 2);
  }
  const bool is_ordered = labels_of(policy) == kernels::LabelKind::kSides;
  for (int32_t i = 0; is_ordered && i < 2 * kKvHeads * kHeadDim; ++i) {
    options.channels.push_back(i * 5 % kHeadDim);
  }
  return options;
}

}  // namespace weft::sparse
