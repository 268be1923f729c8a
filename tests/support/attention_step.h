// A step of random queries over random pages, for tests of attention.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/kv_codec.h"
#include "kernels/ref/attention.h"
#include "kernels/ref/kv_codec.h"
#include "support/numbers.h"
#include "support/test_pool.h"

namespace weft::kernels {

inline constexpr uint8_t kNanByte = 0xff;  // of a NaN in f32, f16, bf16 and scales in f16
inline constexpr float kGuard = -12345.0f;

struct Shape {
  int32_t head_dim, n_kv_heads, group, page_tokens;
  KvTypes types = {};
  KvLayout layout() const { return {types.k, types.v, head_dim, n_kv_heads, page_tokens}; }
};

/// Page memory full of NaN, filled as far as sequences were added, pages dealt out in a mixed
/// order.
class Pages {
 public:
  Pages(const Shape& shape, int32_t n_pages)
      : shape_(shape),
        bytes_(n_pages * shape.page_tokens * kv_token_bytes(shape.layout()), kNanByte),
        free_(n_pages) {
    std::iota(free_.begin(), free_.end(), 0);
    std::shuffle(free_.begin(), free_.end(), std::mt19937(7));
  }
  PagedKv kv() {
    return make_paged_kv(shape_.layout(), reinterpret_cast<std::byte*>(bytes_.data()));
  }
  /// A block table of n_tokens random tokens, whose first n_shared pages are those of `other`.
  std::vector<int32_t> add(int64_t n_tokens, uint32_t seed, const std::vector<int32_t>& other = {},
                           size_t n_shared = 0) {
    std::vector<int32_t> table(other.begin(), other.begin() + n_shared);
    while (std::ssize(table) * shape_.page_tokens < n_tokens) {
      table.push_back(free_.back());
      free_.pop_back();
    }
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    for (int64_t p = n_shared * shape_.page_tokens; p < n_tokens; ++p) {
      for (int32_t head = 0; head < shape_.n_kv_heads; ++head) {
        std::vector<float> k(shape_.head_dim), v(shape_.head_dim);
        for (int32_t d = 0; d < shape_.head_dim; ++d) {
          k[d] = normal(generator);
          v[d] = normal(generator);
        }
        ref::set_kv_vector(shape_.types.k, k.data(), shape_.head_dim,
                           k_at(kv(), table.data(), p, head));
        ref::set_kv_vector(shape_.types.v, v.data(), shape_.head_dim,
                           v_at(kv(), table.data(), p, head));
      }
    }
    return table;
  }
  /// Makes NaN of what a slot holds.
  void poison(const std::vector<int32_t>& table, int64_t slot, int32_t head) {
    std::fill_n(k_at(kv(), table.data(), slot, head), kv().k_bytes, kNanByte);
    std::fill_n(v_at(kv(), table.data(), slot, head), kv().v_bytes, kNanByte);
  }
  const std::vector<uint8_t>& bytes() const { return bytes_; }

 private:
  Shape shape_;
  std::vector<uint8_t> bytes_;
  std::vector<int32_t> free_;
};

/// The rows of a step: several sequences, each with its table and positions.
struct Step {
  Shape shape;
  PagedKv kv;
  std::vector<std::vector<int32_t>> tables;
  std::vector<int32_t> slots, first_slots;
  std::vector<AttentionSequence> sequences;
  std::vector<float> q;
  int32_t window_tokens = 0;
  float softcap = 0;

