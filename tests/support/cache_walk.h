// Random operations on a cache of pages of random K and V that has digests: what becomes of
// sequences, be they copied, cut, written again or moved to other pages.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "kv/cache.h"
#include "support/test_pool.h"

namespace weft::test {

/// A step is one of them, chosen by chance. `did` says how often each was done.
class CacheWalk {
 public:
  static constexpr int32_t kPageTokens = 16;
  static constexpr int32_t kHeadDim = 32;
  static constexpr int32_t kKvHeads = 2;
  static constexpr int32_t kLayers = 2;
  static inline const kv::DigestFormat kDigests{.kind = kernels::DigestKind::kCuboidMean,
                                                .type = kernels::DigestType::kInt8,
                                                .labels = kernels::LabelKind::kSides};

  explicit CacheWalk(uint32_t seed) : random_(seed) {
    auto cache = kv::Cache::create({.n_layers = kLayers,
                                    .layer_groups = {},
                                    .layout = {.k_type = DType::kF16,
                                               .v_type = DType::kF16,
                                               .head_dim = kHeadDim,
                                               .n_kv_heads = kKvHeads,
                                               .page_tokens = kPageTokens},
                                    .capacity_tokens = 24 * kPageTokens,
                                    .windows = {},
                                    .digests = kDigests});
    EXPECT_TRUE(cache.is_ok()) << cache.status().message();
    cache_ = std::move(*cache);
  }

  void step() {
    switch (below(10)) {
      case 0:
        if (ids_.size() < 5) ids_.push_back(cache_->create_sequence());
        break;
      case 1:
      case 2:
      case 3:
        grow(false);
        break;
      case 4:
        grow(true);
        break;
      case 5:
        fork();
        break;
      case 6:
        cut();
        break;
      case 7:
        remove();
        break;
      case 8:
        overwrite();
        break;
      default:
        free_or_compact();
    }
  }

  /// A sequence chosen by chance, if there is one.
  std::optional<kv::SequenceId> any_sequence() {
    return ids_.empty() ? std::nullopt : std::optional(one());
  }
  int32_t below(int32_t n) { return static_cast<int32_t>(random_() % n); }
  kv::Cache& cache() { return *cache_; }
  const kernels::Context& context() const { return context_; }

  /// Committed, and written ones of a reservation that is there.
  int32_t n_slots(kv::SequenceId id) const {
    return reserved_ && reserved_->first == id ? reserved_->second : cache_->length(id);
  }

  std::map<std::string, int> did;
  std::function<void()> while_reserved;  // called when a reservation's slots are written

 private:
  kv::SequenceId one() { return ids_[below(static_cast<int32_t>(ids_.size()))]; }

  /// Random K and V in the slots [begin, end), which are the sequence's alone.
  void write(kv::SequenceId id, int32_t begin, int32_t end) {
    const int64_t n = end - begin;
    if (n == 0) return;
    std::normal_distribution<float> normal;
    std::vector<float> numbers(n * kKvHeads * kHeadDim);
    std::vector<int32_t> slots(n);
    for (int64_t i = 0; i < n; ++i) slots[i] = begin + static_cast<int32_t>(i);
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      for (float& x : numbers) x = normal(random_);
      const kernels::AttentionSequence rows[] = {
          {cache_->layer_table(id, layer).data(), 0, n, kernels::KernelClass::kPrefill}};
      const MatrixView<const float> k(numbers.data(), n, kKvHeads * kHeadDim);
      kernels::write_kv(context_, cache_->layer(layer), rows, slots, k, k);
    }
  }

  void grow(bool rolls_back) {
    if (ids_.empty()) return;
    const kv::SequenceId id = one();
    auto reservation = cache_->reserve(id, below(40));
    if (!reservation.is_ok()) return;
    write(id, reservation->begin(), reservation->end());
    reserved_ = {id, reservation->end()};
    if (while_reserved) while_reserved();
    reserved_.reset();
    if (rolls_back) {
      reservation->rollback();
      ++did["rolled back"];
    } else {
      reservation->commit();
      ++did["grew"];
    }
  }

  void fork() {
    if (ids_.empty() || ids_.size() >= 5) return;
    const auto copy = cache_->fork(one());
    ASSERT_TRUE(copy.is_ok());
    ids_.push_back(*copy);
    ++did["forked"];
  }

  void cut() {
    if (ids_.empty()) return;
    const kv::SequenceId id = one();
    ASSERT_TRUE(cache_->truncate(id, below(cache_->length(id) + 1)).is_ok());
    ++did["cut"];
  }

  void remove() {
    if (ids_.empty()) return;
    const kv::SequenceId id = one();
    const int32_t begin = below(cache_->length(id) + 1);
    const int32_t end = begin + below(cache_->length(id) - begin + 1);
    const Status status = cache_->remove(id, begin, end, [&](std::span<const int32_t> by) {
      write(id, begin, begin + static_cast<int32_t>(by.size()));
    });
    did["removed"] += status.is_ok() ? 1 : 0;
  }

  /// What a shift, a fusion and Self-Extend do.
  void overwrite() {
    if (ids_.empty()) return;
    const kv::SequenceId id = one();
    const int32_t begin = below(cache_->length(id) + 1);
    const int32_t end = begin + below(cache_->length(id) - begin + 1);
    if (!cache_->make_writable(id, begin, end).is_ok()) return;
    write(id, begin, end);
    ++did["overwritten"];
  }

  void free_or_compact() {
    if (!ids_.empty() && below(3) == 0) {
      const int32_t which = below(static_cast<int32_t>(ids_.size()));
      cache_->free_sequence(ids_[which]);
      ids_.erase(ids_.begin() + which);
      ++did["freed"];
    }
    did["moved"] +=
        cache_->give_back_memory({.slack_pages = 0, .slack_divisor = 1 << 20}).moved_pages;
  }

  std::mt19937 random_;
  TestPool pool_{1};
  kernels::Context context_{pool_, kernels::best_isa()};
  std::unique_ptr<kv::Cache> cache_;
  std::vector<kv::SequenceId> ids_;
  std::optional<std::pair<kv::SequenceId, int32_t>> reserved_;
};

}  // namespace weft::test