  /// Of the class that a step of so few rows has in practice, unless told.
  void add(const std::vector<int32_t>& table, const std::vector<int32_t>& rows) {
    add(table, rows, rows.size() <= 4 ? KernelClass::kDecode : KernelClass::kPrefill);
  }
  void add(const std::vector<int32_t>& table, const std::vector<int32_t>& rows,
           KernelClass kernel_class) {
    tables.push_back(table);
    const auto begin = std::ssize(slots);
    slots.insert(slots.end(), rows.begin(), rows.end());
    sequences.push_back({nullptr, begin, std::ssize(slots), kernel_class});
    const size_t row_floats = shape.n_kv_heads * shape.group * shape.head_dim;
    for (const int32_t slot : rows) {  // a query depends on its slot only, not on the step
      const std::vector<float> one = test::random_floats(row_floats, 1000u + slot);
      q.insert(q.end(), one.begin(), one.end());
    }
  }
  AttentionArgs args() {
    for (size_t i = 0; i < sequences.size(); ++i) sequences[i].block_table = tables[i].data();
    first_slots.clear();
    for (const int32_t slot : slots) first_slots.push_back(std::max(0, slot + 1 - window_tokens));
    return {.kv = kv,
            .sequences = sequences,
            .slots = slots,
            .first_slots = window_tokens == 0 ? std::span<int32_t>() : first_slots,
            .n_heads = shape.n_kv_heads * shape.group,
            .scale = 1.0f / std::sqrt(1.0f * shape.head_dim),
            .softcap = softcap,
            .q = {q, shape.n_kv_heads * shape.group * shape.head_dim}};
  }
};

struct Result {
  std::vector<float> out, log_sum_exp;
};

inline Result run(Step& step, Isa isa, int n_threads) {
  test::TestPool pool(n_threads);
  AttentionArgs args = step.args();
  test::Guarded<float> out(step.q.size(), kGuard);
  test::Guarded<float> log_sum_exp(step.slots.size() * args.n_heads, kGuard);
  args.out = {out.data(), args.q.rows, args.q.columns};
  args.log_sum_exp = {log_sum_exp.data(), args.q.rows, args.n_heads};
  attention({.pool = pool, .isa = isa}, args, plan_attention(isa, args));
  out.check();
  log_sum_exp.check();
  return {out.values(), log_sum_exp.values()};
}

inline std::vector<int32_t> range(int32_t begin, int32_t end) {
  std::vector<int32_t> values(end - begin);
  std::iota(values.begin(), values.end(), begin);
  return values;
}

// A score is a sum of head_dim products of which each and each partial sum rounds once, so it is
// off by at most about (head_dim + 4) eps |q||k| scale, in practice by the root of that many
// roundings. The probabilities are off by as much (relative), and the output, a convex mixture of
// V, by that times the largest |v|; summing n keys in blocks of 64 adds roundings of (64 + n / 64).
// |q||k| scale is about sqrt(head_dim) for our normal data; exp2 adds 2.5e-7.
inline double tolerance(const Shape& shape, int64_t n_keys) {
  const double eps = std::numeric_limits<float>::epsilon() / 2;
  const double head_dim = shape.head_dim;
  const double score_error = std::sqrt(head_dim) * (std::sqrt(head_dim) + 4) * eps;
  const double sum_error = std::sqrt(64.0 + n_keys) * eps;
  return 4 * (2 * score_error + sum_error + 2.5e-7);
}

inline void expect_close(const Result& result, const ref::AttentionResult& expected, double bound) {
  constexpr double kLargestValue = 4;  // of normal data, nearly always; |v| <= 4 covers the mixture
  double worst = 0, worst_log = 0;
  for (size_t i = 0; i < expected.out.size(); ++i) {
    ASSERT_FALSE(std::isnan(result.out[i])) << i;
    worst = std::max(worst, std::abs(result.out[i] - expected.out[i]));
  }
  for (size_t i = 0; i < expected.log_sum_exp.size(); ++i) {
    ASSERT_FALSE(std::isnan(result.log_sum_exp[i])) << i;
    worst_log = std::max(worst_log, std::abs(result.log_sum_exp[i] - expected.log_sum_exp[i]));
  }
  EXPECT_LT(worst, bound * kLargestValue);
  EXPECT_LT(worst_log, bound * 2);
}

}  // namespace weft::kernels
